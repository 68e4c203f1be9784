// SPDX-License-Identifier: GPL-2.0

//! The texts that must not be in a kernel's log, and the error that reports them.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;

/// The number of lines of the log that go into an error.
const EXCERPT_LINES: usize = 40;

/// The number of these lines that come before the line that shows the problem.
const CONTEXT_LINES: usize = 5;

/// The instruction `int3`.
const BREAKPOINT: &str = "cc";

/// The problems of a guest in which nothing moves any more.
const STANDSTILLS: &[&str] = &["rcu: INFO:", "blocked for more than", SILENCE];

/// The kernel's words for a timer that did not end a sleep.
const LOST_TIMER: &str = "kthread timer wakeup didn't happen for";

/// The beginning of the error about a guest that says nothing any more.
pub(super) const SILENCE: &str = "no sign of life for";

/// Makes pairs of lines `MEANING: TEXT, ...;`.
macro_rules! meanings {
    ($($meaning:literal: $($text:literal),+;)*) => { &[$(($meaning, &[$($text),+])),*] };
}

/// The meaning of each text in the log of a kernel that has found something wrong.
const MARKERS: &[(&str, &[&str])] = meanings! {
    "the kernel panicked": "Kernel panic";
    "the kernel oopsed": "Oops:", "general protection fault";
    "a memory error (KASAN)": "KASAN:";
    "a CPU was stuck (soft lockup)": "soft lockup";
    "a CPU was stuck (hard lockup)": "hard LOCKUP";
    "a lock order problem (lockdep)": "possible circular locking", "possible recursive locking", "possible irq lock inversion",
        "lock order detected";
    "a lock taken in the wrong context (lockdep)": "inconsistent lock state", "Invalid wait context";
    "a lock problem (lockdep)": "bad unlock balance", "still held";
    "RCU used outside its rules": "suspicious RCU usage";
    "an RCU stall": "rcu: INFO:";
    "sleeping where it is not allowed": "sleeping function called", "scheduling while atomic";
    "a hung task": "blocked for more than";
    "a reference count went wrong": "refcount_t:";
    "a device is still referenced after its removal": "unregister_netdevice: waiting";
    "a memory leak (kmemleak)": "new suspected memory leaks";
    "a driver's pool never got all its pages back": "stalled pool shutdown";
    "memory corruption": "Bad page state", "list_add corruption", "list_del corruption";
    "a command of the ConnectX driver was not answered": "leak of a command resource";
    "a card told a wrong checksum of what it received": "hw csum failure";
    "the ConnectX driver gave its card up": "health compromised";
    "the module panicked": "rust_kernel: panicked";
    "the kernel found a bug": "BUG:", "kernel BUG at";
    "the kernel warned": "WARNING:";
    "the guest ran out of memory": "Out of memory:";
    "the guest's init failed": "init: error:";
};

/// Returns the text in a line of the kernel's log that shows a problem, and what it means.
pub(crate) fn find(line: &str) -> Option<(&'static str, &'static str)> {
    MARKERS.iter().find_map(|(meaning, markers)| {
        let marker = markers.iter().find(|marker| line.contains(*marker))?;
        Some((*marker, *meaning))
    })
}

/// The last lines of a log, kept while it grows.
#[derive(Debug, Default)]
pub(crate) struct Excerpt(VecDeque<String>);

impl Excerpt {
    pub(crate) fn push(&mut self, line: &str) {
        if self.0.len() == EXCERPT_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    /// Returns whether a line has this text.
    fn has(&self, text: &str) -> bool {
        self.0.iter().any(|line| line.contains(text))
    }

    /// Forgets everything but the last few lines, to make room for what follows.
    pub(crate) fn keep_last(&mut self) {
        while self.0.len() > CONTEXT_LINES {
            self.0.pop_front();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == EXCERPT_LINES
    }
}

/// A guest that did not end as it should.
#[derive(Debug)]
pub struct Trouble {
    pub(crate) what: String,
    /// The lines of the kernel's log that show it.
    pub(crate) excerpt: Excerpt,
    pub(crate) log: PathBuf,
}

impl Trouble {
    /// Tells whether the guest died of a breakpoint at a place where there is none, which only an emulator that runs
    /// stale code can bring about (see `qemu::SAFER_THREADS`).
    pub(crate) fn is_stale_code(&self) -> bool {
        let mut lines = self.excerpt.0.iter();
        if !lines.any(|line| line.contains("Oops: int3:")) {
            return false;
        }
        // `Code: 66 90 eb <34> 66`: the breakpoint, had there been one, is the byte before the marked one.
        let code = lines
            .find_map(|line| line.split_once("Code: "))
            .map(|(_, code)| code);
        let before = code.and_then(|code| code.split(" <").next()?.split(' ').next_back());
        before.is_some_and(|byte| byte != BREAKPOINT)
    }

    /// Tells whether nothing moved any more in the guest; it has not been seen to do anything wrong.
    pub(crate) fn is_standstill(&self) -> bool {
        STANDSTILLS.iter().any(|text| self.what.contains(text))
    }

    /// Tells whether an emulated CPU has lost a timer for good: a thread of the kernel's, which nothing else wakes, has waited in vain.
    pub(crate) fn is_lost_timer(&self) -> bool {
        self.is_standstill() && self.excerpt.has(LOST_TIMER)
    }

    /// Tells whether QEMU has given itself up, which is no word about the guest.
    pub fn is_emulators(&self) -> bool {
        self.what.contains("SIGABRT") && self.what.contains("Assertion `")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the guest failed: {}", self.what)?;
        for line in &self.excerpt.0 {
            writeln!(f, "  | {line}")?;
        }
        write!(f, "kernel log:  {}", self.log.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splats_are_found_and_plain_lines_are_not() {
        for (line, marker) in [
            ("Kernel panic - not syncing: x", "Kernel panic"),
            ("BUG: KASAN: slab-use-after-free in f+0x1/0x2", "KASAN:"),
            ("WARNING: CPU: 2 PID: 0 at net/core/x.c:1", "WARNING:"),
            (
                "WARNING: possible circular locking dependency",
                "possible circular locking",
            ),
            (
                "rcu: INFO: rcu_sched self-detected stall on CPU",
                "rcu: INFO:",
            ),
            (
                "watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
                "soft lockup",
            ),
        ] {
            let found = find(&format!("[    1.0] {line}"));
            assert_eq!(found.map(|found| found.0), Some(marker), "{line}");
        }
        for line in ["mflow: loaded", "rcu: Hierarchical RCU implementation."] {
            assert_eq!(find(&format!("[    1.0] {line}")), None);
        }
    }

    #[test]
    fn an_emulator_that_gives_itself_up_is_told_from_a_guest_that_dies() {
        let ended = |what: &str| Trouble {
            what: format!("it ended without a verdict; QEMU: {what}"),
            excerpt: Excerpt::default(),
            log: PathBuf::new(),
        };
        let assertion = "signal: 6 (SIGABRT): qemu-system-x86_64: system/physmem.c:2671: iotlb_to_section: Assertion `x' failed.";
        assert!(ended(assertion).is_emulators());
        assert!(!ended("exit status: 0: ").is_emulators());
        assert!(!ended("signal: 9 (SIGKILL): ").is_emulators());
    }

    #[test]
    fn a_guest_that_stands_still_is_told_from_one_that_does_wrong() {
        let stopped = |what: String| Trouble {
            what,
            excerpt: Excerpt::default(),
            log: PathBuf::new(),
        };
        for line in [
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "INFO: task ip:80 blocked for more than 120 seconds.",
        ] {
            let (marker, meaning) = find(line).unwrap();
            assert!(stopped(format!("{meaning}: {marker:?}")).is_standstill());
        }
        assert!(stopped(format!("{SILENCE} 300 s")).is_standstill());
        let mut stall = stopped("an RCU stall: its kernel's log says \"rcu: INFO:\"".to_owned());
        assert!(!stall.is_lost_timer());
        stall.excerpt.push(
            "[   24.5] rcu: rcu_preempt kthread timer wakeup didn't happen for 5236 jiffies! g-1087 f0x0",
        );
        assert!(stall.is_lost_timer());
        let (marker, meaning) = find("BUG: KASAN: slab-use-after-free").unwrap();
        assert!(!stopped(format!("{meaning}: {marker:?}")).is_standstill());
    }

    #[test]
    fn a_breakpoint_that_is_not_there_is_told_from_a_real_one() {
        let died = |code: &str| {
            let mut excerpt = Excerpt::default();
            for line in [
                "[    9.6] Oops: int3: 0000 [#1] SMP",
                "[    9.6] RIP: 0010:f+0xc/0xb0",
                code,
            ] {
                excerpt.push(line);
            }
            Trouble {
                what: String::new(),
                excerpt,
                log: PathBuf::new(),
            }
        };
        assert!(died("[    9.6] Code: 48 83 ec 10 66 90 eb <34> 66 90 e8").is_stale_code());
        assert!(!died("[    9.6] Code: 48 83 ec 10 66 90 cc <34> 66 90 e8").is_stale_code());
        assert!(!died("[    9.6] RAX: 0000000000000001").is_stale_code());
    }

    #[test]
    fn an_excerpt_is_bounded() {
        let mut excerpt = Excerpt::default();
        for number in 0..100 {
            excerpt.push(&number.to_string());
        }
        assert!(excerpt.is_full());
        assert_eq!(excerpt.0.front().map(String::as_str), Some("60"));
        excerpt.keep_last();
        assert_eq!(excerpt.0, ["95", "96", "97", "98", "99"]);
    }
}
