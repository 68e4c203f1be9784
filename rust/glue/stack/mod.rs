// SPDX-License-Identifier: GPL-2.0

//! The boundary to the stack: the code that splits, tags, carries and delivers packets.
//!
//! Only this folder knows how this kernel gives packets away and takes them back. [`hooks`] is the way in: the code above
//! implements [`hooks::Handlers`]. The others are the way out: [`skb`] is a packet with its tag, [`request`] one that is not
//! built yet, [`worker`] builds and carries packets on a lane's CPU, [`joiner`] adds frames to what its GRO holds, [`deliver`] ends
//! at the sockets, [`device`] ties devices and NAPIs to us.
//!
//! Packets and chains of them, requests, tags, CPU numbers, and the opaque handles [`device::Device`], [`device::LaneDevice`],
//! [`device::Napi`] and [`socket::Socket`] cross the boundary. The modules stand in the order of their imports.

pub mod ffi;
pub mod hook_heads;
pub mod optional_calls;

// The only one of which there are two, one for each way into the stack.
#[cfg_attr(mflow_stock, path = "way_stock.rs")]
#[cfg_attr(not(mflow_stock), path = "way_patched.rs")]
pub mod way;

pub mod request;
pub mod socket;

pub mod skb;

pub mod deliver;
pub mod device;
pub mod worker;

pub mod hooks;
pub mod joiner;
