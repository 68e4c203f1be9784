// SPDX-License-Identifier: GPL-2.0

//! The grids and remarks of one figure, for the terminal.

use std::collections::BTreeMap;

use super::figure::{label, Case, Figure};
use super::grid::Grid;
use super::notes::SPREAD_MAX;
use super::{cores, events};
use crate::bench::suites::kind::Kind;
use crate::bench::suites::paper;
use xtask::results::row::{Instructions, Row};

const LIMITS: &str = "Instructions do not show cache misses, the latency of interrupts between cores, memory bandwidth, or how \
                      a real NIC behaves: ratios on hardware differ.";

const NOT_SATURATED: &str = "saturated NO: the busiest core had time to spare. Such a core pays a wake-up for a handful of \
                             packets, so its figure is not that of full load.";

/// The meaning of the columns that count disorder. The application sees none of the disorder at the merge.
const EARLY: &str = "early/1000: of 1000 packets, those that reached the merge before their turn and waited there; reordered: \
                     those that reached the application out of order.";

/// The meaning of the columns of requests that are answered.
const ANSWERS: &str = "to socket: what the cores of NIC and lanes do together, from the driver to the socket; joined/1000: of 1000 \
                       packets, those that were in the stack together with others and became a part of one of them; early/1000: \
                       those that waited for their turn at the merge.";

/// The knob of the module that a benchmark sets to another value than a user would.
const DEADLINE: &str = "mflow is measured with merge_timeout_us at its most, 1 s: an emulated lane may be away for tens of \
                        milliseconds, which a real one is not. A lane that is away shows in latency, not in instructions.";

const HIKE: [&str; 4] = [
    "speed-up: how many times less the core does than in the kernel's path that forwards the same way, but monitors nothing: \
     kernel-enc for what encapsulates, kernel-end for what the kernel sends on to the next SID, else kernel-fw. above pass: \
     instructions more than with a program that sends all packets out as they are.",
    "Packets leave by a device with the least behind it: a dummy for the kernel's, which takes no frames from XDP; for those, a veth \
     whose other end drops them at XDP, on the same core.",
    "lost: packets that came in and did not leave, if more than a ring has room for; fewer are an error.",
    "hike-stream is no router: TCP ends here, and speed-up is to vanilla. +hike: an instance on the NIC has one class, which no packet \
     has; +lanes: all packets take the chain lanes,fw-kernel. mflow-nic builds packets on the NIC's core without an XDP program, as \
     mflow has to with one.",
];

#[derive(Debug)]
pub(crate) enum Block {
    Grid { title: String, grid: Grid },
    Notes(Vec<String>),
}

/// Returns everything about one figure, in the order in which it is read.
pub(crate) fn blocks(figure: &Figure<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Grid {
            title: "Instructions per delivered wire packet, busiest core (median of the windows)"
                .to_owned(),
            grid: primary(figure),
        },
        Block::Notes(notes(figure)),
    ];
    let mut add = |title: String, grid: Grid| {
        if !grid.is_empty() {
            blocks.push(Block::Grid { title, grid });
        }
    };
    add(
        "Secondary: emulated wall clock, which says nothing about speed on hardware".to_owned(),
        secondary(figure),
    );
    add(
        "Requests and what they take on the busiest core".to_owned(),
        requests(figure),
    );
    // A long row of batch sizes differs in nothing but the size.
    let detailed = figure.kind != Kind::Order;
    for case in figure.cases.iter().filter(|_| detailed) {
        let about = about(case);
        add(
            format!("{about}: instructions and load of each core"),
            cores::shares(case, figure.kind == Kind::Flows),
        );
        add(
            format!("{}: {}", case.name, events::TITLE),
            events::grid(case),
        );
        add(
            format!("{}: where the instructions go ({})", case.name, cores::DOT),
            cores::functions(case),
        );
    }
    blocks
}

/// Returns the grid that is compared with the papers.
fn primary(figure: &Figure<'_>) -> Grid {
    let overhead = figure.kind == Kind::Overhead;
    let mut grid = Grid::default();
    grid.left(["case", "mode"]);
    // Batch sizes are compared with each other, not with another stack.
    let order = figure.kind == Kind::Order;
    let ratios: &[&str] = match figure.kind {
        Kind::Overhead => &["difference"],
        Kind::Order => &[],
        Kind::Hike => &["speed-up", "above pass"],
        _ => &["speed-up", "paper"],
    };
    grid.right(["busiest", "min..max"].iter().chain(ratios).copied());
    grid.right(["total", "spread", "saturated", "lost", "reordered"]);
    grid.right(order.then_some("early/1000"));
    let answers = figure.kind == Kind::Answers;
    let of_answers = ["to socket", "joined/1000", "early/1000"];
    grid.right(of_answers.into_iter().filter(|_| answers));
    for case in &figure.cases {
        let without = ["compiled-out", "off"];
        let without = without.iter().find_map(|mode| {
            let mut rows = case.rows.iter();
            rows.find(|row| row.mode == *mode)?.insn_per_packet.as_ref()
        });
        let pass = case.rows.iter().find(|row| row.mode == "pass");
        let pass = pass.and_then(|row| row.busiest());
        for (place, row) in case.rows.iter().enumerate() {
            let name = if place == 0 { case.name } else { "" };
            let mut cells = vec![name.to_owned(), label(row)];
            let insn = row.insn_per_packet.as_ref();
            cells.push(insn.map_or("not available".to_owned(), |insn| whole(insn.busiest)));
            let range = insn.and_then(|insn| insn.min.zip(insn.max));
            cells.push(or_dash(range, |(min, max)| {
                format!("{}..{}", whole(min), whole(max))
            }));
            if overhead {
                cells.push(or_dash(insn.zip(without), difference));
            } else if !order {
                cells.push(or_dash(row.speedup_vs_vanilla, ratio));
                cells.push(if figure.kind == Kind::Hike {
                    or_dash(row.busiest().zip(pass), |(ours, pass)| whole(ours - pass))
                } else {
                    or_dash(row.paper.as_ref(), |paper| ratio(paper.speedup_vs_vanilla))
                });
            }
            cells.push(or_dash(insn.and_then(|insn| insn.total), whole));
            cells.push(or_dash(row.spread, percent));
            cells.push(or_dash(insn.and(row.saturated), |is_so| {
                if is_so { "yes" } else { "NO" }.to_owned()
            }));
            cells.push(or_dash(insn, |_| row.lost.to_string()));
            cells.push(or_dash(insn, |_| row.reordered.to_string()));
            if answers {
                cells.push(or_dash(insn.and_then(|insn| insn.to_socket), whole));
                cells.push(or_dash(row.per_1000(row.joined), whole));
            }
            if order || answers {
                cells.push(or_dash(row.per_1000(row.early), whole));
            }
            grid.row(cells);
        }
    }
    grid
}

fn difference((insn, without): (&Instructions, &Instructions)) -> String {
    format!("{:+.1} %", (insn.busiest / without.busiest - 1.0) * 100.0)
}

/// Rates and latencies, with the papers' latencies where they state any.
fn secondary(figure: &Figure<'_>) -> Grid {
    let all = || figure.cases.iter().flat_map(|case| &case.rows);
    let latencies = all().any(|row| row.latency_us.is_some() || paper::delay(row).is_some());
    let mut grid = Grid::default();
    grid.left(["case", "mode"]);
    grid.right(["messages/s"]);
    if latencies {
        grid.right(["p50 us", "of vanilla", "paper"]);
        grid.right(["p99 us", "of vanilla", "paper"]);
    }
    for case in &figure.cases {
        let vanilla = case
            .rows
            .iter()
            .find(|row| row.mode == "vanilla")
            .and_then(|row| row.latency_us);
        let mut name = case.name;
        for row in &case.rows {
            let stated = paper::delay(row);
            let measured = row.wall_msgs_per_s.is_some() || row.latency_us.is_some();
            if !measured && stated.is_none() {
                continue;
            }
            let mut cells = vec![std::mem::take(&mut name).to_owned(), label(row)];
            cells.push(or_dash(row.wall_msgs_per_s, whole));
            if latencies {
                let both = row.latency_us.zip(vanilla);
                cells.push(or_dash(row.latency_us, |latency| whole(latency.p50)));
                cells.push(or_dash(both, |(ours, base)| ratio(ours.p50 / base.p50)));
                cells.push(or_dash(stated.and_then(|stated| stated.p50), ratio));
                cells.push(or_dash(row.latency_us, |latency| whole(latency.p99)));
                cells.push(or_dash(both, |(ours, base)| ratio(ours.p99 / base.p99)));
                cells.push(or_dash(stated.and_then(|stated| stated.p99), ratio));
            }
            grid.row(cells);
        }
    }
    grid
}

/// Returns the cost of a request, for cases whose load is made of requests.
fn requests(figure: &Figure<'_>) -> Grid {
    let mut grid = Grid::default();
    grid.left(["case", "mode"]);
    grid.right([
        "instructions per request",
        "requests per million instructions",
    ]);
    for case in &figure.cases {
        let mut name = case.name;
        for row in &case.rows {
            if let Some(insn) = row.insn_per_request {
                let per_million = format!("{:.1}", 1e6 / insn);
                grid.row(vec![
                    std::mem::take(&mut name).to_owned(),
                    label(row),
                    whole(insn),
                    per_million,
                ]);
            }
        }
    }
    grid
}

/// Returns what a reader has to know before comparing.
fn notes(figure: &Figure<'_>) -> Vec<String> {
    let rows: Vec<&Row> = figure
        .cases
        .iter()
        .flat_map(|case| case.rows.iter().copied())
        .collect();
    let mut lines = remarked(&rows);
    let unsaturated = |row: &&Row| row.insn_per_packet.is_some() && row.saturated == Some(false);
    // A router's rows say themselves what it means for them.
    if figure.kind != Kind::Hike && rows.iter().any(unsaturated) {
        lines.push(NOT_SATURATED.to_owned());
    }
    match figure.kind {
        Kind::Overhead => lines.push(
            "difference: of the busiest core, to the kernel without mflow's hooks, or to one without mflow where there are no hooks. Each window has a boot of its own, because \
             the seeds of hash tables make more of a difference than idle hooks."
                .to_owned(),
        ),
        Kind::Order => lines.push(EARLY.to_owned()),
        Kind::Answers => lines.push(ANSWERS.to_owned()),
        Kind::Hike => lines.extend(HIKE.map(str::to_owned)),
        _ => lines.push(
            "speed-up: how many times less the busiest core does than vanilla's in the same case."
                .to_owned(),
        ),
    }
    if figure.kind == Kind::Flows {
        lines.push(cores::DEVIATION.to_owned());
        let other = |row: &&Row| row.paper.is_some() && row.msg_bytes != paper::FLOWS_MSG_BYTES;
        if let Some(row) = rows.iter().find(|row| other(row)) {
            lines.push(format!(
                "paper: for messages of {} B, while {} has {} B.",
                paper::FLOWS_MSG_BYTES,
                row.case,
                row.msg_bytes
            ));
        }
    }
    if rows.iter().any(|row| row.lanes > 0) {
        lines.push(DEADLINE.to_owned());
    }
    lines.extend(sources(&rows));
    lines.extend(
        paper::remarks(figure.kind)
            .iter()
            .map(|line| (*line).to_owned()),
    );
    lines.push(LIMITS.to_owned());
    lines
}

/// Returns the notes of the rows; the same note of several rows appears once.
fn remarked(rows: &[&Row]) -> Vec<String> {
    let mut said: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for row in rows {
        let mut say = |text: String| {
            said.entry((label(row), text)).or_default().push(&row.case);
        };
        let absent = row.insn_per_packet.is_none();
        match &row.note {
            Some(note) if absent => say(format!("not available: {note}")),
            Some(note) => say(note.clone()),
            None if absent => say("not available, and the row does not say why".to_owned()),
            None => {}
        }
        let wide = row.spread.filter(|spread| *spread > SPREAD_MAX);
        if let (Some(spread), None) = (wide, &row.note) {
            say(format!(
                "spread {}, above {}, and the row does not say why",
                percent(spread),
                percent(SPREAD_MAX)
            ));
        }
    }
    let mut modes: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ((mode, text), cases) in said {
        modes
            .entry((cases.join(", "), text))
            .or_default()
            .push(mode);
    }
    modes
        .into_iter()
        .map(|((cases, text), modes)| format!("{} in {cases}: {text}", modes.join(", ")))
        .collect()
}

/// Returns a note on the sources of the numbers in the columns `paper`.
fn sources(rows: &[&Row]) -> Vec<String> {
    let mut figures: Vec<&str> = Vec::new();
    for row in rows {
        let throughput = row.paper.as_ref().map(|paper| paper.figure.as_str());
        let latency = paper::delay(row).map(|delay| delay.figure);
        for figure in [throughput, latency].into_iter().flatten() {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
    }
    if figures.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "paper: throughput or latency over the vanilla overlay's, on hardware, as the text on {} states it.",
        figures.join(", ")
    )]
}

/// Returns the name of the case and a description of its load.
fn about(case: &Case<'_>) -> String {
    let Some(row) = case.rows.first() else {
        return case.name.to_owned();
    };
    format!(
        "{} ({} B messages, clients {}, flows {}, {}, {})",
        case.name, row.msg_bytes, row.clients, row.flows, row.nic, row.load
    )
}

fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or("-".to_owned(), text)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::tables::figure::group;

    fn notes_of(rows: &[Row]) -> String {
        group(rows)
            .iter()
            .flat_map(notes)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn the_same_note_is_said_once() {
        let notes = notes_of(&fixture::rows());
        let line = "falcon-func in udp-16, udp-65507: not available: this mode does not exist yet";
        assert!(notes.contains(line), "{notes}");
    }

    #[test]
    fn a_wide_spread_without_a_reason_is_pointed_out() {
        let mut row = fixture::with(fixture::row("udp-16", "mflow", 2), &[("nic", 100.0)]);
        row.spread = Some(0.07);
        assert!(notes_of(&[row.clone()]).contains("spread 7.0 %, above 5.0 %"));
        row.note = Some("the host was busy".to_owned());
        let notes = notes_of(&[row]);
        assert!(notes.contains("mflow 2 in udp-16: the host was busy"));
        assert!(!notes.contains("does not say why"), "{notes}");
    }

    #[test]
    fn limits_stand_under_every_figure() {
        let rows = fixture::rows();
        for figure in group(&rows) {
            assert!(notes(&figure).iter().any(|note| note == LIMITS));
        }
    }

    #[test]
    fn disturbed_order_is_shown_against_the_batch_size() {
        let mut rows = fixture::rows();
        rows.retain(|row| row.case.starts_with("order-"));
        let figures = group(&rows);
        let text = primary(&figures[0]).text();
        assert!(!text.contains("speed-up"), "{text}");
        // Of the fixture's 100,000 packets.
        let line = text
            .lines()
            .find(|line| line.starts_with("order-batch-1 "))
            .expect("a row");
        assert!(line.ends_with(" 90"), "{line}");
    }

    #[test]
    fn the_deadline_is_said_where_it_matters() {
        let rows = fixture::rows();
        let of = |case: &str| {
            let rows: Vec<Row> = rows
                .iter()
                .filter(|row| row.case == case)
                .cloned()
                .collect();
            notes_of(&rows)
        };
        assert!(of("udp-16").contains("merge_timeout_us"));
        assert!(!of("memcached").contains("merge_timeout_us"));
    }

    #[test]
    fn what_a_request_takes_is_shown() {
        let mut row = fixture::with(fixture::row("memcached", "vanilla", 0), &[("nic", 100.0)]);
        assert!(requests(&group(&[row.clone()])[0]).is_empty());
        row.insn_per_request = Some(40_000.0);
        let text = requests(&group(&[row])[0]).text();
        assert!(text.contains("40000") && text.contains("25.0"), "{text}");
    }

    #[test]
    fn rows_with_time_to_spare_are_marked() {
        let mut row = fixture::with(fixture::row("udp-16", "mflow", 2), &[("nic", 100.0)]);
        assert!(!notes_of(&[row.clone()]).contains(NOT_SATURATED));
        row.saturated = Some(false);
        assert!(notes_of(&[row.clone()]).contains(NOT_SATURATED));
        row.case = "hike-edge".to_owned();
        assert!(!notes_of(&[row]).contains(NOT_SATURATED));
    }
}
