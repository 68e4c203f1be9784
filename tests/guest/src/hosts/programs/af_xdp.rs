// SPDX-License-Identifier: GPL-2.0

//! AF_XDP: a program that gives what is for one port to a socket past the stack, and lets all else pass, as intrusion detection and
//! packet processors in user space have it. The program is in the NIC's driver, behind it, or at the container's device.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::{self, MIN_BYTES};
use nix::sys::socket::{setsockopt, sockopt};

use super::tc_program::{Code, Offsets};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::{Elephant, Fate};
use crate::hosts::host::{Host, Rules};
use crate::hosts::new_flows::{Made, Services};
use crate::hosts::Case;
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};
use crate::network::xdp_socket::XdpSocket;
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::sender::{SendOrder, Sender};

const TCP: u16 = 6_601;
const UDP: u16 = 6_602;
/// The port whose datagrams are the socket's. Nobody listens there.
const TAKEN: u16 = 6_603;
/// The number of datagrams that are sent to the socket, and their rate per second: all of them have room in the socket, whose
/// reader comes late.
const DATAGRAMS: u64 = 1_000;
const PPS: f64 = 800.0;
/// Four default buffers: where a program is in its driver, virtio_net takes a page for each packet, and a default buffer has room for
/// fewer of them than a batch has.
const ROOM: usize = 4 * 212_992;
const UDP_NUMBER: u32 = 17;
const UDP_BYTES: usize = 8;

/// A function of the kernel, and the answer of a program that lets a packet pass.
const REDIRECT_MAP: u32 = 51;
const PASS: u32 = 2;

/// A place of a program, and of the socket that it gives packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the NIC, where packets still are the tunnel's.
    Nic,
    Container,
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, has, (inner, place, mode), fate| {
        Case::new(
            name,
            has,
            "an AF_XDP socket gets each datagram for its port once and in order, and nothing else; a fast flow, new connections and new \
             flows beside it come as with enabled 0",
            move |host| beside_socket(host, inner, place, mode, fate),
        )
        .with_fate(fate)
    };
    let in_driver = "an AF_XDP socket at the NIC, to which a program in the driver sends one port";
    let behind_driver = "such a socket of a generic program";
    let in_container = "an AF_XDP socket at the container's device";
    let queues = Fate::Kept("path_queues");
    let (native, generic) = (XdpMode::Native, XdpMode::Generic);
    vec![
        case(
            "bpf/socket/nic/v4",
            in_driver,
            (Family::V4, Place::Nic, native),
            Fate::Split,
        ),
        case(
            "bpf/socket/nic/v6",
            in_driver,
            (Family::V6, Place::Nic, native),
            Fate::Split,
        ),
        case(
            "bpf/socket/generic",
            behind_driver,
            (Family::V4, Place::Nic, generic),
            queues,
        ),
        case(
            "bpf/socket/veth/v4",
            in_container,
            (Family::V4, Place::Container, native),
            queues,
        ),
        case(
            "bpf/socket/veth/v6",
            in_container,
            (Family::V6, Place::Container, native),
            queues,
        ),
        case(
            "bpf/socket/veth/generic",
            in_container,
            (Family::V4, Place::Container, generic),
            queues,
        ),
    ]
}

/// Returns the place of the port to which a packet goes, the second field of its transport header.
fn target(at: &Offsets) -> i16 {
    at.ports + 2
}

/// Returns the place of a datagram's payload.
fn payload(at: &Offsets) -> usize {
    // CAST: some dozen bytes.
    at.ports as usize + UDP_BYTES
}

/// Returns a program that gives datagrams for the port to the socket that a map has for their queue.
fn code(family: Family, map: u32) -> Result<Vec<u64>> {
    let at = Offsets::of(family);
    let mut code = Code::default();
    code.copy(6, 1);
    code.read(4, 7, 6, 0);
    code.read(4, 8, 6, 4);
    code.copy(2, 7);
    code.plus(2, i32::from(target(&at)) + 2);
    code.go_if_greater(2, 8, "pass");
    code.read(2, 3, 7, 12);
    code.go_if(false, 3, at.kind, "pass");
    code.read(1, 3, 7, at.protocol);
    code.go_if(false, 3, UDP_NUMBER, "pass");
    code.read(2, 3, 7, target(&at));
    code.go_if(false, 3, u32::from(TAKEN.to_be()), "pass");
    code.map(1, map);
    // The queue; if there is no socket for it, the packet passes.
    code.read(4, 2, 6, 16);
    code.set(3, PASS);
    code.call(REDIRECT_MAP);
    code.exit();
    code.name("pass");
    code.end(PASS);
    code.finish()
}

/// A socket with its program, which goes first.
struct Attached {
    _program: Xdp,
    socket: XdpSocket,
}

impl Place {
    /// Returns who sends to the port at this place, and whom.
    fn ends(self, family: Family) -> (IpAddr, IpAddr) {
        match self {
            Self::Nic => {
                let (server, client) = family.ends();
                (client, server)
            }
            Self::Container => (family.client(), family.container()),
        }
    }

    fn attach(self, family: Family, mode: XdpMode) -> Result<Attached> {
        let attach = || {
            let socket = XdpSocket::open("eth0", 0)?;
            let program = Xdp::send_to_socket("eth0", mode, &socket, |map| code(family, map))?;
            Ok(Attached {
                _program: program,
                socket,
            })
        };
        match self {
            Self::Nic => {
                let queues = topology::receive_queues("eth0")?;
                ensure!(
                    queues == 1,
                    "eth0 has {queues} queues, and the socket is for one"
                );
                attach()
            }
            // Pairs have one.
            Self::Container => netns::within(CONTAINER, attach),
        }
    }
}

/// The frames that have come to the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Taken {
    delivered: u64,
    reordered: u64,
    duplicate: u64,
    /// Frames that are no datagram for the port.
    others: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    taken: Taken,
}

fn beside_socket(
    host: &Host,
    inner: Family,
    place: Place,
    mode: XdpMode,
    fate: Fate,
) -> Result<()> {
    let attached = RefCell::new(None);
    let set_up = || {
        *attached.borrow_mut() = Some(place.attach(inner, mode)?);
        Ok(())
    };
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        // The queue takes one socket at a time.
        let attached = attached.borrow_mut().take();
        seen(host, inner, place, fate, attached.context("no socket")?)
    })?;
    let wanted = Taken {
        delivered: DATAGRAMS,
        ..Taken::default()
    };
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        ensure!(
            seen.taken == wanted,
            "the socket got {:?}, and it has to be {wanted:?}; counters: {}",
            seen.taken,
            seen.arrived.counters()
        );
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    match fate {
        Fate::Split => on.require_split(),
        Fate::Kept(_) => on.require_kept(),
        Fate::Either => Ok(()),
    }
}

fn seen(
    host: &Host,
    inner: Family,
    place: Place,
    fate: Fate,
    mut attached: Attached,
) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP, UDP])?;
    let mut elephant = Elephant::plain(host, inner)?;
    elephant.fate = fate;
    // The other flow comes by the same CPUs.
    elephant.pps /= 2.0;
    if place == Place::Nic {
        for socket in &elephant.sockets {
            setsockopt(socket, sockopt::RcvBufForce, &ROOM)?;
        }
    }
    let (from, to) = place.ends(inner);
    let order = SendOrder {
        from,
        to: vec![SocketAddr::new(to, TAKEN)],
        bytes: MIN_BYTES,
        rate: Some(PPS),
    };
    let (arrived, made) = elephant.run(host.datagrams / 4, |_| {
        let sender = Sender::start(order);
        sender.stop_at(DATAGRAMS);
        let made = services.make();
        // Also after a failure.
        sender.join()?;
        made
    })?;
    let mut ledger = Ledger::default();
    let frames = attached.socket.take()?;
    let mut others = 0;
    for frame in &frames {
        match number(frame, inner) {
            Some(sequence) => ledger.record(sequence),
            None => others += 1,
        }
    }
    Ok(Seen {
        arrived,
        made,
        taken: Taken {
            delivered: ledger.delivered(),
            reordered: ledger.reordered(),
            duplicate: ledger.duplicate(),
            others,
            dropped: attached.socket.dropped()?,
        },
    })
}

/// Returns the number of a datagram for the port; nothing if it is another frame, or not as it was sent.
fn number(frame: &[u8], family: Family) -> Option<u64> {
    let at = Offsets::of(family);
    // CAST: some dozen bytes.
    let port = frame.get(target(&at) as usize..)?.first_chunk()?;
    let payload = frame.get(payload(&at)..)?.get(..MIN_BYTES)?;
    let is_taken = u16::from_be_bytes(*port) == TAKEN;
    let head = datagram::decode(payload).filter(|_| is_taken)?;
    Some(head.sequence)
}

#[cfg(test)]
mod tests {
    use mflow_protocol::datagram::{Head, Pattern};

    use super::*;

    #[test]
    fn datagrams_are_read_in_frames() {
        let mut payload = [0; MIN_BYTES];
        let head = Head {
            flow: 0,
            sequence: 7,
            sent_ns: None,
        };
        datagram::encode(&Pattern::default(), head, &mut payload);
        let frame = |headers: usize, port: u16| {
            let mut frame = vec![0; headers];
            frame[headers - 6..headers - 4].copy_from_slice(&port.to_be_bytes());
            frame.extend(payload);
            // As short frames are padded.
            frame.extend([0; 4]);
            frame
        };
        let (v4, v6) = (14 + 20 + 8, 14 + 40 + 8);
        assert_eq!(number(&frame(v4, TAKEN), Family::V4), Some(7));
        assert_eq!(number(&frame(v6, TAKEN), Family::V6), Some(7));
        assert_eq!(number(&frame(v4, TCP), Family::V4), None);
        assert_eq!(number(&[0; 20], Family::V4), None);
    }
}
