// SPDX-License-Identifier: GPL-2.0

//! Carries out the load controller's decisions about stages (`algo/load/stage_plan.rs`). Process context, under the configuration
//! lock.
//!
//! A flow's stages change their CPUs only when none of its packets is in them, so all flows change at once: all stages end, as
//! for a knob, but sources and lanes stay. Then the new orders hold, and the stages begin again.

use super::configuration::Configuration;
use super::pipeline;
use super::sampling_work::SamplingWork;
use super::stop::STOP_MS;
use crate::algo::knobs::Mode;
use crate::algo::load::stage_plan::StageOrders;
use crate::algo::stage::Route;
use crate::glue::locks::synchronize;
use crate::glue::packet::source::Source;
use crate::glue::runtime;
use core::fmt;

/// All stages have to have run within so long before packets are kept back for them: what a CPU that is away has is not waited
/// for with all flows.
const READY_MS: u32 = 50;

impl Configuration {
    /// Returns the orders that are to hold for flows in stages.
    pub(super) fn wanted_orders(&self) -> StageOrders {
        self.sampling
            .as_ref()
            .map_or(StageOrders::FORCED, SamplingWork::stage_orders)
    }

    /// Sets what holds for stages that begin. Samples are not taken.
    pub(super) fn begin_orders(&self) {
        runtime::set_stage_orders(if SamplingWork::is_wanted(&self.knobs) {
            StageOrders::CALM
        } else {
            StageOrders::FORCED
        });
    }

    /// Returns the mode that these orders make of the knob's: where the NIC's core does GRO, it is `falcon-dev`.
    pub(super) fn effective_mode(&self, orders: StageOrders) -> Mode {
        match self.knobs.mode {
            Mode::FalconFunc if orders.gro_on_nic => Mode::FalconDev,
            mode => mode,
        }
    }

    /// Returns whether all stages run now, so that nothing has to wait for one for long.
    pub(super) fn stages_run(&self) -> bool {
        self.pass_stages(READY_MS)
    }

    /// Lets flows take other CPUs, or the ordinary path, with the sources that there are.
    pub(super) fn rearrange(&self, wanted: StageOrders) {
        let for_each = |f: &mut dyn FnMut(&Source)| {
            self.for_each_source(|_, source| {
                if source.hands_on() {
                    f(source);
                }
            });
        };
        if runtime::stage_orders().onward {
            pipeline::return_home(for_each, || self.empty_stages(STOP_MS), STOP_MS);
        }
        // What is kept back at home may not be overtaken.
        let onward = wanted.onward && pipeline::is_home_empty(for_each);
        runtime::set_stage_orders(StageOrders { onward, ..wanted });
        if onward {
            // A reader that sees the route sees the orders.
            synchronize();
            for_each(&mut |source| source.set_route(Route::Gathering));
            self.let_go();
        }
    }

    /// Writes what holds for stages: whether flows go through them, where GRO is, and which CPUs are loaded.
    pub(crate) fn write_orders(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        if !self.pipeline.is_running() {
            return Ok(());
        }
        let orders = runtime::stage_orders();
        let gro_on_nic = self.effective_mode(orders) == Mode::FalconDev;
        writeln!(to, "stages_onward {}", u32::from(orders.onward))?;
        writeln!(to, "gro_on_nic {}", u32::from(gro_on_nic))?;
        for (place, cpu) in self.pipeline.cpus.iter().enumerate() {
            let is_loaded = u32::from(orders.loaded) >> place & 1;
            writeln!(to, "stage_cpu{cpu}_loaded {is_loaded}")?;
        }
        Ok(())
    }
}
