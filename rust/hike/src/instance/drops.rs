// SPDX-License-Identifier: GPL-2.0

//! The programs that count what ports drop after a packet was sent to them: at tracepoints of the kernel's, if it describes its own
//! structures (BTF).

use std::path::Path as FilePath;

use anyhow::{bail, Context as _, Result};
use aya::maps::MapData;
use aya::programs::links::FdLink;
use aya::programs::Program;
use aya::{Btf, Ebpf};
use aya_obj::btf::BtfKind;

use super::loader;

/// The kernel's description of itself.
const DESCRIPTION: &str = "/sys/kernel/btf/vmlinux";
/// The programs, and the tracepoints that they are for.
const PROGRAMS: [(&str, &str); 2] = [
    ("hike_redirect_err", "xdp_redirect_err"),
    ("hike_devmap_xmit", "xdp_devmap_xmit"),
];

/// The links of the programs, which count as long as they are there.
#[derive(Debug)]
pub(crate) struct Drops([FdLink; 2]);

impl Drops {
    /// Begins to count for the instance in a folder; `None`: this kernel does not describe itself, or has no such tracepoints.
    pub(crate) fn count(folder: &FilePath) -> Result<Option<Self>> {
        let Some(description) = description()? else {
            return Ok(None);
        };
        let ports = MapData::from_pin(folder.join("ports")).context("cannot open the ports")?;
        let mut object = loader::drops(folder, &description, ports.info()?.id())?;
        let [one, other] =
            PROGRAMS.map(|(name, tracepoint)| attach(&mut object, &description, name, tracepoint));
        Ok(Some(Self([one?, other?])))
    }

    /// Lets them count on when their process ends, by files in a folder.
    pub(crate) fn stay(self, folder: &FilePath) -> Result<()> {
        for (link, (name, _)) in self.0.into_iter().zip(PROGRAMS) {
            let pinned = link.pin(folder.join(name));
            pinned.with_context(|| format!("cannot pin {name}"))?;
        }
        Ok(())
    }

    /// Returns whether they have stayed.
    pub(crate) fn are_in(folder: &FilePath) -> bool {
        PROGRAMS.iter().all(|(name, _)| folder.join(name).exists())
    }
}

/// Returns the kernel's description of itself if it has the tracepoints.
fn description() -> Result<Option<Btf>> {
    if !FilePath::new(DESCRIPTION).exists() {
        return Ok(None);
    }
    let description = Btf::from_sys_fs().with_context(|| format!("cannot read {DESCRIPTION}"))?;
    let has = |(_, tracepoint): &(&str, &str)| {
        let name = format!("btf_trace_{tracepoint}");
        description
            .id_by_type_name_kind(&name, BtfKind::Typedef)
            .is_ok()
    };
    let has_all = PROGRAMS.iter().all(has);
    Ok(has_all.then_some(description))
}

fn attach(object: &mut Ebpf, description: &Btf, name: &str, tracepoint: &str) -> Result<FdLink> {
    let Program::BtfTracePoint(program) = loader::program(object, name)? else {
        bail!("{name} is for no tracepoint");
    };
    program
        .load(tracepoint, description)
        .with_context(|| format!("the kernel refuses {name}"))?;
    let link = program.attach()?;
    Ok(program.take_link(link)?.into())
}
