// SPDX-License-Identifier: GPL-2.0

//! The work tree: the kernel as it came, plus our patches and files.
//!
//! It is changed in place and only where contents change, so that time stamps stay and make rebuilds no more than it must.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use walkdir::{DirEntry, WalkDir};

use super::series::Patch;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// Files by their path in the kernel tree; `None` is a file that a patch removes.
pub(crate) type Overlay = BTreeMap<String, Option<Wanted>>;

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The source as it came; never written to.
    pub(crate) pristine: PathBuf,
    pub(crate) work: PathBuf,
    /// The list of the files in `work` that may differ from `pristine`.
    pub(crate) manifest: PathBuf,
}

impl Wanted {
    fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let context = || format!("cannot read {}", path.display());
        Ok(Some(Self {
            bytes: fs::read(path).with_context(context)?,
            mode: fs::metadata(path)
                .with_context(context)?
                .permissions()
                .mode()
                & 0o777,
        }))
    }

    /// Writes a new file in place of the old one: the old one may be a link into the pristine tree.
    fn write(&self, path: &Path) -> Result<()> {
        let dir = path.parent().context("a file has a folder")?;
        fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        std::io::Write::write_all(&mut file, &self.bytes)?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(self.mode))?;
        file.persist(path)?;
        Ok(())
    }
}

impl Tree {
    /// Returns a tree in `home` that holds nothing but our own files.
    pub(crate) fn of_own_files(home: &Path) -> Self {
        Self {
            pristine: home.join("nothing"),
            work: home.join("source"),
            manifest: home.join("source.files"),
        }
    }

    /// Returns the files that the patches and `own` make of the pristine tree.
    pub(crate) fn overlay(
        &self,
        patches: &[Patch],
        own: BTreeMap<String, Wanted>,
    ) -> Result<Overlay> {
        let staging = tempfile::tempdir()?;
        let touched: BTreeSet<String> = patches.iter().flat_map(Patch::files).collect();
        for path in &touched {
            if let Some(file) = Wanted::read(&self.pristine.join(path))? {
                file.write(&staging.path().join(path))?;
            }
        }
        for patch in patches {
            patch.apply(staging.path())?;
        }
        let mut overlay = Overlay::new();
        for path in touched {
            let result = Wanted::read(&staging.path().join(&path))?;
            overlay.insert(path, result);
        }
        for (path, file) in own {
            if self.pristine.join(&path).exists() {
                bail!("{path} is a file of the kernel itself: change it with a patch, not with a copy");
            }
            if overlay.insert(path.clone(), Some(file)).is_some() {
                bail!("{path} is both in a patch and one of our own files");
            }
        }
        Ok(overlay)
    }

    /// Makes the work tree pristine plus `overlay`; returns the files that were written or removed.
    pub(crate) fn update(&self, overlay: &Overlay) -> Result<Vec<String>> {
        let before = self.changed_files();
        let all: BTreeSet<&String> = before.iter().chain(overlay.keys()).collect();
        // It is written first: an interrupted update must not forget a file.
        self.write_manifest(&all)?;
        let mut changed = Vec::new();
        for path in all {
            let wanted = match overlay.get(path) {
                Some(wanted) => wanted.clone(),
                None => Wanted::read(&self.pristine.join(path))?,
            };
            let place = self.work.join(path);
            if Wanted::read(&place)? == wanted {
                continue;
            }
            match wanted {
                Some(file) => file.write(&place),
                None => fs::remove_file(&place).map_err(Into::into),
            }
            .with_context(|| format!("cannot update {}", place.display()))?;
            changed.push(path.clone());
        }
        self.write_manifest(&overlay.keys().collect())?;
        Ok(changed)
    }

    pub(crate) fn changed_files(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.manifest).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn write_manifest(&self, files: &BTreeSet<&String>) -> Result<()> {
        let text: String = files.iter().map(|path| format!("{path}\n")).collect();
        fs::write(&self.manifest, text)
            .with_context(|| format!("cannot write {}", self.manifest.display()))
    }
}

/// Reads every file below `dir` for which `take` is true, and that is in folders for which it is, by `prefix` and its path
/// in `dir`; hidden ones are left out.
pub(crate) fn read_files(
    dir: &Path,
    prefix: &str,
    take: &dyn Fn(&Path) -> bool,
    files: &mut BTreeMap<String, Wanted>,
) -> Result<()> {
    let entries = WalkDir::new(dir).follow_links(true).min_depth(1);
    let wanted = |entry: &DirEntry| {
        !entry.file_name().as_encoded_bytes().starts_with(b".") && take(entry.path())
    };
    for entry in entries.into_iter().filter_entry(wanted) {
        let entry = entry?;
        if entry.file_type().is_dir() {
            continue;
        }
        if let Some(file) = Wanted::read(entry.path())? {
            let path = Path::new(prefix).join(entry.path().strip_prefix(dir)?);
            files.insert(path.to_string_lossy().into_owned(), file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    struct Fixture {
        _dir: tempfile::TempDir,
        tree: Tree,
    }

    impl Fixture {
        /// Makes a tiny kernel of three files, the work tree linked to it as the real one is.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let tree = Tree {
                pristine: dir.path().join("pristine"),
                work: dir.path().join("work"),
                manifest: dir.path().join("manifest"),
            };
            for (path, text) in [("net/a.c", "a\n"), ("net/b.c", "b\n"), ("Makefile", "m\n")] {
                for root in [&tree.pristine, &tree.work] {
                    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                }
                fs::write(tree.pristine.join(path), text).unwrap();
                fs::hard_link(tree.pristine.join(path), tree.work.join(path)).unwrap();
            }
            Self { _dir: dir, tree }
        }

        fn update(&self, patches: &[Patch], own: &[(&str, &str)]) -> Vec<String> {
            let own = own
                .iter()
                .map(|(path, text)| ((*path).to_owned(), wanted(text)))
                .collect();
            let overlay = self.tree.overlay(patches, own).unwrap();
            self.tree.update(&overlay).unwrap()
        }

        fn work(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.tree.work.join(path)).ok()
        }

        fn time(&self, path: &str) -> SystemTime {
            self.tree
                .work
                .join(path)
                .metadata()
                .unwrap()
                .modified()
                .unwrap()
        }
    }

    fn wanted(text: &str) -> Wanted {
        Wanted {
            bytes: text.as_bytes().to_vec(),
            mode: 0o644,
        }
    }

    fn patch(path: &str, old: &str, new: &str) -> Patch {
        Patch {
            name: format!("{new}.patch"),
            text: format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"),
        }
    }

    #[test]
    fn only_changed_contents_are_written() {
        let fixture = Fixture::new();
        let patches = [patch("net/a.c", "a", "A"), patch("net/b.c", "b", "B")];
        let own = [("net/mflow/mflow.c", "mflow\n")];
        assert_eq!(
            fixture.update(&patches, &own),
            ["net/a.c", "net/b.c", "net/mflow/mflow.c"]
        );
        assert_eq!(fixture.work("net/a.c").as_deref(), Some("A\n"));
        let times = ["net/a.c", "net/b.c", "Makefile"].map(|path| fixture.time(path));

        assert!(fixture.update(&patches, &own).is_empty());
        let other = [patch("net/a.c", "a", "A"), patch("net/b.c", "b", "BB")];
        assert_eq!(fixture.update(&other, &own), ["net/b.c"]);
        assert_eq!(fixture.work("net/b.c").as_deref(), Some("BB\n"));
        assert_eq!(times[0], fixture.time("net/a.c"));
        assert_eq!(times[2], fixture.time("Makefile"));
    }

    #[test]
    fn what_is_no_longer_wanted_becomes_pristine_with_a_new_time() {
        let fixture = Fixture::new();
        let before = fixture.time("net/a.c");
        fixture.update(
            &[patch("net/a.c", "a", "A")],
            &[("net/mflow/mflow.c", "mflow\n")],
        );
        assert_eq!(fixture.update(&[], &[]), ["net/a.c", "net/mflow/mflow.c"]);
        assert_eq!(fixture.work("net/a.c").as_deref(), Some("a\n"));
        assert_eq!(fixture.work("net/mflow/mflow.c"), None);
        assert!(
            fixture.time("net/a.c") > before,
            "make must see that the file changed back"
        );
        assert!(fixture.tree.changed_files().is_empty());
    }

    #[test]
    fn the_pristine_tree_is_never_written_to() {
        let fixture = Fixture::new();
        fixture.update(
            &[patch("net/a.c", "a", "A"), patch("net/a.c", "A", "AA")],
            &[],
        );
        assert_eq!(fixture.work("net/a.c").as_deref(), Some("AA\n"));
        assert_eq!(
            fs::read_to_string(fixture.tree.pristine.join("net/a.c")).unwrap(),
            "a\n"
        );
    }

    #[test]
    fn a_failed_patch_leaves_the_work_tree_alone() {
        let fixture = Fixture::new();
        let patches = [patch("net/a.c", "a", "A"), patch("net/b.c", "not b", "B")];
        let error = fixture
            .tree
            .overlay(&patches, BTreeMap::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("patch B.patch does not apply to net/b.c"),
            "{error}"
        );
        assert_eq!(fixture.work("net/a.c").as_deref(), Some("a\n"));
    }

    #[test]
    fn own_files_do_not_shadow_the_kernel() {
        let fixture = Fixture::new();
        let own = BTreeMap::from([("net/a.c".to_owned(), wanted("mine\n"))]);
        assert!(fixture.tree.overlay(&[], own).is_err());
        let removes = Patch {
            name: "remove.patch".to_owned(),
            text: "--- a/net/b.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n".to_owned(),
        };
        assert_eq!(fixture.update(&[removes], &[]), ["net/b.c"]);
        assert_eq!(fixture.work("net/b.c"), None);
        assert_eq!(fixture.update(&[], &[]), ["net/b.c"]);
        assert_eq!(fixture.work("net/b.c").as_deref(), Some("b\n"));
    }
}
