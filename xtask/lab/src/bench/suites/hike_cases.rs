// SPDX-License-Identifier: GPL-2.0

//! HIKE's cases: what chains cost a router, beside the kernel's path that does the same, and beside a program that does nothing;
//! and what the hook costs a stream that ends here.

use mflow_protocol::bench::{Build, Engine, Front, Hook, Load, Packets, Router, Stack};

use super::cases::{self, Case, Mode, StackChoice, BATCH_PKTS};

/// Case names begin with it.
pub(crate) const PREFIX: &str = "hike-";
/// SIDs of a path where their number is not what differs.
const SIDS: u16 = 2;
/// Bytes per read of a stream, as in the papers.
const STREAM_BYTES: usize = 65_536;
/// Entries of a cache for 10,000 flows.
const ROOMY_ENTRIES: u32 = 32_768;
const ENC_MON_FW: &str = "enc,mon-in,fw-fib";

fn case(name: String, packets: Packets, flows: u16, modes: Vec<Mode>) -> Case {
    Case {
        name: format!("{PREFIX}{name}"),
        load: Load::Forwarded { packets, flows },
        modes,
        every_boot: false,
    }
}

fn mode(name: &'static str, router: Router) -> Mode {
    cases::mode(name, Stack::Router(router))
}

fn compiled(name: &'static str, programs: &str, sids: u16) -> Mode {
    chain(name, programs, Engine::Compiled, sids)
}

fn chain(name: &'static str, programs: &str, engine: Engine, sids: u16) -> Mode {
    mode(name, router(programs, engine, sids))
}

fn router(programs: &str, engine: Engine, sids: u16) -> Router {
    Router::Chain {
        programs: programs.to_owned(),
        hook: Hook::Xdp,
        lengths: 0,
        others: 0,
        engine,
        sids,
        cache: true,
        cache_entries: None,
    }
}

/// Returns the same without the cache.
fn uncached(mut mode: Mode) -> Mode {
    if let StackChoice::Stack(Stack::Router(Router::Chain { cache, .. })) = &mut mode.stack {
        *cache = false;
    }
    mode
}

/// Returns the same with a cache that has room for 10,000 flows.
fn roomy(mut mode: Mode) -> Mode {
    if let StackChoice::Stack(Stack::Router(Router::Chain { cache_entries, .. })) = &mut mode.stack
    {
        *cache_entries = Some(ROOMY_ENTRIES);
    }
    mode
}

fn at_tcx(name: &'static str, programs: &str, engine: Engine) -> Mode {
    let mut router = router(programs, engine, SIDS);
    if let Router::Chain { hook, .. } = &mut router {
        *hook = Hook::Tcx;
    }
    mode(name, router)
}

/// Returns a router whose packets have one of `classes` classes. The classes are of prefixes of `of_lengths` lengths, or of
/// addresses if that is 0.
fn among(name: &'static str, of_lengths: u8, classes: u32) -> Mode {
    let mut router = router("fw-table", Engine::Compiled, SIDS);
    if let Router::Chain {
        lengths,
        others,
        cache,
        ..
    } = &mut router
    {
        // It would know the class.
        (*lengths, *others, *cache) = (of_lengths, classes - 1, false);
    }
    mode(name, router)
}

fn kernel_enc(sids: u16) -> Mode {
    mode("kernel-enc", Router::KernelEncaps { sids })
}

/// Returns the case of every chain of an edge router, with one flow.
fn edge() -> Case {
    let modes = vec![
        kernel_enc(SIDS),
        mode("kernel-fw", Router::Kernel),
        mode("pass", Router::PassThrough),
        compiled("fw", "fw-fib", SIDS),
        uncached(compiled("fw-uncached", "fw-fib", SIDS)),
        uncached(compiled("fw-table", "fw-table", SIDS)),
        compiled("acl+fw", "acl,fw-table", SIDS),
        compiled("lanes+fw", "lanes,fw-table", SIDS),
        compiled("mon+fw", "mon-in,fw-fib", SIDS),
        uncached(compiled("mon+fw-uncached", "mon-in,fw-fib", SIDS)),
        compiled("enc+fw", "enc,fw-fib", SIDS),
        uncached(compiled("enc+fw-uncached", "enc,fw-fib", SIDS)),
        compiled("enc+mon+fw", ENC_MON_FW, SIDS),
        uncached(compiled("enc+mon+fw-uncached", ENC_MON_FW, SIDS)),
        uncached(chain(
            "enc+mon+fw-calls",
            ENC_MON_FW,
            Engine::TailCalls,
            SIDS,
        )),
    ];
    case("edge".to_owned(), Packets::V6, 1, modes)
}

/// Returns the case of a chain of this many programs, of which all but the last do nothing: mon-in has nothing to do with IPv4.
fn programs(count: usize) -> Case {
    let programs = "mon-in,".repeat(count - 1) + "fw-table";
    let modes = vec![
        // The cache would skip them.
        uncached(chain("compiled", &programs, Engine::Compiled, SIDS)),
        uncached(chain("calls", &programs, Engine::TailCalls, SIDS)),
    ];
    case(format!("chain-{count}"), Packets::V4, 1, modes)
}

/// Flows for which the cache has room as it is by default.
const CACHED_FLOWS: usize = 1_000;

/// This many flows, each with a class, a path and a monitor of its own.
fn flows(count: u16) -> Case {
    let mut modes = vec![
        kernel_enc(SIDS),
        mode("kernel-fw", Router::Kernel),
        compiled("mon+fw", "mon-in,fw-fib", SIDS),
        uncached(compiled("mon+fw-uncached", "mon-in,fw-fib", SIDS)),
        compiled("enc+mon+fw", ENC_MON_FW, SIDS),
        uncached(compiled("enc+mon+fw-uncached", ENC_MON_FW, SIDS)),
    ];
    if usize::from(count) > CACHED_FLOWS {
        modes.push(roomy(compiled("mon+fw-32768", "mon-in,fw-fib", SIDS)));
        modes.push(roomy(compiled("enc+mon+fw-32768", ENC_MON_FW, SIDS)));
    }
    case(format!("flows-{count}"), Packets::V6, count, modes)
}

/// This many SIDs that an ingress puts in front of packets.
fn sids(count: u16) -> Case {
    let modes = vec![kernel_enc(count), compiled("enc+mon+fw", ENC_MON_FW, count)];
    case(format!("sids-{count}"), Packets::V6, 1, modes)
}

/// This many SIDs in front of packets that come to a waypoint. The paper names monitoring and forwarding alone, so that is what
/// is compared with its figures. Going on to the next SID (`End`), or leaving that to the kernel, is beside it; the last SID has none.
fn waypoint(count: u16) -> Case {
    let mut modes = vec![
        mode("kernel-fw", Router::Kernel),
        compiled("mon+fw", "mon-out,fw-table", count),
    ];
    if count > 1 {
        modes.push(mode("kernel-end", Router::KernelEnd));
        modes.push(compiled("mon+kernel-end", "mon-out,fw-kernel", count));
        modes.push(compiled("mon+end", "mon-out,end,fw-table", count));
    }
    let packets = Packets::Srv6 { sids: count };
    case(format!("waypoint-{count}"), packets, 1, modes)
}

/// Returns the case of chains at tcx: the kernel forwards packets, and a chain encapsulates and counts them where they leave.
fn tcx() -> Case {
    const ENC_MON: &str = "enc,mon-in,fw-kernel";
    let modes = vec![
        kernel_enc(SIDS),
        mode("kernel-fw", Router::Kernel),
        at_tcx("kernel", "fw-kernel", Engine::Compiled),
        at_tcx("enc", "enc,fw-kernel", Engine::Compiled),
        at_tcx("enc+mon", ENC_MON, Engine::Compiled),
        at_tcx("enc+mon-calls", ENC_MON, Engine::TailCalls),
    ];
    case("tcx".to_owned(), Packets::V6, 1, modes)
}

/// Returns the case of packets at tcx that have SIDs already: a chain counts them where they leave the monitored network.
fn tcx_egress() -> Case {
    let modes = vec![
        mode("kernel-fw", Router::Kernel),
        at_tcx("mon", "mon-out,fw-kernel", Engine::Compiled),
    ];
    let packets = Packets::Srv6 { sids: SIDS };
    case("tcx-egress".to_owned(), packets, 1, modes)
}

/// Returns the case of one class, and 100,000 of the same kind; then prefixes of more lengths, of which the packets' is the last
/// that is looked for.
fn classes() -> Case {
    const MANY: u32 = 100_000;
    let modes = vec![
        among("address-1", 0, 1),
        among("address-100000", 0, MANY),
        among("prefix-1", 1, 1),
        among("prefix-100000", 1, MANY),
        among("prefix-100000-of-4-lengths", 4, MANY),
        among("prefix-100000-of-16-lengths", 16, MANY),
    ];
    case("classes".to_owned(), Packets::V6, 1, modes)
}

/// Returns the case of a TCP stream that ends here, behind a NIC with HIKE and without it. With an XDP program there, the NIC's
/// core builds all packets: `mflow-nic` has that without the program.
fn stream() -> Case {
    let behind = |front, mode| Mode {
        front: Some(front),
        ..mode
    };
    let mflow = |name, lanes, build| cases::built(name, lanes, BATCH_PKTS, build);
    let mut modes = vec![
        cases::mode("vanilla", Stack::Vanilla),
        behind(Front::NoClass, cases::mode("vanilla+hike", Stack::Vanilla)),
        behind(Front::Lanes, cases::mode("vanilla+lanes", Stack::Vanilla)),
    ];
    for lanes in [2, 4] {
        modes.extend([
            mflow("mflow", lanes, Build::Auto),
            mflow("mflow-nic", lanes, Build::Nic),
            behind(Front::NoClass, mflow("mflow+hike", lanes, Build::Auto)),
            behind(Front::Lanes, mflow("mflow+lanes", lanes, Build::Auto)),
        ]);
    }
    Case {
        name: format!("{PREFIX}stream"),
        load: Load::Stream {
            bytes: STREAM_BYTES,
        },
        modes,
        every_boot: false,
    }
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = vec![edge()];
    cases.extend([1, 2, 4, 8].map(programs));
    cases.extend([1, 100, 10_000].map(flows));
    // The paper has 1 to 4; a path has 10 at most.
    cases.extend([1, 2, 4, 10].map(sids));
    cases.extend([1, 2, 4, 10].map(waypoint));
    cases.extend([tcx(), tcx_egress(), classes(), stream()]);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_have_as_many_programs_as_their_names_say() {
        let cases = all();
        for count in [1, 2, 4, 8] {
            let name = format!("hike-chain-{count}");
            let case = cases.iter().find(|case| case.name == name);
            for mode in &case.expect("a case").modes {
                let StackChoice::Stack(Stack::Router(Router::Chain { programs, .. })) = &mode.stack
                else {
                    panic!("no chain: {mode:?}");
                };
                assert_eq!(programs.split(',').count(), count);
            }
        }
    }

    #[test]
    fn each_chain_without_the_cache_stands_beside_the_same_with_it() {
        for case in [edge(), flows(1), flows(10_000)] {
            let mut pairs = 0;
            for mode in &case.modes {
                let Some(bare) = mode.name.strip_suffix("-uncached") else {
                    continue;
                };
                let with = case.modes.iter().find(|other| other.name == bare);
                let with = with.expect("the same with it").clone();
                assert_eq!(
                    format!("{:?}", uncached(with).stack),
                    format!("{:?}", mode.stack)
                );
                pairs += 1;
            }
            assert!(pairs >= 2, "{}", case.name);
        }
    }

    #[test]
    fn a_larger_cache_stands_beside_the_usual_one_where_flows_are_too_many_for_it() {
        let larger = |case: &Case| {
            let of = case.modes.iter().filter_map(|mode| {
                let bare = mode.name.strip_suffix("-32768")?;
                let usual = case.modes.iter().find(|other| other.name == bare);
                let usual = usual.expect("the usual one").clone();
                Some(format!("{:?}", roomy(usual).stack) == format!("{:?}", mode.stack))
            });
            of.collect::<Vec<_>>()
        };
        assert_eq!(larger(&flows(10_000)), [true, true]);
        assert!(larger(&flows(100)).is_empty() && larger(&flows(1)).is_empty());
    }

    #[test]
    fn each_stack_behind_hike_stands_beside_the_same_without_it() {
        let case = stream();
        let without = |mode: &Mode| {
            let bare = mode.name.split('+').next().unwrap_or_default();
            let mut others = case.modes.iter().filter(|other| other.front.is_none());
            let stack = |mode: &Mode| format!("{:?}", mode.stack);
            others.any(|other| other.name == bare && stack(other) == stack(mode))
        };
        for mode in &case.modes {
            assert_eq!(mode.front.is_some(), mode.name.contains('+'), "{mode:?}");
            assert!(without(mode), "{mode:?}");
        }
    }

    #[test]
    fn the_same_chain_stands_beside_the_kernel_s_path_in_each_case() {
        for case in all() {
            let kernels = case
                .modes
                .iter()
                .filter(|mode| mode.name.starts_with("kernel-"));
            let expected = match case.name.as_str() {
                "hike-edge" | "hike-tcx" => 2,
                "hike-tcx-egress" => 1,
                "hike-classes" | "hike-stream" => 0,
                name if name.starts_with("hike-flows-") => 2,
                name if name.starts_with("hike-chain-") => 0,
                name if name.starts_with("hike-sids-") => 1,
                "hike-waypoint-1" => 1,
                _ => 2,
            };
            assert_eq!(kernels.count(), expected, "{}", case.name);
        }
    }
}
