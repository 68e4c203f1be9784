// SPDX-License-Identifier: GPL-2.0

//! The programs with which the kernel itself moves the epoch, `c-shims/hike/epoch.bpf.c`: no process has to run for that.
//!
//! All of them are there, or none: an instance that is told of some changes alone would trust entries that are old.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::Program;
use aya::{Btf, Ebpf};
use aya_obj::btf::BtfKind;
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::loader;
use crate::tables::epoch::Epoch;

/// Functions of the kernel behind which the epoch moves, and tracepoints at which neighbours are looked at. The programs have their
/// names.
const FUNCTIONS: [&str; 7] = [
    "rtnetlink_rcv_msg",
    "rt_cache_flush",
    "fib6_add",
    "fib6_del",
    "fib6_clean_all",
    "fib6_clean_all_skip_notify",
    "nh_netdev_event",
];
const TRACEPOINTS: [&str; 4] = [
    "neigh_update_done",
    "neigh_timer_handler",
    "neigh_event_send_done",
    "neigh_cleanup_and_release",
];
/// Functions that do what only newer kernels can. A kernel without one does nothing there that an entry could miss.
const NEWER_FUNCTIONS: [&str; 1] = ["nh_res_table_upkeep_dw"];
/// The kernel's list of its functions.
const SYMBOLS: &str = "/proc/kallsyms";

/// The number of times that each program is loaded. The kernel skips one that this CPU runs already, as when an interrupt changes a
/// neighbour while the program looks at another: then the second one runs.
const COPIES: usize = 2;

/// The programs of an instance, by the names of their pins, attached until the end of the scope, or until they [stay](Self::stay).
pub(crate) struct Tracing(Vec<(String, FdLink)>);

fn pin(place: &str, copy: usize) -> String {
    format!("traced_{place}_{copy}")
}

/// Returns the names of the pins of programs at these places.
fn pins<const N: usize>(places: [&'static str; N]) -> impl Iterator<Item = String> {
    let copies = |place| (0..COPIES).map(move |copy| pin(place, copy));
    places.into_iter().flat_map(copies)
}

/// Returns whether the programs of the instance in a folder stay there, all of them: those that not each kernel has are pinned first.
pub(crate) fn stays(folder: &Path) -> bool {
    let mut all = pins(FUNCTIONS).chain(pins(TRACEPOINTS));
    all.all(|name| folder.join(name).exists())
}

/// Lets the programs of an instance serve another one, too, which has its epoch.
pub(crate) fn share(from: &Path, to: &Path) -> Result<()> {
    let newer = pins(NEWER_FUNCTIONS).filter(|name| from.join(name).exists());
    for name in newer.chain(pins(FUNCTIONS)).chain(pins(TRACEPOINTS)) {
        let pin_from = from.join(&name);
        let link = PinnedLink::from_pin(&pin_from);
        let link = link.with_context(|| format!("cannot open {}", pin_from.display()))?;
        let pin_to = to.join(name);
        let pinned = FdLink::from(link).pin(&pin_to);
        pinned.with_context(|| format!("cannot pin {}", pin_to.display()))?;
    }
    Ok(())
}

impl Tracing {
    /// Attaches the programs of the instance in a folder, which has to [trust](Epoch::trust_kernel) them then. Fails with what this kernel
    /// has not: what is attached by then goes.
    pub(crate) fn attach(folder: &Path, epoch: &Epoch) -> Result<Self> {
        let btf = Btf::from_sys_fs().context("the kernel says nothing of its own types")?;
        let mut objects = Vec::new();
        for _ in 0..COPIES {
            objects.push(loader::epoch(folder, &btf)?);
        }
        let mut tracing = Self(Vec::new());
        let newer = there(NEWER_FUNCTIONS, &btf)?;
        tracing.attach_at(&mut objects, &newer, &btf)?;
        tracing.attach_at(&mut objects, &FUNCTIONS, &btf)?;
        // Tracepoints would move it in any case.
        prove(epoch)?;
        tracing.attach_at(&mut objects, &TRACEPOINTS, &btf)?;
        Ok(tracing)
    }

    fn attach_at(&mut self, objects: &mut [Ebpf], places: &[&str], btf: &Btf) -> Result<()> {
        for place in places {
            for (copy, object) in objects.iter_mut().enumerate() {
                let program = loader::program(object, &format!("hike_{place}"))?;
                let link = attach(program, place, btf);
                let link = link.with_context(|| format!("cannot attach to {place}"))?;
                self.0.push((pin(place, copy), link));
            }
        }
        Ok(())
    }

    /// Leaves the programs where they are when the process ends.
    pub(crate) fn stay(self, folder: &Path) -> Result<()> {
        for (name, link) in self.0 {
            let pin = folder.join(name);
            link.pin(&pin)
                .with_context(|| format!("cannot pin {}", pin.display()))?;
        }
        Ok(())
    }
}

fn attach(program: &mut Program, place: &str, btf: &Btf) -> Result<FdLink> {
    match program {
        Program::FExit(program) => {
            program.load(place, btf)?;
            let link = program.attach()?;
            Ok(program.take_link(link)?.into())
        }
        Program::BtfTracePoint(program) => {
            program.load(place, btf)?;
            let link = program.attach()?;
            Ok(program.take_link(link)?.into())
        }
        _ => bail!("it is for no such place"),
    }
}

/// Returns those of these functions that this kernel has. One that it has, and does not describe, cannot be attached to.
fn there<const N: usize>(functions: [&'static str; N], btf: &Btf) -> Result<Vec<&'static str>> {
    let is_described = |name: &&str| btf.id_by_type_name_kind(name, BtfKind::Func).is_ok();
    // The list is long, and few kernels need it.
    if functions.iter().all(is_described) {
        return Ok(functions.to_vec());
    }
    listed(functions)
}

fn listed<const N: usize>(functions: [&'static str; N]) -> Result<Vec<&'static str>> {
    let symbols = File::open(SYMBOLS).map(BufReader::new);
    let there = symbols.and_then(|symbols| among(symbols, &functions));
    there.with_context(|| format!("cannot read {SYMBOLS}"))
}

/// Returns those of these functions that are in a list of symbols: address, kind and name, and perhaps a module.
fn among(symbols: impl BufRead, functions: &[&'static str]) -> io::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    for line in symbols.lines() {
        let line = line?;
        let name = line.split_whitespace().nth(2);
        let function = functions.iter().copied().find(|one| Some(*one) == name);
        found.extend(function.filter(|one| !found.contains(one)));
    }
    Ok(found)
}

/// Fails unless the kernel runs the programs that are attached to its functions: while `kernel.ftrace_enabled` is 0, it runs none, though
/// it attaches them.
fn prove(epoch: &Epoch) -> Result<()> {
    let before = epoch.number();
    request_nothing().context("cannot ask the kernel for a change of nothing")?;
    ensure!(
        epoch.number() != before,
        "the kernel does not run programs behind its functions; is kernel.ftrace_enabled 0?"
    );
    Ok(())
}

/// Asks for a change for which the kernel has no function, and so changes nothing: `RTM_NEWNETCONF`. It is done when this returns.
fn request_nothing() -> io::Result<()> {
    // The header says the length without the zeros at its end. A family of 0 is all that is behind it.
    const BYTES: u32 = 17;
    let mut request = [0; 20];
    request[..4].copy_from_slice(&BYTES.to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_NEWNETCONF.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    socket
        .send_to(&request, &SocketAddr::new(0, 0), 0)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_whole_names() -> io::Result<()> {
        let symbols = "0000000000000000 t __pfx_one\n\
                       0000000000000000 t one_and_more\n\
                       0000000000000000 t two [module]\n\
                       0000000000000000 T three\n";
        let found = among(symbols.as_bytes(), &["one", "two", "three"])?;
        assert_eq!(found, ["two", "three"]);
        Ok(())
    }

    #[test]
    fn this_kernel_lists_its_functions() -> Result<()> {
        assert_eq!(listed(["schedule", "no_such_function"])?, ["schedule"]);
        Ok(())
    }
}
