// SPDX-License-Identifier: GPL-2.0

//! Links of the kernel's that several keep: each has a file of its own for the same link, which goes with the last of them. aya opens
//! only links that are pinned.
#![allow(unsafe_code, reason = "the system call bpf() takes addresses")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use aya_obj::generated::{bpf_attr, bpf_cmd};

/// A link, kept for as long as this is.
#[derive(Debug)]
pub(crate) struct KeptLink(OwnedFd);

impl KeptLink {
    /// Opens the one with this number.
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let mut attr = no_attr();
        attr.__bindgen_anon_6.__bindgen_anon_1.link_id = number;
        // SAFETY: A number is all that the call reads.
        let file = unsafe { call(bpf_cmd::BPF_LINK_GET_FD_BY_ID, &mut attr) }?;
        // SAFETY: The call has just opened this file, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Keeps it by a file on a BPF file system, too.
    pub(crate) fn pin(&self, place: &Path) -> io::Result<()> {
        let place = CString::new(place.as_os_str().as_bytes())?;
        let mut attr = no_attr();
        attr.__bindgen_anon_4.pathname = place.as_ptr() as u64;
        attr.__bindgen_anon_4.bpf_fd = self.number();
        // SAFETY: The path is a string that ends with a zero, and lives until the call returns.
        unsafe { call(bpf_cmd::BPF_OBJ_PIN, &mut attr) }.map(drop)
    }

    /// Takes its program off, though others may keep the link.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let mut attr = no_attr();
        attr.link_detach.link_fd = self.number();
        // SAFETY: A number is all that the call reads.
        unsafe { call(bpf_cmd::BPF_LINK_DETACH, &mut attr) }.map(drop)
    }

    fn number(&self) -> u32 {
        // CAST: no file's number is negative.
        self.0.as_raw_fd() as u32
    }
}

/// Returns arguments that say nothing yet.
fn no_attr() -> bpf_attr {
    // SAFETY: All of its members are numbers, for which zeros are good.
    unsafe { std::mem::zeroed() }
}

/// Returns what a command returns: 0, or the number of a file.
///
/// # Safety
///
/// All addresses among the arguments are those of what the command expects there.
unsafe fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: The caller says so, and `attr` lives until the call returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            // CAST: a small number.
            command as u32,
            &raw mut *attr,
            size_of::<bpf_attr>(),
        )
    };
    match done {
        ..0 => Err(io::Error::last_os_error()),
        // CAST: numbers of files have 32 bits.
        done => Ok(done as i32),
    }
}
