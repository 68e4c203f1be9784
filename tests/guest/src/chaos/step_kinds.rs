// SPDX-License-Identifier: GPL-2.0

//! The kinds of steps that sequences are drawn from.

use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use super::step::Device::{self, Bridge, Container, Nic, Veth, Vxlan};
use super::step::{Discipline, Step, Waiting, LARGER_MTU};
use crate::machine::cpu;

use When::{Gentle, Patching, Rough, RoughPatching};

/// The sequences that a kind of step is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// All of them: the traffic must not notice.
    Gentle,
    /// Sequences in which packets may be lost or reordered.
    Rough,
    /// Sequences in which the kernel patches its code under load: the traffic must not notice.
    Patching,
    /// Sequences in which the kernel patches its code under load, and packets may be lost or reordered.
    RoughPatching,
}

/// A kind of step, and the way in which its steps are drawn.
pub(super) struct Kind {
    pub(super) when: When,
    /// The frequency with which the kind is drawn, compared with the others.
    pub(super) weight: u32,
    pub(super) draw: fn(&mut Xoshiro256PlusPlus) -> Step,
}

/// Knobs that do not patch code while the NIC is opted in, and that the traffic must not notice.
const KNOBS: &[(&str, &str)] = &[
    ("cpus", "2"),
    ("cpus", "2-3"),
    ("cpus", "2-5"),
    ("cpus", "3,5"),
    ("cpus", "auto"),
    ("batch_pkts", "1"),
    ("batch_pkts", "16"),
    ("batch_pkts", "1024"),
    ("min_flow_pps", "10000000"),
    ("scaling", "device"),
    ("scaling", "device"),
    ("build", "lane"),
    ("build", "nic"),
    ("join", "0"),
    ("layout", "lane+stage"),
    ("layout", "lane+stage"),
    ("mode", "falcon-dev"),
    ("mode", "falcon-dev"),
    ("mode", "falcon-func"),
    ("stages", "nic+veth"),
    ("load_threshold_pct", "1"),
    ("load_threshold_pct", "85"),
    ("stages", "nic"),
    ("devices", "+vxlan0"),
    ("devices", "+vxlan0"),
    ("reset", "1"),
];
/// Knobs that switch the hooks off and on.
const PATCHING_KNOBS: &[(&str, &str)] = &[("enabled", "0"), ("devices", "-eth0")];

const ALL: &[Device] = &[Nic, Vxlan, Bridge, Veth, Container];

const DISCIPLINES: &[Discipline] = &[
    Discipline::TokenBucket,
    Discipline::FairQueue,
    Discipline::Delay,
    Discipline::Hold,
];

/// All kinds of steps, each with the frequency with which it is drawn.
pub(super) const KINDS: &[Kind] = &[
    kind(Gentle, 3, |random| Step::Cpu {
        cpu: pick(random, &cpu::LANES),
        online: false,
    }),
    kind(Gentle, 6, |random| knob(random, KNOBS)),
    kind(Gentle, 1, |_| Step::Kill),
    kind(Gentle, 1, |random| Step::Mtu {
        device: pick(random, &[Bridge, Veth, Container]),
        bytes: LARGER_MTU,
    }),
    kind(Gentle, 1, |_| Step::ForgetTracked),
    kind(Gentle, 1, |_| Step::Nat),
    kind(Gentle, 1, |_| Step::Ftp),
    kind(Gentle, 2, |_| Step::Rules { on: true }),
    kind(Gentle, 2, |_| Step::Tracking { on: true }),
    kind(Gentle, 2, |random| Step::Capture(pick(random, ALL))),
    kind(Gentle, 2, |random| {
        Step::Connections(random.random_range(5..=20))
    }),
    kind(Gentle, 1, |_| Step::Flows),
    kind(Gentle, 2, |random| Step::Hog {
        cpu: pick(random, &cpu::LANES),
    }),
    kind(Patching, 3, |_| Step::Module),
    kind(Patching, 3, |random| knob(random, PATCHING_KNOBS)),
    kind(RoughPatching, 2, |_| Step::Move(Nic)),
    kind(Rough, 2, |_| Step::Knob {
        name: "merge_timeout_us",
        value: "200",
    }),
    kind(Rough, 4, |random| Step::Flap(pick(random, ALL))),
    kind(Rough, 4, |random| {
        Step::Delete(pick(random, &[Vxlan, Bridge, Veth, Container]))
    }),
    kind(Rough, 3, |random| {
        Step::Move(pick(random, &[Vxlan, Veth, Container]))
    }),
    kind(Rough, 2, |_| Step::CloseSocket),
    kind(Rough, 2, |_| Step::CloseStream),
    kind(Rough, 2, |random| Step::Mtu {
        device: pick(random, ALL),
        bytes: pick(random, &[1_300, 1_400]),
    }),
    kind(Rough, 2, |random| Step::Rings {
        pkts: pick(random, &[256, 512]),
    }),
    kind(Rough, 2, |random| Step::Channels {
        count: pick(random, &[2, 3]),
    }),
    kind(Rough, 3, |random| Step::Rps {
        device: pick(random, &[Nic, Vxlan, Veth]),
        on: true,
    }),
    kind(Rough, 3, |random| Step::Gro {
        device: pick(random, &[Nic, Vxlan, Container]),
        on: true,
    }),
    // The kernel writes a call of the program into its own code.
    kind(RoughPatching, 3, |random| Step::Xdp {
        device: pick(random, &[Nic, Vxlan, Veth, Container]),
        native: false,
    }),
    kind(RoughPatching, 3, |random| Step::Xdp {
        device: pick(random, &[Nic, Veth, Container]),
        native: true,
    }),
    kind(RoughPatching, 2, |_| Step::NoXdp),
    kind(Rough, 4, |random| Step::Qdisc {
        discipline: pick(random, DISCIPLINES),
        on: true,
    }),
    kind(Rough, 2, |random| Step::Ask {
        ms: pick(random, &[20, 500, 2_000]),
        on: true,
    }),
    // A whole second is as long as the merge waits for packets.
    kind(RoughPatching, 9, |random| {
        Step::Held(pick(
            random,
            &[
                Waiting::Netem { seconds: 1 },
                Waiting::Netem { seconds: 3 },
                Waiting::Bucket,
                Waiting::Bucket,
                Waiting::Plug,
                Waiting::Plug,
                Waiting::Judge { ms: 1_000 },
                Waiting::Judge { ms: 3_000 },
            ],
        ))
    }),
    kind(Rough, 3, |_| Step::Drops { on: true }),
    kind(Rough, 3, |random| Step::Interrupts {
        cpu: pick(
            random,
            &[cpu::NIC, cpu::LANES[0], cpu::LANES[3], cpu::READER],
        ),
    }),
];

const fn kind(when: When, weight: u32, draw: fn(&mut Xoshiro256PlusPlus) -> Step) -> Kind {
    Kind { when, weight, draw }
}

pub(super) fn pick<T: Copy>(random: &mut Xoshiro256PlusPlus, from: &[T]) -> T {
    from[random.random_range(0..from.len())]
}

fn knob(random: &mut Xoshiro256PlusPlus, knobs: &[(&'static str, &'static str)]) -> Step {
    let (name, value) = pick(random, knobs);
    Step::Knob { name, value }
}
