// SPDX-License-Identifier: GPL-2.0

//! The places of the algorithm's text where faults can be planted.
//!
//! `build.rs` changes them in a copy (see `lib.rs`). It fails where a text is not found, or more than once: then the algorithm has
//! changed, and so must these.

/// A place of the text at which a fault can be planted.
pub struct Place {
    /// The file, below `rust/algo`.
    pub file: &'static str,
    /// The text that is there a single time.
    pub text: &'static str,
    /// The expression in that text which is right.
    pub right: &'static str,
    /// The expression that takes its place if the fault is planted.
    pub wrong: &'static str,
}

/// A fault that can be planted.
pub struct Fault {
    /// The name by which it is planted.
    pub name: &'static str,
    /// The places in which it is planted, all at the same time.
    pub places: &'static [Place],
}

/// All faults.
pub const FAULTS: &[Fault] = &[
    // A number that no batch has is taken for that of a batch to come, as an old tag may have one. Its packets are parked there, the
    // deadline gives up batches that nobody has opened, and the search for queued packets goes over all numbers there are.
    Fault {
        name: "future",
        places: &[
            Place {
                file: "merge/slot/window_place.rs",
                text: "if word & NAME == name(batch) {",
                right: "word & NAME == name(batch)",
                wrong: "word & NAME == name(batch) || word & OPEN == 0",
            },
            Place {
                file: "merge/slot/merger.rs",
                text: "let Some(complete) = place.is_complete(batch) else {",
                right: "place.is_complete(batch)",
                wrong: "place.is_complete(batch).or(Some(false))",
            },
            Place {
                file: "flow/lifecycle.rs",
                text: "let batches = (0..WINDOW_BATCHES).map(",
                right: "(0..WINDOW_BATCHES)",
                wrong: "0..u32::MAX",
            },
            Place {
                file: "flow/lifecycle.rs",
                text: "batches.take_while(|batch| !is_before(last, *batch))",
                right: "!is_before(last, *batch)",
                wrong: "*batch != last.wrapping_add(1)",
            },
        ],
    },
    // What is left when the budget is used up is dropped.
    Fault {
        name: "rest",
        places: &[Place {
            file: "merge/slot/merger.rs",
            text: "slot.rest.park(rest);",
            right: "slot.rest.park(rest)",
            wrong: "drop(rest)",
        }],
    },
    // What is taken out of a place also stays there.
    Fault {
        name: "taken",
        places: &[Place {
            file: "lanes/queue/chain.rs",
            text: "self.top.swap(ptr::null_mut(), Ordering::Acquire)",
            right: "self.top.swap(ptr::null_mut(), Ordering::Acquire)",
            wrong: "self.top.load(Ordering::Acquire)",
        }],
    },
    // The turn goes on before the batch is complete.
    Fault {
        name: "turn",
        places: &[Place {
            file: "merge/slot/merger.rs",
            text: "(!complete && !self.may_skip(batch, sink))",
            right: "!complete && !self.may_skip(batch, sink)",
            wrong: "false",
        }],
    },
    // No batch waits for the fence.
    Fault {
        name: "fence",
        places: &[Place {
            file: "merge/slot/window_place.rs",
            text: "self.word.store(name(batch), Ordering::Release);",
            right: "name(batch)",
            wrong: "name(batch) | if lane == super::ORDINARY_PATH { CARRIED } else { 0 }",
        }],
    },
    // A flow that stops goes back to the ordinary path before all that was split has been delivered.
    Fault {
        name: "drained",
        places: &[
            Place {
                file: "flow/lifecycle.rs",
                text: "if stopping.is_open && self.slot(slot).next() == stopping.batch {",
                right: "self.slot(slot).next() == stopping.batch",
                wrong: "true",
            },
            Place {
                file: "flow/lifecycle.rs",
                text: "if self.slot(slot).is_drained_up_to(stopping.batch) {",
                right: "self.slot(slot).is_drained_up_to(stopping.batch)",
                wrong: "true",
            },
        ],
    },
    // An inner flow is split without a fence of its own.
    Fault {
        name: "inner",
        places: &[Place {
            file: "flow/fenced_flows.rs",
            text: "self.left_ms != 0 && !self.has(inner_flow())",
            right: "self.left_ms != 0 && !self.has(inner_flow())",
            wrong: "false",
        }],
    },
    // A batch does not wait for its packets that were queued on the path.
    Fault {
        name: "queued",
        places: &[Place {
            file: "merge/slot/window_place.rs",
            text: ".then_some(word & (CARRIED | QUEUED) == CARRIED)",
            right: "word & (CARRIED | QUEUED) == CARRIED",
            wrong: "word & CARRIED != 0",
        }],
    },
    // The numbers of a slot begin again with each flow.
    Fault {
        name: "numbers",
        places: &[Place {
            file: "merge/slot_pool.rs",
            text: "self.share_out();\n                    return Some(free);",
            right: "self.share_out()",
            wrong: "{ self.share_out(); self.slot(free).start_at(0) }",
        }],
    },
    // A core that parks late packets does not have them delivered.
    Fault {
        name: "late",
        places: &[Place {
            file: "merge/slot/mod.rs",
            text: "self.late.park(chain);\n            return true;",
            right: "return true",
            wrong: "return false",
        }],
    },
    // The deadline is started a single time.
    Fault {
        name: "timer",
        places: &[Place {
            file: "merge/slot/mod.rs",
            text: "self.armed.swap(false, Ordering::Relaxed);",
            right: "self.armed.swap(false, Ordering::Relaxed)",
            wrong: "false",
        }],
    },
    // Each look at a batch that holds others up begins its time again.
    Fault {
        name: "silent",
        places: &[Place {
            file: "merge/slot/merger.rs",
            text: "slot.blocked_progress.load(Ordering::Relaxed) != progress",
            right: "slot.blocked_progress.load(Ordering::Relaxed) != progress",
            wrong: "true",
        }],
    },
    // Nothing bounds what is parked.
    Fault {
        name: "share",
        places: &[Place {
            file: "merge/slot/mod.rs",
            text: "(parked.pkts() > LEAST_SHARE_PKTS || parked.bytes() > LEAST_SHARE_BYTES) && {",
            right: "parked.pkts() > LEAST_SHARE_PKTS || parked.bytes() > LEAST_SHARE_BYTES",
            wrong: "false",
        }],
    },
    // A flow that is whole again keeps its slot.
    Fault {
        name: "slot",
        places: &[Place {
            file: "flow/lifecycle.rs",
            text: "self.host.slots().release(usize::from(slot));",
            right: "self.host.slots().release(usize::from(slot))",
            wrong: "()",
        }],
    },
    // Whether a batch is complete is looked at, and written later: a core that stands still in between completes the batch that has the
    // place then.
    Fault {
        name: "completed",
        places: &[Place {
            file: "merge/slot/window_place.rs",
            text: "self.update(batch, Ordering::Release, |word| Some(word | CARRIED))",
            right: "self.update(batch, Ordering::Release, |word| Some(word | CARRIED))",
            wrong: "self.word.load(Ordering::Acquire) & NAME == name(batch) && {
                self.word.fetch_or(CARRIED, Ordering::Release);
                true
            }",
        }],
    },
    // A core that gives the token back does not ask whether others have added to it.
    Fault {
        name: "token",
        places: &[Place {
            file: "merge/slot/merger.rs",
            text: "match token.give_back_unless_added_to() {",
            right: "token.give_back_unless_added_to()",
            wrong: "{ token.give_back(); Ok::<_, MergeToken<'_, P>>(()) }",
        }],
    },
    // A core that has parked does not ask whether the turn has passed meanwhile.
    Fault {
        name: "passed",
        places: &[Place {
            file: "merge/slot/mod.rs",
            text: "if is_before(batch, next) {",
            right: "is_before(batch, next)",
            wrong: "false",
        }],
    },
];
