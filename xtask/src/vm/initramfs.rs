// SPDX-License-Identifier: GPL-2.0

//! The guest's file system: our init, the host's programs, the kernel's modules, and what to run.
//!
//! Not compressed: under emulation the guest takes longer to unpack it than the host to write it.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use mflow_protocol::guest::{Order, ORDER_FILE};
use walkdir::WalkDir;

use super::cpio::Archive;
use super::docker::{self, Docker};
use super::programs;
use crate::tools;

/// Folders that are links in the guest, whatever they are on the host.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// Folders that programs expect.
const FOLDERS: &[&str] = &[
    "/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/etc", "/var/lib", "/mnt",
];

const FILES: &[(&str, &str)] = &[
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
    ("/etc/group", "root:x:0:\n"),
    (
        "/etc/protocols",
        "icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\n",
    ),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    (
        "/root/.bashrc",
        "cat <<END\n\
         The knobs are in /sys/kernel/debug/mflow after:  modprobe mflow cpus=2-3 devices=eth0\n\
         Build the overlay network of the tests:          mflow-guest topology\n\
         Send numbered datagrams through it:              mflow-guest stream --lanes 2\n\
         Power off:                                       exit\n\
         END\n",
    ),
];

/// Writes the archive; `more_programs` are those that not every guest needs, as is Docker.
pub(crate) fn write(
    path: &Path,
    order: &Order,
    modules: Option<&Path>,
    more_programs: &[&str],
    docker: Option<&Docker>,
) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    for folder in FOLDERS {
        archive.directory(Path::new(folder))?;
    }
    for name in MERGED {
        archive.directory(&Path::new("/usr").join(name))?;
        archive.symlink(&Path::new("/").join(name), &Path::new("usr").join(name))?;
    }
    archive.symlink(Path::new("/var/run"), Path::new("/run"))?;
    for (path, content) in FILES {
        archive.file(Path::new(path), 0o644, content.as_bytes())?;
    }
    let program = programs::guest_program()?;
    let init = Path::new("/usr/bin/mflow-guest");
    archive.file(init, 0o755, &read(&program)?)?;
    archive.symlink(Path::new("/init"), init)?;
    for program in programs::own_programs()? {
        let name = program.file_name().context("a program without a name")?;
        archive.file(&Path::new("/usr/bin").join(name), 0o755, &read(&program)?)?;
    }
    archive.file(Path::new(ORDER_FILE), 0o644, &serde_json::to_vec(order)?)?;
    let mut more_programs = more_programs.to_vec();
    if let Some(docker) = docker {
        // Its libraries go before this machine's.
        add_docker(&mut archive, docker)?;
        more_programs.extend(docker::RUNS.iter().map(|(program, _)| program));
    }
    for file in programs::files(&more_programs)?
        .into_iter()
        .chain(programs::terminfo())
    {
        add(&mut archive, &file)?;
    }
    if let Some(modules) = modules {
        add_modules(&mut archive, modules)?;
    }
    archive.finish()?;
    Ok(())
}

/// Adds a file of the host where it is there, links followed.
fn add(archive: &mut Archive<BufWriter<File>>, path: &Path) -> Result<()> {
    add_below(archive, path, Path::new("/"))
}

/// Adds Docker.
fn add_docker(archive: &mut Archive<BufWriter<File>>, docker: &Docker) -> Result<()> {
    for file in docker.files()? {
        add_below(archive, &file, docker.home())?;
    }
    for (link, name) in docker::LINKS {
        let program =
            tools::find(name).with_context(|| format!("this machine has no program {name}"))?;
        archive.symlink(Path::new(link), &merged(&program))?;
    }
    Ok(())
}

/// Adds a file of the host, links followed, where it is there. The guest has at its top what is in the folder `top` on the host.
fn add_below(archive: &mut Archive<BufWriter<File>>, path: &Path, top: &Path) -> Result<()> {
    let real = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let (place, real_place) = (
        merged(&below(&plain(path)?, top)),
        merged(&below(&real, top)),
    );
    if !archive.contains(&real_place) {
        let mode = fs::metadata(&real)?.permissions().mode();
        archive.file(&real_place, mode, &read(&real)?)?;
    }
    if place != real_place {
        archive.symlink(&place, &real_place)?;
    }
    Ok(())
}

/// Returns the path of the same file without `..`, which a program may have in the list of its libraries' folders.
fn plain(path: &Path) -> Result<PathBuf> {
    if !path.components().any(|part| part == Component::ParentDir) {
        return Ok(path.to_path_buf());
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{} is no file", path.display());
    };
    let folder =
        fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    Ok(folder.join(name))
}

/// Returns the place in the guest of a file, which is at its top if it is in the folder `top` on the host.
fn below(path: &Path, top: &Path) -> PathBuf {
    match path.strip_prefix(top) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => path.to_path_buf(),
    }
}

/// Returns the path below /usr that a path through one of the links leads to.
fn merged(path: &Path) -> PathBuf {
    let is_merged = MERGED
        .iter()
        .any(|name| path.starts_with(Path::new("/").join(name)));
    match path.strip_prefix("/") {
        Ok(rest) if is_merged => Path::new("/usr").join(rest),
        _ => path.to_path_buf(),
    }
}

/// Adds `.../lib/modules/RELEASE` but for the links to where the kernel was built.
fn add_modules(archive: &mut Archive<BufWriter<File>>, modules: &Path) -> Result<()> {
    let release = modules
        .file_name()
        .with_context(|| format!("{} names no kernel release", modules.display()))?;
    let place = Path::new("/usr/lib/modules").join(release);
    for entry in WalkDir::new(modules) {
        let entry = entry?;
        if entry.file_type().is_file() {
            let file = entry.path();
            archive.file(
                &place.join(file.strip_prefix(modules)?),
                0o644,
                &read(file)?,
            )?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_taken_out_of_a_path() {
        let dir = tempfile::tempdir().expect("folder");
        let home = fs::canonicalize(dir.path()).expect("there");
        fs::create_dir(home.join("bin")).expect("folder");
        fs::write(home.join("lib.so"), "").expect("file");
        let plain = |path: &Path| plain(path).expect("there");
        assert_eq!(plain(&home.join("bin/../lib.so")), home.join("lib.so"));
        // Links stay: a library is looked for by the name of its link.
        assert_eq!(plain(Path::new("/bin/sh")), Path::new("/bin/sh"));
    }

    #[test]
    fn what_is_unpacked_is_at_the_top() {
        let below = |path| below(Path::new(path), Path::new("/cache/packages"));
        assert_eq!(below("/cache/packages/usr/bin/x"), Path::new("/usr/bin/x"));
        assert_eq!(below("/lib/libc.so.6"), Path::new("/lib/libc.so.6"));
    }

    #[test]
    fn old_folders_lead_below_usr() {
        assert_eq!(merged(Path::new("/bin/ip")), Path::new("/usr/bin/ip"));
        assert_eq!(
            merged(Path::new("/lib64/ld.so")),
            Path::new("/usr/lib64/ld.so")
        );
        assert_eq!(merged(Path::new("/library/x")), Path::new("/library/x"));
        assert_eq!(merged(Path::new("/usr/bin/ip")), Path::new("/usr/bin/ip"));
    }
}
