// SPDX-License-Identifier: GPL-2.0

//! The topologies of the kernel's selftests of segment routing (`tools/testing/selftests/net/srv6_*.sh`), with HIKE at every other
//! router, or at those in between, and at all of them.
//!
//! The kernel of each router is set up as in its selftest, and HIKE is in front of it: packets that it takes never come to the kernel.
//! So that hosts reach each other does not show who has done it; that is counted.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Behaviour, Class, Destination, Engine, Flavours, Hike, Path};
use nix::net::if_::if_nametoindex;

use super::mesh::{router_name, sid, tunnel_source, Function, Host, Mesh, Policy, Sid};
use crate::hike::{instance, Case, Scale};
use crate::machine::threads;
use crate::network::netns;

/// Packets from each host to the other one, after the first ones have taught routers who their neighbours are.
const PINGS: u64 = 3;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "selftests/l3vpn",
            proves: "srv6_end_dt4, dt6 and dt46_l3vpn_test: hosts of a tenant reach each other, and none of another one",
            run: l3vpn,
        },
        Case {
            name: "selftests/hencap-red",
            proves: "srv6_hencap_red_l3vpn_test: the same by H.Encaps.Red, on other ways there than back, by up to two waypoints",
            run: encaps_red,
        },
        Case {
            name: "selftests/flavours",
            proves: "srv6_end_flavors_test: End with PSP takes out the SRH that the kernel has inserted where one segment is left, and nowhere else",
            run: flavours,
        },
    ]
}

/// The function that the SID at the end has, by tenant.
type Decapsulation = fn(u16) -> Function;

/// Returns policies both ways, with a decapsulation at the end.
fn both_ways(one: Host, other: Host, v6: bool, decapsulates: Decapsulation) -> [Policy; 2] {
    [(one, other), (other, one)].map(|(from, to)| Policy {
        from,
        to,
        v6,
        mode: "encap",
        sids: vec![(to.router, decapsulates(to.tenant.unwrap_or_default()))],
    })
}

fn host(id: u16, router: u16, tenant: u16) -> Host {
    Host {
        id,
        router,
        tenant: Some(tenant),
    }
}

fn l3vpn(scale: &Scale) -> Result<()> {
    let hosts = [
        host(1, 1, 100),
        host(2, 2, 100),
        host(3, 1, 200),
        host(4, 2, 200),
    ];
    let [hs1, hs2, hs3, hs4] = hosts;
    // Each has a selftest: a tunnel for each family, or one for both.
    let kinds: [[Decapsulation; 2]; 2] = [
        [Function::Dt4, Function::Dt6],
        [Function::Dt46, Function::Dt46],
    ];
    for kinds in scale.drawn(kinds, 2) {
        let ways = [false, true].into_iter().zip(kinds);
        let ways = ways.flat_map(|(v6, kind)| {
            [(hs1, hs2), (hs3, hs4)]
                .into_iter()
                .flat_map(move |(one, other)| both_ways(one, other, v6, kind))
        });
        let mesh = Mesh::up(2, &hosts, ways.collect())?;
        let isolated = [(hs1, hs3), (hs1, hs4), (hs2, hs3), (hs2, hs4)];
        everywhere(scale, &mesh, &isolated)
            .with_context(|| format!("{:?}", mesh.policies[0].sids))?;
    }
    Ok(())
}

fn encaps_red(scale: &Scale) -> Result<()> {
    const TENANT: u16 = 100;
    let hosts = [1, 2, 3, 4].map(|id| host(id, id, TENANT));
    let [hs1, hs2, hs3, hs4] = hosts;
    let policy = |from: Host, to: Host, v6, waypoints: &[u16]| Policy {
        from,
        to,
        v6,
        mode: "encap.red",
        sids: waypoints
            .iter()
            .map(|router| (*router, Function::End))
            .chain([(to.router, Function::Dt46(TENANT))])
            .collect(),
    };
    let policies = vec![
        policy(hs1, hs2, true, &[3, 4]),
        policy(hs2, hs1, true, &[]),
        policy(hs1, hs2, false, &[]),
        policy(hs2, hs1, false, &[4, 3]),
        policy(hs3, hs4, true, &[2]),
        policy(hs4, hs3, true, &[1]),
    ];
    let mesh = Mesh::up(4, &hosts, policies)?;
    everywhere(
        scale,
        &mesh,
        &[(hs1, hs3), (hs1, hs4), (hs2, hs3), (hs2, hs4)],
    )
}

fn flavours(scale: &Scale) -> Result<()> {
    let hosts = [1, 2].map(|id| Host {
        id,
        router: id,
        tenant: None,
    });
    let [hs1, hs2] = hosts;
    let policy = |from, to, sids: &[Sid]| Policy {
        from,
        to,
        v6: true,
        mode: "inline",
        sids: sids.to_vec(),
    };
    let policies = vec![
        policy(
            hs1,
            hs2,
            &[
                (3, Function::End),
                (4, Function::EndPsp),
                (2, Function::EndPsp),
            ],
        ),
        policy(hs2, hs1, &[(1, Function::EndPsp)]),
    ];
    let mesh = Mesh::up(4, &hosts, policies)?;
    everywhere(scale, &mesh, &[])
}

/// Holds that hosts reach each other as the policies say, and those that are isolated do not, with HIKE at some routers and at all.
fn everywhere(scale: &Scale, mesh: &Mesh, isolated: &[(Host, Host)]) -> Result<()> {
    // The kernel alone: the selftest itself.
    reach_each_other(mesh)?;
    let all: Vec<u16> = (1..=mesh.routers).collect();
    let (odd, even): (Vec<u16>, Vec<u16>) = all.iter().partition(|router| *router % 2 == 1);
    for some in scale.drawn([odd, even], 2) {
        with_hike(mesh, Engine::Compiled, &some, &[])
            .with_context(|| format!("HIKE at routers {some:?}"))?;
    }
    with_hike(mesh, Engine::TailCalls, &all, isolated).context("HIKE at all routers")
}

fn with_hike(
    mesh: &Mesh,
    engine: Engine,
    routers: &[u16],
    isolated: &[(Host, Host)],
) -> Result<()> {
    let mut instances = BTreeMap::new();
    for &router in routers {
        let at_router = netns::within(router_name(router), || at_router(mesh, engine, router))?;
        instances.insert(router, at_router);
    }
    reach_each_other(mesh)?;
    let before = forwarded(&instances)?;
    reach_each_other(mesh)?;
    let after = forwarded(&instances)?;
    for (router, after) in after {
        let pkts = after - before[&router];
        let expected = PINGS * tasks(mesh, router);
        ensure!(
            pkts == expected,
            "{} forwarded {pkts} packets, not {expected}: {:?}",
            router_name(router),
            reasons(&instances[&router])
        );
    }
    let tries = isolated.iter().flat_map(|&(one, other)| {
        let pairs = [(one, other), (other, one)].into_iter();
        pairs.flat_map(|(from, to)| [(from, to, true), (from, to, false)])
    });
    let tries: Vec<_> = tries.collect();
    let reached = thread::scope(|scope| {
        let ping = |&(from, to, v6): &(Host, Host, bool)| {
            scope.spawn(move || Ok(ping(from, to, v6, "-c 1 -W 1").is_ok()))
        };
        let pings: Vec<_> = tries.iter().map(ping).collect();
        threads::results(pings.into_iter().map(|ping| ping.join()))
    })?;
    let leak = tries.iter().zip(reached).find(|(_, reached)| *reached);
    ensure!(leak.is_none(), "hosts are not isolated: {leak:?}");
    Ok(())
}

/// Returns how often a packet of one ping between all is something that HIKE does at a router: encapsulates, goes on, decapsulates.
fn tasks(mesh: &Mesh, router: u16) -> u64 {
    let tasks = mesh.policies.iter().map(|policy| {
        let inserts = policy.mode == "inline";
        let begins = policy.from.router == router && !inserts;
        let sids = policy.sids.iter().filter(|(at, _)| *at == router).count();
        // A ping of one of the two, and the answer to that of the other.
        2 * (u64::from(begins) + sids as u64)
    });
    tasks.sum()
}

/// Returns what takes packets at a router: an instance for each tenant's devices, as tenants may have the same addresses, and one for the
/// SIDs.
fn at_router(mesh: &Mesh, engine: Engine, router: u16) -> Result<Vec<Hike>> {
    let mut instances = Vec::new();
    let mut sids = instance(engine)?;
    add_sids(mesh, &mut sids, router)?;
    for other in mesh.others(router) {
        sids.attach(router_name(other))?;
    }
    instances.push(sids);
    for host in mesh.hosts_of(router) {
        let policies = mesh.policies.iter();
        let policies: Vec<&Policy> = policies
            .filter(|policy| policy.from.id == host.id && policy.mode != "inline")
            .collect();
        if policies.is_empty() {
            continue;
        }
        let mut tenant = instance(engine)?;
        let chain = tenant.add_chain(&"enc,fw-fib".parse()?)?;
        for policy in policies {
            let sids: Vec<_> = policy.sids.iter().map(|one| sid(*one)).collect();
            let mode = match policy.mode {
                "encap" => Mode::Encaps,
                _ => Mode::Reduced,
            };
            let path = Path {
                mode,
                ..Path::new(tunnel_source(router), sids)
            };
            let class = Class {
                path: Some(tenant.add_path(&path)?),
                ..Class::of(chain)
            };
            let to = policy.to.address(policy.v6);
            tenant.set_class(Destination::Address(to), class)?;
        }
        tenant.attach(host.name())?;
        instances.push(tenant);
    }
    let others = mesh.others(router).map(router_name);
    let ports: Vec<&str> = others
        .chain(mesh.hosts_of(router).map(|host| host.name()))
        .collect();
    for hike in &mut instances {
        for &port in &ports {
            hike.add_port(if_nametoindex(port)?)?;
        }
    }
    Ok(instances)
}

fn add_sids(mesh: &Mesh, hike: &mut Hike, router: u16) -> Result<()> {
    let end = Class::of(hike.add_chain(&"end,fw-fib".parse()?)?);
    let dec = Class::of(hike.add_chain(&"dec".parse()?)?);
    let sids = mesh.policies.iter().flat_map(|policy| &policy.sids);
    let mut known = Vec::new();
    for &one in sids {
        let (at, function) = one;
        if at != router || known.contains(&one) {
            continue;
        }
        known.push(one);
        let table = |tenant: u16| Some(u32::from(tenant));
        let psp = function == Function::EndPsp;
        let flavours = Flavours {
            psp,
            ..Flavours::default()
        };
        let (class, behaviour) = match function {
            Function::End | Function::EndPsp => (end, Behaviour::End { flavours }),
            Function::Dt4(tenant) => (
                dec,
                Behaviour::Dt4 {
                    table: table(tenant),
                },
            ),
            Function::Dt6(tenant) => (
                dec,
                Behaviour::Dt6 {
                    table: table(tenant),
                },
            ),
            Function::Dt46(tenant) => (
                dec,
                Behaviour::Dt46 {
                    table: table(tenant),
                },
            ),
        };
        let behaviour = hike.add_behaviour(&behaviour)?;
        hike.set_local_sid(Destination::Address(sid(one).into()), class, behaviour)?;
    }
    Ok(())
}

/// Checks that each host reaches those that it has a policy for.
fn reach_each_other(mesh: &Mesh) -> Result<()> {
    thread::scope(|scope| {
        let ping = |policy: &Policy| {
            let Policy { from, to, v6, .. } = *policy;
            scope.spawn(move || ping(from, to, v6, &format!("-c {PINGS} -i 0.2 -W 5")))
        };
        let pings: Vec<_> = mesh.policies.iter().map(ping).collect();
        threads::results(pings.into_iter().map(|ping| ping.join())).map(drop)
    })
}

fn ping(from: Host, to: Host, v6: bool, options: &str) -> Result<()> {
    let (name, to) = (from.name(), to.address(v6));
    let said = netns::run(name, &format!("ping {options} {to}"))?;
    ensure!(said.contains(" 0% packet loss"), "{name} to {to}: {said}");
    Ok(())
}

/// Returns how many packets have gone on at each router: by HIKE, or by the kernel, which gets one now and then for a neighbour that is
/// stale.
fn forwarded(instances: &BTreeMap<u16, Vec<Hike>>) -> Result<BTreeMap<u16, u64>> {
    let each = instances.iter().map(|(router, instances)| {
        let mut all = 0;
        for hike in instances {
            let reasons = hike.reasons()?.into_iter();
            all += reasons
                .filter(|(reason, _)| ["forwarded", "fw-stale"].contains(&reason.name))
                .map(|(_, pkts)| pkts)
                .sum::<u64>();
        }
        Ok((*router, all))
    });
    each.collect()
}

/// Returns what packets have had at a router, to be told.
fn reasons(instances: &[Hike]) -> Vec<Vec<(&'static str, u64)>> {
    let each = instances.iter().map(|hike| {
        let reasons = hike.reasons().unwrap_or_default().into_iter();
        let reasons = reasons.filter(|(_, pkts)| *pkts > 0);
        reasons.map(|(reason, pkts)| (reason.name, pkts)).collect()
    });
    each.collect()
}
