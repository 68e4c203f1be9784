// SPDX-License-Identifier: GPL-2.0

//! Times in test packets: 32 bits of seconds, and 32 bits of a part of a second.
//!
//! | format | begins | part of a second | source |
//! |---|---|---|---|
//! | NTP | 1900, UTC | in 2^-32 s | RFC 5905, 6 |
//! | PTP, truncated | 1970, TAI | in nanoseconds | RFC 8186, 2 |
//!
//! The seconds of NTP begin again in 2036, and those of PTP in 2106, so a time is read as the one that is nearest to another one.

use std::time::Duration;

/// From 1900 to 1970, in seconds.
const NTP_AHEAD_S: u64 = 2_208_988_800;
const NS_PER_S: u64 = 1_000_000_000;
/// The seconds after which those of both formats begin again.
const ERA_S: u64 = 1 << 32;

/// A format of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The format of NTP, which every node knows.
    #[default]
    Ntp,
    /// The format of PTP, truncated to 64 bits.
    Ptp,
}

/// A time as a test packet has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub [u8; 8]);

impl Stamp {
    /// Writes a time, which is given since 1970 in UTC, where TAI is ahead by so many seconds. It is right to a nanosecond.
    pub fn write(format: Format, utc: Duration, tai_ahead_s: u32) -> Self {
        let (s, ns) = (utc.as_secs(), u64::from(utc.subsec_nanos()));
        let (s, part) = match format {
            // Rounded up, so that reading yields the same nanosecond.
            Format::Ntp => (s + NTP_AHEAD_S, (ns << 32).div_ceil(NS_PER_S)),
            Format::Ptp => (s + u64::from(tai_ahead_s), ns),
        };
        let mut bytes = [0; 8];
        // CAST: the seconds of one era, and less than a second.
        bytes[..4].copy_from_slice(&(s as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&(part as u32).to_be_bytes());
        Self(bytes)
    }

    /// Returns the time since 1970 in UTC. Seconds begin again, so it is the one nearest to `near`. `None`: the bytes are no time of this
    /// format.
    pub fn read(self, format: Format, tai_ahead_s: u32, near: Duration) -> Option<Duration> {
        let [s, part] = [0, 4].map(|at| {
            let bytes = [0, 1, 2, 3].map(|byte| self.0[at + byte]);
            u64::from(u32::from_be_bytes(bytes))
        });
        let (ahead_s, ns) = match format {
            Format::Ntp => (NTP_AHEAD_S, (part * NS_PER_S) >> 32),
            Format::Ptp if part < NS_PER_S => (tai_ahead_s.into(), part),
            Format::Ptp => return None,
        };
        let near_s = near.as_secs() + ahead_s;
        let of_era = near_s / ERA_S * ERA_S + s;
        // One era less, or more, if that is nearer.
        let s = match of_era {
            s if s > near_s + ERA_S / 2 => s.checked_sub(ERA_S)?,
            s if s + ERA_S / 2 < near_s => s + ERA_S,
            s => s,
        };
        // CAST: less than a second.
        Some(Duration::new(s.checked_sub(ahead_s)?, ns as u32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAI_AHEAD_S: u32 = 37;

    fn hex(stamp: Stamp) -> String {
        stamp.0.map(|byte| format!("{byte:02x}")).concat()
    }

    #[test]
    fn times_are_those_of_the_standards() {
        // 1 January 2000, 0:00: 3,155,673,600 in NTP (RFC 5905, figure 4).
        let in_2000 = Duration::from_secs(946_684_800);
        let half = in_2000 + Duration::from_millis(500);
        assert_eq!(
            hex(Stamp::write(Format::Ntp, in_2000, 32)),
            "bc17c20000000000"
        );
        assert_eq!(hex(Stamp::write(Format::Ntp, half, 32)), "bc17c20080000000");
        // The same in PTP, whose clock was 32 seconds ahead then.
        assert_eq!(hex(Stamp::write(Format::Ptp, half, 32)), "386d43a01dcd6500");
        let none = Stamp([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(none.read(Format::Ptp, 0, half), None);
    }

    #[test]
    fn seconds_that_begin_again_are_those_near() {
        // In 2036, when those of NTP begin again.
        let end = Duration::from_secs(ERA_S - NTP_AHEAD_S);
        for (written, near) in [(0, 0), (0, 5), (5, 0), (5, 5)] {
            let [written, near] =
                [written, near].map(|s| end + Duration::from_secs(s) - Duration::from_secs(3));
            let stamp = Stamp::write(Format::Ntp, written, 0);
            assert_eq!(stamp.read(Format::Ntp, 0, near), Some(written));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            s in 1_000_000_000u64..6_000_000_000,
            ns in 0..1_000_000_000u32,
            away_s in 0..1_000_000_000u64,
            is_ptp in any::<bool>(),
        ) {
            let format = if is_ptp { Format::Ptp } else { Format::Ntp };
            let time = Duration::new(s, ns);
            let stamp = Stamp::write(format, time, TAI_AHEAD_S);
            for near in [time + Duration::from_secs(away_s), time - Duration::from_secs(away_s)] {
                prop_assert_eq!(stamp.read(format, TAI_AHEAD_S, near), Some(time));
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in any::<[u8; 8]>(), near_s in any::<u32>(), is_ptp in any::<bool>()) {
            let format = if is_ptp { Format::Ptp } else { Format::Ntp };
            let near = Duration::from_secs(near_s.into());
            if let Some(time) = Stamp(bytes).read(format, TAI_AHEAD_S, near) {
                prop_assert!(time.abs_diff(near) <= Duration::from_secs(ERA_S / 2 + 1));
            }
        }
    }
}
