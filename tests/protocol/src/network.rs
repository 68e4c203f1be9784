// SPDX-License-Identifier: GPL-2.0

//! The addresses of the network under test, which makers of frames for it need.

use std::net::Ipv4Addr;

/// Returns the bytes of an Ethernet address such as [`CLIENT_MAC`]; nothing if the text is none.
pub fn mac_bytes(text: &str) -> Option<[u8; 6]> {
    let bytes = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16));
    bytes.collect::<Result<Vec<u8>, _>>().ok()?.try_into().ok()
}

/// The client in the overlay.
pub const CLIENT_MAC: &str = "02:00:00:00:01:01";
/// The client in the overlay.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The container in the overlay.
pub const CONTAINER_MAC: &str = "02:00:00:00:01:02";
/// The container in the overlay.
pub const CONTAINER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// The client's machine.
pub const CLIENT_HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 1);
/// The client's machine, where frames come from outside the guest.
pub const CLIENT_HOST_MAC: &str = "02:00:00:00:02:01";
/// The server's machine.
pub const SERVER_HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 2);
/// Bytes of an IP packet that fit in a frame on the wire.
pub const WIRE_MTU: usize = 1500;
/// Bytes of an IP packet that fit in a frame of the overlay over IPv4.
pub const OVERLAY_MTU: usize = WIRE_MTU - 50;
/// Bytes of the headers of a TCP segment over IPv4: IP, TCP, and its time stamps.
pub const TCP_HEADS: usize = 20 + 20 + 12;
/// The overlay's network identifier.
pub const VNI: u32 = 42;
/// The UDP port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_has_six_bytes() {
        assert_eq!(mac_bytes(CLIENT_MAC), Some([2, 0, 0, 0, 1, 1]));
        assert_eq!(mac_bytes("02:00:00:00:01:ff\n"), Some([2, 0, 0, 0, 1, 255]));
        for text in [
            "",
            "02:00:00:00:01",
            "02:00:00:00:01:01:01",
            "02:00:00:00:01:1ff",
        ] {
            assert_eq!(mac_bytes(text), None, "{text:?}");
        }
    }
}
