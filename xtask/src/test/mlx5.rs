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

/// The short list is that of the checking kernel, which alone can look for lost memory.
const SHORT_WITHOUT: &[&str] = &["leaks"];
/// Three flows on channels of their own begin with the same lane, and are too short there to reach all lanes.
const SHORT_WITHOUT_AT_MANY: &[&str] = &["leaks", "flows/3/one-socket"];

/// Cards with one kind of receive queue.
struct Kind {
    nic: Nic,
    driver: &'static str,
    /// Names of the runs of our cases, and how many channels the cards have in each.
    cases: [(&'static str, u16); 2],
}

const CYCLIC: Kind = Kind {
    nic: Nic::Mlx5,
    driver: "mlx5-driver",
    cases: [("mlx5-1", 1), ("mlx5-4", 4)],
};

const STRIDING: Kind = Kind {
    nic: Nic::Mlx5Striding,
    driver: "mlx5-striding-driver",
    cases: [("mlx5-striding-1", 1), ("mlx5-striding-4", 4)],
};

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
    for kind in [CYCLIC, STRIDING] {
        let mut layer = Layer {
            name: kind.driver,
            flavor: Flavor::Vm,
            nic: kind.nic,
            program: "driver",
            mode: ctx.full.then_some("--full"),
            left_out: &[],
            channels: None,
            patience: PATIENCE,
            stream_bytes: 0,
        };
        outcome.add(layer.run()?);
        layer.program = "cases";
        for (name, channels) in kind.cases {
            layer.name = name;
            layer.channels = Some(channels);
            layer.mode = (!ctx.full).then_some("--short");
            layer.left_out = match channels {
                _ if ctx.full => &[],
                1 => SHORT_WITHOUT,
                _ => SHORT_WITHOUT_AT_MANY,
            };
            outcome.add(layer.run()?);
        }
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
