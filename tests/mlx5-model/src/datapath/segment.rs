// SPDX-License-Identifier: GPL-2.0

//! Changes that the card makes to a frame before it sends it: checksums, tags, and cutting large frames into segments.

use super::packet::{tcp_flag, Headers, Ip, LEAST_BYTES, TCP, UDP};
use crate::firmware::field::{be16, be32};

/// The checksums that a work queue entry asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offloads {
    pub(crate) ip_checksum: bool,
    pub(crate) transport_checksum: bool,
}

/// Finishes a frame that is sent as it is.
pub(crate) fn finish(frame: &mut Vec<u8>, offloads: Offloads) {
    let headers = Headers::parse(frame);
    if let Some(ip) = headers.ip {
        if offloads.ip_checksum {
            ip.write_checksum(frame);
        }
        if offloads.transport_checksum && headers.ports {
            ip.write_transport_checksum(frame);
        }
    }
    if frame.len() < LEAST_BYTES {
        frame.resize(LEAST_BYTES, 0);
    }
}

/// Cuts a large TCP or UDP packet into frames with `size` bytes of payload each, and hands them over.
///
/// The headers are the first `head` bytes. Returns whether there was anything to cut.
pub(crate) fn cut(
    large: &[u8],
    head: usize,
    size: usize,
    offloads: Offloads,
    mut take: impl FnMut(&[u8]),
) -> bool {
    let Some(headers) = large.get(..head) else {
        return false;
    };
    let payload = &large[head..];
    // The length in the header is that of the whole, which may be too long for it: parse as if it fitted.
    let Some(ip) = outline(headers) else {
        return false;
    };
    if size == 0 || payload.is_empty() {
        return false;
    }
    let count = payload.len().div_ceil(size);
    let mut frame = Vec::with_capacity(head + size);
    for (index, part) in payload.chunks(size).enumerate() {
        frame.clear();
        frame.extend_from_slice(headers);
        frame.extend_from_slice(part);
        fix(&mut frame, &ip, index, index * size, index + 1 == count);
        finish(&mut frame, offloads);
        take(&frame);
    }
    true
}

/// Finds the headers of a packet whose lengths are not to be trusted.
fn outline(headers: &[u8]) -> Option<Ip> {
    let mut copy = headers.to_vec();
    let mut at = 12;
    while matches!(be16(&copy, at), 0x8100 | 0x88a8) && at < 20 {
        at += 4;
    }
    let ip_at = at + 2;
    match be16(&copy, at) {
        0x0800 => {
            let bytes = u16::try_from(copy.len().checked_sub(ip_at)?).ok()?;
            copy.get_mut(ip_at + 2..ip_at + 4)?
                .copy_from_slice(&bytes.to_be_bytes());
        }
        0x86dd => {
            let bytes = u16::try_from(copy.len().checked_sub(ip_at + 40)?).ok()?;
            copy.get_mut(ip_at + 4..ip_at + 6)?
                .copy_from_slice(&bytes.to_be_bytes());
        }
        _ => return None,
    }
    let parsed = Headers::parse(&copy);
    parsed.ip.filter(|_| parsed.ports)
}

/// Makes one segment's headers right.
fn fix(frame: &mut [u8], ip: &Ip, index: usize, offset: usize, last: bool) {
    let bytes = frame.len();
    // CAST: a segment is shorter than 64 KB, or its headers were wrong to begin with.
    let length = |from: usize| ((bytes - from) as u16).to_be_bytes();
    if ip.version == 4 {
        frame[ip.at + 2..ip.at + 4].copy_from_slice(&length(ip.at));
        // CAST: identifications wrap.
        let id = be16(frame, ip.at + 4).wrapping_add(index as u16);
        frame[ip.at + 4..ip.at + 6].copy_from_slice(&id.to_be_bytes());
    } else {
        frame[ip.at + 4..ip.at + 6].copy_from_slice(&length(ip.at + 40));
    }
    match ip.protocol {
        TCP => {
            // CAST: sequence numbers wrap.
            let sequence = be32(frame, ip.payload + 4).wrapping_add(offset as u32);
            frame[ip.payload + 4..ip.payload + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut frame[ip.payload + 13];
            if !last {
                *flags &= !(tcp_flag::FIN | tcp_flag::PSH);
            }
            if index > 0 {
                *flags &= !tcp_flag::CWR;
            }
        }
        UDP => frame[ip.payload + 4..ip.payload + 6].copy_from_slice(&length(ip.payload)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::datagram;

    const ALL: Offloads = Offloads {
        ip_checksum: true,
        transport_checksum: true,
    };

    fn tcp(payload: &[u8], flags: u8) -> Vec<u8> {
        let mut frame = datagram(&[0; 12], [1, 2]);
        frame[23] = TCP;
        frame[34..54].copy_from_slice(&[
            0, 1, 0, 2, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0,
        ]);
        frame.extend(payload);
        frame
    }

    fn check(frame: &[u8]) -> Headers {
        let headers = Headers::parse(frame);
        let ip = headers.ip.expect("good lengths");
        assert!(ip.is_good(frame) && ip.transport_is_good(frame));
        headers
    }

    #[test]
    fn tcp_is_cut_with_good_numbers() {
        let payload: Vec<u8> = (0..=255).cycle().take(3000).collect();
        let large = tcp(
            &payload,
            tcp_flag::ACK | tcp_flag::PSH | tcp_flag::FIN | tcp_flag::CWR,
        );
        let mut back = Vec::new();
        let mut flags = Vec::new();
        assert!(cut(&large, 54, 1448, ALL, |frame| {
            let ip = check(frame).ip.unwrap();
            // The numbers wrap within the packet.
            let sequence = be32(frame, ip.payload + 4);
            assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(back.len() as u32));
            assert_eq!(usize::from(be16(frame, ip.at + 4)), 7 + flags.len());
            flags.push(frame[ip.payload + 13]);
            back.extend_from_slice(&frame[54..ip.end]);
        }));
        assert_eq!(back, payload);
        let ack = tcp_flag::ACK;
        assert_eq!(
            flags,
            [
                ack | tcp_flag::CWR,
                ack,
                ack | tcp_flag::PSH | tcp_flag::FIN
            ]
        );
    }

    #[test]
    fn udp_is_cut_into_datagrams() {
        let large = datagram(&[7; 2500], [1, 2]);
        let mut sizes = Vec::new();
        assert!(cut(&large, 42, 1000, ALL, |frame| {
            let ip = check(frame).ip.unwrap();
            assert_eq!(
                usize::from(be16(frame, ip.payload + 4)),
                ip.end - ip.payload
            );
            sizes.push(ip.end - ip.payload - 8);
        }));
        assert_eq!(sizes, [1000, 1000, 500]);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let large = datagram(&[7; 100], [1, 2]);
        assert!(!cut(&large, 42, 0, ALL, |_| panic!("cut into nothing")));
        assert!(!cut(&large, 142, 10, ALL, |_| panic!("no payload")));
        assert!(!cut(&large, 30, 10, ALL, |_| panic!("half a header")));
        assert!(!cut(&large, 1000, 10, ALL, |_| panic!(
            "more headers than bytes"
        )));
    }

    #[test]
    fn only_checksums_that_are_asked_for_are_written() {
        let good = datagram(b"abc", [1, 2]);
        let mut frame = good.clone();
        frame[40] ^= 0xff;
        let bad = frame.clone();
        finish(&mut frame, Offloads::default());
        assert_eq!(frame[..45], bad[..]);
        assert_eq!(frame.len(), LEAST_BYTES);
        finish(&mut frame, ALL);
        assert_eq!(frame[..45], good[..]);
    }
}
