// SPDX-License-Identifier: GPL-2.0

//! What the benchmark measures.

pub(crate) mod row;
