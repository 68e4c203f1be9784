// SPDX-License-Identifier: GPL-2.0

//! Why a fast flow is not split: each reason once, with its words, its counter in `stats`, and how long it holds.
//!
//! The comment of each says when it is given, and then what an operator may do. The manual has the second (`cargo xtask docs`).

use crate::algo::counters::Counter;
use crate::algo::knobs::{Knobs, Mode};
use crate::algo::merge::slot::PathFault;

/// Takes a line of a comment out of its attribute; other attributes have none.
macro_rules! comment_line {
    (doc = $text:literal) => {
        $text
    };
    ($($other:tt)*) => {
        ""
    };
}

macro_rules! reasons {
    ($($(#[$($attribute:tt)*])* $variant:ident = $name:literal, $words:literal;)*) => {
        /// Why a flow is not split, or not any longer.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$($attribute)*])* $variant,)*
        }

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// Returns the stable name under which `flows` prints it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$variant => $name,)*
                }
            }

            /// Returns what it means, for people.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Reason::$variant => $words,)*
                }
            }

            /// Returns the lines of its comment: two paragraphs, of which the second says what an operator may do.
            pub const fn comment(self) -> &'static [&'static str] {
                match self {
                    $(Reason::$variant => &[$(comment_line!($($attribute)*),)*],)*
                }
            }
        }
    };
}

reasons! {
    /// Nothing has been decided yet, or the flow is to be asked again. The reason of zeros.
    ///
    /// Wait a moment.
    #[default]
    New = "new", "it is about to be asked where it ends";
    /// A probe is under way.
    ///
    /// Wait a moment.
    Asked = "asked", "its probe is on the way";
    /// Of its last packets none could be a probe or a fence.
    ///
    /// Nothing: there is little to do for acknowledgements.
    NoData = "no_data", "its packets seem to hold no data: acknowledgements, connections that begin or end";
    /// A fence is under way that was sent before this source began, or another flow's probe or fence waits on this CPU.
    ///
    /// Wait a moment.
    OtherStarts = "other_starts", "splitting begins elsewhere at this moment";
    /// The probe was not seen.
    ///
    /// Nothing. With our patches, the modes of FALCON are for such flows.
    ProbeUnseen = "probe_unseen", "its probe reached no socket: nobody listens, it is forwarded, or neither UDP nor TCP inside";
    /// Something on the path queues packets.
    ///
    /// Look for it (`tc qdisc show`, `ip -d link`), and take it off the path, or leave the flow whole.
    PathQueues = "path_queues", "something on its path queues packets, as does the NIC by which a flow is forwarded";
    /// A step on the path drops or delays what comes out of order.
    ///
    /// Look for it (`ip -d link`, `ip xfrm state`, `ipvsadm -ln`), and take it off the path, or leave the flow whole.
    PathOrdered = "path_ordered", "a step on its path needs the packets in order";
    /// Packets that were split no longer reached the merge point.
    ///
    /// Nothing: its socket or its route went away.
    PathLost = "path_lost", "its packets reached no socket here any more";
    /// All slots are taken.
    ///
    /// Raise `min_flow_pps`.
    NoSlot = "no_slot", "as many flows are split as can be at once";
    /// The load controller refuses or stops it.
    ///
    /// Give other `cpus`, or none: splitting gains nothing here.
    CpusBusy = "cpus_busy", "the cores of the lanes are busy";
    /// An XDP program asks for it.
    ///
    /// Nothing: it is asked for.
    HintNever = "hint_never", "an XDP program asks to keep it whole (lanes in a chain of HIKE)";
    /// It was split, and is not fast any more.
    ///
    /// Nothing: it goes back to one core.
    Slow = "slow", "its rate fell below half of min_flow_pps";
    /// It was split, and has no packets any more.
    ///
    /// Nothing: it goes back to one core.
    Silent = "silent", "no packet of it came for a second";
    /// Its source is about to end.
    ///
    /// Nothing: it goes back to one core.
    SwitchedOff = "switched_off", "its queue goes, or knobs are changing";
    /// Of no flow: `enabled` is 0.
    ///
    /// Set `enabled`.
    NotEnabled = "not_enabled", "enabled is 0";
    /// Of no flow: `mode` is one of FALCON's.
    ///
    /// Set `mode`.
    OtherMode = "other_mode", "in this mode flows go from CPU to CPU as a whole";
    /// There are no lanes: `cpus` is empty, or the choice of `auto`.
    ///
    /// Set `cpus`. With `auto`, no CPU is left.
    NoLanes = "no_lanes", "cpus is empty, or auto, and no CPU is left beside those of the NIC and the readers";
    /// Of no flow: `devices` is empty.
    ///
    /// Set `devices`.
    NoDevices = "no_devices", "devices is empty";
}

/// The time for which a reason keeps a flow on the ordinary path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It does not: the flow is tried again with its next packets.
    No,
    ForMs(u32),
    /// For so long the first time, and each further time twice as long.
    FromMs(u32),
}

/// The time for which a flow stays on the ordinary path if its probe was not seen, or if there is no slot or no time for it.
pub(crate) const HOLD_MS: u32 = 1_000;
/// The time for which a flow whose path does not suit stays on the ordinary path at first, where only speed is at stake, and
/// where packets are.
const PATH_HOLD_MS: u32 = 5_000;
const ORDERED_HOLD_MS: u32 = 60_000;

impl Reason {
    /// Returns the reason of this number.
    pub(super) fn of_number(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::New)
    }

    /// Returns the counter that counts how often it has kept a flow from being split, or from staying so.
    pub const fn counter(self) -> Option<Counter> {
        match self {
            Self::PathQueues => Some(Counter::PathsAsync),
            Self::PathOrdered => Some(Counter::PathsOrdered),
            Self::PathLost => Some(Counter::PathsLost),
            Self::NoSlot => Some(Counter::NoSlot),
            Self::CpusBusy => Some(Counter::CpusBusy),
            _ => None,
        }
    }

    pub(crate) const fn hold(self) -> Hold {
        match self {
            Self::ProbeUnseen | Self::NoSlot | Self::CpusBusy => Hold::ForMs(HOLD_MS),
            Self::PathQueues | Self::PathLost => Hold::FromMs(PATH_HOLD_MS),
            Self::PathOrdered => Hold::FromMs(ORDERED_HOLD_MS),
            _ => Hold::No,
        }
    }

    /// Returns why no flow at all is split, if none is.
    pub fn of_all(knobs: &Knobs, has_devices: bool) -> Option<Self> {
        if !knobs.enabled {
            Some(Self::NotEnabled)
        } else if knobs.mode != Mode::Mflow {
            Some(Self::OtherMode)
        } else if knobs.cpus.is_empty() {
            Some(Self::NoLanes)
        } else if !has_devices {
            Some(Self::NoDevices)
        } else {
            None
        }
    }
}

impl From<PathFault> for Reason {
    fn from(fault: PathFault) -> Self {
        match fault {
            PathFault::Queues => Self::PathQueues,
            PathFault::Ordered => Self::PathOrdered,
        }
    }
}
