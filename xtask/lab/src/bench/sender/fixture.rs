// SPDX-License-Identifier: GPL-2.0

//! The other end of a connection, for tests: a server with the same TCP/IP stack. What is around its packets is read and written
//! by hand, so that it is checked.

use std::collections::VecDeque;

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use mflow_protocol::bench::{Connection, PORT};
use mflow_protocol::network;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::endpoint::byte;

/// The NIC of [`order`].
const NIC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 3];
const CLIENT_HOST: [u8; 6] = [2, 0, 0, 0, 2, 1];
const CONTAINER: [u8; 6] = [2, 0, 0, 0, 1, 2];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 1, 1];
const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

pub(super) fn order(overlay: bool, segments: usize) -> Connection {
    Connection {
        nic_mac: "52:54:00:00:00:03".to_owned(),
        overlay,
        segments,
    }
}

pub(super) struct Server {
    overlay: bool,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    packets: Packets,
    /// The size of the packet of a full segment.
    mtu: usize,
    /// Bytes read, all of which were as they must be.
    pub(super) read: usize,
    /// Segments with data, and those of them that were not full or asked to be delivered at once.
    pub(super) segments: usize,
    pub(super) odd_segments: usize,
}

struct Packets {
    arrived: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
    mtu: usize,
}

impl Server {
    pub(super) fn new(overlay: bool, window_bytes: usize, now: Instant) -> Self {
        let (address, mtu) = if overlay {
            (network::CONTAINER, network::OVERLAY_MTU)
        } else {
            (network::SERVER_HOST, network::WIRE_MTU)
        };
        let mut packets = Packets {
            arrived: VecDeque::new(),
            leaving: VecDeque::new(),
            mtu,
        };
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut packets, now);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::Ipv4(address), 24);
            addresses.push(own).expect("room");
        });
        let mut socket = Socket::new(
            SocketBuffer::new(vec![0; window_bytes]),
            SocketBuffer::new(vec![0; 1]),
        );
        socket.set_tsval_generator(Some(|| 1));
        socket.listen(PORT).expect("a port");
        let mut sockets = SocketSet::new(Vec::new());
        Self {
            overlay,
            interface,
            socket: sockets.add(socket),
            sockets,
            packets,
            mtu,
            read: 0,
            segments: 0,
            odd_segments: 0,
        }
    }

    /// Takes a frame off the wire.
    pub(super) fn receive(&mut self, frame: &[u8]) {
        assert!(frame.len() <= 14 + network::WIRE_MTU);
        assert_eq!(frame[..12], [NIC, CLIENT_HOST].concat());
        let packet = if self.overlay {
            let payload = outer_payload(frame);
            assert_eq!(payload[..8], VXLAN);
            assert_eq!(payload[8..20], [CONTAINER, CLIENT].concat());
            assert_eq!(payload[20..22], [8, 0]);
            &payload[22..]
        } else {
            assert_eq!(frame[12..14], [8, 0]);
            &frame[14..]
        };
        self.look_at(packet);
        self.packets.arrived.push_back(packet.to_vec());
    }

    /// Checks the sums of a packet, and counts it.
    fn look_at(&mut self, packet: &[u8]) {
        let sliced = SlicedPacket::from_ip(packet).expect("good headers");
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (sliced.net, sliced.transport)
        else {
            panic!("no TCP over IPv4");
        };
        let ip = ip.header().to_header();
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let sum = tcp.to_header().calc_checksum_ipv4(&ip, tcp.payload());
        assert_eq!(sum.expect("short enough"), tcp.checksum());
        if !tcp.payload().is_empty() {
            self.segments += 1;
            self.odd_segments += usize::from(packet.len() < self.mtu || tcp.psh());
        }
    }

    /// Does what is to be done; the application reads all there is, bytes of a ring of this length. Returns frames.
    pub(super) fn run(&mut self, ring_bytes: usize, now: Instant) -> Vec<Vec<u8>> {
        self.interface
            .poll(now, &mut self.packets, &mut self.sockets);
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while socket.can_recv() {
            let read = socket.recv(|bytes| {
                let places = self.read..self.read + bytes.len();
                let wanted = places.map(|place| byte(place % ring_bytes));
                assert!(wanted.eq(bytes.iter().copied()), "from {}", self.read);
                (bytes.len(), bytes.len())
            });
            self.read += read.expect("data");
        }
        if socket.state() == State::CloseWait {
            socket.close();
        }
        self.interface
            .poll(now, &mut self.packets, &mut self.sockets);
        let packets = std::mem::take(&mut self.packets.leaving);
        packets.iter().map(|packet| self.wrapped(packet)).collect()
    }

    /// Hangs up without a reason.
    pub(super) fn abort(&mut self) {
        self.sockets.get_mut::<Socket<'_>>(self.socket).abort();
    }

    pub(super) fn state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.socket).state()
    }

    fn wrapped(&self, packet: &[u8]) -> Vec<u8> {
        if !self.overlay {
            return [&CLIENT_HOST[..], &NIC, &[8, 0], packet].concat();
        }
        let payload = [&VXLAN[..], &CLIENT, &CONTAINER, &[8, 0], packet].concat();
        let (from, to) = (network::SERVER_HOST.octets(), network::CLIENT_HOST.octets());
        let head = PacketBuilder::ethernet2(NIC, CLIENT_HOST).ipv4(from, to, 64);
        let mut frame = Vec::new();
        head.udp(40_000, network::VXLAN_PORT)
            .write(&mut frame, &payload)
            .expect("a frame");
        frame
    }
}

/// Returns what the overlay's packet carries, when its addresses and sums are good.
fn outer_payload(frame: &[u8]) -> &[u8] {
    let sliced = SlicedPacket::from_ethernet(frame).expect("good headers");
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (sliced.net, sliced.transport)
    else {
        panic!("no UDP over IPv4");
    };
    let ip = ip.header().to_header();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!(ip.source, network::CLIENT_HOST.octets());
    assert_eq!(ip.destination, network::SERVER_HOST.octets());
    assert_eq!(udp.destination_port(), network::VXLAN_PORT);
    let sum = udp.to_header().calc_checksum_ipv4(&ip, udp.payload());
    assert_eq!(sum.expect("short enough"), udp.checksum());
    udp.payload()
}

struct Arrived(Vec<u8>);
struct Slot<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Packets {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Slot<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Arrived, Slot<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Slot(&mut self.leaving)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Slot<'_>> {
        Some(Slot(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Slot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let mut packet = vec![0; bytes];
        let result = fill(&mut packet);
        self.0.push_back(packet);
        result
    }
}
