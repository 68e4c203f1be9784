// SPDX-License-Identifier: GPL-2.0

//! A socket with `UDP_GRO` reads a lane's datagrams as one packet, whatever happens to such packets on their way.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::MIN_BYTES;
use nix::sys::socket::{setsockopt, sockopt};

use crate::cases::{Case, Run};
use crate::machine::{command, proc_net};
use crate::mflow::{self, Knobs};
use crate::network::topology::{Family, CONTAINER};
use crate::network::{netns, nft};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _, Plan};

const DATAGRAMS: u64 = 6_000;
/// Datagrams that the NIC's driver does not copy.
const UNCOPIED_BYTES: usize = 512;
/// The port of a socket without `UDP_GRO`, and a rule that sends datagrams there.
const PLAIN_PORT: u16 = 5_999;
const PORT_RULE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority raw;
        udp dport 5001 udp dport set 5999
    }
}
";
/// A rule that writes into the payload of datagrams.
const BYTES_RULE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 @th,320,32 set 0x6d666c77
    }
}
";

/// A rule that cuts each packet's payload to twelve bytes.
const LENGTH_RULE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 udp length set 20
    }
}
";
/// The time after which datagrams that have passed a rule have been read.
const SETTLE: Duration = Duration::from_millis(100);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "gro/aggregate",
            "a socket with UDP_GRO gets many datagrams as one: in order, and none is late",
            Run::Always,
            |rig| read_as_one(rig, Family::V4, UNCOPIED_BYTES),
        ),
        Case::of_module(
            "gro/aggregate/v6",
            "a socket with UDP_GRO gets many datagrams of IPv6 as one: in order, and none is late",
            Run::Always,
            |rig| read_as_one(rig, Family::V6, UNCOPIED_BYTES),
        ),
        Case::of_module(
            "gro/aggregate/small",
            "a socket with UDP_GRO gets many datagrams as one, of which the NIC's driver makes packets by copying",
            Run::Plain,
            |rig| read_as_one(rig, Family::V4, MIN_BYTES),
        ),
        Case::of_module(
            "gro/aggregate/apart",
            "datagrams for a socket with UDP_GRO come to one without: in order, and none is late",
            Run::Plain,
            taken_apart,
        ),
        Case::of_module(
            "gro/aggregate/bytes",
            "a rule begins to write into datagrams that a socket gets as one: soon it has written into each of them",
            Run::Always,
            |rig| written(rig, BYTES_RULE),
        ),
        Case::of_module(
            "gro/aggregate/length",
            "a rule begins to shorten datagrams that a socket gets as one: soon it has shortened each of them",
            Run::Always,
            |rig| written(rig, LENGTH_RULE),
        ),
        Case::of_module(
            "gro/aggregate/veth",
            "a veth begins to cut datagrams for a socket with UDP_GRO: in order, and none is late",
            Run::Plain,
            cut_by_veth,
        ),
    ]
}

/// Returns the knobs with which as many frames join as can.
fn lane_builds() -> Knobs {
    Knobs {
        build: "lane",
        ..Knobs::default()
    }
}

/// Prepares for datagrams of one flow; returns their plan, and a socket with `UDP_GRO` where they end.
fn prepare(rig: &Rig, inner: Family, bytes: usize) -> Result<(Plan<Datagrams>, UdpSocket)> {
    let mut plan = rig.datagrams();
    (plan.flows, plan.inner) = (1, inner);
    plan.load = plan.load.sized(bytes);
    plan.load.send_at_least(DATAGRAMS);
    rig.prepare(&plan, &lane_builds())?;
    let address = plan.addresses()[0];
    let socket = netns::within(CONTAINER, || receiver::bind(&address))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true).context("UDP_GRO")?;
    Ok((plan, socket))
}

/// Returns how many packets sockets of the container have got to read.
fn read_pkts(inner: Family) -> Result<u64> {
    match inner {
        Family::V4 => proc_net::counter(Some(CONTAINER), "Udp", "InDatagrams"),
        Family::V6 => proc_net::counter6(Some(CONTAINER), "Udp6InDatagrams"),
    }
}

fn read_as_one(rig: &Rig, inner: Family, bytes: usize) -> Result<Outcome> {
    let (plan, socket) = prepare(rig, inner, bytes)?;
    let receiver = Receiver::of(vec![socket], plan.flows, bytes);
    let outcome = Datagrams::measure_at(&plan, plan.addresses(), receiver, |live| {
        let (arrived, before) = (live.arrivals(), read_pkts(inner)?);
        live.send_more(DATAGRAMS / 2)?;
        let (arrived, pkts) = (live.arrivals() - arrived, read_pkts(inner)? - before);
        // Without our patches a list is taken apart in front of the socket.
        ensure!(
            pkts < arrived * 3 / 4 || !mflow::is_patched()?,
            "{arrived} datagrams were read as {pkts} packets"
        );
        Ok(())
    })?;
    outcome.judge(|outcome| {
        rig.require_strict(&plan, &lane_builds(), outcome)?;
        let (all, joined) = (
            outcome.counter("lane_pkts")?,
            outcome.counter("joined_pkts")?,
        );
        // Without our patches no frame joins.
        ensure!(
            joined > all / 8 || !mflow::is_patched()?,
            "{joined} of {all} frames have joined a packet before them"
        );
        Ok(())
    })
}

/// Makes the veth cut aggregates from some time on.
fn cut_by_veth(rig: &Rig) -> Result<Outcome> {
    let (plan, socket) = prepare(rig, Family::V4, UNCOPIED_BYTES)?;
    let receiver = Receiver::of(vec![socket], plan.flows, UNCOPIED_BYTES);
    let received = || anyhow::Ok(proc_net::device(CONTAINER, "eth0")?.rx_pkts);
    let outcome = Datagrams::measure_at(&plan, plan.addresses(), receiver, |live| {
        live.send_more(DATAGRAMS / 4)?;
        command::run("ethtool -K veth0 tx-udp-segmentation off")?;
        let (arrived, before) = (live.arrivals(), received()?);
        live.send_more(DATAGRAMS / 2)?;
        let (arrived, pkts) = (live.arrivals() - arrived, received()? - before);
        ensure!(
            pkts > arrived * 3 / 4,
            "the container received {arrived} datagrams as {pkts} packets, which the veth was to cut"
        );
        Ok(())
    })?;
    outcome.judge(|outcome| rig.require_strict(&plan, &lane_builds(), outcome))
}

/// Sends datagrams to another socket from some time on, by a rule that writes their port.
fn taken_apart(rig: &Rig) -> Result<Outcome> {
    let (plan, socket) = prepare(rig, Family::V4, UNCOPIED_BYTES)?;
    let mut address = plan.addresses()[0];
    address.set_port(PLAIN_PORT);
    let plain = netns::within(CONTAINER, || receiver::bind(&address))?;
    let receiver = Receiver::of(vec![socket, plain], plan.flows, UNCOPIED_BYTES);
    let outcome = Datagrams::measure_at(&plan, plan.addresses(), receiver, |live| {
        live.send_more(DATAGRAMS / 4)?;
        nft::add(CONTAINER, PORT_RULE)?;
        let (arrived, before) = (live.arrivals(), read_pkts(Family::V4)?);
        live.send_more(DATAGRAMS / 2)?;
        let (arrived, pkts) = (live.arrivals() - arrived, read_pkts(Family::V4)? - before);
        ensure!(
            pkts > arrived * 3 / 4,
            "{arrived} datagrams were read as {pkts} packets by a socket without UDP_GRO"
        );
        Ok(())
    })?;
    outcome.judge(|outcome| rig.require_strict(&plan, &lane_builds(), outcome))
}

/// Writes into the datagrams from some time on.
fn written(rig: &Rig, rule: &str) -> Result<Outcome> {
    let (plan, socket) = prepare(rig, Family::V4, UNCOPIED_BYTES)?;
    let receiver = Receiver::of(vec![socket], plan.flows, UNCOPIED_BYTES);
    let (mut arrived, mut good) = (0, 0);
    let outcome = Datagrams::measure_at(&plan, plan.addresses(), receiver, |live| {
        live.send_more(DATAGRAMS / 4)?;
        nft::add(CONTAINER, rule)?;
        live.send_more(DATAGRAMS / 4)?;
        // Each datagram sent so far was written to, or had passed the rule's place. The reader may need longer.
        thread::sleep(SETTLE);
        // Where the NIC sums whole frames, UDP finds out that bytes have changed.
        let came = || {
            let dropped = proc_net::counter(Some(CONTAINER), "Udp", "InErrors")?;
            anyhow::Ok(live.arrivals() + dropped)
        };
        let before = (came()?, live.good());
        live.send_more(DATAGRAMS / 4)?;
        command::wait_until("datagrams that the rule has written to arrive", || {
            Ok(came()? > before.0 + DATAGRAMS / 8)
        })?;
        (arrived, good) = (came()? - before.0, live.good() - before.1);
        Ok(())
    })?;
    outcome.judge(|_| {
        ensure!(
            good == 0,
            "of {arrived} datagrams that arrived later, {good} lack what the rule writes"
        );
        Ok(())
    })
}
