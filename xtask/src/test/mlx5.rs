// SPDX-License-Identifier: GPL-2.0

//! The real driver of ConnectX cards on a model of one: first its own life, as it comes, then our cases with it.

use std::time::Duration;

use anyhow::{ensure, Result};

use super::vm::Layer;
use super::{fuzz, Ctx, Outcome};
use crate::kernel::Flavor;
use crate::setup::qemu;
use crate::vm::{self, Nic};

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same for `--full`, on a busy host.
const PATIENCE_FULL: Duration = Duration::from_secs(1_800);

/// What orders a flow, in its plainest form: with every kind of queue and every number of channels.
const CORE: &[&str] = &[
    "main",
    "lanes/4",
    "batch/1",
    "flows/3/one-socket",
    "tcp/main",
    "connectx/channels",
    "connectx/probe",
];

/// Cards with one kind of receive queue.
struct Kind {
    nic: Nic,
    driver: &'static str,
    /// Which cases of the driver's own.
    drives: fn(usize, &str) -> bool,
    runs: [Run; 2],
}

/// A run of our cases.
struct Run {
    name: &'static str,
    channels: u16,
    takes: fn(usize, &str) -> bool,
}

/// What is not of the core runs with one channel on one kind of queue, and with four on the other.
const CYCLIC: Kind = Kind {
    nic: Nic::Mlx5,
    driver: "mlx5-driver",
    drives: |_, _| true,
    runs: [
        Run {
            name: "mlx5-1",
            channels: 1,
            takes: |place, name| takes(name, place.is_multiple_of(2)),
        },
        Run {
            name: "mlx5-4",
            channels: 4,
            takes: |place, name| takes(name, !place.is_multiple_of(2)),
        },
    ],
};

const STRIDING: Kind = Kind {
    nic: Nic::Mlx5Striding,
    driver: "mlx5-striding-driver",
    // They wait for the kernel's watchdog, and have nothing to do with receive buffers.
    drives: |_, name| !matches!(name, "fault-lost-interrupt" | "fault-event-overrun"),
    runs: [
        Run {
            name: "mlx5-striding-1",
            channels: 1,
            takes: |place, name| takes(name, !place.is_multiple_of(2)),
        },
        Run {
            name: "mlx5-striding-4",
            channels: 4,
            takes: |place, name| takes(name, place.is_multiple_of(2)),
        },
    ],
};

/// What only the checking kernel can say is none of ours, nor how long the module waits for a CPU that is held.
fn is_ours(name: &str) -> bool {
    !matches!(name, "leaks" | "deadline/lane-held")
}

/// What these show is the same with any card, with or without `tcp/` in front; with `--full` they run all the same.
const ANY_CARD: &[&str] = &[
    "control/",
    "knobs/",
    "capture/host-vxlan0",
    "capture/host-br0",
    "capture/host-veth0",
    "capture/container",
    "devices/",
    "teardown/vxlan",
    "teardown/bridge",
    "teardown/veth",
    "teardown/container",
    "teardown/socket",
    "reader/",
    "readers/",
    "request/",
    "programs/",
    "half-close/",
    "reset",
    "close",
    "disconnect",
    "listener",
];

fn takes(name: &str, in_turn: bool) -> bool {
    let idea = name.strip_prefix("tcp/").unwrap_or(name);
    let says_something = !ANY_CARD.iter().any(|group| idea.starts_with(group));
    is_ours(name) && says_something && (in_turn || CORE.contains(&name))
}

/// Runs the layer.
pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if ctx.case.is_none() {
        outcome.record("mlx5: the table of layouts is the kernel's", layouts());
        outcome.add(fuzz::run(ctx)?);
    }
    if let Some(why) = qemu::obtain(&qemu::VFIO_USER)? {
        let least = qemu::VFIO_USER.least;
        outcome.skip(
            "mlx5: all cases in guests",
            format!("no QEMU {least} or newer: {why}; try: cargo xtask setup"),
        );
        return Ok(outcome);
    }
    for kind in [CYCLIC, STRIDING] {
        let layer = Layer {
            name: kind.driver,
            flavor: Flavor::Vm,
            nic: kind.nic,
            program: "driver",
            options: Vec::new(),
            takes: kind.drives,
            channels: None,
            patience: PATIENCE,
            stream_bytes: 0,
        };
        outcome.add(layer.run(ctx)?);
        for run in kind.runs {
            let layer = Layer {
                name: run.name,
                program: "cases",
                options: vec![if ctx.full { "--full" } else { "--brief" }, "--connectx"],
                takes: if ctx.full { |_, _| true } else { run.takes },
                channels: Some(run.channels),
                flavor: Flavor::Vm,
                nic: kind.nic,
                patience: if ctx.full { PATIENCE_FULL } else { PATIENCE },
                stream_bytes: 0,
            };
            outcome.add(layer.run(ctx)?);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_about_the_card_runs_with_both_kinds_of_queues_and_both_numbers_of_channels() {
        for place in 0..2 {
            let mut runs = Vec::new();
            for (kind, runs_of_kind) in [CYCLIC.runs, STRIDING.runs].into_iter().enumerate() {
                for run in runs_of_kind {
                    assert!(!(run.takes)(place, "leaks"));
                    assert!(!(run.takes)(place, "tcp/reader/poll"));
                    assert!((run.takes)(place, "main"));
                    if (run.takes)(place, "any") {
                        runs.push((kind, run.channels));
                    }
                }
            }
            assert!(
                runs == [(0, 1), (1, 4)] || runs == [(0, 4), (1, 1)],
                "{runs:?}"
            );
        }
    }
}
