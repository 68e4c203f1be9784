// SPDX-License-Identifier: GPL-2.0

//! The transitions of a flow: the event that leads from one state to the next.
//!
//! A change of a state is held against the table where debug assertions are compiled, as in the host's tests. A test shows that each
//! row is reached. The picture in `state.rs` is made from the rows, and from the comments of [`Event`] (`cargo xtask docs`).

use crate::algo::report::reason::Reason;

/// A state of a flow, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Counted on the ordinary path.
    Counting,
    /// Asked where it ends.
    Probing,
    /// Split as far as its inner flows have had a fence.
    Starting,
    /// Split.
    Split,
    /// Carried inline, behind all that was split.
    Stopping,
    /// On the ordinary path, behind all that was carried inline.
    Draining,
}

/// An event that leads from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The flow is fast and has a slot: a packet goes as the probe.
    Probe,
    /// The probe was seen: a packet goes as the fence.
    Fence,
    /// The probe was seen: a packet goes as the first of several fences, as each inner flow has its own.
    FirstFence,
    /// No inner flow needs a fence any more.
    Fenced,
    /// All that was split has been delivered.
    Delivered,
    /// Nothing of the flow is missing any more.
    Drained,
    /// There is a reason to keep the flow whole.
    Cause(Reason),
}

/// A state, an event, and the state that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state in which the event happens.
    pub from: StateKind,
    /// The event.
    pub event: Event,
    /// The state that follows.
    pub next: StateKind,
}

const fn row(from: StateKind, event: Event, next: StateKind) -> Transition {
    Transition { from, event, next }
}

/// All transitions.
pub const TRANSITIONS: &[Transition] = {
    use Event::{Cause, Delivered, Drained, Fence, Fenced, FirstFence, Probe};
    use StateKind::{Counting, Draining, Probing, Split, Starting, Stopping};
    &[
        row(Counting, Probe, Probing),
        row(Probing, Fence, Split),
        row(Probing, FirstFence, Starting),
        row(Probing, Cause(Reason::ProbeUnseen), Counting),
        row(Probing, Cause(Reason::PathQueues), Counting),
        row(Probing, Cause(Reason::PathOrdered), Counting),
        row(Probing, Cause(Reason::New), Counting),
        row(Probing, Cause(Reason::Silent), Counting),
        row(Probing, Cause(Reason::SwitchedOff), Counting),
        row(Starting, Fenced, Split),
        row(Starting, Cause(Reason::PathQueues), Stopping),
        row(Starting, Cause(Reason::PathOrdered), Stopping),
        row(Starting, Cause(Reason::PathLost), Stopping),
        row(Starting, Cause(Reason::CpusBusy), Stopping),
        row(Starting, Cause(Reason::HintNever), Stopping),
        row(Starting, Cause(Reason::Slow), Stopping),
        row(Starting, Cause(Reason::New), Stopping),
        row(Starting, Cause(Reason::Silent), Stopping),
        row(Starting, Cause(Reason::SwitchedOff), Stopping),
        row(Split, Cause(Reason::PathQueues), Stopping),
        row(Split, Cause(Reason::PathOrdered), Stopping),
        row(Split, Cause(Reason::PathLost), Stopping),
        row(Split, Cause(Reason::CpusBusy), Stopping),
        row(Split, Cause(Reason::HintNever), Stopping),
        row(Split, Cause(Reason::Slow), Stopping),
        row(Split, Cause(Reason::Silent), Stopping),
        row(Split, Cause(Reason::SwitchedOff), Stopping),
        row(Stopping, Delivered, Draining),
        row(Stopping, Drained, Counting),
        row(Draining, Drained, Counting),
    ]
};
