// SPDX-License-Identifier: GPL-2.0

//! Makes the copy of the algorithm that the crate explores: see `src/lib.rs`.

/// The changes that are always made.
#[path = "build/changes.rs"]
pub mod changes;
/// The changes that a fault makes.
#[path = "src/faults.rs"]
pub mod faults;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use changes::CHANGES;
use faults::{Place, FAULTS};

/// The folder of the algorithm, from that of this crate.
const ALGO: &str = "../algo";

/// The only file with atomics. The copy has those that count.
const ATOMICS: &str = "sync.rs";
const COUNTED: &str =
    "pub(crate) use crate::hooks::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64};\n\
    pub(crate) use core::sync::atomic::Ordering;\n";

/// The advice where a text is not found.
const TO_DO: &str = "the algorithm has changed, so change build/changes.rs or src/faults.rs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/changes.rs");
    println!("cargo::rerun-if-changed=src/faults.rs");
    println!("cargo::rerun-if-changed={ALGO}");
    let mut texts = BTreeMap::new();
    read(Path::new(ALGO), &mut texts);
    texts.insert(ATOMICS.to_owned(), COUNTED.to_owned());
    for text in texts.values_mut() {
        // The sizes that a loom build has, without loom.
        *text = text.replace("cfg!(loom)", "true");
    }
    for change in CHANGES {
        replace(&mut texts, change.file, change.text, change.new.to_owned());
    }
    for (number, fault) in FAULTS.iter().enumerate() {
        for place in fault.places {
            let changed = with_switch(fault.name, number, place);
            replace(&mut texts, place.file, place.text, changed);
        }
    }
    write(&texts);
}

/// Reads the files of a folder, by their paths in it.
fn read(folder: &Path, texts: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            read(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let below = path.strip_prefix(ALGO).expect("a path in the folder");
            texts.insert(below.to_string_lossy().into_owned(), text);
        }
    }
}

/// Replaces a text that is in a file a single time.
fn replace(texts: &mut BTreeMap<String, String>, file: &str, old: &str, new: String) {
    let text = texts
        .get_mut(file)
        .unwrap_or_else(|| panic!("rust/algo has no {file}: {TO_DO}"));
    let times = text.matches(old).count();
    assert!(
        times == 1,
        "rust/algo/{file} has {old:?} {times} times, and not once: {TO_DO}"
    );
    *text = text.replace(old, &new);
}

/// Returns the text of a place with both expressions, of which the planted fault chooses one.
fn with_switch(name: &str, number: usize, place: &Place) -> String {
    let Place { right, wrong, .. } = place;
    assert!(
        place.text.matches(right).count() == 1,
        "fault {name}: {:?} has {right:?} not once",
        place.text
    );
    let both = format!("(if crate::hooks::is_planted({number}) {{ {wrong} }} else {{ {right} }})");
    place.text.replace(right, &both)
}

/// Writes the copy, and the item that includes it.
fn write(texts: &BTreeMap<String, String>) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let copy = out.join("algo");
    // What has been renamed or removed is not to stay.
    if copy.exists() {
        fs::remove_dir_all(&copy).unwrap_or_else(|error| panic!("{copy:?}: {error}"));
    }
    for (file, text) in texts {
        let path = copy.join(file);
        let folder = path.parent().expect("a file in a folder");
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        fs::write(&path, text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }
    let item = format!(
        "#[path = {:?}]\n\
        #[allow(warnings, clippy::all, reason = \"a changed copy; lints look at the text itself\")]\n\
        mod algo;\n",
        copy.join("mod.rs")
    );
    fs::write(out.join("algo.rs"), item).expect("OUT_DIR can be written");
}
