// SPDX-License-Identifier: GPL-2.0

//! An instance of tracefs that is this process's own, with a ring of bounded size: it disturbs nobody else who traces, and is removed
//! at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{statfs, OFlags};
use rustix::io::Errno;

use super::event::Kind;

/// The places where tracefs is mounted.
const MOUNTS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// `TRACEFS_MAGIC` of linux/magic.h.
const MAGIC: u64 = 0x7472_6163;
const LOCKDOWN: &str = "sys/kernel/security/lockdown";
/// The beginning of the names of our instances; the number of the process follows.
const PREFIX: &str = "mflow-";
/// The room for events of each CPU.
const RING_KB: u32 = 512;
/// The bytes that are read at once. The kernel gives a page or two, and whole lines.
const READ_BYTES: usize = 1 << 16;
/// The most reads in a row, before the caller looks at signals and at the time.
const MOST_READS: usize = 64;
/// The most tries to remove an instance that somebody else looks into, and the time between two.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why there are no events of batches.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// Kernel lockdown forbids to look at what the kernel does.
    #[error("tracefs is closed, as the kernel is locked down (confidentiality)")]
    LockedDown,
    /// The kernel has no tracefs.
    #[error("this kernel has no tracefs")]
    NoTracefs,
    /// Nothing is mounted where it is to be.
    #[error("tracefs is not mounted; mount it: mount -t tracefs none {0}")]
    NotMounted(String),
    /// Others than root have asked.
    #[error("only root can trace; run it as root of the host")]
    NotRoot,
    /// The module has no events.
    #[error("the loaded module has no events; is the command newer than the module?")]
    NoEvents,
    /// All else.
    #[error("cannot use {path}: {error}")]
    Other {
        /// The path of the file.
        path: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Closed {
    /// Returns whether nothing that an operator may do now opens it.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::LockedDown | Self::NoTracefs)
    }
}

/// The instance. It is removed when this is dropped.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    pipe: Option<File>,
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
}

impl Instance {
    /// Makes the instance, and has it take events of these kinds.
    pub fn begin(root: &Path, kinds: &[Kind]) -> Result<Self, Closed> {
        let mount = mount(root)?;
        let instances = mount.join("instances");
        match fs::metadata(&instances) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(Closed::NotRoot)
            }
            // A kernel that was started so makes no files there.
            Err(_) => return Err(closed(root)),
            Ok(_) => {}
        }
        remove_left(root, &instances);
        let folder = instances.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&folder).map_err(|error| match Errno::from_io_error(&error) {
            // What a kernel says that was locked down later (`tracefs_create_dir()` of fs/tracefs/inode.c).
            Some(Errno::INVAL) => Closed::LockedDown,
            _ => unusable(&folder, error),
        })?;
        // Dropped from here on.
        let mut instance = Self {
            folder,
            pipe: None,
            rest: Vec::new(),
        };
        instance.prepare(kinds)?;
        Ok(instance)
    }

    fn prepare(&mut self, kinds: &[Kind]) -> Result<(), Closed> {
        let events = self.folder.join("events/mflow");
        if !events.exists() {
            return Err(Closed::NoEvents);
        }
        // Clocks of CPUs differ by more than batches take.
        self.write("trace_clock", "mono")?;
        self.write("buffer_size_kb", &RING_KB.to_string())?;
        let pipe = self.folder.join("trace_pipe");
        let opened = OpenOptions::new()
            .read(true)
            // CAST: a flag.
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&pipe);
        self.pipe = Some(opened.map_err(|error| unusable(&pipe, error))?);
        for kind in kinds {
            self.write(&format!("events/mflow/{}/enable", kind.name()), "1")?;
        }
        Ok(())
    }

    fn write(&self, name: &str, value: &str) -> Result<(), Closed> {
        let path = self.folder.join(name);
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|error| unusable(&path, error))
    }

    /// Reads what is there, and returns its lines. There may be more at once.
    pub fn lines(&mut self) -> Result<Vec<String>, Closed> {
        let mut lines = Vec::new();
        let mut bytes = vec![0; READ_BYTES];
        for _ in 0..MOST_READS {
            let Some(pipe) = &mut self.pipe else {
                break;
            };
            match pipe.read(&mut bytes) {
                Ok(0) => break,
                Ok(number) => take_lines(&mut self.rest, &bytes[..number], &mut lines),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unusable(&self.folder.join("trace_pipe"), error)),
            }
        }
        Ok(lines)
    }

    /// Returns the number of events that were lost since the beginning: the ring was full of others.
    pub fn lost(&self) -> u64 {
        let cpus = fs::read_dir(self.folder.join("per_cpu"));
        let cpus = cpus.into_iter().flatten().flatten();
        let texts = cpus.filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok());
        texts.map(|text| lost_of(&text)).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An instance with an open file stays.
        self.pipe = None;
        for _ in 0..TRIES {
            match fs::remove_dir(&self.folder) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                    thread::sleep(PAUSE);
                }
                _ => return,
            }
        }
    }
}

/// Returns the folder of tracefs.
fn mount(root: &Path) -> Result<PathBuf, Closed> {
    // CAST: the kernel's numbers of file systems are positive.
    let is_it = |path: &PathBuf| statfs(path).is_ok_and(|found| found.f_type as u64 == MAGIC);
    let mut mounts = MOUNTS.iter().map(|mount| root.join(mount));
    if let Some(mount) = mounts.find(is_it) {
        return Ok(mount);
    }
    // The kernel makes the place if it has something to be mounted there.
    let usual = root.join(MOUNTS[0]);
    if usual.exists() {
        Err(Closed::NotMounted(usual.display().to_string()))
    } else {
        Err(Closed::NoTracefs)
    }
}

/// Returns why there is nothing in tracefs.
fn closed(root: &Path) -> Closed {
    let lockdown = fs::read_to_string(root.join(LOCKDOWN)).unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        Closed::LockedDown
    } else {
        Closed::NoTracefs
    }
}

fn unusable(path: &Path, error: io::Error) -> Closed {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM) => Closed::LockedDown,
        Some(Errno::ACCESS) => Closed::NotRoot,
        _ => Closed::Other {
            path: path.display().to_string(),
            error,
        },
    }
}

/// Removes the instances of processes that were killed: their events would be taken for ever.
fn remove_left(root: &Path, instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let process = process.and_then(|process| process.parse::<u32>().ok());
        if process.is_some_and(|process| {
            process == process::id() || !root.join(format!("proc/{process}")).exists()
        }) {
            let _in_use = fs::remove_dir(entry.path());
        }
    }
}

/// Takes whole lines out of bytes, and keeps the rest for the next ones.
fn take_lines(rest: &mut Vec<u8>, bytes: &[u8], lines: &mut Vec<String>) {
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        rest.extend_from_slice(part);
        // A line that has no end is none.
        if part.ends_with(b"\n") || rest.len() > READ_BYTES {
            let line = String::from_utf8_lossy(rest);
            lines.push(line.trim_end_matches('\n').to_owned());
            rest.clear();
        }
    }
}

/// Returns the events of a CPU that were lost.
fn lost_of(stats: &str) -> u64 {
    let counters = ["overrun", "commit overrun", "dropped events"];
    let values = stats.lines().filter_map(|line| line.split_once(": "));
    let values = values.filter(|(name, _)| counters.contains(name));
    values
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole() {
        let (mut rest, mut lines) = (Vec::new(), Vec::new());
        take_lines(&mut rest, b"one\ntw", &mut lines);
        take_lines(&mut rest, b"o\n\n", &mut lines);
        assert_eq!(lines, ["one", "two", ""]);
        assert!(rest.is_empty());
        take_lines(&mut rest, &vec![b'x'; 2 * READ_BYTES], &mut lines);
        assert!(rest.len() <= READ_BYTES, "memory is bounded");
    }

    #[test]
    fn lost_events_are_counted() {
        let stats = "entries: 129\noverrun: 3\ncommit overrun: 2\nbytes: 7000\noldest event ts:  5.000000\nnow ts:  6.000000\ndropped events: 1\nread events: 50\n";
        assert_eq!(lost_of(stats), 6);
        assert_eq!(lost_of("entries: 1\n"), 0);
    }

    #[test]
    fn a_host_without_tracefs_says_so() {
        let root = std::env::temp_dir().join(format!("mflow-trace-{}", process::id()));
        let closed = Instance::begin(&root, &[]).expect_err("there is none");
        assert!(closed.is_final(), "{closed}");
        let place = root.join(MOUNTS[0]);
        fs::create_dir_all(&place).expect("a folder");
        let closed = Instance::begin(&root, &[]).expect_err("nothing is mounted");
        fs::remove_dir_all(&root).expect("it is there");
        let expected = format!(
            "tracefs is not mounted; mount it: mount -t tracefs none {}",
            place.display()
        );
        assert_eq!(closed.to_string(), expected);
    }
}
