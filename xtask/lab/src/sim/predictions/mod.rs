// SPDX-License-Identifier: GPL-2.0

//! The model's word on other machines, beside what was measured, and as text.

pub(crate) mod adaptive;
pub(crate) mod check;
pub(crate) mod crowded;
pub(crate) mod falcon_rows;
pub(crate) mod modelled;
pub(crate) mod paper_figures;
pub(crate) mod predict;
pub(crate) mod terminal;
pub(crate) mod terminal_load;
pub(crate) mod validate;
