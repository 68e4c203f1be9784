// SPDX-License-Identifier: GPL-2.0

//! Every figure of the papers, and where it is here: measured, modelled, or why neither. What the papers state in numbers is in
//! [`super::paper`].

use crate::bench::suites::kind::Kind;
use xtask::results::row::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Mflow,
    Falcon,
    Hike,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Mflow => "MFLOW",
            Self::Falcon => "FALCON",
            Self::Hike => "HIKE",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MeasuredHere {
    /// Cases of the suite `paper` whose names begin like that, and the measurement that shows the figure.
    Measured(Kind, &'static [&'static str], &'static str),
    /// The simulator's: it needs more cores, or loads, than an emulated machine has.
    Modelled(&'static str),
    /// A drawing of how something works: nothing was measured for it.
    Drawing,
    /// Neither, and why.
    Left(&'static str),
}

#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) source: Source,
    /// Its number, and the part of it.
    pub(crate) number: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) here: MeasuredHere,
}

/// Makes figures of lines `SOURCE NUMBER SHOWS: HERE;`.
macro_rules! figures {
    ($($source:ident $number:literal $shows:literal: $here:ident $(($($detail:expr),*))?;)*) => {
        &[$(Published {
            source: Source::$source,
            number: $number,
            shows: $shows,
            here: MeasuredHere::$here $(($($detail),*))?,
        },)*]
    };
}

/// The measurement that stands for throughput here.
const SPEED_UP: &str = "speed-up of the busiest core";
const PER_PACKET: &str = "instructions per packet";
const BY_CORE: &str = "instructions and load of each core";
const INTERRUPTS: &str = "interrupts and softirqs";
const LATENCY: &str = "latency, beside what an emulator adds";

pub(crate) const FIGURES: &[Published] = figures! {
    Mflow "1" "packet processing in the kernel": Drawing;
    Mflow "2" "container overlay network": Drawing;
    Mflow "3" "ways to process in parallel": Drawing;
    Mflow "4a" "throughput of native, vanilla, RPS, FALCON by device and by function":
        Measured(Kind::Tcp, &["tcp-65536"], SPEED_UP);
    Mflow "4a" "the same with UDP": Measured(Kind::Udp, &["udp-65507"], SPEED_UP);
    Mflow "4b" "load of each core, TCP 64 KB": Measured(Kind::Tcp, &["tcp-65536"], BY_CORE);
    Mflow "5" "splitting at a device, and of the whole path": Drawing;
    Mflow "6" "the design": Drawing;
    Mflow "7" "packets out of order by size of batch": Measured(Kind::Order, &["order-"], "early packets by size of batch");
    Mflow "8a" "throughput, TCP": Measured(Kind::Tcp, &["tcp-", "stream-"], SPEED_UP);
    Mflow "8a" "throughput, UDP": Measured(Kind::Udp, &["udp-"], SPEED_UP);
    Mflow "8b" "load of each core, with two cores a branch for TCP": Measured(Kind::Tcp, &["stream-65536"], BY_CORE);
    Mflow "9" "latency of an overloaded receiver": Measured(Kind::Latency, &["latency-"], LATENCY);
    Mflow "10" "throughput of 1 to 20 TCP flows": Measured(Kind::Flows, &["flows-16-", "flows-4096-", "flows-65536-"], SPEED_UP);
    Mflow "11" "a web server":
        Measured(Kind::Applications, &["nginx"], "nginx under wrk in place of Elgg: one page, no database");
    Mflow "12" "how even cores are loaded, 10 flows":
        Measured(Kind::Flows, &["flows-65536-10"], "deviation of the load of cores");
    Mflow "13" "memcached with 1 and 10 clients": Measured(Kind::Applications, &["memcached"], LATENCY);
    Falcon "1" "container overlay network": Drawing;
    Falcon "2a" "throughput of a link of 10 and of 100 Gbit/s":
        Left("an emulated NIC has no link speed; native against vanilla is in 2b");
    Falcon "2b" "packet rate by size, native and overlay, UDP": Measured(Kind::Udp, &["udp-"], SPEED_UP);
    Falcon "2c" "packet rate of several flows with RPS": Measured(Kind::Flows, &["flows-4096-"], SPEED_UP);
    Falcon "2d" "latency of native and overlay": Measured(Kind::Rates, &["rate-"], LATENCY);
    Falcon "3" "the way of a packet": Drawing;
    Falcon "4" "interrupts and softirqs of native and overlay": Measured(Kind::Rates, &["rate-udp-16-"], INTERRUPTS);
    Falcon "5" "load of each core at a fixed rate": Measured(Kind::Rates, &["rate-udp-16-"], BY_CORE);
    Falcon "6" "flame graphs of sockperf and memcached":
        Measured(Kind::Rates, &["rate-udp-16-"], "instructions by function: the emulator counts functions, not who called them");
    Falcon "7" "the design": Drawing;
    Falcon "8" "pipelining by device": Drawing;
    Falcon "9a" "what the NIC's core does for TCP, 4 KB": Measured(Kind::Tcp, &["stream-4096"], "instructions by function");
    Falcon "9b" "splitting a softirq": Drawing;
    Falcon "10" "packet rate by size, UDP flat out": Measured(Kind::Udp, &["udp-"], SPEED_UP);
    Falcon "11" "load of each core, UDP 16 B": Measured(Kind::Udp, &["udp-16"], BY_CORE);
    Falcon "12a, b" "latency at a fixed rate, UDP 16 B and TCP 4 KB":
        Measured(Kind::Rates, &["rate-udp-16-", "rate-tcp-4096-"], LATENCY);
    Falcon "12c, d" "latency flat out, UDP and TCP 16 B": Measured(Kind::Latency, &["latency-udp-16", "latency-tcp-16"], LATENCY);
    Falcon "13a, b" "packet rate of several UDP flows": Measured(Kind::Flows, &["flows-udp-16-"], SPEED_UP);
    Falcon "13c, d" "packet rate of several TCP flows, with Host+": Measured(Kind::Flows, &["flows-4096-"], SPEED_UP);
    Falcon "14" "6 to 40 containers on 6 cores": Modelled("containers on six cores");
    Falcon "15" "thresholds of the load": Modelled("thresholds");
    Falcon "16" "hot spots": Modelled("hot spots");
    Falcon "17" "a web server":
        Measured(Kind::Applications, &["nginx"], "nginx under wrk in place of Elgg: one page, no database");
    Falcon "18" "memcached with 1 and 10 clients": Measured(Kind::Applications, &["memcached"], LATENCY);
    Falcon "19a" "what all cores do at fixed rates":
        Measured(Kind::Rates, &["rate-udp-16-"], "instructions of all cores together");
    Falcon "19b" "softirqs at a fixed rate": Measured(Kind::Rates, &["rate-udp-16-"], INTERRUPTS);
    Hike "1" "an SRv6 network": Drawing;
    Hike "2" "data plane and control plane": Drawing;
    Hike "3" "the design at XDP": Drawing;
    Hike "4" "the design at TC": Drawing;
    Hike "5" "the testbed": Drawing;
    Hike "6" "packet rate by the number of programs": Measured(Kind::Hike, &["hike-chain-"], PER_PACKET);
    Hike "7" "packet rate of chains and the kernel, by monitored flows":
        Measured(Kind::Hike, &["hike-edge", "hike-flows-"], PER_PACKET);
    Hike "8" "packet rate by SIDs, ingress and waypoint": Measured(Kind::Hike, &["hike-sids-", "hike-waypoint-"], PER_PACKET);
};

impl Published {
    pub(crate) fn name(&self) -> String {
        format!("{} Fig. {}", self.source.name(), self.number)
    }

    /// Returns whether a row belongs to it.
    pub(crate) fn has(&self, row: &Row) -> bool {
        let MeasuredHere::Measured(_, cases, _) = self.here else {
            return false;
        };
        row.insn_per_packet.is_some() && cases.iter().any(|case| row.case.starts_with(case))
    }
}

/// Returns the numbers of the figures of a source that a kind of ours shows, each once.
fn numbers(source: Source, kind: Kind) -> Vec<&'static str> {
    let mut numbers: Vec<&str> = FIGURES
        .iter()
        .filter(|figure| figure.source == source)
        .filter(|figure| matches!(figure.here, MeasuredHere::Measured(of, ..) if of == kind))
        .map(|figure| figure.number)
        .collect();
    numbers.dedup();
    numbers
}

/// Returns the title of a kind, with the papers' figures that show the same.
pub(crate) fn title(kind: Kind) -> String {
    format!("{}{}", kind.subject(), shown_by(kind))
}

/// Returns which figures a kind shows, in brackets; nothing if none.
fn shown_by(kind: Kind) -> String {
    let sources = [Source::Mflow, Source::Falcon, Source::Hike].map(|source| {
        let numbers = numbers(source, kind);
        let name = source.name();
        match numbers.len() {
            0 => None,
            1 => Some(format!("{name} Fig. {}", numbers[0])),
            _ => Some(format!("{name} Figs. {}", numbers.join(", "))),
        }
    });
    let text: Vec<String> = sources.into_iter().flatten().collect();
    match text.is_empty() {
        true => String::new(),
        false => format!(" ({})", text.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bench::measurement::fixture;
    use crate::bench::suites;
    use crate::bench::suites::cases::Suite;
    use crate::bench::tables::published_figures::grid;

    /// The figures that the papers have.
    const LAST: [(Source, u32); 3] = [(Source::Mflow, 13), (Source::Falcon, 19), (Source::Hike, 8)];

    #[test]
    fn no_figure_is_left_out() {
        for (source, last) in LAST {
            let numbers: BTreeSet<u32> = FIGURES
                .iter()
                .filter(|figure| figure.source == source)
                .map(|figure| {
                    let digits = figure.number.split(|c: char| !c.is_ascii_digit()).next();
                    digits
                        .and_then(|digits| digits.parse().ok())
                        .expect("a number")
                })
                .collect();
            assert_eq!(numbers, (1..=last).collect(), "{source:?}");
        }
    }

    #[test]
    fn every_case_that_is_named_is_measured_and_shown_there() {
        let suite = suites::all(Suite::Paper);
        for figure in FIGURES {
            let MeasuredHere::Measured(kind, prefixes, _) = figure.here else {
                continue;
            };
            for prefix in prefixes {
                let mut of_it = suite.iter().filter(|case| case.name.starts_with(prefix));
                let first = of_it.next().unwrap_or_else(|| panic!("no case {prefix}"));
                assert_eq!(Kind::of(&first.name), kind, "{prefix}");
                assert!(of_it.all(|case| Kind::of(&case.name) == kind), "{prefix}");
            }
        }
    }

    #[test]
    fn a_kind_names_its_figures_once() {
        assert_eq!(shown_by(Kind::Order), " (MFLOW Fig. 7)");
        assert_eq!(
            shown_by(Kind::Udp),
            " (MFLOW Figs. 4a, 8a; FALCON Figs. 2b, 10, 11)"
        );
        assert_eq!(shown_by(Kind::Hike), " (HIKE Figs. 6, 7, 8)");
        assert_eq!(shown_by(Kind::Overhead), "");
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let rows = fixture::rows();
        let text = grid(&rows, false).text();
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name));
            found
                .unwrap_or_else(|| panic!("no {name}: {text}"))
                .to_owned()
        };
        assert!(line("FALCON Fig. 10 ").contains("speed-up"), "{text}");
        assert!(
            line("FALCON Fig. 19b").contains("not in this run: cases rate-udp-16-"),
            "{text}"
        );
        assert!(line("FALCON Fig. 14").contains("to be modelled"));
        assert!(line("FALCON Fig. 2a").contains("no: an emulated NIC"));
        assert!(grid(&rows, true).text().contains("modelled: hot spots"));
    }
}
