// SPDX-License-Identifier: GPL-2.0

//! What the load controller and the balancer come to, as text.

use super::adaptive::{Adaptivity, Latency, LOAD, MOST_BELOW_BEST, MOST_P50, MOST_P99};
use super::costs::{FALCON, RPS};
use super::crowded::{
    Crowd, Crowded, ALWAYS_ON, CALM_LOAD, CORES, FLOW_LOAD, HOT_FLOWS, HOT_LOAD, STAGE_SHARES,
};
use super::settings::Settings;

pub(super) fn adaptivity(adaptivity: &Adaptivity) -> String {
    let latency = |latency: &Latency| format!("{:.1} / {:.1}", latency.p50_us, latency.p99_us);
    let mut text = format!(
        "\nlanes and batches by load: {}\n\
         flat out: Mpkt/s with the best fixed number of lanes up to so many, and with lanes by need\n\
         at {:.0} % of that: median / 99th percentile in us, with all lanes and whole batches, and by load\n\
         lanes  best  Mpkt/s   by need           fixed         by load   vanilla at {:.0} % of its own: {}\n",
        adaptivity.case,
        LOAD * 100.0,
        LOAD * 100.0,
        latency(&adaptivity.vanilla)
    );
    for place in &adaptivity.places {
        let off = place.pkts_per_s / place.best_pkts_per_s - 1.0;
        let slow = place.adaptive.p50_us > MOST_P50 * adaptivity.vanilla.p50_us
            || place.adaptive.p99_us > MOST_P99 * adaptivity.vanilla.p99_us;
        text += &format!(
            "{:>5} {:>5} {:>7.3} {:>7.3} {:>+5.1}% {:>17} {:>15}{}{}\n",
            place.lanes,
            place.best_lanes,
            place.best_pkts_per_s / 1e6,
            place.pkts_per_s / 1e6,
            off * 100.0,
            latency(&place.fixed),
            latency(&place.adaptive),
            if off < -MOST_BELOW_BEST {
                "  below the best"
            } else {
                ""
            },
            if slow { "  slower than allowed" } else { "" }
        );
    }
    text + &format!(
        "allowed: {:.0} % below the best, {:.0} % of vanilla's median, {:.0} % of its 99th percentile\n",
        MOST_BELOW_BEST * 100.0,
        MOST_P50 * 100.0,
        MOST_P99 * 100.0
    )
}

pub(super) fn crowded(crowded: &Crowded, settings: &Settings) -> String {
    let costs = &crowded.costs;
    let mut text = format!(
        "\nFALCON's pipeline (costs of {}), in instructions per packet: NIC {:.0}, stages {}, a hand-over between cores {:.0}\n\
         assumed: the shares {STAGE_SHARES:?} of VXLAN, bridge, veth and container; measured: NIC and sum with {}, and vanilla\n",
        crowded.case,
        costs.nic,
        costs
            .stages
            .iter()
            .map(|insn| format!("{insn:.0}"))
            .collect::<Vec<_>>()
            .join(" + "),
        costs.hop,
        if costs.is_falcons { FALCON } else { RPS }
    );
    if !costs.is_falcons {
        text += &format!(
            "without a row `{FALCON}` each of three hand-overs costs what RPS's one does, and the NIC's core does VXLAN, as with RPS: that\n\
             makes FALCON slower here than it is, at few containers slower than RPS\n"
        );
    }
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
         containers      vanilla          rps            falcon                mflow\n",
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
            "{:>10} {:>13} {:>13}  {:>13} {}  {:>13} {}\n",
            place.containers,
            show(&place.vanilla),
            show(&place.rps),
            show(&place.falcon),
            gain(&place.falcon),
            show(&place.mflow),
            gain(&place.mflow)
        );
    }
    text
}

fn fig15(crowded: &Crowded) -> String {
    let mut text = String::from("\nFALCON Fig. 15: Mpkt/s by threshold\nthreshold ");
    for count in &crowded.swept {
        text += &format!(" {:>14}", format!("{count} containers"));
    }
    for place in &crowded.fig15 {
        let name = match place.pct {
            ALWAYS_ON => "always on".to_owned(),
            pct => format!("{pct} %"),
        };
        text += &format!("\n{name:>9} ");
        for rate in &place.pkts_per_s {
            text += &format!(" {:>14.3}", rate / 1e6);
        }
    }
    text + "\n"
}

fn fig16(crowded: &Crowded) -> String {
    let spots = &crowded.fig16;
    let gain = |rate: f64| (rate / spots.static_pkts_per_s - 1.0) * 100.0;
    format!(
        "\nFALCON Fig. 16: {HOT_FLOWS} flows, {CALM_LOAD} of a core each but for one of {HOT_LOAD}: static hashing {:.3} Mpkt/s, \
         two choices {:.3} ({:+.0} %), mflow {:.3} ({:+.0} %)\n",
        spots.static_pkts_per_s / 1e6,
        spots.dynamic_pkts_per_s / 1e6,
        gain(spots.dynamic_pkts_per_s),
        spots.mflow_pkts_per_s / 1e6,
        gain(spots.mflow_pkts_per_s)
    )
}
