// SPDX-License-Identifier: GPL-2.0

//! Objects into the kernel. All of an instance share their maps, which are pinned in its folder by name.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;

use anyhow::{anyhow, bail, Context as _, Error, Result};
use aya::programs::{Program, ProgramError, ProgramFd};
use aya::{include_bytes_aligned, Btf, Ebpf, EbpfLoader};
use rustix::time::{clock_getres, ClockId};

use super::hook::Hook;
use crate::config::cache::{Cache, Caching};
use crate::config::chain::Chain;

static DISPATCHER: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dispatcher.o"));
static COMPILED: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/compiled.o"));
static TAIL_CALLS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tail_calls.o"));
static DISPATCHER_TCX: &[u8] =
    include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dispatcher_tcx.o"));
static COMPILED_TCX: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/compiled_tcx.o"));
static TAIL_CALLS_TCX: &[u8] =
    include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tail_calls_tcx.o"));
static EPOCH: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/epoch.o"));
static CLOCK: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/clock.o"));
static BASELINE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/baseline.o"));
static PASS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pass.o"));
static DROPS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/drops.o"));
static PROBE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe.o"));

/// The constants of the objects that are loaded for one chain each.
const CHAIN: &str = "hike_chain";
/// The constant of the object that counts drops: the kernel's number of the table of ports.
const PORTS_ID: &str = "hike_ports_id";
const LEARNS: &str = "hike_learns";
/// Those of all objects with chains, and of the dispatcher.
const HZ: &str = "hike_hz";
const CACHE_SHIFT: &str = "hike_cache_shift";
/// The map with the entries of the cache.
const ENTRIES: &str = "cache";

/// Makes the maps of the dispatcher, and loads it. Objects that are loaded later take the maps as they are.
pub(crate) fn dispatcher(hook: Hook, folder: &Path, caching: Caching) -> Result<Ebpf> {
    let bytes = match hook {
        Hook::Xdp => DISPATCHER,
        Hook::Tcx => DISPATCHER_TCX,
    };
    let (shift, entries) = match caching.cache {
        Cache::On => (caching.entries.shift(), caching.entries.get()),
        Cache::Off => (0, 1),
    };
    let mut loader = loader(folder);
    loader.override_global(CACHE_SHIFT, &shift, hook == Hook::Xdp);
    loader.map_max_entries(ENTRIES, entries);
    let mut object = made(&mut loader, folder, bytes).map_err(|error| with_size(error, entries))?;
    load(&mut object, DISPATCHER_PROGRAM)?;
    Ok(object)
}

/// Says of memory that the kernel has not what takes most of it.
fn with_size(error: Error, entries: u32) -> Error {
    let is_of_memory = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.raw_os_error() == Some(libc::ENOMEM))
    };
    if !error.chain().any(is_of_memory) {
        return error;
    }
    error.context(format!(
        "the kernel has no memory for tables with {entries} entries of the cache for each CPU; give it fewer (cache-entries)"
    ))
}

pub(crate) const DISPATCHER_PROGRAM: &str = "hike_dispatcher";
/// That which tells sources of packets that are too big, for chains of both engines; it is among the programs for tail calls.
pub(crate) const TELL_PROGRAM: &str = "hike_tell_call";

/// Loads one program that is a whole chain.
pub(crate) fn compiled(
    hook: Hook,
    folder: &Path,
    chain: &Chain,
    cache: Cache,
) -> Result<ProgramFd> {
    let bytes = match hook {
        Hook::Xdp => COMPILED,
        Hook::Tcx => COMPILED_TCX,
    };
    let loaded = of_chain(hook, folder, bytes, (chain, cache), "hike_compiled");
    loaded.map_err(|error| explained(error, chain))
}

/// Says of a chain that is too much for the verifier in one piece what else can be done: its log, of many lines, tells nobody.
fn explained(error: Error, chain: &Chain) -> Error {
    match error.downcast_ref() {
        Some(ProgramError::LoadError { io_error, .. })
            if io_error.raw_os_error() == Some(libc::E2BIG) =>
        {
            anyhow!(
                "{chain} is more than this kernel's verifier takes in one program; take programs out of it, or have chains run by \
                 tail calls (engine = \"tail-calls\")"
            )
        }
        _ => error,
    }
}

/// Loads the program that begins a chain of tail calls.
pub(crate) fn chain_start(
    hook: Hook,
    folder: &Path,
    chain: &Chain,
    cache: Cache,
) -> Result<ProgramFd> {
    let bytes = calls_of(hook);
    of_chain(hook, folder, bytes, (chain, cache), "hike_start_chain")
}

/// Makes the maps of the programs that chains are made of, and loads none of them yet.
pub(crate) fn tail_calls(hook: Hook, folder: &Path) -> Result<Ebpf> {
    let hz = hz();
    let mut loader = loader(folder);
    loader.override_global(HZ, &hz, hook == Hook::Xdp);
    made(&mut loader, folder, calls_of(hook))
}

/// Makes the maps of the programs that move the epoch, and loads none of them yet: they look at the kernel's own types.
pub(crate) fn epoch(folder: &Path, btf: &Btf) -> Result<Ebpf> {
    let mut loader = loader(folder);
    loader.btf(Some(btf));
    made(&mut loader, folder, EPOCH)
}

/// Loads the program that reads the kernel's jiffies.
pub(crate) fn clock(folder: &Path) -> Result<Ebpf> {
    let mut object = made(&mut loader(folder), folder, CLOCK)?;
    load(&mut object, CLOCK_PROGRAM)?;
    Ok(object)
}

pub(crate) const CLOCK_PROGRAM: &str = "hike_clock";

/// Returns the kernel's jiffies in a second: its coarse clocks move by one.
pub(crate) fn hz() -> u64 {
    const NS: u64 = 1_000_000_000;
    let jiffy = clock_getres(ClockId::MonotonicCoarse);
    // CAST: some milliseconds.
    let ns = (jiffy.tv_nsec as u64).clamp(1, NS);
    (NS + ns / 2) / ns
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

/// Loads the program of ports. Each time it is another one, which tells the link that it is attached by.
pub(crate) fn pass() -> Result<Ebpf> {
    let object = EbpfLoader::new().btf(None).load(PASS);
    let mut object = object.context("cannot load the program of ports")?;
    load(&mut object, PASS_PROGRAM)?;
    Ok(object)
}

pub(crate) const PASS_PROGRAM: &str = "hike_pass";

/// Opens the maps of the programs that count drops of these ports, and loads none of the programs yet.
pub(crate) fn drops(folder: &Path, description: &Btf, ports: u32) -> Result<Ebpf> {
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(description))
        .default_map_pin_directory(folder)
        .override_global(PORTS_ID, &ports, true);
    let object = loader.load(DROPS);
    object.context("cannot load the programs that count what ports drop")
}

/// Returns the object that tries what the kernel can do, and loads none of its programs yet.
pub(crate) fn probe() -> Result<Ebpf> {
    let object = EbpfLoader::new().btf(None).load(PROBE);
    object.context("cannot read the object that tries what the kernel can do")
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

/// Returns a number that tells the programs of this crate from those of another version.
pub fn fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    (DISPATCHER, COMPILED, TAIL_CALLS).hash(&mut hasher);
    (DISPATCHER_TCX, COMPILED_TCX, TAIL_CALLS_TCX).hash(&mut hasher);
    (EPOCH, CLOCK).hash(&mut hasher);
    hasher.finish()
}

/// Loads the program of a chain. Only the program stays: it keeps the maps that it uses, and the chain's constant.
fn of_chain(
    hook: Hook,
    folder: &Path,
    bytes: &[u8],
    (chain, cache): (&Chain, Cache),
    name: &str,
) -> Result<ProgramFd> {
    let is_xdp = hook == Hook::Xdp;
    let (numbers, learns, hz) = (chain.numbers(), cache.learns(chain), hz());
    let mut loader = loader(folder);
    loader.override_global(CHAIN, &numbers[..], true);
    loader.override_global(LEARNS, &learns, is_xdp);
    loader.override_global(HZ, &hz, is_xdp);
    let mut object = made(&mut loader, folder, bytes)?;
    load(&mut object, name).with_context(|| format!("cannot load chain {chain}"))
}

fn loader<'a>(folder: &Path) -> EbpfLoader<'a> {
    let mut loader = EbpfLoader::new();
    // What packets run needs to know nothing of the kernel's own types.
    loader.btf(None).default_map_pin_directory(folder);
    loader
}

fn made(loader: &mut EbpfLoader<'_>, folder: &Path, bytes: &[u8]) -> Result<Ebpf> {
    loader
        .load(bytes)
        .with_context(|| format!("cannot make the maps in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use aya_obj::VerifierLog;

    use super::*;

    fn refused(code: i32) -> Result<String> {
        let refused = ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(code),
            verifier_log: VerifierLog::new("0: R1=ctx()\n1: R1=ctx()".to_owned()),
        };
        let chain = "mon-in,fw-fib".parse()?;
        let error = Error::new(refused).context("the kernel refuses hike_compiled");
        let error = error.context("cannot load chain mon-in,fw-fib");
        Ok(format!("{:#}", explained(error, &chain)))
    }

    #[test]
    fn memory_that_is_not_there_is_told_with_what_takes_it() {
        let of = |code| {
            let error = Error::new(io::Error::from_raw_os_error(code)).context("no map");
            format!("{:#}", with_size(error, 131_072))
        };
        let text = of(libc::ENOMEM);
        assert!(
            text.starts_with("the kernel has no memory for tables with 131072 entries of the cache for each CPU; give it fewer (cache-entries): no map: "),
            "{text}"
        );
        assert!(of(libc::EPERM).starts_with("no map: "));
    }

    #[test]
    fn chains_that_are_too_much_for_the_verifier_are_refused_with_what_to_try() -> Result<()> {
        let text = refused(libc::E2BIG)?;
        assert_eq!(
            text,
            "mon-in,fw-fib is more than this kernel's verifier takes in one program; take programs out of it, or have chains \
             run by tail calls (engine = \"tail-calls\")"
        );
        // Whatever else the verifier does not like, its log says what.
        let text = refused(libc::EACCES)?;
        assert!(
            text.starts_with("cannot load chain mon-in,fw-fib: the kernel refuses"),
            "{text}"
        );
        assert!(text.contains("R1=ctx()"), "{text}");
        Ok(())
    }
}
