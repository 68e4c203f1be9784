// SPDX-License-Identifier: GPL-2.0

//! A packet of the model, and what it meets.

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;

/// The next hop of packets of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) source: [u8; 6],
    /// `None`: not known yet.
    pub(crate) destination: Option<[u8; 6]>,
    pub(crate) mtu: usize,
    pub(crate) is_port: bool,
    /// The VLAN tags that frames take there.
    pub(crate) tags: &'static [Tag],
    /// The reason for which packets are not forwarded, such as an address of the host's own.
    pub(crate) kept: Option<&'static str>,
}

/// A VLAN tag as it stands in a frame: kind, and number with priority.
pub(crate) type Tag = [u8; 4];

/// A frame on its way through a chain.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) frame: Vec<u8>,
    pub(crate) ip_at: usize,
    pub(crate) headroom: usize,
    /// The number of times that it has the headers of its class's path in front.
    pub(crate) on_path: usize,
    /// The metadata that the chain leaves in front of the frame.
    pub(crate) metadata: Vec<u8>,
    /// `None`: it was received.
    pub(crate) leaving: Option<Leaving>,
    pub(crate) segments: Segments,
    /// True if the packet leaves by the device that it is at.
    pub(crate) stays: bool,
    /// The part of an answer to a test packet that is not known yet.
    pub(crate) answered: Option<Answered>,
}

/// The part of an answer that depends on the time.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    /// Bytes from the test packet to the end of the frame.
    pub(super) from_end: usize,
    /// The question, and its checksum.
    pub(super) question: Vec<u8>,
    pub(super) check: u16,
}

/// The kernel's knowledge of a packet that leaves, beside the packet's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaving {
    /// The Ethernet address of the device that it leaves by; `None`: the loopback device.
    pub(crate) device: Option<[u8; 6]>,
    /// The payload of the segments that it is to be cut into; 0: it is not cut.
    pub(crate) gso_size: u16,
    /// The number of these segments; 0: nobody has counted them.
    pub(crate) gso_segs: u16,
}

impl Leaving {
    /// Returns the Ethernet address of the device that it leaves by; the loopback device has zeros.
    pub(crate) fn mac(self) -> [u8; 6] {
        self.device.unwrap_or_default()
    }
}

/// The segments that a packet becomes on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    pub(crate) count: u64,
    /// The length of the longest; `None`: that of the packet, or not known.
    pub(crate) longest: Option<usize>,
}
