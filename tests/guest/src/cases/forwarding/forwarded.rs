// SPDX-License-Identifier: GPL-2.0

//! One outer flow that holds a stream that ends here and packets that this host forwards, to another host or to a virtual machine:
//! they cannot be told apart before they are split, and what is forwarded has no merge point. And a flow that is forwarded as a whole.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags};

use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{command, cpu, proc_net, threads};
use crate::mflow::{self, Knobs};
use crate::network::netlink::{Behind, Netlink};
use crate::network::topology::{self, CLIENT};
use crate::network::{netns, virtual_nic};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _, Plan};

/// The least time for which packets to be forwarded are sent, and the time between two of them.
const TIME: Duration = Duration::from_millis(800);
const EVERY: Duration = Duration::from_millis(2);
/// Fewer would prove nothing.
const LEAST_FORWARDED: u64 = 50;
/// A busy guest may take long for what a packet decides.
const SAID: Duration = Duration::from_secs(20);
/// A lane of an emulated machine can be away for long.
const DEADLINE_US: u32 = 100_000;
/// A busy host can keep it away for longer than that, but not each time.
const TRIES: usize = 3;
/// Batches that can be under way, each with a packet that will not arrive.
const MOST_GIVEN_UP: u64 = 8;
/// A host that the client reaches through the server; the server's route to it leads back to the client.
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 3, 1));
/// A virtual machine on the client's network, and the host's end of its NIC.
const GUEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 9));
const GUEST_MAC: &str = "02:00:00:00:07:09";
const TAP: &str = "tap0";
const MACVTAP: &str = "macvtap0";
/// The device that macvtap is on: the end of a veth whose other end is a port of the bridge.
const PORT: &str = "port0";
const LOWER: &str = "lower0";
const POLL_MS: u16 = 20;

/// The place where packets go that do not end here.
#[derive(Clone, Copy)]
enum Onward {
    Router,
    Tap,
    Macvtap,
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_traffic(
            "forward/beside-local",
            "packets to be forwarded turn up in a split outer flow: its stream keeps its order, and is not split any more",
            Run::Always,
            |rig| beside_local(rig, Onward::Router),
        ),
        Case::of_traffic(
            "forward/beside-tap",
            "the same of packets for a virtual machine whose tap has no queueing discipline",
            Run::Plain,
            |rig| beside_local(rig, Onward::Tap),
        ),
        Case::of_traffic(
            "forward/beside-macvtap",
            "the same of packets for a virtual machine with a macvtap",
            Run::Plain,
            |rig| beside_local(rig, Onward::Macvtap),
        ),
        Case::of_module(
            "forward/alone",
            "a flow that the host forwards, and that ends nowhere on it, is not split, and flows says why",
            Run::Plain,
            alone,
        ),
    ]
}

/// All of the outer flow leaves the host again by a NIC.
fn alone(rig: &Rig) -> Result<Option<Outcome>> {
    rig.prepare(&rig.datagrams(), &Knobs::default().eager())?;
    route_through_server()?;
    let before = forwarded()?;
    let kept = threads::beside(send_far, || {
        threads::until_ok(SAID, || {
            // With our hooks the probe meets the queue of the NIC that it leaves by, if that has one.
            let is_whole = |why| flows::any(&[("state", "whole"), ("reason", why)]);
            let is_kept = is_whole("probe_unseen")? || is_whole("path_queues")?;
            ensure!(
                is_kept,
                "no flow is said to be whole for its path: {}",
                mflow::read("flows")?
            );
            let pkts = forwarded()? - before;
            ensure!(pkts >= LEAST_FORWARDED, "only {pkts} packets are forwarded");
            Ok(())
        })
    });
    // Also after a failure.
    end_route()?;
    kept?;
    let split = mflow::flows_split()?;
    ensure!(
        split == 0,
        "flows that are forwarded were split {split} time(s)"
    );
    rig.settle()?;
    Ok(None)
}

fn beside_local(rig: &Rig, onward: Onward) -> Result<Outcome> {
    let mut tries = 1;
    loop {
        let outcome = forward(rig, onward)?;
        // The flow waits for a lane as long as the deadline, and not longer.
        if outcome.reordered == 0 || !rig.splits() || tries == TRIES {
            return outcome.judge(Outcome::require_order);
        }
        tries += 1;
    }
}

fn forward(rig: &Rig, onward: Onward) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.one_outer = true;
    // A flow that is stopped because it is slow has not been stopped for its path.
    let knobs = Knobs {
        merge_timeout_us: DEADLINE_US,
        ..Knobs::default()
    }
    .eager();
    rig.prepare(&plan, &knobs)?;
    let outcome = match onward {
        Onward::Router => {
            route_through_server()?;
            let before = forwarded()?;
            let outcome = beside(&plan, send_far, || Ok(forwarded()? - before));
            // Also after a failure.
            end_route()?;
            outcome
        }
        Onward::Tap => {
            virtual_nic::bridged_tap(TAP, GUEST_MAC).and_then(|tap| beside_guest(&plan, tap))
        }
        Onward::Macvtap => {
            let outcome = macvtap().and_then(|tap| beside_guest(&plan, tap));
            // Also after a failure. What is on the veth goes with it.
            let _ = topology::ip(&format!("link del {PORT}"));
            outcome
        }
    };
    outcome?.judge(|outcome| {
        outcome.require_whole()?;
        if rig.splits() {
            let (stopped, given_up, late) = (
                outcome.counter("paths_async")?,
                outcome.counter("deadline_batches")?,
                outcome.counter("late_pkts")?,
            );
            ensure!(
                stopped > 0 && given_up <= MOST_GIVEN_UP * stopped,
                "splitting was stopped {stopped} time(s) for what the path queues, and {given_up} batches were given up, with \
                 at most {MOST_GIVEN_UP} each time"
            );
            ensure!(
                outcome.reordered <= late,
                "{} datagrams out of order, but only {late} packets were counted as late",
                outcome.reordered
            );
        }
        rig.settle()
    })
}

/// Measures a flow, in whose outer flow others are sent until enough of them have gone on.
fn beside(
    plan: &Plan<Datagrams>,
    send: impl FnOnce(&AtomicBool) -> Result<()> + Send,
    gone_on: impl Fn() -> Result<u64>,
) -> Result<Outcome> {
    Datagrams::measure(plan, |live| {
        threads::beside(send, || {
            live.flow_for(TIME)?;
            // As many as that take longer on a slow kernel.
            command::wait_until(
                "packets are forwarded",
                || Ok(gone_on()? >= LEAST_FORWARDED),
            )
        })
        .map(drop)
    })
}

/// Does the same with packets for a virtual machine, whose end reads them.
fn beside_guest(plan: &Plan<Datagrams>, mut tap: File) -> Result<Outcome> {
    topology::client_ip(&format!(
        "neigh replace {GUEST} lladdr {GUEST_MAC} dev vxlan0"
    ))?;
    let read = AtomicU64::new(0);
    let count = |stop: &AtomicBool| count_frames(&mut tap, &read, stop);
    let measure = || {
        let send = |stop: &AtomicBool| send("10.0.1.1:0", GUEST, stop);
        beside(plan, send, || Ok(read.load(Ordering::Relaxed)))
    };
    threads::beside(count, measure).map(|((), outcome)| outcome)
}

/// Makes a macvtap that the bridge leads to.
fn macvtap() -> Result<File> {
    topology::ip(&format!(
        "link add {PORT} type veth peer name {LOWER}
         link add link {LOWER} {MACVTAP} address {GUEST_MAC} type macvtap mode bridge
         link set {LOWER} up
         link set {MACVTAP} up
         link set {PORT} master br0
         link set {PORT} up"
    ))?;
    Netlink::open(None)?.forward(GUEST_MAC, Behind::Port(PORT))?;
    let number = fs::read_to_string(format!("/sys/class/net/{MACVTAP}/ifindex"))?;
    let path = format!("/dev/tap{}", number.trim());
    File::open(&path).context(path)
}

fn count_frames(tap: &mut File, read: &AtomicU64, stop: &AtomicBool) -> Result<()> {
    let mut frame = [0; 2_048];
    while !stop.load(Ordering::Relaxed) {
        if poll(&mut [PollFd::new(tap.as_fd(), PollFlags::POLLIN)], POLL_MS)? > 0 {
            tap.read(&mut frame).context("cannot read a frame")?;
            read.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Makes the server the client's router to where the server's route leads back to the client.
fn route_through_server() -> Result<()> {
    let bridge = topology::mac("br0")?;
    topology::ip(&format!(
        "addr add 10.0.2.1/24 dev br0\nroute replace {FAR}/32 via 192.168.50.1 dev eth0"
    ))?;
    topology::client_ip(&format!(
        "addr add 10.0.2.2/24 dev vxlan0
         neigh replace 10.0.2.1 lladdr {bridge} dev vxlan0
         route replace {FAR}/32 via 10.0.2.1 dev vxlan0"
    ))?;
    topology::sysctl("net/ipv4/ip_forward", "1")
}

fn end_route() -> Result<()> {
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    topology::ip(&format!("route del {FAR}/32"))
}

fn forwarded() -> Result<u64> {
    proc_net::counter(None, "Ip", "ForwDatagrams")
}

fn send_far(stop: &AtomicBool) -> Result<()> {
    send("10.0.2.2:0", FAR, stop)
}

fn send(from: &str, to: IpAddr, stop: &AtomicBool) -> Result<()> {
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let socket = UdpSocket::bind(from)?;
    while !stop.load(Ordering::Relaxed) {
        socket.send_to(&[0; 16], (to, 9)).context("cannot send")?;
        thread::sleep(EVERY);
    }
    Ok(())
}
