// SPDX-License-Identifier: GPL-2.0

//! The size of a message on the link: how many packets, and how many bytes each.

/// Preamble, check sum and the gap between frames.
const FRAME_EXTRA_BYTES: u32 = 24;
const ETHERNET_BYTES: u32 = 14;
/// A frame without its check sum is never shorter.
const FRAME_MIN_BYTES: u32 = 60;
const MTU_BYTES: u32 = 1500;
const IP_BYTES: u32 = 20;
const UDP_BYTES: u32 = 8;
/// With time stamps, as Linux sends them.
const TCP_BYTES: u32 = 32;
/// Outer IP and UDP, VXLAN, inner Ethernet.
const OVERLAY_BYTES: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wire {
    pub(crate) packets: u32,
    /// Bytes that a packet takes on the link, all included: the mean over a message.
    pub(crate) packet_bytes: f64,
    /// Bytes of the message in a packet: the mean.
    pub(crate) payload_bytes: f64,
}

impl Wire {
    /// Cuts a message into packets; a large UDP message becomes IP fragments.
    pub(crate) fn of(proto: &str, msg_bytes: u32, overlay: bool) -> Self {
        let overlay_bytes = if overlay { OVERLAY_BYTES } else { 0 };
        let room = MTU_BYTES - overlay_bytes - IP_BYTES;
        let (per_packet, header, once) = match proto {
            "tcp" => (room - TCP_BYTES, TCP_BYTES, 0),
            // A fragment's place is counted in units of 8 bytes.
            _ => (room / 8 * 8, 0, UDP_BYTES),
        };
        let bytes = msg_bytes + once;
        let packets = bytes.div_ceil(per_packet).max(1);
        let headers = ETHERNET_BYTES + overlay_bytes + IP_BYTES + header;
        let frame = f64::from(headers) + f64::from(bytes) / f64::from(packets);
        Self {
            packets,
            packet_bytes: frame.max(f64::from(FRAME_MIN_BYTES)) + f64::from(FRAME_EXTRA_BYTES),
            payload_bytes: f64::from(msg_bytes) / f64::from(packets),
        }
    }

    pub(crate) fn packet_ps(&self, link_gbps: f64) -> u64 {
        // CAST: a packet on the slowest link allowed takes milliseconds.
        (self.packet_bytes * 8_000.0 / link_gbps).round() as u64
    }

    pub(crate) fn link_gbps(&self, pkts_per_s: f64) -> f64 {
        pkts_per_s * self.packet_bytes * 8.0 / 1e9
    }

    pub(crate) fn payload_gbps(&self, pkts_per_s: f64) -> f64 {
        pkts_per_s * self.payload_bytes * 8.0 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_one_packet() {
        let plain = Wire::of("udp", 16, false);
        // 14 + 20 + 8 + 16 = 58: padded.
        assert_eq!((plain.packets, plain.packet_bytes), (1, 84.0));
        let overlay = Wire::of("udp", 16, true);
        assert_eq!(overlay.packet_bytes, 58.0 + 50.0 + 24.0);
        assert_eq!(overlay.packet_ps(100.0), 10_560);
    }

    #[test]
    fn large_messages_are_cut() {
        assert_eq!(Wire::of("tcp", 65536, false).packets, 46);
        assert_eq!(Wire::of("udp", 65507, false).packets, 45);
        let overlay = Wire::of("udp", 4096, true);
        assert_eq!(overlay.packets, 3);
        assert!(overlay.packet_bytes < 1538.0);
        let rate = 1e9 / 8.0 / overlay.packet_bytes;
        assert!((overlay.link_gbps(rate) - 1.0).abs() < 1e-9);
        assert!(overlay.payload_gbps(rate) < 1.0);
    }
}
