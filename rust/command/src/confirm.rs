// SPDX-License-Identifier: GPL-2.0

//! Changes that go back by themselves unless they are confirmed.
//!
//! Before anything is changed, a record of the old values is written, and something is started that sets them back after the time:
//! a timer of systemd where systemd runs, whatever becomes of the one who has typed the command; else a process of its own session.
//! A confirmation removes the record. Who sets back does so only if its record is still there, and if the module has not been loaded
//! again since.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};

use crate::change::{self, Step};
use crate::metrics::write_aside;
use crate::module::{self, knob_named, Setting, DEVICES};

/// The folder of the lock and of the record.
const FOLDER: &str = "run/mflow";
/// The time that another change may take.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The lock that one change at a time has, as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    folder: PathBuf,
}

impl Lock {
    /// Waits until no other change is under way.
    pub fn take(root: &Path) -> Result<Self> {
        let folder = root.join(FOLDER);
        let path = folder.join("lock");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let begin = Instant::now();
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            ensure!(
                begin.elapsed() < PATIENCE,
                "another mflow is changing knobs; try again"
            );
            thread::sleep(LOOK);
        }
        Ok(Self {
            _file: file,
            folder,
        })
    }

    fn record(&self) -> PathBuf {
        self.folder.join("unconfirmed.json")
    }

    /// Fails while a change waits for its confirmation: what is set back must be what was there.
    pub fn require_nothing_unconfirmed(&self, root: &Path) -> Result<()> {
        ensure!(
            self.pending(root)?.is_none(),
            "the last change waits for `mflow confirm`, or for its time to be over; nothing was changed"
        );
        Ok(())
    }

    /// Returns the change that waits, if there is one for the module that is loaded now.
    fn pending(&self, root: &Path) -> Result<Option<Record>> {
        let path = self.record();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("{} is no record of mflow; remove it", path.display()))?;
        Ok((Some(record.load) == module::load(root)).then_some(record))
    }

    /// Takes the record away: nothing is set back.
    fn forget(&self) -> Result<()> {
        let path = self.record();
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// The values that are to be set back.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The name of the change.
    name: String,
    /// The number of the module's folder in sysfs, which is another one each time that it is loaded.
    load: u64,
    /// Names and values, in the order in which they are written.
    old: Vec<(String, String)>,
}

/// Prepares that the steps are set back after some seconds. Call it before the first of them is taken.
pub fn arm(lock: &Lock, root: &Path, steps: &[Step], seconds: u64) -> Result<()> {
    let name = format!("{}-{:x}", std::process::id(), now_ns());
    let old = steps
        .iter()
        .rev()
        .map(|step| (step.old.name().to_owned(), step.old.value()));
    let record = Record {
        load: module::load(root).context("the module is not loaded")?,
        old: old.collect(),
        name,
    };
    write_aside(&lock.record(), &serde_json::to_string(&record)?)?;
    let started = if root.join("run/systemd/system").exists() {
        start_timer(&record.name, seconds)
    } else {
        start_process(&record.name, seconds)
    };
    if started.is_err() {
        lock.forget()?;
    }
    started.context("cannot prepare to set all back; nothing was changed")
}

/// Takes back that the steps are set back: they were not taken.
pub fn disarm(lock: &Lock) -> Result<()> {
    lock.forget()
}

fn now_ns() -> u128 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos())
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find my own program")
}

/// Asks systemd to do it, which does not depend on the session of the one who asks.
fn start_timer(name: &str, seconds: u64) -> Result<()> {
    let status = Command::new("systemd-run")
        .arg("--quiet")
        .arg("--collect")
        .arg(format!("--unit=mflow-go-back-{name}"))
        .arg(format!("--on-active={seconds}"))
        .arg("--timer-property=AccuracySec=100ms")
        .arg(own_program()?)
        .args(["go-back", name])
        .stdin(Stdio::null())
        .status()
        .context("cannot run systemd-run")?;
    ensure!(status.success(), "systemd-run has ended with {status}");
    Ok(())
}

/// Starts a process that waits, and waits until it has left this session.
fn start_process(name: &str, seconds: u64) -> Result<()> {
    let mut child = Command::new(own_program()?)
        .args(["go-back", name, "--after", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .context("cannot start a process")?;
    let mut ready = [0];
    let out = child.stdout.as_mut().context("it has no output")?;
    out.read_exact(&mut ready)
        .context("a process that is to set all back has ended")
}

/// Does what the timer or the process is for. `after` is the time to wait before.
pub fn go_back(root: &Path, name: &str, after: Option<Duration>) -> Result<()> {
    if let Some(time) = after {
        // Neither the end of a session nor that of a terminal ends it.
        rustix::process::setsid().context("cannot leave the session")?;
        crate::output::print("r")?;
        thread::sleep(time);
    }
    let lock = Lock::take(root)?;
    let pending = lock.pending(root)?;
    let Some(record) = pending.filter(|record| record.name == name) else {
        // It was confirmed, or there is another module now, or none.
        return Ok(());
    };
    let module = module::open(root)?;
    let mut left = Vec::new();
    for (name, value) in &record.old {
        if let Err(error) = module.set(&setting(name, value)?) {
            left.push(format!("{name} {value} ({error})"));
        }
    }
    lock.forget()?;
    let said = if left.is_empty() {
        "nobody has confirmed the last change of knobs, so they are as before".to_owned()
    } else {
        format!(
            "nobody has confirmed the last change of knobs, and these could not be set back: {}",
            left.join(", ")
        )
    };
    // Nobody looks at this process: the kernel's log is where the module speaks, too.
    let _nobody_reads = fs::write(root.join("dev/kmsg"), format!("mflow: {said}\n"));
    ensure!(left.is_empty(), "{said}");
    Ok(())
}

fn setting(name: &str, value: &str) -> Result<Setting> {
    if let Some(knob) = knob_named(name) {
        return Ok(Setting::Knob(knob, value.to_owned()));
    }
    match (name, value.split_at_checked(1)) {
        (DEVICES, Some(("+", device))) => Ok(Setting::AddDevice(device.to_owned())),
        (DEVICES, Some(("-", device))) => Ok(Setting::RemoveDevice(device.to_owned())),
        _ => bail!("the record has no setting {name} {value}"),
    }
}

/// Keeps the change that waits.
pub fn confirm(root: &Path) -> Result<()> {
    let lock = Lock::take(root)?;
    ensure!(
        lock.pending(root)?.is_some(),
        "no change waits for a confirmation"
    );
    lock.forget()
}

/// Applies steps, which are set back after some seconds if that is wished.
pub fn apply(
    root: &Path,
    module: &dyn module::Module,
    lock: &Lock,
    steps: &[Step],
    seconds: Option<u64>,
) -> Result<Vec<String>> {
    if let Some(seconds) = seconds {
        arm(lock, root, steps, seconds)?;
    }
    let applied = change::apply(module, steps);
    // What has been taken back already is not to be set back later. Where that has failed, another try is worth while.
    let is_half = matches!(&applied, Err(change::ChangeError::Half { .. }));
    if applied.is_err() && !is_half && seconds.is_some() {
        disarm(lock)?;
    }
    Ok(applied?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("mflow-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("sys/module/mflow")).expect("a folder");
        root
    }

    fn record(root: &Path, name: &str) -> Record {
        Record {
            name: name.to_owned(),
            load: module::load(root).expect("it is there"),
            old: vec![("batch_pkts".to_owned(), "256".to_owned())],
        }
    }

    #[test]
    fn a_confirmation_takes_the_record_away() {
        let root = root("confirm");
        confirm(&root).expect_err("nothing waits");
        let lock = Lock::take(&root).expect("free");
        let text = serde_json::to_string(&record(&root, "a")).expect("JSON");
        write_aside(&lock.record(), &text).expect("written");
        lock.require_nothing_unconfirmed(&root)
            .expect_err("one waits");
        drop(lock);
        // Another change's timer does nothing.
        go_back(&root, "b", None).expect("nothing to do");
        confirm(&root).expect("one waits");
        let lock = Lock::take(&root).expect("free");
        lock.require_nothing_unconfirmed(&root).expect("none waits");
        fs::remove_dir_all(&root).expect("there");
    }

    #[test]
    fn a_module_that_was_loaded_again_has_nothing_to_go_back_to() {
        let root = root("reload");
        let lock = Lock::take(&root).expect("free");
        let mut other = record(&root, "a");
        other.load += 1;
        let text = serde_json::to_string(&other).expect("JSON");
        write_aside(&lock.record(), &text).expect("written");
        assert_eq!(lock.pending(&root).expect("it can be read"), None);
        lock.require_nothing_unconfirmed(&root).expect("none waits");
        fs::remove_dir_all(&root).expect("there");
    }

    #[test]
    fn a_record_names_settings() {
        assert_eq!(
            setting("devices", "-eth0").expect("one"),
            Setting::RemoveDevice("eth0".to_owned())
        );
        assert_eq!(
            setting("devices", "+eth0").expect("one"),
            Setting::AddDevice("eth0".to_owned())
        );
        assert_eq!(setting("cpus", "").expect("one").value(), "");
        setting("devices", "eth0").expect_err("none");
        setting("other", "1").expect_err("none");
    }
}
