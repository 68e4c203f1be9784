// SPDX-License-Identifier: GPL-2.0

//! The class of a packet, and changes of chains and classes under packets: each packet sees the old or the new, and nothing in
//! between.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};

use aya::programs::{loaded_programs, TestRun, TestRunOptions, TestRunResult, Xdp};
use aya_obj::generated::bpf_prog_type::{BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP};
use aya_obj::programs::XdpAttachType;
use mflow_hike::config::manifest;
use mflow_hike::config::manifest::Program;
use mflow_hike::config::path::FlowLabel;
use mflow_hike::{
    Action, Behaviour, Class, Destination, Engine, Flavours, Hike, Hook, Path, PathId, Rule,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use crate::hike::model::frames;
use crate::hike::{instance, instance_at, Case, Scale, PINS, TEST_RUN_MAC};
use crate::machine::command::START;
use crate::machine::threads;

/// Entries of the ingress table, and look-ups in it.
const ENTRIES: usize = 1_000;
const LOOKUPS: usize = 2_000;
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
/// The programs that a chain has once, if it has them.
const ONCE: [&str; 2] = ["lanes", REFLECT];
/// The one of them behind which there is nothing but answers.
const REFLECT: &str = "reflect";
/// The number of instructions that the verifier may look at of one program: a fifth of its limit, because that number differs
/// between kernels by a factor of more than two.
const MOST_VERIFIED: u32 = 1_000_000 / 5;
/// Chains that are drawn, and loaded alone, in a run of all variants; else one.
const DRAWN_CHAINS: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "tables/longest-prefix",
            proves: "a packet has the class of its destination, else of the longest prefix, else the default, else none: then it stays as it is",
            run: longest_prefix,
        },
        Case {
            name: "tables/changes",
            proves: "chains and classes are replaced under packets, and each packet takes the old or the new one, whole",
            run: |scale| {
                changes(Engine::Compiled, scale.changes)?;
                changes(Engine::TailCalls, scale.changes)
            },
        },
        Case {
            name: "tables/longest-chains",
            proves: "the kernel's verifier takes chains of 16 programs, the dearest there are, far below its limit, and a packet gets to their end",
            run: |scale| {
                for hook in [Hook::Xdp, Hook::Tcx] {
                    longest_chains(hook, Engine::Compiled, scale)?;
                    longest_chains(hook, Engine::TailCalls, scale)?;
                }
                Ok(())
            },
        },
    ]
}

/// Returns a path that tells by its flow label which one it is.
pub(crate) fn path(label: u32) -> Path {
    Path {
        flow_label: FlowLabel::Fixed(label),
        ..Path::new(
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
            [Ipv6Addr::new(0xfc00, 1, 0, 0, 0, 0, 0, 1)],
        )
    }
}

fn longest_prefix(scale: &Scale) -> Result<()> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(scale.seed);
    let mut hike = instance(Engine::Compiled)?;
    let chain = hike.add_chain(&"enc,fw-kernel".parse()?)?;
    let mut entries: BTreeMap<Destination, u32> = BTreeMap::new();
    let add = |hike: &mut Hike, entries: &mut BTreeMap<_, _>, destination, label| {
        let path = hike.add_path(&path(label))?;
        let class = Class {
            chain,
            path: Some(path),
            lanes: None,
        };
        hike.set_class(destination, class)?;
        entries.insert(destination, label);
        anyhow::Ok(())
    };
    while entries.len() < ENTRIES {
        let (address, width) = draw_address(&mut rng);
        let bits = rng.random_range(1..=width);
        let destination = Destination::prefix(keep(address, bits), bits)?;
        // CAST: a thousand.
        let label = entries.len() as u32 + 1;
        if !entries.contains_key(&destination) {
            add(&mut hike, &mut entries, destination, label)?;
        }
    }
    check(&mut hike, &entries, None, &mut rng)?;
    add(&mut hike, &mut entries, Destination::Default, 0xabcde)?;
    check(&mut hike, &entries, Some(0xabcde), &mut rng)?;
    // That has all of IPv4, and IPv6 keeps the default.
    add(&mut hike, &mut entries, "0.0.0.0/0".parse()?, 0x12345)?;
    check(&mut hike, &entries, Some(0xabcde), &mut rng)?;
    let some: Vec<Destination> = entries.keys().copied().step_by(2).collect();
    // Then all of half of the lengths.
    let is_even = |one: &Destination| !matches!(one, Destination::Prefix(_, bits) if bits % 2 == 1);
    let of_lengths: Vec<Destination> = entries.keys().copied().filter(is_even).collect();
    for gone in [some, of_lengths] {
        for destination in gone {
            if entries.remove(&destination).is_some() {
                hike.remove_class(destination)?;
            }
        }
        let default = entries.get(&Destination::Default).copied();
        check(&mut hike, &entries, default, &mut rng)?;
    }
    Ok(())
}

/// The first bits of all drawn addresses, to which routers forward.
const IPV4_PART: u32 = 16 << 24;
const IPV6_PART: u128 = 0x20 << 120;

/// Draws an address out of few enough that many are in many prefixes.
fn draw_address(rng: &mut Xoshiro256PlusPlus) -> (IpAddr, u8) {
    let sparse: u32 = rng.random::<u32>() & rng.random::<u32>() & rng.random::<u32>() & 0x0fff_ffff;
    if rng.random() {
        (Ipv4Addr::from(sparse | IPV4_PART).into(), 32)
    } else {
        let bits = u128::from(sparse) << rng.random_range(0..96);
        (Ipv6Addr::from(bits | IPV6_PART).into(), 128)
    }
}

fn keep(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl((32 - bits).into()).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl((128 - bits).into()).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

fn check(
    hike: &mut Hike,
    entries: &BTreeMap<Destination, u32>,
    default: Option<u32>,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<()> {
    for _ in 0..LOOKUPS {
        let (address, width) = draw_address(rng);
        // The simplest search there is: from the longest prefix down.
        let found = (0..=width).rev().find_map(|bits| {
            let destination = Destination::prefix(keep(address, bits), bits).ok()?;
            entries.get(&destination).copied()
        });
        let sent = frame(address);
        let seen = run(hike.dispatcher()?, &sent)?;
        let expected = found.or(default);
        ensure!(
            label(&sent, &seen) == expected,
            "{address} has {:?}, and should have {expected:?}",
            label(&sent, &seen)
        );
    }
    Ok(())
}

/// Returns a packet with nothing in it.
pub(crate) fn frame(destination: IpAddr) -> Vec<u8> {
    let mut frame = [TEST_RUN_MAC, [2; 6]].concat();
    match destination {
        IpAddr::V4(destination) => {
            frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1]);
            frame.extend(destination.octets());
        }
        IpAddr::V6(destination) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64]);
            frame.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xa).octets());
            frame.extend(destination.octets());
        }
    }
    frame
}

/// Returns the packet of IPv6 with an SRH of this many segments, which are all left but one.
fn with_segments(frame: &[u8], count: u8) -> Vec<u8> {
    let (ethernet, ip) = frame.split_at(ETHERNET_BYTES);
    let (ip, payload) = ip.split_at(IPV6_BYTES);
    let mut ip = ip.to_vec();
    let mut srh = vec![ip[6], 2 * count, 4, count - 1, count - 1, 0, 0, 0];
    srh.extend(frames::sids(count).iter().flat_map(Ipv6Addr::octets));
    ip[6] = 43;
    // CAST: some hundred bytes.
    ip[4..6].copy_from_slice(&((srh.len() + payload.len()) as u16).to_be_bytes());
    [ethernet, &ip, &srh, payload].concat()
}

pub(crate) fn run<P>(program: &P, frame: &[u8]) -> Result<Vec<u8>>
where
    P: for<'a> TestRun<Opts<'a> = TestRunOptions<'a>, Result = TestRunResult>,
{
    let mut out = vec![0; 2_048];
    let result = program.test_run(TestRunOptions {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ..TestRunOptions::default()
    })?;
    out.truncate(result.data_size_out as usize);
    Ok(out)
}

/// Returns the flow label of the outermost header that was put in front; `None`: the packet is as it was.
fn label(sent: &[u8], seen: &[u8]) -> Option<u32> {
    let header = seen.get(ETHERNET_BYTES..ETHERNET_BYTES + 4)?;
    let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    (sent != seen).then_some(word & 0xfffff)
}

/// Two chains that put one or three headers in front, two paths, and all changes between them.
fn changes(engine: Engine, count: u32) -> Result<()> {
    let mut hike = instance(engine)?;
    let chains = ["enc,fw-kernel", "enc,enc,enc,fw-kernel"];
    let chains = [chains[0].parse()?, chains[1].parse()?];
    let paths = [hike.add_path(&path(1))?, hike.add_path(&path(2))?];
    // These two keep both loaded, so that a change is one of tables only.
    let fixed = [hike.add_chain(&chains[0])?, hike.add_chain(&chains[1])?];
    let changing = hike.add_chain(&chains[0])?;
    let by_chain = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let by_class = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
    let class = |chain, path: PathId| Class {
        chain,
        path: Some(path),
        lanes: None,
    };
    hike.set_class(Destination::Address(by_chain), class(changing, paths[0]))?;
    hike.set_class(Destination::Address(by_class), class(fixed[0], paths[0]))?;
    let program = entry_of(&mut hike)?;
    let kinds = [
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
        AtomicU64::new(0),
    ];
    let watch = |stop: &AtomicBool| {
        thread::scope(|scope| {
            let threads = [by_chain, by_class].map(|to| {
                let (program, kinds) = (&program, &kinds);
                scope.spawn(move || watch(program, to, to == by_class, kinds, stop))
            });
            threads::results(threads.map(thread::ScopedJoinHandle::join)).map(drop)
        })
    };
    threads::beside(watch, || {
        let start = Instant::now();
        // ORDERING: A count that nothing else depends on.
        let none = |packets: &AtomicU64| packets.load(Ordering::Relaxed) == 0;
        let missing = || kinds.iter().any(none);
        // Longer only if the threads that send have not had their turn.
        for change in 0.. {
            if change >= count && (!missing() || start.elapsed() > START) {
                break;
            }
            let to = usize::from(change % 2 == 1);
            hike.replace_chain(changing, &chains[to])?;
            hike.set_class(Destination::Address(by_class), class(fixed[to], paths[to]))?;
        }
        Ok(())
    })?;
    let seen = kinds.map(AtomicU64::into_inner);
    ensure!(
        seen.iter().all(|&packets| packets > 0),
        "of the old and the new, packets saw {seen:?}: not all"
    );
    Ok(())
}

/// Returns the entry of an instance, which can be run while the instance is changed.
pub(crate) fn entry_of(hike: &mut Hike) -> Result<Xdp> {
    let pin = FilePath::new(PINS).join("entry");
    hike.dispatcher()?.pin(&pin)?;
    let entry = Xdp::from_pin(&pin, XdpAttachType::Interface)?;
    fs::remove_file(&pin)?;
    Ok(entry)
}

/// Sends one packet after the other, and looks what has become of each.
fn watch(
    program: &Xdp,
    to: IpAddr,
    by_class: bool,
    kinds: &[AtomicU64; 4],
    stop: &AtomicBool,
) -> Result<()> {
    let sent = frame(to);
    // ORDERING: Nothing else depends on it.
    while !stop.load(Ordering::Relaxed) {
        let seen = run(program, &sent)?;
        let headers = (seen.len() - sent.len()) / (IPV6_BYTES + 24);
        let label = label(&sent, &seen).context("the packet came out as it went in")?;
        let kind = match (by_class, headers, label) {
            (false, 1, 1) => 0,
            (false, 3, 1) => 1,
            (true, 1, 1) => 2,
            (true, 3, 2) => 3,
            mixture => {
                anyhow::bail!("a packet took a mixture: by class, headers, label: {mixture:?}")
            }
        };
        // ORDERING: A count that is read after all threads have ended.
        kinds[kind].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn longest_chains(hook: Hook, engine: Engine, scale: &Scale) -> Result<()> {
    let mut verified = Verified {
        until: newest_program(),
    };
    let mut hike = instance_at(hook, engine)?;
    let path = hike.add_path(&path(1))?;
    let here = |one: &&Program| hook == Hook::Xdp || one.at_tcx;
    let of = |ends| {
        let programs = manifest::programs().iter().filter(here);
        let programs = programs.filter(move |one| one.ends == ends && !ONCE.contains(&one.name));
        let programs = programs.filter(|one| !one.needs_answer);
        programs.map(|program| program.name).collect::<Vec<_>>()
    };
    let once = manifest::programs().iter().filter(here);
    let once: Vec<&str> = once
        .map(|one| one.name)
        .filter(|name| ONCE.contains(name))
        .collect();
    let (between, last) = (of(false), of(true));
    let mixed = between.iter().copied().cycle().take(15 - once.len());
    let mixed: Vec<&str> = mixed.chain(once).collect();
    let alone = between.iter().map(|name| vec![*name; 15]);
    let to = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    // What `enc` has put on, the next `end` takes off again.
    let flavours = Flavours {
        usd: true,
        ..Flavours::default()
    };
    let behaviour = hike.add_behaviour(&Behaviour::End { flavours })?;
    hike.set_rules(&[Rule::all(Action::Allow)])?;
    let mut sent = with_segments(&frame(to.into()), 16);
    if hook == Hook::Tcx {
        // The loopback device has this address, and sends the packet.
        sent[..6].fill(0);
    }
    for names in alone.chain([mixed]) {
        // An answer is from an address of this host, so the kernel would not take it.
        let end = if names.contains(&REFLECT) {
            "send-back"
        } else {
            "fw-fib"
        };
        let text = format!("{},{end}", names.join(","));
        let class = Class {
            chain: hike.add_chain(&text.parse()?)?,
            path: Some(path),
            lanes: None,
        };
        let instructions = verified.since(&text)?;
        println!(
            "{hook}, {engine:?}: the verifier looked at {instructions} instructions for {text}"
        );
        hike.set_local_sid(Destination::Default, class, behaviour)?;
        let before = hike.reasons()?;
        match hook {
            Hook::Xdp => run(hike.dispatcher()?, &sent)?,
            Hook::Tcx => run(hike.classifier()?, &sent)?,
        };
        let after = hike.reasons()?;
        let grown = after
            .iter()
            .zip(&before)
            .find(|(after, before)| after.1 > before.1);
        let reason = grown.context("the packet was not counted")?.0 .0.name;
        // There is no room for this many outer headers (at tcx, the kernel doubles the buffer for each), and no route for the packet,
        // if this namespace forwards any.
        let expected = if names.iter().all(|name| *name == "enc") {
            &["no-headroom"][..]
        } else if names.contains(&REFLECT) {
            &["no-test"][..]
        } else {
            &["fw-no-route", "fw-disabled"]
        };
        ensure!(
            expected.contains(&reason),
            "{text}: {reason}, and not {expected:?}"
        );
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(scale.seed);
    let drawn = match engine {
        Engine::Compiled if scale.whole => DRAWN_CHAINS,
        Engine::Compiled => 1,
        // All its programs are loaded by now.
        Engine::TailCalls => 0,
    };
    for _ in 0..drawn {
        let text = draw_chain(&mut rng, &between, &last)?;
        let chain = hike.add_chain(&text.parse()?)?;
        verified.since(&text)?;
        hike.remove_chain(chain)?;
    }
    Ok(())
}

/// Draws a chain of 16 programs; only one kind of them needs a behaviour, as a class has one.
fn draw_chain(
    rng: &mut Xoshiro256PlusPlus,
    between: &[&'static str],
    last: &[&'static str],
) -> Result<String> {
    let needs = |name: &str| manifest::find(name).is_some_and(|program| program.needs_behaviour);
    let draw = |rng: &mut Xoshiro256PlusPlus, names: &[&'static str]| {
        names.get(rng.random_range(0..names.len())).copied()
    };
    let end = draw(rng, last).context("no program ends chains")?;
    let mut names = Vec::new();
    while names.len() < 15 {
        let name = draw(rng, between).context("no program goes on")?;
        if !(needs(end) && needs(name)) {
            names.push(name);
        }
    }
    names.push(end);
    Ok(names.join(","))
}

/// The number of instructions that the verifier has looked at, for one chain after the other.
struct Verified {
    /// The last program that was there when it was asked for.
    until: u32,
}

impl Verified {
    /// Returns the most that it has looked at for one program of either hook that was loaded since; fails if that is too much.
    fn since(&mut self, chain: &str) -> Result<u32> {
        let newest = newest_program();
        let mut most = 0;
        // One that goes away meanwhile is none of ours.
        for program in loaded_programs().flatten() {
            let kind = program.program_type();
            let is_of_hook = matches!(kind, BPF_PROG_TYPE_XDP | BPF_PROG_TYPE_SCHED_CLS);
            if program.id() <= self.until || !is_of_hook {
                continue;
            }
            let instructions = program.verified_instruction_count();
            let instructions = instructions
                .context("the kernel does not say what its verifier looked at: 5.16 does")?;
            most = most.max(instructions);
        }
        self.until = newest;
        ensure!(most > 0, "{chain}: no program of it was loaded");
        ensure!(
            most <= MOST_VERIFIED,
            "{chain}: the verifier looked at {most} instructions, and {MOST_VERIFIED} are allowed"
        );
        Ok(most)
    }
}

/// Returns the number of the program that was loaded last: numbers grow.
fn newest_program() -> u32 {
    let programs = loaded_programs().flatten();
    programs.map(|program| program.id()).max().unwrap_or(0)
}
