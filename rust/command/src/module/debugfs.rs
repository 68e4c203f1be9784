// SPDX-License-Identifier: GPL-2.0

//! The way to the module by its files in debugfs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::knobs::device_command::DEVICES_ALLOWED;
use mflow_algo::algo::knobs::{Knob, KnobError, Knobs, KNOBS};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::system::uname;

use super::kernel_log::KernelLog;
use super::{Files, Module as _, Refused, Setting, Unreachable};

const MOUNT: &str = "sys/kernel/debug";
/// The folder that a loaded module has in sysfs.
pub(super) const LOADED: &str = "sys/module/mflow";
/// `DEBUGFS_MAGIC` of linux/magic.h.
const MAGIC: u64 = 0x6462_6720;

/// The folder with the files of the loaded module.
#[derive(Debug)]
pub struct Debugfs {
    root: PathBuf,
    folder: PathBuf,
}

impl Debugfs {
    /// Finds the folder, or the reason why there is none.
    pub fn open(root: &Path) -> Result<Self, Unreachable> {
        if !root.join(LOADED).exists() {
            return Err(not_loaded(root));
        }
        let mount = root.join(MOUNT);
        let folder = mount.join("mflow");
        match fs::metadata(&folder) {
            Ok(_) => {
                return Ok(Self {
                    root: root.to_owned(),
                    folder,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Unreachable::NotRoot)
            }
            Err(_) => {}
        }
        let Ok(mounted) = statfs(&mount) else {
            return Err(Unreachable::NoDebugfs);
        };
        // CAST: the kernel's numbers of file systems are positive.
        if mounted.f_type as u64 != MAGIC {
            return Err(Unreachable::NotMounted(mount.display().to_string()));
        }
        // It was unloaded just now.
        Err(not_loaded(root))
    }

    /// Returns whether knobs can be read, and so be written: in a kernel that is locked down they can't.
    pub fn has_knobs(&self) -> bool {
        self.knob(Knob::Enabled).is_ok()
    }

    /// Returns the reason for an error of the kernel at a file.
    fn unreachable(&self, file: &'static str, error: io::Error) -> Unreachable {
        match error.kind() {
            io::ErrorKind::NotFound => not_loaded(&self.root),
            io::ErrorKind::PermissionDenied
                if Errno::from_io_error(&error) == Some(Errno::PERM) =>
            {
                Unreachable::LockedDown(file)
            }
            io::ErrorKind::PermissionDenied => Unreachable::NotRoot,
            _ => Unreachable::Other {
                path: self.folder.join(file).display().to_string(),
                error,
            },
        }
    }

    /// Returns all knobs as they are, as far as this command knows their values.
    fn knobs(&self) -> Knobs {
        let mut knobs = Knobs::DEFAULT;
        // Where one has to come before another one, it comes in the second round.
        for spec in KNOBS.iter().chain(&KNOBS) {
            if let Ok(value) = self.knob(spec.knob) {
                let _unknown = knobs.set(spec.knob, value.as_bytes());
            }
        }
        knobs
    }

    /// Returns the sentence for a refusal that the module has not put into words, or not where they can be read.
    fn explain(&self, setting: &Setting, error: &io::Error) -> String {
        let value = setting.value();
        let knob = match setting {
            Setting::Knob(knob, _) => *knob,
            Setting::AddDevice(name) | Setting::RemoveDevice(name) => {
                return match Errno::from_io_error(error) {
                    Some(Errno::NODEV) => {
                        format!("devices: there is no {name} here to add or remove")
                    }
                    Some(Errno::INVAL) => DEVICES_ALLOWED.to_owned(),
                    _ => format!("devices: the module refuses {value}: {error}"),
                };
            }
        };
        match self.knobs().set(knob, value.as_bytes()) {
            Err(KnobError::Combination(misfit)) => misfit.to_string(),
            Err(KnobError::Syntax | KnobError::Range) => knob.spec().allowed().to_string(),
            Ok(()) => {
                match (knob, Errno::from_io_error(error)) {
                    (Knob::Cpus, Some(Errno::RANGE)) => {
                        let online = self.online();
                        format!("cpus: not all of {value} are online; allowed are online CPUs ({online})")
                    }
                    (Knob::Mode, Some(Errno::INVAL)) => {
                        "mode: allowed mflow, as this kernel is without the hooks that stages need"
                            .to_owned()
                    }
                    (_, _) => format!("{}: the module refuses {value}: {error}", setting.name()),
                }
            }
        }
    }

    fn online(&self) -> String {
        let text = fs::read(self.root.join("sys/devices/system/cpu/online"));
        let cpus = text.ok().and_then(|text| CpuSet::parse(&text).ok());
        cpus.map_or_else(|| "unknown".to_owned(), |cpus| cpus.to_string())
    }
}

impl Files for Debugfs {
    fn read(&self, file: &'static str) -> Result<String, Unreachable> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|error| self.unreachable(file, error))
    }

    fn write(&self, setting: &Setting) -> Result<Vec<String>, Refused> {
        let file = setting.name();
        let path = self.folder.join(file);
        let opened = OpenOptions::new().write(true).open(path);
        let mut opened = opened.map_err(|error| self.unreachable(file, error))?;
        let mut log = KernelLog::from_now(&self.root);
        // One write is one value; a value that is empty is a line that is.
        match opened.write_all(format!("{}\n", setting.value()).as_bytes()) {
            Ok(()) => Ok(log.sentences()),
            Err(error) => {
                let said = log.sentences().pop();
                let said = said.unwrap_or_else(|| self.explain(setting, &error));
                Err(Refused::Value(said))
            }
        }
    }
}

/// Returns that it is not loaded, and whether there is one to load.
pub(crate) fn not_loaded(root: &Path) -> Unreachable {
    let kernel = uname().release().to_string_lossy().into_owned();
    let list = root.join("lib/modules").join(&kernel).join("modules.dep");
    let list = fs::read_to_string(list).unwrap_or_default();
    if list.lines().any(is_ours) {
        Unreachable::NotLoaded
    } else {
        Unreachable::NotInstalled(kernel)
    }
}

/// Returns whether a line of `modules.dep` is about the module: `updates/dkms/mflow.ko.xz: ...`.
fn is_ours(line: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "mflow.ko" || name.starts_with("mflow.ko.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_in_the_list_of_modules() {
        for line in ["updates/dkms/mflow.ko.xz: a.ko", "extra/mflow.ko:"] {
            assert!(is_ours(line), "{line}");
        }
        for line in ["extra/xmflow.ko:", "extra/other.ko: extra/mflow.ko", ""] {
            assert!(!is_ours(line), "{line}");
        }
    }

    #[test]
    fn a_host_without_the_module_says_what_to_install() {
        let error = Debugfs::open(Path::new("/nonexistent")).expect_err("there is none");
        assert!(error.is_not_loaded());
        assert!(error.to_string().contains("mflow-dkms"), "{error}");
    }
}
