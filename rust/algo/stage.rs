// SPDX-License-Identifier: GPL-2.0

//! FALCON's way to use several CPUs: a flow stays whole, and goes from one CPU to the next where it goes from one device to
//! the next. So the work for a packet is done in stages, as on an assembly line.
//!
//! ```text
//!   NIC's core          CPU a                       CPU b                     CPU c
//!   driver, GRO ─ ring ─ IP, UDP, VXLAN ─ ring ─ GRO, bridge, veth ─ ring ─ IP, UDP or TCP ─▶ socket
//!            Stage::Nic             Stage::Tunnel              Stage::Veth
//! ```
//!
//! Packets have no tag beyond a ring, and nothing is merged: a flow keeps its order because all its packets take the same
//! rings. (Lei et al., *Parallelizing Packet Processing in Container Overlay Networks*, EuroSys '21, sections 4.1 and 4.2.)

use super::counters::Counter;
use super::knobs::{Knobs, Mode, Stages};
use super::sync::{AtomicBool, Ordering};
use super::tag::{Tag, TagKind};
use crate::algo::headers::flow_key::FlowHasher;

/// The point at which packets go on to the next CPU. The numbers are those of `include/net/mflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Behind the NIC's GRO, where RPS would choose a CPU.
    Nic = 1,
    /// Before the NIC's GRO, which the next CPU does.
    Gro = 2,
    /// Behind a tunnel's header, where `gro_cells_receive()` queues; the next CPU does the GRO of that queue.
    Tunnel = 3,
    /// On the way into a container, where a veth queues.
    Veth = 4,
}

impl Stage {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Nic, Self::Gro, Self::Tunnel, Self::Veth];

    /// Returns the stage with this number.
    #[inline]
    pub fn of_number(number: u32) -> Option<Self> {
        let index = (number as usize).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Returns the tag of a packet that waits in a ring to go on from here. No hook sees it.
    #[inline]
    pub const fn tag(self) -> Tag {
        Tag::new(TagKind::None, 0, self as u32)
    }

    /// Returns the stage from which the packet with this [`tag`](Self::tag) goes on.
    #[inline]
    pub fn of_tag(tag: Tag) -> Option<Self> {
        Self::of_number(tag.batch_bits())
    }

    /// Returns whether what goes on begins with GRO.
    #[inline]
    pub const fn begins_with_gro(self) -> bool {
        matches!(self, Self::Gro | Self::Tunnel)
    }

    /// Returns the counter of the packets that go on from here.
    #[inline]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Nic | Self::Gro => Counter::StageNicPkts,
            Self::Tunnel => Counter::StageTunnelPkts,
            Self::Veth => Counter::StageVethPkts,
        }
    }
}

/// The transitions that are used: several devices can be stacked into one stage. Memory of zeros is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSet(u8);

impl StageSet {
    /// Returns the transitions of a configuration; none where flows are split.
    pub const fn of(knobs: &Knobs) -> Self {
        let nic = match knobs.mode {
            Mode::Mflow => return Self(0),
            Mode::FalconDev => Stage::Nic,
            Mode::FalconFunc => Stage::Gro,
        };
        let (tunnel, veth) = match knobs.stages {
            Stages::All => (true, true),
            Stages::Tunnel => (true, false),
            Stages::Veth => (false, true),
            Stages::Nic => (false, false),
        };
        Self(
            1 << nic as u8
                | (tunnel as u8) << Stage::Tunnel as u8
                | (veth as u8) << Stage::Veth as u8,
        )
    }

    /// Returns whether there is any.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a flow goes on from here.
    #[inline]
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 >> stage as u8 & 1 == 1
    }
}

/// The treatment of packets by a first stage's source, while flows come from the ordinary path into the stages and go back.
///
/// ```text
///                packets go              lanes
///   Gathering    into the stages' rings  sleep, until the ordinary path of the source's CPU has been empty
///   Onward       into the stages' rings  carry them
///   Returning    into the ring at home   empty the stages; that at home sleeps
///   Home         into the ring at home   that at home carries what is in it, on the source's CPU; the first packet that
///                                        finds it empty, and all behind it, go the ordinary path: same CPU, same queues
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Route {
    /// The stages begin.
    Gathering = 0,
    /// They carry.
    Onward = 1,
    /// They end, and are not empty yet.
    Returning = 2,
    /// They are empty.
    Home = 3,
}

/// The knowledge whether a NIC's GRO may still hold packets that came before those which are taken in front of it. GRO may hold
/// them for longer than a poll (`gro_flush_timeout`), on a CPU that is quiet. Written in one context; memory of zeros is that of
/// a source that begins.
#[derive(Default)]
pub struct HeldByGro {
    holds_none: AtomicBool,
}

// ORDERING: Relaxed, all: written in one context; what reads it elsewhere has waited for all that ran there.
impl HeldByGro {
    /// Returns whether GRO may hold such packets.
    #[inline]
    pub fn may_hold(&self) -> bool {
        !self.holds_none.load(Ordering::Relaxed)
    }

    /// Notes that a packet goes into GRO.
    pub fn note_ordinary(&self) {
        self.holds_none.store(false, Ordering::Relaxed);
    }

    /// Notes that a packet is taken, to go onward or to be held. Returns whether GRO has to let go first of what it holds.
    #[inline]
    pub fn take(&self) -> bool {
        let may_hold = self.may_hold();
        if may_hold {
            self.holds_none.store(true, Ordering::Relaxed);
        }
        may_hold
    }
}

/// The way that a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the next stage.
    Onward,
    /// Into the ring at home.
    Held,
    /// Along the ordinary path.
    Ordinary,
}

impl Route {
    /// Returns the route with this number.
    #[inline]
    pub const fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Gathering,
            1 => Self::Onward,
            2 => Self::Returning,
            _ => Self::Home,
        }
    }

    /// Returns the way that a packet takes.
    #[inline]
    pub fn way(self, is_home_empty: impl FnOnce() -> bool) -> Way {
        match self {
            Self::Gathering | Self::Onward => Way::Onward,
            Self::Home if is_home_empty() => Way::Ordinary,
            Self::Returning | Self::Home => Way::Held,
        }
    }
}

/// Returns which of `nr_cpus` CPUs does the next stage of a flow: FALCON's first choice, or if that is one of the `loaded` (bit
/// mask), its second choice, whatever the load is there. `here` is the CPU that does this stage, if it is one of them. It gets
/// the next stage, too, only if there is no other.
///
/// All packets of a flow take the same rings as long as `loaded` stays the same, and the CPUs do.
#[inline]
pub fn choose(key: StageKey, device: u32, here: Option<u8>, nr_cpus: u8, loaded: u16) -> u8 {
    let hash = key.with_device(device);
    let first = first_choice(hash, here, nr_cpus);
    if u32::from(loaded) >> first & 1 == 0 {
        return first;
    }
    second_choice(hash, here, nr_cpus, first)
}

/// Chooses by a hash of flow and device.
///
/// From one of the CPUs a flow goes one step on at least, and half around at most: where there are as many CPUs as stages, the
/// three stages of an overlay have three CPUs. With a hash alone, as in FALCON, two of them would often share one.
#[inline]
fn first_choice(hash: u32, here: Option<u8>, nr_cpus: u8) -> u8 {
    let nr_cpus = u32::from(nr_cpus.max(1));
    let choice = match here {
        None => scale(hash, nr_cpus),
        Some(here) => {
            let most_steps = ((nr_cpus - 1) / 2).max(1);
            (u32::from(here) + 1 + scale(hash, most_steps)) % nr_cpus
        }
    };
    // CAST: below `nr_cpus`, which had 8 bits.
    choice as u8
}

/// Chooses among the others by a hash of the hash. Where there are none, the flow stays here: it has a stage less.
fn second_choice(hash: u32, here: Option<u8>, nr_cpus: u8, first: u8) -> u8 {
    let here = here.filter(|here| *here != first);
    let nr_others = nr_cpus.saturating_sub(1 + u8::from(here.is_some()));
    if nr_others == 0 {
        return here.unwrap_or(first);
    }
    // CAST: below `nr_others`, which had 8 bits.
    let mut choice = scale(mix(hash), u32::from(nr_others)) as u8;
    // It counts those that are left.
    let (low, high) = here.map_or((first, u8::MAX), |here| (first.min(here), first.max(here)));
    choice += u8::from(choice >= low);
    choice += u8::from(choice >= high);
    choice
}

/// Returns a hash of a hash.
fn mix(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x7feb_352d);
    let hash = (hash ^ hash >> 15).wrapping_mul(0x846c_a68b);
    hash ^ hash >> 16
}

/// Maps a hash to 0 to `n - 1`.
#[inline]
fn scale(hash: u32, n: u32) -> u32 {
    // CAST: the upper half of a product of 32-bit numbers.
    ((u64::from(hash) * u64::from(n)) >> 32) as u32
}

/// The key by which a stage knows a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageKey(u64);

impl StageKey {
    /// Returns the key of a packet, or nothing if it is not of IPv4 or IPv6. `packet` as for [`FlowHasher::key`].
    ///
    /// All packets have to take the way of their flow here, also those that are never split: what begins a connection has
    /// its key. Fragments and protocols without ports have that of their addresses.
    #[inline]
    pub fn of(keys: FlowHasher, eth_proto: u16, packet: &[u8]) -> Option<Self> {
        keys.stage_key(eth_proto, packet).map(Self)
    }

    #[inline]
    fn with_device(self, device: u32) -> u32 {
        let hash = (self.0 ^ u64::from(device)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: the upper half, to which all bits have come.
        (hash >> 32) as u32
    }
}
