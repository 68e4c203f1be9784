// SPDX-License-Identifier: GPL-2.0

//! The module on the distribution's own kernel, as shipped. DKMS builds it from the package that a user installs, with the
//! distribution's kernel headers. A guest then boots with exactly this module. The layer also runs on the kernels of other
//! releases of Debian.

pub(super) mod other_kernels;

use std::sync::OnceLock;

use anyhow::Result;

use super::guests::draw;
use super::module::is_made_for;
use super::vm::{run_each, GuestCases, CASES};
use super::{Ctx, Outcome};
use crate::debian;
use crate::dkms::{self, fresh, install};
use crate::kernel::distribution::{self, Distribution};
use crate::kernel::modules;
use crate::kernel::Flavor;
use crate::module::{self, objtool};
use crate::tools;
use crate::vm::Nic;

/// The layer, and its guest.
const STOCK: &str = "stock";

/// The cases that run there by default: about what guarantees order, about the module's parts for this way, and about what comes
/// and goes.
const SHOWS: &str = "main tcp/main lanes/4 batch/1 batch/1024 size/8192 family/6-in-4/4000 family/4-in-6/4000 family/6-in-6/16 \
                     tcp/family/6-in-6 flows/3/one-socket tcp/flows/one-outer knobs/good knobs/files netlink/refused netlink/changes trace/batches trace/late capture/host-vxlan0 \
                     tcp/nat routes/address hotplug/lane reload/module reload/enabled reload/two-devices tcp/reload/enabled \
                     teardown/vxlan teardown/container teardown/socket hints/hike hints/metadata gro/datagrams \
                     gro/beside gro/header/whole gro/header/v6 gro/checksum/v4 gro/disguised/vxlan hooks/veth-gro \
                     join/stream join/frames/v6 join/gro-off \
                     build/lane tcp/build/lane build/classes build/stage build/xdp build/other-program build/devices drops/filter \
                     routed/host tcp/routed/tunnel interrupts/move auto/follows hooks/enabled hooks/forged hooks/full hooks/gro \
                     broadcast/three-containers";

/// The cases that cannot pass there, by the beginning of their names. `c-shims/stock/README.md` says why (`auto/isolated` and
/// `debugfs/off` want guests of their own, a device with our program takes no generic one, and the kernel has no trial of the join). With
/// `--full`, and with `--case`, all other cases can be run, and these, too, by `--case` of this layer alone.
const CANNOT: &str = "mode/ tcp/mode/ tunnel/ freeing/ build/napi reload/build devices/rps-vxlan devices/cpumap-vxlan/during \
                      devices/ifb-vxlan auto/stages auto/isolated debugfs/ tcp/auto/stages paths/nested paths/nfqueue/during \
                      tcp/paths/nfqueue/during forward/beside reasons/one-host gro/forwarding/socket tcp/scaling/overlay \
                      tcp/flows/churn join/frames/v4 join/generic-xdp tcp/join/generic-xdp tcp/tunnel/ \
                      multicast/program ifb/";

/// The cases that cannot pass there on kernels of ours either, which have no tracepoints, by the beginning of their names.
const CANNOT_ON_OURS: &str = "auto/ tcp/auto/ trace/";

/// The case that locks the kernel down, as distributions' kernels can be, and the guest that it has for itself: nothing unlocks it.
const LOCKS_DOWN: &str = "lockdown/knobs";
const LOCKED: &str = "stock-locked";

/// The cases about this way alone, by the beginning of their names, and those that need tracepoints, which kernels of ours do not have.
const OWN: &str = "hooks/ tcp/hooks/ trace/";

/// The reason for which cases about the distribution's kernel are skipped.
pub(super) const NO_DEBIAN: &str = "this is no Debian system, whose kernel it is about";

/// The kernel with the package's module: repeated cases boot the same one.
static INSTALLED: OnceLock<Distribution> = OnceLock::new();

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if tools::find("apt-cache").is_none() {
        outcome.skip(STOCK, NO_DEBIAN);
        return Ok(outcome);
    }
    let mut is_readme = false;
    for release in fresh::RELEASES {
        let case = release.case();
        let is_named = |name: &String| case.starts_with(name.as_str());
        let is_asked_for = ctx.case.as_ref().map_or(ctx.full, is_named);
        if ctx.kernel.is_none() && is_asked_for {
            run_readme(ctx, release, &mut outcome);
            is_readme = true;
        }
    }
    if is_readme && ctx.case.is_some() {
        return Ok(outcome);
    }
    if ctx.kernel.is_some() {
        other_kernels::run(ctx, None, &mut outcome)?;
        return Ok(outcome);
    }
    let mut kernel = distribution::ensure()?;
    if let Some(why) = install::refusal() {
        outcome.skip("stock: the package is installed, and removed", why);
        kernel = module::beside(kernel)?;
    } else {
        let place = ctx.places.take();
        let installed = tools::once(&INSTALLED, || installed(kernel.clone()));
        outcome.held += place.held();
        drop(place);
        if let Ok(with_module) = &installed {
            kernel.clone_from(with_module);
        }
        let failed = installed.is_err();
        outcome.record("stock: the package is installed, and removed", installed);
        if failed {
            // There is no module to boot.
            return Ok(outcome);
        }
    }
    other_kernels::run(ctx, Some(&kernel), &mut outcome)?;
    let mut guests = vec![guest_cases(ctx, STOCK, kernel.clone(), None)?];
    // One case is worth a boot only in some runs.
    if !ctx.is_default() || draw::one_of(&ctx.seed, &[true, false, false, false]) {
        guests.push(guest_cases(ctx, LOCKED, kernel, Some(LOCKS_DOWN))?);
    }
    outcome.add(run_each(ctx, &guests)?);
    Ok(outcome)
}

/// Installs the packages on a fresh system as README.md says. That runs with `--full`, or by its name.
fn run_readme(ctx: &Ctx, release: &fresh::Release, outcome: &mut Outcome) {
    if let Some(why) = fresh::refusal(release) {
        outcome.skip(release.case(), why);
        return;
    }
    let place = ctx.places.take();
    let installed = debian::tools::build().and_then(|tools| {
        let packages = [tools, dkms::build()?];
        let fresh::Installed { release, module } = fresh::install(release, &packages)?;
        println!("stock   README.md's commands have built the module for Linux {release}");
        is_made_for(&module, &release)
    });
    outcome.held += place.held();
    outcome.record(&release.case(), installed);
}

/// Returns the cases of a guest with this kernel: those with these names, or else what the run is about.
fn guest_cases(
    ctx: &Ctx,
    name: &'static str,
    kernel: Distribution,
    names: Option<&str>,
) -> Result<GuestCases> {
    let options: Vec<String> = if ctx.full {
        Vec::new()
    } else {
        vec!["--brief".to_owned()]
    };
    let is_shown = |name: &str| match (names, &ctx.case, ctx.full) {
        (Some(names), ..) => draw::has_word(names, name),
        _ if locks_down(name) => false,
        (None, None, false) => draw::has_word(SHOWS, name),
        (None, Some(_), _) if ctx.layers.len() == 1 => true,
        _ => holds(name),
    };
    let takes = draw::names(ctx, CASES, &options, is_shown)?;
    let guest = draw::guest(name, Flavor::Vm, Nic::Virtio, None);
    Ok(GuestCases {
        kernel: Some(kernel),
        ..GuestCases::new(ctx, guest, CASES, options, takes)
    })
}

/// Returns whether a case locks the kernel down, and has a guest for itself in this layer.
pub(super) fn locks_down(case: &str) -> bool {
    case == LOCKS_DOWN
}

/// Returns whether a case is about this way alone, or needs tracepoints, and shows nothing with our hooks.
pub(super) fn is_own(case: &str) -> bool {
    begins_like_one_of(OWN, case)
}

/// Returns whether a case can pass without our hooks on a distribution's kernel.
pub(super) fn holds(case: &str) -> bool {
    case != draw::COMPARED && !begins_like_one_of(CANNOT, case)
}

/// Returns whether a case can pass without our hooks on a kernel of ours.
pub(super) fn holds_on_ours(case: &str) -> bool {
    holds(case) && !begins_like_one_of(CANNOT_ON_OURS, case)
}

fn begins_like_one_of(list: &str, case: &str) -> bool {
    list.split_whitespace().any(|begin| case.starts_with(begin))
}

/// Makes DKMS build the module of the package, and returns the kernel with it in a copy of its modules. Fails unless the module
/// says that it is for that kernel.
fn installed(kernel: Distribution) -> Result<Distribution> {
    let installed = install::install(&dkms::build()?, &kernel)?;
    let module = &installed.module;
    println!(
        "stock   DKMS has built the module for Linux {}, signed by {}",
        kernel.release, installed.signer
    );
    objtool::require_seen(module, &kernel.headers)?;
    is_made_for(module, &kernel.release)?;
    let _lock = modules::lock()?;
    let home = modules::folder("installed")?.join(&kernel.release);
    let modules = modules::copy_with(module, &kernel.modules, &home)?;
    Ok(Distribution { modules, ..kernel })
}
