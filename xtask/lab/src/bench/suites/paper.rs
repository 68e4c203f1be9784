// SPDX-License-Identifier: GPL-2.0

//! The numbers that the text of the papers states about the cases that are measured here.
//!
//! MFLOW is Lei et al., *Accelerating Packet Processing in Container Overlay Networks via Packet-level Parallelism*; HIKE is
//! Mayer et al., *Performance Monitoring with H²: Hybrid Kernel/eBPF data plane for SRv6 based Hybrid SDN*; FALCON is Lei et al.,
//! *Parallelizing Packet Processing in Container Overlay Networks* (EuroSys '21). Numbers that only a picture shows are left out.
//! Both measured throughput and latency on hardware.

use crate::bench::suites::kind::Kind;
use xtask::results::row::{Paper, Row};

/// MFLOW section V, experimental configurations: two splitting cores unless otherwise specified.
const LANES: u32 = 2;

/// The size of the messages in MFLOW Fig. 10 for which the text states numbers.
pub(crate) const FLOWS_MSG_BYTES: u32 = 4096;

/// Case, mode, figure, and the mode's throughput over the vanilla overlay's.
const THROUGHPUT: &[(&str, &str, &str, f64)] = &[
    // MFLOW section II-B: "significant performance drops - 40% for TCP and 80% for UDP", container against native, 64 KB.
    ("tcp-65536", "native", "MFLOW Fig. 4", 1.0 / (1.0 - 0.40)),
    ("udp-65507", "native", "MFLOW Fig. 4", 1.0 / (1.0 - 0.80)),
    // MFLOW section II-B: RPS "by 6% for UDP and 24% for TCP", 64 KB.
    ("tcp-65536", "rps", "MFLOW Fig. 4", 1.24),
    ("udp-65507", "rps", "MFLOW Fig. 4", 1.06),
    // MFLOW section II-B: device-level pipelining, UDP "by 80% (compared to vanilla overlay)". For TCP it is "similar" to
    // RPS, which is no number.
    ("udp-65507", "falcon-dev", "MFLOW Fig. 4", 1.80),
    // MFLOW section II-B: function-level pipelining, TCP "by 20% (compared to RPS)", and RPS is the entry above.
    ("tcp-65536", "falcon-func", "MFLOW Fig. 4", 1.24 * 1.20),
    // MFLOW section V-A: "especially with large message sizes (e.g., 64 KB), by 81% for TCP and 139% for UDP".
    ("tcp-65536", "mflow", "MFLOW Fig. 8", 1.81),
    ("udp-65507", "mflow", "MFLOW Fig. 8", 2.39),
    // MFLOW section V-A, multi-flow testing, TCP with messages of 4 KB: "by 24% with 5 concurrent flows", "by 11% with 10
    // flows and by 5% under 20 flows".
    ("flows-4096-5", "mflow", "MFLOW Fig. 10, 4 KB", 1.24),
    ("flows-4096-10", "mflow", "MFLOW Fig. 10, 4 KB", 1.11),
    ("flows-4096-20", "mflow", "MFLOW Fig. 10, 4 KB", 1.05),
];

/// Latency of a mode as a part of the vanilla overlay's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Delay {
    pub(crate) figure: &'static str,
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

pub(crate) fn of(case: &str, mode: &str, lanes: u32) -> Option<Paper> {
    if mode == "mflow" && lanes != LANES {
        return None;
    }
    THROUGHPUT
        .iter()
        .find(|entry| (entry.0, entry.1) == (case, mode))
        .map(|&(_, _, figure, speedup_vs_vanilla)| Paper {
            figure: figure.to_owned(),
            speedup_vs_vanilla,
        })
}

pub(crate) fn delay(row: &Row) -> Option<Delay> {
    if row.mode != "mflow" || row.lanes != LANES {
        return None;
    }
    let (figure, p50, p99) = match (row.case.as_str(), row.clients) {
        // MFLOW section V-A, single-flow latency, 64 KB: the median "by ~46%" and the 99th percentile "by ~21% for TCP".
        ("latency-tcp-65536", _) => ("MFLOW Fig. 9", Some(1.0 - 0.46), 1.0 - 0.21),
        // MFLOW section V-B, data caching: the 99th percentile "by 26% when we used one client".
        ("memcached", 1) => ("MFLOW Fig. 13", None, 1.0 - 0.26),
        // The same with ten clients: "the average and tail latency by 48% and 47%". An average is no median.
        ("memcached", 10) => ("MFLOW Fig. 13", None, 1.0 - 0.47),
        _ => return None,
    };
    let p99 = Some(p99);
    Some(Delay { figure, p50, p99 })
}

/// Returns how many NET_RX softirqs a mode has, as a part of the vanilla overlay's.
pub(crate) fn net_rx_softirqs(mode: &str) -> Option<f64> {
    match mode {
        // FALCON section 3.2, Fig. 4: the overlay's "was 3.6x that of the native network".
        "native" => Some(1.0 / 3.6),
        // FALCON section 6.3, Fig. 19: "more softirqs, e.g., by 44.6%".
        "falcon-dev" => Some(1.446),
        _ => None,
    }
}

/// Returns what else the papers say in words about a figure and does not fit into a column.
pub(crate) fn remarks(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Udp => &[
            // MFLOW section V-A and II-B, FALCON section 2.2.
            "MFLOW Fig. 8: 21 % above FALCON at 64 KB, more than 40 % above it at 16 B; its clients were the limit at 64 KB.",
            "MFLOW Fig. 4 has the overlay 80 % below native at 64 KB, FALCON Fig. 2 53 % below (100 Gbit/s).",
            // FALCON section 6.1, single-flow stress test.
            "FALCON Fig. 10: up to 87 % of native's rate at 100 Gbit/s.",
        ],
        Kind::Tcp => &[
            "MFLOW Fig. 8: 29.8 Gbit/s against 26.6 native and 22 % above FALCON at 64 KB; little gain at 16 B, where the client \
             was the limit.",
            "MFLOW Fig. 8 splits before skb allocation and uses a second core behind each splitting core.",
            "MFLOW Fig. 4 has the overlay 40 % below native at 64 KB, FALCON Fig. 2 47 % below (100 Gbit/s).",
        ],
        // MFLOW section III-A.
        Kind::Order => &["MFLOW Fig. 7: little overhead for keeping the order with a batch of 256 packets or more."],
        // MFLOW section V-A.
        Kind::Latency => &["MFLOW Fig. 9: above native and below vanilla, RPS and FALCON in every case."],
        // FALCON sections 3.2 and 6.3.
        Kind::Rates => &[
            "FALCON Fig. 4: 3.6 times as many NET_RX softirqs in the overlay as native, and many more rescheduling interrupts. Since \
             then (Linux 4.19, 5.4) one softirq polls what the polls in it have scheduled, those of VXLAN and veth, so the overlay \
             has about as many as native.",
            "FALCON Fig. 19 (16 B, up to 400,000 packets per second): CPU time as vanilla's at low rates, up to 10 % more at high \
             ones; 44.6 % more softirqs than vanilla.",
        ],
        // MFLOW section V-A, multi-flow testing and overhead.
        Kind::Flows => &[
            "MFLOW Fig. 10: 5 % above FALCON with 10 flows of 64 KB, equal with 20; 10 cores for the stack, 5 for applications.",
            "MFLOW Fig. 12 (10 flows, 64 KB): standard deviation of the load of 10 cores 11.6 points, FALCON's 20.5; 15 % more \
             load than FALCON.",
            // FALCON section 6.1, multi-flow throughput.
            "FALCON Fig. 13: up to 63 % above the overlay with RPS, 58 to 75 % of native; Host+ up to 56 % above native, FALCON's \
             overlay up to 37 % above native (TCP, 4 KB).",
        ],
        // HIKE sections 5.2 and 5.3.
        Kind::Hike => &[
            "HIKE Fig. 6: 10.6 million packets per second with a redirect alone, 9.7 with a chain of 8 programs before it.",
            "HIKE Fig. 7: the kernel 1.0, pass-through 5.1, FW 5.0, MON+FW 3.5, ENC+FW 3.1, ENC+MON+FW 2.5 million packets per second, \
             however many flows are monitored.",
            "HIKE Fig. 8: from 1 to 4 SIDs, an ingress (ENC+MON+FW) goes from 2.4 to 2.1 million packets per second, a waypoint (MON+FW) \
             from 3.5 to 2.9.",
        ],
        Kind::Answers | Kind::Overhead | Kind::Other => &[],
        // MFLOW section V-B, FALCON section 6.2.
        Kind::Applications => &[
            "FALCON Fig. 17 (web serving, 200 users): up to 300 % more operations, response times up to 63 % lower.",
            "MFLOW Fig. 11 (web serving, 200 users): 2.3 to 7.5 times vanilla's rate of successful operations, response time \
             35 to 65 % lower.",
            "MFLOW Fig. 13 (memcached, 10 clients): average latency 48 % below vanilla's, 22 % below FALCON's.",
            "FALCON Fig. 18 (memcached, 10 clients): average latency 51 %, 99th percentile 53 % below vanilla's; with one \
             client the 99th percentile 7 % below.",
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;

    #[test]
    fn the_headline_numbers_are_found() {
        let speedup =
            |case, mode, lanes| of(case, mode, lanes).map(|paper| paper.speedup_vs_vanilla);
        assert_eq!(speedup("udp-65507", "mflow", 2), Some(2.39));
        assert_eq!(speedup("tcp-65536", "mflow", 2), Some(1.81));
        let native = speedup("udp-65507", "native", 0).expect("stated");
        assert!((native - 5.0).abs() < 1e-9, "{native}");
    }

    #[test]
    fn what_the_papers_do_not_state_has_no_entry() {
        assert_eq!(of("udp-65507", "mflow", 4), None);
        assert_eq!(of("udp-16", "mflow", 2), None);
        assert_eq!(of("udp-65507", "vanilla", 0), None);
        assert_eq!(of("tcp-65536", "falcon-dev", 0), None);
    }

    #[test]
    fn two_statements_of_one_paper_agree() {
        // Section V-A puts MFLOW 22 % above FALCON's best for TCP; the entry comes from section II-B.
        let func = of("tcp-65536", "falcon-func", 0).expect("stated");
        assert!((func.speedup_vs_vanilla - 1.81 / 1.22).abs() < 0.01);
    }

    #[test]
    fn latency_depends_on_the_case() {
        let mut row = fixture::row("latency-tcp-65536", "mflow", 2);
        assert_eq!(delay(&row).and_then(|delay| delay.p50), Some(0.54));
        row.lanes = 4;
        assert_eq!(delay(&row), None);
        let mut row = fixture::row("memcached", "mflow", 2);
        row.clients = 10;
        assert_eq!(delay(&row).and_then(|delay| delay.p50), None);
        assert_eq!(delay(&row).and_then(|delay| delay.p99), Some(0.53));
    }
}
