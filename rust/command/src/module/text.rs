// SPDX-License-Identifier: GPL-2.0

//! The texts that the module prints, read back. A key that is not known is passed over: a newer module may have more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

use super::Unreachable;

/// The module's version, and its way into the kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Version {
    /// The module's version.
    pub version: String,
    /// The number of the boundary between its two halves, Rust and C.
    pub abi: u32,
    /// The way into the stack.
    pub way: Way,
    /// The list of what is missing without the project's patches; null with them.
    pub without: Option<String>,
}

/// A way into the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Through the hooks of the project's patches.
    Patched,
    /// Through what an unpatched kernel offers to modules.
    Stock,
}

impl Version {
    /// Reads the file `version`: `0.2.0 abi 7 stock`, and in a second line what is missing.
    pub fn parse(text: &str) -> Result<Self, Unreachable> {
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default();
        let unclear = || unclear("version", line);
        let words: Vec<&str> = line.split(' ').collect();
        let [version, "abi", abi, way] = words[..] else {
            return Err(unclear());
        };
        let way = match way {
            "patched" => Way::Patched,
            "stock" => Way::Stock,
            _ => return Err(unclear()),
        };
        let without = lines.next().map(|line| {
            let list = line.strip_prefix("without: ").unwrap_or(line);
            list.to_owned()
        });
        Ok(Self {
            version: version.to_owned(),
            abi: abi.parse().map_err(|_| unclear())?,
            way,
            without,
        })
    }
}

/// A line of the file `builders`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Builder {
    /// The opted-in device.
    pub device: String,
    /// The core that may build packets: `lane`, or the reason why it is the NIC's. `watched`: datagrams are not joined.
    pub builder: String,
    /// The number of queues (on an unpatched kernel, of CPUs) that it is for; null with `watched`.
    pub queues: Option<u32>,
}

impl Builder {
    /// Reads the file.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Unreachable> {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let (Some(device), Some(builder)) = (words.next(), words.next()) else {
                return Err(unclear("builders", line));
            };
            let queues = words.next().map(str::parse).transpose();
            Ok(Self {
                device: device.to_owned(),
                builder: builder.to_owned(),
                queues: queues.map_err(|_| unclear("builders", line))?,
            })
        };
        text.lines().map(line).collect()
    }
}

/// Names in `stats` that have the number of a CPU in them.
#[derive(Clone, Copy, Debug)]
pub struct OfCpus {
    before: &'static str,
    behind: &'static str,
}

impl OfCpus {
    /// The packets carried by each lane's CPU: `lane_cpu2_pkts`.
    pub const LANE_PKTS: Self = Self::new("lane_cpu", "_pkts");
    /// The memory of the packets that wait for each lane's CPU (where it has two, for the one that carries): `lane_cpu2_ring_bytes`.
    pub const LANE_RING_BYTES: Self = Self::new("lane_cpu", "_ring_bytes");
    /// 1 if a CPU is no first choice for a stage: `stage_cpu2_loaded`.
    pub const STAGE_LOADED: Self = Self::new("stage_cpu", "_loaded");
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LANE_PKTS, Self::LANE_RING_BYTES, Self::STAGE_LOADED];

    const fn new(before: &'static str, behind: &'static str) -> Self {
        Self { before, behind }
    }

    /// Returns the CPU in a name, if it is one of these.
    pub fn cpu_in(self, name: &str) -> Option<u32> {
        let number = name.strip_prefix(self.before)?.strip_suffix(self.behind)?;
        number.parse().ok()
    }
}

/// The file `stats`: counters and gauges by name, in the module's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats(Vec<(String, u64)>);

impl Stats {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, Unreachable> {
        let line = |line: &str| {
            let pair = line.split_once(' ');
            let pair = pair.and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            pair.ok_or_else(|| unclear("stats", line))
        };
        Ok(Self(text.lines().map(line).collect::<Result<_, _>>()?))
    }

    /// Returns the value of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut all = self.0.iter();
        all.find(|(of, _)| of == name).map(|(_, value)| *value)
    }

    /// Returns the sum of those of these names that there are.
    pub fn sum(&self, names: &[&str]) -> u64 {
        let found = names.iter().filter_map(|name| self.get(name));
        found.fold(0, u64::wrapping_add)
    }

    /// Returns the values of these names, by CPU.
    pub fn by_cpu(&self, names: OfCpus) -> BTreeMap<u32, u64> {
        let found = self
            .iter()
            .filter_map(|(name, value)| Some((names.cpu_in(name)?, value)));
        found.collect()
    }

    /// Returns what was added since `before`. Gauges may have fallen, and counters may have been reset: then it is nothing.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let added = self.0.iter().map(|(name, now)| {
            let then = before.get(name).unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        });
        Self(added.collect())
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// The file `flows`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlowList {
    /// The reason why no flow at all is split; null if some can be.
    pub none_split: Option<Why>,
    /// The fast flows.
    pub flows: Vec<Flow>,
    /// The number of flows for which there was no room in the list.
    pub left_out: u32,
    /// The number of flows that changed while they were read.
    pub changing: u32,
}

/// A reason why flows are whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Why {
    /// The reason's stable name, such as `path_queues`.
    pub reason: String,
    /// The words for people.
    pub words: String,
}

/// A fast flow. Null stands for what is not known, or does not apply.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Flow {
    /// The device that it comes through.
    pub device: String,
    /// The device's receive queue.
    pub queue: Option<u16>,
    /// The protocol outside: `udp` or `tcp`.
    pub proto: Option<String>,
    /// The outer address and port of the sender.
    pub from: Option<SocketAddr>,
    /// The outer address and port of the receiver.
    pub to: Option<SocketAddr>,
    /// The CPU that dispatches it.
    pub cpu: u32,
    /// The packets on the wire per second.
    pub pps: Option<u32>,
    /// `whole`, `probing`, `split`, and on the way back `stopping`, `draining`.
    pub state: String,
    /// The wish of an XDP program: `split` or `never`.
    pub hint: Option<String>,
    /// The number of its place at the merge point.
    pub slot: Option<u8>,
    /// The CPUs that get its batches now, as a list such as `2-3`.
    pub lanes: Option<String>,
    /// The packets in a batch.
    pub batch_pkts: Option<u16>,
    /// The packets that all cores carried, divided by those of the core that carried most.
    pub gain: Option<f64>,
    /// The packets that wait for their turn now.
    pub parked_pkts: Option<u32>,
    /// The packets of the last second that came after their turn.
    pub late_pkts: Option<u32>,
    /// The batches of the last second that were not waited for any longer.
    pub given_up_batches: Option<u32>,
    /// The reason why it is not split.
    pub why: Option<Why>,
    /// The milliseconds until it is tried again.
    pub again_in_ms: Option<u32>,
}

impl Flow {
    /// Returns whether its packets go into batches.
    pub fn is_split(&self) -> bool {
        self.state == "split"
    }

    /// Returns the stable name of the reason why it is not split, if it is not.
    pub fn reason(&self) -> Option<&str> {
        self.why.as_ref().map(|why| why.reason.as_str())
    }
}

impl FlowList {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, Unreachable> {
        let mut list = Self::default();
        for line in text.lines() {
            list.add(line).ok_or_else(|| unclear("flows", line))?;
        }
        Ok(list)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        if let Some(rest) = line.strip_prefix("# ") {
            let (count, what) = rest.split_once(' ')?;
            let place = match what {
                "more, for which there is no room" => &mut self.left_out,
                "more, which changed just now" => &mut self.changing,
                _ => return None,
            };
            *place = count.parse().ok()?;
        } else if let Some(rest) = line.strip_prefix("none split reason ") {
            let (reason, words) = rest.split_once(" # ")?;
            self.none_split = Some(why(reason, words));
        } else {
            self.flows.push(flow(line)?);
        }
        Some(())
    }
}

fn why(reason: &str, words: &str) -> Why {
    Why {
        reason: reason.to_owned(),
        words: words.to_owned(),
    }
}

/// Reads a line of keys and values, and of words behind `#`, which stands where a key would: a device may have any name.
fn flow(line: &str) -> Option<Flow> {
    let mut pairs = BTreeMap::new();
    let mut rest = line;
    let mut words = None;
    while !rest.is_empty() {
        let (key, behind) = rest.split_once(' ')?;
        if key == "#" {
            words = Some(behind);
            break;
        }
        let (value, behind) = behind.split_once(' ').unwrap_or((behind, ""));
        pairs.insert(key, value);
        rest = behind;
    }
    let pairs = Pairs(pairs);
    Some(Flow {
        device: pairs.text("device")?,
        queue: pairs.or_dash("queue")?,
        proto: pairs.or_dash("proto")?,
        from: pairs.or_dash("from")?,
        to: pairs.or_dash("to")?,
        cpu: pairs.text("cpu")?.parse().ok()?,
        pps: pairs.or_dash("pps")?,
        state: pairs.text("state")?,
        hint: pairs.text("hint"),
        slot: pairs.if_there("slot")?,
        lanes: pairs.text("lanes"),
        batch_pkts: pairs.if_there("batch_pkts")?,
        gain: pairs.if_there("gain")?,
        parked_pkts: pairs.if_there("parked_pkts")?,
        late_pkts: pairs.if_there("late_pkts")?,
        given_up_batches: pairs.if_there("given_up_batches")?,
        why: pairs
            .0
            .get("reason")
            .map(|reason| why(reason, words.unwrap_or_default())),
        again_in_ms: pairs.if_there("again_in_ms")?,
    })
}

/// The keys of a line, with their values.
struct Pairs<'a>(BTreeMap<&'a str, &'a str>);

impl Pairs<'_> {
    fn text(&self, key: &str) -> Option<String> {
        self.0.get(key).map(|&value| value.to_owned())
    }

    /// Reads a value that has to be there, and is a dash if it is not known. `None` if it can't be read.
    fn or_dash<T: FromStr>(&self, key: &str) -> Option<Option<T>> {
        match *self.0.get(key)? {
            "-" => Some(None),
            value => value.parse().ok().map(Some),
        }
    }

    /// Reads a value that need not be there. `None` if it can't be read.
    fn if_there<T: FromStr>(&self, key: &str) -> Option<Option<T>> {
        if self.0.contains_key(key) {
            self.or_dash(key)
        } else {
            Some(None)
        }
    }
}

fn unclear(file: &'static str, line: &str) -> Unreachable {
    Unreachable::Text {
        file,
        line: line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_ways_are_read() {
        let stock = Version::parse("0.2.0 abi 7 stock\nwithout: mode falcon-dev and falcon-func\n");
        let expected = Version {
            version: "0.2.0".to_owned(),
            abi: 7,
            way: Way::Stock,
            without: Some("mode falcon-dev and falcon-func".to_owned()),
        };
        assert_eq!(stock.expect("it is one"), expected);
        let patched = Version::parse("0.2.0 abi 7 patched\n").expect("it is one");
        assert_eq!((patched.way, patched.without), (Way::Patched, None));
        for other in ["", "0.2.0", "0.2.0 abi x stock", "0.2.0 abi 7 other"] {
            let error = Version::parse(other).expect_err(other);
            assert!(error.to_string().starts_with("version of"), "{error}");
        }
    }

    #[test]
    fn builders_have_a_number_unless_they_are_watched() {
        let all = Builder::parse_all("eth0 lane 2\neth0 watched\n").expect("they are");
        let queues: Vec<_> = all.iter().map(|one| one.queues).collect();
        assert_eq!(queues, [Some(2), None]);
        assert_eq!(all[1].builder, "watched");
        Builder::parse_all("eth0 lane two\n").expect_err("no number");
    }

    #[test]
    fn a_line_of_stats_that_is_none_is_an_error() {
        let stats = Stats::parse("late_pkts 3\nlane_cpu2_pkts 18446744073709551615\n");
        let stats = stats.expect("they are");
        assert_eq!(stats.get("lane_cpu2_pkts"), Some(u64::MAX));
        assert_eq!(stats.sum(&["late_pkts", "other"]), 3);
        assert_eq!(stats.by_cpu(OfCpus::LANE_PKTS), [(2, u64::MAX)].into());
        assert!(stats.by_cpu(OfCpus::LANE_RING_BYTES).is_empty());
        for text in ["late_pkts", "late_pkts -1", "late_pkts 1 2"] {
            let error = Stats::parse(text).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_line_of_flows_that_is_none_is_an_error() {
        for line in [
            "device eth0",
            "none split",
            "# many more",
            "device eth0 queue - proto - from - to - cpu x pps - state whole",
        ] {
            let error = FlowList::parse(line).expect_err(line).to_string();
            assert!(error.contains(line), "{error}");
        }
    }
}
