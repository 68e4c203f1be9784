// SPDX-License-Identifier: GPL-2.0

//! A virtual NIC that hands over many datagrams in one piece, as those of virtual machines do: a TAP device with NAPI. And the host's end
//! of a virtual machine's: a TAP device.
#![allow(unsafe_code, reason = "no crate sets up a TAP device with NAPI")]

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result};
use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, PacketBuilder, UdpHeader};
use nix::libc;

use crate::machine::command;
use crate::network::netlink::{Behind, Netlink};
use crate::network::topology;

pub(crate) const NAME: &str = "vnic";
pub(crate) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), 7_000);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// `struct virtio_net_hdr` of linux/virtio_net.h: its size, and what it says of a datagram in pieces.
const VIRTIO_HEADER_BYTES: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const GSO_UDP_L4: u8 = 5;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_CHECKSUM_OFFSET: usize = 6;

nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, libc::ifreq);

const FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_NAPI;
/// The kernel's `napi_gro_frags()` takes the packets of such a device, which may have several queues.
const FRAGMENTS_FLAGS: i32 = FLAGS | libc::IFF_NAPI_FRAGS | libc::IFF_MULTI_QUEUE;

/// The device, which goes with this value, and its queues. The last one receives.
pub(crate) struct VirtualNic(Vec<File>);

impl VirtualNic {
    pub(crate) fn add() -> Result<Self> {
        Self::of(FLAGS)
    }

    /// Adds one whose driver gives GRO fragments, as that of a ConnectX-3 does.
    pub(crate) fn add_of_fragments() -> Result<Self> {
        Self::of(FRAGMENTS_FLAGS)
    }

    /// Adds a queue to a device of fragments.
    pub(crate) fn add_queue(&mut self) -> Result<()> {
        self.0.push(open(NAME, FRAGMENTS_FLAGS)?);
        Ok(())
    }

    fn of(flags: i32) -> Result<Self> {
        let file = open(NAME, flags)?;
        let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
        topology::ip(&format!(
            "link set {NAME} address {mac}\naddress add {}/24 dev {NAME}\nlink set {NAME} up",
            ADDRESS.ip()
        ))?;
        Ok(Self(vec![file]))
    }

    /// Makes the kernel receive a frame.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> Result<()> {
        self.0
            .last_mut()
            .context("the virtual NIC has no queue")?
            .write_all(frame)
            .context("the virtual NIC takes no frame")
    }
}

/// Returns a TAP device as that of a virtual machine is, which goes with this file: it gives what the device is sent, frame by frame.
pub(crate) fn tap(name: &str) -> Result<File> {
    open(name, libc::IFF_TAP | libc::IFF_NO_PI)
}

/// Does the same with one that is a port of the bridge, as libvirt has it, behind which a machine has this address.
pub(crate) fn bridged_tap(name: &str, mac: &str) -> Result<File> {
    let tap = tap(name)?;
    topology::ip(&format!("link set {name} master br0\nlink set {name} up"))?;
    topology::tc(&format!("qdisc replace dev {name} root noqueue"))?;
    Netlink::open(None)?.forward(mac, Behind::Port(name))?;
    Ok(tap)
}

/// Makes a device of this kind.
fn open(name: &str, flags: i32) -> Result<File> {
    // A module of other kernels than ours.
    command::run("modprobe tun")?;
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("/dev/net/tun")?;
    // SAFETY: An `ifreq` is numbers and unions of numbers and pointers; zeros are a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        // CAST: ASCII.
        *to = from as libc::c_char;
    }
    // CAST: the flags are 16 bits.
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: The kernel reads the request, which outlives the call.
    unsafe { set_interface(file.as_raw_fd(), &raw const request) }.context("TUNSETIFF")?;
    Ok(file)
}

/// Returns a frame of datagrams of `bytes` each, all of which `payload` holds.
pub(crate) fn frame(payload: &[u8], bytes: u16) -> Result<Vec<u8>> {
    let SocketAddr::V4(to) = ADDRESS else {
        unreachable!("the address is of IPv4");
    };
    let mut frame = Vec::with_capacity(VIRTIO_HEADER_BYTES + 64 + payload.len());
    let checksum_start = (ETHERNET_BYTES + IPV4_BYTES) as u16;
    let headers_bytes = checksum_start + UdpHeader::LEN as u16;
    frame.extend([NEEDS_CHECKSUM, GSO_UDP_L4]);
    for number in [
        headers_bytes,
        bytes,
        checksum_start,
        UDP_CHECKSUM_OFFSET as u16,
    ] {
        frame.extend(number.to_ne_bytes());
    }
    PacketBuilder::ethernet2(PEER_MAC, MAC)
        .ipv4(PEER.octets(), to.ip().octets(), 64)
        .udp(to.port(), to.port())
        .write(&mut frame, payload)?;
    // Only the sum of the pseudo header: the rest is left to those who ask for it.
    let udp_bytes = (UdpHeader::LEN + payload.len()) as u16;
    let sum = Sum16BitWords::new()
        .add_4bytes(PEER.octets())
        .add_4bytes(to.ip().octets())
        .add_2bytes([0, IpNumber::UDP.0])
        .add_2bytes(udp_bytes.to_be_bytes());
    let at = VIRTIO_HEADER_BYTES + usize::from(checksum_start) + UDP_CHECKSUM_OFFSET;
    frame[at..at + 2].copy_from_slice(&(!sum.ones_complement()).to_ne_bytes());
    Ok(frame)
}
