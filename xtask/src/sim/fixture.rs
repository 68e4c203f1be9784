// SPDX-License-Identifier: GPL-2.0

//! For tests only: scenes and benchmark rows. All figures are made up.

use super::load::Load;
use super::model::{Knobs, Place, Scene, Stream, WhenFull};

/// Defaults without delays.
pub(super) fn knobs() -> Knobs {
    Knobs {
        batch_pkts: 64,
        merge_timeout_ps: 200_000_000,
        lane_ring_pkts: 1_024,
        nic_ring_pkts: 1_024,
        backlog_pkts: 1_000,
        socket_pkts: 4_096,
        ipi_ps: 0,
        wake_up_ps: 0,
        cost_spread: 0.1,
        when_full: WhenFull::Lose,
        seed: 1,
    }
}

/// One stream over `lanes` lanes; the NIC on core 0, the application on core 1.
pub(super) fn scene(load: Load, nic_ps: f64, lane_ps: f64, lanes: usize, app_ps: f64) -> Scene {
    let place = |core, packet_ps| Place { core, packet_ps };
    Scene {
        cores: 2 + lanes,
        streams: vec![Stream {
            load,
            nic: place(0, nic_ps),
            hops: Vec::new(),
            lanes: (0..lanes).map(|lane| place(2 + lane, lane_ps)).collect(),
            app: place(1, app_ps),
        }],
        knobs: knobs(),
        stall: None,
        stream_pkts: u64::MAX,
        warm_up_pkts: 20_000,
        count_pkts: 40_000,
    }
}
