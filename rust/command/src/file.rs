// SPDX-License-Identifier: GPL-2.0

//! A file of settings, such as `/etc/mflow.conf`: a line has the name of a knob or `devices`, then white space or `=`, and the value.
//! Comments begin with `#`, at the beginning of a line or behind white space.
//!
//! Devices of the file that are not here are expected: the name of each device of the file is that of an empty file in [`EXPECTED`].
//! A rule of udev looks there when a device comes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use mflow_algo::algo::knobs::device_command::DeviceName;
use mflow_algo::algo::knobs::{Knob, KnobError, Knobs};

use crate::change::{self, names, steps, ChangeError, Step, Wish};
use crate::confirm::Lock;
use crate::module::{knob_named, Module, DEVICES};

/// The file that is read unless another one is named.
pub const USUAL: &str = "/etc/mflow.conf";
/// The folder that has a file for each expected device.
const EXPECTED: &str = "run/mflow/devices";
/// The folder with the network devices that are here.
const HERE: &str = "sys/class/net";
/// The number of times that settings are tried while devices come and go.
const ATTEMPTS: usize = 3;
const NO_SIGNS: &str = "devices have neither + nor - in a file: devices eth0,eth1";

/// The settings of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The knobs, each with its value, in the order of the file.
    knobs: Vec<(Knob, String)>,
    /// The devices of all lines; nothing if no line is about them, and then those that are opted in stay.
    devices: Option<BTreeSet<String>>,
}

/// The result of settings that were applied.
#[derive(Debug, Default)]
pub struct Applied {
    /// The steps that were taken: settings that are already as the file has them need none.
    pub steps: Vec<Step>,
    /// The module's remarks.
    pub remarks: Vec<String>,
    /// The devices of the file that are not here.
    pub expected: Vec<String>,
}

impl Settings {
    /// Reads a file. An error names the file and the line.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    /// Reads the text of such a file. Values are checked as far as that can be done one by one.
    pub fn parse(text: &str) -> Result<Self> {
        let mut settings = Self::default();
        for (place, line) in text.lines().enumerate() {
            let added = settings.add(without_comment(line));
            added.map_err(|why| ChangeError::Words(format!("line {}: {why}", place + 1)))?;
        }
        Ok(settings)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let is_between = |c: char| c == '=' || c.is_whitespace();
        let (name, rest) = line.split_at(line.find(is_between).unwrap_or(line.len()));
        let rest = rest.trim();
        let value = rest.strip_prefix('=').unwrap_or(rest).trim();
        let knob = knob_named(name);
        if knob.is_none() && name != DEVICES {
            return Err(format!("there is no knob {name}; there are {}", names()));
        }
        if rest.is_empty() {
            return Err(format!("{name} needs a value; an empty one is `{name} =`"));
        }
        let Some(knob) = knob else {
            return self.add_devices(value);
        };
        if self.knobs.iter().any(|(other, _)| *other == knob) {
            return Err(format!("{name} is given twice"));
        }
        // Whether values go together depends on those of the module.
        let mut others = Knobs::DEFAULT;
        match others.set(knob, value.as_bytes()) {
            Err(KnobError::Syntax | KnobError::Range) => {
                return Err(knob.spec().allowed().to_string())
            }
            Ok(()) | Err(KnobError::Combination(_)) => {}
        }
        self.knobs.push((knob, value.to_owned()));
        Ok(())
    }

    fn add_devices(&mut self, value: &str) -> Result<(), String> {
        let devices = self.devices.get_or_insert_default();
        let words = value.split(|c: char| c == ',' || c.is_whitespace());
        for name in words.filter(|word| !word.is_empty()) {
            if name.starts_with(['+', '-']) {
                return Err(NO_SIGNS.to_owned());
            }
            if DeviceName::new(name.as_bytes()).is_err() {
                return Err(format!(
                    "{name} is no name of a device, which has 1 to 15 bytes"
                ));
            }
            devices.insert(name.to_owned());
        }
        Ok(())
    }

    /// Returns whether the file names a device.
    pub fn names_devices(&self) -> bool {
        let devices = self.devices.as_ref();
        devices.is_some_and(|names| !names.is_empty())
    }

    /// Returns the wishes, with those devices alone that are here.
    fn wishes(&self, here: &BTreeSet<String>) -> Vec<Wish> {
        let knobs = self.knobs.iter().cloned();
        let knobs = knobs.map(|(knob, value)| Wish::Knob(knob, value));
        let devices = self.devices.as_ref();
        let devices = devices.map(|_| Wish::Devices(here.iter().cloned().collect()));
        knobs.chain(devices).collect()
    }

    /// Applies all settings, or none. Devices that are not here are expected from then on, and those of an earlier file are not.
    pub fn apply(&self, root: &Path, module: &dyn Module, lock: &Lock) -> Result<Applied> {
        lock.require_nothing_unconfirmed(root)?;
        let before = expected(root)?;
        // A device that comes from here on is noticed.
        expect(root, self.devices.as_ref().unwrap_or(&before))?;
        let applied = self.try_to_apply(root, module);
        if applied.is_err() {
            expect(root, &before)?;
        }
        Ok(applied?)
    }

    /// Tries again if a device has come or gone meanwhile.
    fn try_to_apply(&self, root: &Path, module: &dyn Module) -> Result<Applied, ChangeError> {
        let mut here = self.here(root);
        let mut applied = self.attempt(module, &here);
        for _ in 1..ATTEMPTS {
            let is_refused = matches!(applied, Err(ChangeError::Refused(_)));
            let now = self.here(root);
            if !is_refused || now == here {
                break;
            }
            here = now;
            applied = self.attempt(module, &here);
        }
        applied
    }

    fn attempt(
        &self,
        module: &dyn Module,
        here: &BTreeSet<String>,
    ) -> Result<Applied, ChangeError> {
        let mut steps = steps(module, &self.wishes(here))?;
        steps.retain(|step| step.new != step.old);
        let remarks = change::apply(module, &steps)?;
        let names = self.devices.iter().flatten();
        let expected = names.filter(|name| !here.contains(*name));
        Ok(Applied {
            steps,
            remarks,
            expected: expected.cloned().collect(),
        })
    }

    /// Returns those devices of the file that are here.
    fn here(&self, root: &Path) -> BTreeSet<String> {
        let folder = root.join(HERE);
        let names = self.devices.iter().flatten();
        let here = names.filter(|name| folder.join(name).exists());
        here.cloned().collect()
    }
}

/// Returns the line without its comment, and without the white space around it.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    let begin = line.char_indices().find(|(_, c)| {
        let begins = *c == '#' && before.is_whitespace();
        before = *c;
        begins
    });
    let end = begin.map_or(line.len(), |(place, _)| place);
    line[..end].trim()
}

/// Returns the devices that are expected.
fn expected(root: &Path) -> Result<BTreeSet<String>> {
    let folder = root.join(EXPECTED);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.with_context(|| format!("cannot list {}", folder.display()))?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Makes these devices the expected ones.
fn expect(root: &Path, names: &BTreeSet<String>) -> Result<()> {
    let folder = root.join(EXPECTED);
    let before = expected(root)?;
    let changed = fs::create_dir_all(&folder).and_then(|()| {
        for name in names.difference(&before) {
            File::create(folder.join(name))?;
        }
        let mut others = before.difference(names);
        others.try_for_each(|name| fs::remove_file(folder.join(name)))
    });
    changed.with_context(|| format!("cannot write to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::change::tests::Model;

    fn settings(text: &str) -> Settings {
        Settings::parse(text).expect(text)
    }

    fn names(words: &[&str]) -> BTreeSet<String> {
        words.iter().copied().map(str::to_owned).collect()
    }

    /// Returns a folder with these devices, and none that is expected.
    fn root(name: &str, here: &[&str]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("mflow-file-{name}-{}", std::process::id()));
        for device in here {
            fs::create_dir_all(root.join(HERE).join(device)).expect("a folder");
        }
        root
    }

    fn apply(text: &str, root: &Path, model: &Model) -> Result<Applied> {
        let lock = Lock::take(root).expect("free");
        settings(text).apply(root, model, &lock)
    }

    fn expected_below(root: &Path) -> BTreeSet<String> {
        expected(root).expect("a list")
    }

    #[test]
    fn lines_have_two_forms_and_comments() {
        let text = "# all\n\n  cpus 2-5  # two\n\tbatch_pkts=64\nmin_flow_pps = 500\n\
                    devices eth0, eth#1\ndevices=eth0,eth2 # more\nenabled\t1\n";
        let found = settings(text);
        let knobs: Vec<_> = found.knobs.iter().map(|(_, value)| &**value).collect();
        assert_eq!(knobs, ["2-5", "64", "500", "1"]);
        assert_eq!(found.devices, Some(names(&["eth0", "eth#1", "eth2"])));
        assert_eq!(settings("# nothing").devices, None);
        let none = settings("devices =\ncpus =");
        assert_eq!(none.devices, Some(BTreeSet::new()));
        assert_eq!(none.knobs, [(Knob::Cpus, String::new())]);
    }

    #[test]
    fn the_file_of_the_package_splits_nothing_until_it_names_a_device() {
        let text = include_str!("../../../xtask/src/debian/tools/mflow.conf");
        assert!(!settings(text).names_devices());
        let model = Model::new(&[]);
        let root = root("usual", &["eth0"]);
        apply(&text.replace("#devices", "devices"), &root, &model).expect("it is taken");
        assert_eq!(model.written.take(), ["cpus auto", "enabled 1"]);
        assert_eq!(expected_below(&root), names(&["eth0"]));
        fs::remove_dir_all(&root).expect("there");
    }

    #[test]
    fn a_line_that_is_refused_is_named() {
        for (text, expected) in [
            (
                "enabled 1\nspeed 1",
                "line 2: there is no knob speed; there are enabled, cpus",
            ),
            (
                "cpus",
                "line 1: cpus needs a value; an empty one is `cpus =`",
            ),
            ("join 1\n#\njoin=0", "line 3: join is given twice"),
            (
                "merge_timeout_us 5",
                "line 1: merge_timeout_us: allowed 10 to 1000000 microseconds",
            ),
            (
                "enabled 1 cpus 2",
                "line 1: enabled: allowed 0 (off) or 1 (on)",
            ),
            ("devices +eth0", "line 1: devices have neither + nor -"),
            (
                "devices a-name-that-is-too-long",
                "line 1: a-name-that-is-too-long is no name of a device",
            ),
        ] {
            let error = Settings::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn knobs_are_ordered_and_what_is_so_already_is_not_written() {
        let root = root("order", &["eth0", "eth1"]);
        let model = Model::new(&[("load_threshold_pct", "85"), ("batch_pkts", "64")]);
        let text = "enabled 1\nbatch_pkts 64\nlayout lane+stage\nload_threshold_pct 0\n\
                    cpus 2-5\ndevices eth1,eth9";
        let applied = apply(text, &root, &model).expect("it is taken");
        let written = model.written.take();
        let expected = [
            "load_threshold_pct 0",
            "layout lane+stage",
            "cpus 2-5",
            "devices -eth0",
            "devices +eth1",
            "enabled 1",
        ];
        assert_eq!(written, expected);
        assert_eq!(applied.expected, ["eth9"]);
        assert_eq!(expected_below(&root), names(&["eth1", "eth9"]));
        apply(text, &root, &model).expect("it is taken");
        assert!(model.written.borrow().is_empty());
        fs::remove_dir_all(&root).expect("there");
    }

    #[test]
    fn all_is_as_before_if_one_is_refused() {
        let root = root("refused", &["eth0", "eth1", "nosuch0"]);
        let model = Model::new(&[("cpus", "2-3")]);
        apply("devices eth0,eth9", &root, &model).expect("it is taken");
        let knobs = *model.knobs.borrow();
        for (text, expected) in [
            (
                "cpus auto\ndevices eth1,nosuch0",
                "devices: there is no nosuch0",
            ),
            (
                "devices eth1\nlayout lane+stage",
                "layout lane+stage goes with",
            ),
        ] {
            let error = apply(text, &root, &model).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(error.ends_with("; nothing was changed"), "{error}");
            assert_eq!(*model.knobs.borrow(), knobs, "{text}");
            assert_eq!(model.devices.borrow()[..], ["eth0"], "{text}");
            assert_eq!(expected_below(&root), names(&["eth0", "eth9"]), "{text}");
        }
        fs::remove_dir_all(&root).expect("there");
    }

    #[test]
    fn a_file_without_devices_leaves_them() {
        let root = root("left", &["eth0"]);
        let model = Model::new(&[]);
        apply("devices eth0,eth9", &root, &model).expect("it is taken");
        apply("cpus 2", &root, &model).expect("it is taken");
        assert_eq!(model.devices.borrow()[..], ["eth0"]);
        assert_eq!(expected_below(&root), names(&["eth0", "eth9"]));
        apply("devices =", &root, &model).expect("it is taken");
        assert!(model.devices.borrow().is_empty() && expected_below(&root).is_empty());
        fs::remove_dir_all(&root).expect("there");
    }
}
