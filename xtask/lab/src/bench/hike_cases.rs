// SPDX-License-Identifier: GPL-2.0

//! HIKE's cases: what chains cost a router, beside the kernel's path that does the same, and beside a program that does nothing.

use mflow_protocol::bench::{Engine, Load, Packets, Router, Stack};

use super::cases::{Case, Mode, What};

/// Case names begin with it.
pub(super) const PREFIX: &str = "hike-";
/// SIDs of a path where their number is not what differs.
const SIDS: u16 = 2;
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
    Mode {
        name,
        stack: What::Stack(Stack::Router(router)),
    }
}

fn compiled(name: &'static str, programs: &str, sids: u16) -> Mode {
    chain(name, programs, Engine::Compiled, sids)
}

fn chain(name: &'static str, programs: &str, engine: Engine, sids: u16) -> Mode {
    let programs = programs.to_owned();
    mode(
        name,
        Router::Chain {
            programs,
            engine,
            sids,
        },
    )
}

fn kernel_enc(sids: u16) -> Mode {
    mode("kernel-enc", Router::KernelEncaps { sids })
}

/// Every chain of an edge router, with one flow.
fn edge() -> Case {
    let modes = vec![
        kernel_enc(SIDS),
        mode("kernel-fw", Router::Kernel),
        mode("pass", Router::PassThrough),
        compiled("fw", "fw-fib", SIDS),
        compiled("fw-table", "fw-table", SIDS),
        compiled("acl+fw", "acl,fw-table", SIDS),
        compiled("mon+fw", "mon-in,fw-fib", SIDS),
        compiled("enc+fw", "enc,fw-fib", SIDS),
        compiled("enc+mon+fw", ENC_MON_FW, SIDS),
        chain("enc+mon+fw-calls", ENC_MON_FW, Engine::TailCalls, SIDS),
    ];
    case("edge".to_owned(), Packets::V6, 1, modes)
}

/// A chain of so many programs, of which all but the last do nothing: mon-in has nothing to do with IPv4.
fn programs(count: usize) -> Case {
    let programs = "mon-in,".repeat(count - 1) + "fw-table";
    let modes = vec![
        chain("compiled", &programs, Engine::Compiled, SIDS),
        chain("calls", &programs, Engine::TailCalls, SIDS),
    ];
    case(format!("chain-{count}"), Packets::V4, 1, modes)
}

/// So many flows, each with a class, a path and a monitor of its own.
fn flows(count: u16) -> Case {
    let modes = vec![
        kernel_enc(SIDS),
        mode("kernel-fw", Router::Kernel),
        compiled("mon+fw", "mon-in,fw-fib", SIDS),
        compiled("enc+mon+fw", ENC_MON_FW, SIDS),
    ];
    case(format!("flows-{count}"), Packets::V6, count, modes)
}

/// So many SIDs that an ingress puts in front of packets.
fn sids(count: u16) -> Case {
    let modes = vec![kernel_enc(count), compiled("enc+mon+fw", ENC_MON_FW, count)];
    case(format!("sids-{count}"), Packets::V6, 1, modes)
}

/// So many SIDs in front of packets that come to a waypoint. The paper names monitoring and forwarding alone, so that is what
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

pub(super) fn all() -> Vec<Case> {
    let mut cases = vec![edge()];
    cases.extend([1, 2, 4, 8].map(programs));
    cases.extend([1, 100, 10_000].map(flows));
    // The paper has 1 to 4; a path has 10 at most.
    cases.extend([1, 2, 4, 10].map(sids));
    cases.extend([1, 2, 4, 10].map(waypoint));
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
                let What::Stack(Stack::Router(Router::Chain { programs, .. })) = &mode.stack else {
                    panic!("no chain: {mode:?}");
                };
                assert_eq!(programs.split(',').count(), count);
            }
        }
    }

    #[test]
    fn the_same_chain_stands_beside_the_kernel_s_path_in_each_case() {
        for case in all() {
            let kernels = case
                .modes
                .iter()
                .filter(|mode| mode.name.starts_with("kernel"));
            let expected = match case.name.as_str() {
                "hike-edge" => 2,
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
