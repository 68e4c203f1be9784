// SPDX-License-Identifier: GPL-2.0

//! Network devices and their NAPIs, and what ties them to us.

use super::hook_heads::BeginsWithPortHead;
use super::{ffi, way};
use crate::algo::knobs::device_command::{DeviceName, DEVICE_NAME_SIZE};
use crate::glue::ffi::{check_export, mflow_change, mflow_trace_flow};
use crate::glue::locks::Rtnl;
use core::ffi::{c_int, c_void};
use core::num::NonZeroU32;
use core::ptr::{self, NonNull};
use kernel::prelude::*;

/// A network device. We hold a reference to it as long as this lives.
pub(crate) struct Device {
    // INVARIANT: valid, with a reference that is ours.
    dev: NonNull<ffi::net_device>,
}

// SAFETY: A reference to a device belongs to no thread.
unsafe impl Send for Device {}
// SAFETY: What is done through a shared reference may be done by several threads.
unsafe impl Sync for Device {}

impl Device {
    /// Looks a device up in the network namespace of this thread. Process context.
    pub(crate) fn find(name: &DeviceName) -> Option<Self> {
        // SAFETY: Process context; the name ends in NUL.
        let dev = unsafe { ffi::mflow_device_find(name.as_array().as_ptr().cast()) };
        // INVARIANT: what is found comes with a reference.
        NonNull::new(dev).map(|dev| Self { dev })
    }

    pub(crate) fn is(&self, dev: *const ffi::net_device) -> bool {
        ptr::eq(self.dev.as_ptr(), dev)
    }

    pub(crate) fn address(&self) -> *const ffi::net_device {
        self.dev.as_ptr()
    }

    /// Returns the device as its lanes have it.
    pub(crate) fn of_lanes(&self) -> LaneDevice {
        LaneDevice(self.dev)
    }

    /// Returns what is watched of the packets that it receives.
    pub(crate) fn watch(&self) -> Watch {
        // SAFETY: By the invariant the device is valid.
        unsafe { self.of_lanes().watch() }
    }

    /// Returns the device's number in its namespace.
    pub(crate) fn index(&self) -> u32 {
        // SAFETY: By the invariant the device is valid.
        unsafe { ffi::mflow_device_index(self.dev.as_ptr()) }
    }

    /// Returns the number of the NUMA node that the device is at, or `MFLOW_NO_NODE`.
    pub(crate) fn node(&self) -> c_int {
        // SAFETY: By the invariant the device is valid.
        unsafe { ffi::mflow_device_node(self.dev.as_ptr()) }
    }

    pub(crate) fn with_name<R>(&self, f: impl FnOnce(&str) -> R) -> R {
        let mut name = [0u8; DEVICE_NAME_SIZE];
        // SAFETY: By the invariant the device is valid; the name fits.
        unsafe { ffi::mflow_device_name(self.dev.as_ptr(), name.as_mut_ptr().cast()) };
        let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        f(core::str::from_utf8(name).unwrap_or("?"))
    }

    /// Opts the device in: hooks see `port`, the `Port` of [`Handlers`](super::hooks::Handlers), from now on.
    ///
    /// # Safety: `port` is valid until the device is opted out and all softirqs that ran then have ended.
    pub(crate) unsafe fn opt_in<P: BeginsWithPortHead>(&self, _rtnl: &Rtnl, port: &P) -> Result {
        // SAFETY: By the invariant the device is valid.
        kernel::error::to_result(unsafe {
            ffi::mflow_device_set_port(self.dev.as_ptr(), ptr::from_ref(port).cast_mut().cast())
        })
    }

    /// Returns after how many milliseconds its GRO holds nothing that it has got before, or 0 if it holds nothing beyond a poll.
    pub(crate) fn gro_holds_ms(&self) -> u32 {
        // SAFETY: By the invariant the device is valid.
        unsafe { ffi::mflow_device_gro_holds_ms(self.dev.as_ptr()) }
    }

    /// Opts the device out: hooks that begin from now on see no port.
    pub(crate) fn opt_out(&self, _rtnl: &Rtnl) {
        // SAFETY: By the invariant the device is valid.
        // To take a port away cannot fail.
        let _ = unsafe { ffi::mflow_device_set_port(self.dev.as_ptr(), ptr::null_mut()) };
    }

    /// Redirects its packets to a device of ours before they are built. Process context, no locks held; it is in the namespace of
    /// this thread.
    pub(crate) fn redirect(&self) -> Result {
        let Some(redirection) = way::REDIRECTION else {
            return Ok(());
        };
        // SAFETY: By the invariant the device is valid.
        unsafe { (redirection.begin)(self.dev.as_ptr()) }
    }

    /// Dispatches redirected packets at that device of ours. The device is opted in, and has no source.
    pub(crate) fn dispatch_early(&self, _rtnl: &Rtnl) {
        if let Some(redirection) = way::REDIRECTION {
            // SAFETY: By the invariant the device is valid.
            unsafe { (redirection.dispatch_early)(self.dev.as_ptr()) };
        }
    }

    /// Ends the redirection, if there is one. It has no source.
    pub(crate) fn end_redirect(&self, _rtnl: &Rtnl) {
        if let Some(redirection) = way::REDIRECTION {
            // SAFETY: By the invariant the device is valid.
            unsafe { (redirection.end)(self.dev.as_ptr()) };
        }
    }

    /// Waits until programs whose redirection has ended are off their devices. Process context, no locks held.
    pub(crate) fn wait_redirects_ended() {
        if let Some(redirection) = way::REDIRECTION {
            (redirection.wait_ended)();
        }
    }

    /// Returns whether some NAPI of the device has a number that its packets carry. Those of tunnels and of WireGuard have none.
    pub(crate) fn has_numbers(&self) -> bool {
        // SAFETY: By the invariant the device is valid.
        way::NAPI_NUMBERS.is_some_and(|numbers| unsafe { (numbers.has_device)(self.dev.as_ptr()) })
    }

    /// Calls `f` with each NAPI of the device. They stay as long as rtnl is held.
    pub(crate) fn for_each_napi(&self, _rtnl: &Rtnl, mut f: impl FnMut(Napi)) {
        let mut found: &mut dyn FnMut(Napi) = &mut f;
        // SAFETY: We hold rtnl and a reference; `found` lives for the call.
        unsafe { ffi::mflow_device_walk_napis(self.dev.as_ptr(), (&raw mut found).cast()) };
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: By the invariant the reference is ours.
        unsafe { ffi::mflow_device_put(self.dev.as_ptr()) };
    }
}

/// The device whose packets a lane carries, without a reference of its own: the [`Device`] outlives its lanes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct LaneDevice(NonNull<ffi::net_device>);

impl LaneDevice {
    /// Returns the device's number in its namespace. Any context.
    ///
    /// # Safety: the device is there.
    pub(crate) unsafe fn index(self) -> u32 {
        // SAFETY: By the contract.
        unsafe { ffi::mflow_device_index(self.0.as_ptr()) }
    }

    /// Tells those who trace of a flow of this device that begins to be split, or stops. Any context.
    ///
    /// # Safety: the device is there, and all that `change` points to.
    pub(crate) unsafe fn trace_flow(self, change: &mflow_change, slot: u8) {
        // SAFETY: By the contract.
        unsafe { mflow_trace_flow(self.0.as_ptr(), change, slot.into()) };
    }

    /// Returns what is watched of the packets that the device receives. Any context.
    ///
    /// # Safety: the device is there.
    #[inline]
    pub(crate) unsafe fn watch(self) -> Watch {
        // SAFETY: By the contract.
        unsafe { way::watch(self.0.as_ptr()) }
    }

    /// Lets the GRO that lanes have be as the operator wants that of the device.
    ///
    /// # Safety: in a poll of a lane; the device is there.
    #[inline]
    pub(crate) unsafe fn lend_gro(self) {
        // SAFETY: By the contract.
        unsafe { way::lend_gro(self.0.as_ptr()) };
    }
}

/// The packets of a device that something looks at which would see a list of datagrams as one packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// None.
    Nothing,
    /// Those that the filters of packet sockets let through.
    Filtered,
    /// All.
    All,
}

/// Returns whether packets may still come through the GRO of the NAPI with this number. Process context.
pub(crate) fn napi_is_there(number: NonZeroU32) -> bool {
    way::NAPI_NUMBERS.is_none_or(|numbers| (numbers.is_there)(number))
}

/// Returns whether packets that one of two possible CPUs has touched may be in a cache of the other.
pub(crate) fn share_cache(cpu: u32, other: u32) -> bool {
    // SAFETY: May be called in any context.
    unsafe { ffi::mflow_cpus_share_cache(cpu, other) }
}

/// Takes a NAPI of the device that [`Device::for_each_napi`] walks.
#[no_mangle]
unsafe extern "C" fn mflow_napi_found(found: *mut c_void, napi: *mut ffi::napi_struct) {
    let Some(napi) = NonNull::new(napi) else {
        return;
    };
    // SAFETY: `for_each_napi` passed it and waits for us.
    unsafe { (*found.cast::<&mut dyn FnMut(Napi)>())(Napi(napi)) };
}

check_export!(mflow_napi_found);

/// A NAPI. It is there as long as rtnl is held, or until `Handlers::napi_gone` has returned.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Napi(pub(super) NonNull<ffi::napi_struct>);

impl Napi {
    /// # Safety: the NAPI is there.
    pub(crate) unsafe fn has_source(self) -> bool {
        // SAFETY: By the contract.
        !unsafe { ffi::mflow_napi_source(self.0.as_ptr()) }.is_null()
    }

    /// Returns the number that its packets carry, if they carry one: no other NAPI of the host has it now.
    ///
    /// # Safety: the NAPI is there.
    pub(crate) unsafe fn number(self) -> Option<NonZeroU32> {
        // SAFETY: By the contract.
        NonZeroU32::new(unsafe { ffi::mflow_napi_id(self.0.as_ptr()) })
    }

    /// Shows `source`, the `Source` of [`Handlers`](super::hooks::Handlers), or none, to the hooks of this NAPI.
    ///
    /// # Safety: the NAPI is there; the source is valid until it is taken away and all polls that ran then have ended.
    pub(crate) unsafe fn set_source<S>(self, source: Option<&S>) {
        let source = source.map_or(ptr::null_mut(), |source| ptr::from_ref(source).cast_mut());
        // SAFETY: By the contract.
        unsafe { ffi::mflow_napi_set_source(self.0.as_ptr(), source.cast()) };
    }

    /// Brings what the NAPI's GRO holds to its end.
    ///
    /// # Safety: called in the NAPI's poll.
    #[inline]
    pub(crate) unsafe fn flush_gro(self) {
        // SAFETY: By the contract.
        unsafe { ffi::mflow_napi_gro_flush(self.0.as_ptr()) };
    }
}
