// SPDX-License-Identifier: GPL-2.0

//! Files of the fleet, as tests read them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Returns the path of a file.
pub(crate) fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Returns the text of a file.
pub(crate) fn text(file: &str) -> String {
    let path = path(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads a file of YAML with one document.
pub(crate) fn yaml<T: DeserializeOwned>(file: &str) -> T {
    let text = text(file);
    let mut documents = serde_yaml_ng::Deserializer::from_str(&text);
    let first = documents
        .next()
        .unwrap_or_else(|| panic!("{file} is empty"));
    let read = T::deserialize(first).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(documents.next().is_none(), "{file} has several documents");
    read
}

/// Returns the paths of all files below a folder whose names end like this.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(path(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            let path = match &*folder {
                "" => name,
                folder => format!("{folder}/{name}"),
            };
            if entry.file_type().expect("a type").is_dir() {
                open.push(path);
            } else if path.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} has no file *{ending}");
    found
}
