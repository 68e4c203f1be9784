// SPDX-License-Identifier: GPL-2.0

//! The module alone, built out of the kernel tree.

pub(crate) mod objtool;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use anyhow::{bail, ensure, Result};

use crate::debian;
use crate::dkms;
use crate::kernel::distribution::{self, Distribution};
use crate::kernel::inputs::{module_files, module_headers};
use crate::kernel::modules;
use crate::kernel::source::short_hash;
use crate::kernel::toolchain::{self, Toolchain};
use crate::kernel::tree::Tree;
use crate::kernel::{self, Flavor, Way};
use crate::paths;
use crate::setup::{self, rust, Need};
use crate::step::Step;
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build folder of a kernel, or its headers: one with our patches, or unpatched of a version that will do [default: the guest
    /// kernel, built when needed]
    #[arg(long, value_name = "BUILD_DIR")]
    kernel: Option<PathBuf>,
    /// Write two Debian packages: mflow-tools, and mflow-dkms with the module's sources, which DKMS builds for the kernels that a
    /// machine has
    #[arg(long, conflicts_with = "kernel")]
    dkms_deb: bool,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if options.dkms_deb {
        println!("{}", debian::tools::build()?.display());
        println!("{}", dkms::build()?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let build_dir = match options.kernel {
        Some(dir) => dir,
        None => kernel::ensure(Flavor::Vm)?.build_dir,
    };
    println!("{}", build(&build_dir)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns a distribution's kernel, one of [`distribution::names`], with the module in a copy of its modules.
pub fn in_distribution(name: &str) -> Result<Distribution> {
    beside(distribution::named(name)?)
}

/// The longest name of an imported symbol that fits into the plainer of the kernel's two tables of versions (`struct
/// modversion_info`).
const MOST_VERSIONED_NAME: usize = 64 - size_of::<u64>() - 1;

/// Fails if a kernel that checks versions of symbols (`CONFIG_MODVERSIONS`) could not check this module: names that are too long for
/// that, or those of Rust, whose versions come from debugging information that a module out of the tree has no part in.
fn require_versionable(module: &Path) -> Result<()> {
    let mut nm = tools::command("nm");
    let listed = tools::output(
        nm.args(["--format=just-symbols", "--undefined-only"])
            .arg(module),
    )?;
    let wrong = |name: &&str| name.starts_with("_R") || name.len() > MOST_VERSIONED_NAME;
    if let Some(name) = listed.lines().find(wrong) {
        bail!(
            "{} imports {name}, which can have no version",
            module.display()
        );
    }
    ensure!(!listed.is_empty(), "{} imports nothing", module.display());
    let mut nm = tools::command("nm");
    let all = tools::output(nm.arg("--format=just-symbols").arg(module))?;
    if let Some(name) = all.lines().find(|name| name.starts_with("__ksymtab_")) {
        bail!(
            "{} exports {name}, which would need a version",
            module.display()
        );
    }
    Ok(())
}

/// Returns a distribution's kernel with the module in a copy of its modules.
pub(crate) fn beside(kernel: Distribution) -> Result<Distribution> {
    let _lock = modules::lock()?;
    let module = build_with(&kernel.headers, kernel.compilers.as_deref())?;
    require_versionable(&module)?;
    objtool::require_seen(&module, &kernel.headers)?;
    let modules = copy_stripped(&module, &kernel.modules, &kernel.release)?;
    Ok(Distribution { modules, ..kernel })
}

/// Returns the image and the modules that a guest boots with the module that needs no hooks of ours: those of the distribution's
/// kernel, or of our checking one, whose hooks then stay off.
pub(crate) fn stock_for(flavor: Flavor) -> Result<(PathBuf, PathBuf)> {
    static MADE: [OnceLock<(PathBuf, PathBuf)>; Flavor::COUNT] =
        [const { OnceLock::new() }; Flavor::COUNT];
    tools::once(&MADE[flavor as usize], || {
        if flavor != Flavor::Debug {
            let kernel = beside(distribution::ensure()?)?;
            return Ok((kernel.image, kernel.modules));
        }
        let kernel = kernel::ensure(flavor)?;
        let _lock = modules::lock()?;
        let module = build_way(&kernel.build_dir, Way::Stock, None)?;
        let modules = copy_stripped(&module, &kernel.modules, flavor.name())?;
        Ok((kernel.image, modules))
    })
}

/// Copies a kernel's modules with this one, without debugging information as DKMS installs it. Returns the copy's place.
fn copy_stripped(module: &Path, modules: &Path, name: &str) -> Result<PathBuf> {
    let stripped = modules::folder("stripped")?.join("mflow.ko");
    let mut strip = tools::command("strip");
    strip.args(["--strip-debug", "-o"]).arg(&stripped);
    tools::output(strip.arg(module))?;
    modules::copy_with(&stripped, modules, &modules::folder("copies")?.join(name))
}

/// The place of the distributions' Rust compiler.
const RUSTC: &str = "/usr/bin/rustc";

/// Builds `mflow.ko` against a kernel's build folder and returns its path.
pub(crate) fn build(build_dir: &Path) -> Result<PathBuf> {
    let _lock = modules::lock()?;
    build_with(build_dir, None)
}

/// Does the same with compilers that were unpacked there, and not installed.
fn build_with(build_dir: &Path, compilers: Option<&Path>) -> Result<PathBuf> {
    let Ok(build_dir) = build_dir.canonicalize() else {
        bail!("there is no kernel build folder {}", build_dir.display());
    };
    build_way(&build_dir, kernel::way_of(&build_dir)?, compilers)
}

/// Does the same for a way that the kernel has, which need not be its usual one.
fn build_way(build_dir: &Path, way: Way, compilers: Option<&Path>) -> Result<PathBuf> {
    let copy = sources(build_dir, way)?;
    let mut make = make(way, build_dir, &copy)?;
    make.arg("modules");
    if let Some(compilers) = compilers {
        if compilers.join(&RUSTC[1..]).exists() {
            make.env("MFLOW_RUSTC", RUSTC);
        }
        make = over_usr(compilers, &make);
    }
    Step::new("module out of tree", "module")
        .hint(
            "the first `error` in the log tells; `cargo xtask build-kernel` builds it in the tree",
        )
        .run(&mut make)?;
    let module = copy.work.join("mflow.ko");
    if !module.exists() {
        bail!(
            "the build made no {}; is `mflow.o` in Kbuild's obj-m?",
            module.display()
        );
    }
    Ok(module)
}

/// Runs sparse over the C files of the way of unpatched kernels, as a kernel of ours builds them; returns the log.
pub(crate) fn check_stock(build_dir: &Path) -> Result<PathBuf> {
    let _lock = modules::lock()?;
    let copy = sources(build_dir, Way::Stock)?;
    Step::new("sparse on the way without hooks", "module-sparse")
        .hint("the first `error` in the log tells")
        .run(make(Way::Stock, build_dir, &copy)?.args(["C=2", "modules"]))
}

/// Returns a copy of the module's sources for one kernel and way, so that a second build is short: Kbuild writes beside them.
fn sources(build_dir: &Path, way: Way) -> Result<Tree> {
    match way {
        Way::Patched => setup::ensure(&[Need::Kernel])?,
        Way::Stock => rust::ensure_components()?,
    }
    let key = short_hash(format!("{way:?} {}", build_dir.display()).as_bytes());
    let copy = Tree::of_own_files(&modules::folder(&key)?);
    let mut files = module_files(paths::project())?;
    if way == Way::Stock {
        files.extend(module_headers(paths::project())?);
    }
    copy.update(
        &files
            .into_iter()
            .map(|(path, file)| (path, Some(file)))
            .collect(),
    )?;
    Ok(copy)
}

/// Returns `make` of a copy, with the compilers that fit the kernel: the pinned ones for ours, and for another kernel those that
/// it was built with.
fn make(way: Way, build_dir: &Path, copy: &Tree) -> Result<Command> {
    let of_copy = format!("M={}", copy.work.display());
    if kernel::way_of(build_dir)? == Way::Patched {
        let mut make = Toolchain::find()?.make(build_dir, tools::cores());
        make.arg(of_copy);
        make.args((way == Way::Stock).then_some("MFLOW_WAY=stock"));
        return Ok(make);
    }
    let mut make = toolchain::plain_make(build_dir, tools::cores())?;
    make.arg(of_copy);
    // Types for tracers, which nothing needs that is not there.
    if tools::find("pahole").is_none() {
        make.arg("CONFIG_DEBUG_INFO_BTF_MODULES=");
    }
    Ok(make)
}

/// Returns a command that runs another one as if packages that were unpacked in a folder were installed, and leaves nothing.
fn over_usr(packages: &Path, command: &Command) -> Command {
    const SCRIPT: &str = "mount -t overlay mflow -o \"lowerdir=$0/usr:/usr\" /usr\nexec \"$@\"";
    let mut outer = tools::command("unshare");
    outer.args(["--mount", "sh", "-euc", SCRIPT]).arg(packages);
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}
