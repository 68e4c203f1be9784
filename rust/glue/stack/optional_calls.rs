// SPDX-License-Identifier: GPL-2.0

//! The calls that only one of the two ways into the stack has: each way has them as a constant, or none.

#![allow(dead_code, reason = "a way makes those alone that it has")]

use super::ffi::{net_device, sk_buff, sock};
use core::num::NonZeroU32;
use core::ptr::NonNull;
use kernel::error::Result;

/// The calls that redirect packets to a device of ours before they are built. The device is valid.
pub(super) struct Redirection {
    /// Redirects packets of an opted-in device. Nothing else is done with them until `dispatch_early`.
    ///
    /// Safety: process context, no locks held; the device is in the namespace of this process.
    pub(super) begin: unsafe fn(*mut net_device) -> Result,
    /// Dispatches redirected packets before they are built.
    ///
    /// Safety: rtnl is held, and the device has no source.
    pub(super) dispatch_early: unsafe fn(*mut net_device),
    /// Ends what `begin` has begun, if it has.
    ///
    /// Safety: rtnl is held, and the device has no source.
    pub(super) end: unsafe fn(*mut net_device),
    /// Waits until the programs of what has ended are off their devices. Process context, no locks held.
    pub(super) wait_ended: fn(),
}

/// The calls that tell which numbers packets can have of their NAPIs. Process context.
pub(super) struct NapiNumbers {
    /// Returns whether packets may still come through the GRO of the NAPI with this number.
    pub(super) is_there: fn(NonZeroU32) -> bool,
    /// Returns whether some NAPI of the device has a number, which its packets carry.
    ///
    /// Safety: the device is valid.
    pub(super) has_device: unsafe fn(*const net_device) -> bool,
}

/// The calls that tell whether probes have come through as they were. The packet is valid, and the caller's.
pub(super) struct ProbeNotes {
    /// Notes a probe of a slot where it begins its way.
    ///
    /// Safety: the packet begins at its network header; softirqs are disabled.
    pub(super) note: unsafe fn(NonNull<sk_buff>, slot: u32),
    /// Returns whether datagrams may come in lists where a probe of their slot has come.
    ///
    /// Safety: the packet is at the hook of the socket.
    pub(super) suits_lists: unsafe fn(NonNull<sk_buff>, *mut sock, slot: u32) -> bool,
}
