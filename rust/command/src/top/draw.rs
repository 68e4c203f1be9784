// SPDX-License-Identifier: GPL-2.0

//! The lines of what is seen, and their places on a screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget as _};

use super::rows::{self, Parts};
use super::sample::{Core, Lane, Sample};
use super::view::{Order, View};
use super::Seen;
use crate::diagnose::causes::cores::LIMIT_PCT;
use crate::listing::{self, NONE};
use crate::module::text::{Flow, FlowList};
use crate::output::{count, printable, table};

/// The columns of a core's bar, of the core with its numbers, and of the space behind it.
const BAR: usize = 14;
const CORE: usize = 4 + 1 + BAR + 1 + 8 + 1 + 4;
const GAP: usize = 3;
/// The rows of the bars of packets per second.
const BARS: u16 = 3;
/// The rows below which cores, lanes and flows have no room beside these bars.
const ROOM_FOR_BARS: u16 = 15;
/// The rows below which long lines are cut at the screen's edge, and not broken.
const ROOM_FOR_BREAKS: u16 = 20;

/// Returns what is seen as text: all of it, whatever the height.
pub fn text(sample: &Sample, view: &View, width: u16) -> String {
    let mut lines = head(sample, width, true);
    lines.extend(cores(&sample.cores, width, usize::MAX).lines);
    lines.extend(lanes(&sample.lanes, usize::MAX).lines);
    lines.extend(flows(sample.flows.as_ref(), view, width, usize::MAX));
    let lines = lines.iter().map(|line| printable(&line.to_string()));
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Draws what is seen. What there is no room for is left out: of flows those that come last, of cores those with the fewest softirqs, and
/// of lanes those for which the least waits. A line says how many cores and lanes these are.
pub fn draw(seen: &Seen, view: &View, area: Rect, buffer: &mut Buffer) {
    let sample = &seen.sample;
    let mut room = Room { area, buffer };
    room.put_last(&keys(sample));
    room.put(&head(sample, area.width, area.height >= ROOM_FOR_BREAKS));
    if seen.is_first() {
        let seconds = seen.interval.as_secs_f64();
        room.put(&[Line::from(format!(
            "the first numbers come after {seconds} s"
        ))]);
    } else if room.area.height >= ROOM_FOR_BARS {
        bars(seen, &mut room);
    }
    let height = usize::from(room.area.height);
    // They have the same rows wherever the first flow on the screen is.
    let from_first = View { first: 0, ..*view };
    let all = Parts {
        cores: cores(&sample.cores, area.width, usize::MAX).lines.len(),
        lanes: lanes(&sample.lanes, usize::MAX).lines.len(),
        flows: flows(sample.flows.as_ref(), &from_first, area.width, usize::MAX).len(),
    };
    let most = rows::share(height, &all);
    let cores = cores(&sample.cores, area.width, most.cores);
    let lanes = lanes(&sample.lanes, most.lanes);
    let left_out = left_out(cores.left_out, lanes.left_out);
    room.put(&cores.lines);
    room.put(&lanes.lines);
    room.put(&left_out);
    let left = room.area.height.into();
    room.put(&flows(sample.flows.as_ref(), view, area.width, left));
}

/// The part of a screen that is still free.
struct Room<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
}

impl Room<'_> {
    /// Takes rows from the top, as many as there are.
    fn take(&mut self, rows: u16) -> Rect {
        let height = rows.min(self.area.height);
        let taken = Rect {
            height,
            ..self.area
        };
        self.area.y += height;
        self.area.height -= height;
        taken
    }

    fn put(&mut self, lines: &[Line<'_>]) {
        for line in lines {
            let row = self.take(1);
            line.render(row, self.buffer);
        }
    }

    fn put_last(&mut self, line: &Line<'_>) {
        if self.area.height > 0 {
            self.area.height -= 1;
            let row = Rect {
                y: self.area.bottom(),
                height: 1,
                ..self.area
            };
            line.render(row, self.buffer);
        }
    }
}

/// Lines that have room, and the number of things that have none.
struct Shown {
    lines: Vec<Line<'static>>,
    left_out: usize,
}

impl Shown {
    fn none(left_out: usize) -> Self {
        Self {
            lines: Vec::new(),
            left_out,
        }
    }
}

fn bold(text: impl Into<String>) -> Line<'static> {
    Line::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

fn keys(sample: &Sample) -> Line<'static> {
    if !sample.status.loaded {
        return bold("q ends   until then, the module is waited for");
    }
    let orders = Order::ALL.map(|(key, _, name)| format!("{key} {name}"));
    bold(format!(
        "q ends; arrows move; by {}, r reverse",
        orders.join(", ")
    ))
}

/// Returns the module's state, or why it is not known. Long lines are broken if there are rows for that.
fn head(sample: &Sample, width: u16, is_broken: bool) -> Vec<Line<'static>> {
    let status = &sample.status;
    let note = status.note.iter().flat_map(|note| wrapped(note, width));
    let note = note.map(|line| Line::styled(line, Color::Magenta));
    if !status.loaded {
        return note.collect();
    }
    let state = format!(
        "splitting {}, gain {}, devices {}, lanes (CPUs) {}",
        status.splitting(),
        times(sample.gain),
        status.device_words(),
        status.lane_words()
    );
    let mut lines = vec![bold(status.module())];
    for line in [state, rates(sample)] {
        let broken = match is_broken {
            true => wrapped(&line, width),
            false => vec![line],
        };
        lines.extend(broken.into_iter().map(Line::from));
    }
    lines.extend(note);
    lines
}

fn rates(sample: &Sample) -> String {
    let rate = |pps: Option<f64>| number(pps, 0);
    if let Some(pps) = sample.stage_pps {
        return format!(
            "packets/s: {} carried on from the NIC by other CPUs",
            rate(Some(pps))
        );
    }
    format!(
        "split flows: {} packets/s on lanes, {} kept on the NIC's core, {} late",
        rate(sample.lane_pps),
        rate(sample.inline_pps),
        rate(sample.late_pps)
    )
}

fn bars(seen: &Seen, room: &mut Room<'_>) {
    let parts = seen.history.parts(room.area.width.into());
    let whose = match seen.sample.stage_pps {
        Some(_) => "carried on from the NIC",
        None => "on lanes",
    };
    let highest = parts.iter().flatten().max();
    let highest = highest.map_or(String::new(), |pps| format!("; the highest bar: {pps}"));
    let title = format!("packets/s {whose} in the last minute{highest}");
    room.put(&[bold(title)]);
    let bars = Sparkline::default().data(parts);
    bars.render(room.take(BARS), room.buffer);
}

/// Returns cores in as many columns as there is room for. If there are more than fit into the rows, these are the busiest.
fn cores(cores: &[Core], width: u16, most_rows: usize) -> Shown {
    if cores.is_empty() || most_rows < 2 {
        return Shown::none(cores.len());
    }
    let columns = ((usize::from(width) + GAP) / (CORE + GAP)).max(1);
    let mut shown: Vec<&Core> = cores.iter().collect();
    let fit = columns.saturating_mul(most_rows - 1);
    shown.sort_by(|one, other| other.softirq_pct.total_cmp(&one.softirq_pct));
    let left_out = shown.len().saturating_sub(fit);
    shown.truncate(fit);
    shown.sort_by_key(|core| core.cpu);
    let rows = shown.len().div_ceil(columns);
    let columns = shown.len().div_ceil(rows);
    let gap = " ".repeat(GAP);
    let head = format!("{:>4} {:<BAR$} {:>8} {:>4}", "cpu", "", "softirq%", "all%");
    let mut lines = vec![bold(vec![head; columns].join(&gap))];
    for row in 0..rows {
        let mut cells = Vec::new();
        for core in shown.iter().skip(row).step_by(rows) {
            if !cells.is_empty() {
                cells.push(Span::from(gap.clone()));
            }
            cells.push(Span::styled(cell(core), style_of(Some(core.softirq_pct))));
        }
        lines.push(Line::from(cells));
    }
    Shown { lines, left_out }
}

fn cell(core: &Core) -> String {
    let part = |pct: f64| {
        // CAST: 0 to BAR.
        (pct.clamp(0.0, 100.0) / 100.0 * BAR as f64).round() as usize
    };
    let softirq = part(core.softirq_pct);
    let others = part(core.all_pct).saturating_sub(softirq);
    let rest = BAR - softirq - others;
    let bar = "█".repeat(softirq) + &"▒".repeat(others) + &"·".repeat(rest);
    format!(
        "{:>4} {bar} {:>8.0} {:>4.0}",
        core.cpu, core.softirq_pct, core.all_pct
    )
}

fn style_of(softirq_pct: Option<f64>) -> Style {
    if softirq_pct.is_some_and(|pct| pct >= LIMIT_PCT) {
        Style::from(Color::Red)
    } else {
        Style::new()
    }
}

/// Returns lanes. If there are more than fit into the rows, these are those for which most waits.
fn lanes(lanes: &[Lane], most_rows: usize) -> Shown {
    if lanes.is_empty() || most_rows < 2 {
        return Shown::none(lanes.len());
    }
    let head = ["lane (CPU)", "packets/s", "waiting KiB", "softirq%", "all%"];
    let mut shown: Vec<&Lane> = lanes.iter().collect();
    shown.sort_by(|one, other| {
        let softirq = |lane: &Lane| lane.softirq_pct.unwrap_or(0.0);
        let waiting = other.waiting_bytes.cmp(&one.waiting_bytes);
        waiting.then_with(|| softirq(other).total_cmp(&softirq(one)))
    });
    shown.truncate(most_rows - 1);
    shown.sort_by_key(|lane| lane.cpu);
    let rows = shown.iter().map(|lane| {
        let waiting = lane.waiting_bytes.map(|bytes| bytes.div_ceil(1024));
        vec![
            lane.cpu.to_string(),
            number(lane.pps, 0),
            listing::text(waiting),
            number(lane.softirq_pct, 0),
            number(lane.all_pct, 0),
        ]
    });
    let styles = shown.iter().map(|lane| style_of(lane.softirq_pct));
    Shown {
        lines: rows_of(&table(&head, rows.collect(), &head), styles),
        left_out: lanes.len() - shown.len(),
    }
}

/// Returns the line about cores and lanes for which there is no room, if there are any.
fn left_out(cores: usize, lanes: usize) -> Vec<Line<'static>> {
    let mut words = Vec::new();
    // CAST: usize into 64 bits.
    if cores > 0 {
        words.push(count(cores as u64, "less busy core"));
    }
    if lanes > 0 {
        words.push(format!(
            "{} for which less waits",
            count(lanes as u64, "lane")
        ));
    }
    match words.is_empty() {
        true => Vec::new(),
        false => vec![Line::from(format!("no room for {}", words.join(", ")))],
    }
}

/// Returns flows, and what the reasons of these mean. Addresses stand last, as those of IPv6 leave no room for anything behind them.
fn flows(list: Option<&FlowList>, view: &View, width: u16, most_rows: usize) -> Vec<Line<'static>> {
    let Some(list) = list else {
        return Vec::new();
    };
    let broken = |lines: Vec<String>| -> Vec<Line<'static>> {
        let lines = lines.iter().flat_map(|line| wrapped(line, width));
        lines.map(Line::from).collect()
    };
    let more = listing::more(list);
    if let Some(none) = listing::none(list) {
        let mut lines = vec![bold("flows")];
        lines.extend(broken(vec![none]));
        lines.extend(broken(more));
        return lines;
    }
    let head = [
        "state",
        "packets/s",
        "gain",
        "why not split",
        "cpu",
        "lanes",
        "device",
        "from",
        "to",
    ];
    let sorted = view.sorted(&list.flows);
    let first = view.first.min(sorted.len().saturating_sub(1));
    let shown = &sorted[first..];
    let above = match first {
        0 => String::new(),
        _ => format!(", {first} of them above"),
    };
    // CAST: usize into 64 bits.
    let number = count(sorted.len() as u64, "flow");
    let mut lines = vec![bold(format!("{number} {}{above}", view.order_words()))];
    // Rows have half of the room at least, below both heads.
    let room = most_rows.saturating_sub(2);
    let may_fit = shown.iter().take(room).copied();
    let mut below = broken(listing::reasons(may_fit));
    below.extend(broken(more));
    below.truncate(room / 2);
    let shown = &shown[..shown.len().min(room - below.len())];
    let rows = shown.iter().map(|flow| cells(flow)).collect();
    let styles = shown.iter().map(|flow| {
        if flow.is_split() {
            Style::from(Color::Green)
        } else {
            Style::new()
        }
    });
    let numbers = ["packets/s", "gain", "cpu"];
    lines.extend(rows_of(&table(&head, rows, &numbers), styles));
    lines.extend(below);
    lines
}

fn cells(flow: &Flow) -> Vec<String> {
    vec![
        flow.state.clone(),
        listing::text(flow.pps),
        times(flow.gain),
        listing::text(flow.reason()),
        flow.cpu.to_string(),
        listing::text(flow.lanes.as_ref()),
        flow.device.clone(),
        listing::text(flow.from),
        listing::text(flow.to),
    ]
}

/// Returns the lines of a table: its head, and each row in its style.
fn rows_of(table: &str, styles: impl Iterator<Item = Style>) -> Vec<Line<'static>> {
    let mut lines = table.lines().map(str::to_owned);
    let head = lines.next().map(bold);
    let rows = lines
        .zip(styles)
        .map(|(line, style)| Line::styled(line, style));
    head.into_iter().chain(rows).collect()
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{value:.digits$}"))
}

fn times(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |value| format!("x{value:.2}"))
}

/// Returns a sentence in lines of at most this width, broken between words; a longer word has a line of its own.
fn wrapped(sentence: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= usize::from(width) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    use super::*;
    use crate::cpus::Counts;
    use crate::module::text::{Stats, Version};
    use crate::status::{Reading, Status};
    use crate::top::sample::Moment;
    use crate::top::view::Wish;

    const IDLE: &str = "cpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n";
    const BUSY: &str = "cpu0 0 0 0 10 0 0 90 0 0 0\ncpu1 50 0 0 25 0 0 25 0 0 0\n";
    const FLOWS: &str = "device eth0 queue 0 proto udp from 192.0.2.1:5001 to 192.0.2.2:4789 cpu 0 pps 900 state split slot 0 lanes 1 batch_pkts 256 gain 2.50\n\
                         device eth0 queue 0 proto udp from 192.0.2.1:5002 to 192.0.2.2:4789 cpu 0 pps 950 state whole reason path_queues # it queues\n";

    fn moment(seconds: u64, stat: &str, pkts: u64) -> Moment {
        let stats = format!(
            "lane_pkts {pkts}\ninline_pkts {}\nlate_pkts 0\nlane_cpu1_pkts {pkts}\nlane_cpu1_ring_bytes 1500\n",
            pkts / 100
        );
        let status = Status {
            loaded: true,
            kernel: "6.12.48".to_owned(),
            note: None,
            version: Some(Version::parse("0.2.0 abi 7 patched\n").expect("one")),
            enabled: Some(true),
            mode: Some("mflow".to_owned()),
            devices: Some(vec!["eth0".to_owned()]),
            cpus: Some("1".to_owned()),
            lanes: Some("1".to_owned()),
            flows: None,
            packets: None,
        };
        Moment {
            at: Duration::from_secs(seconds),
            cpus: Counts::parse(stat, ""),
            module: Reading {
                load: Some(1),
                status,
                flows: Some(FlowList::parse(FLOWS).expect("flows")),
                stats: Some(Stats::parse(&stats).expect("stats")),
            },
        }
    }

    fn seen() -> Seen {
        let mut seen = Seen::begin(moment(0, IDLE, 0), Duration::from_secs(1));
        seen.add(moment(1, BUSY, 1000));
        seen
    }

    fn drawn(seen: &Seen, view: &View, columns: u16, rows: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a screen");
        let drawn = terminal.draw(|frame| draw(seen, view, frame.area(), frame.buffer_mut()));
        drawn.expect("drawn");
        terminal.backend().buffer().clone()
    }

    fn screen(seen: &Seen, view: &View, columns: u16, rows: u16) -> String {
        let buffer = drawn(seen, view, columns, rows);
        let rows = buffer.content().chunks(columns.into());
        let rows = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    #[test]
    fn a_screen_has_all() {
        let bar = format!("{}██", " ".repeat(78));
        let expected = format!(
            "\
loaded, version 0.2.0 (patched, through our hooks), kernel 6.12.48
splitting on, mode mflow, gain x2.50, devices eth0, lanes (CPUs) 1
split flows: 1000 packets/s on lanes, 10 kept on the NIC's core, 0 late
packets/s on lanes in the last minute; the highest bar: 1000
{bar}
{bar}
{bar}
 cpu                softirq% all%    cpu                softirq% all%
   0 █████████████·       90   90      1 ████▒▒▒▒▒▒▒···       25   75
lane (CPU)  packets/s  waiting KiB  softirq%  all%
         1       1000            2        25    75
2 flows by packets/s
state  packets/s   gain  why not split  cpu  lanes  device  from            to
whole        950      -  path_queues      0  -      eth0    192.0.2.1:5002  192.
split        900  x2.50  -                0  1      eth0    192.0.2.1:5001  192.
path_queues: it queues



q ends; arrows move; by p packets/s, g gain, s state, c CPU, f sender, r reverse"
        );
        assert_eq!(screen(&seen(), &View::default(), 80, 20), expected);
    }

    #[test]
    fn a_low_screen_has_a_part_of_each() {
        let mut view = View::default();
        view.follow(Wish::Sort(Order::Gain), 2);
        view.follow(Wish::Turn, 2);
        view.follow(Wish::Down, 2);
        let expected = "\
loaded, version 0.2.0 (patched, through
splitting on, mode mflow, gain x2.50, de
split flows: 1000 packets/s on lanes, 10
lane (CPU)  packets/s  waiting KiB  soft
         1       1000            2
no room for 2 less busy cores
2 flows by gain, reversed, 1 of them abo
state  packets/s   gain  why not split
split        900  x2.50  -
q ends; arrows move; by p packets/s, g g";
        assert_eq!(screen(&seen(), &view, 40, 10), expected);
    }

    /// The flows of a real network: their addresses are long.
    #[test]
    fn the_reason_is_on_a_screen_of_80_columns() {
        let flows = FLOWS.replace("192.0.2.1:", "[2001:db8:1:2:3:4:5:6]:");
        let mut moment = moment(2, BUSY, 0);
        moment.module.flows = FlowList::parse(&flows.replace("192.0.2.2:", "[2001:db8::2]:")).ok();
        let mut seen = seen();
        seen.add(moment);
        let screen = screen(&seen, &View::default(), 80, 24);
        for text in [
            "whole        950      -  path_queues      0",
            "split        900  x2.50  -                0  1      eth0    [2001:db8:1",
            "\npath_queues: it queues\n",
        ] {
            assert!(screen.contains(text), "{screen}");
        }
    }

    #[test]
    fn of_many_reasons_there_are_fewer_than_flows() {
        let mut flows = String::new();
        for number in 0..30 {
            flows += &format!("device eth0 queue 0 proto udp from 192.0.2.1:{number} to 192.0.2.2:4789 cpu 0 pps 950 state whole reason r{number} # {}\n", "word ".repeat(40));
        }
        let list = FlowList::parse(&flows).expect("flows");
        let lines = super::flows(Some(&list), &View::default(), 80, 12);
        let is_row = |line: &&Line<'_>| line.to_string().starts_with("whole");
        assert_eq!((lines.len(), lines.iter().filter(is_row).count()), (12, 5));
    }

    fn lane(cpu: u32, waiting_bytes: u64) -> Lane {
        Lane {
            cpu,
            pps: Some(7.0),
            waiting_bytes: Some(waiting_bytes),
            softirq_pct: Some(1.0),
            all_pct: Some(1.0),
        }
    }

    #[test]
    fn lanes_have_the_rows_that_others_leave() {
        let mut seen = seen();
        seen.sample.lanes = (0..8).map(|cpu| lane(cpu, 0)).collect();
        let screen = screen(&seen, &View::default(), 80, 24);
        for cpu in 0..8 {
            let row = format!("\n         {cpu}          7");
            assert!(screen.contains(&row), "{screen}");
        }
        assert!(!screen.contains("no room"), "{screen}");
    }

    #[test]
    fn of_many_lanes_those_are_shown_for_which_most_waits() {
        let mut seen = seen();
        let mut all: Vec<Lane> = (0..16).map(|cpu| lane(cpu, u64::from(cpu) << 10)).collect();
        all.swap(0, 15);
        seen.sample.lanes = all;
        let screen = screen(&seen, &View::default(), 80, 24);
        let shown: Vec<&str> = screen
            .lines()
            .filter(|line| line.contains("          7 "))
            .collect();
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let cpus: Vec<String> = shown.iter().filter_map(|line| first(line)).collect();
        assert_eq!(cpus, ["9", "10", "11", "12", "13", "14", "15"], "{screen}");
        let said = "\nno room for 9 lanes for which less waits\n";
        assert!(screen.contains(said), "{screen}");
    }

    #[test]
    fn each_core_lane_and_flow_has_its_own_colour() {
        let buffer = drawn(&seen(), &View::default(), 80, 20);
        let colour = |x: u16, y: u16| buffer.cell((x, y)).map(|cell| cell.fg);
        // Both cores are in this row.
        assert_eq!(colour(3, 8), Some(Color::Red));
        assert_eq!(colour(39, 8), Some(Color::Reset));
        assert_eq!(colour(9, 10), Some(Color::Reset));
        assert_eq!(colour(0, 13), Some(Color::Reset));
        assert_eq!(colour(0, 14), Some(Color::Green));
        let mut busy = seen();
        busy.sample.lanes[0].softirq_pct = Some(LIMIT_PCT);
        let buffer = drawn(&busy, &View::default(), 80, 20);
        assert_eq!(buffer.cell((9, 10)).map(|cell| cell.fg), Some(Color::Red));
    }

    #[test]
    fn before_the_second_look_it_says_when_numbers_come() {
        let seen = Seen::begin(moment(0, IDLE, 0), Duration::from_millis(2500));
        let screen = screen(&seen, &View::default(), 80, 24);
        assert!(
            screen.contains("\nthe first numbers come after 2.5 s\n"),
            "{screen}"
        );
        assert!(!screen.contains("last minute"), "{screen}");
    }

    #[test]
    fn packets_of_stages_are_told_apart_from_those_of_lanes() {
        let mut seen = seen();
        (seen.sample.lane_pps, seen.sample.stage_pps) = (None, Some(500.0));
        let screen = screen(&seen, &View::default(), 80, 24);
        assert!(screen.contains("\npackets/s: 500 carried on from the NIC by other CPUs\n"));
        assert!(screen.contains("\npackets/s carried on from the NIC in the last minute"));
    }

    #[test]
    fn flows_that_are_not_in_the_list_are_counted() {
        let list = FlowList {
            changing: 1,
            ..FlowList::default()
        };
        let lines = flows(Some(&list), &View::default(), 80, usize::MAX);
        let lines: Vec<String> = lines.iter().map(Line::to_string).collect();
        assert_eq!(lines[2..], ["1 more flow, which changed just now"]);
    }

    #[test]
    fn text_has_no_signs_for_the_terminal() {
        let mut sample = seen().sample;
        sample.status.devices = Some(vec!["eth\u{1b}[2J".to_owned()]);
        let text = text(&sample, &View::default(), 120);
        assert!(text.contains("devices eth?[2J"), "{text}");
    }

    #[test]
    fn without_the_module_there_are_cores_and_the_reason() {
        let mut seen = seen();
        let mut moment = moment(2, BUSY, 0);
        moment.module.load = None;
        moment.module.status.loaded = false;
        moment.module.status.note = Some("the module is not loaded; load it".to_owned());
        seen.add(moment);
        let expected = "\
the module is not loaded; load
it
 cpu                softirq% a
   0 ··············        0
   1 ··············        0

q ends   until then, the modul";
        assert_eq!(screen(&seen, &View::default(), 30, 7), expected);
        let text = text(&seen.sample, &View::default(), 120);
        assert!(text.starts_with("the module is not loaded; load it\n cpu  "));
    }

    #[test]
    fn of_many_cores_the_busiest_are_shown() {
        let core = |cpu: u32| Core {
            cpu,
            softirq_pct: f64::from(cpu % 10) * 10.0,
            all_pct: 100.0,
        };
        let all: Vec<Core> = (0..40).map(core).collect();
        let shown = cores(&all, 80, 3);
        assert_eq!(shown.left_out, 36);
        let lines: Vec<String> = shown.lines.iter().map(Line::to_string).collect();
        assert_eq!(lines.len(), 3);
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        assert_eq!(first(&lines[1]).as_deref(), Some("9"));
        assert_eq!(first(&lines[2]).as_deref(), Some("19"));
        assert_eq!(cores(&all, 80, usize::MAX).lines.len(), 21);
        assert_eq!(cores(&all, 10, 100).lines.len(), 41);
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdef g", 4), ["abcdef", "g"]);
        assert_eq!(wrapped("", 4), [""; 0]);
    }
}
