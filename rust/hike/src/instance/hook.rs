// SPDX-License-Identifier: GPL-2.0

//! Hooks: where in the kernel an instance gets packets, and how it is attached there.

use std::fmt;

use anyhow::{bail, Context as _, Result};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::xdp::{XdpLinkId, XdpMode};
use aya::programs::{Program, TcAttachType};
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

/// The link that attaches an entry to a device; the entry owns it.
pub(crate) enum Attached {
    Xdp(XdpLinkId),
    Tcx(SchedClassifierLinkId),
}

/// Directs packets of a device, in the calling thread's network namespace, to an entry: at tcx, behind all programs that are
/// there.
pub(crate) fn attach(entry: &mut Program, device: &str) -> Result<Attached> {
    realtime::refuse()?;
    match entry {
        Program::Xdp(entry) => {
            let link = entry.attach(device, XdpMode::Default);
            let link = link.with_context(|| format!("{device} takes no XDP program"))?;
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
    use super::*;

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
