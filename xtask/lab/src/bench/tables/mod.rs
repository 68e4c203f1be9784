// SPDX-License-Identifier: GPL-2.0

//! Results as text: grids for a terminal.

pub(crate) mod compare;
pub(crate) mod cores;
pub(crate) mod events;
pub(crate) mod figure;
pub(crate) mod figure_text;
pub(crate) mod grid;
pub(crate) mod notes;
pub(crate) mod overview;
pub(crate) mod published_figures;
pub(crate) mod terminal;
