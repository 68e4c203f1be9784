// SPDX-License-Identifier: GPL-2.0

//! The module on the distribution's own kernel, as shipped: it is built with the package of the headers, and boots in a guest.

use std::path::Path;

use anyhow::{ensure, Result};

use super::draw;
use super::vm::{run_each, GuestCases, CASES, PATIENCE, PATIENCE_FULL};
use super::{Ctx, Outcome};
use crate::kernel::distribution::Distribution;
use crate::kernel::Flavor;
use crate::module;
use crate::tools;
use crate::vm::Nic;

/// The layer, and its guest.
const STOCK: &str = "stock";

/// What is shown there, by how the names of cases begin: what guarantees order, what takes the way's own parts apart, and what
/// comes and goes. What the way cannot do is in `rust/DESIGN.md`.
const SHOWS: &str = "main tcp/main lanes/4 batch/1 batch/1024 size/8192 family/6-in-4/4000 family/4-in-6/4000 family/6-in-6/16 \
                     tcp/family/6-in-6 flows/3/one-socket tcp/flows/one-outer \
                     hints/hike hints/metadata";

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if tools::find("apt-cache").is_none() {
        outcome.skip(STOCK, "this is no Debian system, whose kernel it is about");
        return Ok(outcome);
    }
    let (kernel, module) = module::in_distribution()?;
    outcome.record(
        "stock: the module is for that kernel",
        fits(&kernel, &module),
    );
    let options: Vec<String> = if ctx.full {
        Vec::new()
    } else {
        vec!["--brief".to_owned()]
    };
    let is_shown = |name: &str| draw::has_word(SHOWS, name);
    let cases = draw::listed(CASES, &options)?.into_iter();
    let guest = GuestCases {
        guest: draw::guest(STOCK, Flavor::Vm, Nic::Virtio, None),
        kernel: Some(kernel),
        program: CASES,
        takes: cases
            .map(|case| case.name)
            .filter(|name| is_shown(name))
            .collect(),
        options,
        patience: if ctx.full { PATIENCE_FULL } else { PATIENCE },
        stream_bytes: 0,
        seed: ctx.seed.clone(),
        build: None,
    };
    outcome.add(run_each(ctx, &[guest])?);
    Ok(outcome)
}

/// Fails unless the module says so of itself.
fn fits(kernel: &Distribution, module: &Path) -> Result<()> {
    let mut modinfo = tools::command("modinfo");
    let magic = tools::output(modinfo.args(["--field", "vermagic"]).arg(module))?;
    ensure!(
        magic.split(' ').next() == Some(kernel.release.as_str()),
        "{} is made for `{}`, the kernel is {}",
        module.display(),
        magic.trim(),
        kernel.release
    );
    Ok(())
}
