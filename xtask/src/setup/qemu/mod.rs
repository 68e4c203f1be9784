// SPDX-License-Identifier: GPL-2.0

//! The QEMU that boots the guests: the installed one if it is new enough, else a newer one in the cache.

mod fetch;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context as _, Result};

use super::failures::Failure;
use crate::paths;
use crate::tools;

const PROGRAM: &str = "qemu-system-x86_64";

/// The folder into which packages put libraries, and the dynamic loader with them.
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A demand on QEMU's version, and a source of such a QEMU.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The oldest version that will do.
    pub least: &'static str,
    /// The suite of the distribution that has it.
    pub suite: &'static str,
}

/// With a thread for each CPU, QEMU can translate a piece of code while another CPU changes it, and then keeps the old one: a
/// kernel that switches a static key dies of a breakpoint that is no longer there, or some of its CPUs do not notice.
///
/// Before 8.1 that is frequent. Since then it takes a host that stops one thread between its look for translations of what it
/// is about to write and the write.
pub const SAFER_THREADS: Wish = Wish {
    least: "8.1",
    suite: "trixie",
};

/// Since 10.1 QEMU can have a device that another process plays, which is how the ConnectX model is attached.
pub const VFIO_USER: Wish = Wish {
    least: "10.1",
    suite: "forky",
};

/// A QEMU that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// Such as `10.0.13`.
    pub version: String,
    /// The folder its packages were unpacked to; without one it is the installed one.
    root: Option<PathBuf>,
}

impl Qemu {
    /// Returns the one to use: the installed one if it will do, else the oldest in the cache that does, else the installed one.
    ///
    /// The oldest, so that fetching a newer one for one purpose changes nothing for the others.
    pub fn find(wish: &Wish) -> Option<Self> {
        let installed = Self::installed();
        if installed.as_ref().is_some_and(|qemu| qemu.suits(wish)) {
            return installed;
        }
        let cached = cached(&paths::cache().join("qemu"));
        choose(cached, wish).or(installed)
    }

    pub(crate) fn installed() -> Option<Self> {
        tools::find(PROGRAM)?;
        Some(Self {
            version: tools::version(PROGRAM)?,
            root: None,
        })
    }

    pub(crate) fn suits(&self, wish: &Wish) -> bool {
        tools::at_least(&self.version, wish.least)
    }

    pub(crate) fn place(&self) -> String {
        match &self.root {
            None => "installed".to_owned(),
            Some(root) => format!("in {}", root.display()),
        }
    }
}

pub(crate) fn command(wish: &Wish) -> Command {
    match Qemu::find(wish).and_then(|qemu| qemu.root) {
        None => Command::new(PROGRAM),
        Some(root) => unpacked(&root),
    }
}

/// Returns whether guests that run on several threads rarely run code that they have replaced.
pub(crate) fn has_safer_threads() -> bool {
    suits(&SAFER_THREADS)
}

pub(crate) fn suits(wish: &Wish) -> bool {
    Qemu::find(wish).is_some_and(|qemu| qemu.suits(wish))
}

/// Fetches a newer QEMU if there is none that will do; if that fails, says what to expect.
pub fn ensure(wish: &Wish) -> Result<()> {
    let Some(why) = obtain(wish)? else {
        return Ok(());
    };
    let Some(installed) = Qemu::installed() else {
        bail!("there is no QEMU here, and none could be fetched: {why}");
    };
    eprintln!(
        "warning: QEMU {} may run kernel code that was replaced: guests with a thread for each CPU can die of `Oops: int3`, others \
         are slow; {} or newer could not be fetched ({why}); `cargo xtask setup` tries again",
        installed.version, wish.least
    );
    Ok(())
}

/// Fetches a newer QEMU if there is none that will do; returns why there still is none.
pub(crate) fn obtain(wish: &Wish) -> Result<Option<String>> {
    if suits(wish) {
        return Ok(None);
    }
    let _lock = lock()?;
    // Another command may have fetched it while we waited.
    if suits(wish) {
        return Ok(None);
    }
    if let Some(why) = failure(wish).lately() {
        return Ok(Some(why));
    }
    let Err(error) = fetch::fetch(wish) else {
        return Ok(None);
    };
    failure(wish).note(&error).map(Some)
}

/// Makes the next attempt to fetch one real, even after a failure.
pub(crate) fn forget_failures() {
    for wish in [&SAFER_THREADS, &VFIO_USER] {
        failure(wish).forget();
    }
}

fn failure(wish: &Wish) -> Failure {
    Failure(paths::cache().join(format!("qemu/failed-{}", wish.suite)))
}

fn cached(dir: &Path) -> Vec<Qemu> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let version = entry.file_name().into_string().ok()?;
            // The folder has other things in it too.
            let ours = version.starts_with(|c: char| c.is_ascii_digit());
            ours.then(|| Qemu {
                version,
                root: Some(entry.path()),
            })
        })
        .collect()
}

fn choose(qemus: Vec<Qemu>, wish: &Wish) -> Option<Qemu> {
    let suitable = qemus.into_iter().filter(|qemu| qemu.suits(wish));
    suitable.reduce(|best, qemu| {
        if tools::at_least(&best.version, &qemu.version) {
            qemu
        } else {
            best
        }
    })
}

/// Returns the command that starts an unpacked QEMU: with its own loader, libraries, firmware and plug-ins, none of the system's.
fn unpacked(root: &Path) -> Command {
    let libraries = root.join(LIBRARIES);
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command
        .env("QEMU_MODULE_DIR", libraries.join("qemu"))
        .arg("--library-path")
        .arg(&libraries)
        .arg(root.join("usr/bin").join(PROGRAM))
        .arg("-L")
        .arg(root.join("usr/share/qemu"))
        .arg("-L")
        .arg(root.join("usr/share/seabios"));
    command
}

/// Takes the lock that is held while the cache's folder changes, or packages of a newer suite are unpacked; it is released when the
/// file is dropped.
pub(super) fn lock() -> Result<File> {
    let path = paths::cache_dir("qemu")?.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qemu(version: &str) -> Qemu {
        Qemu {
            version: version.to_owned(),
            root: None,
        }
    }

    #[test]
    fn oldest_that_will_do_is_chosen() {
        let all = || vec![qemu("10.0.13"), qemu("8.0.4"), qemu("9.2.1")];
        let wish = |least| Wish {
            least,
            ..SAFER_THREADS
        };
        assert_eq!(choose(all(), &wish("8.1")), Some(qemu("9.2.1")));
        assert_eq!(choose(all(), &wish("9.3")), Some(qemu("10.0.13")));
        assert_eq!(choose(all(), &wish("10.1")), None);
        assert!(!qemu("7.2.22").suits(&SAFER_THREADS));
        assert!(qemu("8.1.0").suits(&SAFER_THREADS));
    }

    #[test]
    fn only_finished_folders_count() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["10.0.13", "unpacking"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        File::create(dir.path().join("lock")).unwrap();
        let found = cached(dir.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].version, "10.0.13");
        assert!(cached(&dir.path().join("absent")).is_empty());
    }
}
