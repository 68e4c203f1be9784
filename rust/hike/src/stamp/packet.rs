// SPDX-License-Identifier: GPL-2.0

//! The two packets: the question that a sender asks, and the answer of the reflector.
//!
//! ```text
//!  at   question              answer
//!   0   sequence number       the reflector's, or the question's
//!   4   time of sending       time of sending the answer
//!  12   error estimate        that of the reflector
//!  14   session               the same (RFC 8972, 3)
//!  16   zeros                 time of receiving the question
//!  24                         the question's first 14 bytes
//!  38                         zeros
//!  40                         the question's hop limit, as it came
//!  41                         zeros, up to 44
//! ```

use super::error::ErrorEstimate;
use super::time::Stamp;

/// The bytes of a packet without extensions.
pub const BYTES: usize = 44;

/// The part of a question that its answer has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number in its session, from 0 on.
    pub sequence: u32,
    /// The time at which it was sent.
    pub sent: Stamp,
    /// The error of the sender's clock.
    pub error: ErrorEstimate,
}

/// The contents of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reflector's own number for it; without a state it is that of the question.
    pub sequence: u32,
    /// The time at which it was sent.
    pub sent: Stamp,
    /// The error of the reflector's clock.
    pub error: ErrorEstimate,
    /// The session.
    pub session: u16,
    /// The time at which the question was received.
    pub received: Stamp,
    /// The question.
    pub question: Question,
    /// The hop limit that the question had left.
    pub hop_limit: u8,
}

impl Question {
    fn of_bytes(bytes: &[u8; BYTES], at: usize) -> Self {
        Self {
            sequence: u32::from_be_bytes(part(bytes, at)),
            sent: Stamp(part(bytes, at + 4)),
            error: ErrorEstimate::of_bytes(part(bytes, at + 12)),
        }
    }

    fn write(&self, bytes: &mut [u8; BYTES], at: usize) {
        bytes[at..at + 4].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[at + 4..at + 12].copy_from_slice(&self.sent.0);
        bytes[at + 12..at + 14].copy_from_slice(&self.error.to_bytes());
    }

    /// Returns the packet of a session.
    pub fn to_bytes(&self, session: u16) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.write(&mut bytes, 0);
        bytes[14..16].copy_from_slice(&session.to_be_bytes());
        bytes
    }
}

impl Answer {
    /// Reads the first bytes of a packet; `None`: it is too short. The bytes behind are extensions.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.first_chunk()?;
        let of_reflector = Question::of_bytes(bytes, 0);
        Some(Self {
            sequence: of_reflector.sequence,
            sent: of_reflector.sent,
            error: of_reflector.error,
            session: u16::from_be_bytes(part(bytes, 14)),
            received: Stamp(part(bytes, 16)),
            question: Question::of_bytes(bytes, 24),
            hop_limit: bytes[40],
        })
    }

    /// Returns the packet.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let of_reflector = Question {
            sequence: self.sequence,
            sent: self.sent,
            error: self.error,
        };
        let mut bytes = of_reflector.to_bytes(self.session);
        bytes[16..24].copy_from_slice(&self.received.0);
        self.question.write(&mut bytes, 24);
        bytes[40] = self.hop_limit;
        bytes
    }
}

/// Returns some bytes of a packet.
fn part<const N: usize>(bytes: &[u8; BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counting() -> [u8; BYTES] {
        // CAST: 44.
        std::array::from_fn(|at| at as u8 + 1)
    }

    #[test]
    fn fields_are_where_the_standard_has_them() {
        let answer = Answer::of_bytes(&counting()).expect("long enough");
        assert_eq!(answer.sequence, 0x01020304);
        assert_eq!(answer.sent, Stamp([5, 6, 7, 8, 9, 10, 11, 12]));
        assert_eq!(answer.error.to_bytes(), [13, 14]);
        assert_eq!(answer.session, 0x0f10);
        assert_eq!(answer.received, Stamp([17, 18, 19, 20, 21, 22, 23, 24]));
        assert_eq!(answer.question.sequence, 0x191a1b1c);
        assert_eq!(
            answer.question.sent,
            Stamp([29, 30, 31, 32, 33, 34, 35, 36])
        );
        assert_eq!(answer.question.error.to_bytes(), [37, 38]);
        assert_eq!(answer.hop_limit, 41);
        assert_eq!(Answer::of_bytes(&counting()[..BYTES - 1]), None);
        let question = Question {
            sequence: 7,
            sent: Stamp([1; 8]),
            error: ErrorEstimate::of_bytes([2; 2]),
        };
        let bytes = question.to_bytes(9);
        assert_eq!(
            bytes[..16],
            [0, 0, 0, 7, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 0, 9]
        );
        assert_eq!(bytes[16..], [0; 28]);
    }

    proptest! {
        #[test]
        fn an_answer_is_read_as_it_was_written(
            numbers in any::<(u32, u32, u16, u8)>(),
            stamps in any::<[[u8; 8]; 3]>(),
            errors in any::<[[u8; 2]; 2]>(),
            extensions in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (sequence, asked, session, hop_limit) = numbers;
            let answer = Answer {
                sequence,
                sent: Stamp(stamps[0]),
                error: ErrorEstimate::of_bytes(errors[0]),
                session,
                received: Stamp(stamps[1]),
                question: Question {
                    sequence: asked,
                    sent: Stamp(stamps[2]),
                    error: ErrorEstimate::of_bytes(errors[1]),
                },
                hop_limit,
            };
            let mut bytes = answer.to_bytes().to_vec();
            bytes.extend(extensions);
            prop_assert_eq!(Answer::of_bytes(&bytes), Some(answer));
        }
    }
}
