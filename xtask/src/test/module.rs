// SPDX-License-Identifier: GPL-2.0

//! The module built out of the kernel tree, for which a built kernel is enough, our C files under sparse, the description of our
//! netlink family under the kernel's schema and generator, and our scripts for bpftrace.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};

use super::{scripts, Ctx, Outcome};
use crate::kernel::{self, Flavor, Kernel};
use crate::module::{self, objtool};
use crate::paths;
use crate::tools;

/// The description of our netlink family, and the header with its numbers.
const FAMILY: &str = "c-shims/netlink/mflow.yaml";
const FAMILY_HEADER: &str = "c-shims/netlink/mflow_netlink.h";
/// The folder of the kernel's schema. Descriptions are in a folder in it.
const SCHEMA_FOLDER: &str = "Documentation/netlink";

pub(crate) fn run(_ctx: &Ctx) -> Result<Outcome> {
    let kernel = kernel::ensure(Flavor::Vm)?;
    let mut outcome = Outcome::default();
    outcome.record("module: fits the kernel it was built for", fits(&kernel));
    if tools::find("sparse").is_some() {
        outcome.record("module: sparse has no complaint", sparse(&kernel));
        let stock = sparse_stock(&kernel);
        outcome.record("module: sparse has no complaint without hooks", stock);
    } else {
        let why = "sparse is not installed; try: cargo xtask setup";
        outcome.skip("module: sparse", why);
    }
    let name = "module: the netlink family is described as the kernel's are";
    let mut python = tools::command("python3");
    if tools::output(python.args(["-c", "import jsonschema, yaml"])).is_ok() {
        outcome.record(name, family_is_described());
    } else {
        let why = "Python's jsonschema or yaml is not installed; try: cargo xtask setup";
        outcome.skip(name, why);
    }
    let name = "module: bpftrace reads our scripts";
    match scripts::refusal() {
        None => outcome.record(name, scripts::are_read()),
        Some(why) => outcome.skip(name, why),
    }
    Ok(outcome)
}

/// Fails unless the description of our netlink family suits the kernel's schema, and the kernel's generator makes our header of it.
fn family_is_described() -> Result<()> {
    let tree = kernel::work_tree()?;
    let project = paths::project();
    // The generator looks for the schema beside the description, and for the root of a kernel's tree above it.
    let root = tempfile::tempdir()?;
    let folder = root.path().join(SCHEMA_FOLDER);
    let described = folder.join("specs/mflow.yaml");
    fs::create_dir_all(folder.join("specs"))?;
    fs::write(root.path().join("MAINTAINERS"), "")?;
    let schema = "genetlink.yaml";
    fs::copy(tree.join(SCHEMA_FOLDER).join(schema), folder.join(schema)).context(schema)?;
    fs::copy(project.join(FAMILY), &described).context(FAMILY)?;
    let mut generator = tools::command("python3");
    generator
        .arg("-B")
        .arg(tree.join("tools/net/ynl/ynl-gen-c.py"))
        .args(["--mode", "uapi", "--header", "--spec"])
        .arg(&described);
    let made = tools::output(&mut generator)?;
    let ours = fs::read_to_string(project.join(FAMILY_HEADER)).context(FAMILY_HEADER)?;
    ensure!(
        code_of(&made).is_some() && code_of(&made) == code_of(&ours),
        "{FAMILY_HEADER} is not what the kernel's generator makes of {FAMILY}:\n{made}"
    );
    Ok(())
}

/// Returns a header from its guard on: before that, it is said where it comes from.
fn code_of(header: &str) -> Option<&str> {
    header.find("#ifndef").and_then(|begin| header.get(begin..))
}

fn fits(kernel: &Kernel) -> Result<()> {
    let module = module::build(&kernel.build_dir)?;
    objtool::require_seen(&module, &kernel.build_dir)?;
    is_made_for(&module, &kernel.release)
}

/// Fails unless the module names this kernel release.
pub(super) fn is_made_for(module: &Path, release: &str) -> Result<()> {
    let mut modinfo = tools::command("modinfo");
    let magic = tools::output(modinfo.args(["--field", "vermagic"]).arg(module))?;
    ensure!(
        magic.split(' ').next() == Some(release),
        "{} is made for `{}`, the kernel is {release}",
        module.display(),
        magic.trim()
    );
    Ok(())
}

/// Checks address spaces, lock balance and byte order of our files alone: complaints about the kernel's headers are not ours.
fn sparse(kernel: &Kernel) -> Result<()> {
    has_none(&kernel::check_own_objects(kernel)?, "net/core/mflow.c")
}

/// Does the same for the files that unpatched kernels get.
fn sparse_stock(kernel: &Kernel) -> Result<()> {
    let log = module::check_stock(&kernel.build_dir)?;
    has_none(&log, "c-shims/stock/mflow_port.c")
}

/// Fails if a log has complaints about our files, or shows that one was not looked at.
fn has_none(log: &Path, looked_at: &str) -> Result<()> {
    let text = fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    ensure!(
        text.contains(looked_at),
        "sparse did not look at {looked_at}; see {}",
        log.display()
    );
    let complaints: Vec<&str> = text.lines().filter(|line| is_own_complaint(line)).collect();
    ensure!(
        complaints.is_empty(),
        "sparse complains:\n  {}\nlog:  {}",
        complaints.join("\n  "),
        log.display()
    );
    Ok(())
}

fn is_own_complaint(line: &str) -> bool {
    let Some((place, _)) = line
        .split_once(": warning: ")
        .or_else(|| line.split_once(": error: "))
    else {
        return false;
    };
    // The cache's path contains `mflow`, so only the part after the source tree is compared.
    ["/net/core/mflow", "/c-shims/", "/include/net/mflow"]
        .iter()
        .any(|own| place.contains(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_compared_from_their_guard_on() {
        assert_eq!(code_of("/* made */\n#ifndef A\n"), Some("#ifndef A\n"));
        assert_eq!(code_of("error"), None);
    }

    #[test]
    fn complaints_about_the_kernel_itself_are_not_ours() {
        let tree = "/home/me/.cache/mflow/kernel/6.12.117-0123456789ab/linux";
        for (start, end, own) in [
            (
                "",
                "net/mflow/c-shims/module/mflow_shim.c:3:5: warning: x",
                true,
            ),
            ("", "net/core/mflow.c:3:5: error: x", true),
            ("", "../c-shims/stock/mflow_run.c:3:5: warning: x", true),
            ("", "rust/helpers/wait.c:6:6: warning: x", false),
            ("  CHECK   ", "net/core/mflow.c", false),
        ] {
            let line = format!("{start}{tree}/{end}");
            assert_eq!(is_own_complaint(&line), own, "{line}");
        }
    }
}
