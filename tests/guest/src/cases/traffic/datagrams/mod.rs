// SPDX-License-Identifier: GPL-2.0

//! Cases with datagrams alone: only they can show what is lost on the way.

pub(crate) mod changes;
pub(crate) mod gaps;
pub(crate) mod refragmented;
pub(crate) mod sockets;
pub(crate) mod virtual_nic;
