// SPDX-License-Identifier: GPL-2.0

//! Packets that a virtual NIC hands over in one piece. Each counts as the packets that it was on the wire. They are large, so few
//! of them fill the memory that may wait for a lane. They end on the host, so they arrive before those that go through a tunnel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_protocol::datagram::{self, Head, Pattern};

use crate::cases::{Case, Run};
use crate::machine::command::wait_until;
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::virtual_nic::{self, VirtualNic};
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::{wait_quiet, Datagrams};
use crate::traffic::hog::Hog;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

/// Datagrams in a frame, and their size.
const DATAGRAMS: u64 = 40;
const BYTES: u16 = 1_400;
const BATCH_PKTS: u32 = 64;
/// Frames that are counted.
const COUNTED: u64 = 50;
/// A poll may not have run yet when its frame has been written.
const UNDER_WAY: u64 = 2;
/// Bytes that may wait for one CPU (`rust/README.md`), but for the rest of a batch and what one poll hands over.
const MOST_WAITING_BYTES: u64 = (16 << 20) + 8 * 65_536;
/// The length of one hold of the lane's CPU. Sending enough frames to fill the memory takes a small part of it.
const HOLD: Duration = Duration::from_secs(1);
/// The number of frames in a burst, which more than fill that memory. The frames are made before the burst, as that takes longer
/// than to send them.
const BURST_FRAMES: usize = 400;
const FRAMES_BETWEEN_LOOKS: usize = 16;
/// The number of holds that are tried. A burst may end just before a hold begins, or a slow host may send it over several holds.
const MOST_HOLDS: u32 = 8;
/// The packets of a batch of the flow beside, and its time. Batches end often, each with packets in the stack's queues.
const BESIDE_BATCH_PKTS: u32 = 16;
const BESIDE: Duration = Duration::from_secs(3);
/// The time between two frames: lanes have time for both flows.
const BETWEEN_FRAMES: Duration = Duration::from_millis(1);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "virtual-nic/count",
            "a packet of many datagrams counts as that many",
            Run::Plain,
            |_| with_split_flow(VirtualNic::add, |_| Ok(()), count),
        ),
        Case::of_module(
            "virtual-nic/queue",
            "a queue that a driver of GRO's fragments adds while splitting is on has a source",
            Run::Plain,
            |_| with_split_flow(VirtualNic::add_of_fragments, VirtualNic::add_queue, count),
        ),
        Case::of_module(
            "virtual-nic/memory",
            "what waits for a lane's CPU is bounded in bytes; more is carried inline, and nothing is lost",
            Run::Plain,
            |rig| {
                let outcome = with_split_flow(VirtualNic::add, |_| Ok(()), fill)?;
                rig.settle()?;
                Ok(outcome)
            },
        ),
        Case::of_module(
            "virtual-nic/beside",
            "packets that arrive at once end no batch of another flow, whose packets are in queues of the same CPU",
            Run::Plain,
            beside,
        ),
    ]
}

/// A flow that enters by the virtual NIC.
struct Flow {
    nic: VirtualNic,
    pattern: Pattern,
    sequence: u64,
}

impl Flow {
    fn frame(&mut self) -> Result<Vec<u8>> {
        let mut payload = vec![0; usize::from(BYTES) * DATAGRAMS as usize];
        for datagram in payload.chunks_mut(usize::from(BYTES)) {
            let head = Head {
                flow: 0,
                sequence: self.sequence,
                sent_ns: None,
            };
            datagram::encode(&self.pattern, head, datagram);
            self.sequence += 1;
        }
        virtual_nic::frame(&payload, BYTES)
    }

    fn send(&mut self) -> Result<()> {
        let frame = self.frame()?;
        self.nic.receive(&frame)
    }
}

/// Runs `part` with a flow over one lane that has begun to be split, and returns what arrived. Once splitting is on, `later` changes
/// the NIC.
fn with_split_flow(
    add: impl FnOnce() -> Result<VirtualNic>,
    later: impl FnOnce(&mut VirtualNic) -> Result<()>,
    part: impl FnOnce(&mut Flow) -> Result<()> + Send,
) -> Result<Outcome> {
    mflow::unload()?;
    let mut flow = Flow {
        nic: add()?,
        pattern: Pattern::default(),
        sequence: 0,
    };
    mflow::load(&Knobs {
        device: virtual_nic::NAME,
        ..Knobs::of(1, BATCH_PKTS)
    })?;
    later(&mut flow.nic)?;
    let socket = receiver::bind(&virtual_nic::ADDRESS)?;
    let receiver = Receiver::of(vec![socket], 1, usize::from(BYTES));
    let send = || {
        cpu::pin(cpu::NIC)?;
        wait_until("the flow is split", || {
            for _ in 0..20 {
                flow.send()?;
            }
            Ok(mflow::flows_split()? > 0)
        })?;
        part(&mut flow)
    };
    let result = threads::result(thread::scope(|scope| scope.spawn(send).join()));
    wait_quiet(|| receiver.arrivals(), flow.sequence);
    let received = receiver.stop()?;
    result?;
    let outcome = received.outcome(flow.sequence);
    // A lane that is held misses the deadline.
    let late = Stats::read()?.get("late_pkts")?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        ensure!(
            outcome.reordered <= late,
            "{} datagrams out of order, but only {late} were counted as late",
            outcome.reordered
        );
        Ok(())
    })
}

/// Splits a flow to the host beside one through the tunnel, on the same lanes' CPUs. Each has its own source.
fn beside(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::of(2, BESIDE_BATCH_PKTS);
    rig.unnoticed(&rig.plan::<Datagrams>(), &knobs, |live| {
        live.wait_split_since(0)?;
        let mut flow = Flow {
            nic: VirtualNic::add()?,
            pattern: Pattern::default(),
            sequence: 0,
        };
        mflow::write("devices", &format!("+{}", virtual_nic::NAME))?;
        let socket = receiver::bind(&virtual_nic::ADDRESS)?;
        let receiver = Receiver::of(vec![socket], 1, usize::from(BYTES));
        let (before, ended) = (mflow::flows_split()?, AtomicBool::new(false));
        let send = || {
            cpu::pin(cpu::NIC)?;
            // ORDERING: The thread is joined after the store.
            while !ended.load(Ordering::Relaxed) {
                flow.send()?;
                thread::sleep(BETWEEN_FRAMES);
            }
            Ok(())
        };
        let result = thread::scope(|scope| {
            let sender = scope.spawn(send);
            let flows = live.flow_for(BESIDE);
            // ORDERING: See the load.
            ended.store(true, Ordering::Relaxed);
            threads::result(sender.join()).and(flows)
        });
        wait_quiet(|| receiver.arrivals(), flow.sequence);
        let received = receiver.stop()?.outcome(flow.sequence);
        let split = mflow::flows_split()? - before;
        mflow::write("devices", &format!("-{}", virtual_nic::NAME))?;
        result?;
        ensure!(split > 0, "the flow beside was not split");
        received.require_whole()?;
        received.require_order()
    })
}

fn carried_pkts() -> Result<u64> {
    let stats = Stats::read()?;
    Ok(stats.get("lane_pkts")? + stats.get("inline_pkts")?)
}

fn count(flow: &mut Flow) -> Result<()> {
    let before = carried_pkts()?;
    for _ in 0..COUNTED {
        flow.send()?;
    }
    let carried = carried_pkts()? - before;
    let expected = (COUNTED - UNDER_WAY) * DATAGRAMS..=(COUNTED + UNDER_WAY) * DATAGRAMS;
    ensure!(
        expected.contains(&carried),
        "{COUNTED} frames of {DATAGRAMS} datagrams counted as {carried} packets"
    );
    Ok(())
}

fn fill(flow: &mut Flow) -> Result<()> {
    let hog = Hog::start(cpu::LANES[0], HOLD)?;
    let (mut most, mut refused) = (0, 0);
    while refused == 0 && hog.holds_ended() < MOST_HOLDS {
        let burst: Vec<_> = (0..BURST_FRAMES)
            .map(|_| flow.frame())
            .collect::<Result<_>>()?;
        for frames in burst.chunks(FRAMES_BETWEEN_LOOKS) {
            for frame in frames {
                flow.nic.receive(frame)?;
            }
            let stats = Stats::read()?;
            most = most.max(stats.get("ring_bytes")?);
            refused = refused.max(stats.get("memory_batches")?);
        }
    }
    hog.stop()?;
    ensure!(
        refused > 0 && most <= MOST_WAITING_BYTES,
        "{most} bytes waited for one CPU, and {MOST_WAITING_BYTES} may; so {refused} batches were carried inline"
    );
    Ok(())
}
