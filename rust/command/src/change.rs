// SPDX-License-Identifier: GPL-2.0

//! Changes of several settings at once: all of them are made, or none. Settings are put into an order in which the module takes them, as it
//! refuses knobs that do not go together even for a moment.

use std::collections::BTreeSet;

use mflow_algo::algo::knobs::{Knob, Knobs, KNOBS};

use crate::module::{knob_named, Module, Refused, Setting, Unreachable, DEVICES};

/// The failure of a change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The words of the command line are no settings. Nothing was changed.
    #[error("{0}")]
    Words(String),
    /// The module has refused a setting. What had been set before it was set back.
    #[error("{0}; nothing was changed")]
    Refused(String),
    /// The module has refused a setting, and then an old value of another one.
    #[error("{refused}; and these could not be set back: {left}")]
    Half {
        /// The first refusal.
        refused: String,
        /// The old values that should be there.
        left: String,
    },
    /// The module can't be reached.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// A wish of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A knob is to have this value.
    Knob(Knob, String),
    /// A device is to be opted in (true) or out.
    Device(String, bool),
    /// These devices are to be opted in, and no others.
    Devices(Vec<String>),
}

impl Wish {
    /// Reads pairs of a name and a value.
    pub fn of_words(words: &[String]) -> Result<Vec<Self>, ChangeError> {
        let bad = |text: String| Err(ChangeError::Words(text));
        let mut seen = BTreeSet::new();
        let mut wishes = Vec::new();
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                let name = pair.concat();
                return bad(format!(
                    "{name} needs a value: mflow set KNOB VALUE [KNOB VALUE...]"
                ));
            };
            if let Some(knob) = knob_named(name) {
                if !seen.insert(name) {
                    return bad(format!("{name} is given twice"));
                }
                wishes.push(Self::Knob(knob, value.clone()));
            } else if name == DEVICES {
                wishes.push(Self::of_devices(value));
            } else {
                return bad(format!("there is no knob {name}; there are {}", names()));
            }
        }
        Ok(wishes)
    }

    /// Reads `+NAME`, `-NAME`, or names with commas between them, the form of the module parameter.
    fn of_devices(value: &str) -> Self {
        if let Some(name) = value.strip_prefix('+') {
            Self::Device(name.to_owned(), true)
        } else if let Some(name) = value.strip_prefix('-') {
            Self::Device(name.to_owned(), false)
        } else {
            let names = value.split(',').filter(|name| !name.is_empty());
            Self::Devices(names.map(str::to_owned).collect())
        }
    }
}

/// Returns the names of all settings, for people.
pub fn names() -> String {
    let names = KNOBS.iter().map(|spec| spec.name()).chain([DEVICES]);
    names.collect::<Vec<_>>().join(", ")
}

/// A setting, and what sets it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The setting.
    pub new: Setting,
    /// The setting that was there before.
    pub old: Setting,
}

/// Returns the steps that fulfil the wishes, in an order that the module takes if it takes any. Splitting ends before all else, and
/// begins after it.
pub fn steps(module: &dyn Module, wishes: &[Wish]) -> Result<Vec<Step>, Unreachable> {
    let mut now = Vec::new();
    for spec in &KNOBS {
        now.push((spec.knob, module.knob(spec.knob)?));
    }
    let knobs = wishes.iter().filter_map(|wish| match wish {
        Wish::Knob(knob, value) => Some((*knob, value.as_str())),
        _ => None,
    });
    let ordered = in_order(&now, knobs.collect());
    let old_of = |knob: Knob| {
        let mut now = now.iter();
        let found = now.find(|(of, _)| *of == knob);
        found.map_or_else(String::new, |(_, value)| value.clone())
    };
    let mut steps: Vec<Step> = ordered
        .into_iter()
        .map(|(knob, value)| Step {
            new: Setting::Knob(knob, value.to_owned()),
            old: Setting::Knob(knob, old_of(knob)),
        })
        .collect();
    let devices = device_steps(&module.devices()?, wishes);
    let begins =
        |step: &Step| matches!(&step.new, Setting::Knob(Knob::Enabled, to) if to.trim() != "0");
    let place = steps.iter().position(begins).unwrap_or(steps.len());
    steps.splice(place..place, devices);
    Ok(steps)
}

/// Puts values of knobs into an order in which each of them goes with all others at its time. Where there is none, the module is
/// to say why.
fn in_order<'a>(now: &[(Knob, String)], mut wanted: Vec<(Knob, &'a str)>) -> Vec<(Knob, &'a str)> {
    let mut model = Knobs::DEFAULT;
    // Where one has to come before another one, it comes in the second round.
    for (knob, value) in now.iter().chain(now) {
        let _unknown = model.set(*knob, value.as_bytes());
    }
    let rank = |(knob, value): &(Knob, &str)| match (*knob, value.trim()) {
        (Knob::Enabled, "0") => 0,
        (Knob::Enabled, _) => 2,
        _ => 1,
    };
    wanted.sort_by_key(rank);
    let mut ordered = Vec::new();
    while !wanted.is_empty() {
        let next = wanted
            .iter()
            .position(|(knob, value)| model.set(*knob, value.as_bytes()).is_ok());
        ordered.push(wanted.remove(next.unwrap_or(0)));
    }
    ordered
}

fn device_steps(now: &[String], wishes: &[Wish]) -> Vec<Step> {
    let mut now: BTreeSet<&str> = now.iter().map(String::as_str).collect();
    let mut steps = Vec::new();
    for wish in wishes {
        let (removed, added): (Vec<&str>, Vec<&str>) = match wish {
            Wish::Knob(..) => continue,
            Wish::Device(name, true) => (vec![], vec![name]),
            Wish::Device(name, false) => (vec![name], vec![]),
            Wish::Devices(names) => {
                let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                let removed = now.difference(&wanted).copied().collect();
                (removed, wanted.difference(&now).copied().collect())
            }
        };
        for name in removed {
            now.remove(name);
            steps.push(Step {
                new: Setting::RemoveDevice(name.to_owned()),
                old: Setting::AddDevice(name.to_owned()),
            });
        }
        for name in added {
            // A device that is opted in already stays so when this is taken back.
            if now.insert(name) {
                steps.push(Step {
                    new: Setting::AddDevice(name.to_owned()),
                    old: Setting::RemoveDevice(name.to_owned()),
                });
            }
        }
    }
    steps
}

/// Takes all steps, or none. Returns what the module remarks.
pub fn apply(module: &dyn Module, steps: &[Step]) -> Result<Vec<String>, ChangeError> {
    let mut remarks = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        match module.set(&step.new) {
            Ok(said) => remarks.extend(said),
            Err(Refused::Unreachable(error)) if place == 0 => return Err(error.into()),
            Err(refused) => {
                let left = take_back(module, &steps[..place]);
                let refused = refused.to_string();
                return Err(if left.is_empty() {
                    ChangeError::Refused(refused)
                } else {
                    let left = left.join(", ");
                    ChangeError::Half { refused, left }
                });
            }
        }
    }
    Ok(remarks)
}

/// Takes steps back, the last one first. Returns the old values that the module does not take any more.
pub fn take_back(module: &dyn Module, steps: &[Step]) -> Vec<String> {
    let mut left = Vec::new();
    for Step { old, .. } in steps.iter().rev() {
        if let Err(error) = module.set(old) {
            left.push(format!("{} {} ({error})", old.name(), old.value()));
        }
    }
    left
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use mflow_algo::algo::knobs::combinations::COMBINATIONS;
    use mflow_algo::algo::knobs::{KnobError, Layout};

    use super::*;
    use crate::module::text::{Builder, FlowList, Stats, Version};

    /// A module of knobs and devices, which takes and refuses what the real one does.
    pub(crate) struct Model {
        pub(crate) knobs: RefCell<Knobs>,
        pub(crate) devices: RefCell<Vec<String>>,
        pub(crate) written: RefCell<Vec<String>>,
    }

    impl Model {
        pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
            let mut knobs = Knobs::DEFAULT;
            for (name, value) in settings {
                let knob = knob_named(name).expect(name);
                knobs.set(knob, value.as_bytes()).expect(name);
            }
            Self {
                knobs: RefCell::new(knobs),
                devices: RefCell::new(vec!["eth0".to_owned()]),
                written: RefCell::default(),
            }
        }

        fn change(&self, line: &str) -> Result<Vec<String>, ChangeError> {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let wishes = Wish::of_words(&words)?;
            apply(self, &steps(self, &wishes)?)
        }
    }

    impl Module for Model {
        fn version(&self) -> Result<Version, Unreachable> {
            Err(Unreachable::NotLoaded)
        }

        fn knob(&self, knob: Knob) -> Result<String, Unreachable> {
            Ok(self.knobs.borrow().get(knob).to_string())
        }

        fn devices(&self) -> Result<Vec<String>, Unreachable> {
            Ok(self.devices.borrow().clone())
        }

        fn lanes(&self) -> Result<String, Unreachable> {
            Err(Unreachable::NotLoaded)
        }

        fn builders(&self) -> Result<Vec<Builder>, Unreachable> {
            Err(Unreachable::NotLoaded)
        }

        fn flows(&self) -> Result<FlowList, Unreachable> {
            Err(Unreachable::NotLoaded)
        }

        fn stats(&self) -> Result<Stats, Unreachable> {
            Err(Unreachable::NotLoaded)
        }

        fn set(&self, setting: &Setting) -> Result<Vec<String>, Refused> {
            let line = format!("{} {}", setting.name(), setting.value());
            self.written.borrow_mut().push(line);
            let mut devices = self.devices.borrow_mut();
            match setting {
                Setting::Knob(knob, value) => {
                    let mut knobs = self.knobs.borrow_mut();
                    knobs.set(*knob, value.as_bytes()).map_err(|error| {
                        Refused::Value(match error {
                            KnobError::Combination(misfit) => misfit.to_string(),
                            _ => knob.spec().allowed().to_string(),
                        })
                    })?;
                }
                Setting::AddDevice(name) if name == "nosuch0" => {
                    return Err(Refused::Value("devices: there is no nosuch0".to_owned()));
                }
                Setting::AddDevice(name) => devices.push(name.clone()),
                Setting::RemoveDevice(name) => devices.retain(|one| one != name),
            }
            Ok(Vec::new())
        }
    }

    #[test]
    fn words_that_are_no_settings_are_refused_before_anything_is_set() {
        let model = Model::new(&[]);
        for (line, expected) in [
            ("batch_pkts", "batch_pkts needs a value"),
            ("batch_pkts 1 enabled", "enabled needs a value"),
            ("speed 1", "there is no knob speed; there are enabled, cpus"),
            ("batch_pkts 1 batch_pkts 2", "batch_pkts is given twice"),
        ] {
            let error = model.change(line).expect_err(line).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(model.written.borrow().is_empty());
    }

    #[test]
    fn splitting_begins_last_and_ends_first() {
        let model = Model::new(&[]);
        model
            .change("enabled 1 cpus 2-3 devices +eth1")
            .expect("it is taken");
        model
            .change("cpus 2 devices -eth1 enabled 0")
            .expect("it is taken");
        let written = model.written.borrow();
        let expected = [
            "cpus 2-3",
            "devices +eth1",
            "enabled 1",
            "enabled 0",
            "cpus 2",
            "devices -eth1",
        ];
        assert_eq!(written[..], expected);
    }

    #[test]
    fn all_is_as_before_if_one_is_refused() {
        let before = [("cpus", "auto"), ("batch_pkts", "32"), ("enabled", "1")];
        let model = Model::new(&before);
        let knobs = *model.knobs.borrow();
        for (line, expected) in [
            ("batch_pkts 64 merge_timeout_us 5", "merge_timeout_us: allowed 10 to 1000000 microseconds; nothing was changed"),
            ("enabled 0 cpus 2- batch_pkts 1", "cpus: allowed auto, or up to 16 CPUs below 1024, written like 2-5,8, or nothing for none; nothing was changed"),
            ("batch_pkts 64 devices eth1,nosuch0", "devices: there is no nosuch0; nothing was changed"),
            ("layout lane+stage", "layout lane+stage goes with load_threshold_pct 0 only; nothing was changed"),
        ] {
            let error = model.change(line).expect_err(line).to_string();
            assert_eq!(error, expected);
            assert_eq!(*model.knobs.borrow(), knobs, "{line}");
            assert_eq!(model.devices.borrow()[..], ["eth0"], "{line}");
        }
    }

    #[test]
    fn a_list_of_devices_replaces_those_that_there_are() {
        let model = Model::new(&[]);
        model.change("devices eth1,eth2").expect("it is taken");
        assert_eq!(model.devices.borrow()[..], ["eth1", "eth2"]);
        assert_eq!(model.written.borrow().len(), 3);
        // One that is there already is not to go if another one is refused.
        model
            .change("devices +eth1 devices +nosuch0")
            .expect_err("refused");
        assert_eq!(model.devices.borrow()[..], ["eth1", "eth2"]);
    }

    /// Returns settings of each kind that go together, with an even and an odd number of CPUs.
    fn states() -> Vec<Vec<(&'static str, String)>> {
        let mut states = Vec::new();
        for with in &COMBINATIONS {
            for scaling in with.scaling {
                for build in with.build {
                    for (cpus, threshold) in
                        [("2-5", "0"), ("2-4", "0"), ("2-5", "85"), ("2-4", "85")]
                    {
                        let pairs = with.layout == Layout::LaneStage;
                        if pairs && (cpus, threshold) != ("2-5", "0") {
                            continue;
                        }
                        states.push(vec![
                            ("cpus", cpus.to_owned()),
                            ("load_threshold_pct", threshold.to_owned()),
                            ("mode", with.mode.name().to_owned()),
                            ("scaling", scaling.name().to_owned()),
                            ("build", build.name().to_owned()),
                            ("layout", with.layout.name().to_owned()),
                        ]);
                    }
                }
            }
        }
        states
    }

    #[test]
    fn every_state_is_reached_from_every_other_in_one_change() {
        let states = states();
        assert!(states.len() > 40);
        let line = |state: &[(&str, String)], reversed: bool| {
            let mut words: Vec<String> = state
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            if reversed {
                words.reverse();
            }
            words.join(" ")
        };
        for from in &states {
            for to in &states {
                let model = Model::new(&[]);
                model.change(&line(from, false)).expect("a state");
                for reversed in [false, true] {
                    let line = line(to, reversed);
                    let changed = model.change(&line);
                    assert!(changed.is_ok(), "from {from:?}: {line}: {changed:?}");
                }
            }
        }
    }
}
