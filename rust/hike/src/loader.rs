// SPDX-License-Identifier: GPL-2.0

//! Objects into the kernel. All of an instance share their maps, which are pinned in its folder by name.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{bail, Context as _, Result};
use aya::maps::{Map, MapData, MapError};
use aya::programs::{Program, ProgramFd};
use aya::{include_bytes_aligned, Ebpf, EbpfLoader};

use crate::chain::Chain;
use crate::hook::Hook;

static DISPATCHER: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dispatcher.o"));
static COMPILED: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/compiled.o"));
static TAIL_CALLS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tail_calls.o"));
static DISPATCHER_TCX: &[u8] =
    include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dispatcher_tcx.o"));
static COMPILED_TCX: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/compiled_tcx.o"));
static TAIL_CALLS_TCX: &[u8] =
    include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tail_calls_tcx.o"));
static BASELINE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/baseline.o"));

/// The constant of the objects that are loaded for one chain each.
const CHAIN: &str = "hike_chain";

/// Makes the maps of the dispatcher, and loads it.
pub(crate) fn dispatcher(hook: Hook, folder: &Path) -> Result<Ebpf> {
    let bytes = match hook {
        Hook::Xdp => DISPATCHER,
        Hook::Tcx => DISPATCHER_TCX,
    };
    let mut object = object(folder, bytes, None)?;
    load(&mut object, DISPATCHER_PROGRAM)?;
    Ok(object)
}

pub(crate) const DISPATCHER_PROGRAM: &str = "hike_dispatcher";

/// Loads one program that is a whole chain.
pub(crate) fn compiled(hook: Hook, folder: &Path, chain: &Chain) -> Result<ProgramFd> {
    let bytes = match hook {
        Hook::Xdp => COMPILED,
        Hook::Tcx => COMPILED_TCX,
    };
    of_chain(folder, bytes, chain, "hike_compiled")
}

/// Loads the program that begins a chain of tail calls.
pub(crate) fn chain_start(hook: Hook, folder: &Path, chain: &Chain) -> Result<ProgramFd> {
    of_chain(folder, calls_of(hook), chain, "hike_start_chain")
}

/// Makes the maps of the programs that chains are made of, and loads none of them yet.
pub(crate) fn tail_calls(hook: Hook, folder: &Path) -> Result<Ebpf> {
    object(folder, calls_of(hook), None)
}

fn calls_of(hook: Hook) -> &'static [u8] {
    match hook {
        Hook::Xdp => TAIL_CALLS,
        Hook::Tcx => TAIL_CALLS_TCX,
    }
}

/// Makes the map of what chains are measured against, which nobody shares, and loads none of its programs yet.
pub(crate) fn baseline() -> Result<Ebpf> {
    let object = EbpfLoader::new().btf(None).load(BASELINE);
    object.context("cannot make the map of the baseline")
}

/// Loads a program of an object; returns what refers to it.
pub(crate) fn load(object: &mut Ebpf, name: &str) -> Result<ProgramFd> {
    let program = program(object, name)?;
    match program {
        Program::Xdp(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        _ => bail!("{name} is for no hook that is used here"),
    }
    .with_context(|| format!("the kernel refuses {name}"))?;
    Ok(program.fd()?.try_clone()?)
}

/// Returns a program of an object.
pub(crate) fn program<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut Program> {
    let program = object.program_mut(name);
    program.with_context(|| format!("no program {name}"))
}

/// Opens a map of an instance.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Map> {
    let path = folder.join(name);
    let data =
        MapData::from_pin(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Map::from_map_data(data)?)
}

/// Whether a map has refused because there is no such entry.
pub(crate) fn is_not_there(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound | MapError::ElementNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Says of a map that is full that it is, and how many entries it has.
pub(crate) fn or_full(
    written: Result<(), MapError>,
    what: &'static str,
    most: usize,
) -> Result<()> {
    match written {
        Err(error) if is_full(&error) => {
            bail!("there are {most} {what} already, and no more are allowed")
        }
        written => Ok(written?),
    }
}

/// Whether a map has refused because it is full.
pub(crate) fn is_full(error: &MapError) -> bool {
    // A trie says the one, all others the other.
    const FULL: [i32; 2] = [libc::ENOSPC, libc::E2BIG];
    let MapError::SyscallError(error) = error else {
        return false;
    };
    let code = error.io_error.raw_os_error();
    code.is_some_and(|code| FULL.contains(&code))
}

/// Returns a number that tells the programs of this crate from those of another version.
pub fn fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    (DISPATCHER, COMPILED, TAIL_CALLS).hash(&mut hasher);
    (DISPATCHER_TCX, COMPILED_TCX, TAIL_CALLS_TCX).hash(&mut hasher);
    hasher.finish()
}

/// Only the program stays: it keeps the maps that it uses, and the chain's constant.
fn of_chain(folder: &Path, bytes: &[u8], chain: &Chain, name: &str) -> Result<ProgramFd> {
    let mut object = object(folder, bytes, Some(chain))?;
    load(&mut object, name).with_context(|| format!("cannot load chain {chain}"))
}

fn object(folder: &Path, bytes: &[u8], chain: Option<&Chain>) -> Result<Ebpf> {
    let numbers = chain.map(Chain::numbers);
    let mut loader = EbpfLoader::new();
    // What runs here needs to know nothing of the kernel's own types.
    loader.btf(None).default_map_pin_directory(folder);
    if let Some(numbers) = &numbers {
        loader.override_global(CHAIN, &numbers[..], true);
    }
    loader
        .load(bytes)
        .with_context(|| format!("cannot make the maps in {}", folder.display()))
}
