// SPDX-License-Identifier: GPL-2.0

//! Events: as the kernel prints them, as people read them, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use mflow_algo::algo::report::reason::Reason;
use schemars::JsonSchema;
use serde::Serialize;

use crate::module::flow_name::FlowName;
use crate::output::count;

/// The name of a tracepoint of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    /// A flow begins to be split
    FlowStart,
    /// A flow stops being split
    FlowStop,
    /// A batch is opened
    Batch,
    /// The turn of a batch has passed
    Merge,
    /// A batch is given up
    GivenUp,
    /// Packets came after their turn
    Late,
}

impl Kind {
    /// Returns the name that the kernel has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlowStart => "flow_start",
            Self::FlowStop => "flow_stop",
            Self::Batch => "batch",
            Self::Merge => "merge",
            Self::GivenUp => "given_up",
            Self::Late => "late",
        }
    }

    /// Returns whether netlink tells of it, too.
    pub const fn is_of_flows(self) -> bool {
        matches!(self, Self::FlowStart | Self::FlowStop)
    }

    fn named(name: &str) -> Option<Self> {
        let mut all = Self::value_variants().iter();
        all.find(|kind| kind.name() == name).copied()
    }
}

/// An event. Null stands for what is not known, or does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Event {
    /// The time since the host was started (CLOCK_MONOTONIC), in microseconds.
    pub at_us: u64,
    /// The CPU on which it happened.
    pub cpu: Option<u32>,
    /// The slot of the flow: its place at the merge point.
    pub slot: Option<u8>,
    /// The flow.
    pub flow: Option<FlowName>,
    /// The event itself.
    #[serde(flatten)]
    pub what: What,
}

/// The events, by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A flow begins to be split.
    FlowStart {
        /// Its packets per second.
        pps: Option<u32>,
    },
    /// A flow stops being split.
    FlowStop {
        /// Its packets per second.
        pps: Option<u32>,
        /// The reason's stable name, as in `flows`.
        reason: String,
        /// The words for people.
        words: String,
    },
    /// A batch is opened.
    Batch {
        /// Its number. Those of one slot follow each other.
        batch: u32,
        /// The CPU that carries its packets.
        carrier: u32,
        /// True if that is the CPU that gives batches out.
        inline: bool,
    },
    /// The turn of a batch has passed.
    Merge {
        /// Its number.
        batch: u32,
        /// The time for which packets of later batches have waited for it, in microseconds.
        waited_us: u64,
    },
    /// A batch is not waited for any longer.
    GivenUp {
        /// Its number.
        batch: u32,
        /// The time for which packets of later batches have waited for it, in microseconds.
        waited_us: u64,
        /// The packets of this flow that wait.
        parked_pkts: u32,
        /// The bound that was met: `deadline` or `overflow`.
        reason: String,
    },
    /// Packets came after their batch's turn, and were delivered at once.
    Late {
        /// The batch whose turn it was.
        batch: u32,
        /// Their number, as on the wire.
        pkts: u32,
    },
    /// Events were not read in time.
    Lost {
        /// Their number, as far as it is known.
        events: u64,
    },
    /// The last line.
    End {
        /// The number of events that were printed.
        events: u64,
        /// The number of events that were not read in time, as far as it is known.
        lost: u64,
    },
}

/// A line that the kernel has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An event.
    Event(Event),
    /// A remark of the kernel's on events that it has dropped. The ring's own counters have them.
    Remark,
}

impl Line {
    /// Reads a line of `trace_pipe`. `None` if it is none.
    pub fn parse(line: &str) -> Option<Self> {
        if line.is_empty() || line.starts_with("CPU:") && line.ends_with("EVENTS]") {
            return Some(Self::Remark);
        }
        Some(Self::Event(event(line)?))
    }
}

/// Reads a line such as `   <idle>-0       [001] ..s1.    12.345678: late: slot 0 batch 7 pkts 3`. The name of a task may have any
/// characters, so the event begins behind the first time with the name of one.
fn event(line: &str) -> Option<Event> {
    line.match_indices(": ").find_map(|(end, between)| {
        let (name, values) = line.get(end + between.len()..)?.split_once(": ")?;
        let head = line.get(..end)?;
        let (head, at) = head.rsplit_once(' ')?;
        Event::of_parts(cpu(head)?, time_us(at)?, Kind::named(name)?, values)
    })
}

/// Returns the CPU of what stands in front of the time: a number in brackets, and perhaps flags behind it.
fn cpu(head: &str) -> Option<u32> {
    let (_, behind) = head.rsplit_once('[')?;
    behind.split_once(']')?.0.parse().ok()
}

/// Returns the microseconds of `12.345678`.
fn time_us(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    (micros < 1_000_000).then(|| seconds.checked_mul(1_000_000)?.checked_add(micros))?
}

/// The keys of an event, with their values.
struct Values<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Values<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut values = BTreeMap::new();
        while let Some(key) = words.next() {
            values.insert(key, words.next()?);
        }
        Some(Self(values))
    }

    fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        self.0.get(key)?.parse().ok()
    }

    /// Reads a value that is a dash if it is not known. `None` if it can't be read.
    fn or_dash<T: FromStr>(&self, key: &str) -> Option<Option<T>> {
        match *self.0.get(key)? {
            "-" => Some(None),
            value => value.parse().ok().map(Some),
        }
    }

    /// Reads packets per second, which are -1 if they are not known. `None` if they can't be read.
    fn pps(&self) -> Option<Option<u32>> {
        match *self.0.get("pps")? {
            "-1" => Some(None),
            value => value.parse().ok().map(Some),
        }
    }

    fn flow(&self) -> Option<FlowName> {
        Some(FlowName {
            device: self.get("device")?,
            queue: self.or_dash("queue")?,
            proto: self.or_dash("proto")?,
            from: self.or_dash("from")?,
            to: self.or_dash("to")?,
        })
    }
}

impl Event {
    fn of_parts(cpu: u32, at_us: u64, kind: Kind, values: &str) -> Option<Self> {
        let values = Values::of(values)?;
        let flow = match kind.is_of_flows() {
            true => Some(values.flow()?),
            false => None,
        };
        Some(Self {
            at_us,
            cpu: Some(cpu),
            slot: Some(values.get("slot")?),
            flow,
            what: What::of(kind, &values)?,
        })
    }

    /// Returns its kind, if it is one of the module's.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self.what {
            What::FlowStart { .. } => Kind::FlowStart,
            What::FlowStop { .. } => Kind::FlowStop,
            What::Batch { .. } => Kind::Batch,
            What::Merge { .. } => Kind::Merge,
            What::GivenUp { .. } => Kind::GivenUp,
            What::Late { .. } => Kind::Late,
            What::Lost { .. } | What::End { .. } => return None,
        })
    }

    /// Returns an event that is about no flow.
    pub fn of_none(at_us: u64, what: What) -> Self {
        Self {
            at_us,
            cpu: None,
            slot: None,
            flow: None,
            what,
        }
    }
}

impl What {
    fn of(kind: Kind, values: &Values<'_>) -> Option<Self> {
        Some(match kind {
            Kind::FlowStart => Self::FlowStart { pps: values.pps()? },
            Kind::FlowStop => Self::stop(values.pps()?, values.get("reason")?),
            Kind::Batch => Self::Batch {
                batch: values.get("batch")?,
                carrier: values.get("cpu")?,
                inline: values.get::<u8>("inline")? != 0,
            },
            Kind::Merge => Self::Merge {
                batch: values.get("batch")?,
                waited_us: values.get("waited_us")?,
            },
            Kind::GivenUp => Self::GivenUp {
                batch: values.get("batch")?,
                waited_us: values.get("waited_us")?,
                parked_pkts: values.get("parked_pkts")?,
                reason: values.get("reason")?,
            },
            Kind::Late => Self::Late {
                batch: values.get("batch")?,
                pkts: values.get("pkts")?,
            },
        })
    }

    /// Returns the stop of a flow for a reason of this name.
    pub fn stop(pps: Option<u32>, reason: String) -> Self {
        let mut all = Reason::ALL.iter();
        let known = all.find(|one| one.name() == reason);
        let words = known.map_or("a newer module knows why", |one| one.words());
        Self::FlowStop {
            pps,
            words: words.to_owned(),
            reason,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(f, "{seconds}.{micros:06} ")?;
        let flow = match (&self.flow, self.slot) {
            (Some(flow), Some(slot)) => format!("{flow} (slot {slot})"),
            (Some(flow), None) => flow.to_string(),
            (None, Some(slot)) => format!("the flow in slot {slot}"),
            (None, None) => "a flow".to_owned(),
        };
        match &self.what {
            What::FlowStart { pps } => {
                write!(f, "{flow} begins to be split{}", Pace(*pps))
            }
            What::FlowStop { pps, reason, words } => {
                write!(f, "{flow} stops being split{}: {words} ({reason})", Pace(*pps))
            }
            What::Batch {
                batch,
                carrier,
                inline: false,
            } => write!(f, "batch {batch} of {flow} goes to CPU {carrier}"),
            What::Batch { batch, carrier, .. } => write!(
                f,
                "batch {batch} of {flow} is carried by CPU {carrier} itself, which gives batches out"
            ),
            What::Merge {
                batch,
                waited_us: 0,
            } => write!(f, "batch {batch} of {flow} is merged, nothing waited for it"),
            What::Merge { batch, waited_us } => write!(
                f,
                "batch {batch} of {flow} is merged, later ones waited for it for {waited_us} us"
            ),
            What::GivenUp {
                batch,
                waited_us,
                parked_pkts,
                reason,
            } => write!(
                f,
                "batch {batch} of {flow} is given up ({reason}) after {waited_us} us, {} wait",
                count(u64::from(*parked_pkts), "packet")
            ),
            What::Late { batch, pkts } => write!(
                f,
                "{} of {flow} came late, in the turn of batch {batch}",
                count(u64::from(*pkts), "packet")
            ),
            What::Lost { events } => write!(
                f,
                "{} lost, as they were not read in time",
                were(*events)
            ),
            What::End { events, lost } => write!(
                f,
                "the end: {} printed, and {} lost",
                were(*events),
                were(*lost)
            ),
        }
    }
}

/// Returns `1 event was`, or `2 events were`.
fn were(events: u64) -> String {
    let verb = if events == 1 { "was" } else { "were" };
    format!("{} {verb}", count(events, "event"))
}

/// Writes packets per second, if they are known.
struct Pace(Option<u32>);

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pps) => write!(f, " at {pps} packets/s"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "          <idle>-0       [001] ..s1.    12.345678: flow_start: device eth0 queue 0 proto udp from 192.168.50.1:50001 to 192.168.50.2:4789 cpu 1 pps -1 slot 3 reason -";
    const STOP: &str = "    kworker/0:1-17      [000] b.s2.   112.000001: flow_stop: device eth0 queue - proto tcp from [fd00::1]:50001 to [fd00::2]:4789 cpu 0 pps 120 slot 63 reason path_queues";

    fn event(line: &str) -> Event {
        match Line::parse(line) {
            Some(Line::Event(event)) => event,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn flows_have_the_names_that_flows_has() {
        let start = event(START);
        let flow = start.flow.as_ref().expect("a flow");
        assert_eq!((start.at_us, start.cpu), (12_345_678, Some(1)));
        assert_eq!((start.slot, flow.queue), (Some(3), Some(0)));
        assert_eq!(start.what, What::FlowStart { pps: None });
        assert_eq!(
            start.to_string(),
            "12.345678 192.168.50.1:50001 to 192.168.50.2:4789 at eth0 (slot 3) begins to be split"
        );
        let stop = event(STOP);
        assert_eq!(stop.flow.as_ref().and_then(|flow| flow.queue), None);
        let words = Reason::PathQueues.words();
        assert_eq!(
            stop.to_string(),
            format!("112.000001 [fd00::1]:50001 to [fd00::2]:4789 at eth0 (slot 63) stops being split at 120 packets/s: {words} (path_queues)")
        );
    }

    #[test]
    fn events_of_batches_are_read() {
        let head = "  a [9] 1.1: late: -9  [013] d.s3.  7.000042: ";
        for (text, what, says) in [
            (
                "batch: slot 2 batch 4294967295 cpu 5 inline 0",
                What::Batch {
                    batch: u32::MAX,
                    carrier: 5,
                    inline: false,
                },
                "7.000042 batch 4294967295 of the flow in slot 2 goes to CPU 5",
            ),
            (
                "batch: slot 2 batch 0 cpu 1 inline 1",
                What::Batch {
                    batch: 0,
                    carrier: 1,
                    inline: true,
                },
                "7.000042 batch 0 of the flow in slot 2 is carried by CPU 1 itself, which gives batches out",
            ),
            (
                "merge: slot 2 batch 7 waited_us 0",
                What::Merge {
                    batch: 7,
                    waited_us: 0,
                },
                "7.000042 batch 7 of the flow in slot 2 is merged, nothing waited for it",
            ),
            (
                "given_up: slot 2 batch 8 waited_us 200 parked_pkts 31 reason deadline",
                What::GivenUp {
                    batch: 8,
                    waited_us: 200,
                    parked_pkts: 31,
                    reason: "deadline".to_owned(),
                },
                "7.000042 batch 8 of the flow in slot 2 is given up (deadline) after 200 us, 31 packets wait",
            ),
            (
                "late: slot 2 batch 9 pkts 1",
                What::Late { batch: 9, pkts: 1 },
                "7.000042 1 packet of the flow in slot 2 came late, in the turn of batch 9",
            ),
        ] {
            let found = event(&format!("{head}{text}"));
            assert_eq!((found.cpu, found.slot), (Some(13), Some(2)), "{text}");
            assert_eq!(found.what, what);
            assert_eq!(found.to_string(), says);
        }
    }

    #[test]
    fn what_is_no_event_is_told_from_one() {
        for line in ["", "CPU:1 [LOST 12 EVENTS]", "CPU:0 [LOST EVENTS]"] {
            assert_eq!(Line::parse(line), Some(Line::Remark), "{line}");
        }
        for line in [
            "# tracer: nop",
            "  a-9  [000] ...  7.000042: Unknown type 1234",
            "  a-9  [000] ...  7.000042: late: slot 2 batch 9",
            "  a-9  [000] ...  7.000042: late: slot 256 batch 9 pkts 1",
            "  a-9  [000] ...  7.1000000: late: slot 2 batch 9 pkts 1",
            "  a-9  [x] ...  7.000042: late: slot 2 batch 9 pkts 1",
            "  a-9  [000] ...  7.000042: other: slot 2 batch 9 pkts 1",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }

    #[test]
    fn names_are_those_of_the_tracepoints() {
        let header = include_str!("../../../../c-shims/module/mflow_trace.h");
        for kind in Kind::value_variants() {
            let name = kind.name();
            let value = kind.to_possible_value().expect("a name");
            assert_eq!(value.get_name(), name);
            let heads = [
                "TRACE_EVENT(",
                "TRACE_EVENT_FN(",
                "DEFINE_EVENT(mflow_flow, ",
            ];
            let is_there = |head: &&str| header.contains(&format!("{head}{name},"));
            assert!(heads.iter().any(is_there), "{name}");
        }
        let events = ["\nTRACE_EVENT", "\nDEFINE_EVENT"];
        let number: usize = events.iter().map(|head| header.matches(head).count()).sum();
        assert_eq!(number, Kind::value_variants().len());
    }

    /// The kernel's side keeps as much of a reason as has room in its array.
    #[test]
    fn each_reason_has_room_in_the_event() {
        let header = include_str!("../../../../c-shims/module/mflow_trace.h");
        let size = header.split("MFLOW_REASON_BYTES\t").nth(1).expect("a size");
        let size: usize = size.lines().next().expect("a line").parse().expect("one");
        for reason in Reason::ALL {
            assert!(reason.name().len() < size, "{}", reason.name());
        }
    }

    #[test]
    fn json_has_the_event_beside_its_flow() {
        let json = serde_json::to_value(event(START)).expect("JSON");
        assert_eq!(json["event"], "flow_start");
        assert_eq!(json["flow"]["from"], "192.168.50.1:50001");
        assert_eq!(json["slot"], 3);
        assert!(json["pps"].is_null());
    }
}
