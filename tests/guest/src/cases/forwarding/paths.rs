// SPDX-License-Identifier: GPL-2.0

//! Paths that do not suit a split flow: what queues packets, and what wants them in order. The module finds out before it
//! splits anything. And paths that suit, but for something beside them.

use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_protocol::network::{CLIENT_MAC, CONTAINER_MAC};

use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{proc_net, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::ipsec::{self, Wrap};
use crate::network::nfqueue::Judge;
use crate::network::topology::{self, CLIENT, CONTAINER};
use crate::network::{netns, nft};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live, Load, Plan};

/// The share of the usual rate that is offered where each packet costs more: a hash, or two system calls.
const DEAR_SHARE: f64 = 0.3;
/// The time for which traffic flows before and after something is switched on.
const PAUSE: Duration = Duration::from_millis(300);
/// The time for which packets come through a queue that cannot be a source, the number of searches for other queues that those
/// packets may cause, and the number of packets that proves something.
const SEARCH: Duration = Duration::from_secs(3);
const MOST_SEARCHES: u64 = 20;
const LEAST_PKTS: u64 = 2_000;

/// The time that a busy guest may take to say why a flow is not split.
const SAID: Duration = Duration::from_secs(10);

const MACSEC_KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The container's end of the tunnel.
const L2TP_MAC: &str = "02:00:00:00:06:02";
const BRIDGE_MAC: &str = "02:00:00:00:06:01";

const IN_UDP: Wrap = Wrap {
    from: "10.0.1.1",
    to: "10.0.1.2",
    mode: "transport",
    in_udp: true,
};

const TO_HOST: Wrap = Wrap {
    from: "192.168.50.1",
    to: "192.168.50.2",
    mode: "tunnel",
    in_udp: false,
};

/// The container asks a program about each packet, once there is a rule.
const NO_RULE: &str = "
table ip mflow {
    chain before { type filter hook prerouting priority 0; }
}
";
const RULE: &str = "add rule ip mflow before queue num 0";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_traffic(
            "paths/esp-in-udp",
            "a flow that the container takes out of IPsec is not split: its replay window drops nothing",
            Run::Always,
            esp_in_udp,
        ),
        Case::of_traffic(
            "paths/gre-seq",
            "a flow through a tunnel with sequence numbers is not split: the tunnel drops nothing",
            Run::Plain,
            gre_seq,
        ),
        Case::of_traffic(
            "paths/macsec",
            "a flow that the container takes out of MACsec is not split: its replay window drops nothing",
            Run::Plain,
            macsec,
        ),
        Case::of_traffic(
            "paths/l2tp",
            "a flow that goes on to its container through L2TP is not split: the device that takes it out queues it",
            Run::Always,
            l2tp,
        ),
        Case::of_traffic(
            "paths/nested",
            "a flow through more tunnels than a lane carries it through is not split any more, and keeps its order",
            Run::Plain,
            nested,
        ),
        Case::of_traffic(
            "paths/nfqueue/before",
            "a flow that waits for a program's verdict is not split",
            Run::Always,
            |rig| asked(rig, &dear(rig), true),
        ),
        Case::of_traffic(
            "paths/nfqueue/during",
            "a split flow that has to wait for a program's verdict keeps its order, and is not split any more",
            Run::Always,
            |rig| asked(rig, &dear(rig), false),
        ),
        Case::of_traffic(
            "tcp/paths/nfqueue/during",
            "a split stream has to wait for a program's verdict: TCP does not notice",
            Run::Plain,
            |rig| asked(rig, &rig.streams(), false),
        ),
        Case::of_traffic(
            "paths/mirror",
            "copies of a split flow's packets go to a queue elsewhere: the flow stays split, and waits for none of them",
            Run::Plain,
            mirror,
        ),
        Case::of_traffic(
            "paths/ipvs",
            "a flow for which IPVS chooses an endpoint is not split: one entry of each connection is made",
            Run::Plain,
            balanced,
        ),
        Case::of_traffic(
            "paths/redirects",
            "a split flow is sent from device to device by more rules than a packet may meet before it waits in a queue: it loses nothing",
            Run::Plain,
            redirects,
        ),
        Case::of_traffic(
            "paths/searches",
            "packets of an opted-in device that come through a queue of IPsec's have sources looked for ever more rarely",
            Run::Plain,
            searches,
        )
        .about_splitting(),
    ]
}

/// Returns the plainest plan of datagrams for a path on which each costs more than usual.
fn dear(rig: &Rig) -> Plan<Datagrams> {
    let mut plan = rig.datagrams();
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * DEAR_SHARE);
    plan
}

/// Demands that everything has arrived in order without a split.
fn require_held(rig: &Rig, outcome: &Outcome, counter: &str) -> Result<()> {
    rig.require_unnoticed::<Datagrams>(outcome)?;
    rig.require_held(counter)
}

fn esp_in_udp(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    // Were it split, lanes would soon be further apart than the window is wide.
    rig.prepare(&plan, &Knobs::of(4, 1).eager())?;
    let outcome = unwrapped_in_container(&plan);
    // Also after a failure; that of the container goes with it.
    ipsec::flush_client()?;
    outcome?.judge(|outcome| {
        let replayed = ipsec::counter(CONTAINER, "XfrmInStateSeqError")?;
        ensure!(
            replayed == 0,
            "{replayed} packets were outside of the replay window"
        );
        require_held(rig, outcome, "paths_ordered")
    })
}

fn unwrapped_in_container(plan: &Plan<Datagrams>) -> Result<Outcome> {
    let _unwraps = ipsec::unwrapping_socket()?;
    IN_UDP.set_up(Some(CONTAINER), "in")?;
    IN_UDP.set_up(Some(CLIENT), "out")?;
    Datagrams::measure(plan, |_| Ok(()))
}

// Tunnels that number packets have no addresses of IPv6, which would send of its own accord, from other CPUs: a packet has its
// number before it is handed on, and two of the sender's could swap there.

fn gre_seq(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = false;
    // Were it split, lanes would run apart within each few packets.
    rig.prepare(&plan, &Knobs::of(2, 1))?;
    // The tunnel's ends have addresses of their own: the container's usual one is behind it.
    topology::container_ip(
        "addr add 10.0.4.2/24 dev eth0
         link add gre1 type gre local 10.0.4.2 remote 10.0.4.1 iseq
         link set gre1 up",
    )?;
    topology::client_ip(&format!(
        "addr add 10.0.4.1/24 dev vxlan0
         neigh replace 10.0.4.2 lladdr {CONTAINER_MAC} dev vxlan0
         link add gre1 type gre local 10.0.4.1 remote 10.0.4.2 oseq
         link set gre1 addrgenmode none
         link set gre1 up
         route add 10.0.1.2/32 dev gre1 src 10.0.1.1"
    ))?;
    let outcome = Datagrams::measure(&plan, |live| {
        live.wait_for("flows says why", SAID, || {
            Ok(!rig.splits() || flows::any(&[("state", "whole"), ("reason", "path_ordered")])?)
        })
    });
    // Also after a failure.
    topology::client_ip("link del gre1")?;
    outcome?.judge(|outcome| {
        let tunnel = proc_net::device(CONTAINER, "gre1")?;
        ensure!(
            tunnel.rx_pkts >= outcome.sent && tunnel.rx_fifo_errors == 0,
            "of {} datagrams the tunnel has received {}, and dropped {} that were out of order",
            outcome.sent,
            tunnel.rx_pkts,
            tunnel.rx_fifo_errors
        );
        require_held(rig, outcome, "paths_ordered")
    })
}

fn macsec(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    // Were it split, lanes would run apart within each few packets.
    rig.prepare(&plan, &Knobs::of(2, 1))?;
    topology::container_ip(&format!(
        "link add link eth0 macsec0 type macsec encrypt off replay on window 0
         macsec add macsec0 rx port 1 address {CLIENT_MAC}
         macsec add macsec0 rx port 1 address {CLIENT_MAC} sa 0 pn 1 on key 01 {MACSEC_KEY}
         link set macsec0 up"
    ))?;
    topology::client_ip(&format!(
        "link add link vxlan0 macsec0 type macsec encrypt off
         macsec add macsec0 tx sa 0 pn 1 on key 01 {MACSEC_KEY}
         link set macsec0 addrgenmode none
         link set macsec0 up
         neigh replace 10.0.1.2 lladdr {CONTAINER_MAC} dev macsec0
         route add 10.0.1.2/32 dev macsec0 src 10.0.1.1"
    ))?;
    Datagrams::measure(&plan, |_| Ok(()))?.judge(|outcome| {
        let unwrapped = proc_net::device(CONTAINER, "macsec0")?.rx_pkts;
        ensure!(
            unwrapped >= outcome.sent,
            "{unwrapped} of {} datagrams came through MACsec",
            outcome.sent
        );
        require_held(rig, outcome, "paths_ordered")
    })
}

/// The host routes what is for the container into a tunnel, whose packets reach the container through the veth pair.
fn l2tp(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    rig.prepare(&plan, &Knobs::default().eager())?;
    let outcome = through_l2tp(&plan);
    // Also after a failure; the other end goes with its namespace.
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    topology::ip("l2tp del tunnel tunnel_id 1")?;
    outcome?.judge(|outcome| {
        let received = proc_net::device(CONTAINER, "l2tp0")?.rx_pkts;
        ensure!(
            received >= outcome.sent,
            "{received} of {} datagrams came through L2TP",
            outcome.sent
        );
        // Without our hooks the tunnel is told by its socket, where packets would be merged; with them, where it sends.
        let hooked = !rig.mflow || mflow::is_patched()?;
        require_held(
            rig,
            outcome,
            if hooked {
                "paths_async"
            } else {
                "paths_ordered"
            },
        )
    })
}

fn through_l2tp(plan: &Plan<Datagrams>) -> Result<Outcome> {
    let tunnel = |own: &str, peer: &str| {
        format!(
            "l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap udp local {own} remote {peer} udp_sport 1701 udp_dport 1701
             l2tp add session name l2tp0 tunnel_id 1 session_id 1 peer_session_id 1"
        )
    };
    topology::container_ip(&format!(
        "addr add 10.0.6.2/24 dev eth0
         {}
         link set l2tp0 address {L2TP_MAC} up",
        tunnel("10.0.6.2", "10.0.6.1")
    ))?;
    topology::sysctl("net/ipv4/ip_forward", "1")?;
    topology::ip(&format!(
        "link set br0 address {BRIDGE_MAC}
         addr add 10.0.6.1/24 dev br0
         neigh replace 10.0.6.2 lladdr {CONTAINER_MAC} dev br0
         {}
         link set l2tp0 up
         neigh replace 10.0.1.2 lladdr {L2TP_MAC} dev l2tp0
         route add 10.0.1.2/32 dev l2tp0",
        tunnel("10.0.6.1", "10.0.6.2")
    ))?;
    // Without a queueing discipline, which the probe would find before it finds the tunnel.
    topology::tc("qdisc replace dev l2tp0 root noqueue")?;
    topology::client_ip(&format!(
        "neigh replace 10.0.1.2 lladdr {BRIDGE_MAC} dev vxlan0"
    ))?;
    Datagrams::measure(plan, |_| Ok(()))
}

/// The container's second tunnel ends deeper in the stack than a lane carries packets without a queue.
fn nested(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    rig.prepare(&plan, &Knobs::default())?;
    let tunnels = |own: u8, peer: u8| {
        format!(
            "link add gre1 type gre local 10.0.4.{own} remote 10.0.4.{peer}
             addr add 10.0.5.{own}/24 dev gre1
             link set gre1 up
             link add gre2 type gre local 10.0.5.{own} remote 10.0.5.{peer}
             link set gre2 up"
        )
    };
    topology::container_ip(&format!("addr add 10.0.4.2/24 dev eth0\n{}", tunnels(2, 1)))?;
    topology::client_ip(&format!(
        "addr add 10.0.4.1/24 dev vxlan0
         neigh replace 10.0.4.2 lladdr {CONTAINER_MAC} dev vxlan0
         {}
         route add 10.0.1.2/32 dev gre2 src 10.0.1.1",
        tunnels(1, 2)
    ))?;
    let outcome = Datagrams::measure(&plan, |_| Ok(()));
    // Also after a failure.
    topology::client_ip("link del gre2\nlink del gre1")?;
    outcome?.judge(|outcome| {
        let inner = proc_net::device(CONTAINER, "gre2")?.rx_pkts;
        ensure!(
            inner >= outcome.sent,
            "{inner} of {} datagrams came through both tunnels",
            outcome.sent
        );
        rig.require_unnoticed::<Datagrams>(outcome)?;
        if rig.splits() {
            // Since the module was loaded: on a slow host the flow is split, or found out, before the measurement begins.
            let stats = Stats::read()?;
            let (split, queued, stopped) = (
                stats.get("flows_split")?,
                stats.get("paths_async")?,
                stats.get("flows_stopped")?,
            );
            // It may have been split once more at the very end.
            ensure!(
                stopped >= 1 && stopped + 1 >= split && queued >= stopped,
                "the flow was split {split} time(s), found the path to queue {queued} time(s) and was stopped {stopped} time(s)"
            );
        }
        Ok(())
    })
}

fn asked<L: Load>(rig: &Rig, plan: &Plan<L>, early: bool) -> Result<Outcome> {
    let mut plan = plan.clone();
    plan.split &= !early;
    rig.prepare(&plan, &Knobs::default().eager())?;
    // The first hook in the system patches the kernel's code.
    nft::add(CONTAINER, NO_RULE)?;
    let judge = Judge::open()?;
    if early {
        nft::add(CONTAINER, RULE)?;
    }
    let (accepted, outcome) = threads::beside(
        |stop| judge.accept_all(stop),
        || {
            L::measure(&plan, |live| {
                if early {
                    return Ok(());
                }
                live.flow_for(PAUSE)?;
                nft::add(CONTAINER, RULE)?;
                live.flow_for(PAUSE)
            })
        },
    )?;
    outcome.judge(|outcome| {
        ensure!(accepted > 0, "the program was asked about no packet");
        rig.require_unnoticed::<L>(outcome)?;
        if early {
            ensure!(
                accepted >= outcome.sent,
                "the program was asked about {accepted} of {} packets",
                outcome.sent
            );
            return rig.require_held("paths_async");
        }
        if rig.splits() {
            let (queued, stopped) = (
                outcome.counter("paths_async")?,
                outcome.counter("flows_stopped")?,
            );
            ensure!(
                stopped == 1 && queued >= 1,
                "the flow was stopped {stopped} time(s), and found the path to queue {queued} time(s)"
            );
        }
        Ok(())
    })
}

fn mirror(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    topology::ip("link add mirror0 type dummy\nlink set mirror0 up")?;
    let outcome = mirrored(&plan);
    // Also after a failure.
    let copies = topology::sent_pkts("mirror0")?;
    topology::ip("link del mirror0")?;
    outcome?.judge(|outcome| {
        ensure!(
            copies >= outcome.frames / (2 * rig.most_joined()),
            "{copies} of {} frames were mirrored",
            outcome.frames
        );
        rig.require_strict(&plan, &knobs, outcome)?;
        if rig.splits() {
            for name in ["paths_async", "flows_stopped"] {
                let count = outcome.counter(name)?;
                ensure!(count == 0, "{name} grew by {count} because of copies");
            }
        }
        Ok(())
    })
}

fn mirrored(plan: &Plan<Datagrams>) -> Result<Outcome> {
    // Before there is traffic: the first one in the system patches the kernel's code.
    topology::tc("qdisc add dev mirror0 root fq\nqdisc add dev vxlan0 clsact")?;
    Datagrams::measure(plan, |live| {
        topology::tc(
            "filter add dev vxlan0 ingress matchall action mirred egress mirror dev mirror0",
        )?;
        live.send_more(plan.load.count)
    })
}

/// The container is the only endpoint of a service of its own.
fn balanced(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    rig.prepare(&plan, &Knobs::default().eager())?;
    for line in [
        "ipvsadm -A -u 10.0.1.2:5001 -s rr",
        "ipvsadm -a -u 10.0.1.2:5001 -r 10.0.1.2:5001 -m",
    ] {
        netns::run(CONTAINER, line)?;
    }
    Datagrams::measure(&plan, |_| Ok(()))?.judge(|outcome| {
        let said = netns::run(CONTAINER, "ipvsadm -L -n --stats --exact")?;
        ensure!(
            said.contains("10.0.1.2:5001"),
            "IPVS has no service: {said}"
        );
        require_held(rig, outcome, "paths_ordered")
    })
}

/// Two rules send each packet on before it passes a veth pair, and three behind that: the kernel drops what meets five without a queue
/// in between.
fn redirects(rig: &Rig) -> Result<Outcome> {
    let (plan, knobs) = (rig.datagrams(), Knobs::default());
    rig.prepare(&plan, &knobs)?;
    let outcome = redirected(&plan);
    // Also after a failure. Each pair goes with its first end.
    topology::ip("link del r1\nlink del r2\nlink del r3\nlink del r4\nlink del r5")?;
    outcome?.judge(|outcome| rig.require_strict(&plan, &knobs, outcome))
}

fn redirected(plan: &Plan<Datagrams>) -> Result<Outcome> {
    topology::ip(&format!(
        "link add r1 type veth peer name s1
         link add r2 type veth peer name s2
         link add r3 type veth peer name s3
         link add r4 type veth peer name s4
         link add r5 type veth peer name eth1 address {CONTAINER_MAC} netns {CONTAINER}
         link set r1 up
         link set s1 up
         link set r2 up
         link set s2 up
         link set r3 up
         link set s3 up
         link set r4 up
         link set s4 up
         link set r5 up"
    ))?;
    topology::container_ip("link set eth1 up")?;
    for (from, at, to) in [
        ("veth0", "egress", "r1"),
        ("r1", "egress", "r2"),
        ("s2", "ingress", "r3"),
        ("r3", "egress", "r4"),
        ("r4", "egress", "r5"),
    ] {
        topology::tc(&format!(
            "qdisc add dev {from} clsact
             filter add dev {from} {at} matchall action mirred egress redirect dev {to}"
        ))?;
    }
    Datagrams::measure(plan, |_| Ok(()))
}

/// The client's datagrams go to the host in IPsec, and from there to the container.
fn searches(rig: &Rig) -> Result<Outcome> {
    let mut plan = dear(rig);
    plan.split = false;
    plan.load.send_at_least(LEAST_PKTS);
    rig.prepare(&plan, &Knobs::default())?;
    let before = proc_net::counter(None, "Ip", "ForwDatagrams")?;
    let outcome = unwrapped_on_host(&plan);
    let unwrapped = proc_net::counter(None, "Ip", "ForwDatagrams")? - before;
    // Also after a failure; the route goes with its device.
    topology::sysctl("net/ipv4/ip_forward", "0")?;
    ipsec::flush(None)?;
    ipsec::flush_client()?;
    outcome?.judge(|outcome| {
        ensure!(
            unwrapped >= outcome.sent / rig.most_joined(),
            "{unwrapped} of {} datagrams came through IPsec",
            outcome.sent
        );
        rig.require_unnoticed::<Datagrams>(outcome)?;
        if rig.splits() {
            // Since the module was loaded, as the first search may come before the measurement begins.
            let searches = Stats::read()?.get("device_searches")?;
            ensure!(
                (1..MOST_SEARCHES).contains(&searches),
                "{} packets caused {searches} searches for queues",
                outcome.sent
            );
        }
        Ok(())
    })
}

fn unwrapped_on_host(plan: &Plan<Datagrams>) -> Result<Outcome> {
    topology::sysctl("net/ipv4/ip_forward", "1")?;
    topology::ip(&format!(
        "route add 10.0.1.2/32 dev br0
         neigh replace 10.0.1.2 lladdr {CONTAINER_MAC} dev br0"
    ))?;
    TO_HOST.set_up(None, "fwd")?;
    TO_HOST.set_up(Some(CLIENT), "out")?;
    Datagrams::measure(plan, |live| live.flow_for(SEARCH))
}
