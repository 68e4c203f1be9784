// SPDX-License-Identifier: GPL-2.0

//! Hosts as their operators set them up, on the distribution's own kernel: what a newcomer has before the module comes.

use std::collections::BTreeSet;

use anyhow::Result;

use super::draw::{self, GuestKind};
use super::stock::NO_DEBIAN;
use super::vm::{run_each, GuestCases, PATIENCE, PATIENCE_FULL};
use super::{Ctx, Outcome};
use crate::kernel::{Flavor, Way};
use crate::tools;
use crate::vm::Nic;

/// The layer, its guest, and the part of the guest program that has the cases.
const HOSTS: &str = "hosts";

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    if tools::find("apt-cache").is_none() {
        let mut outcome = Outcome::default();
        outcome.skip(HOSTS, NO_DEBIAN);
        return Ok(outcome);
    }
    let options: &[&str] = if ctx.full { &["--full"] } else { &[] };
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    let mut takes: BTreeSet<String> = draw::listed(HOSTS, &options)?
        .into_iter()
        .map(|case| case.name)
        .collect();
    if ctx.is_default() {
        takes = draw::half_of_groups(&ctx.seed, takes);
    }
    let guest = GuestCases {
        guest: GuestKind {
            way: Way::Stock,
            ..draw::guest(HOSTS, Flavor::Vm, Nic::Virtio, None)
        },
        kernel: None,
        program: HOSTS,
        takes,
        options,
        patience: if ctx.full { PATIENCE_FULL } else { PATIENCE },
        stream_bytes: 0,
        seed: ctx.seed.clone(),
        build: ctx.build.clone(),
    };
    run_each(ctx, &[guest])
}
