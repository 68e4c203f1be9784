// SPDX-License-Identifier: GPL-2.0

//! What may import what: layers that only look down.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

/// The folder below which paths from the module's crate root are files.
const ROOT: &str = "rust";

/// What the files of a folder may import, as paths from the crate's root. Of nested folders the innermost counts.
const ALLOWED: &[(&str, &[&str])] = &[
    ("algo", &["algo"]),
    ("glue", &["algo", "glue"]),
    (
        "glue/stack",
        &["algo", "glue::ffi", "glue::locks", "glue::stack"],
    ),
];

/// Folders whose `mod.rs` lists the modules in the order of their imports: each imports from those before it only.
const ORDERED: &[&str] = &["glue", "glue/stack"];

/// Fails with all imports that are not allowed.
pub(crate) fn check(project: &Path, files: &[PathBuf]) -> Result<()> {
    let root = project.join(ROOT);
    let mut bad = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let Ok(path) = file.strip_prefix(&root) else {
            continue;
        };
        let path = path.to_string_lossy();
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let Some((_, allowed)) = ALLOWED
            .iter()
            .rfind(|(folder, _)| is_below(module, folder, "/"))
        else {
            continue;
        };
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {path}"))?;
        for import in imports(module, &text) {
            if !allowed
                .iter()
                .any(|allowed| is_below(&import, allowed, "::"))
            {
                bad.push(format!("{path}: {import}"));
            }
            for folder in ORDERED {
                let list = fs::read_to_string(root.join(folder).join("mod.rs"))?;
                if !looks_down(&list, folder, module, &import) {
                    bad.push(format!("{path}: {import} comes later in {folder}/mod.rs"));
                }
            }
        }
    }
    ensure!(
        bad.is_empty(),
        "these imports look up:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

/// Whether `path` is `parent` or in it.
fn is_below(path: &str, parent: &str, separator: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

/// Whether an import inside `folder` leads to a module that its list names before the importing one.
fn looks_down(list: &str, folder: &str, module: &str, import: &str) -> bool {
    let place = |path: &str| {
        let name = path
            .strip_prefix(folder)?
            .strip_prefix('/')?
            .split('/')
            .next()?;
        list.lines()
            .position(|line| line == format!("pub mod {name};"))
    };
    match (place(module), place(&import.replace("::", "/"))) {
        (Some(own), Some(other)) => other <= own,
        _ => true,
    }
}

/// Returns the paths from the crate's root that the code of `module` (such as `glue/lane`) names.
fn imports(module: &str, text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let parent = module
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent)
        .replace('/', "::");
    let named = |start: &str, root: &str| -> Vec<String> {
        let places = code
            .match_indices(start)
            .map(|(at, _)| &code[at + start.len()..]);
        places
            .flat_map(expand)
            .map(|path| format!("{root}{path}"))
            .collect()
    };
    let mut all = BTreeSet::from_iter(named("crate::", ""));
    all.extend(named("super::", &format!("{parent}::")));
    all
}

/// Returns the paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let end = tree
        .find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(tree.len());
    let (path, rest) = tree.split_at(end);
    let Some(inner) = rest.strip_prefix('{') else {
        return vec![path.trim_end_matches(':').to_owned()];
    };
    let depth_of = |c| i32::from(c == '{') - i32::from(c == '}');
    let mut depth = 1;
    let close = inner.find(|c| {
        depth += depth_of(c);
        depth == 0
    });
    let mut depth = 0;
    inner[..close.unwrap_or(inner.len())]
        .split(|c| {
            depth += depth_of(c);
            depth == 0 && c == ','
        })
        .map(str::trim)
        .filter(|branch| !branch.is_empty())
        .flat_map(expand)
        .map(|branch| format!("{path}{branch}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_trees_become_paths() {
        let text = "// use super::no;\nuse super::{\n    a::{self, B},\n    c,\n};\nlet x = crate::glue::d::E::new();\n";
        let expected = ["glue::a::B", "glue::a::self", "glue::c", "glue::d::E::new"];
        assert_eq!(Vec::from_iter(imports("glue/x", text)), expected);
        assert_eq!(expand("ffi;"), ["ffi"]);
    }

    #[test]
    fn later_modules_are_not_imported() {
        let list = "pub mod a;\n\npub mod b;\n";
        assert!(looks_down(list, "glue", "glue/b", "glue::a::X"));
        assert!(!looks_down(list, "glue", "glue/a/inner", "glue::b"));
        assert!(looks_down(list, "glue", "glue/a", "algo::b"));
        assert!(
            is_below("glue::ffi::x", "glue::ffi", "::")
                && !is_below("glue::ffix", "glue::ffi", "::")
        );
    }
}
