// SPDX-License-Identifier: GPL-2.0

//! Links that are pinned: what has packets of a device come to the entry of a generation, whether a process has it or not.
//!
//! Each is a file in one folder, `4` or `4-tcx`: the device's index, and the hook where that is not XDP.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use aya::programs::links::{FdLink, LinkOrder, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::xdp::XdpLink;
use aya::programs::{Program, ProgramError, SchedClassifier, TcAttachType, Xdp};
use aya::sys::SyscallError;
use aya_obj::programs::XdpAttachType;

use super::hook::{attach_xdp, Hook, XdpMode};
use super::kept_link::KeptLink;
use super::ports::make_way;
use super::realtime;

/// The error of `bpf(2)` for a link whose device has gone.
const ENOLINK: i32 = 67;

/// A device whose packets come to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The hook at which they do.
    pub hook: Hook,
    /// The device's index.
    pub device: u32,
}

const AT_TCX: &str = "-tcx";

impl Linked {
    fn pin(self, links: &Path) -> PathBuf {
        let hook = match self.hook {
            Hook::Xdp => "",
            Hook::Tcx => AT_TCX,
        };
        links.join(format!("{}{hook}", self.device))
    }

    fn of_name(name: &str) -> Option<Self> {
        let (index, hook) = match name.strip_suffix(AT_TCX) {
            Some(index) => (index, Hook::Tcx),
            None => (name, Hook::Xdp),
        };
        let device = index.parse().ok()?;
        Some(Self { hook, device })
    }
}

/// Returns the devices that have a link in this folder.
pub fn linked(links: &Path) -> Result<Vec<Linked>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir(links)? {
        let name = entry?.file_name();
        devices.extend(name.to_str().and_then(Linked::of_name));
    }
    Ok(devices)
}

/// Gives packets of a device back to the kernel's path.
pub fn release(links: &Path, linked: Linked) -> Result<()> {
    let pin = linked.pin(links);
    if linked.hook == Hook::Xdp {
        // At once: without its file, the link goes some time later, and a port needs another program then.
        let link = PinnedLink::from_pin(&pin).map(FdLink::from);
        let number = link.and_then(|link| Ok(link.info()?.id()));
        let _gone = number.map(|number| KeptLink::open(number).and_then(|link| link.detach()));
    }
    match fs::remove_file(&pin) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", pin.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the kernel's numbers of the programs that a device of the calling thread's network namespace has at tcx, egress.
pub fn programs_at_tcx(device: &str) -> Result<Vec<u32>> {
    let (_, programs) = SchedClassifier::query_tcx(device, TcAttachType::Egress)?;
    Ok(programs.iter().map(|program| program.id()).collect())
}

/// Opens an entry that is pinned.
pub(crate) fn entry(hook: Hook, pin: &Path) -> Result<Program> {
    let entry = match hook {
        Hook::Xdp => Xdp::from_pin(pin, XdpAttachType::Interface).map(Program::Xdp),
        Hook::Tcx => SchedClassifier::from_pin(pin).map(Program::SchedClassifier),
    };
    entry.with_context(|| format!("cannot open {}", pin.display()))
}

/// Directs packets of a device, of this name and index, to an entry from the next packet on: its link is updated, or made and
/// pinned. A link that is there stays in its mode.
pub(crate) fn take(
    entry: &mut Program,
    links: &Path,
    name: &str,
    device: u32,
    mode: XdpMode,
) -> Result<()> {
    realtime::refuse()?;
    let hook = match entry {
        Program::Xdp(_) => Hook::Xdp,
        _ => Hook::Tcx,
    };
    let pin = Linked { hook, device }.pin(links);
    if pin.exists() {
        let link = PinnedLink::from_pin(&pin);
        let link = link.with_context(|| format!("cannot open {}", pin.display()))?;
        match update(entry, FdLink::from(link))? {
            Updated::Done => return Ok(()),
            // The device it was for has gone, and another one has its number.
            Updated::WithoutDevice => fs::remove_file(&pin)?,
        }
    }
    let pinned = attach(entry, name, device, mode)?.pin(&pin);
    pinned.with_context(|| format!("cannot pin {}", pin.display()))?;
    Ok(())
}

enum Updated {
    Done,
    WithoutDevice,
}

fn update(entry: &mut Program, link: FdLink) -> Result<Updated> {
    let updated = match entry {
        Program::Xdp(entry) => entry.attach_to_link(XdpLink::try_from(link)?).map(drop),
        Program::SchedClassifier(entry) => {
            let link = SchedClassifierLink::try_from(link)?;
            entry.attach_to_link(link).map(drop)
        }
        _ => bail!("an entry is for one of the hooks"),
    };
    match updated {
        Ok(()) => Ok(Updated::Done),
        Err(error) if is_without_device(&error) => Ok(Updated::WithoutDevice),
        Err(error) => Err(error).context("the kernel refuses to update its link"),
    }
}

fn attach(entry: &mut Program, name: &str, device: u32, mode: XdpMode) -> Result<FdLink> {
    match entry {
        Program::Xdp(entry) => {
            make_way(device)?;
            let link = attach_xdp(mode, |place| entry.attach_to_if_index(device, place))?;
            Ok(FdLink::try_from(entry.take_link(link)?)?)
        }
        Program::SchedClassifier(entry) => entry
            .attach_with_options(
                name,
                TcAttachType::Egress,
                TcAttachOptions::TcxOrder(LinkOrder::last()),
            )
            .map_err(anyhow::Error::from)
            .and_then(|link| Ok(FdLink::try_from(entry.take_link(link)?)?))
            .context("it takes no program at tcx, which Linux 6.6 was the first to have, or has 64 there already"),
        _ => bail!("an entry is for one of the hooks"),
    }
}

fn is_without_device(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(SyscallError { io_error, .. }) = error else {
        return false;
    };
    io_error.raw_os_error() == Some(ENOLINK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_known_by_its_name() {
        for (hook, name) in [(Hook::Xdp, "4"), (Hook::Tcx, "4-tcx")] {
            let linked = Linked { hook, device: 4 };
            assert_eq!(linked.pin("/l".as_ref()), Path::new("/l").join(name));
            assert_eq!(Linked::of_name(name), Some(linked));
        }
        assert_eq!(Linked::of_name("4-xdp"), None);
    }
}
