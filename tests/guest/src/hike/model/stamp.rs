// SPDX-License-Identifier: GPL-2.0

//! The model of the reflector: RFC 8762, 4.3, without state. The times in an answer are those of the program, as nobody can foresee them.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::packet::{Answered, Packet, UDP};
use super::programs::{matches, routable, Prefix};

const PORT: u16 = 862;
const UDP_BYTES: usize = 8;
const TEST_BYTES: usize = 44;
const HOP_LIMIT: u8 = 255;
/// The byte of a test packet that has the bit for the format of its times, and that bit.
const FORMAT_AT: usize = 12;
const FORMAT: u8 = 0x40;
/// The fields where answers have the times at which their question was received, and sent. Questions have none of a minute around now.
pub(crate) const ANSWER_TIMES_AT: [usize; 2] = [16, 28];
const NEAR: Duration = Duration::from_secs(60);
/// From 1900, where seconds of NTP begin, to 1970, where those of PTP do.
const BEGINNINGS_S: [u64; 2] = [2_208_988_800, 0];

/// Returns the seconds of a time, as a test packet has them in each of both formats; TAI and UTC differ by less than a minute.
pub(crate) fn seconds(time: SystemTime) -> [u32; 2] {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // CAST: of one era.
    BEGINNINGS_S.map(|s| (since.as_secs() + s) as u32)
}

/// Returns whether a test packet has a time of now where only answers have times.
fn is_answer(test: &[u8]) -> bool {
    let now = SystemTime::now();
    let (first, last) = (seconds(now - NEAR), seconds(now + NEAR));
    ANSWER_TIMES_AT.into_iter().any(|at| {
        let field = u32::from_be_bytes([test[at], test[at + 1], test[at + 2], test[at + 3]]);
        let mut around = first.into_iter().zip(last);
        around.any(|(first, last)| field.wrapping_sub(first) <= last.wrapping_sub(first))
    })
}

impl Packet {
    /// Makes the packet its own answer.
    pub(crate) fn reflect(
        &mut self,
        own: &[Prefix],
        of_several: &[Prefix],
    ) -> Result<(), &'static str> {
        let is_in = |some: &[Prefix], address| some.iter().any(|one| matches(*one, address));
        let is_own = |address: IpAddr| is_in(own, address);
        let (source, destination) = self.ends();
        let v6 = self.is_v6();
        let header_bytes = if v6 { 40 } else { 20 };
        let ip = self.ip();
        let is_plain = match v6 {
            true => ip[6] == UDP,
            false => ip[0] & 15 == 5 && ip[9] == UDP && ip[6] & 0x3f == 0 && ip[7] == 0,
        };
        let udp_at = self.ip_at + header_bytes;
        let test_at = udp_at + UDP_BYTES;
        if !is_plain || self.frame.len() < test_at || self.half(udp_at + 2) != Some(PORT) {
            return Err("no-test");
        }
        if !is_own(destination) || is_in(of_several, destination) {
            return Err("no-test");
        }
        let half = |at: usize| self.half(udp_at + at).unwrap_or(0);
        let (port, udp_bytes, check) = (half(0), usize::from(half(4)), half(6));
        let ip_bytes = self.ip_bytes().unwrap_or(0);
        if is_own(source)
            || !routable(source)
            || [0, PORT].contains(&port)
            || (v6 && check == 0)
            || udp_bytes < UDP_BYTES + TEST_BYTES
            || header_bytes + udp_bytes > ip_bytes
        {
            return Err("test-refused");
        }
        let question = self.frame[test_at..test_at + TEST_BYTES].to_vec();
        if is_answer(&question) {
            return Err("test-refused");
        }
        let ip = self.ip_mut();
        let (addresses_at, address_bytes) = if v6 { (8, 16) } else { (12, 4) };
        ip[addresses_at..addresses_at + 2 * address_bytes].rotate_left(address_bytes);
        let hop_limit_at = if v6 { 7 } else { 8 };
        let hop_limit = std::mem::replace(&mut ip[hop_limit_at], HOP_LIMIT);
        if !v6 {
            let (old, new) = ([hop_limit, 0], [HOP_LIMIT, 0]);
            let check = u16::from_be_bytes([ip[10], ip[11]]);
            ip[10..12].copy_from_slice(&changed(check, &old, &new).to_be_bytes());
        }
        self.frame[udp_at..udp_at + 4].rotate_left(2);
        let answer = &mut self.frame[test_at..test_at + TEST_BYTES];
        // Numbers and session stay; times and the clock's error are not known yet.
        answer[24..38].copy_from_slice(&question[..14]);
        answer[38..].fill(0);
        answer[40] = hop_limit;
        self.answered = Some(Answered {
            from_end: self.frame.len() - test_at,
            question,
            check,
        });
        Ok(())
    }

    /// Sends the answer back on its link.
    pub(crate) fn send_back(&mut self) -> &'static str {
        self.frame[..12].rotate_left(6);
        "sent-back"
    }
}

impl Answered {
    /// Returns the frame with the times and the error of the clock that a program has written into it.
    pub(crate) fn at_time_of(&self, frame: &[u8], written: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let Some(at) = frame.len().checked_sub(self.from_end) else {
            return frame;
        };
        let Some(written) = written
            .get(at..at + TEST_BYTES)
            .filter(|_| written.len() == frame.len())
        else {
            return frame;
        };
        let answer = &mut frame[at..at + TEST_BYTES];
        for part in [4..14, 16..24] {
            answer[part.clone()].copy_from_slice(&written[part]);
        }
        // Times have the format of the question's.
        answer[FORMAT_AT] = (answer[FORMAT_AT] & !FORMAT) | (self.question[FORMAT_AT] & FORMAT);
        if self.check != 0 {
            let check = match changed(self.check, &self.question, answer) {
                0 => 0xffff,
                check => check,
            };
            frame[at - 2..at].copy_from_slice(&check.to_be_bytes());
        }
        frame
    }
}

/// Returns a checksum after words that it is over have changed: RFC 1624.
fn changed(check: u16, old: &[u8], new: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> Vec<u16> {
        let words = bytes.chunks_exact(2);
        words
            .map(|word| u16::from_be_bytes([word[0], word[1]]))
            .collect()
    };
    let old: u32 = words(old).iter().map(|word| u32::from(!word)).sum();
    let new: u32 = words(new).iter().copied().map(u32::from).sum();
    let mut sum = u32::from(!check) + old + new;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: all carries have been added.
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_checksum_is_that_of_the_new_words() {
        // RFC 1624, 4: 0x5555 becomes 0x3285.
        assert_eq!(changed(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
        let sum =
            |words: [u16; 2]| changed(0xffff, &[0xff; 4], &words.map(u16::to_be_bytes).concat());
        let (old, new) = ([0x1234, 0x00ff], [0xfffe, 0x8000]);
        let [old_bytes, new_bytes] = [old, new].map(|words| words.map(u16::to_be_bytes).concat());
        assert_eq!(changed(sum(old), &old_bytes, &new_bytes), sum(new));
    }
}
