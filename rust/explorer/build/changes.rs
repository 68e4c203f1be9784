// SPDX-License-Identifier: GPL-2.0

//! The changes that are made to the text of the algorithm, whether a fault is planted or not: smaller sizes, and reports.

/// A change of the text.
pub struct Change {
    /// The file, below `rust/algo`.
    pub file: &'static str,
    /// The text that is there a single time.
    pub text: &'static str,
    /// The text that replaces it.
    pub new: &'static str,
}

/// The changes. The first are sizes, beside those that a loom build has. A batch of lanes fills a ring, and a window has room for a fence,
/// a batch of a lane and the batch that the dispatching core carries.
pub const CHANGES: &[Change] = &[
    Change {
        file: "limits.rs",
        text: "FLOW_PLACES: usize = 256;",
        new: "FLOW_PLACES: usize = 4;",
    },
    Change {
        file: "limits.rs",
        text: "MAX_LANES: usize = 16;",
        new: "MAX_LANES: usize = 2;",
    },
    Change {
        file: "limits.rs",
        text: "MAX_SLOTS: usize = 64;",
        new: "MAX_SLOTS: usize = 2;",
    },
    Change {
        file: "flow/run.rs",
        text: "RUN_PLACES: usize = 16;",
        new: "RUN_PLACES: usize = 2;",
    },
    // Cache lines make no difference here, but to the time for which a state is copied.
    Change {
        file: "lanes/queue/ring.rs",
        text: "#[repr(align(128))]",
        new: "",
    },
    Change {
        file: "lanes/ring_bytes.rs",
        text: "#[repr(align(64))]",
        new: "",
    },
    // The pace of polls needs more of them than a sequence has, so it is not looked at.
    Change {
        file: "flow/poll_pace.rs",
        text: "if pkts != self.polled_pkts {",
        new: "if false {",
    },
    // Two gaps between packets end a start.
    Change {
        file: "flow/fenced_flows.rs",
        text: "START_MS: u32 = FENCE_TIMEOUT_US / 1_000;",
        new: "START_MS: u32 = 2 * MOST_GAP_MS;",
    },
    Change {
        file: "merge/slot/mod.rs",
        text: "MAX_PARKED_PKTS: u32 = 65536;",
        new: "MAX_PARKED_PKTS: u32 = 6;",
    },
    Change {
        file: "merge/slot/mod.rs",
        text: "MAX_PARKED_BYTES: u64 = 128 << 20;",
        new: "MAX_PARKED_BYTES: u64 = 9 << 8;",
    },
    // Which batches are given up is not to be seen from outside: the packets of these alone may be late.
    Change {
        file: "merge/slot/merger.rs",
        text: "slot.counters.add_owned(Counter::DeadlineBatches, 1);",
        new: "slot.counters.add_owned(Counter::DeadlineBatches, 1);
            crate::hooks::report_given_up(slot, batch);",
    },
    Change {
        file: "merge/slot/merger.rs",
        text: "slot.counters.add_owned(Counter::OverflowBatches, 1);",
        new: "slot.counters.add_owned(Counter::OverflowBatches, 1);
            crate::hooks::report_given_up(slot, batch);",
    },
];
