// SPDX-License-Identifier: GPL-2.0

//! Hooks: where in the kernel an instance gets packets, and how it is attached there.

use std::fmt;

use anyhow::{bail, Context as _, Error, Result};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::xdp::{XdpLinkId, XdpMode as Place};
use aya::programs::{Program, ProgramError, TcAttachType};
use aya::sys::SyscallError;
use serde::{Deserialize, Serialize};

use super::realtime;
use crate::config::chain::Chain;

/// The point at which an instance gets packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Packets that devices receive, in the driver if it can.
    #[default]
    Xdp,
    /// Packets that leave by devices: the host's own packets, and those that the kernel forwards. Linux 6.6 and newer.
    Tcx,
}

impl Hook {
    /// Fails with what of a chain does not run here.
    pub fn check(self, chain: &Chain) -> Result<()> {
        let mut programs = chain.programs().iter();
        if let Some(program) = programs.find(|program| self == Self::Tcx && !program.at_tcx) {
            bail!(
                "{} runs at {} alone, and this instance is at {self}, where packets leave; take it out of the chain",
                program.name,
                Self::Xdp
            );
        }
        Ok(())
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xdp => "XDP",
            Self::Tcx => "tcx",
        })
    }
}

/// The part of the kernel that runs the programs of an instance at XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// The driver, before it has made anything of a frame. A device whose driver cannot do that is refused.
    #[default]
    Native,
    /// The driver if it can, else the stack, when there is a packet of its own kind for the frame already: generic XDP, which is slower.
    Generic,
}

/// Attaches an entry at XDP by `attach`, as a mode allows it.
pub(super) fn attach_xdp<T>(
    mode: XdpMode,
    mut attach: impl FnMut(Place) -> Result<T, ProgramError>,
) -> Result<T> {
    let attached = match (attach(Place::Driver), mode) {
        (Err(error), XdpMode::Generic) if is_unsupported(&error) => attach(Place::Skb),
        (attached, _) => attached,
    };
    attached.map_err(|error| {
        let why = match is_unsupported(&error) {
            true => "its driver runs no XDP programs, or not as the device is set up; with mode = \"generic\" the stack runs them, which is slower",
            false => "it takes no XDP program, or has another one already",
        };
        Error::new(error).context(why)
    })
}

fn is_unsupported(error: &ProgramError) -> bool {
    let ProgramError::SyscallError(SyscallError { io_error, .. }) = error else {
        return false;
    };
    io_error.raw_os_error() == Some(libc::EOPNOTSUPP)
}

/// The link that attaches an entry to a device; the entry owns it.
pub(crate) enum Attached {
    Xdp(XdpLinkId),
    Tcx(SchedClassifierLinkId),
}

/// Directs packets of a device, in the calling thread's network namespace, to an entry: at tcx, behind all programs that are
/// there.
pub(crate) fn attach(entry: &mut Program, device: &str, mode: XdpMode) -> Result<Attached> {
    realtime::refuse()?;
    match entry {
        Program::Xdp(entry) => {
            let link = attach_xdp(mode, |place| entry.attach(device, place));
            let link = link.with_context(|| format!("device {device}"))?;
            Ok(Attached::Xdp(link))
        }
        Program::SchedClassifier(entry) => {
            // Not without the order: older kernels would then have it as a filter, which outlives the instance.
            let last = TcAttachOptions::TcxOrder(LinkOrder::last());
            let link = entry.attach_with_options(device, TcAttachType::Egress, last);
            let link = link.with_context(|| {
                format!("{device} takes no program at tcx, which Linux 6.6 was the first to have")
            })?;
            Ok(Attached::Tcx(link))
        }
        _ => bail!("an entry is for one of the hooks"),
    }
}

/// Stops directing packets of a device to an entry.
pub(crate) fn detach(entry: &mut Program, attached: Attached) -> Result<()> {
    match (entry, attached) {
        (Program::Xdp(entry), Attached::Xdp(link)) => entry.detach(link)?,
        (Program::SchedClassifier(entry), Attached::Tcx(link)) => entry.detach(link)?,
        _ => bail!("an entry is for one of the hooks"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Attaches where a driver refuses with this error; returns where that was tried, and what was said.
    fn tried(mode: XdpMode, code: i32) -> (Vec<Place>, Option<String>) {
        let mut places = Vec::new();
        let attached = attach_xdp(mode, |place| {
            places.push(place);
            match place {
                Place::Driver => Err(ProgramError::SyscallError(SyscallError {
                    call: "bpf_link_create",
                    io_error: io::Error::from_raw_os_error(code),
                })),
                _ => Ok(()),
            }
        });
        (places, attached.err().map(|error| error.to_string()))
    }

    #[test]
    fn the_stack_runs_programs_only_where_that_is_asked_for() {
        let (places, said) = tried(XdpMode::Native, libc::EOPNOTSUPP);
        assert_eq!(places, [Place::Driver]);
        assert!(said.is_some_and(|said| said.contains("with mode = \"generic\"")));
        let (places, said) = tried(XdpMode::Generic, libc::EOPNOTSUPP);
        assert_eq!((places, said), (vec![Place::Driver, Place::Skb], None));
        // Another program is there, which is no reason to run in another place.
        let (places, said) = tried(XdpMode::Generic, libc::EBUSY);
        assert_eq!(places, [Place::Driver]);
        assert!(said.is_some_and(|said| said.contains("has another one already")));
    }

    #[test]
    fn what_is_for_local_sids_runs_at_xdp_alone() {
        let check = |hook: Hook, text: &str| hook.check(&text.parse().expect(text));
        for text in ["end,fw-fib", "mon-out,dec", "acl,end-x"] {
            assert!(check(Hook::Xdp, text).is_ok());
            let refused = check(Hook::Tcx, text).expect_err(text).to_string();
            assert!(refused.contains("runs at XDP alone"), "{refused}");
        }
        for text in [
            "acl,enc,mon-in,mon-out,fw-fib",
            "fw-table",
            "fw-kernel",
            "drop",
        ] {
            assert!(check(Hook::Xdp, text).is_ok() && check(Hook::Tcx, text).is_ok());
        }
    }
}
