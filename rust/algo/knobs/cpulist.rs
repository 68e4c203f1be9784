// SPDX-License-Identifier: GPL-2.0

//! CPU sets, read and written as the kernel's CPU lists (`2-5,8`), which `cpuset.cpus`, `isolcpus=` and `taskset -c` use.
//!
//! A list is read as strictly as `taskset` does: an empty item (`2,,3`) is an error, because it is more often an unset
//! shell variable than a wish.

use core::fmt;

use crate::algo::limits::MAX_CPUS;

const WORD_BITS: u32 = u64::BITS;
const NR_WORDS: usize = (MAX_CPUS / WORD_BITS) as usize;

/// A set of CPU numbers below [`MAX_CPUS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; NR_WORDS],
}

impl CpuSet {
    /// The set without any CPU.
    pub const EMPTY: Self = Self {
        words: [0; NR_WORDS],
    };

    /// Reads a CPU list: numbers, ranges `a-b`, and ranges with a pattern `a-b:used/group`, which take the first `used`
    /// CPUs of every `group`. White space around the list is ignored, and an empty list is an empty set.
    pub fn parse(text: &[u8]) -> Result<Self, CpuListError> {
        let mut set = Self::EMPTY;
        let mut reader = Reader::new(text);
        if reader.rest.is_empty() {
            return Ok(set);
        }
        loop {
            reader.region()?.add_to(&mut set);
            if reader.rest.is_empty() {
                return Ok(set);
            }
            reader.byte(b',')?;
        }
    }

    /// Adds a CPU. Returns false, and changes nothing, when the set cannot hold it.
    pub fn insert(&mut self, cpu: u32) -> bool {
        match self.words.get_mut((cpu / WORD_BITS) as usize) {
            Some(word) => {
                *word |= 1 << (cpu % WORD_BITS);
                true
            }
            None => false,
        }
    }

    /// Removes a CPU. Returns whether it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let was_in = self.contains(cpu);
        if let Some(word) = self.words.get_mut((cpu / WORD_BITS) as usize) {
            *word &= !(1 << (cpu % WORD_BITS));
        }
        was_in
    }

    /// Returns whether the CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words
            .get((cpu / WORD_BITS) as usize)
            .is_some_and(|word| word & (1 << (cpu % WORD_BITS)) != 0)
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Returns the CPUs in rising order.
    pub fn iter(&self) -> Iter {
        Iter {
            words: self.words,
            base: 0,
        }
    }
}

impl fmt::Display for CpuSet {
    /// Writes the list form, as the kernel's `%*pbl` does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|cpu| *cpu == last.wrapping_add(1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last != first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// The CPUs of a set in rising order.
#[derive(Clone, Debug)]
pub struct Iter {
    words: [u64; NR_WORDS],
    /// The first CPU of the word that is being emptied; all words before it are zero.
    base: u32,
}

impl Iterator for Iter {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while let Some(word) = self.words.get_mut((self.base / WORD_BITS) as usize) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= word.wrapping_sub(1);
                return Some(self.base + bit);
            }
            self.base += WORD_BITS;
        }
        None
    }
}

/// The reason why a CPU list was refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuListError {
    /// The kind of the error.
    pub kind: CpuListErrorKind,
    /// Offset of the first byte that cannot be right, from the start of the text.
    pub at: usize,
}

/// The two ways in which a CPU list can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuListErrorKind {
    /// The text is not a CPU list.
    Syntax,
    /// A number is [`MAX_CPUS`] or more.
    Range,
}

/// One item of a list: of the CPUs `first` to `last`, the first `used` of every `group`.
struct Region {
    first: u32,
    last: u32,
    used: u32,
    group: u32,
}

impl Region {
    fn add_to(&self, set: &mut CpuSet) {
        for cpu in self.first..=self.last {
            if (cpu - self.first) % self.group < self.used {
                set.insert(cpu);
            }
        }
    }
}

/// The part of a list that is still to be read.
struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of `rest` in the whole text.
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        let from_start = text.trim_ascii_start();
        Self {
            rest: from_start.trim_ascii_end(),
            at: text.len() - from_start.len(),
        }
    }

    fn error<T>(&self, kind: CpuListErrorKind) -> Result<T, CpuListError> {
        Err(CpuListError { kind, at: self.at })
    }

    /// Takes `byte` if it comes next. Returns whether it did.
    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                self.at += 1;
                true
            }
            _ => false,
        }
    }

    fn byte(&mut self, byte: u8) -> Result<(), CpuListError> {
        if self.take(byte) {
            Ok(())
        } else {
            self.error(CpuListErrorKind::Syntax)
        }
    }

    fn number(&mut self, max: u32) -> Result<u32, CpuListError> {
        let start = self.at;
        let mut value: u32 = 0;
        while let Some((digit @ b'0'..=b'9', rest)) = self.rest.split_first() {
            // Once above `max` the value stays there, however many digits follow.
            value = value
                .saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'));
            self.rest = rest;
            self.at += 1;
        }
        if self.at == start {
            return self.error(CpuListErrorKind::Syntax);
        }
        if value > max {
            return Err(CpuListError {
                kind: CpuListErrorKind::Range,
                at: start,
            });
        }
        Ok(value)
    }

    fn region(&mut self) -> Result<Region, CpuListError> {
        let first = self.number(MAX_CPUS - 1)?;
        if !self.take(b'-') {
            return Ok(Region {
                first,
                last: first,
                used: 1,
                group: 1,
            });
        }
        let start = self.at;
        let last = self.number(MAX_CPUS - 1)?;
        if last < first {
            return Err(CpuListError {
                kind: CpuListErrorKind::Syntax,
                at: start,
            });
        }
        let (used, group) = if self.take(b':') {
            self.pattern()?
        } else {
            (1, 1)
        };
        Ok(Region {
            first,
            last,
            used,
            group,
        })
    }

    /// Reads `used/group` with `1 <= used <= group`.
    fn pattern(&mut self) -> Result<(u32, u32), CpuListError> {
        let start = self.at;
        let used = self.number(MAX_CPUS)?;
        self.byte(b'/')?;
        let group = self.number(MAX_CPUS)?;
        if used == 0 || used > group {
            return Err(CpuListError {
                kind: CpuListErrorKind::Syntax,
                at: start,
            });
        }
        Ok((used, group))
    }
}
