// SPDX-License-Identifier: GPL-2.0

//! The difference between the packets that GRO and a lane have made of the same frames.

use super::trial::Packet;

/// The lane's packets beside those of GRO, if they are not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// The same frames in the same order, of which fewer have joined. That is allowed.
    FewerJoined,
    /// Frames in one packet that GRO has left apart.
    MoreJoined,
    /// Other frames, or another order.
    Frames,
    /// The same frames in the same packets, which are described differently.
    Description,
}

/// Returns the difference between packets that were taken apart, all of them.
pub(super) fn difference(gro: &[Packet], lane: &[Packet]) -> Option<Difference> {
    if gro == lane {
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
    Some(if gro_ends == lane_ends {
        Difference::Description
    } else if gro_ends.iter().all(|end| lane_ends.contains(end)) {
        Difference::FewerJoined
    } else {
        Difference::MoreJoined
    })
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
            frames: frames.iter().map(|frame| vec![*frame]).collect(),
        };
        let [gro, lane] = [gro, lane].map(|packets| packets.iter().map(packet).collect::<Vec<_>>());
        difference(&gro, &lane)
    }

    #[test]
    fn lane_may_join_fewer() {
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
    }
}
