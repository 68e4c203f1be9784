// SPDX-License-Identifier: GPL-2.0

//! The results as text.

use super::check::{Check, Used, Verdict, TOLERANCE};
use super::paper_figures::{Disorder, Flows, APP_CORES, CALM_LOAD, KERNEL_CORES, PLACEMENTS};
use super::predict::{Prediction, Question};
use super::validate::{Case, Validation};
use crate::sim::costs::rows::NATIVE;
use crate::sim::costs::settings::Settings;
use crate::sim::model::wire::Wire;

/// The length of the longest bar, in characters.
const BAR: f64 = 30.0;

pub(crate) const NOTES: &str = "\
Limits: link; nic, hop: the NIC's core, the core that RPS chooses; lanes; copy: the thread that copies to the application;
core: everything is on one.
What a model of instruction counts cannot show: cache misses and memory bandwidth, cores that share a cache or slow each
other down, hardware. A packet costs the same however many lanes there are and however fast it comes. Rates and times hold
for the clock and the instructions per cycle above; ratios do not depend on them.";

pub(crate) fn assumptions(settings: &Settings) -> String {
    format!(
        "model: {} GHz, instructions per cycle: {}, {} us to interrupt a core, {} us to wake a reader, costs +-{:.0} %,\n       \
         {} instructions for a batch beside its packets in all tables with the load controller (assumed, not measured)\n       \
         batches of {} packets, {} us merge timeout, rings of {} (NIC), {} (lane), {} (socket) packets, seed {}\n",
        settings.clock_ghz,
        settings.insn_per_cycle,
        settings.ipi_delay_us,
        settings.wake_up_us,
        settings.cost_spread * 100.0,
        settings.batch_insn,
        settings.batch_pkts,
        settings.merge_timeout_us,
        settings.nic_ring_pkts,
        settings.lane_ring_pkts,
        settings.socket_pkts,
        settings.seed
    )
}

pub(crate) fn validation(validation: &Validation) -> String {
    let mut text = String::from(
        "\nvalidation: throughput over the vanilla stack's, measured (instructions of the busiest core) and modelled\n\
         case               mode        split  lanes  batch  costs from    measured   model   error  limit\n",
    );
    for check in &validation.checks {
        let mark = match check.verdict {
            Verdict::Good => "",
            Verdict::Warning => "  warning",
            Verdict::Miss => "  MISS",
        };
        let help = if check.nic_core_helps && check.limit == crate::sim::model::scene::Limit::Lanes
        {
            "  NIC core helps"
        } else {
            ""
        };
        text += &format!(
            "{:<18} {:<11} {:<5} {:>6} {:>6}  {:<12} {:>9.2} {:>7.2} {:>+6.1}%  {:<5}{help}{mark}\n",
            check.case,
            check.mode,
            check.split.as_deref().unwrap_or("-"),
            dash(check.lanes),
            dash(check.batch_pkts),
            match check.used {
                Used::Itself => "itself",
                Used::Calibrates => "calibrates",
                Used::Predicted => "predicted",
            },
            check.measured_ratio,
            check.model_ratio,
            check.error * 100.0,
            check.limit.name()
        );
    }
    text += &summary(validation);
    for check in &validation.checks {
        if let Some(reason) = &check.reason {
            text += &format!("{}: {reason}\n", name(check));
        }
    }
    for case in &validation.cases {
        for split in case.splits.iter().filter(|split| !split.is_direct) {
            text += &format!(
                "note: {}, split: {}: costs cannot be read off any row (the NIC core was as busy as the lanes and may have \
                 carried batches itself, or the application core was the busiest); measure with more lanes or less load\n",
                case.name, split.name
            );
        }
    }
    for skipped in &validation.skipped {
        text += &format!(
            "left out: {}, {}: {}\n",
            skipped.case, skipped.mode, skipped.why
        );
    }
    text
}

pub(crate) fn name(check: &Check) -> String {
    let mut name = format!("{}, {}", check.case, check.mode);
    if check.lanes > 0 {
        name += &format!(" on {}", lanes(check.lanes));
    }
    name
}

fn lanes(count: u32) -> String {
    match count {
        1 => "1 lane".to_owned(),
        count => format!("{count} lanes"),
    }
}

fn summary(validation: &Validation) -> String {
    let of = |used| {
        let checks = validation.checks.iter();
        checks.filter(move |check| check.used == used)
    };
    let worst = of(Used::Predicted)
        .filter(|check| check.verdict != Verdict::Warning)
        .map(|check| check.error.abs())
        .fold(0.0, f64::max);
    format!(
        "predicted: {} rows, from {} that calibrate; saturated ones are off by {:.1} % at most ({:.0} % is allowed)\n\
         {} rows have costs of their own: that they fit says only that the model adds up\n",
        of(Used::Predicted).count(),
        of(Used::Calibrates).count(),
        worst * 100.0,
        TOLERANCE * 100.0,
        of(Used::Itself).count()
    )
}

pub(crate) fn fig8(validation: &Validation) -> String {
    let mut text = String::from(
        "\nMFLOW Fig. 8: one flow's throughput in each mode\n\
         case               mode         Mpkt/s  msg Gb/s  over vanilla  paper\n",
    );
    for case in &validation.cases {
        let checks = || {
            let all = validation.checks.iter();
            all.filter(|check| check.case == case.name && check.vanilla_case == case.name)
        };
        let most = checks().map(|check| check.model_ratio).fold(1.0, f64::max);
        let mut line = |mode: &str, pkts_per_s: f64, ratio: f64, paper: Option<f64>| {
            let wire = Wire::of(&case.proto, case.msg_bytes, mode != NATIVE);
            // CAST: at most BAR.
            let bar = "#".repeat((ratio / most * BAR).round() as usize);
            let paper = paper.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            text += &format!(
                "{:<18} {mode:<11} {:>7.3} {:>9.2} {ratio:>13.2} {paper:>6}  {bar}\n",
                case.name,
                pkts_per_s / 1e6,
                wire.payload_gbps(pkts_per_s)
            );
        };
        line("vanilla", case.vanilla_pkts_per_s, 1.0, None);
        for check in checks() {
            let mode = match check.lanes {
                0 => check.mode.clone(),
                lanes => format!("{} {lanes}", check.mode),
            };
            line(
                &mode,
                check.model_pkts_per_s,
                check.model_ratio,
                check.paper_ratio,
            );
        }
    }
    text
}

pub(crate) fn fig7(case: &Case, disorder: &[Disorder]) -> String {
    let mut text = format!(
        "\nMFLOW Fig. 7: what comes to the merge point before its turn, per 1000 packets (costs of {}, 2 lanes)\n\
         \x20       at {CALM_LOAD} of one lane's rate, bursts of 64 KiB    saturated\n\
         \x20batch            packets    runs                    packets    runs\n",
        case.name
    );
    for place in disorder {
        text += &format!(
            "{:>6} {:>18.1} {:>7.1} {:>26.1} {:>7.1}\n",
            place.batch_pkts,
            place.calm.pkts,
            place.calm.runs,
            place.saturated.pkts,
            place.saturated.runs
        );
    }
    text += "A run is what one poll brings of one batch: the merger's work. A batch about as large as a burst cuts it unevenly, and its\n\
             short end overtakes. Saturated lanes take turns: batches up to a poll's 64 packets change places by chance only, the\n\
             less the larger they are, while each poll brings a part of a larger one before its turn.\n";
    text
}

pub(crate) fn fig10(case: &Case, flows: &[Flows]) -> String {
    let wire = Wire::of(&case.proto, case.msg_bytes, true);
    let mut text = format!(
        "\nMFLOW Fig. 10: flows on {KERNEL_CORES} kernel and {APP_CORES} application cores, 100 Gb/s (costs of {}, 2 lanes a \
         flow, mean of {PLACEMENTS} placements)\n\
         flows   vanilla Mpkt/s  msg Gb/s   mflow Mpkt/s  msg Gb/s   gain\n",
        case.name
    );
    for place in flows {
        text += &format!(
            "{:>5} {:>16.3} {:>9.2} {:>14.3} {:>9.2} {:>+5.0}%\n",
            place.flows,
            place.vanilla_pkts_per_s / 1e6,
            wire.payload_gbps(place.vanilla_pkts_per_s),
            place.mflow_pkts_per_s / 1e6,
            wire.payload_gbps(place.mflow_pkts_per_s),
            (place.mflow_pkts_per_s / place.vanilla_pkts_per_s - 1.0) * 100.0
        );
    }
    text
}

pub(crate) fn prediction(prediction: &Prediction, question: &Question) -> String {
    let mut text = format!(
        "\nprediction: one flow as {} (split: {}, costs from its row with {})\n\
         messages of {} bytes, {:.0} bytes a packet on the link\nthroughput: Mpkt/s, Gb/s on the link, limit\n",
        prediction.case,
        prediction.split,
        lanes(prediction.from_lanes),
        prediction.msg_bytes,
        prediction.packet_bytes
    );
    text += &grid(prediction, question, |cell| {
        format!(
            "{:>7.3} {:>6.2} {:<5}",
            cell.pkts_per_s / 1e6,
            cell.wire_gbps,
            cell.limit.name()
        )
    });
    text += &format!(
        "latency at {:.0} % of that: median / 99th percentile in us (*: more than 0.1 % lost)\n",
        question.load * 100.0
    );
    text += &grid(prediction, question, |cell| {
        let lost = if cell.lost_percent > 0.1 { "*" } else { "" };
        format!("{:>9.1} / {:>7.1}{lost:<1}", cell.p50_us, cell.p99_us)
    });
    text += &format!(
        "a batch takes its lane {:.0} us, and what comes meanwhile waits for its turn: a smaller --batch-pkts lowers latency\n",
        prediction.batch_us
    );
    text + &copy_thread(prediction)
}

fn grid(
    prediction: &Prediction,
    question: &Question,
    show: impl Fn(&super::predict::Cell) -> String,
) -> String {
    let mut text = String::from("cores lanes");
    for link_gbps in &question.link_gbps {
        text += &format!("  {:>20}", format!("{link_gbps} Gb/s"));
    }
    for cells in prediction.cells.chunks(question.link_gbps.len().max(1)) {
        if let Some(first) = cells.first() {
            text += &format!("\n{:>5} {:>5}", first.cores, dash(first.lanes));
        }
        for cell in cells {
            text += &format!("  {:>20}", show(cell));
        }
    }
    text + "\n"
}

fn copy_thread(prediction: &Prediction) -> String {
    let copy = &prediction.copy;
    let rate = format!(
        "{:.3} Mpkt/s, {:.2} Gb/s on the link",
        copy.pkts_per_s / 1e6,
        copy.wire_gbps
    );
    match copy.from_lanes {
        Some(from) => format!(
            "the copy thread is the limit from {} ({} cores) on: {rate}; more lanes or a faster link change nothing\n",
            lanes(from),
            from + 2
        ),
        None => format!(
            "the copy thread is not the limit with up to {}: at {rate} it is {:.0} % busy, and the limit is: {}\n",
            lanes(copy.most_lanes),
            copy.copy_busy * 100.0,
            copy.limit.name()
        ),
    }
}

fn dash(number: u32) -> String {
    match number {
        0 => "-".to_owned(),
        number => number.to_string(),
    }
}
