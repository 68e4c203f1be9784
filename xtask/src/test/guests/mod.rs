// SPDX-License-Identifier: GPL-2.0

//! The guests of the layers: [`draw`] chooses the cases of each, and [`places`] lets as many run at a time as there are cores.

pub(super) mod draw;
pub(super) mod places;
