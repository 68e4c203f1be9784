// SPDX-License-Identifier: GPL-2.0

//! The files over netlink: the generic family `mflow`, for kernels that are locked down, and for answers in words.
//!
//! `c-shims/netlink/mflow.yaml` describes it. Its C half calls the functions of `files.rs`, which take rtnl and the configuration's
//! lock. Netlink's own lock is outside of both: so the family is registered and unregistered while none of them is held.

use crate::glue::ffi;
use kernel::prelude::*;

/// The family, as long as it lives.
pub(crate) struct Netlink(());

impl Netlink {
    /// Registers it. Process context, no locks held.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Process context; the configuration is there.
        let err = unsafe { ffi::mflow_netlink_register() };
        kernel::error::to_result(err).inspect_err(|error| {
            pr_err!("the netlink family mflow can't be registered: {error:?}\n");
        })?;
        Ok(Self(()))
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`; no locks are held. Waits for requests.
        unsafe { ffi::mflow_netlink_unregister() };
    }
}
