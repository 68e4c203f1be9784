// SPDX-License-Identifier: GPL-2.0

//! HIKE in a guest: its programs against a model of each, and the kernel's segment routing as the peer.

use anyhow::Result;

use super::draw;
use super::vm::{run_each, GuestCases, PATIENCE, PATIENCE_FULL};
use super::{Ctx, Outcome};
use crate::kernel::Flavor;
use crate::vm::Nic;

/// The part of the guest program that has the cases.
const HIKE: &str = "hike";
/// Random frames of a full run; the default is the guest program's.
const FRAMES_FULL: &str = "1000000";
/// And changes under packets.
const CHANGES_FULL: &str = "10000";

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut options = Vec::new();
    if ctx.full {
        options.extend(["--frames", FRAMES_FULL, "--changes", CHANGES_FULL]);
    }
    if !ctx.is_default() {
        options.push("--whole");
    }
    let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
    let cases = draw::listed(HIKE, &options)?.into_iter();
    let guest = GuestCases {
        guest: draw::guest(HIKE, Flavor::Vm, Nic::Virtio, None),
        kernel: None,
        program: HIKE,
        options,
        takes: cases.map(|case| case.name).collect(),
        patience: if ctx.full { PATIENCE_FULL } else { PATIENCE },
        stream_bytes: 0,
        seed: ctx.seed.clone(),
        build: None,
    };
    run_each(ctx, &[guest])
}
