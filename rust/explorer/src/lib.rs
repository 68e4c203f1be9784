// SPDX-License-Identifier: GPL-2.0

//! Tries every sequence of events, within bounds, on the real algorithm. `README.md` says what is tried, and how to read what is found.
//!
//! | | |
//! |---|---|
//! | `hooks.rs` | what the changed copy of the algorithm calls |
//! | `packet.rs`, `around.rs` | packets, paths, clocks and timers: the surroundings |
//! | `stack.rs` | what the glue does around each call of the algorithm |
//! | `image.rs` | the state, which holds all of these |
//! | `event.rs`, `choices.rs`, `world.rs` | events: which there are, which are possible, and what they do |
//! | `books.rs`, `properties.rs` | the properties, of each packet and of each state |
//! | `search.rs`, `report.rs` | the search and its results |

// `build.rs` has made this: the module `algo`, a changed copy of `../../algo/mod.rs` and the files beside it.
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
