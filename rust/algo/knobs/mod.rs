// SPDX-License-Identifier: GPL-2.0

//! The knobs: what an operator can set, within which limits, and how it is read and written.
//!
//! [`KNOBS`] is the one place that names them. The debugfs files and the log lines about refused values are made from it;
//! module parameters are looked up by its names. The parameters' declarations in C and the table in `rust/README.md` are written
//! from it, and from the comments of the knobs (`cargo xtask docs`).

pub mod combinations;
pub mod cpulist;
pub mod device_command;

use crate::algo::limits::{MAX_BATCH_PKTS, MAX_CPUS, MAX_LANES};
use core::ffi::CStr;
use core::fmt;

use self::combinations::Misfit;
use self::cpulist::{CpuListError, CpuListErrorKind, CpuSet};

/// The value of `cpus` with which the module chooses the CPUs.
const AUTO: &str = "auto";

/// A configuration. Every value in it is within its limits as long as it is changed with [`Knobs::set`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// True if flows are split at all.
    pub enabled: bool,
    /// The lanes, as CPUs; with `auto_cpus` those that have been chosen last.
    pub cpus: CpuSet,
    /// True if the module chooses the lanes' CPUs (`placement`), and chooses again when others are better.
    pub auto_cpus: bool,
    /// Packets in a batch: consecutive packets of a flow that take the same lane.
    pub batch_pkts: u32,
    /// The time for which the merger waits for a missing batch.
    pub merge_timeout_us: u32,
    /// The packet rate above which a flow is split.
    pub min_flow_pps: u32,
    /// The point on their way at which flows are split.
    pub scaling: Scaling,
    /// The core that builds the packets of split flows.
    pub build: Build,
    /// True if lanes make few packets of many.
    pub join: bool,
    /// The number of CPUs over which a lane's work goes.
    pub layout: Layout,
    /// The way in which a flow uses several CPUs.
    pub mode: Mode,
    /// The points at which a flow goes on to the next CPU, in the modes of FALCON.
    pub stages: Stages,
    /// The load that no lane's CPU is to reach; 0: there is no load controller.
    pub load_threshold_pct: u32,
}

/// Declares the values of a knob that are words, each with its word.
macro_rules! words {
    ($(#[doc = $about:literal])* $name:ident, default $default:ident:
     $($(#[doc = $text:literal])* $variant:ident = $word:literal,)*) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $text])* $variant,)*
        }

        impl $name {
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const WORDS: &'static [&'static str] = &[$($word,)*];
            /// The value of a freshly loaded module.
            pub const DEFAULT: Self = Self::$default;

            /// Returns the value as it is written.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// The part of a packet's way that the lanes carry.
    Scaling, default Path:
    /// All of it: flows are split before GRO, in the poll of the device's NAPI.
    Path = "path",
    /// The part behind one device: flows are split behind its GRO, where RPS would choose a CPU.
    Device = "device",
}

words! {
    /// The core that makes packets (`struct sk_buff`) from the data that the NIC has received, where the driver leaves the choice
    /// and flows are split in the poll of its NAPI. The first packet of a batch is always built by the core that dispatches.
    Build, default Auto:
    /// For each batch, the one that has less to do.
    Auto = "auto",
    /// The core that the NIC interrupts.
    Nic = "nic",
    /// The batch's lane.
    Lane = "lane",
}

words! {
    /// The number of CPUs over which a lane's work goes.
    Layout, default Lane:
    /// One.
    Lane = "lane",
    /// Two: one builds the packets, the other carries them, as in MFLOW's set-up for TCP (its Fig. 8).
    LaneStage = "lane+stage",
}

words! {
    /// The way in which a flow uses several CPUs.
    Mode, default Mflow:
    /// Its packets are split among them, and merged in order.
    Mflow = "mflow",
    /// It stays whole and goes from one to the next where it goes from device to device (FALCON's device-level pipelining).
    FalconDev = "falcon-dev",
    /// The same, but it leaves the NIC's core before GRO (FALCON's function-level splitting).
    FalconFunc = "falcon-func",
}

words! {
    /// The points at which a flow goes on to the next CPU, in the modes of FALCON; the devices in between are stacked into one
    /// stage.
    Stages, default All:
    /// At each device.
    All = "nic+tunnel+veth",
    /// At the NIC and at the end of a tunnel.
    Tunnel = "nic+tunnel",
    /// At the NIC and on the way into a container.
    Veth = "nic+veth",
    /// At the NIC only.
    Nic = "nic",
}

impl Build {
    /// Returns the value that is `number` as a number, or the default.
    #[inline]
    pub fn of_number(number: u8) -> Self {
        let value = Self::ALL.get(usize::from(number));
        value.copied().unwrap_or(Self::DEFAULT)
    }
}

/// Reads one of some words, with white space around it ignored, and returns what it stands for.
fn parse_word<T: Copy>(text: &[u8], names: &[&str], values: &[T]) -> Result<T, KnobError> {
    let text = text.trim_ascii();
    let place = names.iter().position(|name| name.as_bytes() == text);
    place
        .and_then(|place| values.get(place))
        .copied()
        .ok_or(KnobError::Syntax)
}

impl Knobs {
    /// The configuration of a freshly loaded module: off.
    pub const DEFAULT: Self = Self {
        enabled: false,
        cpus: CpuSet::EMPTY,
        auto_cpus: false,
        batch_pkts: BATCH_PKTS.default,
        merge_timeout_us: MERGE_TIMEOUT_US.default,
        min_flow_pps: MIN_FLOW_PPS.default,
        scaling: Scaling::DEFAULT,
        build: Build::DEFAULT,
        join: true,
        layout: Layout::DEFAULT,
        mode: Mode::DEFAULT,
        stages: Stages::DEFAULT,
        load_threshold_pct: LOAD_THRESHOLD_PCT.default,
    };

    /// Sets one knob from text. On an error the old value stays. Where the lanes' CPUs are chosen, they are to be chosen again.
    pub fn set(&mut self, knob: Knob, text: &[u8]) -> Result<(), KnobError> {
        let mut knobs = *self;
        match knob {
            Knob::Enabled => knobs.enabled = SWITCH.parse(text)? == 1,
            Knob::Cpus if text.trim_ascii() == AUTO.as_bytes() => knobs.auto_cpus = true,
            Knob::Cpus => (knobs.cpus, knobs.auto_cpus) = (parse_lanes(text)?, false),
            Knob::BatchPkts => knobs.batch_pkts = BATCH_PKTS.parse(text)?,
            Knob::MergeTimeoutUs => knobs.merge_timeout_us = MERGE_TIMEOUT_US.parse(text)?,
            Knob::MinFlowPps => knobs.min_flow_pps = MIN_FLOW_PPS.parse(text)?,
            Knob::Scaling => knobs.scaling = parse_word(text, Scaling::WORDS, Scaling::ALL)?,
            Knob::Build => knobs.build = parse_word(text, Build::WORDS, Build::ALL)?,
            Knob::Join => knobs.join = SWITCH.parse(text)? == 1,
            Knob::Layout => knobs.layout = parse_word(text, Layout::WORDS, Layout::ALL)?,
            Knob::Mode => knobs.mode = parse_word(text, Mode::WORDS, Mode::ALL)?,
            Knob::Stages => knobs.stages = parse_word(text, Stages::WORDS, Stages::ALL)?,
            Knob::LoadThresholdPct => {
                knobs.load_threshold_pct = LOAD_THRESHOLD_PCT.parse(text)?;
            }
        }
        match Misfit::of(&knobs) {
            Some(misfit) => Err(KnobError::Combination(misfit)),
            None => {
                *self = knobs;
                Ok(())
            }
        }
    }

    /// Returns the CPUs of each lane: of `2-5` with two for each, 2 and 3 build, and what they have built 4 and 5 carry.
    pub fn lanes(&self) -> impl Iterator<Item = LaneCpus> {
        let nr_building = match self.layout {
            Layout::Lane => 0,
            Layout::LaneStage => self.cpus.len() / 2,
        };
        let mut building = self.cpus.iter().take(nr_building);
        self.cpus
            .iter()
            .skip(nr_building)
            .map(move |carries| LaneCpus {
                carries,
                builds: building.next(),
            })
    }

    /// Returns whether there are CPUs to which packets may be given.
    pub fn has_work(&self) -> bool {
        self.enabled && !self.cpus.is_empty()
    }

    /// Returns whether sources end and begin again for `next`: where flows are taken, or what they are given to, changes.
    pub fn restarts_for(&self, next: &Self) -> bool {
        let made_for = |knobs: &Self| {
            (
                knobs.enabled,
                knobs.cpus,
                knobs.scaling,
                knobs.layout,
                // Where flows are split there are no stages.
                (knobs.mode != Mode::Mflow).then_some(knobs.stages),
                knobs.mode,
            )
        };
        made_for(self) != made_for(next)
    }

    /// Returns the value of one knob, for printing. What is printed is accepted by [`Knobs::set`].
    pub fn get(&self, knob: Knob) -> KnobValue {
        match knob {
            Knob::Enabled => KnobValue::Number(u32::from(self.enabled)),
            Knob::Cpus if self.auto_cpus => KnobValue::Word(AUTO),
            Knob::Cpus => KnobValue::Cpus(self.cpus),
            Knob::BatchPkts => KnobValue::Number(self.batch_pkts),
            Knob::MergeTimeoutUs => KnobValue::Number(self.merge_timeout_us),
            Knob::MinFlowPps => KnobValue::Number(self.min_flow_pps),
            Knob::Scaling => KnobValue::Word(self.scaling.name()),
            Knob::Build => KnobValue::Word(self.build.name()),
            Knob::Join => KnobValue::Number(u32::from(self.join)),
            Knob::Layout => KnobValue::Word(self.layout.name()),
            Knob::Mode => KnobValue::Word(self.mode.name()),
            Knob::Stages => KnobValue::Word(self.stages.name()),
            Knob::LoadThresholdPct => KnobValue::Number(self.load_threshold_pct),
        }
    }
}

/// The CPUs that do a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCpus {
    /// The CPU that carries packets to the merge point.
    pub carries: u32,
    /// The CPU that builds them before, if it is another.
    pub builds: Option<u32>,
}

impl LaneCpus {
    /// Returns the CPUs of a lane that has one.
    pub const fn one(cpu: u32) -> Self {
        Self {
            carries: cpu,
            builds: None,
        }
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Knob {
    /// Returns the description of the knob.
    pub const fn spec(self) -> &'static KnobSpec {
        // PANIC: `KNOBS` has one entry per variant, in the order of the enum: one list makes both.
        &KNOBS[self as usize]
    }
}

/// The name and the limits of a knob.
#[derive(Debug)]
pub struct KnobSpec {
    /// The knob.
    pub knob: Knob,
    /// Name of the debugfs file and of the module parameter, as the kernel takes it.
    pub name: &'static CStr,
    /// The values that it can have.
    pub limits: Limits,
}

impl KnobSpec {
    /// Returns the name for printing.
    pub fn name(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }

    /// Returns the sentence that says what is allowed, for printing after a value was refused.
    pub fn allowed(&self) -> Allowed<'_> {
        Allowed(self)
    }
}

/// The values that a knob can have.
#[derive(Debug)]
pub enum Limits {
    /// 0 or 1.
    Switch,
    /// A number within limits.
    Number(&'static NumberLimits),
    /// Up to [`MAX_LANES`] CPUs, or the word that leaves them to us.
    Lanes,
    /// One of some words.
    Words(&'static [&'static str]),
}

/// The limits and the default of a number.
#[derive(Debug)]
pub struct NumberLimits {
    /// The smallest allowed value.
    pub min: u32,
    /// The largest allowed value.
    pub max: u32,
    /// The value of a freshly loaded module.
    pub default: u32,
    /// The unit in which the value is counted.
    pub unit: &'static str,
}

const SWITCH: NumberLimits = NumberLimits {
    min: 0,
    max: 1,
    default: 0,
    unit: "",
};

const BATCH_PKTS: NumberLimits = NumberLimits {
    min: 1,
    max: MAX_BATCH_PKTS,
    default: 256,
    unit: "packets",
};

const MERGE_TIMEOUT_US: NumberLimits = NumberLimits {
    min: 10,
    max: 1_000_000,
    default: 200,
    unit: "microseconds",
};

const MIN_FLOW_PPS: NumberLimits = NumberLimits {
    min: 1,
    max: 10_000_000,
    default: 20_000,
    unit: "packets per second",
};

const LOAD_THRESHOLD_PCT: NumberLimits = NumberLimits {
    min: 0,
    max: 100,
    default: 85,
    unit: "per cent",
};

/// Declares the knobs, each with its name and limits. The comment of each is what operators read of it.
macro_rules! knobs {
    ($($(#[doc = $text:literal])* $variant:ident = $name:literal, $limits:expr;)*) => {
        /// Names one knob.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Knob {
            $($(#[doc = $text])* $variant,)*
        }

        /// The knobs, in the order of [`Knob`].
        pub const KNOBS: [KnobSpec; [$(Knob::$variant,)*].len()] = [
            $(KnobSpec { knob: Knob::$variant, name: $name, limits: $limits },)*
        ];
    };
}

knobs! {
    /// The switch: with 1 flows are split.
    Enabled = c"enabled", Limits::Switch;
    /// The lanes: online CPUs. `auto` chooses them, and again when interrupts or readers move.
    Cpus = c"cpus", Limits::Lanes;
    /// The number of packets in a micro-flow, at most.
    BatchPkts = c"batch_pkts", Limits::Number(&BATCH_PKTS);
    /// The time for which a silent lane may hold a flow up.
    MergeTimeoutUs = c"merge_timeout_us", Limits::Number(&MERGE_TIMEOUT_US);
    /// The packet rate from which a flow is split.
    MinFlowPps = c"min_flow_pps", Limits::Number(&MIN_FLOW_PPS);
    /// The place at which flows are split. `path`: before GRO, and lanes carry all of the way. `device`: behind GRO, where RPS acts.
    Scaling = c"scaling", Limits::Words(Scaling::WORDS);
    /// The core that builds the packets of split flows, with drivers that leave the choice: `nic`, `lane`, or with `auto` for each
    /// batch the one that has less to do. On an unpatched kernel it is `nic`, unless `build` is `lane`: that attaches an XDP program
    /// to the device, which loses offloads.
    Build = c"build", Limits::Words(Build::WORDS);
    /// With 1, lanes make few packets of many. Datagrams of one size go on in lists of up to 64. With our patches a socket with `UDP_GRO` gets
    /// them as one packet. Where lanes build packets, most segments join the packet before them, and do not become packets. With our
    /// patches that needs virtio_net with buffers that are merged, or ConnectX.
    Join = c"join", Limits::Switch;
    /// The number of CPUs of a lane. `lane`: one. `lane+stage`: two, of which one builds packets and the other carries them.
    Layout = c"layout", Limits::Words(Layout::WORDS);
    /// The way in which a flow uses several CPUs. `mflow`: it is split, and merged in order. `falcon-dev`, `falcon-func`: it goes as a
    /// whole from CPU to CPU, from behind the NIC's GRO or before it.
    Mode = c"mode", Limits::Words(Mode::WORDS);
    /// The points at which a flow goes on to the next CPU, in the modes of FALCON: the NIC, the end of a tunnel, a veth.
    Stages = c"stages", Limits::Words(Stages::WORDS);
    /// The load of a CPU that lanes are not to reach. Flows get lanes by need, small batches while there is time, and none of busy CPUs;
    /// stages leave busy CPUs. 0 leaves each flow all lanes.
    LoadThresholdPct = c"load_threshold_pct", Limits::Number(&LOAD_THRESHOLD_PCT);
}

impl NumberLimits {
    /// Reads a decimal number within the limits, with white space around it ignored.
    fn parse(&self, text: &[u8]) -> Result<u32, KnobError> {
        let digits = text.trim_ascii();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(KnobError::Syntax);
        }
        // A number that is too large for `u32` saturates and is then above every limit.
        let value = digits.iter().fold(0u32, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'))
        });
        if value < self.min || value > self.max {
            return Err(KnobError::Range);
        }
        Ok(value)
    }
}

fn parse_lanes(text: &[u8]) -> Result<CpuSet, KnobError> {
    let cpus = CpuSet::parse(text)?;
    if cpus.len() > MAX_LANES {
        return Err(KnobError::Range);
    }
    Ok(cpus)
}

/// The value of a knob, printed as it is written in debugfs, without a line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobValue {
    /// A number, or a switch as 0 or 1.
    Number(u32),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// A word.
    Word(&'static str),
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => fmt::Display::fmt(value, f),
            Self::Cpus(cpus) => fmt::Display::fmt(cpus, f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Prints as the sentence that says what a knob can be, such as `batch_pkts: allowed 1 to 4096 packets`.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a>(&'a KnobSpec);

impl fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: allowed {}", self.0.name(), self.0.limits)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limits::Switch => write!(f, "0 (off) or 1 (on)"),
            Limits::Number(NumberLimits { min, max, unit, .. }) => {
                write!(f, "{min} to {max} {unit}")
            }
            Limits::Lanes => write!(
                f,
                "{AUTO}, or up to {MAX_LANES} CPUs below {MAX_CPUS}, written like 2-5,8, or nothing for none"
            ),
            Limits::Words(words) => write_words(f, words.iter().copied()),
        }
    }
}

/// Writes `a`, `a or b`, `a, b or c`.
///
/// # Errors
///
/// The formatter's.
pub fn write_words(
    f: &mut fmt::Formatter<'_>,
    words: impl Iterator<Item = &'static str> + Clone,
) -> fmt::Result {
    let nr_words = words.clone().count();
    for (index, word) in words.enumerate() {
        let between = match index {
            0 => "",
            _ if index + 1 == nr_words => " or ",
            _ => ", ",
        };
        write!(f, "{between}{word}")?;
    }
    Ok(())
}

/// The reason why a value was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// The text is not a value of this kind; `EINVAL` to the writer.
    Syntax,
    /// The value is outside its limits; `ERANGE` to the writer.
    Range,
    /// The value does not go with another knob's; `EINVAL` to the writer.
    Combination(Misfit),
}

impl From<CpuListError> for KnobError {
    fn from(error: CpuListError) -> Self {
        match error.kind {
            CpuListErrorKind::Syntax => Self::Syntax,
            CpuListErrorKind::Range => Self::Range,
        }
    }
}
