// SPDX-License-Identifier: GPL-2.0

//! The access list of an instance: two banks of tables, of which packets see one while the other one is filled in.

use std::path::Path;

use anyhow::Result;
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, LpmTrie, MapData, PerCpuArray, PerCpuValues};

use super::batch::WholeArray;
use super::packets;
use super::rule_sets::Sets;
use crate::config::rule::{self, Rule};
use crate::layout::{self, rule_sets, Address, RulePort};
use crate::limits::RULES;
use crate::maps::{is_not_there, open, possible_cpus};

/// Ports there are.
const PORTS: usize = 1 << 16;

type Trie = LpmTrie<MapData, Address, layout::Rules>;

/// The rules, and the tables that packets find them in.
pub(crate) struct AccessList {
    rules: Vec<Rule>,
    /// The bank that packets see; `None`: there are no rules.
    bank: Option<usize>,
    /// True once packets have seen a bank.
    was_shown: bool,
    /// True for banks that have counts of an earlier list.
    has_hits: [bool; 2],
    /// The entries of the banks in the tries: sources, destinations.
    prefixes: [[Vec<Key<Address>>; 2]; 2],
    /// The entries of the map.
    port_sets: Vec<RulePort>,
    named: Array<MapData, u32>,
    tries: [Trie; 2],
    sets: WholeArray,
    ports: WholeArray,
    hits: PerCpuArray<MapData, u64>,
}

impl AccessList {
    /// Opens the tables of an instance, which has no rules yet.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self {
            rules: Vec::new(),
            bank: None,
            was_shown: false,
            has_hits: [false; 2],
            prefixes: Default::default(),
            port_sets: vec![RulePort::default(); PORTS],
            named: open(folder, "rule_bank")?.try_into()?,
            tries: [
                open(folder, "rule_sources")?.try_into()?,
                open(folder, "rule_destinations")?.try_into()?,
            ],
            sets: WholeArray::open(folder, "rule_sets")?,
            ports: WholeArray::open(folder, "rule_ports")?,
            hits: open(folder, "rule_hits")?.try_into()?,
        })
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Replaces all rules; each packet meets the old or the new ones. If that fails, all meet the old ones.
    pub(crate) fn replace(&mut self, rules: &[Rule]) -> Result<()> {
        rule::check(rules)?;
        let (bank, was_shown) = (self.bank, self.was_shown);
        self.bank = change(self, bank, was_shown, rules)?;
        self.was_shown |= self.bank.is_some();
        self.rules = rules.to_vec();
        Ok(())
    }

    fn write(&mut self, bank: usize, sets: &Sets) -> Result<()> {
        for (place, prefixes) in [&sets.sources, &sets.destinations].into_iter().enumerate() {
            for (prefix, rules) in prefixes {
                let key = Address::prefix(*prefix);
                // CAST: two; 0 is that of classes and routes.
                let key = Key::new(key.prefix_len(), key.data().in_bank(bank as u8 + 1));
                self.prefixes[bank][place].push(key);
                self.tries[place].insert(&key, *rules, 0)?;
            }
        }
        self.sets.write(bank * rule_sets::COUNT, &sets.numbered)?;
        for (port, new) in self.port_sets.iter_mut().enumerate() {
            new.source[bank] = sets.source_ports[port];
            new.destination[bank] = sets.destination_ports[port];
        }
        self.ports.write(0, &self.port_sets)?;
        // What a new instance has there it has taken over, or it is zeros.
        if !std::mem::replace(&mut self.has_hits[bank], true) {
            return Ok(());
        }
        let cpus = possible_cpus()?;
        for number in 0..RULES {
            let none = PerCpuValues::try_from(vec![0; cpus])?;
            // CAST: some hundreds.
            self.hits.set((bank * RULES + number) as u32, none, 0)?;
        }
        Ok(())
    }

    /// Takes the prefixes of a bank out, which no packet looks at.
    fn empty(&mut self, bank: usize) -> Result<()> {
        for (place, trie) in self.tries.iter_mut().enumerate() {
            while let Some(key) = self.prefixes[bank][place].last() {
                match trie.remove(key) {
                    // It may never have been written.
                    Err(error) if !is_not_there(&error) => return Err(error.into()),
                    _ => {}
                }
                self.prefixes[bank][place].pop();
            }
        }
        Ok(())
    }

    /// Returns how many packets each rule has decided on since the rules were set.
    pub(crate) fn hits(&self) -> Result<Vec<u64>> {
        match self.bank {
            Some(bank) => sums(&self.hits, bank, self.rules.len()),
            None => Ok(Vec::new()),
        }
    }
}

/// Two banks of tables.
trait Banks {
    /// Waits until no packet is under way that may have seen the bank which packets do not see any more.
    fn wait(&self) -> Result<()>;

    /// Writes rules into a bank that no packet sees.
    fn fill(&mut self, bank: usize, rules: &[Rule]) -> Result<()>;

    /// Lets packets see a bank, or none.
    fn show(&mut self, bank: Option<usize>) -> Result<()>;
}

impl Banks for AccessList {
    fn wait(&self) -> Result<()> {
        packets::wait()
    }

    fn fill(&mut self, bank: usize, rules: &[Rule]) -> Result<()> {
        // What is left in it is of a list before, or of one that could not be written.
        self.empty(bank)?;
        self.write(bank, &Sets::of(rules))
    }

    fn show(&mut self, bank: Option<usize>) -> Result<()> {
        // CAST: two.
        let number = bank.map_or(0, |bank| bank as u32 + 1);
        Ok(self.named.set(0, number, 0)?)
    }
}

/// Lets packets meet other rules; returns the bank with them. The last step is the one that packets see: whatever fails, fails before.
fn change(
    banks: &mut impl Banks,
    shown: Option<usize>,
    was_shown: bool,
    rules: &[Rule],
) -> Result<Option<usize>> {
    if was_shown {
        banks.wait()?;
    }
    let other = shown.map_or(0, |shown| 1 - shown);
    let bank = (!rules.is_empty()).then_some(other);
    if let Some(bank) = bank {
        banks.fill(bank, rules)?;
    }
    banks.show(bank)?;
    Ok(bank)
}

/// The map of counts, which two instances with the same rules can share: their first lists are in the same bank.
pub(crate) const HITS: &str = "rule_hits";

/// Returns how many packets each of this many rules has decided on, in the instance in a folder.
pub(crate) fn hits_in(folder: &Path, count: usize) -> Result<Vec<u64>> {
    let named: Array<MapData, u32> = open(folder, "rule_bank")?.try_into()?;
    let Some(bank) = named.get(&0, 0)?.checked_sub(1) else {
        return Ok(vec![0; count]);
    };
    // CAST: two.
    sums(&open(folder, HITS)?.try_into()?, bank as usize, count)
}

fn sums(hits: &PerCpuArray<MapData, u64>, bank: usize, count: usize) -> Result<Vec<u64>> {
    let counts = (0..count).map(|number| {
        // CAST: some hundreds.
        let of_cpus = hits.get(&((bank * RULES + number) as u32), 0)?;
        Ok(of_cpus.iter().sum())
    });
    counts.collect()
}

/// Returns whether packets in the instance in a folder meet these rules, and no others.
pub(crate) fn is_in(folder: &Path, rules: &[Rule]) -> Result<bool> {
    let named: Array<MapData, u32> = open(folder, "rule_bank")?.try_into()?;
    let bank = match (named.get(&0, 0)?, rules) {
        (0, []) => return Ok(true),
        (bank @ (1 | 2), [_, ..]) => bank,
        _ => return Ok(false),
    };
    // CAST: 1 or 2.
    let (sets, in_trie, bank) = (Sets::of(rules), bank as u8, bank as usize - 1);
    let prefixes = [
        ("rule_sources", &sets.sources),
        ("rule_destinations", &sets.destinations),
    ];
    for (name, wanted) in prefixes {
        let trie: Trie = open(folder, name)?.try_into()?;
        let mut there = 0;
        for (prefix, rules) in wanted {
            let key = Address::prefix(*prefix);
            let key = Key::new(key.prefix_len(), key.data().in_bank(in_trie));
            if trie.get(&key, 0).ok() != Some(*rules) {
                return Ok(false);
            }
        }
        for entry in trie.iter() {
            let (key, _) = entry?;
            there += usize::from(key.data().bank() == in_trie);
        }
        if there != wanted.len() {
            return Ok(false);
        }
    }
    let numbered = WholeArray::open(folder, "rule_sets")?;
    let numbered: Vec<layout::Rules> = numbered.read(2 * rule_sets::COUNT)?;
    if numbered[bank * rule_sets::COUNT..][..rule_sets::COUNT] != sets.numbered {
        return Ok(false);
    }
    let ports = WholeArray::open(folder, "rule_ports")?;
    let ports: Vec<RulePort> = ports.read(PORTS)?;
    let wanted = sets.source_ports.iter().zip(&sets.destination_ports);
    let mut both = ports.iter().zip(wanted);
    Ok(both.all(|(is, wanted)| (&is.source[bank], &is.destination[bank]) == wanted))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::ensure;

    use super::*;
    use crate::config::rule::Action;

    /// Banks that note what is done to them, up to the step that fails.
    #[derive(Default)]
    struct Noted {
        steps: RefCell<Vec<String>>,
        fails: &'static str,
    }

    impl Noted {
        fn step(&self, step: String) -> Result<()> {
            let fails = step == self.fails;
            self.steps.borrow_mut().push(step);
            ensure!(!fails, "made to fail");
            Ok(())
        }
    }

    impl Banks for Noted {
        fn wait(&self) -> Result<()> {
            self.step("wait".to_owned())
        }

        fn fill(&mut self, bank: usize, rules: &[Rule]) -> Result<()> {
            self.step(format!("fill {bank} with {}", rules.len()))
        }

        fn show(&mut self, bank: Option<usize>) -> Result<()> {
            self.step(format!("show {bank:?}"))
        }
    }

    fn steps(
        fails: &'static str,
        shown: Option<usize>,
        was_shown: bool,
        rules: usize,
    ) -> (Option<Option<usize>>, Vec<String>) {
        let mut banks = Noted {
            fails,
            ..Noted::default()
        };
        let rules = vec![Rule::all(Action::Deny); rules];
        let bank = change(&mut banks, shown, was_shown, &rules).ok();
        (bank, banks.steps.into_inner())
    }

    #[test]
    fn packets_see_a_list_in_the_last_step() {
        let first = steps("", None, false, 2);
        assert_eq!(first.1, ["fill 0 with 2", "show Some(0)"]);
        let second = steps("", Some(0), true, 1);
        assert_eq!(second.1, ["wait", "fill 1 with 1", "show Some(1)"]);
        assert_eq!(steps("", Some(1), true, 0).1, ["wait", "show None"]);
        // Packets of the list before may still have its bank.
        let again = steps("", None, true, 3);
        assert_eq!(again.1, ["wait", "fill 0 with 3", "show Some(0)"]);
        assert_eq!((first.0, second.0), (Some(Some(0)), Some(Some(1))));
    }

    #[test]
    fn a_list_that_cannot_be_replaced_stays() {
        // As on kernels that cannot tell when packets under way have passed.
        let (bank, done) = steps("wait", Some(0), true, 1);
        assert_eq!((bank, done), (None, vec!["wait".to_owned()]));
        let (bank, done) = steps("fill 1 with 1", Some(0), true, 1);
        assert!(bank.is_none() && !done.iter().any(|step| step.starts_with("show")));
    }
}
