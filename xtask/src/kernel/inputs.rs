// SPDX-License-Identifier: GPL-2.0

//! The parts of this project that go into a kernel tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::config::Fragment;
use super::series::{self, Patch};
use super::tree::{read_files, Wanted};

/// The module's folder in the kernel tree.
const MODULE_DIR: &str = "net/mflow";

#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) patches: Vec<Patch>,
    pub(crate) own: BTreeMap<String, Wanted>,
}

impl Inputs {
    pub(crate) fn read(project: &Path) -> Result<Self> {
        let mut own = BTreeMap::new();
        read_files(&project.join("c-shims/kernel"), "", &|_| true, &mut own)?;
        own.extend(
            module_files(project)?
                .into_iter()
                .map(|(path, file)| (format!("{MODULE_DIR}/{path}"), file)),
        );
        Ok(Self {
            patches: series::read(&patch_dir(project))?,
            own,
        })
    }

    pub(crate) fn hash(&self, hasher: &mut Sha256) {
        let mut add = |bytes: &[u8]| {
            hasher.update(bytes.len().to_le_bytes());
            hasher.update(bytes);
        };
        for patch in &self.patches {
            add(patch.name.as_bytes());
            add(patch.text.as_bytes());
        }
        for (path, file) in &self.own {
            add(path.as_bytes());
            add(&file.bytes);
        }
    }
}

pub(crate) fn patch_dir(project: &Path) -> PathBuf {
    project.join("c-shims/patches")
}

/// Returns the sources of the module: `Kbuild`, `rust/` and the C files of `c-shims/` without what runs or is loaded elsewhere.
pub(crate) fn module_files(project: &Path) -> Result<BTreeMap<String, Wanted>> {
    let shims = project.join("c-shims");
    let not_ours = [
        project.join("rust/command"),
        project.join("rust/explorer"),
        project.join("rust/host"),
        project.join("rust/hike"),
        shims.join("hike"),
        shims.join("kernel"),
        shims.join("patches"),
    ];
    let take = |path: &Path| {
        if path.is_dir() {
            return !not_ours.iter().any(|other| other == path);
        }
        matches!(
            path.extension().and_then(|end| end.to_str()),
            Some("rs" | "mk" | "sh" | "c" | "h")
        )
    };
    let mut files = BTreeMap::new();
    read_files(&project.join("rust"), "rust", &take, &mut files)?;
    read_files(&shims, "c-shims", &take, &mut files)?;
    let kbuild = project.join("Kbuild");
    let bytes = fs::read(&kbuild).with_context(|| format!("cannot read {}", kbuild.display()))?;
    files.insert("Kbuild".to_owned(), Wanted { bytes, mode: 0o644 });
    Ok(files)
}

/// Returns the headers that a kernel with our hooks has, for the module on one without.
pub(crate) fn module_headers(project: &Path) -> Result<BTreeMap<String, Wanted>> {
    const HEADERS: &str = "c-shims/kernel/include";
    let mut files = BTreeMap::new();
    read_files(&project.join(HEADERS), HEADERS, &|_| true, &mut files)?;
    Ok(files)
}

pub(crate) fn fragments(project: &Path, names: &[&str]) -> Result<Vec<Fragment>> {
    names
        .iter()
        .map(|name| fragment(&project.join("kernel-config").join(format!("{name}.config"))))
        .collect()
}

pub(crate) fn fragment(path: &Path) -> Result<Fragment> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the fragment {}", path.display()))?;
    Ok(Fragment {
        name: path.display().to_string(),
        text,
    })
}
