// SPDX-License-Identifier: GPL-2.0

//! The file `flows`, from the boards of all sources.
//!
//! A reader stops no packet: it holds the configuration's lock, without which no source ends, and reads what each source has
//! reported of its flows. So it sees a source that is idle as its last packets left it, and one that ends either before or not.

use crate::algo::report::flow_list::FlowList;
use crate::algo::report::flow_report::FlowLine;
use crate::algo::report::reason::Reason;
use crate::algo::text::Text;
use crate::glue::control::configuration::Configuration;
use crate::glue::packet::pool::Slots;
use crate::glue::runtime;

pub(super) fn write_flows(configuration: &Configuration, slots: &Slots, to: &mut Text<'_>) {
    let mut list = FlowList::new(to);
    let has_devices = configuration.devices.iter().flatten().next().is_some();
    if let Some(reason) = Reason::of_all(&configuration.knobs, has_devices) {
        return list.none_is_split(reason);
    }
    configuration.for_each_source(|device, source| {
        device.dev().with_name(|name| {
            for found in source.board.read() {
                list.add(&found, |report| FlowLine {
                    report,
                    device: name,
                    lane_cpus: source.cpus_of(report.now.lanes),
                    parked_pkts: slots.slot(usize::from(report.now.slot)).parked_pkts(),
                    now_ms: runtime::now_ms(),
                });
            }
        });
    });
    list.end();
}
