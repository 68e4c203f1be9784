// SPDX-License-Identifier: GPL-2.0

//! The events of flows that begin to be split, or stop, for those who trace; and what C gets to know of such a change.

use crate::algo::report::flow_report::{FlowChange, FlowReport};
use crate::glue::ffi;
use crate::glue::stack::device::LaneDevice;
use core::net::IpAddr;

/// Tells those who trace of a flow that has begun to be split with this report, or no longer is.
///
/// # Safety: the device is there.
#[cold]
pub(super) unsafe fn tell(device: LaneDevice, report: FlowReport) {
    // SAFETY: May be called in any context.
    if !unsafe { ffi::mflow_flows_traced() } {
        return;
    }
    let slot = report.now.slot;
    let change = FlowChange { report, lost: 0 };
    // The event has the device's name by itself.
    as_c("", &change, |change| {
        // SAFETY: By the contract.
        unsafe { device.trace_flow(change, slot) }
    });
}

/// Calls `f` with a change as C knows it, which is valid as long as the call.
pub(crate) fn as_c<R>(
    device: &str,
    change: &FlowChange,
    f: impl FnOnce(&ffi::mflow_change) -> R,
) -> R {
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
    f(&ffi::mflow_change {
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
    })
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
