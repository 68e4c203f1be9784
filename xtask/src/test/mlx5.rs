// SPDX-License-Identifier: GPL-2.0

//! The real driver of ConnectX cards on a model of one: first its own life, as it comes, then our cases with it.

mod fuzz;

use std::collections::BTreeSet;
use std::thread;

use anyhow::{ensure, Result};

use super::guests::draw::{self, GUESTS};
use super::vm::{run_each, GuestCases, PATIENCE};
use super::{stock, Ctx, Outcome};
use crate::kernel::{Flavor, Way};
use crate::setup::qemu;
use crate::tools;
use crate::vm::{self, Nic};

/// They have nothing to do with receive buffers, and some wait for the kernel's watchdog: one kind of queue is enough.
const CYCLIC_ONLY: &str = "fault-lost-interrupt fault-event-overrun fault-events-twice fault-send-error fault-health fault-fatal \
                           fault-link fault-stall";

/// The part of each kind of the driver's own cases that the default run draws; tidy holds the cases' README against this.
pub(super) const OF_DRIVER: draw::Part = draw::Part::Eighth;

/// The cases that the default run leaves out.
const FULL_ONLY: &str = "cycle-20";

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    // At the same time, so that the guests ask for their places early: they are many, and would come last of all.
    let (on_host, in_guests) = thread::scope(|scope| {
        let in_guests = scope.spawn(|| run_guests(ctx));
        (run_on_host(ctx), tools::join(in_guests))
    });
    let mut outcome = on_host?;
    outcome.add(in_guests?);
    Ok(outcome)
}

fn run_on_host(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if ctx.case.is_none() {
        outcome.record("mlx5: the table of layouts is the kernel's", layouts());
        outcome.add(fuzz::run(ctx)?);
    }
    Ok(outcome)
}

fn run_guests(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if let Some(why) = qemu::obtain(&qemu::VFIO_USER)? {
        let least = qemu::VFIO_USER.least;
        outcome.skip(
            "mlx5: all cases in guests",
            format!("no QEMU {least} or newer: {why}; try: cargo xtask setup"),
        );
        return Ok(outcome);
    }
    let mut guests = Vec::new();
    for (name, nic) in [
        ("mlx5-driver", Nic::Mlx5),
        ("mlx5-striding-driver", Nic::Mlx5Striding),
    ] {
        let mut cases: BTreeSet<String> = draw::listed("driver", &[""; 0])?
            .into_iter()
            .map(|case| case.name)
            .collect();
        if ctx.is_default() {
            // Its life in a word each, and faults.
            cases = draw::part_of_each(&ctx.seed, cases, OF_DRIVER, |name| {
                name.split('-').next().unwrap_or_default().to_owned()
            });
        }
        let takes = |name: &String| {
            let queues = if draw::has_word(CYCLIC_ONLY, name) {
                nic == Nic::Mlx5
            } else {
                !ctx.is_default() || draw::is_odd(&ctx.seed, name) == (nic == Nic::Mlx5)
            };
            queues && (ctx.full || ctx.case.is_some() || !draw::has_word(FULL_ONLY, name))
        };
        let guest = draw::guest(name, Flavor::Vm, nic, None);
        let takes = cases.into_iter().filter(takes).collect();
        guests.push(GuestCases {
            patience: PATIENCE,
            ..GuestCases::new(ctx, guest, "driver", Vec::new(), takes)
        });
    }
    for guest in GUESTS.iter().filter(|guest| guest.nic.is_connectx()) {
        if guest.way == Way::Stock && tools::find("apt-cache").is_none() {
            outcome.skip(guest.name, stock::NO_DEBIAN);
            continue;
        }
        guests.push(GuestCases::of(ctx, guest)?);
    }
    outcome.add(run_each(ctx, &guests)?);
    Ok(outcome)
}

fn layouts() -> Result<()> {
    let [kernels, kept] = vm::layouts()?;
    ensure!(
        kernels == kept,
        "tests/mlx5-model/layouts/linux-6.12.txt is not what the kernel's header says; \
         try: cargo run -p mlx5-model -- layouts HEADER > tests/mlx5-model/layouts/linux-6.12.txt"
    );
    Ok(())
}
