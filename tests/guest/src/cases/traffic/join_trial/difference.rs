// SPDX-License-Identifier: GPL-2.0

//! The difference between the packets that GRO and a lane have made of the same frames.

use super::trial::{Memory, Outcome, Packet};

/// The lane's packets beside those of GRO, if they are not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// The same frames in the same order, of which fewer have joined. GRO gets what the lane has not joined, so that may not be either.
    FewerJoined,
    /// Frames in one packet that GRO has left apart.
    MoreJoined,
    /// Other frames, or another order.
    Frames,
    /// The same frames in the same packets, which are described differently.
    Description,
    /// The same packets. One of them does not count for the memory of which it is made, or the lane's count for more than they may.
    Memory,
    /// The same packets, and pages that nobody has given back.
    Pages,
}

/// Returns the difference between packets that were taken apart, all of them.
pub(super) fn difference(gro: &[Packet], lane: &[Packet]) -> Option<Difference> {
    let mut all = gro.iter().chain(lane);
    let is_memory_right = all.all(|packet| packet.memory_error == 0);
    if gro == lane && is_memory_right {
        return None;
    }
    let frames = |packets: &[Packet]| -> Vec<Vec<u8>> {
        let frames = packets.iter().flat_map(|packet| packet.frames.clone());
        frames.collect()
    };
    if frames(gro) != frames(lane) {
        return Some(Difference::Frames);
    }
    let [gro_ends, lane_ends] = [gro, lane].map(ends);
    Some(if gro_ends == lane_ends && is_memory_right {
        Difference::Description
    } else if gro_ends == lane_ends {
        Difference::Memory
    } else if gro_ends.iter().all(|end| lane_ends.contains(end)) {
        Difference::FewerJoined
    } else {
        Difference::MoreJoined
    })
}

/// Returns what is wrong with a run whose packets are the same.
pub(super) fn fault(outcome: &Outcome) -> Option<Difference> {
    if outcome.held_pages != 0 {
        Some(Difference::Pages)
    } else if !is_allowed(outcome.memory) {
        Some(Difference::Memory)
    } else {
        None
    }
}

/// Returns whether the lane's packets count for no more memory than they may.
fn is_allowed(memory: Memory) -> bool {
    match memory.allowance {
        0 => memory.lane == memory.gro,
        allowance => memory.lane <= memory.gro.saturating_add(allowance),
    }
}

/// Returns the number of frames at the end of each packet.
fn ends(packets: &[Packet]) -> Vec<usize> {
    let ends = packets.iter().scan(0, |frames, packet| {
        *frames += packet.frames.len();
        Some(*frames)
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gro: &[&[u8]], lane: &[&[u8]]) -> Option<Difference> {
        let packet = |frames: &&[u8]| Packet {
            description: vec![0],
            memory_error: 0,
            frames: frames.iter().map(|frame| vec![*frame]).collect(),
        };
        let [gro, lane] = [gro, lane].map(|packets| packets.iter().map(packet).collect::<Vec<_>>());
        difference(&gro, &lane)
    }

    #[test]
    fn differences_have_names() {
        let (whole, apart): (&[&[u8]], &[&[u8]]) = (&[&[1, 2, 3, 4]], &[&[1, 2], &[3, 4]]);
        assert_eq!(of(whole, whole), None);
        assert_eq!(of(whole, apart), Some(Difference::FewerJoined));
        assert_eq!(of(apart, whole), Some(Difference::MoreJoined));
        assert_eq!(
            of(apart, &[&[1], &[2, 3], &[4]]),
            Some(Difference::MoreJoined)
        );
        assert_eq!(of(whole, &[&[2, 1], &[3, 4]]), Some(Difference::Frames));
        assert_eq!(of(whole, &[&[1, 2, 3]]), Some(Difference::Frames));
        let mut described = [Packet::default()];
        described[0].description.push(1);
        let plain = [Packet::default()];
        assert_eq!(
            difference(&plain, &described),
            Some(Difference::Description)
        );
        let wrong = [Packet {
            memory_error: 64,
            ..Packet::default()
        }];
        for (gro, lane) in [(&plain, &wrong), (&wrong, &plain), (&wrong, &wrong)] {
            assert_eq!(difference(gro, lane), Some(Difference::Memory));
        }
    }

    #[test]
    fn lane_counts_for_the_memory_of_gro_and_gives_pages_back() {
        let of = |gro, lane, allowance, held_pages| {
            fault(&Outcome {
                memory: Memory {
                    gro,
                    lane,
                    allowance,
                },
                held_pages,
                ..Outcome::default()
            })
        };
        assert_eq!(of(2_048, 2_048, 0, 0), None);
        for lane in [2_047, 2_049] {
            assert_eq!(of(2_048, lane, 0, 0), Some(Difference::Memory));
        }
        assert_eq!(of(2_048, 1_024, 1_280, 0), None);
        assert_eq!(of(2_048, 3_328, 1_280, 0), None);
        assert_eq!(of(2_048, 3_329, 1_280, 0), Some(Difference::Memory));
        for held_pages in [1, -1] {
            assert_eq!(of(2_048, 2_048, 0, held_pages), Some(Difference::Pages));
        }
    }
}
