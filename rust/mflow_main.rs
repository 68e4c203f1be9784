// SPDX-License-Identifier: GPL-2.0

//! mflow: one flow on several CPUs, in order.
//!
//! Crate root of the module. The way of a packet: [`glue::stack::hooks`] (from the stack), [`algo::dispatcher`],
//! [`glue::lane`], the stack again, [`glue::stack::hooks`] (at the socket), [`algo::slot`], [`glue::merge`].

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
    _files: glue::files::Files,
    _hooks: glue::stack::hooks::Registration,
    _events: glue::control::Control,
    _pool: glue::pool::Pool,
}

impl kernel::Module for Mflow {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let pool = glue::pool::Pool::new()?;
        let events = glue::control::Control::new()?;
        let hooks = glue::stack::hooks::Registration::new()?;
        glue::files::apply_params()?;
        let files = glue::files::Files::new()?;
        pr_info!("loaded; knobs in /sys/kernel/debug/mflow\n");
        Ok(Self {
            _files: files,
            _hooks: hooks,
            _events: events,
            _pool: pool,
        })
    }
}
