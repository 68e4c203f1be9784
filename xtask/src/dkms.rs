// SPDX-License-Identifier: GPL-2.0

//! The module as a Debian package of its sources: DKMS builds it for each kernel without our hooks that a machine has.

pub(crate) mod install;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::kernel::inputs::{module_files, module_headers};
use crate::kernel::{stock_versions, STOCK_LACKS, STOCK_NEEDS, STOCK_VERSIONS};
use crate::paths;
use crate::setup::rust;
use crate::tools;

const NAME: &str = "mflow";
const PACKAGE: &str = "mflow-dkms";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where root's compiler is, in the words of a shell, if rustup has put it there.
const ROOT_PROGRAMS: &str = "~root/.cargo/bin";

/// Builds the package and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let project = paths::project();
    let dir = tempfile::tempdir()?;
    let root = dir.path().join(PACKAGE);
    let sources = root.join(format!("usr/src/{NAME}-{VERSION}"));
    let mut files = module_files(project)?;
    files.extend(module_headers(project)?);
    for (path, file) in files {
        write(&sources.join(path), &file.bytes, 0o644)?;
    }
    write(&sources.join("dkms.conf"), conf()?.as_bytes(), 0o644)?;
    for (script, text) in [("postinst", POSTINST), ("prerm", PRERM)] {
        let text = text.replace("NAME", NAME).replace("VERSION", VERSION);
        write(&root.join("DEBIAN").join(script), text.as_bytes(), 0o755)?;
    }
    write(&root.join("DEBIAN/control"), control().as_bytes(), 0o644)?;
    let deb = paths::cache_dir("deb")?.join(format!("{PACKAGE}_{VERSION}_amd64.deb"));
    let mut dpkg = tools::command("dpkg-deb");
    dpkg.args(["--root-owner-group", "--build"])
        .arg(&root)
        .arg(&deb);
    tools::output(&mut dpkg)?;
    Ok(deb)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder)?;
    for folder in folder.ancestors().take(3) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(path, bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Registers the sources, and builds and installs the module for the kernels that are there.
const POSTINST: &str = "\
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
set -e
if [ \"$1\" = configure ]; then
\t/usr/lib/dkms/common.postinst NAME VERSION
fi
";

const PRERM: &str = "\
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
set -e
if [ -n \"$(dkms status -m NAME -v VERSION)\" ]; then
\tdkms remove -m NAME -v VERSION --all
fi
";

fn control() -> String {
    format!(
        "Package: {PACKAGE}\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: The mflow authors <mflow@localhost>\n\
         Section: kernel\n\
         Priority: optional\n\
         Depends: dkms\n\
         Recommends: linux-headers-amd64 | linux-headers-cloud-amd64\n\
         Description: splits elephant flows of container overlays over several CPUs\n \
         The kernel module mflow for Linux {} as distributions ship it. It is\n \
         built with the kernel's headers and with rustc, which has to be there with its sources.\n",
        stock_versions()
    )
}

/// What DKMS reads. It takes only kernels that `build-module` takes, too.
fn conf() -> Result<String> {
    let options: Vec<String> = STOCK_NEEDS
        .iter()
        .map(|(option, _)| option.trim_end_matches("=y").to_owned())
        .chain(
            STOCK_LACKS
                .iter()
                .map(|(option, _)| format!("!{}", option.trim_end_matches("=y"))),
        )
        .collect();
    Ok(format!(
        "# SPDX-License-Identifier: GPL-2.0\n\
         PACKAGE_NAME=\"{NAME}\"\n\
         PACKAGE_VERSION=\"{VERSION}\"\n\
         BUILT_MODULE_NAME[0]=\"{NAME}\"\n\
         DEST_MODULE_LOCATION[0]=\"/updates/dkms\"\n\
         AUTOINSTALL=\"yes\"\n\
         BUILD_EXCLUSIVE_ARCH=\"x86_64\"\n\
         BUILD_EXCLUSIVE_KERNEL=\"^({})\\.\"\n\
         BUILD_EXCLUSIVE_CONFIG=\"{}\"\n\
         # Root's compiler of rustup comes first: distributions' are often too old. Types for tracers need pahole.\n\
         MAKE[0]=\"PATH={ROOT_PROGRAMS}:$PATH RUSTUP_TOOLCHAIN={} make -C ${{kernel_source_dir}} \
         M=${{dkms_tree}}/{NAME}/{VERSION}/build $(command -v pahole > /dev/null || echo CONFIG_DEBUG_INFO_BTF_MODULES=) modules\"\n\
         CLEAN=\"true\"\n",
        STOCK_VERSIONS.join("|").replace('.', "\\."),
        options.join(" "),
        rust::pinned_toolchain()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dkms_takes_what_build_module_takes() {
        let conf = conf().unwrap();
        let line = |name: &str| {
            let start = format!("{name}=\"");
            let line = conf.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|line| line.strip_suffix('"'))
                .unwrap()
                .to_owned()
        };
        let config = line("BUILD_EXCLUSIVE_CONFIG");
        let options: Vec<&str> = config.split(' ').collect();
        assert_eq!(options.len(), STOCK_NEEDS.len() + STOCK_LACKS.len());
        assert!(options.contains(&"CONFIG_NETFILTER_INGRESS"));
        assert!(options.contains(&"!CONFIG_CFI_CLANG"));
        assert!(options.contains(&"!CONFIG_PREEMPT_RT"));
        assert_eq!(line("BUILD_EXCLUSIVE_KERNEL"), r"^(6\.1|6\.12|7\.3)\.");
        assert!(line("MAKE[0]").contains("${kernel_source_dir}"));
    }
}
