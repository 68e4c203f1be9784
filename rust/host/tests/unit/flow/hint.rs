// SPDX-License-Identifier: GPL-2.0

//! The hints of XDP programs for flows: the bytes that are a hint, and the effects of one.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::headers::hint::{Hint, HINT_BYTES};
use mflow_algo::algo::limits::RATE_WINDOW_MS;
use mflow_algo::algo::report::flow_report::{FlowReport, Standing};
use mflow_algo::algo::report::reason::Reason;
use proptest::prelude::*;

use crate::common::cases;
use crate::world::World;

const SPLIT: [u8; HINT_BYTES] = *b"mflw\x01\x08\x01\0";
const NEVER: [u8; HINT_BYTES] = *b"mflw\x01\x08\x02\0";

const BATCH_PKTS: u32 = 16;

/// Flows with so few packets in a window are not fast.
const FEW_PKTS: u32 = 1;

fn new() -> World {
    World::new(2, BATCH_PKTS)
}

/// Lets a flow have this many packets, each in a poll of its own and carried to its end at once, and a window end.
fn window(world: &mut World, flow: u16, pkts: u32) {
    for _ in 0..pkts {
        world.receive(flow, 1);
        world.settle();
        world.end_nic_poll();
    }
    world.around.wait(u64::from(RATE_WINDOW_MS) * 1_000);
    world.end_nic_poll();
}

fn report(world: &mut World, flow: u16) -> FlowReport {
    world.report(flow).expect("the flow is listed")
}

#[test]
fn hints_are_read() {
    assert_eq!(Hint::of_metadata(SPLIT), Hint::Split);
    assert_eq!(Hint::of_metadata(NEVER), Hint::Never);
}

proptest! {
    #![proptest_config(cases(256))]

    /// One wrong byte anywhere is enough.
    #[test]
    fn what_is_not_exactly_a_hint_is_none(at in 0..HINT_BYTES, byte: u8) {
        let mut metadata = SPLIT;
        metadata[at] = byte;
        let expected = match metadata {
            SPLIT => Hint::Split,
            NEVER => Hint::Never,
            _ => Hint::None,
        };
        prop_assert_eq!(Hint::of_metadata(metadata), expected);
    }

    #[test]
    fn garbage_is_no_hint(metadata: [u8; HINT_BYTES]) {
        prop_assume!(metadata[..4] != SPLIT[..4]);
        prop_assert_eq!(Hint::of_metadata(metadata), Hint::None);
    }
}

#[test]
fn a_flow_that_is_never_to_be_split_is_whole_however_fast_it_is() {
    let mut world = new();
    world.around.packets.hint = Hint::Never;
    for _ in 0..20 {
        window(&mut world, 0, 40);
    }
    let report = report(&mut world, 0);
    assert_eq!(
        (report.now.standing, report.now.reason, report.now.hint),
        (Standing::Whole, Reason::HintNever, Hint::Never)
    );
    assert_eq!(report.now.held_until_ms, None);
    assert_eq!(world.count(Counter::ProbesSent), 0);
}

#[test]
fn a_slow_flow_is_split_at_once_if_that_is_asked() {
    let mut world = new();
    for _ in 0..2 {
        window(&mut world, 1, FEW_PKTS);
    }
    assert_eq!(world.report(1), None);
    world.around.packets.hint = Hint::Split;
    // The first packet is its probe, the second its fence.
    world.receive(0, 1);
    world.settle();
    assert_eq!(report(&mut world, 0).now.standing, Standing::Probing);
    world.receive(0, 1);
    world.settle();
    assert_eq!(report(&mut world, 0).now.standing, Standing::Split);
    // It stays so, as slow as it is.
    for _ in 0..20 {
        window(&mut world, 0, FEW_PKTS);
    }
    let after = report(&mut world, 0);
    assert_eq!(
        (after.now.standing, after.now.hint),
        (Standing::Split, Hint::Split)
    );
    assert_eq!(world.count(Counter::FlowsStopped), 0);
    // The other one gets a hint with its next packet.
    window(&mut world, 1, 3);
    assert_eq!(report(&mut world, 1).now.standing, Standing::Split);
    let nr_sent = world.nr_sent()[0];
    assert_eq!(world.delivered(0), (0..nr_sent).collect::<Vec<_>>());
}

/// A hint is no way around what protects the host.
#[test]
fn a_flow_that_is_to_be_split_waits_like_all_others() {
    let mut world = new();
    world.around.packets.hint = Hint::Split;
    world.around.orders.refuse(true);
    world.receive(0, 1);
    assert_eq!(report(&mut world, 0).now.reason, Reason::CpusBusy);

    let mut world = new();
    world.around.packets.hint = Hint::Split;
    while world.around.slots.claim().is_some() {}
    world.receive(0, 1);
    assert_eq!(report(&mut world, 0).now.reason, Reason::NoSlot);

    let mut world = new();
    world.around.packets.hint = Hint::Split;
    world.config.stopping = true;
    window(&mut world, 0, 1);
    window(&mut world, 0, 1);
    assert_eq!(report(&mut world, 0).now.reason, Reason::SwitchedOff);
    assert_eq!(world.count(Counter::ProbesSent), 0);
}

#[test]
fn a_hint_that_changes_counts_within_a_window() {
    let mut world = new();
    world.start_split(0);
    window(&mut world, 0, 40);
    world.around.packets.hint = Hint::Never;
    window(&mut world, 0, 40);
    window(&mut world, 0, 40);
    let whole = report(&mut world, 0);
    assert_eq!(
        (whole.now.standing, whole.now.reason),
        (Standing::Whole, Reason::HintNever)
    );
    world.around.packets.hint = Hint::None;
    window(&mut world, 0, 40);
    assert_eq!(report(&mut world, 0).now.standing, Standing::Split);
    // A slow flow whose hint goes is slow again.
    world.around.packets.hint = Hint::Split;
    window(&mut world, 0, FEW_PKTS);
    window(&mut world, 0, FEW_PKTS);
    world.around.packets.hint = Hint::None;
    window(&mut world, 0, FEW_PKTS);
    window(&mut world, 0, FEW_PKTS);
    window(&mut world, 0, FEW_PKTS);
    let after = report(&mut world, 0);
    assert_eq!(
        (after.now.standing, after.now.reason),
        (Standing::Whole, Reason::Slow)
    );
    let nr_sent = world.nr_sent()[0];
    assert_eq!(world.delivered(0), (0..nr_sent).collect::<Vec<_>>());
}
