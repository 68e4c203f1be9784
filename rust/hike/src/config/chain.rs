// SPDX-License-Identifier: GPL-2.0

//! Chains: which programs a packet takes, one after the other.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, ensure, Context as _, Error, Result};

use super::fields::as_text;
use crate::config::manifest::{self, Program};
use crate::limits::CHAIN_PROGRAMS;

/// The program that leaves metadata in front of packets, and the one that puts headers there.
const LANES: &str = "lanes";
const ENC: &str = "enc";
/// The program that makes answers of packets.
const REFLECT: &str = "reflect";
/// The programs that hand packets to the kernel, or those that the kernel would look at more closely: their source is this host, if it is
/// an answer that is not on a path (net/ipv4/fib_frontend.c: fib_validate_source).
const ASK_KERNEL: [&str; 2] = ["fw-fib", "fw-kernel"];

/// A chain that can work: 1 to 16 programs, of which the last one, and no other, decides where the packet goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Chain(Vec<&'static Program>);

impl Chain {
    /// Returns its programs.
    pub fn programs(&self) -> &[&'static Program] {
        &self.0
    }

    /// Returns the first of its programs that needs a path, if one does.
    pub fn needs_path(&self) -> Option<&'static Program> {
        self.0.iter().copied().find(|program| program.needs_path)
    }

    /// Returns the program that needs the behaviour of a local SID, if one does.
    pub fn needs_behaviour(&self) -> Option<&'static Program> {
        self.0
            .iter()
            .copied()
            .find(|program| program.needs_behaviour)
    }

    /// Fails if the hint that `lanes` leaves in front of the packet could be in the way of another one, or of headers.
    fn check_lanes(&self) -> Result<()> {
        let is_lanes = |program: &&Program| program.name == LANES;
        let Some(at) = self.0.iter().position(is_lanes) else {
            return Ok(());
        };
        let behind = self.0.get(at + 1..).unwrap_or_default();
        ensure!(
            !behind.iter().any(is_lanes),
            "{LANES} asks once for a packet; take one of them out"
        );
        if let Some(other) = behind.iter().find(|program| program.name == ENC) {
            bail!(
                "{LANES} takes room in front of packets that {0} may need; put it behind {0}",
                other.name
            );
        }
        Ok(())
    }

    /// Fails if it turns a packet round twice, has nothing for a program that sends answers, or if answers would come to nothing.
    fn check_answers(&self) -> Result<()> {
        let is_reflect = |program: &&Program| program.name == REFLECT;
        let (mut reflects, mut is_on_path) = (false, false);
        for program in &self.0 {
            ensure!(
                !reflects || !is_reflect(program),
                "{REFLECT} makes one answer of a packet; take one of them out"
            );
            ensure!(
                reflects || !program.needs_answer,
                "{} sends answers, and the chain makes none; put {REFLECT} in front of it",
                program.name
            );
            ensure!(
                !reflects || !program.needs_behaviour,
                "{0} is for packets as they come to a local SID, and {REFLECT} makes answers of them; put {0} in front of it",
                program.name
            );
            ensure!(
                !reflects || is_on_path || !ASK_KERNEL.contains(&program.name),
                "{} leaves answers to the kernel, which takes no packets from an address of its own; put {ENC} behind {REFLECT}, or end the \
                 chain with send-back",
                program.name
            );
            reflects |= is_reflect(program);
            is_on_path |= reflects && program.name == ENC;
        }
        Ok(())
    }

    /// Returns the numbers of its programs, and zeros behind them.
    pub(crate) fn numbers(&self) -> [u8; CHAIN_PROGRAMS] {
        let mut numbers = [0; CHAIN_PROGRAMS];
        for (number, program) in numbers.iter_mut().zip(&self.0) {
            *number = program.number;
        }
        numbers
    }
}

impl FromStr for Chain {
    type Err = Error;

    /// Reads a chain as the paper writes it, `1,2,4`, or with names: `enc,mon-in,fw-fib`.
    fn from_str(text: &str) -> Result<Self> {
        let mut programs = Vec::new();
        for word in text.split(',').map(str::trim) {
            let program = manifest::find(word).with_context(|| {
                let names: Vec<&str> = manifest::programs().iter().map(|one| one.name).collect();
                format!("no program `{word}`; there are {}", names.join(", "))
            })?;
            programs.push(program);
        }
        ensure!(
            programs.len() <= CHAIN_PROGRAMS,
            "a chain of {} programs is too long: {CHAIN_PROGRAMS} are allowed",
            programs.len()
        );
        // A text has one word at least.
        let (last, others) = programs.split_last().context("a chain has no program")?;
        if let Some(early) = others.iter().find(|program| program.ends) {
            bail!(
                "{} decides where packets go, so nothing can follow it; put it last",
                early.name
            );
        }
        if !last.ends {
            let ends = manifest::programs().iter().filter(|program| program.ends);
            let names: Vec<&str> = ends.map(|program| program.name).collect();
            bail!(
                "after {} a packet has nowhere to go; end the chain with one of {}",
                last.name,
                names.join(", ")
            );
        }
        let chain = Self(programs);
        chain.check_lanes()?;
        chain.check_answers()?;
        if let Some(first) = chain.needs_behaviour() {
            let mut others = chain
                .0
                .iter()
                .filter(|other| other.needs_behaviour && *other != &first);
            if let Some(other) = others.next() {
                bail!(
                    "{} and {} need a behaviour each, and a class has one; take one of them",
                    first.name,
                    other.name
                );
            }
        }
        Ok(chain)
    }
}

as_text!(Chain);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|program| program.name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Chain>().expect_err(text).to_string()
    }

    #[test]
    fn chains_are_read_by_number_and_by_name() {
        let chain: Chain = "1,2,4".parse().expect("good");
        assert_eq!(chain.to_string(), "enc,mon-in,fw-fib");
        assert_eq!("enc, 2,fw-fib".parse::<Chain>().expect("good"), chain);
        assert_eq!(chain.numbers()[..4], [1, 2, 4, 0]);
        assert_eq!(chain.needs_path().map(|program| program.name), Some("enc"));
        let alone: Chain = "6".parse().expect("good");
        assert_eq!(alone.needs_path(), None);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        assert_eq!(
            error("enc,fw"),
            "no program `fw`; there are enc, mon-in, mon-out, fw-fib, fw-table, fw-kernel, drop, acl, end, end-x, dec, lanes, reflect, send-back"
        );
        assert_eq!(
            error("drop,enc,fw-fib"),
            "drop decides where packets go, so nothing can follow it; put it last"
        );
        assert_eq!(
            error("enc,mon-in"),
            "after mon-in a packet has nowhere to go; end the chain with one of fw-fib, fw-table, fw-kernel, drop, end-x, dec, send-back"
        );
        assert_eq!(
            error("end,acl,dec"),
            "end and dec need a behaviour each, and a class has one; take one of them"
        );
        assert_eq!(
            error("lanes,mon-out,lanes,fw-kernel"),
            "lanes asks once for a packet; take one of them out"
        );
        assert_eq!(
            error("lanes,enc,fw-fib"),
            "lanes takes room in front of packets that enc may need; put it behind enc"
        );
        assert!("enc,lanes,fw-kernel".parse::<Chain>().is_ok());
        assert_eq!(
            error("mon-out,send-back"),
            "send-back sends answers, and the chain makes none; put reflect in front of it"
        );
        assert_eq!(
            error("reflect,reflect,send-back"),
            "reflect makes one answer of a packet; take one of them out"
        );
        assert_eq!(
            error("reflect,acl,fw-kernel"),
            "fw-kernel leaves answers to the kernel, which takes no packets from an address of its own; put enc behind reflect, or end the \
             chain with send-back"
        );
        assert_eq!(
            error("reflect,mon-out,end-x"),
            "end-x is for packets as they come to a local SID, and reflect makes answers of them; put end-x in front of it"
        );
        for good in [
            "reflect,send-back",
            "end,reflect,enc,fw-fib",
            "reflect,fw-table",
            "reflect,enc,fw-kernel",
        ] {
            assert!(good.parse::<Chain>().is_ok(), "{good}");
        }
        assert_eq!(
            error(&("3,".repeat(16) + "4")),
            "a chain of 17 programs is too long: 16 are allowed"
        );
        for text in ["", ",", "1,,4", "0", "256", "-4", "1;4"] {
            assert!(error(text).starts_with("no program `"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_chain_is_good_if_only_its_last_program_ends(numbers in prop::collection::vec(1u8..=14, 1..20)) {
            let text: Vec<String> = numbers.iter().map(u8::to_string).collect();
            let ends = |number: &u8| [4, 5, 6, 7, 10, 11, 14].contains(number);
            let (last, others) = numbers.split_last().expect("one at least");
            // Numbers 10 and 11 end chains, so `end` is the only one that can be in front of another one with a behaviour.
            let behaviours = !others.contains(&9) || ![10, 11].contains(last);
            let reflects = others.iter().filter(|number| **number == 13).count();
            let behind = numbers.iter().position(|number| *number == 13).map(|at| &numbers[at + 1..]);
            let has = |some: &[u8]| behind.is_some_and(|behind| behind.iter().any(|number| some.contains(number)));
            let answers = reflects == 1 || (reflects == 0 && *last != 14);
            let answers = answers && !has(&[9, 10, 11]) && (has(&[1]) || !has(&[4, 6]));
            let lanes = others.iter().position(|number| *number == 12);
            let lanes = lanes.is_none_or(|at| !others[at + 1..].iter().any(|number| [1, 12].contains(number)));
            let good = numbers.len() <= 16 && ends(last) && !others.iter().any(ends) && behaviours && lanes && answers;
            let chain = text.join(",").parse::<Chain>();
            prop_assert_eq!(chain.is_ok(), good);
            if let Ok(chain) = chain {
                prop_assert_eq!(&chain.numbers()[..numbers.len()], &numbers[..]);
                prop_assert_eq!(chain.to_string().parse::<Chain>().expect("what it printed"), chain);
            }
        }
    }
}
