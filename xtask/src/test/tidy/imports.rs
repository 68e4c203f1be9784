// SPDX-License-Identifier: GPL-2.0

//! The imports that are allowed: the picture in `rust/DESIGN.md`, compared with the crates' manifests and the module's code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use serde_json::Value;

use super::modules::Modules;
use crate::tools;

/// The folder below which paths from the module's crate root are files.
const ROOT: &str = "rust";

/// The parts of the module below that folder.
const PARTS: [&str; 2] = ["algo", "glue"];

/// Folders whose `mod.rs` lists the modules in the order of their imports: each imports from those before it only.
const ORDERED: &[&str] = &[
    "glue",
    "glue/control",
    "glue/operator",
    "glue/packet",
    "glue/stack",
];

/// Folders, and those that each may import from beside itself.
type Picture = BTreeMap<String, BTreeSet<String>>;

/// Fails with all imports that the picture does not have, and with what it has beyond the crates' manifests.
pub(crate) fn check(project: &Path, files: &[PathBuf]) -> Result<()> {
    let design = project.join(ROOT).join("DESIGN.md");
    let design = fs::read_to_string(&design).context("cannot read rust/DESIGN.md")?;
    let picture = picture(&design)?;
    let mut bad = Vec::new();
    for (folder, imports) in crates(project)? {
        let drawn = picture.get(&folder);
        if drawn != Some(&imports) {
            bad.push(format!(
                "{folder} depends on {imports:?}, and the picture in rust/DESIGN.md says {drawn:?}"
            ));
        }
    }
    let root = project.join(ROOT);
    for part in PARTS {
        let modules = Modules::read(&root, &root.join(part), files)?;
        for (module, imports) in modules.paths() {
            let module = module.join("/");
            let below = |folder: &&String| {
                let folder = folder.strip_prefix("rust/").unwrap_or("-");
                Path::new(&module).starts_with(folder)
            };
            // Of nested folders the innermost counts, which sorts last.
            let Some(folder) = picture.keys().rfind(below) else {
                continue;
            };
            for import in imports {
                let import = import.join("/");
                let imported = Path::new(ROOT).join(&import);
                let mut allowed = picture[folder].iter().chain([folder]);
                if !allowed.any(|allowed| imported.starts_with(allowed)) {
                    bad.push(format!("{module}: {import}"));
                }
                for folder in ORDERED {
                    let list = fs::read_to_string(root.join(folder).join("mod.rs"))?;
                    if !looks_down(&list, folder, &module, &import) {
                        bad.push(format!("{module}: {import} comes later in {folder}/mod.rs"));
                    }
                }
            }
        }
    }
    ensure!(
        bad.is_empty(),
        "these imports are not as in the picture in rust/DESIGN.md:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

/// Reads the lines `FOLDER ─▶ FOLDER, FOLDER` of the picture.
fn picture(design: &str) -> Result<Picture> {
    let picture: Picture = design
        .lines()
        .filter_map(|line| line.split_once("─▶"))
        .filter(|(folder, _)| folder.contains('/') || folder.starts_with("xtask"))
        .map(|(folder, imports)| {
            let imports = imports
                .split([',', ' '])
                .filter(|import| !import.is_empty());
            let folder = folder.trim_end_matches(['─', ' ']);
            (folder.to_owned(), imports.map(str::to_owned).collect())
        })
        .collect();
    ensure!(
        !picture.is_empty(),
        "rust/DESIGN.md has no picture of what may import what"
    );
    Ok(picture)
}

/// Returns the folders of the workspace's crates, and those of the project that each is made of.
fn crates(project: &Path) -> Result<Picture> {
    let mut command = tools::command("cargo");
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&tools::output(command.current_dir(project))?)?;
    let folder = |path: &Value| {
        let path = Path::new(path.as_str()?).strip_prefix(project).ok()?;
        Some(path.to_string_lossy().into_owned())
    };
    let mut crates = Picture::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = folder(&package["manifest_path"]).context("a crate outside the project")?;
        let own = manifest.trim_end_matches("/Cargo.toml").to_owned();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let mut imports: BTreeSet<String> = dependencies
            .filter_map(|one| folder(&one["path"]))
            .collect();
        let root = project.join(&own).join("src/lib.rs");
        if fs::read_to_string(root).is_ok_and(|text| text.contains("../../algo/mod.rs")) {
            imports.insert("rust/algo".to_owned());
        }
        crates.insert(own, imports);
    }
    Ok(crates)
}

/// Returns whether an import inside `folder` leads to a module that its list names before the importing one.
fn looks_down(list: &str, folder: &str, module: &str, import: &str) -> bool {
    let place = |path: &str| {
        let name = Path::new(path).strip_prefix(folder).ok()?.iter().next()?;
        let line = format!("pub mod {};", name.to_string_lossy());
        list.lines().position(|one| one == line)
    };
    let ends = place(module).zip(place(import));
    ends.is_none_or(|(own, other)| other <= own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_read() {
        let text = "NIC ─▶ lane\nrust/glue ──▶ rust/algo\ntests/protocol ─▶\n";
        let picture = picture(text).unwrap();
        assert_eq!(
            Vec::from_iter(picture.keys()),
            ["rust/glue", "tests/protocol"]
        );
        assert!(picture["rust/glue"].contains("rust/algo") && picture["tests/protocol"].is_empty());
    }

    #[test]
    fn later_modules_are_not_imported() {
        let list = "pub mod a;\n\npub mod b;\n";
        assert!(looks_down(list, "glue", "glue/b", "glue/a/X"));
        assert!(!looks_down(list, "glue", "glue/a/inner", "glue/b"));
        assert!(looks_down(list, "glue", "glue/a", "algo/b"));
        assert!(looks_down(list, "glue", "gluex/a", "glue/b"));
    }
}
