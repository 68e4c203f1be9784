// SPDX-License-Identifier: GPL-2.0

//! Circles of imports: files or folders that cannot be read one after the other, as each of them needs another one.
//!
//! At each level, files and folders that lie beside each other are looked at. A `mod.rs` lists what is in its folder, and what is in
//! there may use what the `mod.rs` has: these two are not beside each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{ensure, Result};

use super::modules::{Modules, Segments};

/// The roots of crates, and the folders below them that are looked at.
const FOLDERS: &[(&str, &str)] = &[
    ("rust", "rust/algo"),
    ("rust/command/src", "rust/command/src"),
    ("rust/hike/src", "rust/hike/src"),
    ("rust/hike/manager/src", "rust/hike/manager/src"),
    ("tests/guest/src", "tests/guest/src"),
    ("xtask/lab/src", "xtask/lab/src"),
];

/// Imports that may close a circle, with the reason. The check fails if one is not needed any more.
const EXCEPTED: &[(&str, &str)] = &[
    // Counters of a network are read inside the network's namespace; there is no room for them beside the namespaces.
    (
        "tests/guest/src/machine/proc_net",
        "tests/guest/src/network/netns",
    ),
    // The rules of a service mesh are counted as those of firewalls.
    (
        "tests/guest/src/hosts/services/mesh",
        "tests/guest/src/hosts/firewalls/iptables_counters",
    ),
];

/// An import: the module that imports, and the module from which.
type Import = (String, String);

/// Fails with each import that is part of a circle but for the excepted ones, and with exceptions that are not needed.
pub(super) fn check(project: &Path, files: &[PathBuf]) -> Result<()> {
    let mut imports = BTreeSet::new();
    for (root, folder) in FOLDERS {
        let modules = Modules::read(&project.join(root), &project.join(folder), files)?;
        let name = |module: &Segments| {
            let path = std::iter::once(*root).chain(module.iter().map(String::as_str));
            path.collect::<Vec<_>>().join("/")
        };
        for (module, others) in modules.arrows() {
            imports.extend(others.into_iter().map(|other| (name(module), name(other))));
        }
    }
    ensure!(
        imports.len() > 1_000,
        "this check finds no imports any more"
    );
    let excepted = |import: &Import| {
        let import = (import.0.as_str(), import.1.as_str());
        EXCEPTED.contains(&import)
    };
    let (excepted, left): (BTreeSet<_>, BTreeSet<_>) = imports.into_iter().partition(excepted);
    let mut bad: Vec<String> = in_circles(&left)
        .into_iter()
        .map(|(from, to)| format!("{from} imports {to}"))
        .collect();
    for (from, to) in EXCEPTED {
        let import = ((*from).to_owned(), (*to).to_owned());
        let mut with = left.clone();
        let is_there = excepted.contains(&import) && with.insert(import.clone());
        if !is_there || !in_circles(&with).contains(&import) {
            bad.push(format!("{from} imports {to}: this exception is not needed"));
        }
    }
    ensure!(
        bad.is_empty(),
        "these imports go in circles:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

/// Returns the imports that are part of a circle of files and folders that lie beside each other.
fn in_circles(imports: &BTreeSet<Import>) -> BTreeSet<Import> {
    let mut levels: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (from, to) in imports {
        if let Some((folder, from, to)) = beside(from, to) {
            let level = levels.entry(folder).or_default();
            level.entry(from).or_default().insert(to);
        }
    }
    let is_bad = |(from, to): &&Import| {
        beside(from, to)
            .is_some_and(|(folder, from, to)| reached(&levels[folder], to).contains(from))
    };
    imports.iter().filter(is_bad).cloned().collect()
}

/// Returns the innermost folder of both modules, and what they are, or are in, there; nothing if one is the folder itself.
fn beside<'a>(from: &'a str, to: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
    let pairs = from.split('/').zip(to.split('/'));
    let same = pairs.take_while(|(one, other)| one == other);
    let folder: usize = same.map(|(name, _)| name.len() + 1).sum();
    let next = |path: &'a str| path.get(folder..)?.split('/').next();
    Some((from.get(..folder)?, next(from)?, next(to)?))
}

/// Returns the files and folders to which imports lead from one, and itself.
fn reached<'a>(level: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(one) = next.pop() {
        let others = level.get(one).into_iter().flatten();
        next.extend(others.filter(|other| reached.insert(other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of these imports are part of a circle.
    fn nr_bad(pairs: &[(&str, &str)]) -> usize {
        let imports = pairs
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        in_circles(&imports.collect()).len()
    }

    #[test]
    fn files_and_folders_go_in_circles() {
        assert_eq!(nr_bad(&[("x/a", "x/b"), ("x/b", "x/c"), ("x/c", "x/b")]), 2);
        assert_eq!(nr_bad(&[("x/a/one", "x/b/one"), ("x/b/two", "x/a/two")]), 2);
        assert_eq!(nr_bad(&[("x/a/one", "x/a/two"), ("x/a/two", "x/b")]), 0);
    }

    #[test]
    fn a_folder_lists_its_files() {
        assert_eq!(nr_bad(&[("x/a", "x/a/one"), ("x/a/one", "x/a")]), 0);
    }
}
