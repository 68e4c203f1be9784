// SPDX-License-Identifier: GPL-2.0

//! mflow: one flow on several CPUs, in order.
//!
//! Crate root of the module. The way of a packet: [`glue::handlers`] (from the stack), [`algo::flow::dispatcher`],
//! [`glue::packet::lane`], the stack again, [`glue::handlers`] (at the socket), [`algo::merge::slot`], [`glue::packet::merge_sink`].

pub mod algo;
pub mod glue;

use kernel::prelude::*;

module! {
    type: Mflow,
    name: "mflow",
    author: "The mflow authors",
    description: "Splits elephant flows over several CPUs and keeps their order",
    license: "GPL",
}

struct Mflow {
    // Dropped in this order: no more knobs, then no more packets, then what packets need.
    #[cfg(all(CONFIG_MFLOW_JOIN_TRIAL, not(mflow_stock)))]
    _trial: glue::trial::Trial,
    _netlink: glue::operator::netlink::Netlink,
    _files: Option<glue::operator::files::Files>,
    _packet_path: glue::handlers::PacketPath,
    _events: glue::control::switch::Control,
    _merge_point: glue::packet::merge_sink::MergePoint,
}

impl kernel::Module for Mflow {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let merge_point = glue::packet::merge_sink::MergePoint::new();
        let events = glue::control::switch::Control::new()?;
        let packet_path = glue::handlers::PacketPath::new()?;
        glue::operator::files::apply_params()?;
        let files = glue::operator::files::Files::new()?;
        let netlink = glue::operator::netlink::Netlink::new()?;
        match files {
            Some(_) => pr_info!("loaded; knobs in /sys/kernel/debug/mflow\n"),
            None => pr_info!("loaded; the kernel was started without debugfs, so knobs are module parameters, and netlink's (command mflow)\n"),
        }
        Ok(Self {
            #[cfg(all(CONFIG_MFLOW_JOIN_TRIAL, not(mflow_stock)))]
            _trial: glue::trial::Trial::new(),
            _netlink: netlink,
            _files: files,
            _packet_path: packet_path,
            _events: events,
            _merge_point: merge_point,
        })
    }
}
