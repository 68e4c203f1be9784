// SPDX-License-Identifier: GPL-2.0

//! Debian packages of the patched kernel, for real machines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};

use super::build::{Base, Plan};
use super::config::Fragment;
use super::source::{short_hash, Source};
use super::toolchain::Toolchain;
use super::{extra_fragments, inputs, jobs, lock, patched_tree, Options};
use crate::paths;
use crate::setup::{self, Need, DISTRIBUTION_CONFIGS};
use crate::tools;

/// The configuration on top of a distribution's.
const OVERRIDES: &str = "\
# Beside the distribution's own kernel, not instead of it.
CONFIG_LOCALVERSION=\"-mflow\"
# Debug information makes the packages ten times as large, and its BTF part does not know Rust.
CONFIG_DEBUG_INFO_NONE=y
# The distribution's keys are not here: modules are signed with a key that is made during the build.
CONFIG_SYSTEM_TRUSTED_KEYS=\"\"
CONFIG_SYSTEM_REVOCATION_KEYS=\"\"
CONFIG_MODULE_SIG_KEY=\"certs/signing_key.pem\"
";

pub(crate) fn build(options: &Options) -> Result<()> {
    setup::ensure(&[Need::Kernel, Need::Deb])?;
    let _lock = lock()?;
    let toolchain = Toolchain::find()?;
    let source = Source::prepare(options.source.as_deref())?;
    let project = paths::project();
    let (base, mut fragments, mut key) = match options.config_base.as_deref() {
        Some(name) if name == Path::new("vm") => {
            let mut fragments = inputs::fragments(project, &["base", "vm"])?;
            fragments.push(Fragment {
                name: "deb".to_owned(),
                text: "CONFIG_LOCALVERSION=\"-mflow\"\n".to_owned(),
            });
            (Base::Tiny, fragments, "vm".to_owned())
        }
        file => {
            let file = match file {
                Some(file) => file.to_path_buf(),
                None => distribution_config(&source)?,
            };
            let mut fragments = inputs::fragments(project, &["base"])?;
            fragments.push(Fragment {
                name: "deb".to_owned(),
                text: OVERRIDES.to_owned(),
            });
            let bytes =
                fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            (Base::File(file), fragments, short_hash(&bytes))
        }
    };
    let extra = extra_fragments(options)?;
    if !extra.is_empty() {
        key = format!("{key}-{}", super::key_of(&extra));
        fragments.extend(extra);
    }
    let patched = patched_tree(&source)?;
    // The packages appear beside the build folder.
    let outer = source.home.join(format!("deb-{key}"));
    let plan = Plan {
        name: "deb".to_owned(),
        toolchain: &toolchain,
        work_tree: patched.work_tree,
        kconfig_key: patched.kconfig_key,
        build_dir: outer.join("build"),
        base,
        fragments,
        jobs: jobs(options),
    };
    plan.configure(source.may_change)?;
    files(&outer)?.iter().try_for_each(fs::remove_file)?;
    let mut step = plan.step("packages").hint(
        "the first `error` in the log tells; a distribution's kernel takes hours on few cores",
    );
    if !plan.build_dir.join("vmlinux").exists() {
        step = step.count_lines();
    }
    step.run(
        plan.make()
            .env("KDEB_CHANGELOG_DIST", "unstable")
            .env("DEBEMAIL", "mflow@localhost")
            .arg("bindeb-pkg"),
    )?;
    let release = plan.release()?;
    let image = collect(&outer, &release)?;
    check_image(&image, &release)?;
    println!("install with: apt-get install {}", image.display());
    Ok(())
}

/// Returns the configuration of the distribution's kernel, unpacked.
fn distribution_config(source: &Source) -> Result<PathBuf> {
    let release = tools::output(tools::command("uname").arg("-r"))?;
    let running = PathBuf::from(format!("/boot/config-{}", release.trim()));
    if release.starts_with("6.12.") && running.exists() {
        return Ok(running);
    }
    let packed = Path::new(DISTRIBUTION_CONFIGS).join("config.amd64_none_amd64.xz");
    let text = tools::output(
        tools::command("xz")
            .args(["--decompress", "--stdout"])
            .arg(&packed),
    )
    .with_context(|| {
        format!(
            "name a complete kernel configuration with --config-base: {} cannot be used",
            packed.display()
        )
    })?;
    let path = source.home.join("distribution.config");
    fs::write(&path, text)?;
    Ok(path)
}

/// Moves image and headers into the cache's `deb` folder; returns the image package.
fn collect(dir: &Path, release: &str) -> Result<PathBuf> {
    let target = paths::cache_dir("deb")?;
    let mut image = None;
    for path in files(dir)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_image = name.starts_with(&format!("linux-image-{release}_"));
        // linux-libc-dev would replace the distribution's, which nothing here calls for.
        if is_image || name.starts_with(&format!("linux-headers-{release}_")) {
            let place = target.join(&name);
            fs::rename(&path, &place)?;
            println!("{}", place.display());
            if is_image {
                image = Some(place);
            }
        }
    }
    image.with_context(|| {
        format!(
            "the build left no package linux-image-{release} in {}",
            dir.display()
        )
    })
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    Ok(files)
}

/// Fails if a kernel package lacks the module, which would only show after a reboot.
fn check_image(image: &Path, release: &str) -> Result<()> {
    let list = tools::output(tools::command("dpkg-deb").arg("-c").arg(image))?;
    let module = format!("/lib/modules/{release}/kernel/net/mflow/mflow.ko");
    if !list.lines().any(|line| line.contains(&module)) {
        bail!(
            "{} has no {module}; is CONFIG_MFLOW=m in its configuration?",
            image.display()
        );
    }
    Ok(())
}
