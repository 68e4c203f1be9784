// SPDX-License-Identifier: GPL-2.0

//! The results of the load controller and the balancer, as text.

use super::adaptive::{
    Adaptivity, Latency, Limit, LIMITS, LOAD, MOST_BELOW_BEST, MOST_P50, MOST_P99,
};
use super::crowded::{Crowd, Crowded, ALWAYS_ON, CALM_LOAD, CORES, FLOW_LOAD, HOT_FLOWS, HOT_LOAD};
use crate::sim::costs::rows::{FALCON_DEV, MFLOW};
use crate::sim::costs::settings::Settings;

pub(crate) fn adaptivity(adaptivity: &Adaptivity) -> String {
    let latency = |latency: &Latency| format!("{:.1} / {:.1}", latency.p50_us, latency.p99_us);
    let mut text = format!(
        "\nlanes and batches by load: {}\n\
         flat out: Mpkt/s with the best fixed number of lanes up to this many, and with lanes by need\n\
         at {:.0} % of that: median / 99th percentile in us, with all lanes and whole batches, and by load\n\
         lanes  best  Mpkt/s   by need           fixed         by load   vanilla at {:.0} % of its own: {}\n",
        adaptivity.case,
        LOAD * 100.0,
        LOAD * 100.0,
        latency(&adaptivity.vanilla)
    );
    for place in &adaptivity.places {
        text += &format!(
            "{:>5} {:>5} {:>7.3} {:>7.3} {:>+5.1}% {:>17} {:>15}\n",
            place.lanes,
            place.best_lanes,
            place.best_pkts_per_s / 1e6,
            place.pkts_per_s / 1e6,
            (place.pkts_per_s / place.best_pkts_per_s - 1.0) * 100.0,
            latency(&place.fixed),
            latency(&place.adaptive),
        );
    }
    for limit in LIMITS {
        let missed: Vec<String> = adaptivity
            .missing(limit)
            .map(|place| place.lanes.to_string())
            .collect();
        let verdict = match missed.as_slice() {
            [] => "met".to_owned(),
            lanes => format!("MISSED with lanes: {}", lanes.join(", ")),
        };
        text += &format!("{}: {verdict}\n", limit_name(limit));
    }
    text
}

fn limit_name(limit: Limit) -> String {
    match limit {
        Limit::Throughput => format!(
            "throughput at most {:.0} % below the best fixed number of lanes",
            MOST_BELOW_BEST * 100.0
        ),
        Limit::P50 => format!("median at most {:.0} % of vanilla's", MOST_P50 * 100.0),
        Limit::P99 => format!(
            "99th percentile at most {:.0} % of vanilla's",
            MOST_P99 * 100.0
        ),
    }
}

pub(crate) fn crowded(crowded: &Crowded, settings: &Settings) -> String {
    let costs = &crowded.costs;
    let mut text = format!(
        "\nFALCON's pipeline (costs of {}), in instructions per packet: NIC {:.0}, stages {}, a hand-over between cores {:.0}\n\
         measured with {FALCON_DEV} (VXLAN; bridge and veth; the container); a hand-over is a third of what all cores do more than with \
         vanilla\n\
         falcon: as in the paper, each packet asks for loads; falcon-dev: the module's choices, and all stages move at once\n",
        crowded.case,
        costs.nic,
        costs
            .stages
            .iter()
            .map(|insn| format!("{insn:.0}"))
            .collect::<Vec<_>>()
            .join(" + "),
        costs.hop,
    );
    text += &fig14(crowded, settings);
    text += &fig15(crowded);
    text += &fig16(crowded);
    text
}

fn fig14(crowded: &Crowded, settings: &Settings) -> String {
    let mut text = format!(
        "\nFALCON Fig. 14: containers on {CORES} cores, each offering {FLOW_LOAD} of what a core carries; mean of {} \
         placements\n\
         Mpkt/s and how busy the cores are, and the gain over RPS; threshold {} %, loads sampled each {} ms\n\
         containers      vanilla          rps            falcon              falcon-dev              mflow\n",
        settings.placements, settings.load_threshold_pct, settings.load_sample_ms
    );
    for place in &crowded.fig14 {
        let show = |crowd: &Crowd| {
            format!(
                "{:>7.3} {:>4.0}%",
                crowd.pkts_per_s / 1e6,
                crowd.busy * 100.0
            )
        };
        let gain = |crowd: &Crowd| {
            format!(
                "{:>+4.0}%",
                (crowd.pkts_per_s / place.rps.pkts_per_s - 1.0) * 100.0
            )
        };
        text += &format!(
            "{:>10} {:>13} {:>13}  {:>13} {}  {:>13} {}  {:>13} {}\n",
            place.containers,
            show(&place.vanilla),
            show(&place.rps),
            show(&place.falcon),
            gain(&place.falcon),
            show(&place.falcon_dev),
            gain(&place.falcon_dev),
            show(&place.mflow),
            gain(&place.mflow)
        );
    }
    text
}

fn fig15(crowded: &Crowded) -> String {
    let mut text = String::from("\nFALCON Fig. 15: Mpkt/s by threshold\nthreshold ");
    for name in ["falcon", FALCON_DEV] {
        for count in &crowded.swept {
            text += &format!(" {:>25}", format!("{name}, {count} containers"));
        }
    }
    for place in &crowded.fig15 {
        let name = match place.pct {
            ALWAYS_ON => "always on".to_owned(),
            pct => format!("{pct} %"),
        };
        text += &format!("\n{name:>9} ");
        for rate in place.pkts_per_s.iter().chain(&place.dev_pkts_per_s) {
            text += &format!(" {:>25.3}", rate / 1e6);
        }
    }
    text + "\n"
}

fn fig16(crowded: &Crowded) -> String {
    let spots = &crowded.fig16;
    let mut text = format!(
        "\nFALCON Fig. 16: {HOT_FLOWS} flows, {CALM_LOAD} of a core each but for one of {HOT_LOAD}\n\
         \x20                          Mpkt/s   gain   out of order, per 1000\n"
    );
    for (name, crowd) in [
        ("falcon, static hashing", &spots.fixed),
        ("falcon, two choices", &spots.dynamic),
        ("falcon-dev, always", &spots.dev_fixed),
        ("falcon-dev, by load", &spots.dev_dynamic),
        (MFLOW, &spots.mflow),
    ] {
        text += &format!(
            "{name:<24} {:>8.3} {:>+5.0}% {:>24.2}\n",
            crowd.pkts_per_s / 1e6,
            (crowd.pkts_per_s / spots.fixed.pkts_per_s - 1.0) * 100.0,
            crowd.reordered
        );
    }
    text
}
