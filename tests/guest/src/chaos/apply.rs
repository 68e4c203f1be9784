// SPDX-License-Identifier: GPL-2.0

//! The actions that each kind of step performs on the host.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use super::host::{Host, ELSEWHERE};
use super::step::{Device, Step};
use super::switch::{self, Switch};
use crate::machine::command::{self, Program};
use crate::machine::{cpu, proc_net, threads};
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::nfqueue::SlowJudge;
use crate::network::topology::{self, Family, CLIENT, CONTAINER};
use crate::network::{netns, nft, tcpdump};
use crate::traffic::ftp;
use crate::traffic::hog::Hog;
use crate::traffic::streams::connection::{self, Pair};
use crate::traffic::streams::pattern;

/// The time for which the NIC is down: the wire has flow control, so meanwhile no packet says that time has passed.
const NIC_DOWN: Duration = Duration::from_millis(50);
/// The time for which a softirq spins without a pause, and the time for which packets flow beside it: several times that.
const HOLD: Duration = Duration::from_millis(60);
const BESIDE_HOG: Duration = Duration::from_millis(240);
const IPERF_PORT: u16 = 5301;
const NAT_SHIFT: u16 = 1_000;
/// The number of bytes that a short connection carries.
const FEW_BYTES: usize = 20_000;
/// The time for which packets may hold what connection tracking knows of them.
const FORGET: Duration = Duration::from_secs(60);
const JUMBO_OR_MORE: usize = 1_500;

/// The state of each packet's connection is looked up.
const TRACK: &str = "
table inet mflow_track {
    chain in { type filter hook input priority 0; ct state invalid counter; }
    chain out { type filter hook output priority 0; ct state invalid counter; }
}
";
/// Both addresses of a connection to the port above that of the streams are translated.
const TRANSLATE: &str = "
table ip mflow_nat {
    chain before { type nat hook prerouting priority -100; tcp dport 6101 dnat to 10.0.1.2:5101; }
    chain behind { type nat hook input priority 100; ip protocol tcp ct original proto-dst 6101 snat to 10.0.1.77; }
}
";
/// New connections to ports that servers choose are dropped. An announced one is not new.
const ANNOUNCED: &str = "
table inet mflow_ftp {
    ct helper ftp { type \"ftp\" protocol tcp; }
    chain in {
        type filter hook input priority 0;
        ct state new tcp dport 21 ct helper set \"ftp\"
        ct state new tcp dport >= 32768 drop
    }
}
";
/// Modules that track connections and translate addresses, each before those that it needs.
const TRACKING: &[&str] = &[
    "nf_conntrack_ftp",
    "nft_masq",
    "nft_nat",
    "nft_chain_nat",
    "nft_ct",
    "nf_nat",
    "nf_conntrack",
];

impl Host<'_> {
    /// Does what the step says; what it switches on stays on.
    pub(super) fn apply(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Cpu { cpu, online } => cpu::set_online(cpu, online),
            Step::Knob { name, value } => self.set_knob(name, value),
            Step::Module => self.reload_module(),
            Step::Flap(device) => self.flap(device),
            Step::Delete(Device::Container) => topology::ip(&format!("netns del {CONTAINER}")),
            Step::Delete(device) => device.link("del DEV"),
            Step::Move(device) => move_away(device),
            Step::CloseSocket => self.close_socket(),
            Step::CloseStream => self.loads()?.another_stream(),
            Step::Kill => self.kill(),
            Step::Mtu { device, bytes } => self.change_mtu(device, bytes),
            Step::Rings { pkts } => self.switch(Switch::Rings, true, || switch::set_rings(pkts)),
            Step::Channels { count } => {
                self.switch(Switch::Channels, true, || switch::set_channels(count))
            }
            Step::Rps { device, on } => {
                self.switch(Switch::Rps(device), on, || switch::set_rps(device, true))
            }
            Step::Gro { device, on } => {
                // Only a veth device has none by itself.
                let changed = on == (device == Device::Container);
                self.switch(Switch::Gro(device), changed, || switch::set_gro(device, on))
            }
            Step::Xdp { device, native } => self.attach(device, native),
            Step::NoXdp => {
                self.xdp.clear();
                Ok(())
            }
            Step::Qdisc { discipline, on } => {
                self.switch(Switch::Qdisc, on, || switch::add_qdisc(discipline))
            }
            Step::Ask { ms, on } => self.ask(ms, on),
            Step::Held(waiting) => self.hold_over_reload(waiting),
            Step::Drops { on } if self.switched.contains(&Switch::Drops) == on => Ok(()),
            Step::Drops { on } => self.switch(Switch::Drops, on, switch::add_drops),
            Step::Rules { on } if self.switched.contains(&Switch::Rules) == on => Ok(()),
            Step::Rules { on } => self.switch(Switch::Rules, on, switch::add_rules),
            Step::Tracking { on } if self.switched.contains(&Switch::Tracking) == on => Ok(()),
            Step::Tracking { on } => self.switch(Switch::Tracking, on, switch::add_tracking),
            // Who uses the modules has to go before them.
            Step::ForgetTracked if self.switched.contains(&Switch::Tracking) => Ok(()),
            Step::ForgetTracked => self.forget_tracked(),
            Step::Nat => translated(),
            Step::Ftp => self.fetch_file(),
            Step::Capture(device) => self.capture(device),
            Step::Connections(count) => {
                (0..count).try_for_each(|_| short_connection(self.setting.inner, 0))
            }
            Step::Flows => self.other_flows(),
            Step::Hog { cpu } => self.keep_busy(cpu),
            Step::Interrupts { cpu } => {
                if cpu::LANES.contains(&cpu) {
                    cpu::set_online(cpu, true)?;
                }
                self.switch(Switch::Interrupts, cpu != cpu::NIC, || {
                    topology::move_server_nic(cpu)
                })
            }
        }
    }

    /// Switches something on, or off if it is on.
    pub(super) fn switch(
        &mut self,
        what: Switch,
        on: bool,
        switch_on: impl Fn() -> Result<()>,
    ) -> Result<()> {
        if on {
            switch_on()?;
            self.switched.insert(what);
        } else if self.switched.remove(&what) {
            what.off()?;
        }
        Ok(())
    }

    fn ask(&mut self, ms: u64, on: bool) -> Result<()> {
        self.ask_no_more()?;
        if on {
            self.judge = Some(SlowJudge::start(Duration::from_millis(ms))?);
            self.switch(Switch::Ask, true, switch::add_questions)?;
        }
        Ok(())
    }

    pub(super) fn ask_no_more(&mut self) -> Result<()> {
        self.switch(Switch::Ask, false, || Ok(()))?;
        self.end_judge()
    }

    /// Fetches a file from the container, whose firewall lets the connection with it in because another one has announced it.
    fn fetch_file(&self) -> Result<()> {
        nft::add(CONTAINER, ANNOUNCED)?;
        let server = ftp::Server::bind(self.setting.inner)?;
        let files = server.serve(1, 1);
        nft::add(CONTAINER, "delete table inet mflow_ftp")?;
        ensure!(files? == 1, "a file did not come by FTP");
        Ok(())
    }

    fn flap(&mut self, device: Device) -> Result<()> {
        device.link("set DEV down")?;
        match device {
            Device::Nic => {
                thread::sleep(NIC_DOWN);
                topology::restore_nic()
            }
            Device::Container => {
                self.loads()?.flow()?;
                topology::container_up()
            }
            Device::Vxlan | Device::Bridge | Device::Veth => {
                self.loads()?.flow()?;
                device.link("set DEV up")
            }
        }
    }

    /// Kills a program that receives another flow, just as that flows.
    fn kill(&mut self) -> Result<()> {
        let line = format!("iperf3 -s -p {IPERF_PORT}");
        let server = Program::start(Some(CONTAINER), cpu::READER, &line)?;
        let server = proc_net::until_listens(server, Some(CONTAINER), IPERF_PORT)?;
        let to = Family::V4.container();
        let line = format!("iperf3 -c {to} -p {IPERF_PORT} -b 4M -t 60");
        let client = Program::start(Some(CLIENT), cpu::SENDER, &line)?;
        command::wait_until("the other flow's connection is there", || {
            Ok(!proc_net::open_towards(CLIENT, IPERF_PORT)?.is_empty())
        })?;
        self.loads()?.flow()?;
        drop(server);
        self.loads()?.flow()?;
        drop(client);
        Ok(())
    }

    fn change_mtu(&mut self, device: Device, bytes: usize) -> Result<()> {
        let usual = match device {
            Device::Nic => JUMBO_OR_MORE,
            _ => self.setting.outer.overlay_mtu(),
        };
        device.link(&format!("set DEV mtu {bytes}"))?;
        self.loads()?.flow()?;
        device.link(&format!("set DEV mtu {usual}"))
    }

    fn attach(&mut self, device: Device, native: bool) -> Result<()> {
        // A device has one program, in one of the two places, and none below a device that has one.
        self.xdp.remove(&device);
        if device == Device::Nic {
            self.xdp.remove(&Device::Vxlan);
        }
        let (namespace, name) = device.place();
        let mode = if native {
            XdpMode::Native
        } else {
            XdpMode::Generic
        };
        let program = match namespace {
            None => Xdp::attach(name, mode),
            Some(namespace) => netns::within(namespace, || Xdp::attach(name, mode)),
        }?;
        self.xdp.insert(device, program);
        Ok(())
    }

    /// Lets connections be tracked, and then unloads what tracks them: for that, no packet may refer to it any more.
    fn forget_tracked(&mut self) -> Result<()> {
        nft::add(CONTAINER, TRACK)?;
        self.loads()?.flow()?;
        nft::add(CONTAINER, "delete table inet mflow_track")?;
        threads::until_ok(FORGET, || {
            let mut left = TRACKING.to_vec();
            left.retain(|module| Path::new("/sys/module").join(module).exists());
            if left.is_empty() {
                return Ok(());
            }
            command::run(&format!("rmmod {}", left.join(" "))).map(drop)
        })
    }

    fn capture(&mut self, device: Device) -> Result<()> {
        let (namespace, name) = device.place();
        let mut capture = tcpdump::start(namespace, name, cpu::READER)?;
        self.loads()?.flow()?;
        capture.must_run()
    }

    fn keep_busy(&mut self, lane: usize) -> Result<()> {
        cpu::set_online(lane, true)?;
        let hog = Hog::start(lane, HOLD)?;
        let flowed = self.loads()?.flow_for(BESIDE_HOG);
        hog.stop()?;
        flowed
    }
}

fn move_away(device: Device) -> Result<()> {
    netns::add(ELSEWHERE)?;
    device.link(&format!("set DEV netns {ELSEWHERE}"))?;
    if device == Device::Nic {
        thread::sleep(NIC_DOWN);
        topology::ip_in(ELSEWHERE, "link set eth0 netns 1")?;
        topology::server_nic_again()?;
    }
    Ok(())
}

/// Runs a connection whose addresses are translated in the container.
fn translated() -> Result<()> {
    nft::add(CONTAINER, TRANSLATE)?;
    let result = short_connection(Family::V4, NAT_SHIFT);
    nft::add(CONTAINER, "delete table ip mflow_nat")?;
    result
}

/// Opens a connection, sends a few bytes and closes it at both ends.
fn short_connection(inner: Family, port_shift: u16) -> Result<()> {
    let Pair {
        mut client,
        mut server,
    } = connection::connect_shifted(inner, port_shift)?;
    let mut bytes = vec![0; FEW_BYTES];
    pattern::fill(0, &mut bytes);
    client.write_all(&bytes)?;
    bytes.fill(0);
    server.read_exact(&mut bytes)?;
    ensure!(
        pattern::mismatch(0, &bytes).is_none(),
        "a short connection carried other bytes than it was given"
    );
    Ok(())
}
