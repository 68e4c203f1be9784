// SPDX-License-Identifier: GPL-2.0

//! A socket that an XDP program gives frames of one receive queue (AF_XDP). The kernel copies them to memory of this process, which
//! any driver can have done.
#![allow(
    unsafe_code,
    reason = "no small crate opens such a socket, and its rings are memory that is shared with the kernel"
)]

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::libc::{self, c_int};
use nix::net::if_::if_nametoindex;
use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};

/// The number of frames that may wait for a reader, and the bytes of each: powers of two, as the kernel wants both.
const FRAMES: u32 = 4_096;
const FRAME_BYTES: u32 = 2_048;
/// Rings of completion are asked for, and are of no use to who only receives.
const COMPLETIONS: u32 = 64;

pub(crate) struct XdpSocket {
    // Before the memory that it shares.
    socket: OwnedFd,
    filled: Ring,
    received: Ring,
    frames: Memory,
}

impl XdpSocket {
    /// Opens one for a queue of a device of the caller's namespace, with room for [`FRAMES`] frames.
    pub(crate) fn open(device: &str, queue: u32) -> Result<Self> {
        let socket = socket()?;
        let bytes = FRAMES as usize * FRAME_BYTES as usize;
        let frames = Memory::of_process(bytes)?;
        let region = libc::xdp_umem_reg_v1 {
            addr: frames.address() as u64,
            len: bytes as u64,
            chunk_size: FRAME_BYTES,
            headroom: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &region).context("XDP_UMEM_REG")?;
        set(&socket, libc::XDP_UMEM_FILL_RING, &FRAMES).context("XDP_UMEM_FILL_RING")?;
        set(&socket, libc::XDP_UMEM_COMPLETION_RING, &COMPLETIONS)
            .context("XDP_UMEM_COMPLETION_RING")?;
        set(&socket, libc::XDP_RX_RING, &FRAMES).context("XDP_RX_RING")?;
        let places: libc::xdp_mmap_offsets = get(&socket, libc::XDP_MMAP_OFFSETS)?;
        // CAST: as the kernel's own header has it for 64-bit processes.
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let opened = Self {
            filled: Ring::map(&socket, fill_at, &places.fr, size_of::<u64>())?,
            received: Ring::map(
                &socket,
                libc::XDP_PGOFF_RX_RING,
                &places.rx,
                size_of::<libc::xdp_desc>(),
            )?,
            frames,
            socket,
        };
        for frame in 0..FRAMES {
            opened.give_back(frame, u64::from(frame) * u64::from(FRAME_BYTES));
        }
        opened.filled.set_producer(FRAMES);
        opened.bind(device, queue)?;
        Ok(opened)
    }

    fn bind(&self, device: &str, queue: u32) -> Result<()> {
        let address = libc::sockaddr_xdp {
            // CAST: 44.
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: if_nametoindex(device).with_context(|| format!("no device {device}"))?,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: The address outlives the call, and is as long as is said.
        let bound = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                // CAST: 16.
                size_of_val(&address) as u32,
            )
        };
        Errno::result(bound)
            .with_context(|| format!("cannot bind to queue {queue} of {device}"))
            .map(drop)
    }

    /// Returns the frames that have come and were not returned before. Their memory is the kernel's again then.
    pub(crate) fn take(&mut self) -> Result<Vec<Vec<u8>>> {
        let (first, end) = (self.received.consumer(), self.received.producer());
        let mut taken = Vec::new();
        for place in 0..end.wrapping_sub(first) {
            // SAFETY: The kernel has written this entry before it has moved its counter beyond it, and leaves it alone until ours is.
            let entry: libc::xdp_desc = unsafe { self.received.read(first.wrapping_add(place)) };
            taken.push(self.frames.copy(entry.addr, entry.len)?);
            let filled = self.filled.producer().wrapping_add(place);
            self.give_back(filled, entry.addr - entry.addr % u64::from(FRAME_BYTES));
        }
        let count = end.wrapping_sub(first);
        self.received.set_consumer(end);
        self.filled
            .set_producer(self.filled.producer().wrapping_add(count));
        Ok(taken)
    }

    /// Writes an entry of the ring from which the kernel takes memory for frames. It does not see it before the counter is moved.
    fn give_back(&self, entry: u32, address: u64) {
        // SAFETY: There are as many entries as frames, and this frame is in none of them, so the kernel is through with this one.
        unsafe { self.filled.write(entry, address) };
    }

    /// Returns how many frames were meant for it and have not come, for whatever reason.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let counted: libc::xdp_statistics = get(&self.socket, libc::XDP_STATISTICS)?;
        Ok(counted.rx_dropped + counted.rx_ring_full + counted.rx_fill_ring_empty_descs)
    }
}

impl AsRawFd for XdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: The call takes numbers only.
    let opened = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let opened = Errno::result(opened).context("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)")?;
    // SAFETY: The kernel has just opened it for this call, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

fn set<T>(socket: &impl AsRawFd, option: c_int, value: &T) -> Result<()> {
    // SAFETY: The kernel reads as many bytes as `value` has, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw const *value).cast(),
            // CAST: some dozen bytes.
            size_of::<T>() as u32,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Returns what the kernel says of a socket, as a type of plain numbers.
fn get<T: Copy>(socket: &impl AsRawFd, option: c_int) -> Result<T> {
    // CAST: some dozen bytes.
    let mut length = size_of::<T>() as u32;
    // SAFETY: Numbers, of which 0 is a valid one.
    let mut value: T = unsafe { std::mem::zeroed() };
    // SAFETY: The kernel writes at most `length` bytes to `value`, and how many it has written to `length`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    ensure!(
        length as usize == size_of::<T>(),
        "option {option} of AF_XDP has {length} bytes"
    );
    Ok(value)
}

/// Memory that is mapped until the end of the scope.
struct Memory {
    start: NonNull<libc::c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: No thread has a part in it but the one that has it, and the kernel, which does not care which thread that is.
unsafe impl Send for Memory {}

impl Memory {
    fn of_process(bytes: usize) -> Result<Self> {
        let bytes = NonZeroUsize::new(bytes).context("no memory is wanted")?;
        let (access, kind) = (Self::access(), MapFlags::MAP_PRIVATE);
        // SAFETY: The kernel chooses a place where nothing else is.
        let start = unsafe { mmap_anonymous(None, bytes, access, kind) }?;
        Ok(Self { start, bytes })
    }

    fn of_socket(socket: &OwnedFd, offset: libc::off_t, bytes: usize) -> Result<Self> {
        let bytes = NonZeroUsize::new(bytes).context("no memory is wanted")?;
        let kind = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: As above.
        let start = unsafe { mmap(None, bytes, Self::access(), kind, socket, offset) }?;
        Ok(Self { start, bytes })
    }

    fn access() -> ProtFlags {
        ProtFlags::PROT_READ | ProtFlags::PROT_WRITE
    }

    fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    /// Returns a pointer to a value at this place.
    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(
            offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.bytes.get()
        );
        // SAFETY: It is inside the mapping, as has just been seen.
        unsafe { self.start.as_ptr().byte_add(offset) }.cast()
    }

    fn copy(&self, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let (offset, bytes) = (usize::try_from(offset)?, bytes as usize);
        ensure!(
            offset + bytes <= self.bytes.get(),
            "a frame of {bytes} bytes at {offset} is outside of the memory for frames"
        );
        // SAFETY: It is inside the mapping, and the kernel writes no more to a frame that it has handed over.
        let frame = unsafe { std::slice::from_raw_parts(self.at::<u8>(offset), bytes) };
        Ok(frame.to_vec())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: It was mapped so, and no reference to it is left.
        let _cannot_fail = unsafe { munmap(self.start, self.bytes.get()) };
    }
}

/// A ring with one writer and one reader, of which the kernel is one: entries, and how many were ever written and read.
struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    entries: usize,
}

impl Ring {
    fn map(
        socket: &OwnedFd,
        offset: libc::off_t,
        places: &libc::xdp_ring_offset,
        entry_bytes: usize,
    ) -> Result<Self> {
        let entries = usize::try_from(places.desc)?;
        let bytes = entries + FRAMES as usize * entry_bytes;
        Ok(Self {
            memory: Memory::of_socket(socket, offset, bytes).context("a ring of AF_XDP")?,
            producer: usize::try_from(places.producer)?,
            consumer: usize::try_from(places.consumer)?,
            entries,
        })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: It is inside the mapping, aligned, and neither side uses it but atomically.
        unsafe { AtomicU32::from_ptr(self.memory.at(offset)) }
    }

    fn producer(&self) -> u32 {
        // ORDERING: pairs with the kernel's release (smp_store_release), so the entries before it can be read.
        self.counter(self.producer).load(Ordering::Acquire)
    }

    fn consumer(&self) -> u32 {
        // ORDERING: this side alone writes it, where it is read.
        self.counter(self.consumer).load(Ordering::Relaxed)
    }

    fn set_producer(&self, count: u32) {
        // ORDERING: pairs with the kernel's acquire, so it reads the entries that were written before.
        self.counter(self.producer).store(count, Ordering::Release);
    }

    fn set_consumer(&self, count: u32) {
        // ORDERING: pairs with the kernel's acquire, so it writes no entry that is still being read.
        self.counter(self.consumer).store(count, Ordering::Release);
    }

    fn entry<T>(&self, number: u32) -> *mut T {
        let place = (number % FRAMES) as usize;
        self.memory.at(self.entries + place * size_of::<T>())
    }

    /// Reads an entry.
    ///
    /// # Safety
    ///
    /// It must be this side's turn with that entry, and its type be that of the ring's entries.
    unsafe fn read<T: Copy>(&self, number: u32) -> T {
        // SAFETY: It is inside the mapping, and aligned; the caller sees to the rest.
        unsafe { self.entry::<T>(number).read() }
    }

    /// Writes an entry.
    ///
    /// # Safety
    ///
    /// As of [`Ring::read`].
    unsafe fn write<T: Copy>(&self, number: u32, value: T) {
        // SAFETY: As above.
        unsafe { self.entry::<T>(number).write(value) };
    }
}
