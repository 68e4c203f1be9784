// SPDX-License-Identifier: GPL-2.0

//! The numbers of lanes.

/// A lane, known to the dispatcher and to the merge point; any number but [`INLINE`] and [`ORDINARY_PATH`].
pub type LaneId = u32;

/// Stands for the core that dispatches. (0, so that a slot of zeros knows no lane.)
pub const INLINE: LaneId = 0;

/// Stands for the ordinary path, which carries the fence.
pub const ORDINARY_PATH: LaneId = LaneId::MAX;
