// SPDX-License-Identifier: GPL-2.0

//! A step: an event that can happen to a host in the middle of its traffic, and its possible effect on the traffic.
//!
//! A new kind of step is a variant here with its text and its [`Effect`], a line in `step_kinds.rs`, and its actions in `apply.rs`.

use std::fmt;

use crate::network::topology::{self, CONTAINER};

/// The number of packets that may change places in a queue on the path while a flow stops or starts to be split.
const MIXED_PKTS: u64 = 64;
/// The number of packets that may wait for the CPU that the NIC's interrupts leave, also without the module
/// (`netdev_max_backlog`).
const LEFT_BEHIND_PKTS: u64 = 1_000;

/// An MTU that no device but the NIC usually has.
pub(super) const LARGER_MTU: usize = 1_500;

/// A device that packets pass on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Device {
    Nic,
    Vxlan,
    Bridge,
    Veth,
    Container,
}

impl Device {
    /// Returns its namespace, if not the first one, and its name there.
    pub(super) fn place(self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Nic => (None, "eth0"),
            Self::Vxlan => (None, "vxlan0"),
            Self::Bridge => (None, "br0"),
            Self::Veth => (None, "veth0"),
            Self::Container => (Some(CONTAINER), "eth0"),
        }
    }

    /// Runs `ip link WORDS` with `DEV` replaced by its name.
    pub(super) fn link(self, words: &str) -> anyhow::Result<()> {
        let (namespace, name) = self.place();
        topology::ip_in(namespace, &format!("link {}", words.replace("DEV", name)))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            (None, name) => f.write_str(name),
            (Some(namespace), name) => write!(f, "{namespace}'s {name}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    TokenBucket,
    FairQueue,
    Delay,
    /// Packets wait for so long that the module may have gone and come again.
    Hold,
}

/// A place on the way where packets wait until the module has gone and come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A discipline that delays each packet.
    Netem { seconds: u64 },
    /// A token bucket that is nearly closed, and opened at the end: nothing is lost.
    Bucket,
    /// The discipline `plug`, of which the same holds.
    Plug,
    /// A program that gives its verdicts late (NFQUEUE).
    Judge { ms: u64 },
}

impl Waiting {
    /// Returns the name of the kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Netem { .. } => "held by netem",
            Self::Bucket => "held by tbf",
            Self::Plug => "held by plug",
            Self::Judge { .. } => "held by nfqueue",
        }
    }
}

impl Discipline {
    /// Returns the name of the kind.
    fn kind(self) -> &'static str {
        match self {
            Self::TokenBucket => "qdisc tbf",
            Self::FairQueue => "qdisc fq",
            Self::Delay => "qdisc netem 1ms",
            Self::Hold => "qdisc netem 1s",
        }
    }

    /// Returns its name and options as `tc` takes them. None drops anything at the rate of the loads.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::TokenBucket => "tbf rate 10gbit burst 10mb limit 100mb",
            Self::FairQueue => "fq limit 100000 flow_limit 100000",
            Self::Delay => "netem delay 1ms limit 100000",
            Self::Hold => "netem delay 1s limit 100000",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A lane's CPU goes offline or comes back.
    Cpu {
        cpu: usize,
        online: bool,
    },
    /// A file in debugfs is written.
    Knob {
        name: &'static str,
        value: &'static str,
    },
    /// `rmmod`, and after some traffic `modprobe`.
    Module,
    /// `ip link set down`, and after some traffic `up`.
    Flap(Device),
    /// `ip link del`; of the container's, its namespace goes, devices and all.
    Delete(Device),
    /// To another namespace.
    Move(Device),
    /// The receiving UDP socket is closed and opened again.
    CloseSocket,
    /// The receiving TCP socket is closed with bytes unread, and another connection begins.
    CloseStream,
    /// `kill -9` of a program that receives another flow.
    Kill,
    /// A device has another MTU for a while.
    Mtu {
        device: Device,
        bytes: usize,
    },
    /// The NIC's receive ring gets another length.
    Rings {
        pkts: usize,
    },
    /// The container's device gets other queues.
    Channels {
        count: usize,
    },
    Rps {
        device: Device,
        on: bool,
    },
    Gro {
        device: Device,
        on: bool,
    },
    Xdp {
        device: Device,
        native: bool,
    },
    /// The programs that [`Step::Xdp`] has attached go.
    NoXdp,
    /// A queueing discipline on the host's end of the veth pair.
    Qdisc {
        discipline: Discipline,
        on: bool,
    },
    /// A program is asked about each datagram in the container, and says yes after so many milliseconds.
    Ask {
        ms: u64,
        on: bool,
    },
    /// `rmmod` and `modprobe` while packets of split flows wait.
    Held(Waiting),
    /// A packet filter in the container drops some of the datagrams.
    Drops {
        on: bool,
    },
    /// Rules in the container rewrite headers, set marks and count.
    Rules {
        on: bool,
    },
    /// Rules in the container look up the state of each connection, and have a helper for some.
    Tracking {
        on: bool,
    },
    /// Connections are tracked for a while, and all that is known of them is forgotten under load.
    ForgetTracked,
    /// A connection through address translation.
    Nat,
    /// A file is fetched by FTP. Only the helper of connection tracking lets the second connection in.
    Ftp,
    /// tcpdump comes and goes.
    Capture(Device),
    /// This many connections begin and end, with a few bytes each.
    Connections(usize),
    /// The loads end, and other flows begin.
    Flows,
    /// A softirq spins on a lane's CPU for many milliseconds at a time.
    Hog {
        cpu: usize,
    },
    /// The NIC's interrupts come to another CPU, as irqbalance has it.
    Interrupts {
        cpu: usize,
    },
}

/// The possible effect of a step on the traffic, now or when it is undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Packets may be lost.
    pub(super) loses: bool,
    /// This many datagrams may arrive out of order.
    pub(super) reorders_pkts: u64,
    /// The merger may give up waiting: what is late is counted.
    pub(super) gives_up: bool,
    /// The network is built again afterwards, and all loads begin again.
    pub(super) rebuilds: bool,
    /// The module's counters begin again within its life.
    pub(super) resets_counters: bool,
    /// Connections begin to be tracked. Segments of one stream that lanes carry at that moment are tracked at the same time,
    /// and the kernel keeps one: what it knows of both can only be merged for other protocols.
    pub(super) tracks: bool,
    /// Packets may wait for longer than the module is there: the next one counts them as late, and has not split them.
    pub(super) holds: bool,
}

/// Values that undo each other, the first one first.
const PAIRS: &[(&str, [&str; 2])] = &[
    ("enabled", ["1", "0"]),
    ("devices", ["+eth0", "-eth0"]),
    ("devices", ["-vxlan0", "+vxlan0"]),
    ("scaling", ["path", "device"]),
    ("mode", ["mflow", "falcon-dev"]),
    ("mode", ["mflow", "falcon-func"]),
    ("min_flow_pps", ["20", "10000000"]),
    ("load_threshold_pct", ["0", "85"]),
    ("load_threshold_pct", ["0", "1"]),
    ("join", ["1", "0"]),
];

impl Step {
    pub(super) fn effect(self) -> Effect {
        let none = Effect::default();
        let loses = Effect {
            loses: true,
            ..none
        };
        let mixes = Effect {
            reorders_pkts: MIXED_PKTS,
            ..none
        };
        match self {
            Self::Knob { name: "reset", .. } => Effect {
                resets_counters: true,
                ..none
            },
            Self::Knob {
                name: "merge_timeout_us",
                ..
            } => Effect {
                gives_up: true,
                ..none
            },
            Self::Delete(_) | Self::Move(_) => Effect {
                loses: true,
                gives_up: true,
                rebuilds: true,
                ..none
            },
            Self::Mtu { bytes, .. } if bytes >= LARGER_MTU => none,
            // With GRO on there, packets pass the link's own queue again from a moment after it has come up: a flow may begin to be split
            // just before.
            Self::Flap(Device::Veth | Device::Container) => Effect {
                loses: true,
                gives_up: true,
                ..mixes
            },
            Self::Flap(_)
            | Self::CloseSocket
            | Self::CloseStream
            | Self::Mtu { .. }
            | Self::Rings { .. }
            | Self::Drops { .. } => Effect {
                gives_up: true,
                ..loses
            },
            Self::Rps { .. } | Self::Gro { .. } => mixes,
            Self::Xdp { native: false, .. } => mixes,
            Self::Interrupts { .. } => Effect {
                reorders_pkts: LEFT_BEHIND_PKTS,
                ..none
            },
            Self::Channels { .. } | Self::Xdp { .. } | Self::NoXdp => Effect {
                loses: true,
                gives_up: true,
                ..mixes
            },
            Self::Qdisc { .. } | Self::Ask { .. } | Self::Held(_) => Effect {
                loses: true,
                gives_up: true,
                holds: true,
                ..mixes
            },
            Self::ForgetTracked | Self::Nat | Self::Ftp | Self::Tracking { .. } => Effect {
                tracks: true,
                ..none
            },
            Self::Cpu { .. }
            | Self::Knob { .. }
            | Self::Module
            | Self::Rules { .. }
            | Self::Kill
            | Self::Capture(_)
            | Self::Connections(_)
            | Self::Flows
            | Self::Hog { .. } => none,
        }
    }

    /// Returns the step that undoes it, if it switches something.
    fn reverse(self) -> Option<Self> {
        Some(match self {
            Self::Cpu { cpu, online } => Self::Cpu {
                cpu,
                online: !online,
            },
            Self::Rps { device, on } => Self::Rps { device, on: !on },
            Self::Gro { device, on } => Self::Gro { device, on: !on },
            Self::Qdisc { discipline, on } => Self::Qdisc {
                discipline,
                on: !on,
            },
            Self::Ask { ms, on } => Self::Ask { ms, on: !on },
            Self::Drops { on } => Self::Drops { on: !on },
            Self::Rules { on } => Self::Rules { on: !on },
            Self::Tracking { on } => Self::Tracking { on: !on },
            Self::Knob { name, value } => {
                let (_, [initial, other]) = PAIRS
                    .iter()
                    .find(|(of, values)| *of == name && values.contains(&value))?;
                let value = if value == *initial { other } else { initial };
                Self::Knob { name, value }
            }
            _ => return None,
        })
    }

    /// Tells whether this is how it is before the first step.
    fn is_initial(self) -> bool {
        match self {
            Self::Cpu { online, .. } => online,
            Self::Rps { on, .. }
            | Self::Qdisc { on, .. }
            | Self::Ask { on, .. }
            | Self::Drops { on }
            | Self::Rules { on }
            | Self::Tracking { on } => !on,
            Self::Gro { device, on } => on != (device == Device::Container),
            Self::Knob { name, value } => PAIRS
                .iter()
                .any(|(of, values)| *of == name && values[0] == value),
            _ => false,
        }
    }

    /// Returns the step that changes something after these: this one, or its reverse.
    pub(super) fn after(self, steps: &[Self]) -> Self {
        let reverse = self.reverse();
        let mut same = steps
            .iter()
            .rev()
            .filter(|&&step| step == self || Some(step) == reverse);
        let moot = same.next().map_or(self.is_initial(), |&last| last == self);
        match reverse {
            Some(reverse) if moot => reverse,
            _ => self,
        }
    }

    /// Returns the step that lets flows be split again, if this one stops that. A flow that has met a queue stays whole for
    /// longer than the queue is there.
    pub(super) fn resume(self) -> Option<Self> {
        match self {
            // It goes with flows in stages.
            Self::Knob {
                name: "load_threshold_pct",
                ..
            } => Some(Self::Knob {
                name: "mode",
                value: "mflow",
            }),
            Self::Knob {
                value: "10000000" | "0" | "-eth0" | "falcon-dev" | "falcon-func",
                ..
            } => self.reverse(),
            Self::Rps { .. } | Self::Gro { .. } | Self::Qdisc { .. } | Self::Ask { .. }
                if !self.is_initial() =>
            {
                self.reverse()
            }
            Self::Xdp { .. } => Some(Self::NoXdp),
            Self::Rps { .. }
            | Self::Gro { .. }
            | Self::Qdisc { .. }
            | Self::Ask { .. }
            | Self::NoXdp => Some(Self::Flows),
            _ => None,
        }
    }

    /// Tells whether it is about what only our hooks in the kernel make possible.
    pub(super) fn needs_hooks(self) -> bool {
        match self {
            Self::Knob { name, value } => {
                matches!(
                    name,
                    "build" | "join" | "mode" | "scaling" | "stages" | "load_threshold_pct"
                ) || value == "lane+stage"
            }
            _ => false,
        }
    }

    /// Tells whether it takes a kernel of a distribution, which has all modules that there are.
    pub(super) fn needs_distribution(self) -> bool {
        self == Self::Held(Waiting::Plug)
    }

    /// Tells whether it brings TCP connections along that are none of the loads.
    pub(super) fn connects(self) -> bool {
        matches!(
            self,
            Self::Kill | Self::Nat | Self::Ftp | Self::Connections(_)
        )
    }

    /// Returns the name of its kind: steps of one kind differ in parameters from which nothing else is expected.
    pub(super) fn kind(self) -> String {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Knob {
                name: "devices",
                value,
            } => return format!("knob devices {}", value.trim_start_matches(['+', '-'])),
            Self::Knob {
                name: name @ "mode",
                value,
            }
            | Self::Knob {
                name: name @ "cpus",
                value: value @ "auto",
            } => return format!("knob {name} {value}"),
            Self::Knob { name, .. } => return format!("knob {name}"),
            Self::Module => "module",
            Self::Flap(_) => "link",
            Self::Delete(Device::Container) => "delete namespace",
            Self::Delete(_) => "delete",
            Self::Move(_) => "move",
            Self::CloseSocket => "socket",
            Self::CloseStream => "stream",
            Self::Kill => "kill",
            Self::Mtu { bytes, .. } if bytes >= LARGER_MTU => "mtu larger",
            Self::Mtu { .. } => "mtu smaller",
            Self::Rings { .. } => "rings",
            Self::Channels { .. } => "channels",
            Self::Rps { .. } => "rps",
            Self::Gro { .. } => "gro",
            Self::Xdp { native: true, .. } => "xdp native",
            Self::Xdp { .. } => "xdp generic",
            Self::NoXdp => "xdp off",
            Self::Qdisc { discipline, .. } => discipline.kind(),
            Self::Ask { .. } => "nfqueue",
            Self::Held(waiting) => waiting.kind(),
            Self::Drops { .. } => "drops",
            Self::Rules { .. } => "rules",
            Self::Tracking { .. } => "tracking",
            Self::ForgetTracked => "conntrack",
            Self::Nat => "nat",
            Self::Ftp => "ftp",
            Self::Capture(_) => "capture",
            Self::Connections(_) => "connections",
            Self::Flows => "flows",
            Self::Hog { .. } => "hog",
            Self::Interrupts { .. } => "interrupts",
        }
        .to_owned()
    }
}

impl Effect {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            loses: self.loses || other.loses,
            reorders_pkts: self.reorders_pkts + other.reorders_pkts,
            gives_up: self.gives_up || other.gives_up,
            rebuilds: self.rebuilds || other.rebuilds,
            resets_counters: self.resets_counters || other.resets_counters,
            tracks: self.tracks || other.tracks,
            holds: self.holds || other.holds,
        }
    }
}

/// The text before the colon names the kind of step.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switched = |on: &bool| if *on { "on" } else { "off" };
        write!(f, "{}: ", self.kind())?;
        match self {
            Self::Cpu { cpu, online } => write!(f, "lane CPU {cpu} {}", switched(online)),
            Self::Knob { value, .. } => f.write_str(value),
            Self::Module => f.write_str("unloaded and loaded"),
            Self::Flap(device) => write!(f, "{device} down and up"),
            Self::Delete(Device::Container) => f.write_str("the container's"),
            Self::Delete(device) => write!(f, "{device}"),
            Self::Move(device) => write!(f, "{device} to another namespace"),
            Self::CloseSocket => f.write_str("the datagrams' closed and opened"),
            Self::CloseStream => f.write_str("its socket closed with bytes unread"),
            Self::Kill => f.write_str("another flow's receiver"),
            Self::Mtu { device, bytes } => write!(f, "{device} {bytes}"),
            Self::Rings { pkts } => write!(f, "eth0 {pkts}"),
            Self::Channels { count } => write!(f, "container's eth0 {count}"),
            Self::Rps { device, on } | Self::Gro { device, on } => {
                write!(f, "{device} {}", switched(on))
            }
            Self::Xdp { device, .. } => write!(f, "{device}"),
            Self::NoXdp => f.write_str("everywhere"),
            Self::Qdisc { discipline, on } => {
                let discipline = discipline.words();
                write!(f, "{discipline} on veth0 {}", switched(on))
            }
            Self::Ask { ms, on } => {
                write!(
                    f,
                    "verdicts after {ms} ms in the container {}",
                    switched(on)
                )
            }
            Self::Held(Waiting::Netem { seconds }) => {
                write!(f, "{seconds} s on veth0, and the module loaded again")
            }
            Self::Held(Waiting::Judge { ms }) => {
                write!(f, "{ms} ms in the container, and the module loaded again")
            }
            Self::Held(Waiting::Bucket | Waiting::Plug) => {
                f.write_str("on veth0 until the module is loaded again")
            }
            Self::Drops { on } => write!(f, "in the container {}", switched(on)),
            Self::Rules { on } => write!(f, "marks in the container {}", switched(on)),
            Self::Tracking { on } => write!(f, "in the container {}", switched(on)),
            Self::ForgetTracked => f.write_str("on, and all forgotten"),
            Self::Nat => f.write_str("a connection through it"),
            Self::Ftp => f.write_str("a file, and a helper that lets it in"),
            Self::Capture(device) => write!(f, "{device}"),
            Self::Connections(count) => write!(f, "{count} come and go"),
            Self::Flows => f.write_str("all end, and others begin"),
            Self::Hog { cpu } => write!(f, "a softirq on lane CPU {cpu}"),
            Self::Interrupts { cpu } => write!(f, "eth0's to CPU {cpu}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_on_is_switched_off_next() {
        let off = |cpu| Step::Cpu { cpu, online: false };
        let on = |cpu| Step::Cpu { cpu, online: true };
        assert_eq!(off(2).after(&[]), off(2));
        assert_eq!(on(2).after(&[]), off(2));
        assert_eq!(off(2).after(&[off(2), off(3)]), on(2));
        assert_eq!(off(2).after(&[off(2), on(2), off(3)]), off(2));
        let knob = |name, value| Step::Knob { name, value };
        let vxlan = knob("devices", "+vxlan0");
        assert_eq!(vxlan.after(&[knob("devices", "-eth0")]), vxlan);
        assert_eq!(vxlan.after(&[vxlan]), knob("devices", "-vxlan0"));
        // What has no reverse may come twice.
        let small = knob("batch_pkts", "1");
        assert_eq!(small.after(&[small]), small);
        assert_eq!(knob("enabled", "0").resume(), Some(knob("enabled", "1")));
        assert_eq!(knob("enabled", "1").resume(), None);
    }
}
