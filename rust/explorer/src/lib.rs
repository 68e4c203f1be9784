// SPDX-License-Identifier: GPL-2.0

//! Tries every sequence of events, within bounds, on the real algorithm.
//!
//! *The algorithm.* `build.rs` copies `../../algo/mod.rs` and the files beside it, and changes their text in the places that
//! `build/changes.rs` and `faults.rs` list. Sizes are smaller, so that bounds are within reach: a window of 4 places (no flow is split with fewer), rings of one
//! batch, and 6 parked packets. Atomics count their uses, so that an event which does not end is seen, wherever its loop is. And in some
//! places a fault can be planted. The module is built of the text itself, which knows nothing of this.
//!
//! *The state* is one block of memory, which is copied to come back to it, and hashed to know it again (`image.rs`). The *events*
//! (`event.rs`) are all that the stack and the kernel may do between two calls of the algorithm. Each call is one event, but that a lane
//! parks, completes and merges in events of their own. (The instructions of two calls at the same time are for the loom tests.) All
//! orders of events are tried, with a bounded number of packets and of *incidents*: packets that are dropped, copied, or kept back
//! until a slot has begun again; lanes that die; time that passes; flows that stop and start; a path that begins to queue; a module
//! that is loaded again while tagged packets are under way.
//!
//! *The properties* (`properties.rs`) hold after each event. Each packet is delivered as often as it should be, in order, unless a batch
//! was given up, which is counted. All that can be delivered is, and what waits has a timer. No event has too many steps, and no more is
//! parked than may be. From each state on, if nothing happens but what must, all packets leave in time, and slots are given back. Tests
//! plant one fault after the other, and find each by the property that it breaks.
//!
//! GRO's join is not part of it: a packet that joins another goes wherever that goes.

include!(concat!(env!("OUT_DIR"), "/algo.rs"));

mod around;
mod books;
mod choices;
mod event;
mod faults;
mod hooks;
mod image;
mod packet;
mod properties;
mod report;
mod search;
mod stack;
mod world;

pub use books::Broken;
pub use event::{Amid, Bounds, Event, Fate, Incident, OldTags, Other, Scenario, Step, Wait};
pub use faults::{Fault, Place, FAULTS};
pub use report::{unseen, Limit, Report, Sequence};
pub use search::{explore, find};

/// The queues of the NIC, each with its dispatcher and lanes.
pub(crate) const SOURCES: usize = 2;
/// The lanes of each, on CPUs of their own.
pub(crate) const LANES: usize = 2;
/// The lanes of each, with that of the core that dispatches.
pub(crate) const CARRIERS: usize = LANES + 1;
/// The inner flows of each flow.
pub(crate) const INNER_FLOWS: usize = 2;
