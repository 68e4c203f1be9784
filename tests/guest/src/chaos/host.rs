// SPDX-License-Identifier: GPL-2.0

//! The host that a sequence happens to: the loads that flow through it, and what was switched on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use super::load::{Allowed, Loads};
use super::sequence::Setting;
use super::step::{Device, Effect, Step};
use super::switch::Switch;
use crate::drops::Drops;
use crate::machine::{command, cpu};
use crate::mflow::{self, Knobs, Stats};
use crate::network::bpf::Xdp;
use crate::network::netns;
use crate::network::nfqueue::SlowJudge;
use crate::network::topology::{self, Family, CONTAINER};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

/// The namespace that devices are moved to.
pub(super) const ELSEWHERE: &str = "elsewhere";

pub(super) struct Host<'a> {
    pub(super) rig: &'a Rig,
    pub(super) setting: &'a Setting,
    loads: Option<Loads>,
    pub(super) switched: BTreeSet<Switch>,
    pub(super) xdp: BTreeMap<Device, Xdp>,
    /// The program that is asked about packets; its socket keeps the container's namespace.
    pub(super) judge: Option<SlowJudge>,
    allowed: Allowed,
    /// The number of packets that the module had counted as late each time before its counters began again, in total.
    late_before: u64,
    /// The counters of packets that the kernel had dropped before the sequence began.
    drops_before: Drops,
}

impl<'a> Host<'a> {
    /// Begins on a network and with a module that are new, and returns once a flow is split. `new` is the outer family of
    /// the network that is there, if no step has been taken on it.
    pub(super) fn begin(rig: &'a Rig, setting: &'a Setting, new: Option<Family>) -> Result<Self> {
        let mut host = Self {
            rig,
            setting,
            loads: None,
            switched: BTreeSet::new(),
            xdp: BTreeMap::new(),
            judge: None,
            allowed: Allowed::default(),
            late_before: 0,
            drops_before: Drops::read(),
        };
        mflow::unload()?;
        if new.is_none() {
            // Whatever the sequence before has left, if it failed.
            take_down()?;
            topology::server_nic_again()?;
        }
        if new != Some(setting.outer) {
            topology::up(setting.outer)?;
        }
        mflow::load(&setting.knobs())?;
        host.start_loads()?;
        mflow::wait_split_since(0, 1)?;
        Ok(host)
    }

    fn start_loads(&mut self) -> Result<()> {
        if self.setting.one_outer {
            topology::one_outer_flow(self.setting.outer)?;
        }
        self.loads = Some(Loads::start(self.rig, self.setting)?);
        self.loads()?.require_arrivals()
    }

    pub(super) fn loads(&mut self) -> Result<&mut Loads> {
        self.loads.as_mut().context("nothing flows")
    }

    /// Takes a step under load; what arrives after it arrives in time.
    pub(super) fn take(&mut self, step: Step) -> Result<()> {
        let effect = step.effect();
        self.allowed.effect = self.allowed.effect.and(effect);
        if effect.resets_counters {
            self.end_counting()?;
            if self.allowed.effect.gives_up {
                // A batch can be given up between the look at the counters and their reset.
                self.late_before += u64::from(self.setting.batch_pkts);
            }
        }
        self.apply(step)?;
        self.loads()?.flow()?;
        if effect.rebuilds {
            self.rebuild()?;
        }
        self.loads()?.require_arrivals()
    }

    /// Closes the datagrams' socket and opens it again, after packets have found none.
    pub(super) fn close_socket(&mut self) -> Result<()> {
        let loads = self.loads.as_mut().context("nothing flows")?;
        let received = loads.close_socket()?;
        self.judge(&received, true)?;
        let loads = self.loads.as_mut().context("nothing flows")?;
        loads.flow()?;
        loads.open_socket()
    }

    /// Ends the loads, and begins others.
    pub(super) fn other_flows(&mut self) -> Result<()> {
        let loads = self.loads.take().context("nothing flows")?;
        let loses = self.allowed.effect.loses;
        let outcome = loads.end(loses)?;
        self.judge(&outcome, loses)?;
        self.loads = Some(Loads::start(self.rig, self.setting)?);
        self.loads()?.require_arrivals()
    }

    /// Removes the module, and loads it again after some traffic.
    pub(super) fn reload_module(&mut self) -> Result<()> {
        if self.allowed.effect.gives_up {
            // Packets may be late until the last flow has stopped, and the module takes its counters with it.
            mflow::write("enabled", "0")?;
        }
        self.end_counting()?;
        mflow::unload()?;
        self.loads()?.flow()?;
        // It refuses lanes that are not there.
        for &lane in &cpu::LANES[..self.setting.lanes] {
            cpu::set_online(lane, true)?;
        }
        mflow::load(&self.setting.knobs())
    }

    /// Writes a knob, unless that makes no sense now: a device that is there already, or a CPU that is not.
    pub(super) fn set_knob(&mut self, name: &str, value: &str) -> Result<()> {
        if name == "devices" {
            return set_device(value);
        }
        // Only what goes together is taken: the last word counts. Where flows are split no load may end that.
        let splits =
            matches!(name, "layout" | "scaling" | "build") || (name, value) == ("mode", "mflow");
        if splits {
            mflow::write("load_threshold_pct", "0")?;
        }
        match name {
            "load_threshold_pct" if value != "0" => self.set_knob("mode", "falcon-func")?,
            "mode" if value != "mflow" => {
                mflow::write("layout", "lane")?;
                mflow::write("scaling", "path")?;
                mflow::write("build", "auto")?;
            }
            "layout" => {
                mflow::write("mode", "mflow")?;
                mflow::write("scaling", "path")?;
                mflow::write("build", "auto")?;
            }
            "scaling" | "build" => {
                mflow::write("mode", "mflow")?;
                mflow::write("layout", "lane")?;
            }
            _ => {}
        }
        match mflow::try_write(name, value) {
            Err(error) if name == "cpus" => {
                let all_online = cpu::LANES.iter().all(|&lane| cpu::is_online(lane));
                let in_pairs = mflow::read("layout")?.trim() == "lane+stage";
                ensure!(
                    !all_online || in_pairs && is_odd(value)?,
                    "cpus refused {value}: {error}"
                );
                Ok(())
            }
            Err(error) if name == "layout" => {
                let cpus = mflow::read("cpus")?;
                ensure!(is_odd(cpus.trim())?, "{name} refused {value}: {error}");
                Ok(())
            }
            written => written.with_context(|| format!("{name} refused {value}")),
        }
    }

    /// Ends the loads and builds all that may be gone again; the module stays, and no namespace does.
    fn rebuild(&mut self) -> Result<()> {
        if let Some(loads) = self.loads.take() {
            let outcome = loads.abandon()?;
            self.judge(&outcome, true)?;
        }
        self.end_judge()?;
        self.xdp.retain(|device, _| *device == Device::Nic);
        self.switched.retain(|switch| switch.stays());
        take_down()?;
        topology::up(self.setting.outer)?;
        set_device("+eth0")?;
        self.start_loads()
    }

    /// Switches off under load what is on, and gives the knobs their first values.
    pub(super) fn undo(&mut self) -> Result<()> {
        self.switch_off()?;
        restore_knobs(&self.setting.knobs())?;
        self.loads()?.flow()?;
        self.loads()?.require_arrivals()
    }

    fn switch_off(&mut self) -> Result<()> {
        for lane in cpu::LANES {
            cpu::set_online(lane, true)?;
        }
        self.xdp.clear();
        while let Some(switch) = self.switched.pop_last() {
            switch.off().with_context(|| format!("{switch:?}"))?;
        }
        self.end_judge()
    }

    pub(super) fn end_judge(&mut self) -> Result<()> {
        let judge = self.judge.take();
        let accepted = judge.map_or(Ok(0), SlowJudge::end);
        accepted.map(drop).context("the program that is asked")
    }

    /// Ends the loads, which must have come out as the steps allow; returns what was allowed, too.
    pub(super) fn end(mut self) -> Result<(Outcome, Effect)> {
        self.rig.settle()?;
        self.require_nothing_given_up()?;
        let loads = self.loads.take().context("nothing flows")?;
        let loses = self.allowed.effect.loses;
        let outcome = loads.end(loses)?;
        self.judge(&outcome, loses)?;
        // A flow whose path has queued packets is not split for some time; others are.
        if !self.setting.one_outer || self.allowed.effect.reorders_pkts == 0 {
            self.require_split_again().context("with the same module")?;
        }
        self.rig.settle()?;
        Ok((outcome, self.allowed.effect))
    }

    /// Fails unless lanes get packets of flows that begin now: from outside, they may be the same flow as before, which is
    /// still split then.
    fn require_split_again(&mut self) -> Result<()> {
        let lane_pkts = || Stats::read()?.get("lane_pkts");
        let before = lane_pkts()?;
        let loads = Loads::start(self.rig, self.setting)?;
        let split = command::wait_until("new flows are split", || Ok(lane_pkts()? > before));
        let loses = self.allowed.effect.loses;
        let outcome = loads.end(loses)?;
        self.judge(&outcome, loses)?;
        split
    }

    /// Fails if what arrived is not what the steps allow. All of it has arrived, so that all late packets are counted.
    fn judge(&mut self, outcome: &Outcome, loses: bool) -> Result<()> {
        self.note_late()?;
        self.allowed
            .judge(outcome, loses)
            .with_context(|| self.told())
    }

    /// Returns what the kernel and the module have counted since the sequence began.
    fn told(&self) -> String {
        let drops = Drops::read().since(&self.drops_before);
        format!(
            "the kernel dropped {drops:?}, the module has {:?}",
            Stats::read()
        )
    }

    /// Notes what the module has counted as late up to now.
    fn note_late(&mut self) -> Result<()> {
        let stats = Stats::read()?;
        let late = stats.get("late_pkts")? + stats.get("unknown_tags")?;
        self.allowed.late_pkts = self.late_before + late;
        Ok(())
    }

    /// Judges the module's counters, which are about to begin again.
    fn end_counting(&mut self) -> Result<()> {
        self.note_late()?;
        self.late_before = self.allowed.late_pkts;
        self.require_nothing_given_up()
    }

    fn require_nothing_given_up(&self) -> Result<()> {
        if self.allowed.effect.gives_up {
            return Ok(());
        }
        let stats = Stats::read()?;
        for name in ["deadline_batches", "overflow_batches", "late_pkts"] {
            let count = stats.get(name)?;
            ensure!(
                count == 0,
                "{name} is {count}, and no step allows to give anything up: {}",
                self.told()
            );
        }
        Ok(())
    }
}

impl Drop for Host<'_> {
    /// After a failure: no thread, no offline CPU and no other setting of the NIC may outlive the sequence.
    fn drop(&mut self) {
        if let Some(loads) = self.loads.take() {
            let _failed_already = loads.abandon();
        }
        while let Some(switch) = self.switched.pop_last() {
            let _failed_already = switch.off();
        }
        for lane in cpu::LANES {
            let _failed_already = cpu::set_online(lane, true);
        }
    }
}

/// Opts a device in (`+`) or out (`-`), unless it is.
fn set_device(command: &str) -> Result<()> {
    let (sign, name) = command.split_at(1);
    let devices = mflow::read("devices")?;
    let is_in = devices.split([',', ' ', '\n']).any(|device| device == name);
    if is_in == (sign == "+") {
        return Ok(());
    }
    mflow::write("devices", command)
}

/// Returns whether a list has an odd number of CPUs.
fn is_odd(cpus: &str) -> Result<bool> {
    Ok(cpu::count(cpus)? % 2 == 1)
}

fn restore_knobs(knobs: &Knobs) -> Result<()> {
    set_device("-vxlan0")?;
    set_device("+eth0")?;
    for (name, value) in [
        ("layout", knobs.layout.to_owned()),
        ("cpus", cpu::lane_list(knobs.lanes)),
        ("batch_pkts", knobs.batch_pkts.to_string()),
        ("merge_timeout_us", knobs.merge_timeout_us.to_string()),
        ("min_flow_pps", knobs.min_flow_pps.to_string()),
        ("mode", knobs.mode.to_owned()),
        ("stages", knobs.stages.to_owned()),
        ("scaling", knobs.scaling.to_owned()),
        ("build", knobs.build.to_owned()),
        ("join", "1".to_owned()),
        ("load_threshold_pct", knobs.load_threshold_pct.to_string()),
        ("enabled", "1".to_owned()),
    ] {
        if mflow::read(name)?.trim() != value {
            mflow::write(name, &value)?;
        }
    }
    Ok(())
}

/// Removes the overlay while the module is loaded. That the host's end of the veth pair goes with the container's namespace
/// says that nothing refers to that any more.
pub(super) fn take_down() -> Result<()> {
    for namespace in [CONTAINER, ELSEWHERE] {
        if netns::exists(namespace) {
            topology::ip(&format!("netns del {namespace}"))?;
        }
    }
    command::wait_until("the container's namespace is gone", || {
        Ok(!Path::new("/sys/class/net/veth0").exists())
    })?;
    topology::overlay_down()
}
