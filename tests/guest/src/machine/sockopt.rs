// SPDX-License-Identifier: GPL-2.0

//! Options of sockets for which there is no safe wrapper.
#![allow(
    unsafe_code,
    reason = "the crates that wrap these calls leave these options out"
)]

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::libc;

/// The number of values that the kernel gives for a socket's memory, and the places of three of them; from `linux/sock_diag.h`.
const MEMORY_NUMBERS: usize = 9;
const RECEIVE_BYTES: usize = 0;
const RECEIVE_LIMIT_BYTES: usize = 1;
const DROPS: usize = 8;

/// The memory that a socket's receive queue costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveMemory {
    pub(crate) bytes: u32,
    pub(crate) limit_bytes: u32,
    /// Packets that were not taken, ever.
    pub(crate) drops: u32,
}

/// Sets how many bytes a reader wants at least before it is woken.
pub(crate) fn set_low_water_mark(socket: &TcpStream, bytes: libc::c_int) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes).context("SO_RCVLOWAT")
}

/// Lets connections come into being with their first data only, for this many seconds.
pub(crate) fn defer_accept(listener: &TcpListener, seconds: libc::c_int) -> Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds).context("TCP_DEFER_ACCEPT")
}

/// Lets a listener take data with the first segment of this many connections at a time (TCP Fast Open).
pub(crate) fn take_fast_open(listener: &TcpListener, places: libc::c_int) -> Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, places).context("TCP_FASTOPEN")
}

/// Leaves the first segment of a connection to the first data.
pub(crate) fn connect_with_data(socket: &impl AsRawFd) -> Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1).context("TCP_FASTOPEN_CONNECT")
}

/// Lets a BPF program see each packet of a socket first.
pub(crate) fn attach_program(socket: &impl AsRawFd, program: &impl AsRawFd) -> Result<()> {
    let program = program.as_raw_fd();
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program).context("SO_ATTACH_BPF")
}

/// Makes a BPF program choose among the sockets of a group with `SO_REUSEPORT`: the program returns the place of one.
pub(crate) fn choose_by_program(socket: &impl AsRawFd, program: &impl AsRawFd) -> Result<()> {
    let (option, program) = (libc::SO_ATTACH_REUSEPORT_EBPF, program.as_raw_fd());
    set(socket, libc::SOL_SOCKET, option, program).context("SO_ATTACH_REUSEPORT_EBPF")
}

/// Makes a packet socket join a group that shares out packets by flow (`PACKET_FANOUT_HASH`, which is 0).
pub(crate) fn share_packets(socket: &impl AsRawFd, group: u16) -> Result<()> {
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, group.into()).context("PACKET_FANOUT")
}

pub(crate) fn receive_memory(socket: &impl AsRawFd) -> Result<ReceiveMemory> {
    let mut numbers = [0_u32; MEMORY_NUMBERS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: The kernel writes at most `length` bytes to `numbers`, and how many it has written to `length`; both outlive
    // the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            (&raw mut numbers).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).context("SO_MEMINFO")?;
    ensure!(
        length as usize == size_of_val(&numbers),
        "SO_MEMINFO has {length} bytes"
    );
    Ok(ReceiveMemory {
        bytes: numbers[RECEIVE_BYTES],
        limit_bytes: numbers[RECEIVE_LIMIT_BYTES],
        drops: numbers[DROPS],
    })
}

/// Returns the number of the NAPI by which a socket has got its last packet; 0: not known.
pub(crate) fn napi_number(socket: &UdpSocket) -> Result<u32> {
    let mut number: u32 = 0;
    let mut length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: The kernel writes at most the four bytes of `number`, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).context("SO_INCOMING_NAPI_ID")?;
    Ok(number)
}

/// Lets a program of the classic kind see each packet of a socket first.
pub(crate) fn attach_filter(socket: &impl AsRawFd, steps: &mut [libc::sock_filter]) -> Result<()> {
    attach_classic(socket, libc::SO_ATTACH_FILTER, steps).context("SO_ATTACH_FILTER")
}

/// Makes a program of the classic kind choose among the sockets of a group with `SO_REUSEPORT`: one place on a CPU, another one elsewhere.
pub(crate) fn choose_by_cpu(
    socket: &impl AsRawFd,
    cpu: usize,
    here: u32,
    elsewhere: u32,
) -> Result<()> {
    let step = |code: u32, jump_if_not, k| libc::sock_filter {
        // CAST: some bits.
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k,
    };
    // CAST: the kernel takes such offsets for numbers without a sign.
    let at_cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at_cpu),
        // CAST: some CPUs.
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, cpu as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, here),
        step(libc::BPF_RET | libc::BPF_K, 0, elsewhere),
    ];
    attach_classic(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &mut steps)
        .context("SO_ATTACH_REUSEPORT_CBPF")
}

fn attach_classic(
    socket: &impl AsRawFd,
    option: libc::c_int,
    steps: &mut [libc::sock_filter],
) -> Result<()> {
    let program = libc::sock_fprog {
        // CAST: a few.
        len: steps.len() as libc::c_ushort,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: The kernel reads the program and its steps, which outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop)?;
    Ok(())
}

/// Lets the kernel answer on a netlink socket in sentences, too.
pub(crate) fn hear_sentences(socket: &impl AsRawFd) -> Result<()> {
    set(socket, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1).context("NETLINK_EXT_ACK")
}

/// Listens on a netlink socket to a group.
pub(crate) fn join_netlink_group(socket: &impl AsRawFd, group: u32) -> Result<()> {
    let group = libc::c_int::try_from(group)?;
    let option = libc::NETLINK_ADD_MEMBERSHIP;
    set(socket, libc::SOL_NETLINK, option, group).context("NETLINK_ADD_MEMBERSHIP")
}

/// Returns the groups of netlink that a socket has joined.
pub(crate) fn netlink_groups(socket: &impl AsRawFd) -> Result<Vec<u32>> {
    let mut bits = [0_u32; 64];
    let mut length = size_of_val(&bits) as libc::socklen_t;
    // SAFETY: The kernel writes at most `length` bytes into `bits`, and the number of those that it has into `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_LIST_MEMBERSHIPS,
            bits.as_mut_ptr().cast(),
            &mut length,
        )
    };
    Errno::result(result).context("NETLINK_LIST_MEMBERSHIPS")?;
    let groups = (1..).zip(
        bits.iter()
            .flat_map(|word| (0..u32::BITS).map(move |bit| word >> bit & 1)),
    );
    Ok(groups
        .filter(|(_, is_member)| *is_member == 1)
        .map(|(group, _)| group)
        .collect())
}

fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: The kernel reads the four bytes of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_socket_holds_and_drops_is_told() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let empty = receive_memory(&socket).expect("a kernel that tells");
        assert_eq!((empty.bytes, empty.drops), (0, 0));
        let to = socket.local_addr().expect("bound");
        let mut last = empty;
        while last.drops == 0 {
            socket.send_to(&[0; 1024], to).expect("sent");
            let now = receive_memory(&socket).expect("a kernel that tells");
            assert!(now.bytes > last.bytes || now.drops > 0, "{now:?}");
            last = now;
        }
        assert!(last.bytes > last.limit_bytes / 2, "{last:?}");
    }
}
