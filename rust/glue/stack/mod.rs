// SPDX-License-Identifier: GPL-2.0

//! The boundary to the stack: what splits, tags, carries and delivers packets.
//!
//! How this kernel gives packets away and takes them back is known in this folder and nowhere else. [`hooks`] is the way
//! in: what is above implements [`hooks::Handlers`]. The others are the way out: [`skb`] is a packet with its tag,
//! [`request`] one that is not built yet, [`worker`] builds and carries packets on a lane's CPU, [`deliver`] ends at the
//! sockets, [`device`] ties devices and NAPIs to us.
//!
//! What crosses: packets and chains of them, requests, tags, CPU numbers, and the opaque handles [`device::Device`],
//! [`device::Napi`] and [`socket::Socket`]. The modules stand in the order of their imports.

pub mod ffi;
pub mod heads;

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
