// SPDX-License-Identifier: GPL-2.0

//! BPF programs of a few instructions, most of which let every packet pass: written out rather than compiled, and `bpf(2)` is
//! called directly.
#![allow(
    unsafe_code,
    reason = "bpf(2) takes addresses of the caller's, and there is no small safe wrapper"
)]

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;

use crate::machine::sockopt;
use crate::network::topology;

/// Commands of `bpf(2)`, and what they are about; all from `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const OBJECT_PIN: libc::c_int = 6;
const PROGRAM_ATTACH: libc::c_int = 8;
const LINK_CREATE: libc::c_int = 28;
const SOCKMAP: u32 = 15;
const CPUMAP: u32 = 16;
const XSKMAP: u32 = 17;
const KIND_SOCKET_FILTER: u32 = 1;
const KIND_CLASSIFIER: u32 = 3;
const KIND_XDP: u32 = 6;
const KIND_SK_SKB: u32 = 14;
const AT_SK_SKB_STREAM_PARSER: u32 = 4;
const AT_SK_SKB_STREAM_VERDICT: u32 = 5;
const AT_XDP: u32 = 37;
const AT_SK_SKB_VERDICT: u32 = 38;
/// `r0 = SK_PASS; exit`.
const SK_PASS: [u64; 2] = [0x0000_0001_0000_00b7, 0x95];
/// `r0 = XDP_PASS; exit`.
const XDP_PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
/// The number of packets that may wait for a CPU of a map.
const CPU_QUEUE_PKTS: u32 = 8192;
/// `r0 = skb->len; exit`: all that has come is one message.
const WHOLE: [u64; 2] = [0x1061, 0x95];
/// Counts down from the packet's mark, and drops the packet. The jump out of the loop that the kernel itself counts
/// (`may_goto`) is what makes the kernel accept it.
const COUNT_DOWN_MARK: [u64; 6] = [
    0x0008_1661,           // r6 = skb->mark
    0x0002_00e5,           // again: may_goto end
    0xffff_ffff_0000_0607, // r6 -= 1
    0xfffd_0665,           // if r6 s> 0 goto again
    0xb7,                  // end: r0 = 0
    0x95,                  // exit
];
/// `r0 = skb->hash & 1; exit`.
const LOWEST_BIT_OF_HASH: [u64; 3] = [0x0044_1061, 0x0000_0001_0000_0057, 0x95];
/// The most iterations that the kernel lets such a loop have (`BPF_MAX_LOOPS`).
pub(crate) const MOST_COUNTED: u32 = 8 << 20;
const LICENSE: &[u8; 4] = b"GPL\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SockmapPrograms {
    Verdict,
    /// Messages that a parser has found in the stream.
    ParserAndVerdict,
}

impl SockmapPrograms {
    fn parts(self) -> &'static [(&'static [u64], u32)] {
        match self {
            Self::Verdict => &[(&SK_PASS, AT_SK_SKB_VERDICT)],
            Self::ParserAndVerdict => &[
                (&WHOLE, AT_SK_SKB_STREAM_PARSER),
                (&SK_PASS, AT_SK_SKB_STREAM_VERDICT),
            ],
        }
    }
}

/// A map with one socket in it: programs see each packet before the reader does.
pub(crate) struct Sockmap {
    _map: OwnedFd,
    programs: Vec<OwnedFd>,
}

impl Sockmap {
    /// Puts a socket into a map of its own, with programs that let everything pass.
    pub(crate) fn with(socket: &impl AsRawFd, programs: SockmapPrograms) -> Result<Self> {
        // Kind, size of a key, size of a value, most entries.
        let map = create(MAP_CREATE, &mut [pair(SOCKMAP, 4), pair(4, 1)])
            .context("this kernel has no sockmap")?;
        let mut loaded = Vec::new();
        for &(code, place) in programs.parts() {
            let program = load(KIND_SK_SKB, code)?;
            let mut attach = [pair(number(&map), number(&program)), pair(place, 0)];
            call(PROGRAM_ATTACH, &mut attach)
                .context("cannot attach a BPF program to a sockmap")?;
            loaded.push(program);
        }
        let (key, value) = (0u32, number(socket));
        let mut entry = [
            pair(number(&map), 0),
            address(&raw const key),
            address(&raw const value),
            0,
        ];
        call(MAP_UPDATE, &mut entry).context("cannot put a socket into a sockmap")?;
        Ok(Self {
            _map: map,
            programs: loaded,
        })
    }

    /// Returns how often its programs have run while the kernel counted that ([`count_runs`]).
    pub(crate) fn runs(&self) -> Result<u64> {
        self.programs.iter().map(runs).sum()
    }
}

fn runs(program: &OwnedFd) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let said = fs::read_to_string(&path)?;
    let count = said.lines().find_map(|line| line.strip_prefix("run_cnt:"));
    let count = count.with_context(|| format!("{path} has no run_cnt: {said}"))?;
    Ok(count.trim().parse()?)
}

/// Makes the kernel count how often each program runs, or stop counting.
pub(crate) fn count_runs(on: bool) -> Result<()> {
    topology::sysctl("kernel/bpf_stats_enabled", if on { "1" } else { "0" })
}

/// A program in a driver's receive path, until the end of the scope.
pub(crate) struct Xdp {
    program: OwnedFd,
    _link: OwnedFd,
    map: Option<OwnedFd>,
}

/// The place where an XDP program runs; the values are flags from `linux/if_link.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpMode {
    /// In the driver if it can, else in the stack.
    Any = 0,
    Generic = 2,
    Native = 4,
}

impl Xdp {
    /// Attaches a program that lets everything pass to a device of this thread's namespace.
    pub(crate) fn attach(device: &str, mode: XdpMode) -> Result<Self> {
        Self::attach_program(device, mode, &XDP_PASS, None)
    }

    /// Attaches a program to a device's driver that leaves these bytes in front of each packet.
    pub(crate) fn with_metadata(device: &str, metadata: [u8; 8]) -> Result<Self> {
        let [low, high] = [0, 4].map(|at| {
            let half = [
                metadata[at],
                metadata[at + 1],
                metadata[at + 2],
                metadata[at + 3],
            ];
            u32::from_le_bytes(half)
        });
        let code = [
            0x16bf,                // r6 = xdp
            0xffff_fff8_0000_02b7, // r2 = -8
            pair(0x85, 54),        // r0 = bpf_xdp_adjust_meta(r1, r2)
            0x0008_0055,           // if r0 != 0 goto pass
            0x0008_6261,           // r2 = xdp->data_meta
            0x6361,                // r3 = xdp->data
            0x24bf,                // r4 = r2
            pair(0x0407, 8),       // r4 += 8
            0x0003_342d,           // if r4 > r3 goto pass
            pair(0x0518, low),     // r5 = the bytes, in two parts
            pair(0, high),
            0x527b,      // *r2 = r5
            XDP_PASS[0], // pass:
            XDP_PASS[1],
        ];
        Self::attach_program(device, XdpMode::Native, &code, None)
    }

    /// Attaches a program that sends every packet to a thread on another CPU, from where it goes on.
    pub(crate) fn send_to_cpu(device: &str, cpu: usize) -> Result<Self> {
        let program = Self::may_send_to_cpu(device, XdpMode::Generic, cpu)?;
        program.send_to_cpu_now(cpu)?;
        Ok(program)
    }

    /// Attaches a program that lets every packet pass until it is told to send them to this CPU ([`Self::send_to_cpu_now`]).
    pub(crate) fn may_send_to_cpu(device: &str, mode: XdpMode, cpu: usize) -> Result<Self> {
        // CAST: one of a few.
        let cpu = cpu as u32;
        let map = create(MAP_CREATE, &mut [pair(CPUMAP, 4), pair(4, cpu + 1)])
            .context("this kernel has no map of CPUs")?;
        let code = [
            pair(0x1118, number(&map)), // r1 = the map, in two parts
            0,
            pair(0x02b7, cpu), // r2 = cpu
            pair(0x03b7, 2),   // r3 = XDP_PASS, for a CPU that is not in the map
            pair(0x85, 51),    // r0 = bpf_redirect_map(r1, r2, r3)
            0x95,              // exit
        ];
        Self::attach_program(device, mode, &code, Some(map))
    }

    /// Makes such a program send packets from now on.
    pub(crate) fn send_to_cpu_now(&self, cpu: usize) -> Result<()> {
        let map = self.map.as_ref().context("the program has no map")?;
        // CAST: one of a few.
        let (cpu, pkts) = (cpu as u32, CPU_QUEUE_PKTS);
        let mut entry = [
            pair(number(map), 0),
            address(&raw const cpu),
            address(&raw const pkts),
            0,
        ];
        call(MAP_UPDATE, &mut entry)
            .context("cannot put a CPU into a map")
            .map(drop)
    }

    /// Attaches a program that may send packets of a device's first queue to this socket (AF_XDP): the number of a map is what its code
    /// is made of, and the socket is the map's only entry.
    pub(crate) fn send_to_socket(
        device: &str,
        mode: XdpMode,
        socket: &impl AsRawFd,
        code: impl FnOnce(u32) -> Result<Vec<u64>>,
    ) -> Result<Self> {
        let map = create(MAP_CREATE, &mut [pair(XSKMAP, 4), pair(4, 1)])
            .context("this kernel has no map of AF_XDP sockets")?;
        let (queue, value) = (0_u32, number(socket));
        let mut entry = [
            pair(number(&map), 0),
            address(&raw const queue),
            address(&raw const value),
            0,
        ];
        call(MAP_UPDATE, &mut entry).context("cannot put a socket into a map")?;
        Self::attach_program(device, mode, &code(number(&map))?, Some(map))
    }

    fn attach_program(
        device: &str,
        mode: XdpMode,
        code: &[u64],
        map: Option<OwnedFd>,
    ) -> Result<Self> {
        let index = if_nametoindex(device).with_context(|| format!("no device {device}"))?;
        let program = load(KIND_XDP, code)?;
        let link = create(
            LINK_CREATE,
            &mut [pair(number(&program), index), pair(AT_XDP, mode as u32)],
        )
        .with_context(|| format!("{device} takes no XDP program ({mode:?})"))?;
        Ok(Self {
            program,
            _link: link,
            map,
        })
    }

    /// Returns how often it has run while the kernel counted that ([`count_runs`]).
    pub(crate) fn runs(&self) -> Result<u64> {
        runs(&self.program)
    }
}

/// Makes the hash that a packet brings choose one of the first two sockets of a group with `SO_REUSEPORT`.
pub(crate) fn choose_by_hash(socket: &impl AsRawFd) -> Result<()> {
    let program = load(KIND_SOCKET_FILTER, &LOWEST_BIT_OF_HASH)?;
    sockopt::choose_by_program(socket, &program)
}

/// Makes a socket spend time on each packet it is shown, as much as the packet's mark says, and take none.
pub(crate) fn count_down_marks(socket: &impl AsRawFd) -> Result<()> {
    let program = load(KIND_SOCKET_FILTER, &COUNT_DOWN_MARK)?;
    sockopt::attach_program(socket, &program)
}

/// A side of a device's traffic control where links hold programs; the values are from `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcxSide {
    Ingress = 46,
    Egress = 47,
}

/// A program at a device's traffic control that a link holds (tcx, since Linux 6.6), until the end of the scope.
pub(crate) struct Tcx {
    _link: OwnedFd,
}

impl Tcx {
    /// Attaches a program behind those that are there.
    pub(crate) fn attach(device: &str, side: TcxSide, code: &[u64]) -> Result<Self> {
        let index = if_nametoindex(device).with_context(|| format!("no device {device}"))?;
        let program = load(KIND_CLASSIFIER, code)?;
        let mut link = [pair(number(&program), index), pair(side as u32, 0), 0, 0];
        let link = create(LINK_CREATE, &mut link)
            .with_context(|| format!("{device} takes no program at tcx ({side:?})"))?;
        Ok(Self { _link: link })
    }

    /// Attaches a program that sends a copy of each packet which comes by one device out by another one.
    pub(crate) fn copying(from: &str, to: &str) -> Result<Self> {
        let index = if_nametoindex(to).with_context(|| format!("no device {to}"))?;
        let code = [
            pair(0x02b7, index),  // r2 = to
            0x03b7,               // r3 = 0
            pair(0x85, 13),       // r0 = bpf_clone_redirect(skb, r2, r3)
            pair(0xb7, u32::MAX), // r0 = TCX_NEXT
            0x95,                 // exit
        ];
        Self::attach(from, TcxSide::Ingress, &code)
    }
}

/// A classifier that programs find by a path, until the end of the scope.
pub(crate) struct Pinned {
    _program: OwnedFd,
    path: CString,
}

/// Loads a program that decides about packets at a device's traffic control, and gives it a path of a file system of such objects.
pub(crate) fn pin_classifier(code: &[u64], path: &str) -> Result<Pinned> {
    let program = load(KIND_CLASSIFIER, code)?;
    let path = CString::new(path)?;
    let mut pin = [address(path.as_ptr()), pair(number(&program), 0)];
    call(OBJECT_PIN, &mut pin).with_context(|| format!("cannot pin a program as {path:?}"))?;
    Ok(Pinned {
        _program: program,
        path,
    })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _may_be_gone = fs::remove_file(OsStr::from_bytes(self.path.as_bytes()));
    }
}

fn load(kind: u32, code: &[u64]) -> Result<OwnedFd> {
    let mut program = [
        // CAST: a few.
        pair(kind, code.len() as u32),
        address(code.as_ptr()),
        address(LICENSE.as_ptr()),
    ];
    create(PROGRAM_LOAD, &mut program).context("cannot load a BPF program")
}

/// Two 32-bit members of the call's argument, the first one first in memory.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn number(descriptor: &impl AsRawFd) -> u32 {
    // CAST: an open descriptor is not negative.
    descriptor.as_raw_fd() as u32
}

fn create(command: libc::c_int, argument: &mut [u64]) -> Result<OwnedFd> {
    let descriptor = call(command, argument)?;
    // SAFETY: The kernel has just opened it for this call, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn call(command: libc::c_int, argument: &mut [u64]) -> Result<libc::c_int> {
    // SAFETY: The argument is as long as is said; the addresses in it are of constants and of the caller's variables,
    // which the kernel reads during the call only.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            argument.as_mut_ptr(),
            size_of_val(argument),
        )
    };
    // CAST: descriptors and 0.
    Ok(Errno::result(result)? as libc::c_int)
}
