// SPDX-License-Identifier: GPL-2.0

//! The estimate of the error of a node's clock: RFC 4656, 4.1.2, which RFC 8762, 4.2.1, takes over with bit Z.
//!
//! ```text
//!  0                   1
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |S|Z|   Scale   |   Multiplier  |     error: Multiplier * 2^(Scale - 32) seconds
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use std::time::Duration;

use super::time::Format;

const SYNCHRONIZED: u16 = 0x8000;
const PTP: u16 = 0x4000;
const SCALE_SHIFT: u32 = 8;
const MOST_SCALE: u32 = 63;
const MOST_MULTIPLIER: u128 = 255;
const NS_PER_S: u128 = 1_000_000_000;

/// An estimate of the error of a clock, with the format of the times beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate(u16);

impl ErrorEstimate {
    /// Returns the estimate for a clock that is wrong by `error` at most, rounded up.
    pub fn new(is_synchronized: bool, format: Format, error: Duration) -> Self {
        let parts = (error.as_nanos() << 32).div_ceil(NS_PER_S).max(1);
        let (mut multiplier, mut scale) = (parts, 0);
        while multiplier > MOST_MULTIPLIER && scale < MOST_SCALE {
            scale += 1;
            multiplier = parts.div_ceil(1 << scale);
        }
        // CAST: six bits, and eight.
        let (scale, multiplier) = (scale as u16, multiplier.min(MOST_MULTIPLIER) as u16);
        let flags = if is_synchronized { SYNCHRONIZED } else { 0 };
        Self(flags | scale << SCALE_SHIFT | multiplier).with_format(format)
    }

    /// Reads the estimate in two bytes of a packet.
    pub fn of_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    /// Returns it as a packet has it.
    pub fn to_bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// Returns the same for times of this format.
    pub fn with_format(self, format: Format) -> Self {
        match format {
            Format::Ntp => Self(self.0 & !PTP),
            Format::Ptp => Self(self.0 | PTP),
        }
    }

    /// Returns the format of the times beside it.
    pub fn format(self) -> Format {
        match self.0 & PTP {
            0 => Format::Ntp,
            _ => Format::Ptp,
        }
    }

    /// Returns whether the clock follows UTC.
    pub fn is_synchronized(self) -> bool {
        self.0 & SYNCHRONIZED != 0
    }

    /// Returns by how much the clock may be wrong; `None`: that is not said, as a multiplier of 0 says nothing, or longer than a century.
    pub fn error(self) -> Option<Duration> {
        const MOST_S: u128 = 100 * 366 * 86_400;
        let (scale, multiplier) = (self.0 >> SCALE_SHIFT & 63, self.0 & 255);
        let parts = u128::from(multiplier) << scale;
        let ns = (parts * NS_PER_S) >> 32;
        // CAST: a century in nanoseconds has 62 bits.
        (multiplier > 0 && ns <= MOST_S * NS_PER_S).then_some(Duration::from_nanos(ns as u64))
    }

    /// Returns `error` of `struct hike_stamp_clock`.
    pub(crate) fn word(self) -> u16 {
        self.with_format(Format::Ntp).0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_where_the_standard_has_them() {
        // A second is 2^32 parts: 128 * 2^25.
        let second = ErrorEstimate::new(true, Format::Ptp, Duration::from_secs(1));
        assert_eq!(second.to_bytes(), [0x80 | 0x40 | 25, 128]);
        assert_eq!(second.error(), Some(Duration::from_secs(1)));
        assert_eq!(
            (second.is_synchronized(), second.format()),
            (true, Format::Ptp)
        );
        assert_eq!(second.word(), 0x8000 | 25 << 8 | 128);
        let least = ErrorEstimate::new(false, Format::Ntp, Duration::ZERO);
        // The multiplier may not be 0.
        assert_eq!(least.to_bytes(), [0, 1]);
        assert_eq!(ErrorEstimate::of_bytes([0x3f, 0]).error(), None);
        assert_eq!(ErrorEstimate::of_bytes([0x3f, 255]).error(), None);
    }

    proptest! {
        #[test]
        fn an_error_is_never_said_to_be_less(ns in 0..100_000_000_000u64, is_synchronized in any::<bool>()) {
            let error = Duration::from_nanos(ns);
            let estimate = ErrorEstimate::new(is_synchronized, Format::Ntp, error);
            let read = ErrorEstimate::of_bytes(estimate.to_bytes());
            prop_assert_eq!(read.is_synchronized(), is_synchronized);
            let said = read.error().expect("some seconds");
            // By a nanosecond, which reading rounds down, and above by less than a hundredth.
            prop_assert!(said + Duration::from_nanos(1) >= error && said <= error + error / 100 + Duration::from_nanos(1));
        }
    }
}
