// SPDX-License-Identifier: GPL-2.0

//! The real driver of ConnectX cards on a model of one: first its own life, as it comes, then our cases with it.

use std::time::Duration;

use anyhow::{ensure, Result};

use super::vm::Layer;
use super::{Ctx, Outcome};
use crate::kernel::Flavor;
use crate::setup::qemu;
use crate::vm::{self, Nic};

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the layer.
pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.record("mlx5: the table of layouts is the kernel's", layouts());
    if let Some(why) = qemu::obtain(&qemu::VFIO_USER)? {
        let least = qemu::VFIO_USER.least;
        outcome.skip(
            "mlx5: all cases in guests",
            format!("no QEMU {least} or newer: {why}; try: cargo xtask setup"),
        );
        return Ok(outcome);
    }
    for (nic, driver, cases) in [
        (Nic::Mlx5, "mlx5-driver", "mlx5"),
        (Nic::Mlx5Striding, "mlx5-striding-driver", "mlx5-striding"),
    ] {
        let layer = Layer {
            name: driver,
            flavor: Flavor::Vm,
            nic,
            program: "driver",
            mode: ctx.full.then_some("--full"),
            patience: PATIENCE,
        };
        outcome.add(layer.run()?);
        let layer = Layer {
            name: cases,
            program: "cases",
            mode: (!ctx.full).then_some("--short"),
            ..layer
        };
        outcome.add(layer.run()?);
    }
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
