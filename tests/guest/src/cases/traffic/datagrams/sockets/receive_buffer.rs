// SPDX-License-Identifier: GPL-2.0

//! A full receive buffer: the packets of several split flows, which several cores merge, share the room of one socket.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram;
use nix::sys::socket::{setsockopt, sockopt};

use crate::cases::{Case, Run};
use crate::machine::sockopt::receive_memory;
use crate::machine::{command, cpu, threads};
use crate::mflow::{self, Knobs, Mode, Stats};
use crate::network::netns;
use crate::network::topology::{CLIENT, CONTAINER};
use crate::traffic::datagrams::ledger::Ledger;
use crate::traffic::datagrams::receiver::Receiver;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Mark, STUCK};

const FLOWS: u16 = 4;
/// The buffer that distributions give to a socket. Less than a hundred of these datagrams find room there.
const DEFAULT_BUFFER_BYTES: usize = 212_992;
const DEFAULT_BUFFER_DATAGRAM_BYTES: usize = 1_400;
/// Half of the room, for three lanes, with some for what a datagram's memory is.
const DEFAULT_BUFFER_BATCH_PKTS: u64 = 24;
const LOOKED_AT_DATAGRAMS: u64 = 2_000;
/// The length of one hold of a CPU, many times what fits into such a buffer, and the number of holds.
const HOLD: Duration = Duration::from_millis(120);
const HOLDS: u32 = 6;
/// The deadline that the module has by default.
const DEADLINE_US: u32 = 200;
/// The part of the usual rate that is sent meanwhile, and the number of datagrams that are sent afterwards.
const HELD_SHARE: f64 = 0.5;
const AFTER_HOLDS: u64 = 200;
/// An emulated CPU may be away while it is not held.
const TRIES: usize = 3;
/// Room for some tens of packets, so that it is full in no time; the kernel doubles it.
const BUFFER_BYTES: usize = 16 << 10;
/// The time for which nobody reads, each time, and the number of times.
const PAUSE: Duration = Duration::from_millis(8);
const ROUNDS: u64 = 250;
/// Far more than there is room for: a reader that is slower than the sender must come to an end, too.
const MOST_AT_ONCE: usize = 512;
/// The interval at which the test looks at what the socket holds.
const LOOK: Duration = Duration::from_millis(1);
/// The time that the last packets may take.
const END: Duration = Duration::from_secs(5);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_traffic(
            "receive-buffer",
            "several split flows put no more into one socket than it has room for; what it has no room for is counted, and what it \
             takes is in order",
            Run::Plain,
            several_into_one,
        ),
        Case::of_traffic(
            "receive-buffer/default",
            "what lanes have carried meanwhile does not come to a socket with a default buffer in one go: batches are as small as that takes",
            Run::Plain,
            default_buffer,
        )
        .about_splitting(),
        Case::of_module(
            "receive-buffer/lane-held",
            "a CPU that is held for longer than a default buffer has room costs a split flow no more datagrams than a whole one, if it is a \
             lane's; what is lost had no room in the socket, and is counted there",
            Run::Plain,
            lane_held,
        ),
    ]
}

fn default_buffer(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load = plan.load.sized(DEFAULT_BUFFER_DATAGRAM_BYTES);
    let knobs = Knobs::of(4, 256);
    rig.prepare(&plan, &knobs)?;
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || Ok(UdpSocket::bind(to[0])?))?;
    // The kernel doubles it.
    setsockopt(&socket, sockopt::RcvBuf, &(DEFAULT_BUFFER_BYTES / 2)).context("SO_RCVBUF")?;
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    let mut mean_pkts = 0;
    let measured = Datagrams::measure_at(&plan, to, receiver, |live| {
        live.send_more(LOOKED_AT_DATAGRAMS)?;
        let before = Stats::read()?.get("batches")?;
        live.send_more(LOOKED_AT_DATAGRAMS)?;
        let batches = Stats::read()?.get("batches")? - before;
        mean_pkts = LOOKED_AT_DATAGRAMS / batches.max(1);
        Ok(())
    });
    measured?.judge(|outcome| {
        // A CPU that is away for long loses some, as without a split.
        outcome.require_intact()?;
        outcome.require_order()?;
        outcome.require_no_deadline()?;
        ensure!(
            !rig.splits() || mean_pkts <= DEFAULT_BUFFER_BATCH_PKTS,
            "batches have {mean_pkts} packets, and {DEFAULT_BUFFER_BATCH_PKTS} is what such a buffer takes of three lanes at once"
        );
        rig.settle()
    })
}

/// Holds the NIC's CPU while the flow is whole, and then a lane's while it is split.
fn lane_held(rig: &Rig) -> Result<Outcome> {
    let mut tries = 1;
    loop {
        let whole = with_cpu_held(rig, cpu::NIC, false)?;
        let split = with_cpu_held(rig, cpu::LANES[0], true)?;
        let compared = require_no_more(&whole, &split);
        match compared {
            Err(_) if tries < TRIES => tries += 1,
            checked => return split.judge(|_| checked),
        }
    }
}

fn require_no_more(whole: &Outcome, split: &Outcome) -> Result<()> {
    ensure!(
        whole.lost > 0,
        "the socket had room for all {} datagrams of a whole flow while its CPU was held",
        whole.sent
    );
    ensure!(
        split.lost <= whole.lost,
        "a split flow lost {} of {} datagrams, and a whole one {} of {}",
        split.lost,
        split.sent,
        whole.lost,
        whole.sent
    );
    Ok(())
}

/// Sends to a socket with a default buffer while a CPU is held some times. Fails if anything is lost otherwise than for want of room.
fn with_cpu_held(rig: &Rig, cpu: usize, is_split: bool) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = is_split;
    plan.load = plan.load.sized(DEFAULT_BUFFER_DATAGRAM_BYTES);
    plan.load.count = AFTER_HOLDS;
    plan.load.frames_per_s = plan.load.frames_per_s.map(|rate| rate * HELD_SHARE);
    let knobs = Knobs {
        merge_timeout_us: DEADLINE_US,
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    if !is_split {
        mflow::write("enabled", "0")?;
    }
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || Ok(UdpSocket::bind(to[0])?))?;
    // The kernel doubles it.
    setsockopt(&socket, sockopt::RcvBuf, &(DEFAULT_BUFFER_BYTES / 2)).context("SO_RCVBUF")?;
    let looked_at = socket.try_clone()?;
    let receiver = Receiver::of(vec![socket], plan.flows, plan.load.bytes);
    let measured = Datagrams::measure_at(&plan, to, receiver, |live| {
        let hog = Hog::start(cpu, HOLD)?;
        let held = live.wait_for("the CPU has been held", STUCK, || {
            Ok(hog.holds_ended() >= HOLDS)
        });
        hog.stop()?;
        held
    });
    let refused = u64::from(receive_memory(&looked_at)?.drops);
    measured?.judge(|outcome| {
        outcome.require_intact()?;
        ensure!(
            outcome.lost == refused,
            "{} datagrams are lost, and the socket had no room for {refused}",
            outcome.lost
        );
        rig.settle()
    })
}

fn several_into_one(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    (plan.flows, plan.load.one_socket) = (FLOWS, true);
    let knobs = Knobs::of(4, 16);
    rig.prepare(&plan, &knobs)?;
    let to = plan.addresses();
    let socket = netns::within(CONTAINER, || Ok(UdpSocket::bind(to[0])?))?;
    setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES).context("SO_RCVBUF")?;
    socket.set_nonblocking(true)?;
    let one_bytes = bytes_of_one(&socket, plan.load.bytes)?;

    let (mark, split_before) = (Mark::set()?, mflow::flows_split()?);
    let mut reader = Reader {
        socket,
        flows: vec![Ledger::default(); usize::from(FLOWS)],
        one_bytes,
        // Each core that delivers may be about to take back what it has charged for a datagram that finds no room.
        // CAST: at most 16.
        // Without our hooks each flow is merged by itself.
        delivering: if Mode::usual() == Mode::Mflow && (!rig.mflow || mflow::is_patched()?) {
            1
        } else {
            knobs.lanes as u32
        },
        most_bytes: 0,
        buffer: vec![0; plan.load.bytes],
    };
    let sender = Sender::start(SendOrder {
        from: plan.inner.client(),
        to,
        bytes: plan.load.bytes,
        rate: plan.load.frames_per_s,
    });
    let read = netns::within(CONTAINER, || {
        cpu::pin(cpu::READER)?;
        if rig.mflow {
            mflow::wait_split_since(split_before, u64::from(FLOWS))?;
        } else {
            command::wait_until("something is sent", || Ok(sender.sent() > 0))?;
        }
        reader.take_all()?;
        (0..ROUNDS).try_for_each(|_| reader.pause_and_take())
    });
    // Also after a failure.
    sender.stop_at(0);
    let sent: u64 = sender.join()?.iter().sum();
    read?;
    let dropped = threads::until_ok(END, || {
        reader.take_all()?;
        let dropped = u64::from(receive_memory(&reader.socket)?.drops);
        ensure!(
            reader.taken() + dropped == sent,
            "of {sent} datagrams, {} were read and {dropped} dropped",
            reader.taken()
        );
        Ok(())
    });
    let outcome = Outcome {
        sent,
        delivered: reader.taken(),
        reordered: reader.flows.iter().map(Ledger::reordered).sum(),
        duplicate: reader.flows.iter().map(Ledger::duplicate).sum(),
        ..mark.outcome()?
    };
    outcome.judge(|outcome| {
        dropped?;
        outcome.require_intact()?;
        outcome.require_order()?;
        let limit_bytes = receive_memory(&reader.socket)?.limit_bytes;
        ensure!(
            reader.most_bytes > limit_bytes / 2,
            "with at most {} of {limit_bytes} bytes the socket was never full",
            reader.most_bytes
        );
        if rig.mflow {
            outcome.require_no_deadline()?;
        }
        rig.settle()
    })
}

/// Returns what one datagram costs a socket, which is empty again afterwards.
fn bytes_of_one(socket: &UdpSocket, bytes: usize) -> Result<u32> {
    let to = socket.local_addr()?;
    netns::within(CLIENT, || {
        UdpSocket::bind("0.0.0.0:0")?.send_to(&vec![0; bytes], to)?;
        Ok(())
    })?;
    command::wait_until("a datagram arrives", || {
        Ok(receive_memory(socket)?.bytes > 0)
    })?;
    let one_bytes = receive_memory(socket)?.bytes;
    socket.recv(&mut vec![0; bytes])?;
    Ok(one_bytes)
}

struct Reader {
    socket: UdpSocket,
    flows: Vec<Ledger>,
    /// The memory that one datagram costs: a socket takes one more datagram than there is room for, as it looks at the room
    /// before.
    one_bytes: u32,
    /// Cores that deliver at the same time: a merge is one core's at a time, stages of several flows are on several.
    delivering: u32,
    most_bytes: u32,
    buffer: Vec<u8>,
}

impl Reader {
    fn taken(&self) -> u64 {
        self.flows.iter().map(Ledger::delivered).sum()
    }

    /// Lets the socket fill up, and fails if it takes too much.
    fn pause_and_take(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PAUSE {
            let memory = receive_memory(&self.socket)?;
            self.most_bytes = self.most_bytes.max(memory.bytes);
            ensure!(
                memory.bytes <= memory.limit_bytes + self.delivering * self.one_bytes,
                "the socket holds {} bytes, its limit is {}, and one datagram costs {}",
                memory.bytes,
                memory.limit_bytes,
                self.one_bytes
            );
            thread::sleep(LOOK);
        }
        self.take_all()
    }

    fn take_all(&mut self) -> Result<()> {
        for _ in 0..MOST_AT_ONCE {
            let Ok(length) = self.socket.recv(&mut self.buffer) else {
                break;
            };
            let head = datagram::decode(&self.buffer[..length]).context("a corrupt datagram")?;
            let flow = self.flows.get_mut(usize::from(head.flow));
            flow.context("a datagram of no flow")?.record(head.sequence);
        }
        Ok(())
    }
}
