// SPDX-License-Identifier: GPL-2.0

//! The costs of each stage, read from benchmark rows, and scenes that are made from them.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod groups;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod stages;
