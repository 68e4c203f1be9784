// SPDX-License-Identifier: GPL-2.0

//! The file `flows`: a line for each flow, in a text of fixed size. What finds no room in it is counted.

use super::flow_report::{FlowLine, FlowReport, Found};
use super::reason::Reason;
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::text::Text;
use core::fmt;

/// No line is longer, with the longest addresses and lists of CPUs.
pub const MOST_LINE_BYTES: usize = 512;

/// The room that the last lines need.
const END_BYTES: usize = 2 * MOST_LINE_BYTES;

/// The room that whole flows, which may be many, leave to flows that have a slot.
const SLOT_LINES_BYTES: usize = NR_SLOTS * MOST_LINE_BYTES;

/// A list that is being written.
pub struct FlowList<'a, 'b> {
    to: &'a mut Text<'b>,
    left_out: u32,
    changing: u32,
}

impl<'a, 'b> FlowList<'a, 'b> {
    /// Begins a list.
    pub fn new(to: &'a mut Text<'b>) -> Self {
        Self {
            to,
            left_out: 0,
            changing: 0,
        }
    }

    /// Says why no flow is split, instead of a list.
    pub fn none_is_split(mut self, reason: Reason) {
        let (name, words) = (reason.name(), reason.words());
        self.end_line(format_args!("none split reason {name} # {words}"));
    }

    /// Adds the line that `line` makes of a found report, if the flow is to be listed.
    pub fn add<'r, L: fmt::Display>(
        &mut self,
        found: &'r Found,
        line: impl FnOnce(&'r FlowReport) -> FlowLine<'r, L>,
    ) {
        let report = match found {
            Found::Nothing => return,
            Found::Changing => {
                self.changing += 1;
                return;
            }
            Found::Flow(report) => report,
        };
        let line = line(report);
        if !report.is_listed(line.now_ms) {
            return;
        }
        let for_others = if report.has_slot() {
            0
        } else {
            SLOT_LINES_BYTES
        };
        if !self.to.write_line(line, END_BYTES + for_others) {
            self.left_out += 1;
        }
    }

    /// Ends the list: says how much is missing.
    pub fn end(mut self) {
        let (left_out, changing) = (self.left_out, self.changing);
        if left_out > 0 {
            self.end_line(format_args!(
                "# {left_out} more, for which there is no room"
            ));
        }
        if changing > 0 {
            self.end_line(format_args!("# {changing} more, which changed just now"));
        }
    }

    fn end_line(&mut self, line: fmt::Arguments<'_>) {
        // INVARIANT: all other lines leave room for these.
        let _ = self.to.write_line(line, 0);
    }
}
