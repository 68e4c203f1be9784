// SPDX-License-Identifier: GPL-2.0

//! The structures that the programs read and write, as `c-shims/hike/tables.h` has them: the same names, members and sizes.
#![allow(unsafe_code, reason = "aya::Pod says that a type is plain bytes")]

use std::array;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;

use aya::Pod;

use crate::limits::{FLOW_BLOCKS, NO_LENGTH, PATH_BYTES, RULES};

/// Bits of the version in front of an address.
pub(crate) const VERSION_BITS: u32 = 32;

/// `struct hike_prefix` without its first member, which [`Key`](aya::maps::lpm_trie::Key) has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) version: [u8; 4],
    pub(crate) address: [u8; 16],
}

impl Address {
    pub(crate) const NONE: Self = Self {
        version: [0; 4],
        address: [0; 16],
    };

    pub(crate) fn of(address: IpAddr) -> Self {
        Self {
            version: [0, 0, 0, if address.is_ipv4() { 4 } else { 6 }],
            address: bytes(address),
        }
    }

    /// Returns the same in one of several tables that have a trie together.
    pub(crate) fn in_bank(mut self, bank: u8) -> Self {
        self.version[2] = bank;
        self
    }

    /// Returns in which of them it is.
    pub(crate) fn bank(&self) -> u8 {
        self.version[2]
    }
}

/// `struct hike_length`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    bits: u32,
    version: [u8; 4],
    mask: [u8; 16],
    shorter: u64,
}

impl Length {
    /// Returns the length of this many bits, for packets of a version, and the next shorter one. The default's length has no version.
    fn of(bits: u8, version: u8, shorter: usize) -> Self {
        let address = u32::from(bits).checked_sub(VERSION_BITS);
        let mask = address.and_then(|bits| u128::MAX.checked_shl(128_u32.saturating_sub(bits)));
        Self {
            bits: bits.into(),
            version: [0, 0, 0, address.map_or(0, |_| version)],
            mask: mask.unwrap_or(0).to_be_bytes(),
            // CAST: as wide.
            shorter: shorter as u64,
        }
    }
}

/// `struct hike_lengths`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    of_version: [[Length; NO_LENGTH + 1]; 2],
}

impl Lengths {
    /// Returns what leads packets of IPv4 and of IPv6 from each length to the next shorter one of these.
    pub(crate) fn of<T>(lengths: &[BTreeMap<u8, T>; 2]) -> Self {
        let of_version = [(4, &lengths[0]), (6, &lengths[1])].map(|(version, lengths)| {
            array::from_fn(|bits| {
                // CAST: 161 at most.
                let bits = bits as u8;
                let shorter = lengths.range(..bits).next_back();
                let shorter = shorter.map_or(NO_LENGTH, |(&bits, _)| bits.into());
                Length::of(bits, version, shorter)
            })
        });
        Self { of_version }
    }
}

/// Returns an address as the programs have it.
pub(crate) fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// `struct hike_class`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) chain: u16,
    pub(crate) behaviour: u16,
    pub(crate) path: u32,
}

impl Class {
    /// Bits of the chain: flows have classes of their own, by ports or by flow label.
    pub(crate) const HAS_PORTS: u16 = 0x8000;
    pub(crate) const HAS_LABELS: u16 = 0x4000;
    /// A bit of the chain: it is for packets alone that come by a device inside.
    pub(crate) const INSIDE: u16 = 0x2000;
    /// There for these flows alone.
    pub(crate) const OF_FLOWS: Self = Self {
        chain: 0x1fff,
        behaviour: 0,
        path: u32::MAX,
    };

    /// The place of the hint to mflow in the upper bits of the behaviour.
    pub(crate) const LANES_SHIFT: u32 = 14;

    /// Returns the place of the behaviour; 0: it has none.
    pub(crate) const fn behaviour_place(self) -> u16 {
        self.behaviour & ((1 << Self::LANES_SHIFT) - 1)
    }

    /// Returns the number of the hint to mflow.
    pub(crate) const fn lanes(self) -> u16 {
        self.behaviour >> Self::LANES_SHIFT
    }

    /// Returns the place of the chain.
    pub(crate) const fn chain_place(self) -> u16 {
        self.chain & !(Self::HAS_PORTS | Self::HAS_LABELS | Self::INSIDE)
    }
}

/// The bit of the groups of a device that stands for those inside.
pub(crate) const GROUP_INSIDE: u32 = 1;

/// `struct hike_exact_flow`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExactFlow {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) version: u32,
    pub(crate) protocol: u32,
    /// In network byte order.
    pub(crate) ports_or_label: [u8; 4],
    pub(crate) zero: u32,
}

/// `struct hike_behaviour`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) flags: u32,
    pub(crate) table: u32,
    pub(crate) next_hop: [u8; 16],
    pub(crate) number: u64,
}

impl Behaviour {
    /// The value that stands for none.
    pub(crate) const NONE: Self = Self {
        flags: 0,
        table: 0,
        next_hop: [0; 16],
        number: 0,
    };
    /// The flags.
    pub(crate) const END: u32 = 1;
    pub(crate) const DEC4: u32 = 2;
    pub(crate) const DEC6: u32 = 4;
    pub(crate) const PSP: u32 = 8;
    pub(crate) const USP: u32 = 16;
    pub(crate) const USD: u32 = 32;
}

/// `struct hike_sid_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SidCounts {
    pub(crate) pkts: u64,
    pub(crate) bytes: u64,
}

/// `struct hike_rules`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rules {
    pub(crate) words: [u64; RULES / 64],
}

/// `struct hike_rule_port`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RulePort {
    pub(crate) source: [u16; 2],
    pub(crate) destination: [u16; 2],
}

/// Numbers of sets of rules in a bank.
pub(crate) mod rule_sets {
    use crate::limits::RULE_PORT_SETS;

    pub(crate) const OF_PROTOCOL: usize = 0;
    pub(crate) const OF_UNSEEN_PROTOCOL: usize = 256;
    pub(crate) const OF_SOURCE_PORT: usize = 257;
    pub(crate) const OF_DESTINATION_PORT: usize = OF_SOURCE_PORT + RULE_PORT_SETS;
    pub(crate) const THAT_DENY: usize = OF_DESTINATION_PORT + RULE_PORT_SETS;
    pub(crate) const COUNT: usize = THAT_DENY + 1;
}

/// `struct hike_path`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) bytes: u16,
    pub(crate) most_bytes: u16,
    pub(crate) next_header_at: u8,
    pub(crate) flags: u8,
    pub(crate) zero: [u8; 2],
    pub(crate) header: [u8; PATH_BYTES],
}

impl Path {
    /// The value that stands for none.
    pub(crate) const NONE: Self = Self {
        bytes: 0,
        most_bytes: 0,
        next_header_at: 0,
        flags: 0,
        zero: [0; 2],
        header: [0; PATH_BYTES],
    };
    /// The flags.
    pub(crate) const COPIES_DSCP: u8 = 1;
    pub(crate) const LABELS_FLOWS: u8 = 2;
    pub(crate) const LEAVES_EXCEPTIONS: u8 = 4;
    pub(crate) const TELLS: u8 = 8;
}

/// `struct hike_device`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) mac: [u8; 6],
    pub(crate) flags: u16,
    pub(crate) network: u32,
}

impl Device {
    /// The flags.
    pub(crate) const OWN_PREFIXES: u16 = 1;
    pub(crate) const SIGNED: u16 = 2;
}

/// `struct hike_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) port: u32,
    pub(crate) mtu: u16,
    pub(crate) source: [u8; 6],
    pub(crate) destination: [u8; 6],
    pub(crate) zero: [u8; 2],
}

/// `struct hike_family`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) flags: u32,
    pub(crate) most_bytes: u32,
}

impl Family {
    /// The flags.
    pub(crate) const IPSEC: u32 = 1;
    pub(crate) const DISABLED: u32 = 2;
    pub(crate) const UNFORESEEN: u32 = 4;
    pub(crate) const VRFS: u32 = 8;
    pub(crate) const MULTIPATH: u32 = 16;
    pub(crate) const ICMP: u32 = 32;
    pub(crate) const PORTS: u32 = 64;
    pub(crate) const REDIRECTS: u32 = 128;
    pub(crate) const SUPPRESSED: u32 = 256;
}

/// `struct hike_routing`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Routing {
    pub(crate) of_version: [Family; 2],
    pub(crate) has_receivers: u64,
}

/// `struct hike_tagged`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tagged {
    pub(crate) device: u32,
    pub(crate) tags: [[u8; 4]; 2],
}

/// `struct hike_receiver`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) device: u32,
    pub(crate) asked: u32,
    pub(crate) flags: u32,
}

impl Receiver {
    /// The flags.
    pub(crate) const LEFT: u32 = 1;
    pub(crate) const STRICT: u32 = 2;
    pub(crate) const LOOSE: u32 = 4;
    pub(crate) const NO_IPV6: u32 = 8;
}

/// `struct hike_sender`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) port: u32,
    pub(crate) tag_bytes: u32,
    pub(crate) tags: [[u8; 4]; 2],
}

/// `struct hike_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) pkts: u64,
}

/// `struct hike_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) period_ns: u64,
    pub(crate) colour_bit: u32,
    pub(crate) number: u32,
    pub(crate) pkts: u64,
    pub(crate) blocks: [Block; FLOW_BLOCKS],
}

/// `struct hike_epoch`: its members are read and written one by one, in memory that is shared with the programs.
#[repr(C)]
pub(crate) struct Epoch {
    pub(crate) number: AtomicU64,
    pub(crate) watched_until: AtomicU64,
    pub(crate) now: AtomicU64,
    pub(crate) network: AtomicU64,
}

/// `struct hike_fill`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// The packet that a CPU has.
    pub(crate) packet: [u64; 12],
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) learned: u64,
}

/// `struct hike_neighbour_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeighbourKey {
    pub(crate) device: u32,
    pub(crate) version: u32,
    pub(crate) address: [u8; 16],
}

/// `struct hike_neighbour`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) asked: u64,
    pub(crate) mac: [u8; 8],
    pub(crate) is_valid: u32,
    pub(crate) is_stale: u32,
}

/// `struct hike_stamp_clock`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StampClock {
    pub(crate) tai_ahead_s: u32,
    pub(crate) error: u16,
    pub(crate) zero: u16,
}

/// Says of types that they are plain bytes.
macro_rules! plain {
    ($($of:ty)*) => {
        $(
            // SAFETY: Each is `repr(C)`, and made of integers and arrays of them without padding, as a test makes sure: its bytes are
            // all initialised, and any bytes are one of its values.
            unsafe impl Pod for $of {}
        )*
    };
}

plain!(Address Length Lengths Class ExactFlow Behaviour SidCounts Rules RulePort Path Device Route Block Counters);
plain!(Routing Tagged Receiver Sender);
plain!(Fill NeighbourKey Neighbour StampClock);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHAINS;

    #[test]
    fn there_is_no_padding() {
        assert_eq!(size_of::<Address>(), 20);
        assert_eq!(size_of::<Length>(), 32);
        assert_eq!(size_of::<Lengths>(), 2 * (NO_LENGTH + 1) * 32);
        assert_eq!(NO_LENGTH, VERSION_BITS as usize + 128 + 1);
        assert_eq!(size_of::<Class>(), 8);
        assert_eq!(size_of::<ExactFlow>(), 48);
        assert_eq!(size_of::<Behaviour>(), 32);
        assert_eq!(size_of::<SidCounts>(), 16);
        assert_eq!(size_of::<Rules>(), RULES / 8);
        assert_eq!(size_of::<RulePort>(), 8);
        assert_eq!(size_of::<Path>(), 8 + PATH_BYTES);
        assert_eq!(size_of::<Device>(), 12);
        assert_eq!(size_of::<Route>(), 20);
        assert_eq!(size_of::<Routing>(), 24);
        assert_eq!(size_of::<Tagged>(), 12);
        assert_eq!(size_of::<Receiver>(), 12);
        assert_eq!(size_of::<Sender>(), 16);
        assert_eq!(size_of::<Block>(), 16);
        assert_eq!(size_of::<Counters>(), 24 + FLOW_BLOCKS * 16);
        assert_eq!(size_of::<Epoch>(), 32);
        assert_eq!(size_of::<Fill>(), 120);
        assert_eq!(size_of::<NeighbourKey>(), 24);
        assert_eq!(size_of::<Neighbour>(), 24);
    }

    #[test]
    fn a_chain_s_place_is_beside_the_bits_of_a_class() {
        let bits = Class::HAS_PORTS | Class::HAS_LABELS | Class::INSIDE;
        // CAST: there are 1024.
        let last = CHAINS as u16 - 1;
        let class = Class {
            chain: last | bits,
            ..Class::OF_FLOWS
        };
        assert_eq!(class.chain_place(), last);
        assert_eq!(Class::OF_FLOWS.chain & bits, 0);
        assert!(Class::OF_FLOWS.chain > last);
    }

    #[test]
    fn a_prefix_counts_the_version_and_the_default_does_not() {
        let prefix = |text: &str| Address::prefix(text.parse().expect(text));
        let ten = prefix("10.0.0.0/8");
        assert_eq!(
            (ten.prefix_len(), ten.data().version, ten.data().address[0]),
            (40, [0, 0, 0, 4], 10)
        );
        assert_eq!(prefix("2001:db8::1").prefix_len(), 160);
        assert_eq!(prefix("0.0.0.0/0").prefix_len(), 32);
        assert_eq!(prefix("default").prefix_len(), 0);
    }

    #[test]
    fn each_length_leads_to_the_next_shorter_one() {
        let of = |texts: &[&str]| {
            let destinations = texts.iter().map(|text| text.parse().expect(text));
            destinations
                .map(|destination| (Address::length(destination), ()))
                .collect()
        };
        let lengths = Lengths::of(&[of(&[]), of(&["2001:db8::/64", "::1", "default"])]);
        let [v4, v6] = lengths
            .of_version
            .map(|lengths| lengths.map(|length| length.shorter));
        assert_eq!(v4, [161; 162]);
        let led = [161, 160, 159, 97, 96, 95, 1, 0].map(|length| v6[length]);
        assert_eq!(led, [160, 96, 96, 96, 0, 0, 0, 161]);
    }

    #[test]
    fn an_address_with_the_mask_of_a_length_is_the_key_of_its_prefix() {
        let [v4, v6] = Lengths::of::<()>(&[BTreeMap::new(), BTreeMap::new()]).of_version;
        for (lengths, whole, text) in [
            (v4, "255.255.255.255", "255.255.0.0/16"),
            (v4, "255.255.255.255", "0.0.0.0/0"),
            (v4, "255.255.255.255", "255.255.255.255"),
            (v4, "255.255.255.255", "default"),
            (v6, "ffff:ffff::1", "ffff:ffff::/33"),
            (v6, "ffff:ffff::1", "::/0"),
            (v6, "ffff:ffff::1", "ffff:ffff::1"),
            (v6, "ffff:ffff::1", "default"),
        ] {
            let key = Address::prefix(text.parse().expect(text));
            let length = lengths[key.prefix_len() as usize];
            let bytes = bytes(whole.parse().expect(whole));
            let masked = array::from_fn(|byte| bytes[byte] & length.mask[byte]);
            let own = Address {
                version: length.version,
                address: masked,
            };
            let own = (length.bits, own);
            assert_eq!(own, (key.prefix_len(), key.data()), "{text}");
        }
    }
}
