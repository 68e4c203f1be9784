// SPDX-License-Identifier: GPL-2.0

//! The module as the command sees it, whatever the way to it is: what it tells ([`Module`]), what can be asked of it ([`Setting`]),
//! and why it can't be reached ([`Unreachable`]). There are two ways, which have the same texts ([`Files`]): [`debugfs`], and [`netlink`]
//! where debugfs can't be read.

pub mod changes;
pub mod debugfs;
pub mod flow_name;
pub mod kernel_log;
pub mod netlink;
pub mod text;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mflow_algo::algo::knobs::{Knob, KNOBS};

use self::text::{Builder, FlowList, Stats, Version};

/// The name of the file, and of the setting, that says which devices are opted in.
pub const DEVICES: &str = "devices";

/// A loaded module.
pub trait Module {
    /// Returns its version, and its way into the kernel's stack.
    fn version(&self) -> Result<Version, Unreachable>;
    /// Returns the value of a knob as it is written.
    fn knob(&self, knob: Knob) -> Result<String, Unreachable>;
    /// Returns the opted-in devices.
    fn devices(&self) -> Result<Vec<String>, Unreachable>;
    /// Returns the CPUs that are lanes now, as a list such as `2-5`.
    fn lanes(&self) -> Result<String, Unreachable>;
    /// Returns which core may build the packets of how many queues of each device.
    fn builders(&self) -> Result<Vec<Builder>, Unreachable>;
    /// Returns the fast flows.
    fn flows(&self) -> Result<FlowList, Unreachable>;
    /// Returns the counters and gauges.
    fn stats(&self) -> Result<Stats, Unreachable>;
    /// Sets something. Returns what the module remarks on it. If it is refused, the old state stays.
    fn set(&self, setting: &Setting) -> Result<Vec<String>, Refused>;
}

/// A way to the module: its texts by the names of its files.
pub trait Files {
    /// Returns the text of a file.
    fn read(&self, file: &'static str) -> Result<String, Unreachable>;
    /// Writes a setting. Returns what the module remarks on it. If it is refused, the old state stays.
    fn write(&self, setting: &Setting) -> Result<Vec<String>, Refused>;
}

impl<F: Files> Module for F {
    fn version(&self) -> Result<Version, Unreachable> {
        Version::parse(&self.read("version")?)
    }

    fn knob(&self, knob: Knob) -> Result<String, Unreachable> {
        Ok(self.read(knob.spec().name())?.trim().to_owned())
    }

    fn devices(&self) -> Result<Vec<String>, Unreachable> {
        Ok(self.read(DEVICES)?.lines().map(str::to_owned).collect())
    }

    fn lanes(&self) -> Result<String, Unreachable> {
        Ok(self.read("lanes")?.trim().to_owned())
    }

    fn builders(&self) -> Result<Vec<Builder>, Unreachable> {
        Builder::parse_all(&self.read("builders")?)
    }

    fn flows(&self) -> Result<FlowList, Unreachable> {
        FlowList::parse(&self.read("flows")?)
    }

    fn stats(&self) -> Result<Stats, Unreachable> {
        Stats::parse(&self.read("stats")?)
    }

    fn set(&self, setting: &Setting) -> Result<Vec<String>, Refused> {
        self.write(setting)
    }
}

/// Something to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A knob to this value.
    Knob(Knob, String),
    /// A device to be opted in.
    AddDevice(String),
    /// A device to be opted out.
    RemoveDevice(String),
}

impl Setting {
    /// Returns the name that operators give to what is set.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Knob(knob, _) => knob.spec().name(),
            Self::AddDevice(_) | Self::RemoveDevice(_) => DEVICES,
        }
    }

    /// Returns the value as it is written.
    pub fn value(&self) -> String {
        match self {
            Self::Knob(_, value) => value.clone(),
            Self::AddDevice(name) => format!("+{name}"),
            Self::RemoveDevice(name) => format!("-{name}"),
        }
    }
}

/// Returns the knob of this name.
pub fn knob_named(name: &str) -> Option<Knob> {
    let mut all = KNOBS.iter();
    all.find(|spec| spec.name() == name).map(|spec| spec.knob)
}

/// The refusal of a setting.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The module refuses the value, and says what is allowed.
    #[error("{0}")]
    Value(String),
    /// The module can't be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// The reason why the module can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// It is not loaded; an installed one could be.
    #[error("the module mflow is not loaded; load it: modprobe mflow cpus=auto devices=NIC (NIC: the device on which the overlay's packets arrive)")]
    NotLoaded,
    /// It is not loaded, and this kernel has none.
    #[error("the module mflow is not loaded, and kernel {0} has none; install the package mflow-dkms, and then: modprobe mflow cpus=auto devices=NIC")]
    NotInstalled(String),
    /// Others than root have asked.
    #[error("only root can ask the module (CAP_NET_ADMIN in the first user namespace); run it as root of the host")]
    NotRoot,
    /// Nothing is mounted where debugfs is to be.
    #[error("debugfs is not mounted; mount it: mount -t debugfs none {0}")]
    NotMounted(String),
    /// The kernel has no debugfs.
    #[error("the kernel was started without debugfs (debugfs=off or no-mount on its command line), so the module has no files, and netlink can't be asked from here: run it in the host's network namespace")]
    NoDebugfs,
    /// Kernel lockdown, which secure boot brings, forbids it.
    #[error("{0} can be neither read nor written, as the kernel is locked down (secure boot), and netlink can't be asked from here: run it in the host's network namespace")]
    LockedDown(&'static str),
    /// A text is not as the module prints it.
    #[error(
        "{file} of the module can't be understood: {line:?}; is the command older than the module?"
    )]
    Text {
        /// The name of the file.
        file: &'static str,
        /// The line.
        line: String,
    },
    /// All else.
    #[error("cannot use {path}: {error}")]
    Other {
        /// The path of the file.
        path: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Unreachable {
    /// Returns whether the module is not loaded.
    pub fn is_not_loaded(&self) -> bool {
        matches!(self, Self::NotLoaded | Self::NotInstalled(_))
    }
}

/// Opens a way to the loaded module: its files, or netlink if these can't be read. `root` is the folder that has `sys` and `lib`: `/` but
/// in tests.
pub fn open(root: &Path) -> Result<Box<dyn Module>, Unreachable> {
    let files = debugfs::Debugfs::open(root);
    let is_enough = match &files {
        Ok(files) => files.has_knobs(),
        Err(error) => error.is_not_loaded(),
    };
    // Netlink knows this kernel's module alone.
    if !is_enough && root == Path::new("/") {
        if let Some(family) = netlink::Netlink::open() {
            return Ok(Box::new(family));
        }
    }
    // A module without netlink shows what its files show.
    Ok(Box::new(files?))
}

/// Returns the number by which the loaded module is told from one that is loaded later; nothing if none is.
pub fn load(root: &Path) -> Option<u64> {
    let folder = fs::metadata(root.join(debugfs::LOADED));
    folder.ok().map(|folder| folder.ino())
}
