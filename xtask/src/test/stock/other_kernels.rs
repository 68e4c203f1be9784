// SPDX-License-Identifier: GPL-2.0

//! The kernels that other releases of Debian ship: built with their headers, and booted. By default that shows that the module
//! builds, loads, keeps the order and joins frames there; with `--full` and with `--kernel` DKMS builds it, and all cases run that run on the
//! distribution's own.

use anyhow::Result;

use super::{guest_cases, installed};
use crate::dkms::install;
use crate::kernel::distribution::{self, Distribution, Shipped, OTHERS};
use crate::module;
use crate::test::vm::{run_each, GuestCases};
use crate::test::{Ctx, Outcome};

/// The cases that run on each of them by default.
const SHOWS: &str = "main join/stream";

/// Runs the layer on the others than this one: on all of them, or on the one that was asked for.
pub(super) fn run(ctx: &Ctx, own: Option<&Distribution>, outcome: &mut Outcome) -> Result<()> {
    // To work on a case, one kernel is enough.
    if ctx.kernel.is_none() && ctx.case.is_some() && !ctx.full {
        return Ok(());
    }
    let mut guests = Vec::new();
    for shipped in OTHERS {
        if ctx.kernel.as_ref().is_none_or(|name| name == shipped.name) {
            guests.extend(guest(ctx, shipped, own, outcome)?);
        }
    }
    outcome.add(run_each(ctx, &guests)?);
    Ok(())
}

/// Returns the cases on one of them, with the module among its own, if that could be built.
fn guest(
    ctx: &Ctx,
    shipped: &Shipped,
    own: Option<&Distribution>,
    outcome: &mut Outcome,
) -> Result<Option<GuestCases>> {
    let all = format!("{}: all cases", shipped.name);
    let Some(kernel) = reach(shipped, all, outcome)? else {
        return Ok(None);
    };
    if own.is_some_and(|own| own.release == kernel.release) {
        return Ok(None);
    }
    let whole = ctx.full || ctx.kernel.is_some();
    let refusal = install::refusal();
    if let (Some(why), true) = (refusal, whole) {
        outcome.skip(format!("{}: the package", shipped.name), why);
    }
    let place = ctx.places.take();
    let (what, built) = if whole && refusal.is_none() {
        ("the package is installed, and removed", installed(kernel))
    } else {
        ("the module is built", module::beside(kernel))
    };
    outcome.held += place.held();
    drop(place);
    let kernel = built.as_ref().ok().cloned();
    outcome.record(&format!("{}: {what}", shipped.name), built);
    let names = (!whole).then_some(SHOWS);
    let cases = kernel.map(|kernel| guest_cases(ctx, shipped.name, kernel, names));
    cases.transpose()
}

/// Returns one of them, if it can be had here and modules be built for it; else skips what is about it.
pub(in crate::test) fn reach(
    shipped: &Shipped,
    about: String,
    outcome: &mut Outcome,
) -> Result<Option<Distribution>> {
    let why = match (distribution::reach(shipped)?, install::refusal()) {
        // Its compilers are laid over /usr.
        (Ok(kernel), Some(why)) if kernel.compilers.is_some() => why.to_owned(),
        (Ok(kernel), _) => return Ok(Some(kernel)),
        (Err(why), _) => why,
    };
    outcome.skip(about, why);
    Ok(None)
}
