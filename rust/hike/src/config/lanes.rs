// SPDX-License-Identifier: GPL-2.0

//! The request of a class to mflow for its flows, which the program `lanes` hands on with each packet.

use serde::{Deserialize, Serialize};

/// A request to mflow. Without one, mflow splits a flow while it finds it fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lanes {
    /// To split a flow however slow it is, as far as all else allows it.
    Split,
    /// Not to split it.
    Never,
}

impl Lanes {
    /// Returns its number in a class.
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::Split => 1,
            Self::Never => 2,
        }
    }

    /// Returns what has this number, if anything has.
    pub(crate) const fn of_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Split),
            2 => Some(Self::Never),
            _ => None,
        }
    }
}
