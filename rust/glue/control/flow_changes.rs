// SPDX-License-Identifier: GPL-2.0

//! Notifications of flows that begin to be split, or stop: netlink's group `flows`.
//!
//! A source notes a change in its log and asks for the work below, which comes a moment later and takes the configuration's lock: so
//! no source ends meanwhile, and one reader at a time empties a log. A source that ends has its log emptied before. The log bounds
//! the notifications of a source for each time that the work comes, which is ten times a second at most.

use super::configuration::Configuration;
use super::device::DeviceState;
use crate::algo::counters::Counter;
use crate::algo::report::change_log::LOG_RECORDS;
use crate::algo::report::flow_report::FlowChange;
use crate::glue::ffi;
use crate::glue::packet::source::Source;
use core::net::IpAddr;

/// Sends what is in a source's log. Returns the number of notifications for which there was no memory. Process context, under the
/// configuration lock.
pub(super) fn tell(device: &DeviceState, source: &Source) -> u64 {
    // SAFETY: Under the configuration lock.
    let is_wanted = unsafe { ffi::mflow_changes_wanted() };
    let mut lost = 0;
    // The source may go on to note changes.
    let changes = (0..LOG_RECORDS).map_while(|_| source.board.take_change());
    for change in changes {
        if is_wanted {
            let is_sent = device.dev().with_name(|name| send(name, &change));
            lost += u64::from(!is_sent);
        }
    }
    lost
}

/// Sends a notification to all who listen. Returns false if there was no memory for it.
fn send(device: &str, change: &FlowChange) -> bool {
    let report = &change.report;
    let (reason, words) = (report.now.reason.name(), report.now.reason.words());
    let wire = report.name.wire;
    let ends = wire.map(|wire| [wire.source, wire.destination]);
    let [from_port, to_port] = ends.map_or([0; 2], |ends| ends.map(|end| end.port()));
    let ([from, to], address_bytes) = match ends {
        None => ([[0; 16]; 2], 0),
        // Both ends are of one family.
        Some(ends @ [from, _]) => (
            ends.map(|end| octets(end.ip())),
            if from.is_ipv4() { 4 } else { 16 },
        ),
    };
    // CAST: lengths of names and sentences, and of an address.
    let change = ffi::mflow_change {
        device: device.as_ptr().cast(),
        reason: reason.as_ptr().cast(),
        words: words.as_ptr().cast(),
        from: from.as_ptr().cast(),
        to: to.as_ptr().cast(),
        device_bytes: device.len() as u32,
        reason_bytes: reason.len() as u32,
        words_bytes: words.len() as u32,
        address_bytes,
        cpu: report.now.cpu,
        pps: report.rate.pps.unwrap_or(0),
        lost: change.lost,
        from_port,
        to_port,
        queue: report.name.rx_queue.unwrap_or(0),
        protocol: wire.map_or(0, |wire| wire.protocol),
        has_queue: report.name.rx_queue.is_some(),
        has_pps: report.rate.pps.is_some(),
        begins: change.is_begin(),
    };
    // SAFETY: Under the configuration lock; all that it points to lives as long as the call.
    unsafe { ffi::mflow_tell_change(&change) }
}

/// Returns the bytes of an address in the order of the wire. Those of IPv4 are the first four.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    }
}

impl Configuration {
    /// Counts notifications that were not sent.
    pub(super) fn count_lost(&mut self, lost: u64) {
        for _ in 0..lost {
            self.count_one(Counter::LostNotifications);
        }
    }
}

/// Sends what is in the logs of all sources. Process context, no locks held.
#[no_mangle]
unsafe extern "C" fn mflow_tell_changes() {
    let mut configuration = Configuration::lock();
    let mut lost = 0;
    configuration.for_each_source(|device, source| lost += tell(device, source));
    configuration.count_lost(lost);
}

ffi::check_export!(mflow_tell_changes);
