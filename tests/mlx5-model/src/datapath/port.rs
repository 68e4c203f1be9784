// SPDX-License-Identifier: GPL-2.0

//! The port: link, frame sizes, addresses, and what has passed.

use crate::firmware::commands::Status;
use crate::firmware::field::{put, Field};
use crate::firmware::layout::{
    access_register_in, eth_2819_cntrs_grp_data_layout as sizes,
    eth_802_3_cntrs_grp_data_layout as frames, mac_address_layout, modify_nic_vport_context_in,
    modify_nic_vport_field_select, nic_vport_context, paos_reg, pmtu_reg, ppcnt_reg, ptys_reg,
    query_nic_vport_context_out, query_vport_counter_out, traffic_counter,
};
use crate::host::bus::{Bus, BusError};

mod register {
    pub(super) const PMTU: u64 = 0x5003;
    pub(super) const PTYS: u64 = 0x5004;
    pub(super) const PAOS: u64 = 0x5006;
    pub(super) const PFCC: u64 = 0x5007;
    pub(super) const PPCNT: u64 = 0x5008;
}

/// The length of a frame's check sequence, which the model leaves out.
const CHECK_BYTES: u64 = 4;
/// The largest frame, with its check sequence.
const MOST_MTU: u16 = 9978;
/// 25GBASE-CR.
const LINK_MODE: u64 = 1 << 27;

/// Frames and their bytes, with check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of frames.
    pub frames: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// One direction, by the kind of the destination address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To one.
    pub unicast: Count,
    /// To some.
    pub multicast: Count,
    /// To all.
    pub broadcast: Count,
}

/// The port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) up: bool,
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    pub(crate) too_long: u64,
    /// Received frames by size.
    by_size: [u64; 10],
    mac: [u8; 6],
    /// The longest frame, with check sequence.
    mtu: u16,
    vport_mtu: u16,
    promiscuous: u64,
}

/// Upper limits of the sizes that are counted apart, with check sequence.
const SIZES: [(u64, Field); 10] = [
    (64, sizes::ETHER_STATS_PKTS64OCTETS_HIGH),
    (127, sizes::ETHER_STATS_PKTS65TO127OCTETS_HIGH),
    (255, sizes::ETHER_STATS_PKTS128TO255OCTETS_HIGH),
    (511, sizes::ETHER_STATS_PKTS256TO511OCTETS_HIGH),
    (1023, sizes::ETHER_STATS_PKTS512TO1023OCTETS_HIGH),
    (1518, sizes::ETHER_STATS_PKTS1024TO1518OCTETS_HIGH),
    (2047, sizes::ETHER_STATS_PKTS1519TO2047OCTETS_HIGH),
    (4095, sizes::ETHER_STATS_PKTS2048TO4095OCTETS_HIGH),
    (8191, sizes::ETHER_STATS_PKTS4096TO8191OCTETS_HIGH),
    (10239, sizes::ETHER_STATS_PKTS8192TO10239OCTETS_HIGH),
];

impl Traffic {
    fn count(&mut self, frame: &[u8]) {
        let count = match frame.first() {
            _ if frame.starts_with(&[0xff; 6]) => &mut self.broadcast,
            Some(byte) if byte & 1 == 1 => &mut self.multicast,
            _ => &mut self.unicast,
        };
        count.frames += 1;
        count.bytes += frame.len() as u64 + CHECK_BYTES;
    }

    /// Returns all of it.
    pub fn total(&self) -> Count {
        let all = [self.unicast, self.multicast, self.broadcast];
        Count {
            frames: all.iter().map(|count| count.frames).sum(),
            bytes: all.iter().map(|count| count.bytes).sum(),
        }
    }
}

impl Port {
    pub(crate) fn new(mac: [u8; 6]) -> Self {
        Self {
            up: true,
            sent: Traffic::default(),
            received: Traffic::default(),
            too_long: 0,
            by_size: [0; 10],
            mac,
            mtu: 1522,
            vport_mtu: 1522,
            promiscuous: 0,
        }
    }

    pub(crate) fn count_received(&mut self, frame: &[u8]) {
        self.received.count(frame);
        let bytes = frame.len() as u64 + CHECK_BYTES;
        let index = SIZES
            .iter()
            .position(|(limit, _)| bytes <= *limit)
            .unwrap_or(SIZES.len() - 1);
        self.by_size[index] += 1;
    }

    /// Returns whether a frame is within the longest that the driver has allowed.
    pub(crate) fn takes(&self, frame: &[u8]) -> bool {
        frame.len() as u64 + CHECK_BYTES <= u64::from(self.mtu)
    }

    /// Carries out ACCESS_REG.
    pub(crate) fn access(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
        let data = access_register_in::REGISTER_DATA.of(input).to_vec();
        let reads = access_register_in::OP_MOD.is_set(input);
        // What is not set below comes back as it was sent.
        let out = access_register_in::REGISTER_DATA.of_mut(output);
        let bytes = data.len().min(out.len());
        out[..bytes].copy_from_slice(&data[..bytes]);
        match access_register_in::REGISTER_ID.get(input) {
            register::PMTU => {
                if !reads {
                    let mtu = pmtu_reg::ADMIN_MTU.get16(&data);
                    if mtu > MOST_MTU {
                        return Err(Status::BadParameter);
                    }
                    self.mtu = mtu;
                }
                pmtu_reg::MAX_MTU.set(out, u64::from(MOST_MTU));
                pmtu_reg::ADMIN_MTU.set(out, u64::from(self.mtu));
                pmtu_reg::OPER_MTU.set(out, u64::from(self.mtu));
            }
            register::PTYS => {
                for field in [
                    ptys_reg::ETH_PROTO_CAPABILITY,
                    ptys_reg::ETH_PROTO_ADMIN,
                    ptys_reg::ETH_PROTO_OPER,
                ] {
                    field.set(out, LINK_MODE);
                }
            }
            register::PAOS => {
                let state = if self.up { 1 } else { 2 };
                paos_reg::ADMIN_STATUS.set(out, state);
                paos_reg::OPER_STATUS.set(out, state);
            }
            // No pause frames, whatever is asked for.
            register::PFCC => out.fill(0),
            register::PPCNT => self.counters(
                ppcnt_reg::GRP.get(&data),
                ppcnt_reg::COUNTER_SET.of_mut(out),
            ),
            _ => return Err(Status::BadParameter),
        }
        Ok(())
    }

    fn counters(&self, group: u64, out: &mut [u8]) {
        let mut set = |field: Field, value: u64| put(out, field.byte(), &value.to_be_bytes());
        match group {
            0 => {
                let (sent, received) = (self.sent.total(), self.received.total());
                set(frames::A_FRAMES_TRANSMITTED_OK_HIGH, sent.frames);
                set(frames::A_OCTETS_TRANSMITTED_OK_HIGH, sent.bytes);
                set(frames::A_FRAMES_RECEIVED_OK_HIGH, received.frames);
                set(frames::A_OCTETS_RECEIVED_OK_HIGH, received.bytes);
                set(
                    frames::A_MULTICAST_FRAMES_XMITTED_OK_HIGH,
                    self.sent.multicast.frames,
                );
                set(
                    frames::A_BROADCAST_FRAMES_XMITTED_OK_HIGH,
                    self.sent.broadcast.frames,
                );
                set(
                    frames::A_MULTICAST_FRAMES_RECEIVED_OK_HIGH,
                    self.received.multicast.frames,
                );
                set(
                    frames::A_BROADCAST_FRAMES_RECEIVED_OK_HIGH,
                    self.received.broadcast.frames,
                );
                set(frames::A_FRAME_TOO_LONG_ERRORS_HIGH, self.too_long);
            }
            2 => {
                for ((_, field), count) in SIZES.iter().zip(self.by_size) {
                    set(*field, count);
                }
            }
            // Groups about priorities, errors of the line and the like: nothing of that happens here.
            _ => {}
        }
    }

    /// Carries out QUERY_VPORT_COUNTER.
    pub(crate) fn vport_counters(&self, output: &mut [u8]) {
        use query_vport_counter_out as out;
        for (field, count) in [
            (out::RECEIVED_ETH_UNICAST, self.received.unicast),
            (out::RECEIVED_ETH_MULTICAST, self.received.multicast),
            (out::RECEIVED_ETH_BROADCAST, self.received.broadcast),
            (out::TRANSMITTED_ETH_UNICAST, self.sent.unicast),
            (out::TRANSMITTED_ETH_MULTICAST, self.sent.multicast),
            (out::TRANSMITTED_ETH_BROADCAST, self.sent.broadcast),
        ] {
            let place = field.of_mut(output);
            traffic_counter::PACKETS.set(place, count.frames);
            traffic_counter::OCTETS.set(place, count.bytes);
        }
    }

    /// Carries out QUERY_NIC_VPORT_CONTEXT.
    pub(crate) fn vport_context(&self, output: &mut [u8]) {
        let context = query_nic_vport_context_out::NIC_VPORT_CONTEXT.of_mut(output);
        nic_vport_context::MTU.set(context, u64::from(self.vport_mtu));
        nic_vport_context::PROMISC_ALL.set(context, self.promiscuous);
        let address = nic_vport_context::PERMANENT_ADDRESS.of_mut(context);
        put(
            address,
            mac_address_layout::MAC_ADDR_47_32.byte(),
            &self.mac,
        );
    }

    /// Carries out MODIFY_NIC_VPORT_CONTEXT.
    pub(crate) fn set_vport_context(&mut self, input: &[u8]) {
        use modify_nic_vport_field_select as select;
        let selected = modify_nic_vport_context_in::FIELD_SELECT.of(input);
        let context = modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of(input);
        if select::MTU.is_set(selected) {
            self.vport_mtu = nic_vport_context::MTU.get16(context);
        }
        if select::PROMISC.is_set(selected) {
            self.promiscuous = nic_vport_context::PROMISC_ALL.get(context);
        }
        if select::PERMANENT_ADDRESS.is_set(selected) {
            let address = nic_vport_context::PERMANENT_ADDRESS.of(context);
            let at = mac_address_layout::MAC_ADDR_47_32.byte();
            if let Some(mac) = address
                .get(at..at + 6)
                .and_then(|bytes| bytes.try_into().ok())
            {
                self.mac = mac;
            }
        }
    }
}

/// A bus that counts frames.
pub(crate) struct Counted<'a> {
    bus: &'a mut dyn Bus,
    port: &'a mut Port,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(bus: &'a mut dyn Bus, port: &'a mut Port) -> Self {
        Self { bus, port }
    }
}

impl Bus for Counted<'_> {
    fn dma_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.bus.dma_read(address, into)
    }

    fn dma_write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.bus.dma_write(address, from)
    }

    fn raise_msix(&mut self, vector: u16) {
        self.bus.raise_msix(vector);
    }

    fn now_ns(&mut self) -> u64 {
        self.bus.now_ns()
    }

    fn tx_frame(&mut self, frame: &[u8]) {
        // A link that is down takes frames and loses them.
        if self.port.up {
            self.port.sent.count(frame);
            self.bus.tx_frame(frame);
        }
    }
}
