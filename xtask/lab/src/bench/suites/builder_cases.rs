// SPDX-License-Identifier: GPL-2.0

//! The suite `builders`: whether the knob `build` at `auto` is as good as the better of its other values.

use mflow_protocol::bench::{Build, Stack};

use super::cases::{self, Case, StackChoice, BATCH_PKTS, MOST_LANES, QUIC_BYTES};

/// Returns cases of the suite `paper`, with vanilla, and for each number of lanes with each builder.
pub(super) fn all() -> Vec<Case> {
    let cases = [
        cases::udp(16),
        cases::udp_aggregates(QUIC_BYTES),
        cases::udp(65_507),
        cases::stream(65_536),
    ];
    cases.map(with_each_builder).into()
}

fn with_each_builder(mut case: Case) -> Case {
    case.modes
        .retain(|mode| matches!(mode.stack, StackChoice::Stack(Stack::Vanilla)));
    for lanes in [1, 2, 4, MOST_LANES] {
        case.modes.extend([
            cases::mflow(lanes, BATCH_PKTS),
            cases::built("mflow-nic", lanes, BATCH_PKTS, Build::Nic),
            cases::built("mflow-lane", lanes, BATCH_PKTS, Build::Lane),
        ]);
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_lanes_has_each_builder() {
        for case in all() {
            let rows: Vec<String> = case.modes.iter().map(|mode| mode.name_in(&case)).collect();
            assert_eq!(rows.len(), 13);
            assert!(rows[0].ends_with("/vanilla"));
            assert!(rows[12].ends_with("/mflow-lane 8"));
        }
    }
}
