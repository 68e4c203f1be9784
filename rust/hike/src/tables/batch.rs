// SPDX-License-Identifier: GPL-2.0

//! Whole arrays of the kernel's, read and written with one system call (`BPF_MAP_LOOKUP_BATCH`, Linux 5.6 and newer): aya has calls
//! for single entries, of which an access list has tens of thousands.
#![allow(unsafe_code, reason = "the system call bpf() takes addresses")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use aya::maps::MapData;
use aya::Pod;
use aya_obj::generated::{bpf_attr, bpf_attr__bindgen_ty_3, bpf_cmd};

/// An array whose values are plain bytes.
#[derive(Debug)]
pub(crate) struct WholeArray(MapData);

impl WholeArray {
    /// Opens one of an instance.
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Self> {
        let pin = folder.join(name);
        let data = MapData::from_pin(&pin);
        Ok(Self(data.with_context(|| {
            format!("cannot open {}", pin.display())
        })?))
    }

    /// Returns the values of this many entries, from the first on.
    pub(crate) fn read<T: Pod + Default>(&self, entries: usize) -> Result<Vec<T>> {
        self.check::<T>(entries)?;
        let (mut keys, mut values) = (vec![0u32; entries], vec![T::default(); entries]);
        // SAFETY: There is room for as many keys and values, of the sizes that the map has.
        let read = unsafe {
            self.call(
                bpf_cmd::BPF_MAP_LOOKUP_BATCH,
                keys.as_mut_ptr(),
                values.as_mut_ptr(),
                entries,
            )
        };
        let read = read.context("cannot read an array")?;
        ensure!(
            read == entries,
            "an array has {read} entries, not {entries}"
        );
        Ok(values)
    }

    /// Writes the values of entries, from one on.
    pub(crate) fn write<T: Pod>(&mut self, first: usize, values: &[T]) -> Result<()> {
        self.check::<T>(first + values.len())?;
        // CAST: below the number of entries, which has 32 bits.
        let mut keys: Vec<u32> = (first..first + values.len())
            .map(|key| key as u32)
            .collect();
        // SAFETY: The kernel reads as many keys and values, of the sizes that the map has, and writes neither.
        let written = unsafe {
            self.call(
                bpf_cmd::BPF_MAP_UPDATE_BATCH,
                keys.as_mut_ptr(),
                values.as_ptr().cast_mut(),
                values.len(),
            )
        };
        let written = written.context("cannot write an array")?;
        ensure!(written == values.len(), "an array took {written} entries");
        Ok(())
    }

    /// Fails unless the map has values of this type, and this many of them.
    fn check<T>(&self, entries: usize) -> Result<()> {
        let info = self.0.info()?;
        let sizes = (info.key_size() as usize, info.value_size() as usize);
        ensure!(
            sizes == (size_of::<u32>(), size_of::<T>()) && entries <= info.max_entries() as usize,
            "an array is of another shape than this program's"
        );
        Ok(())
    }

    /// Returns how many entries the kernel has worked on.
    ///
    /// # Safety
    ///
    /// There are this many keys of four bytes and values of the map's size, which the kernel reads, or writes if it is told to look up.
    unsafe fn call<T>(
        &self,
        command: bpf_cmd,
        keys: *mut u32,
        values: *mut T,
        entries: usize,
    ) -> io::Result<usize> {
        let mut last = 0u32;
        // SAFETY: All of its members are numbers, for which zeros are good.
        let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
        attr.batch = bpf_attr__bindgen_ty_3 {
            in_batch: 0,
            out_batch: match command {
                bpf_cmd::BPF_MAP_LOOKUP_BATCH => &raw mut last as u64,
                _ => 0,
            },
            keys: keys as u64,
            values: values as u64,
            // CAST: checked against the map's, which has 32 bits.
            count: entries as u32,
            // CAST: no file's number is negative.
            map_fd: self.0.fd().as_fd().as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: The caller says so; `attr` and `last` live until the call returns.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                // CAST: a small number.
                command as u32,
                &raw mut attr,
                size_of::<bpf_attr>(),
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: It is the member that was written.
        Ok(unsafe { attr.batch.count } as usize)
    }
}
