// SPDX-License-Identifier: GPL-2.0

//! The programs that chains are made of: the lines of `c-shims/hike/programs/MANIFEST`.

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number in chains.
    pub number: u8,
    /// Its name there.
    pub name: &'static str,
    /// True if it decides where the packet goes, and so ends a chain.
    pub ends: bool,
    /// True if it needs a class that has a path.
    pub needs_path: bool,
    /// True if it needs a class that has a behaviour of a local SID: the one of its name.
    pub needs_behaviour: bool,
    /// True if it needs `reflect` in front of it, which makes the answer that it sends.
    pub needs_answer: bool,
    /// True if it runs at tcx, too; all run at XDP.
    pub at_tcx: bool,
    /// The description of what it does.
    pub summary: &'static str,
    /// The function that the engine with tail calls loads.
    pub(crate) call: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// Returns all programs.
pub fn programs() -> &'static [Program] {
    PROGRAMS
}

/// Returns the program with this name or number.
pub fn find(word: &str) -> Option<&'static Program> {
    let number = word.parse::<u8>().ok();
    PROGRAMS
        .iter()
        .find(|program| program.name == word || Some(program.number) == number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique_and_no_number_stands_for_none() {
        let names: BTreeSet<_> = PROGRAMS.iter().map(|program| program.name).collect();
        let numbers: BTreeSet<_> = PROGRAMS.iter().map(|program| program.number).collect();
        assert_eq!(
            (names.len(), numbers.len()),
            (PROGRAMS.len(), PROGRAMS.len())
        );
        assert!(!numbers.contains(&0) && names.iter().all(|name| name.parse::<u8>().is_err()));
    }

    #[test]
    fn programs_are_found_by_name_and_by_number() {
        assert_eq!(find("enc").map(|program| program.number), Some(1));
        assert_eq!(find("4").map(|program| program.name), Some("fw-fib"));
        assert_eq!(find("0"), None);
        assert_eq!(find("fw"), None);
    }
}
