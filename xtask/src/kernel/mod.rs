// SPDX-License-Identifier: GPL-2.0

//! The patched kernel: from the distribution's source package to a bootable image with modules.

mod build;
mod config;
mod deb;
pub mod distribution;
pub(crate) mod inputs;
pub(crate) mod modules;
pub(crate) mod series;
pub(crate) mod source;
pub(crate) mod toolchain;
pub(crate) mod tree;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::sync::OnceLock;

use anyhow::{bail, Context as _, Result};
use clap::ValueEnum as _;
use sha2::{Digest as _, Sha256};

use self::build::{Base, Plan};
use self::config::Fragment;
use self::inputs::Inputs;
use self::source::{short_hash, Source};
use self::toolchain::Toolchain;
use crate::paths;
use crate::setup::{self, Need};
use crate::step::Step;
use crate::tools;

/// A kernel that can be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Flavor {
    /// The small guest kernel: tests, demo, measurements.
    #[default]
    Vm,
    /// The same with memory, lock and RCU checking.
    Debug,
    /// The same as `vm` without mflow's hooks, to measure what they cost.
    Off,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Kernel source, Linux 6.12: a folder or a tarball [default: the package linux-source-6.12]
    #[arg(long, value_name = "DIR|TARBALL")]
    source: Option<PathBuf>,
    /// One more configuration fragment, on top of ours (may be repeated)
    #[arg(long, value_name = "FRAGMENT")]
    config: Vec<PathBuf>,
    /// Kernel to build
    #[arg(long, value_enum, default_value_t, conflicts_with = "deb")]
    flavor: Flavor,
    /// Build Debian packages for a real machine
    #[arg(long)]
    deb: bool,
    /// Configuration that --deb starts from: a complete one, or `vm` for a small test [default: the distribution's]
    #[arg(long, value_name = "FILE|vm", requires = "deb")]
    config_base: Option<PathBuf>,
    /// Parallel jobs [default: all cores]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
}

/// A finished build.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The bootable image (bzImage).
    pub image: PathBuf,
    /// The installed modules: `.../lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The folder with all object files (make's `O=`).
    pub build_dir: PathBuf,
}

impl Options {
    fn of(flavor: Flavor) -> Self {
        Self {
            flavor,
            ..Self::default()
        }
    }
}

impl Flavor {
    /// The number of kernels that can be built.
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Debug => "debug",
            Self::Off => "off",
        }
    }

    fn fragments(self) -> Result<Vec<Fragment>> {
        let project = paths::project();
        match self {
            Self::Vm => inputs::fragments(project, &["base", "vm"]),
            Self::Debug => inputs::fragments(project, &["base", "vm", "debug"]),
            Self::Off => {
                let mut fragments = inputs::fragments(project, &["base", "vm"])?;
                fragments.push(Fragment {
                    name: "off".to_owned(),
                    text: "# CONFIG_MFLOW is not set\n# CONFIG_MFLOW_JOIN_TRIAL is not set\n"
                        .to_owned(),
                });
                Ok(fragments)
            }
        }
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if options.deb {
        deb::build(&options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let kernel = build(&options)?;
    println!("release  {}", kernel.release);
    println!("image    {}", kernel.image.display());
    println!("modules  {}", kernel.modules.display());
    println!("objects  {}", kernel.build_dir.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the kernel of this flavor, built first if anything it is made of has changed since another process built it.
pub fn ensure(flavor: Flavor) -> Result<Kernel> {
    // CAST: the number of the variant.
    tools::once(&BUILT[flavor as usize], || build(&Options::of(flavor)))
}

/// Kernels of flavors, as [`ensure`] returns them.
static BUILT: [OnceLock<Kernel>; Flavor::COUNT] = [const { OnceLock::new() }; Flavor::COUNT];

/// Does the same for several flavors at the same time: a build has long parts that use one core, above all its Rust.
pub(crate) fn ensure_all(flavors: &[Flavor]) -> Result<()> {
    let missing =
        |flavor: &Flavor| BUILT[*flavor as usize].get().is_none() && flavors.contains(flavor);
    let missing = Flavor::value_variants().iter().copied().filter(missing);
    let options: Vec<Options> = missing.map(Options::of).collect();
    if options.is_empty() {
        return Ok(());
    }
    for (options, kernel) in options.iter().zip(build_all(&options)?) {
        let _built_meanwhile = BUILT[options.flavor as usize].set(kernel);
    }
    Ok(())
}

/// Returns the lowest version of `tool` the kernel accepts, if a source is unpacked to ask.
pub(crate) fn min_tool_version(tool: &str) -> Option<String> {
    let script = work_trees()
        .ok()?
        .pop()?
        .join("scripts/min-tool-version.sh");
    let text = tools::output(
        tools::command("sh")
            .arg(script)
            .arg(tool)
            .env("SRCARCH", "x86"),
    )
    .ok()?;
    Some(text.trim().to_owned())
}

/// Returns the work tree that has the default source's patches applied.
pub(crate) fn work_tree() -> Result<PathBuf> {
    setup::ensure(&[Need::Kernel])?;
    let _lock = lock()?;
    let source = Source::prepare(None)?;
    Ok(patched_tree(&source)?.work_tree)
}

/// Runs sparse over our own C files as this kernel builds them; returns the log.
pub(crate) fn check_own_objects(kernel: &Kernel) -> Result<PathBuf> {
    let _lock = lock()?;
    Step::new("sparse", "kernel-sparse")
        .hint("the first `error` in the log tells")
        .run(
            Toolchain::find()?
                .make(&kernel.build_dir, tools::cores())
                .args(["C=2", "net/core/mflow.o", "net/mflow/"]),
        )
}

fn build(options: &Options) -> Result<Kernel> {
    let built = build_all(slice::from_ref(options))?;
    built.into_iter().next().context("one kernel was asked for")
}

/// Builds kernels of one source at the same time, each in a folder of its own.
fn build_all(options: &[Options]) -> Result<Vec<Kernel>> {
    setup::ensure(&[Need::Kernel])?;
    let _lock = lock()?;
    let toolchain = Toolchain::find()?;
    let first = options.first().context("no kernel was asked for")?;
    let source = Source::prepare(first.source.as_deref())?;
    let patched = patched_tree(&source)?;
    let build = |options: &Options| {
        let mut fragments = options.flavor.fragments()?;
        let mut folder = format!("build-{}", options.flavor.name());
        if !options.config.is_empty() {
            let extra = extra_fragments(options)?;
            folder = format!("{folder}-{}", key_of(&extra));
            fragments.extend(extra);
        }
        let plan = Plan {
            name: options.flavor.name().to_owned(),
            toolchain: &toolchain,
            work_tree: patched.work_tree.clone(),
            kconfig_key: patched.kconfig_key.clone(),
            build_dir: source.home.join(folder),
            base: Base::Tiny,
            fragments,
            jobs: jobs(options),
        };
        let inputs = inputs_hash(&patched.inputs, &plan)?;
        if !source.may_change {
            if let Some(kernel) = plan.finished(&inputs) {
                return Ok(kernel);
            }
        }
        plan.configure(source.may_change)?;
        plan.build(&inputs)
    };
    tools::together(options, build).into_iter().collect()
}

/// The work tree with our patches and files in it.
struct Patched {
    work_tree: PathBuf,
    inputs: Inputs,
    /// Changes when an option may have come, gone or changed its meaning.
    kconfig_key: String,
}

fn patched_tree(source: &Source) -> Result<Patched> {
    let inputs = Inputs::read(paths::project())?;
    let tree = source.tree()?;
    let overlay = tree.overlay(&inputs.patches, inputs.own.clone())?;
    let changed = tree.update(&overlay)?;
    match changed.len() {
        0 => {}
        1..=4 => eprintln!("updated in the kernel tree: {}", changed.join(", ")),
        many => eprintln!("updated in the kernel tree: {many} files"),
    }
    let mut kconfig = Sha256::new();
    for (path, file) in &overlay {
        if let Some(file) = file.as_ref().filter(|_| path.contains("Kconfig")) {
            kconfig.update(&file.bytes);
        }
    }
    Ok(Patched {
        work_tree: tree.work,
        inputs,
        kconfig_key: short_hash(&kconfig.finalize()),
    })
}

fn inputs_hash(inputs: &Inputs, plan: &Plan<'_>) -> Result<String> {
    let mut hasher = Sha256::new();
    inputs.hash(&mut hasher);
    hasher.update(plan.identity()?);
    Ok(short_hash(&hasher.finalize()))
}

fn extra_fragments(options: &Options) -> Result<Vec<Fragment>> {
    options
        .config
        .iter()
        .map(|path| inputs::fragment(path))
        .collect()
}

/// Returns a key of their contents rather than their names: an edited fragment is another kernel.
fn key_of(fragments: &[Fragment]) -> String {
    let text: String = fragments
        .iter()
        .map(|fragment| fragment.text.as_str())
        .collect();
    short_hash(text.as_bytes())
}

fn jobs(options: &Options) -> usize {
    options.jobs.map_or_else(tools::cores, usize::from)
}

/// Keeps a second build out of the same trees until the first has ended.
fn lock() -> Result<File> {
    tools::lock(&paths::cache_dir("kernel")?, "kernel build")
}

fn work_trees() -> Result<Vec<PathBuf>> {
    let mut trees = Vec::new();
    for entry in fs::read_dir(paths::cache().join("kernel"))? {
        let tree = entry?.path().join("linux");
        if tree.is_dir() {
            trees.push(tree);
        }
    }
    Ok(trees)
}

/// The way a module comes into a kernel's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Through our hooks.
    #[default]
    Patched,
    /// Through what a kernel without them offers to modules.
    Stock,
}

/// The options that a kernel must have for a module without our hooks, as its configuration and people call them.
pub(crate) const STOCK_NEEDS: &[(&str, &str)] = &[
    ("CONFIG_X86_64=y", "an x86-64 kernel"),
    ("CONFIG_MODULES=y", "loadable modules"),
    ("CONFIG_NETFILTER_INGRESS=y", "netfilter hooks at ingress"),
    ("CONFIG_NET_CLS_ACT=y", "actions of traffic control"),
    ("CONFIG_NETWORK_SECMARK=y", "security marks of packets"),
    ("CONFIG_INET=y", "IPv4"),
    ("CONFIG_DEBUG_FS=y", "debugfs, which has the knobs"),
];

/// The options that such a kernel must not have, likewise.
pub(crate) const STOCK_LACKS: &[(&str, &str)] = &[
    ("CONFIG_CFI_CLANG=y", CFI),
    // The same since 6.18.
    ("CONFIG_CFI=y", CFI),
    (
        "CONFIG_PREEMPT_RT=y",
        "real-time preemption, with which softirqs of one CPU do not exclude each other",
    ),
];

const CFI: &str =
    "checks at indirect calls, which code that is compiled beside the kernel does not pass";

/// The kernels that modules without our hooks are made for: they use structures that change (`c-shims/module/mflow_versions.h`).
pub(crate) const STOCK_VERSIONS: &[&str] = &["6.1", "6.12", "7.3"];

/// Returns these versions for people: `6.1, 6.12 and 7.3`.
pub(crate) fn stock_versions() -> String {
    match STOCK_VERSIONS {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        all => all.concat(),
    }
}

/// Returns the way of the kernel that was built in `dir`; fails if neither is possible.
pub(crate) fn way_of(dir: &Path) -> Result<Way> {
    let config = dir.join("include/config/auto.conf");
    let text = fs::read_to_string(&config).with_context(|| {
        format!(
            "{} is no built kernel: it has no include/config/auto.conf",
            dir.display()
        )
    })?;
    let release = fs::read_to_string(dir.join("include/config/kernel.release")).unwrap_or_default();
    way_of_config(&text, &release).with_context(|| format!("the kernel in {}", dir.display()))
}

fn way_of_config(config: &str, release: &str) -> Result<Way> {
    let has = |option: &str| config.lines().any(|line| line == option);
    if has("CONFIG_MFLOW_HOOKS=y") {
        if !has("CONFIG_RUST=y") {
            bail!("it has our hooks and was built without CONFIG_RUST=y: build it with `cargo xtask build-kernel`");
        }
        return Ok(Way::Patched);
    }
    let series = release.splitn(3, ['.', '-', '+']).take(2);
    if !STOCK_VERSIONS.contains(&&*series.collect::<Vec<_>>().join(".")) {
        bail!(
            "it is {}, and without our hooks only Linux {} will do: build one with `cargo xtask build-kernel`",
            release.trim(),
            stock_versions()
        );
    }
    for (option, meaning) in STOCK_NEEDS {
        if !has(option) {
            bail!("it has neither our hooks nor {meaning} ({option}): build one with `cargo xtask build-kernel`");
        }
    }
    for (option, meaning) in STOCK_LACKS {
        if has(option) {
            bail!("it has {meaning} ({option}): build one with `cargo xtask build-kernel`");
        }
    }
    Ok(Way::Stock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: &str = "CONFIG_X86_64=y\nCONFIG_MODULES=y\nCONFIG_NETFILTER_INGRESS=y\nCONFIG_NET_CLS_ACT=y\nCONFIG_INET=y\n\
                         CONFIG_NETWORK_SECMARK=y\nCONFIG_DEBUG_FS=y\n";

    #[test]
    fn hooks_are_preferred_and_need_rust() {
        let hooked = format!("{STOCK}CONFIG_MFLOW_HOOKS=y\n");
        assert!(way_of_config(&hooked, "6.12.1").is_err());
        let hooked = format!("{hooked}CONFIG_RUST=y\n");
        assert_eq!(way_of_config(&hooked, "6.12.1").unwrap(), Way::Patched);
    }

    #[test]
    fn other_kernels_get_the_stock_way_or_one_sentence() {
        for release in [
            "6.12.117+deb12-cloud-amd64\n",
            "6.12-rc1",
            "6.12+x",
            "6.1.0-47-cloud-amd64\n",
            "7.3.4+deb13-amd64",
        ] {
            assert_eq!(way_of_config(STOCK, release).unwrap(), Way::Stock);
        }
        for (config, release, word) in [
            (STOCK, "6.11.0-47-cloud-amd64\n", "6.11.0"),
            (STOCK, "7.4.0", "6.1, 6.12 and 7.3"),
            (STOCK, "6.120.1", "6.120"),
            (
                &*STOCK.replace("CONFIG_NETFILTER_INGRESS=y", "# no"),
                "6.12.1",
                "CONFIG_NETFILTER_INGRESS",
            ),
            (
                &*format!("{STOCK}CONFIG_CFI_CLANG=y\n"),
                "6.12.1",
                "CONFIG_CFI_CLANG",
            ),
            (
                &*format!("{STOCK}CONFIG_PREEMPT_RT=y\n"),
                "6.12.1",
                "CONFIG_PREEMPT_RT",
            ),
        ] {
            let error = format!("{:#}", way_of_config(config, release).unwrap_err());
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }
}
