// SPDX-License-Identifier: GPL-2.0

//! From a boot of a guest ([`boots`], [`session`]) to a row of the result ([`windows`], [`row`]).

pub(crate) mod boots;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod instructions;
pub(crate) mod plugin;
pub(crate) mod session;
pub(crate) mod windows;
