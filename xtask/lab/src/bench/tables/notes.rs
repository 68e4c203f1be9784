// SPDX-License-Identifier: GPL-2.0

//! Remarks on rows that a reader has to know.

use mflow_protocol::bench::{self as protocol, Load, Pace, Server, Stack, Transport};

/// A row with a larger spread of the primary figure has to say why.
pub(crate) const SPREAD_MAX: f64 = 0.05;

/// Below this size an application that takes a write at a time does more than the stack.
const SMALL_BYTES: usize = 1_024;

/// Returns what is to be said about a row that was measured, if anything is.
pub(crate) fn of(case: &protocol::Case, spread: f64, saturated: bool) -> Option<String> {
    let mut notes = Vec::new();
    if let Stack::Busy { .. } = case.stack {
        notes.push(
            "tasks take all CPUs that flows could use; their own instructions are left out, those of the timer that interrupts \
             them are not: so the two rows with busy CPUs are to be compared with each other",
        );
    }
    match case.load {
        Load::Frames { .. } | Load::Forwarded { .. } => {}
        Load::Stream { .. } => notes.push(
            "unlike iperf3, the client is outside the guest: it has no congestion control, all its segments are full and none asks \
             to be delivered at once (PSH), and the server's buffer has a fixed size; lost are segments that were sent again; a \
             message in messages/s is a wire packet",
        ),
        Load::Iperf3 { bytes, .. } => {
            notes.push("a message in messages/s is a wire packet, because TCP joins writes into full segments");
            if bytes < SMALL_BYTES {
                notes.push(
                    "iperf3's server reads as little at a time as its client writes, so the application's core is the busiest",
                );
            }
        }
        Load::Sockperf { transport, .. } => {
            notes.push("latency is half a round trip of the slowest client, over its whole life");
            if matches!(
                case.stack,
                Stack::Rps { .. }
                    | Stack::Tuned(_)
                    | Stack::Mflow { .. }
                    | Stack::Falcon { .. }
                    | Stack::HostPlus { .. }
            ) {
                notes.push(
                    "an emulated CPU that is given work waits milliseconds for the host to run it, so every hop between CPUs shows \
                     in the latency as it would not on hardware",
                );
            }
            if transport == Transport::Tcp {
                notes.push("sockperf's messages end at 65,507 bytes");
                notes.push("a message in messages/s is a wire packet");
            }
        }
        Load::Requests { server, .. } => {
            notes.push("a message in messages/s is a request");
            if server == Server::Memcached {
                notes.push("memcaslap counts latencies in classes, of which the upper end is shown: up to twice too high");
            }
        }
    }
    let from_inside = !matches!(
        case.load,
        Load::Frames { .. } | Load::Forwarded { .. } | Load::Stream { .. }
    );
    let pace = match case.load {
        Load::Sockperf { pace, .. } => pace,
        _ => Pace::FlatOut,
    };
    let is_answered = matches!(
        pace,
        Pace::PingPong
            | Pace::Rate {
                all_answered: true,
                ..
            }
    );
    if is_answered {
        notes.push(
            "few packets are on their way, so each wakes the cores that carry it: what counts is what the cores between driver and \
             socket do together, and how many packets wait for others",
        );
    } else if pace != Pace::FlatOut {
        notes.push(
            "the client sends at a fixed rate, which no stack is overloaded by: what counts is what all cores do together, and how \
             often they are interrupted; queued_spin_lock_slowpath is a core that waits for one that the host does not run",
        );
    } else if !saturated {
        notes.push(if from_inside {
            "the clients in the guest and the emulated wire are the limit, not the receiver"
        } else if matches!(case.load, Load::Forwarded { .. }) {
            "the emulated NIC brings packets more slowly than the core forwards them, so at times it waits; what a wake-up costs is \
             shared by thousands of packets where there is less than one interrupt for 1000 of them (see the interrupts)"
        } else {
            "more emulated CPUs have work than the host has cores, so at times each waits for the others"
        });
    }
    if spread > SPREAD_MAX {
        notes.push(match (saturated, &case.stack) {
            (false, _) => {
                "spread above 5 %: a core with time to spare pays a wake-up for as many packets as happen to wait"
            }
            (true, Stack::Rps { .. } | Stack::Tuned(_)) => {
                "spread above 5 %: how many packets an interrupt between cores finds depends on which of them the host runs"
            }
            (true, Stack::Falcon { .. } | Stack::HostPlus { .. }) => {
                "spread above 5 %: how much waits for a stage depends on which of the emulated CPUs the host runs"
            }
            (true, Stack::Mflow { .. }) => {
                "spread above 5 %: how much waits for a lane depends on which of the emulated CPUs the host runs"
            }
            (true, _) => "spread above 5 %: the host was busy with something else",
        });
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(load: Load) -> protocol::Case {
        protocol::Case {
            stack: Stack::Vanilla,
            front: None,
            load,
            windows: 3,
            window_ms: 2000,
        }
    }

    #[test]
    fn plain_rows_need_no_words() {
        let frames = order(Load::Frames {
            flows: 3,
            bytes: 16,
            reading: protocol::Reading::One,
        });
        assert_eq!(of(&frames, 0.05, true), None);
        assert!(of(&frames, 0.051, true).is_some_and(|note| note.contains("the host was busy")));
        assert!(of(&frames, 0.051, false).is_some_and(|note| note.contains("time to spare")));
    }

    #[test]
    fn who_is_the_limit_is_said() {
        let limit = |saturated| {
            let flows = order(Load::Iperf3 {
                flows: 5,
                bytes: 4_096,
            });
            of(&flows, 0.0, saturated).is_some_and(|note| note.contains("not the receiver"))
        };
        assert!(limit(false) && !limit(true));
        let frames = Load::Frames {
            flows: 3,
            bytes: 16,
            reading: protocol::Reading::One,
        };
        for outside in [frames, Load::Stream { bytes: 16 }] {
            let note = of(&order(outside), 0.0, false);
            assert!(note.is_some_and(|note| note.contains("the host has cores")));
        }
    }

    #[test]
    fn a_router_that_waits_waits_for_the_nic() {
        let case = order(Load::Forwarded {
            packets: protocol::Packets::V6,
            flows: 1,
        });
        let note = of(&case, 0.0, false);
        assert!(note.is_some_and(|note| note.contains("the emulated NIC")));
        assert_eq!(of(&case, 0.0, true), None);
    }

    #[test]
    fn what_a_hop_costs_here_is_said_where_there_is_one() {
        let mut case = order(Load::Sockperf {
            transport: Transport::Udp,
            clients: 3,
            bytes: 16,
            pace: Pace::FlatOut,
        });
        let hop = |case: &protocol::Case| {
            of(case, 0.0, true).is_some_and(|note| note.contains("every hop"))
        };
        assert!(!hop(&case));
        case.stack = Stack::Rps { cpus: 2 };
        assert!(hop(&case));
    }

    #[test]
    fn the_unit_of_tcp_is_said() {
        let note = |bytes| of(&order(Load::Iperf3 { flows: 1, bytes }), 0.0, true);
        assert!(note(16).is_some_and(|note| note.contains("full segments; iperf3's server")));
        assert!(note(65_536)
            .is_some_and(|note| note.contains("wire packet") && !note.contains("server")));
        let stream = of(&order(Load::Stream { bytes: 16 }), 0.0, true);
        assert!(stream.is_some_and(|note| note.ends_with("is a wire packet")));
    }

    #[test]
    fn a_fixed_rate_is_no_limit() {
        let case = order(Load::Sockperf {
            transport: Transport::Udp,
            clients: 1,
            bytes: 16,
            pace: Pace::Rate {
                msgs_per_s: 1_000,
                all_answered: false,
            },
        });
        let note = of(&case, 0.0, false).expect("something to say");
        assert!(note.contains("at a fixed rate") && !note.contains("are the limit"));
    }
}
