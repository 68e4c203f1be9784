// SPDX-License-Identifier: GPL-2.0

//! Programs that bring packets to the container as Cilium's do: they pull headers, write addresses of Ethernet and hop limits, and send
//! the packet into the container past the bridge, or let it go on.

use std::any::Any;
use std::cell::RefCell;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::CONTAINER_MAC;
use nix::net::if_::if_nametoindex;

use super::tc_program::{Code, NEXT, OK};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::new_flows::{Made, Services};
use crate::hosts::Case;
use crate::network::bpf::TcxSide;
use crate::network::topology::Family;

const TCP: u16 = 6_401;
const UDP: u16 = 6_402;
/// The hop limit with which the client sends.
const HOPS: u8 = 64;

/// Functions of the kernel.
const REDIRECT: u32 = 23;
const CHANGE_TYPE: u32 = 32;
const PULL_DATA: u32 = 39;
const REDIRECT_PEER: u32 = 155;

/// Bytes of Ethernet's and IPv4's header: hop limits of both families are among them.
const PULLED: u32 = 34;
/// Types of Ethernet as a little-endian CPU reads them.
const IPV4: u32 = 0x0008;
const IPV6: u32 = 0xdd86;

/// The place of a program, and what it does with packets that it has rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the tunnel, from where packets go to the container's own end of the pair.
    ToPeer,
    /// The same, held by a link.
    ToPeerByLink,
    /// At the tunnel, from where packets go to the host's end of the pair.
    ToPair,
    /// At the host's end of the pair, behind the bridge.
    BehindBridge,
    /// The same, behind two programs that links hold there; links hold one for the other direction, too.
    BehindLinks,
}

/// Programs that stay attached until the end of the scope, or until their device goes.
type Attached = Vec<Box<dyn Any>>;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, inner, place| {
        Case::new(
            name,
            has,
            "each datagram of a split flow has passed each program once, all arrive in order, and so do new connections and flows beside it",
            move |host| rewritten(host, inner, place),
        )
    };
    let to_peer = "a BPF program at the tunnel that rewrites packets and puts them into the container, as Cilium has it";
    let at_tcx =
        "several such programs at tcx of the host's end of the veth, in both directions, and one of tc behind them";
    vec![
        case("bpf/to-peer/v4", to_peer, Family::V4, Place::ToPeer),
        case("bpf/to-peer/v6", to_peer, Family::V6, Place::ToPeer),
        Case::new(
            "bpf/to-peer/during",
            "such a program that another one replaces while a flow is split",
            "each datagram of a split flow has passed that one of two programs which was there when it was sent, all arrive in order, and so \
             do new connections and flows beside it",
            replaced,
        ),
        case(
            "bpf/to-pair",
            "such a program that sends them to the host's end of the container's veth",
            Family::V4,
            Place::ToPair,
        ),
        case(
            "bpf/behind-bridge",
            "such a program at that end, behind a bridge",
            Family::V4,
            Place::BehindBridge,
        ),
        case(
            "bpf/tcx/to-peer",
            "such a program at the tunnel's tcx, as Cilium has it since 1.16",
            Family::V4,
            Place::ToPeerByLink,
        ),
        case("bpf/tcx/pair/v4", at_tcx, Family::V4, Place::BehindLinks),
        case("bpf/tcx/pair/v6", at_tcx, Family::V6, Place::BehindLinks),
    ]
}

impl Place {
    fn attach(self) -> Result<Attached> {
        let by_tc = |device, way| -> Result<Box<dyn Any>> {
            Ok(Box::new(rewriter(self, 1)?.attach(None, device, way)?))
        };
        let by_link = |code: Code, device, side| -> Result<Box<dyn Any>> {
            Ok(Box::new(code.link(device, side)?))
        };
        let (pair, tunnel) = ("veth0", "vxlan0");
        Ok(match self {
            Self::ToPeer | Self::ToPair => vec![by_tc(tunnel, "ingress")?],
            Self::ToPeerByLink => vec![by_link(rewriter(self, 1)?, tunnel, TcxSide::Ingress)?],
            Self::BehindBridge => vec![by_tc(pair, "egress")?],
            Self::BehindLinks => vec![
                by_link(in_chain(), pair, TcxSide::Egress)?,
                by_link(in_chain(), pair, TcxSide::Egress)?,
                by_link(in_chain(), pair, TcxSide::Ingress)?,
                by_tc(pair, "egress")?,
            ],
        })
    }

    /// Returns how many programs a packet for the container passes.
    fn programs(self) -> u8 {
        match self {
            Self::ToPeer | Self::ToPeerByLink | Self::ToPair | Self::BehindBridge => 1,
            Self::BehindLinks => 3,
        }
    }
}

/// Returns a program that takes one off the hop limit, and leaves the packet to the next one.
fn in_chain() -> Code {
    let mut code = hops_less(1);
    code.name("pass");
    code.end(NEXT);
    code
}

/// Begins a program that takes some off the hop limit. What is no packet of IP goes on at `pass`.
fn hops_less(hops: u8) -> Code {
    let hops = i32::from(hops);
    let mut code = Code::default();
    code.copy(6, 1);
    code.set(2, PULLED);
    code.call(PULL_DATA);
    code.go_if(false, 0, 0, "pass");
    // Where the packet begins and ends.
    code.read(4, 7, 6, 76);
    code.read(4, 8, 6, 80);
    code.copy(2, 7);
    code.plus(2, PULLED.cast_signed());
    code.go_if_greater(2, 8, "pass");
    code.read(2, 3, 7, 12);
    code.go_if(false, 3, IPV4, "v6");
    code.read(1, 3, 7, 22);
    code.plus(3, -hops);
    code.write(1, 7, 22, 3);
    // The header's checksum is one's complement.
    code.read(2, 3, 7, 24);
    code.plus(3, hops);
    code.copy(4, 3);
    code.add(0x77, 4, 0, 0, 16);
    code.add(0x0f, 3, 4, 0, 0);
    code.write(2, 7, 24, 3);
    code.go("addresses");
    code.name("v6");
    code.go_if(false, 3, IPV6, "pass");
    code.read(1, 3, 7, 21);
    code.plus(3, -hops);
    code.write(1, 7, 21, 3);
    code.name("addresses");
    code
}

/// Returns a program that takes some off the hop limit, writes the container's address and another sender's, and sends packets
/// on.
fn rewriter(place: Place, hops: u8) -> Result<Code> {
    let mut code = hops_less(hops);
    let mac = |text: &str| -> Result<[u32; 2]> {
        let mut bytes = [0; 8];
        for (byte, part) in bytes.iter_mut().zip(text.split(':')) {
            *byte = u8::from_str_radix(part, 16)?;
        }
        let [a, b, c, d, e, f, ..] = bytes;
        Ok([
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, 0, 0]),
        ])
    };
    for (offset, address) in [(0, CONTAINER_MAC), (6, "02:00:00:00:09:09")] {
        let [first, second] = mac(address)?;
        code.write_number(4, 7, offset, first);
        code.write_number(2, 7, offset + 4, second);
    }
    let function = match place {
        Place::ToPeer | Place::ToPeerByLink => Some(REDIRECT_PEER),
        Place::ToPair => Some(REDIRECT),
        Place::BehindBridge | Place::BehindLinks => None,
    };
    if let Some(function) = function {
        // The tunnel has taken the packet for another host's.
        code.copy(1, 6);
        code.set(2, 0);
        code.call(CHANGE_TYPE);
        code.set(1, if_nametoindex("veth0")?);
        code.set(2, 0);
        code.call(function);
        code.exit();
    }
    code.name("pass");
    code.end(OK);
    Ok(code)
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
}

fn rewritten(host: &Host, inner: Family, place: Place) -> Result<()> {
    let programs = RefCell::new(Attached::new());
    let set_up = || {
        programs.borrow_mut().clear();
        *programs.borrow_mut() = place.attach()?;
        Ok(())
    };
    let hops = HOPS - place.programs();
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let services = Services::of_container(inner, [TCP, UDP], [TCP, UDP])?;
        let (arrived, made) =
            Elephant::plain(host, inner)?.run(host.datagrams / 4, |_| services.make())?;
        Ok(Seen { arrived, made })
    })?;
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        let passed = seen.arrived.count(|look| look.hops == Some(hops));
        ensure!(
            passed + seen.arrived.refused == seen.arrived.sent,
            "{passed} of {} datagrams have passed each program once: {:?}",
            seen.arrived.sent,
            seen.arrived.looks
        );
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    on.require_split()
}

/// Demands that each datagram has passed the program that was there.
fn replaced(host: &Host) -> Result<()> {
    let programs = RefCell::new(Attached::new());
    let attach = |hops| -> Result<()> {
        let program = rewriter(Place::ToPeer, hops)?.attach(None, "vxlan0", "ingress")?;
        programs.borrow_mut().push(Box::new(program));
        Ok(())
    };
    let change = Change {
        when: Rules::During,
        make: &|| attach(2),
        undo: &|| attach(1),
    };
    let compared = host.compare(
        Family::V4,
        change.when,
        || attach(1),
        |host| {
            let services = Services::of_container(Family::V4, [TCP, UDP], [TCP, UDP])?;
            let elephant = Elephant::plain(host, Family::V4)?;
            let (arrived, made) = elephant.run(host.datagrams / 4, |live| {
                live.beside(&change, || services.make())
            })?;
            Ok(Seen { arrived, made })
        },
    )?;
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        seen.arrived
            .require_spans(|look| look.hops == Some(HOPS - 2))?;
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    on.require_split()
}
