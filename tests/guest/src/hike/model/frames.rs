// SPDX-License-Identifier: GPL-2.0

//! Frames drawn at random: mostly such as are met on a wire, some with lengths and headers that are wrong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use super::stamp;
use crate::hike::TEST_RUN_MAC;

/// The sources of frames, which are part of what identifies a flow; more than one, so that not all flows are monitored.
pub(crate) const SOURCES: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1),
];
/// The sources of one frame in sixteen: addresses from which routers do not forward.
const BAD_SOURCES_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 1, 1),
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::LOCALHOST,
    Ipv4Addr::BROADCAST,
    Ipv4Addr::new(239, 1, 1, 1),
];
const BAD_SOURCES_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1),
];
/// Ports and flow labels that every other packet has, so that exact flows are met.
pub(crate) const PORTS: [(u16, u16); 2] = [(9, 53), (53, 9)];
pub(crate) const LABEL: u32 = 0x1_2345;
/// The ports of a test packet, and of one that a reflector seems to have sent.
const TESTS: [(u16, u16); 4] = [(50_000, 862), (50_000, 862), (50_000, 862), (862, 862)];
/// Bytes of the shortest test packet with its UDP header, and of that header.
const TEST_BYTES: usize = 52;
const UDP_BYTES: usize = 8;
/// FlowMonIDs that every other option has: of flows that differ in nothing else.
pub(crate) const FLOW_IDS: [u32; 2] = [0, 0xa_bcde];
/// The numbers of VLANs that most tags have.
pub(crate) const VLANS: [u16; 2] = [7, 100];
/// The smallest frame that a test run takes.
const LEAST_BYTES: usize = 14;
const LONG_BYTES: usize = 1_500;

/// Returns the SIDs of a packet's SRH, as they stand there: this many, always the same.
pub(crate) fn sids(count: u8) -> Vec<Ipv6Addr> {
    (0..count)
        .map(|entry| Ipv6Addr::new(0xfc00, 1, count.into(), entry.into(), 0, 0, 0, 1))
        .collect()
}

/// Draws a frame to one of these destinations.
pub(crate) fn draw(rng: &mut Xoshiro256PlusPlus, destinations: &[IpAddr]) -> Vec<u8> {
    let mut frame = [TEST_RUN_MAC, [2, 0, 0, 0, 0, 2]].concat();
    for _ in 0..[0, 0, 0, 0, 1, 2, 3][rng.random_range(0..7)] {
        let kind: [u8; 2] = [[0x81, 0], [0x88, 0xa8]][rng.random_range(0..2)];
        frame.extend(kind);
        let any: u16 = rng.random();
        let known = VLANS[rng.random_range(0..VLANS.len())] | (any & 0xf000);
        let number = [known, known, any][rng.random_range(0..3)];
        frame.extend(number.to_be_bytes());
    }
    let destination = destinations[rng.random_range(0..destinations.len())];
    let kind: [u8; 2] = if destination.is_ipv4() {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    frame.extend(kind);
    frame.extend(packet(rng, destination, destinations, true));
    damage(rng, &mut frame);
    frame
}

/// Draws the Ethernet address that a frame is for: mostly this one, else one of several hosts, or of another one.
pub(crate) fn draw_mac(rng: &mut Xoshiro256PlusPlus, own: [u8; 6]) -> [u8; 6] {
    let mut differs = own;
    differs[rng.random_range(0..own.len())] ^= 2;
    let others = [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], differs];
    *others.get(rng.random_range(0..32)).unwrap_or(&own)
}

/// Returns a frame of the same flow: with another hop limit, and now and then longer, or shorter than its header says.
pub(crate) fn another(rng: &mut Xoshiro256PlusPlus, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (hop_limit_at, length_at) = match frame.get(12..14) {
        Some([8, 0]) => (22, 16),
        Some([0x86, 0xdd]) => (21, 18),
        // What has tags is sent again as it is.
        _ => return frame,
    };
    if let Some(hop_limit) = frame.get_mut(hop_limit_at) {
        *hop_limit = [64, 64, 255, 2, 1, 0][rng.random_range(0..6)];
    }
    if frame.len() < 60 || frame.len() > LONG_BYTES {
        return frame;
    }
    let change = |frame: &mut Vec<u8>, by: i16| {
        let length = u16::from_be_bytes([frame[length_at], frame[length_at + 1]]);
        let length = length.wrapping_add_signed(by).to_be_bytes();
        frame[length_at..length_at + 2].copy_from_slice(&length);
    };
    match rng.random_range(0..8) {
        0 => frame.truncate(frame.len() - 1),
        1..4 => {
            let more: u16 = [4, 64, 1_200][rng.random_range(0..3)];
            change(&mut frame, more.cast_signed());
            frame.resize(frame.len() + usize::from(more), 7);
        }
        // With bytes behind its end.
        4 => change(&mut frame, [-1, -9][rng.random_range(0..2)]),
        _ => {}
    }
    frame
}

/// Draws a packet; one of IPv6 may have another packet inside.
fn packet(
    rng: &mut Xoshiro256PlusPlus,
    destination: IpAddr,
    destinations: &[IpAddr],
    outermost: bool,
) -> Vec<u8> {
    let hop_limit = [64, 255, 2, 1, 0][[0, 0, 0, 0, 0, 1, 2, 3, 4][rng.random_range(0..9)]];
    let payload_bytes = match rng.random_range(0..20) {
        0 => rng.random_range(1_100..LONG_BYTES),
        _ => rng.random_range(8..80),
    };
    let mut payload = vec![0; payload_bytes];
    rng.fill(&mut payload[..]);
    if rng.random() {
        let (from, to) = match rng.random_range(0..3) {
            0 => TESTS[rng.random_range(0..TESTS.len())],
            _ => PORTS[rng.random_range(0..PORTS.len())],
        };
        if to == TESTS[0].1 {
            payload.resize(
                payload_bytes.max(TEST_BYTES - 1 + rng.random_range(0..8)),
                3,
            );
            // Mostly as long as it is.
            let differs = [0, 0, 0, 1, -1, -60][rng.random_range(0..6)];
            // CAST: shorter than the longest frame.
            let length = (payload.len() as u16).wrapping_add_signed(differs);
            payload[4..6].copy_from_slice(&length.to_be_bytes());
            // Now and then without a checksum, or like an answer.
            match rng.random_range(0..8) {
                0 => payload[6..8].fill(0),
                1 => {
                    let at = UDP_BYTES + stamp::ANSWER_TIMES_AT[rng.random_range(0..2)];
                    let s = stamp::seconds(SystemTime::now())[rng.random_range(0..2)];
                    payload[at..at + 4].copy_from_slice(&s.to_be_bytes());
                }
                _ => {}
            }
        }
        payload[..2].copy_from_slice(&from.to_be_bytes());
        payload[2..4].copy_from_slice(&to.to_be_bytes());
    }
    let protocols = [17, 17, 6, 58, 132, 0];
    match destination {
        IpAddr::V4(destination) => {
            let good = [1, 2, 3].map(|host| Ipv4Addr::new(10, 9, 0, host));
            let source = draw_source(rng, &good, &BAD_SOURCES_V4);
            let protocol = protocols[rng.random_range(0..protocols.len())];
            v4(rng, source, destination, hop_limit, protocol, &payload)
        }
        IpAddr::V6(destination) => {
            let mut protocol = protocols[rng.random_range(0..protocols.len())];
            if outermost && rng.random_range(0..2) == 0 {
                let inside = destinations[rng.random_range(0..destinations.len())];
                // Now and then it is not what the header says.
                let seen = inside.is_ipv4() ^ (rng.random_range(0..30) == 0);
                protocol = if seen { 4 } else { 41 };
                payload = packet(rng, inside, destinations, false);
            }
            let mut packet = v6(rng, destination, hop_limit, protocol, &payload);
            // Now and then a test packet seems to come from the one that it is for.
            let is_test = payload.get(2..4) == Some(&TESTS[0].1.to_be_bytes());
            if is_test && outermost && rng.random_range(0..16) == 0 {
                packet.copy_within(24..40, 8);
            }
            packet
        }
    }
}

fn draw_source<T: Copy>(rng: &mut Xoshiro256PlusPlus, good: &[T], bad: &[T]) -> T {
    let from = if rng.random_range(0..16) == 0 {
        bad
    } else {
        good
    };
    from[rng.random_range(0..from.len())]
}

fn v4(
    rng: &mut Xoshiro256PlusPlus,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    hop_limit: u8,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let words = if rng.random_range(0..10) == 0 { 7 } else { 5u8 };
    let fragment: u16 = [0x4000, 0, 0x2000, 0x00b9][rng.random_range(0..4)];
    let mut ip = vec![0x40 | words, rng.random()];
    // CAST: shorter than the longest frame.
    ip.extend((4 * u16::from(words) + payload.len() as u16).to_be_bytes());
    ip.extend(rng.random::<u16>().to_be_bytes());
    ip.extend(fragment.to_be_bytes());
    ip.extend([hop_limit, protocol]);
    // Whether it is right is nobody's business on the way; it must stay as right as it is.
    ip.extend(rng.random::<u16>().to_be_bytes());
    ip.extend(source.octets());
    ip.extend(destination.octets());
    ip.resize(4 * usize::from(words), 1);
    ip.extend(payload);
    ip
}

fn v6(
    rng: &mut Xoshiro256PlusPlus,
    destination: Ipv6Addr,
    hop_limit: u8,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut next_headers = Vec::new();
    let mut headers = Vec::new();
    let option = rng.random_range(0..3) == 0;
    if option {
        next_headers.push(60);
        let kind = if rng.random_range(0..8) == 0 { 1 } else { 0x12 };
        let any: u32 = rng.random();
        let known = FLOW_IDS[rng.random_range(0..FLOW_IDS.len())] << 12 | any & 0xfff;
        let word = [known, any][rng.random_range(0..2)] & !0xff;
        let mut options = vec![0, 0, kind, 4];
        options.extend(word.to_be_bytes());
        // Now and then there is another option, of padding.
        if rng.random_range(0..16) == 0 {
            options[1] = 1;
            options.extend([1, 6, 0, 0, 0, 0, 0, 0]);
        }
        headers.push(options);
    }
    if rng.random_range(0..2) == 0 {
        let entries = rng.random_range(1..18u8);
        next_headers.push(43);
        // Now and then a header of another type, or shorter than its last entry says.
        let kind = if rng.random_range(0..12) == 0 { 2 } else { 4 };
        // Or with a TLV, which is padding.
        let mut words = 2 * entries;
        match rng.random_range(0..24) {
            0 | 1 => words -= 1,
            2 => words += 1,
            _ => {}
        }
        let left = [0, 0, 1, entries - 1, rng.random_range(0..entries + 2)];
        let left = left[rng.random_range(0..left.len())];
        let mut srh = vec![0, words, kind, left, entries - 1, 0, 0, 0];
        srh.extend(sids(entries).iter().flat_map(Ipv6Addr::octets));
        srh.extend([4, 6, 0, 0, 0, 0, 0, 0]);
        srh.truncate(8 + 8 * usize::from(words));
        headers.push(srh);
    }
    next_headers.push(protocol);
    for (header, &next) in headers.iter_mut().zip(&next_headers[1..]) {
        header[0] = next;
    }
    let label = [LABEL, rng.random_range(0..1 << 20)][rng.random_range(0..2)];
    let class = u32::from(rng.random::<u8>());
    let mut ip = (6 << 28 | class << 20 | label).to_be_bytes().to_vec();
    let bytes: usize = headers.iter().map(Vec::len).sum::<usize>() + payload.len();
    // CAST: shorter than the longest frame.
    ip.extend((bytes as u16).to_be_bytes());
    ip.extend([next_headers[0], hop_limit]);
    ip.extend(draw_source(rng, &SOURCES, &BAD_SOURCES_V6).octets());
    ip.extend(destination.octets());
    headers.iter().for_each(|header| ip.extend(header));
    ip.extend(payload);
    ip
}

/// Cuts one frame in ten short, and changes a byte in another; pads one, as Ethernet does.
fn damage(rng: &mut Xoshiro256PlusPlus, frame: &mut Vec<u8>) {
    match rng.random_range(0..10) {
        0 => frame.truncate(rng.random_range(LEAST_BYTES..frame.len())),
        1 => {
            let at = rng.random_range(LEAST_BYTES - 2..frame.len().min(120));
            frame[at] = rng.random();
        }
        2 => frame.resize(frame.len() + rng.random_range(1..20), 0),
        _ => {}
    }
}
