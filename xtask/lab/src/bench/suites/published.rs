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
pub(crate) enum Here {
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
    pub(crate) here: Here,
}

const fn figure(
    source: Source,
    number: &'static str,
    shows: &'static str,
    here: Here,
) -> Published {
    Published {
        source,
        number,
        shows,
        here,
    }
}

const fn mflow(number: &'static str, shows: &'static str, here: Here) -> Published {
    figure(Source::Mflow, number, shows, here)
}

const fn falcon(number: &'static str, shows: &'static str, here: Here) -> Published {
    figure(Source::Falcon, number, shows, here)
}

const fn hike(number: &'static str, shows: &'static str, here: Here) -> Published {
    figure(Source::Hike, number, shows, here)
}

/// The measurement that stands for throughput here.
const SPEED_UP: &str = "speed-up of the busiest core";
const PER_PACKET: &str = "instructions per packet";
const BY_CORE: &str = "instructions and load of each core";
const INTERRUPTS: &str = "interrupts and softirqs";
const LATENCY: &str = "latency, beside what an emulator adds";

pub(crate) const FIGURES: &[Published] = &[
    mflow("1", "packet processing in the kernel", Here::Drawing),
    mflow("2", "container overlay network", Here::Drawing),
    mflow("3", "ways to process in parallel", Here::Drawing),
    mflow(
        "4a",
        "throughput of native, vanilla, RPS, FALCON by device and by function",
        Here::Measured(Kind::Tcp, &["tcp-65536"], SPEED_UP),
    ),
    mflow(
        "4a",
        "the same with UDP",
        Here::Measured(Kind::Udp, &["udp-65507"], SPEED_UP),
    ),
    mflow(
        "4b",
        "load of each core, TCP 64 KB",
        Here::Measured(Kind::Tcp, &["tcp-65536"], BY_CORE),
    ),
    mflow(
        "5",
        "splitting at a device, and of the whole path",
        Here::Drawing,
    ),
    mflow("6", "the design", Here::Drawing),
    mflow(
        "7",
        "packets out of order by size of batch",
        Here::Measured(Kind::Order, &["order-"], "early packets by size of batch"),
    ),
    mflow(
        "8a",
        "throughput, TCP",
        Here::Measured(Kind::Tcp, &["tcp-", "stream-"], SPEED_UP),
    ),
    mflow(
        "8a",
        "throughput, UDP",
        Here::Measured(Kind::Udp, &["udp-"], SPEED_UP),
    ),
    mflow(
        "8b",
        "load of each core, with two cores a branch for TCP",
        Here::Measured(Kind::Tcp, &["stream-65536"], BY_CORE),
    ),
    mflow(
        "9",
        "latency of an overloaded receiver",
        Here::Measured(Kind::Latency, &["latency-"], LATENCY),
    ),
    mflow(
        "10",
        "throughput of 1 to 20 TCP flows",
        Here::Measured(
            Kind::Flows,
            &["flows-16-", "flows-4096-", "flows-65536-"],
            SPEED_UP,
        ),
    ),
    mflow(
        "11",
        "a web server",
        Here::Measured(
            Kind::Applications,
            &["nginx"],
            "nginx under wrk in place of Elgg: one page, no database",
        ),
    ),
    mflow(
        "12",
        "how even cores are loaded, 10 flows",
        Here::Measured(
            Kind::Flows,
            &["flows-65536-10"],
            "deviation of the load of cores",
        ),
    ),
    mflow(
        "13",
        "memcached with 1 and 10 clients",
        Here::Measured(Kind::Applications, &["memcached"], LATENCY),
    ),
    falcon("1", "container overlay network", Here::Drawing),
    falcon(
        "2a",
        "throughput of a link of 10 and of 100 Gbit/s",
        Here::Left("an emulated NIC has no link speed; native against vanilla is in 2b"),
    ),
    falcon(
        "2b",
        "packet rate by size, native and overlay, UDP",
        Here::Measured(Kind::Udp, &["udp-"], SPEED_UP),
    ),
    falcon(
        "2c",
        "packet rate of several flows with RPS",
        Here::Measured(Kind::Flows, &["flows-4096-"], SPEED_UP),
    ),
    falcon(
        "2d",
        "latency of native and overlay",
        Here::Measured(Kind::Rates, &["rate-"], LATENCY),
    ),
    falcon("3", "the way of a packet", Here::Drawing),
    falcon(
        "4",
        "interrupts and softirqs of native and overlay",
        Here::Measured(Kind::Rates, &["rate-udp-16-"], INTERRUPTS),
    ),
    falcon(
        "5",
        "load of each core at a fixed rate",
        Here::Measured(Kind::Rates, &["rate-udp-16-"], BY_CORE),
    ),
    falcon(
        "6",
        "flame graphs of sockperf and memcached",
        Here::Measured(
            Kind::Rates,
            &["rate-udp-16-"],
            "instructions by function: the emulator counts functions, not who called them",
        ),
    ),
    falcon("7", "the design", Here::Drawing),
    falcon("8", "pipelining by device", Here::Drawing),
    falcon(
        "9a",
        "what the NIC's core does for TCP, 4 KB",
        Here::Measured(Kind::Tcp, &["stream-4096"], "instructions by function"),
    ),
    falcon("9b", "splitting a softirq", Here::Drawing),
    falcon(
        "10",
        "packet rate by size, UDP flat out",
        Here::Measured(Kind::Udp, &["udp-"], SPEED_UP),
    ),
    falcon(
        "11",
        "load of each core, UDP 16 B",
        Here::Measured(Kind::Udp, &["udp-16"], BY_CORE),
    ),
    falcon(
        "12a, b",
        "latency at a fixed rate, UDP 16 B and TCP 4 KB",
        Here::Measured(Kind::Rates, &["rate-udp-16-", "rate-tcp-4096-"], LATENCY),
    ),
    falcon(
        "12c, d",
        "latency flat out, UDP and TCP 16 B",
        Here::Measured(
            Kind::Latency,
            &["latency-udp-16", "latency-tcp-16"],
            LATENCY,
        ),
    ),
    falcon(
        "13a, b",
        "packet rate of several UDP flows",
        Here::Measured(Kind::Flows, &["flows-udp-16-"], SPEED_UP),
    ),
    falcon(
        "13c, d",
        "packet rate of several TCP flows, with Host+",
        Here::Measured(Kind::Flows, &["flows-4096-"], SPEED_UP),
    ),
    falcon(
        "14",
        "6 to 40 containers on 6 cores",
        Here::Modelled("containers on six cores"),
    ),
    falcon("15", "thresholds of the load", Here::Modelled("thresholds")),
    falcon("16", "hot spots", Here::Modelled("hot spots")),
    falcon(
        "17",
        "a web server",
        Here::Measured(
            Kind::Applications,
            &["nginx"],
            "nginx under wrk in place of Elgg: one page, no database",
        ),
    ),
    falcon(
        "18",
        "memcached with 1 and 10 clients",
        Here::Measured(Kind::Applications, &["memcached"], LATENCY),
    ),
    falcon(
        "19a",
        "what all cores do at fixed rates",
        Here::Measured(
            Kind::Rates,
            &["rate-udp-16-"],
            "instructions of all cores together",
        ),
    ),
    falcon(
        "19b",
        "softirqs at a fixed rate",
        Here::Measured(Kind::Rates, &["rate-udp-16-"], INTERRUPTS),
    ),
    hike("1", "an SRv6 network", Here::Drawing),
    hike("2", "data plane and control plane", Here::Drawing),
    hike("3", "the design at XDP", Here::Drawing),
    hike("4", "the design at TC", Here::Drawing),
    hike("5", "the testbed", Here::Drawing),
    hike(
        "6",
        "packet rate by the number of programs",
        Here::Measured(Kind::Hike, &["hike-chain-"], PER_PACKET),
    ),
    hike(
        "7",
        "packet rate of chains and the kernel, by monitored flows",
        Here::Measured(Kind::Hike, &["hike-edge", "hike-flows-"], PER_PACKET),
    ),
    hike(
        "8",
        "packet rate by SIDs, ingress and waypoint",
        Here::Measured(Kind::Hike, &["hike-sids-", "hike-waypoint-"], PER_PACKET),
    ),
];

impl Published {
    pub(crate) fn name(&self) -> String {
        format!("{} Fig. {}", self.source.name(), self.number)
    }

    /// Returns whether a row belongs to it.
    pub(crate) fn has(&self, row: &Row) -> bool {
        let Here::Measured(_, cases, _) = self.here else {
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
        .filter(|figure| matches!(figure.here, Here::Measured(of, ..) if of == kind))
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
            let Here::Measured(kind, prefixes, _) = figure.here else {
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
