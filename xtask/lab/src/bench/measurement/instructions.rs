// SPDX-License-Identifier: GPL-2.0

//! The counts that the counting plug-in wrote, by CPU and function.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};

/// Places that are no addresses: user space, and what found no counter.
const USER: &str = "[user]";
const PLACES: [(u64, &str); 2] = [(0, USER), (1, "[other]")];

/// The name of all code before the first known function: all of the kernel, if none of its own functions are known.
const KERNEL: &str = "[kernel]";

/// The prefix that the kernel puts in front of the names of BPF programs, and the length of the tag behind it, in characters.
const BPF: &str = "bpf_prog_";
const TAG: usize = 16;

/// The addresses at which functions begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    functions: BTreeMap<u64, String>,
    /// Those at which functions of modules begin; other functions may be there later.
    modules: Vec<u64>,
}

impl Symbols {
    /// Reads the kernel's own table, `System.map`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut symbols = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                bail!("not `address kind name`: {line:?}");
            };
            if kind.eq_ignore_ascii_case("t") || kind.eq_ignore_ascii_case("w") {
                symbols.insert(hexadecimal(address)?, name.to_owned());
            }
        }
        ensure!(!symbols.is_empty(), "no functions");
        Ok(Self {
            functions: symbols,
            modules: Vec::new(),
        })
    }

    /// Adds the kernel's own functions, by address.
    pub(crate) fn add_kernel(&mut self, functions: &BTreeMap<String, String>) -> Result<()> {
        for (address, name) in functions {
            self.functions.insert(hexadecimal(address)?, name.clone());
        }
        Ok(())
    }

    /// Adds the functions of modules and BPF programs, by address; those that were there before are forgotten.
    pub(crate) fn add_modules(&mut self, functions: &BTreeMap<String, String>) -> Result<()> {
        for address in std::mem::take(&mut self.modules) {
            self.functions.remove(&address);
        }
        for (address, name) in functions {
            let address = hexadecimal(address)?;
            self.functions.insert(address, name.clone());
            self.modules.push(address);
        }
        Ok(())
    }

    fn name(&self, address: u64) -> String {
        if let Some((_, name)) = PLACES.iter().find(|(place, _)| *place == address) {
            return (*name).to_owned();
        }
        match self.functions.range(..=address).next_back() {
            Some((_, name)) => readable(name),
            // What the kernel's own table does not tell.
            None => KERNEL.to_owned(),
        }
    }
}

fn hexadecimal(text: &str) -> Result<u64> {
    u64::from_str_radix(text, 16).with_context(|| format!("no address: {text:?}"))
}

/// Returns a Rust function's name with the type or module it belongs to, a BPF program's without its tag, and any other name as it
/// is.
fn readable(name: &str) -> String {
    let tagged = name.strip_prefix(BPF).and_then(|name| name.get(TAG..));
    if let Some(name) = tagged.and_then(|name| name.strip_prefix('_')) {
        return format!("{name} (BPF)");
    }
    let Ok(path) = rustc_demangle::try_demangle(name) else {
        return name.to_owned();
    };
    // Without the hash, and without generic parameters, which may be long.
    let path = format!("{path:#}");
    let mut depth = 0_u32;
    let plain: String = path
        .chars()
        .filter(|&c| {
            depth += u32::from(c == '<');
            let keep = depth == 0;
            depth -= u32::from(c == '>' && depth > 0);
            keep
        })
        .collect();
    let parts: Vec<&str> = if plain.starts_with("::") {
        // `<mflow::algo::flow::dispatcher::Dispatcher>::dispatch`
        path.split(['<', '>', ':', ' ', ','])
            .filter(|part| !part.is_empty())
            .collect()
    } else {
        plain.split("::").filter(|part| !part.is_empty()).collect()
    };
    parts[parts.len().saturating_sub(2)..].join("::")
}

/// Instructions of one window: by CPU, then by function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts(pub(crate) Vec<BTreeMap<String, u64>>);

impl Counts {
    /// Reads window `number` of what the plug-in has written so far.
    pub(crate) fn read(path: &Path, number: u64, symbols: &Symbols) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, number, symbols)
    }

    fn parse(text: &str, number: u64, symbols: &Symbols) -> Result<Self> {
        let begin = format!("window {number} ");
        let end = format!("end {number}");
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&begin));
        let cpus = lines.next().and_then(|line| line.rsplit(' ').next());
        let cpus: usize = cpus
            .and_then(|count| count.parse().ok())
            .with_context(|| format!("the plug-in counted no window {number}"))?;
        let mut by_cpu = vec![BTreeMap::new(); cpus];
        for line in lines {
            if line == end {
                return Ok(Self(by_cpu));
            }
            let (address, counts) = line.split_once(' ').context("a line without counts")?;
            let name = symbols.name(hexadecimal(address)?);
            for (functions, count) in by_cpu.iter_mut().zip(counts.split(' ')) {
                let count: u64 = count
                    .parse()
                    .with_context(|| format!("no count: {count:?}"))?;
                if count > 0 {
                    *functions.entry(name.clone()).or_default() += count;
                }
            }
        }
        bail!("the plug-in did not finish window {number}")
    }

    pub(crate) fn of_cpu(&self, cpu: usize) -> u64 {
        self.0
            .get(cpu)
            .map_or(0, |functions| functions.values().sum())
    }

    /// Returns those of the kernel, without its tasks.
    pub(crate) fn of_kernel(&self, cpu: usize) -> u64 {
        let tasks = self.0.get(cpu).and_then(|functions| functions.get(USER));
        self.of_cpu(cpu) - tasks.unwrap_or(&0)
    }

    /// Returns a CPU's functions, most instructions first.
    pub(crate) fn top(&self, cpu: usize) -> Vec<(&str, u64)> {
        let mut functions: Vec<(&str, u64)> = self
            .0
            .get(cpu)
            .into_iter()
            .flatten()
            .map(|(name, &count)| (name.as_str(), count))
            .collect();
        functions.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
        functions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "ffffffff81000000 T _stext\nffffffff81000040 t net_rx\nffffffff81000048 D table\nffffffff81000080 T ip_rcv\n";
    const WINDOWS: &str = "window 0 2\n0 5 6\nend 0\nwindow 1 2\n0 7 0\nffffffff81000042 3 1\n\
                           ffffffff81000060 4 0\nffffffff81000090 0 9\nend 1\nwindow 2 2\n0 1 1\n";

    #[test]
    fn instructions_are_booked_to_functions() {
        let symbols = Symbols::parse(MAP).expect("good table");
        let counts = Counts::parse(WINDOWS, 1, &symbols).expect("good window");
        assert_eq!(counts.top(0), [("[user]", 7), ("net_rx", 7)]);
        assert_eq!(counts.top(1), [("ip_rcv", 9), ("net_rx", 1)]);
        assert_eq!((counts.of_cpu(0), counts.of_cpu(2)), (14, 0));
    }

    #[test]
    fn an_unfinished_or_missing_window_is_an_error() {
        let symbols = Symbols::parse(MAP).expect("good table");
        assert!(Counts::parse(WINDOWS, 2, &symbols).is_err());
        assert!(Counts::parse(WINDOWS, 3, &symbols).is_err());
    }

    #[test]
    fn what_was_loaded_before_is_forgotten() {
        let mut symbols = Symbols::parse(MAP).expect("good table");
        let at =
            |address: &str, name: &str| BTreeMap::from([(address.to_owned(), name.to_owned())]);
        symbols
            .add_modules(&at("ffffffffa0000000", "one"))
            .expect("good");
        assert_eq!(symbols.name(0xffff_ffff_a000_0010), "one");
        let tagged = "bpf_prog_0123456789abcdef_two";
        symbols
            .add_modules(&at("ffffffffa0001000", tagged))
            .expect("good");
        assert_eq!(symbols.name(0xffff_ffff_a000_0010), "ip_rcv");
        assert_eq!(symbols.name(0xffff_ffff_a000_1010), "two (BPF)");
    }

    #[test]
    fn a_kernel_without_a_table_says_where_its_functions_are() {
        let at =
            |address: &str, name: &str| BTreeMap::from([(address.to_owned(), name.to_owned())]);
        let mut symbols = Symbols::default();
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), KERNEL);
        symbols
            .add_kernel(&at("ffffffff81000000", "net_rx"))
            .expect("good");
        symbols
            .add_modules(&at("ffffffffa0000000", "one"))
            .expect("good");
        symbols.add_modules(&BTreeMap::new()).expect("good");
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), "net_rx");
        assert_eq!(symbols.name(0xffff_ffff_a000_0010), "net_rx");
    }

    #[test]
    fn rust_names_are_readable() {
        assert_eq!(readable("ip_rcv"), "ip_rcv");
        assert_eq!(
            readable("_RNvMs_NtNtCs5m9qQ_5mflow4algo10dispatcherNtB4_10Dispatcher8dispatch"),
            "Dispatcher::dispatch"
        );
    }
}
