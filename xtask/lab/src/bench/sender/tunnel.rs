// SPDX-License-Identifier: GPL-2.0

//! The device under the TCP/IP stack: it puts packets into frames for the wire, and takes them out of frames from there.
//!
//! A device for IP packets knows no hardware addresses: those in the frames are fixed, as the neighbours in the guest are.

use anyhow::Result;
use mflow_frames::{wire, Envelope, OuterChecksum};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{Ipv4Packet, TcpPacket, TcpSeqNumber};

/// Frames are written to the wire when they have this many bytes: few enough for a socket's usual buffer.
const BURST_BYTES: usize = 64 << 10;

pub(super) struct Tunnel {
    /// The packet that has arrived; empty if the stack has taken it.
    arrived: Vec<u8>,
    leaving: Leaving,
}

/// The sending half of the device.
struct Leaving {
    envelope: Envelope,
    frames: Vec<u8>,
    /// The end of what has been sent of the connection.
    end: Option<TcpSeqNumber>,
    sent_again: u64,
}

impl Tunnel {
    pub(super) fn new(nic_mac: &str, overlay: bool) -> Result<Self> {
        Ok(Self {
            arrived: Vec::new(),
            leaving: Leaving {
                envelope: Envelope::new(nic_mac, overlay)?,
                frames: Vec::new(),
                end: None,
                sent_again: 0,
            },
        })
    }

    pub(super) fn envelope(&self) -> &Envelope {
        &self.leaving.envelope
    }

    /// Takes a frame from the wire; returns whether there is a packet for the stack in it.
    pub(super) fn arrive(&mut self, frame: &[u8]) -> bool {
        self.arrived.clear();
        let packet = self.leaving.envelope.open(frame);
        self.arrived.extend_from_slice(packet.unwrap_or_default());
        packet.is_some()
    }

    /// Exchanges the frames that are to be written for an empty buffer.
    pub(super) fn exchange(&mut self, frames: &mut Vec<u8>) {
        frames.clear();
        std::mem::swap(&mut self.leaving.frames, frames);
    }

    /// Returns how many segments have been sent again; mere acknowledgements are none.
    pub(super) fn sent_again(&self) -> u64 {
        self.leaving.sent_again
    }
}

impl Leaving {
    fn count(&mut self, packet: &[u8]) {
        let Ok(ip) = Ipv4Packet::new_checked(packet) else {
            return;
        };
        let Ok(tcp) = TcpPacket::new_checked(ip.payload()) else {
            return;
        };
        let bytes = tcp.segment_len();
        let end = tcp.seq_number() + bytes;
        if bytes > 0 && self.end.is_some_and(|known| end <= known) {
            self.sent_again += 1;
        } else if bytes > 0 {
            self.end = Some(end);
        }
    }
}

pub(super) struct Arrived<'a>(&'a mut Vec<u8>);
pub(super) struct Slot<'a>(&'a mut Leaving);

impl Device for Tunnel {
    type RxToken<'a> = Arrived<'a>;
    type TxToken<'a> = Slot<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Arrived<'_>, Slot<'_>)> {
        (!self.arrived.is_empty()).then_some((Arrived(&mut self.arrived), Slot(&mut self.leaving)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Slot<'_>> {
        (self.leaving.frames.len() < BURST_BYTES).then_some(Slot(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.leaving.envelope.path().mtu;
        capabilities
    }
}

impl phy::RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(self.0);
        self.0.clear();
        result
    }
}

impl phy::TxToken for Slot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let leaving = self.0;
        let head = leaving.envelope.head_bytes();
        let mut frames = std::mem::take(&mut leaving.frames);
        let frame = wire::add(&mut frames, head + bytes);
        let result = fill(&mut frame[head..]);
        leaving.count(&frame[head..]);
        // PANIC: there is room for the head, and no packet is longer than the path takes.
        leaving
            .envelope
            .seal(0, OuterChecksum::Made, frame)
            .expect("a frame for a packet of the path");
        leaving.frames = frames;
        result
    }
}
