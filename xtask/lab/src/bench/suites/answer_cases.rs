// SPDX-License-Identifier: GPL-2.0

//! The cases of a flow that is split and has little to do: nobody's packet is to wait for another one's there, and none is to cost more
//! between driver and socket than without mflow.

use mflow_protocol::bench::{Load, Pace, Stack, Transport};

use super::cases::{self, Case, BATCH_PKTS};

/// The bytes of a request and of its answer: a short one, and one that nearly fills a packet.
const BYTES: [usize; 2] = [64, 1_400];
/// A tenth of what one client here sends flat out to the vanilla overlay.
const TENTH_MSGS_PER_S: u32 = 2_000;

pub(super) fn all() -> Vec<Case> {
    let transports = [Transport::Udp, Transport::Tcp];
    let sizes = transports
        .into_iter()
        .flat_map(|transport| BYTES.map(|bytes| (transport, bytes)));
    sizes
        .flat_map(|(transport, bytes)| {
            let tenth = Pace::Rate {
                msgs_per_s: TENTH_MSGS_PER_S,
                all_answered: true,
            };
            let paces = [("", Pace::PingPong), ("-tenth", tenth)];
            paces.map(|(end, pace)| {
                let load = Load::Sockperf {
                    transport,
                    clients: 1,
                    bytes,
                    pace,
                };
                let name = format!("answer-{}-{bytes}{end}", cases::name_of(transport));
                let modes = vec![
                    cases::mode("vanilla", Stack::Vanilla),
                    cases::mflow(2, BATCH_PKTS),
                    cases::mflow_by_need(2),
                ];
                cases::case(name, load, modes)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_asked_for_in_turn_and_at_a_rate() {
        let names: Vec<String> = all().into_iter().map(|case| case.name).collect();
        assert_eq!(
            names[..4],
            [
                "answer-udp-64",
                "answer-udp-64-tenth",
                "answer-udp-1400",
                "answer-udp-1400-tenth"
            ]
        );
        assert_eq!(names.len(), 8);
    }
}
