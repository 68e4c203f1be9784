// SPDX-License-Identifier: GPL-2.0

//! The patch series: which patches, which files they touch, and applying them without guessing.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{bail, Context as _, Result};

use crate::tools;

#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads the patches listed in `dir/series`, in order.
pub(crate) fn read(dir: &Path) -> Result<Vec<Patch>> {
    let list = dir.join("series");
    let text =
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    names(&text)
        .map(|name| {
            let path = dir.join(name);
            let text = fs::read_to_string(&path).with_context(|| {
                format!("{} lists {name}, which cannot be read", list.display())
            })?;
            Ok(Patch {
                name: name.to_owned(),
                text,
            })
        })
        .collect()
}

/// Returns the patch files in `dir` that its `series` does not list.
pub(crate) fn unlisted(dir: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(dir.join("series"))?;
    let listed: BTreeSet<&str> = names(&text).collect();
    let mut unlisted = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".patch") && !listed.contains(name.as_str()) {
            unlisted.push(name);
        }
    }
    unlisted.sort();
    Ok(unlisted)
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|name| !name.is_empty())
}

impl Patch {
    /// Returns the files this patch changes, adds or removes, as in `patch -p1`.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        // Lines of a hunk may look like a file header: count them to know where a hunk ends.
        let (mut old, mut new) = (0_usize, 0_usize);
        let mut before = "";
        for line in self.text.lines() {
            if old > 0 || new > 0 {
                match line.as_bytes().first() {
                    Some(b'-') => old = old.saturating_sub(1),
                    Some(b'+') => new = new.saturating_sub(1),
                    Some(b'\\') => {}
                    _ => {
                        old = old.saturating_sub(1);
                        new = new.saturating_sub(1);
                    }
                }
            } else if let Some(counts) = hunk_lengths(line) {
                (old, new) = counts;
            } else if let (Some(old), Some(new)) =
                (before.strip_prefix("--- "), line.strip_prefix("+++ "))
            {
                files.extend([old, new].into_iter().filter_map(header_path));
            }
            before = line;
        }
        files
    }

    /// Applies this patch to the files in `tree`; context must match exactly, only line numbers may differ.
    pub(crate) fn apply(&self, tree: &Path) -> Result<()> {
        let mut child = tools::command("patch")
            .args(["-p1", "--fuzz=0", "--batch", "--forward"])
            .args(["--no-backup-if-mismatch", "--reject-file=-"])
            .current_dir(tree)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run `patch`; `cargo xtask setup` installs it")?;
        let sent = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(self.text.as_bytes()));
        let output = child.wait_with_output()?;
        if output.status.success() {
            return sent.transpose().context("cannot feed `patch`").map(drop);
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!(
            "patch {} does not apply to {}: this kernel source differs from the one the series was made for\n{}{}",
            self.name,
            failed_file(&said).unwrap_or("one of its files"),
            said.trim_end(),
            complaint.trim_end()
        )
    }
}

/// Returns the path in `a/path` or `b/path`, which a time stamp may follow.
fn header_path(text: &str) -> Option<String> {
    let path = text.split('\t').next().unwrap_or_default().trim();
    let (_, path) = path.split_once('/').filter(|_| path != "/dev/null")?;
    Some(path.to_owned())
}

/// Returns the line counts of `@@ -start,count +start,count @@`.
fn hunk_lengths(line: &str) -> Option<(usize, usize)> {
    let mut ranges = line.strip_prefix("@@ -")?.split(" @@").next()?.split(" +");
    let mut length = || -> Option<usize> {
        let range = ranges.next()?;
        range
            .split_once(',')
            .map_or(Some(1), |(_, count)| count.parse().ok())
    };
    Some((length()?, length()?))
}

/// Returns the file that `patch` was at when a hunk failed.
fn failed_file(said: &str) -> Option<&str> {
    let mut file = None;
    for line in said.lines() {
        if let Some(rest) = line.strip_prefix("patching file ") {
            file = Some(rest.trim_matches('\''));
        } else if line.contains("FAILED") || line.contains("ignored") {
            return file;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
A subject

Text with a line that starts like a header:
--- see also/this file
---
 net/a.c | 2 +-

diff --git a/net/a.c b/net/a.c
--- a/net/a.c
+++ b/net/a.c
@@ -1,3 +1,3 @@
 one
--- a/not/a/file
+two
 three
diff --git a/net/new.c b/net/new.c
new file mode 100644
--- /dev/null
+++ b/net/new.c
@@ -0,0 +1 @@
+new
-- 
2.39.5
";

    fn patch() -> Patch {
        Patch {
            name: "0001-test.patch".to_owned(),
            text: PATCH.to_owned(),
        }
    }

    #[test]
    fn series_ignores_comments_and_empty_lines() {
        let text = "# order matters\n\n0001-a.patch\n  0002-b.patch # needs the first\n";
        assert_eq!(
            names(text).collect::<Vec<_>>(),
            ["0001-a.patch", "0002-b.patch"]
        );
    }

    #[test]
    fn files_are_read_from_headers_only() {
        let files = patch().files();
        assert_eq!(
            files.iter().map(String::as_str).collect::<Vec<_>>(),
            ["net/a.c", "net/new.c"]
        );
    }

    #[test]
    fn a_patch_applies_exactly_or_names_patch_and_file() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("net")).unwrap();
        let file = tree.path().join("net/a.c");
        fs::write(&file, "one\n-- a/not/a/file\nthree\n").unwrap();
        patch().apply(tree.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(
            fs::read_to_string(tree.path().join("net/new.c")).unwrap(),
            "new\n"
        );

        fs::remove_file(tree.path().join("net/new.c")).unwrap();
        fs::write(&file, "one\n-- a/not/a/file\nsomething else\n").unwrap();
        let error = patch().apply(tree.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("patch 0001-test.patch does not apply to net/a.c:"),
            "{error}"
        );
    }
}
