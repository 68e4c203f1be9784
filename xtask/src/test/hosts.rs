// SPDX-License-Identifier: GPL-2.0

//! Hosts as their operators set them up, before the module comes: on kernels that Debian ships, and on a kernel with our patches.

use std::collections::BTreeSet;
use std::iter;

use anyhow::Result;

use super::guests::draw::{self, GuestKind};
use super::stock::{other_kernels, NO_DEBIAN};
use super::vm::{run_each, GuestCases, PATIENCE_FULL};
use super::{Ctx, Outcome};
use crate::kernel::distribution::{Distribution, Shipped, OTHERS};
use crate::kernel::{Flavor, Way};
use crate::module;
use crate::tools;
use crate::vm::docker;
use crate::vm::Nic;

/// The layer, its guest, and the part of the guest program that has the cases.
const HOSTS: &str = "hosts";

/// The cases that need more than some kernels that Debian ships have: the beginning of their names, the first series that has it,
/// and the reason.
const LATER: &[(&str, [u32; 2], &str)] = &[(
    "bpf/tcx/",
    [6, 6],
    "links hold programs at traffic control (tcx) since Linux 6.6",
)];

/// The cases that need more than the kernel with our patches has: the beginning of their names, and the reason. `kernel-config/`
/// has no more than other layers need, and each module costs each cold run time.
const LACKING: &[(&str, &str)] = &[
    ("bpf/assign/", NO_PROGRAMS_OF_TC),
    ("bpf/behind-bridge", NO_PROGRAMS_OF_TC),
    (
        "bpf/socket/",
        "our kernel has no sockets of AF_XDP (XDP_SOCKETS)",
    ),
    ("bpf/tcx/pair/", NO_PROGRAMS_OF_TC),
    ("bpf/to-p", NO_PROGRAMS_OF_TC),
    ("calico/", NO_IPTABLES),
    ("devices/fou", NO_FOU),
    (
        "devices/fq-codel",
        "our kernel has no discipline fq_codel (NET_SCH_FQ_CODEL)",
    ),
    ("devices/gue", NO_FOU),
    ("docker/", NO_IPTABLES),
    (
        "firewalld/",
        "our kernel has no rules that refuse and that look for routes (NFT_REJECT, NFT_FIB_INET)",
    ),
    ("flannel", NO_IPTABLES),
    ("header/bridge/", NO_RULES_AT_BRIDGES),
    ("header/bytes/bridge", NO_RULES_AT_BRIDGES),
    ("header/cut/", NO_RULES_AT_BRIDGES),
    ("header/bytes/inside", NO_EDITING),
    ("header/bytes/tunnel", NO_EDITING),
    ("header/bytes/veth", NO_EDITING),
    ("kube/iptables/", NO_IPTABLES),
    (
        "kube/ipvs/",
        "our kernel has no rules of iptables, and no sets (NFT_COMPAT, IP_SET)",
    ),
    (
        "kube/nftables/",
        "our kernel has no rules that refuse (NFT_REJECT)",
    ),
    ("mesh/", NO_IPTABLES),
    (
        "translation/",
        "our kernel does not list connections in /proc (NF_CONNTRACK_PROCFS)",
    ),
    ("ufw/", NO_IPTABLES),
    ("wireguard", "our kernel has no WIREGUARD"),
];
/// The cases in which Docker itself sets hosts up: the beginning of their names. They have a guest of their own.
const OF_DOCKER: &str = "docker/swarm/";

const NO_EDITING: &str =
    "our kernel has no filters of tc that edit packets (NET_ACT_PEDIT, NET_ACT_CSUM)";
const NO_FOU: &str = "our kernel has no tunnels in UDP (NET_FOU)";
const NO_IPTABLES: &str =
    "our kernel has no rules of iptables (NFT_COMPAT, and a module for each match and target)";
const NO_PROGRAMS_OF_TC: &str = "our kernel has no BPF programs at filters of tc (NET_CLS_BPF)";
const NO_RULES_AT_BRIDGES: &str = "our kernel has no rules at bridges (NF_TABLES_BRIDGE)";

/// The cases whose results on the kernel with our patches differ from those without them, or from those with `enabled` 0: the
/// beginning of their names, and the reason.
const OTHERWISE: &[(&str, &str)] = &[
    (
        "networks/mixed/",
        "with our patches a batch of which nothing ends here is waited for until its deadline, which is a second here",
    ),
    (
        "watchers/copies/tcp",
        "with our patches captures see segments as GRO has joined them, as without the module: their checksums are not the sender's",
    ),
];

/// A kernel that the layer runs on.
#[derive(Clone, Copy, Debug)]
enum On {
    /// The distribution's own.
    Own,
    /// One that another release of Debian ships.
    Shipped(&'static Shipped),
    /// One with our patches.
    Patched,
}

impl On {
    /// Returns those cases that cannot hold there, by how their names begin, and why.
    fn lacks(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Own => Vec::new(),
            Self::Shipped(shipped) => LATER
                .iter()
                .filter(|(_, since, _)| shipped.version() < *since)
                .map(|(begin, _, why)| (*begin, *why))
                .collect(),
            Self::Patched => [LACKING, OTHERWISE].concat(),
        }
    }

    /// Returns the guest's name. Logs have it, and the layer `stock` has the other kernels'. Constants name the other guests.
    fn guest(self) -> &'static str {
        match self {
            Self::Own => HOSTS,
            Self::Shipped(shipped) => format!("{HOSTS}-{}", shipped.name).leak(),
            Self::Patched => "hosts-patched",
        }
    }
}

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if tools::find("apt-cache").is_none() {
        outcome.skip(HOSTS, NO_DEBIAN);
        return Ok(outcome);
    }
    let mut guests = Vec::new();
    let mut takes_own = false;
    for on in kernels(ctx) {
        match on {
            On::Own => takes_own = true,
            On::Patched => guests.extend(guest_cases(ctx, on, None, &mut outcome)?),
            On::Shipped(shipped) => {
                let about = format!("{HOSTS} on {}", shipped.name);
                if let Some(kernel) = other_kernels::reach(shipped, about, &mut outcome)? {
                    guests.extend(guest(ctx, on, kernel, &mut outcome)?);
                } else {
                    // One that was asked for has no other in its place.
                    takes_own |= ctx.kernel.is_none();
                }
            }
        }
    }
    if takes_own {
        guests.extend(guest_cases(ctx, On::Own, None, &mut outcome)?);
    }
    outcome.add(run_each(ctx, &guests)?);
    Ok(outcome)
}

/// Returns the kernels that the run is about.
fn kernels(ctx: &Ctx) -> Vec<On> {
    let others = OTHERS.iter().map(On::Shipped);
    let mut all: Vec<_> = iter::once(On::Own).chain(others).collect();
    if let Some(name) = &ctx.kernel {
        all.retain(|on| matches!(on, On::Shipped(shipped) if shipped.name == name));
        return all;
    }
    match ctx.way {
        Some(Way::Patched) => all = vec![On::Patched],
        Some(Way::Stock) => {}
        None => all.push(On::Patched),
    }
    if ctx.is_default() {
        all = vec![draw::one_of(&format!("{} {HOSTS}", ctx.seed), &all)];
    } else if !ctx.full {
        // To work on a case, one kernel is enough.
        all.truncate(1);
    }
    all
}

/// Returns the cases on another kernel than the distribution's own, if the module can be built for it.
fn guest(
    ctx: &Ctx,
    on: On,
    kernel: Distribution,
    outcome: &mut Outcome,
) -> Result<Vec<GuestCases>> {
    let place = ctx.places.take();
    let built = module::beside(kernel);
    outcome.held += place.held();
    drop(place);
    match built {
        Ok(kernel) => guest_cases(ctx, on, Some(kernel), outcome),
        Err(error) => {
            let name = format!("{}: the module is built", on.guest());
            outcome.record::<()>(&name, Err(error));
            Ok(Vec::new())
        }
    }
}

/// Returns the cases on a kernel, in one guest, or in two if Docker itself has a part in some of them.
fn guest_cases(
    ctx: &Ctx,
    on: On,
    kernel: Option<Distribution>,
    outcome: &mut Outcome,
) -> Result<Vec<GuestCases>> {
    let name = on.guest();
    let options: &[&str] = if ctx.full { &["--full"] } else { &[] };
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    let listed = draw::listed(HOSTS, &options)?.into_iter();
    let mut takes: BTreeSet<String> = listed.map(|case| case.name).collect();
    let is_wanted = |name: &str| ctx.case.as_ref().is_none_or(|text| name.contains(text));
    for (begin, why) in on.lacks() {
        let there = takes.len();
        takes.retain(|name| !(name.starts_with(begin) && is_wanted(name)));
        if takes.len() < there {
            outcome.skip(format!("{name}: {begin}"), why);
        }
    }
    let mut of_docker = takes.clone();
    of_docker.retain(|name| name.starts_with(OF_DOCKER) && is_wanted(name));
    takes.retain(|name| !name.starts_with(OF_DOCKER));
    if ctx.is_default() {
        takes = drawn(&ctx.seed, takes);
    }
    let way = match on {
        On::Own | On::Shipped(_) => Way::Stock,
        On::Patched => Way::Patched,
    };
    let of = |name, takes| {
        let guest = GuestKind {
            way,
            ..draw::guest(name, Flavor::Vm, Nic::Virtio, None)
        };
        GuestCases {
            kernel: kernel.clone(),
            ..GuestCases::new(ctx, guest, HOSTS, options.clone(), takes)
        }
    };
    let mut guests = vec![of(name, takes)];
    if has_docker(ctx) && !of_docker.is_empty() {
        match docker::reach() {
            Ok(docker) => {
                let name = format!("{name}-docker").leak();
                guests.push(GuestCases {
                    docker: Some(docker),
                    patience: PATIENCE_FULL,
                    ..of(name, of_docker)
                });
            }
            Err(why) => outcome.skip(format!("{name}: {OF_DOCKER}"), why),
        }
    }
    Ok(guests)
}

/// Tells whether the cases run in which Docker itself sets hosts up: that takes minutes, and packages that nothing else needs.
fn has_docker(ctx: &Ctx) -> bool {
    ctx.full || ctx.case.is_some()
}

/// The part of each group of cases that the default run draws; tidy holds the layer's README against this.
pub(super) const OF_GROUP: draw::Part = draw::Part::Quarter;

/// The part of the cases in which rules come during a split, of all groups; tidy looks at this likewise. They take twice as long
/// as others.
pub(super) const OF_DURING: draw::Part = draw::Part::Eighth;

/// Returns the cases of the default run: of those that differ in the family of addresses alone one, and a part of each group.
fn drawn(seed: &str, cases: BTreeSet<String>) -> BTreeSet<String> {
    let one_family = draw::part_of_each(seed, cases, draw::Part::One, |name| {
        let both = ["/v4", "/v6"].iter();
        let idea = both.filter_map(|family| name.strip_suffix(family)).next();
        idea.unwrap_or(name).to_owned()
    });
    let (during, others) = one_family
        .into_iter()
        .partition(|name| name.contains("/during"));
    let mut drawn = draw::part_of_each(seed, others, OF_GROUP, |name| {
        draw::group_of(name).to_owned()
    });
    drawn.extend(draw::part_of_each(seed, during, OF_DURING, |_| {
        String::new()
    }));
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ctx: &Ctx) -> Vec<&'static str> {
        let kernels = kernels(ctx).into_iter();
        kernels
            .map(|on| match on {
                On::Own => "own",
                On::Shipped(shipped) => shipped.name,
                On::Patched => "patched",
            })
            .collect()
    }

    #[test]
    fn all_kernels_are_drawn_and_each_can_be_chosen() {
        let all = names(&Ctx {
            full: true,
            ..Ctx::default()
        });
        assert_eq!(all.len(), 2 + OTHERS.len());
        let mut drawn = BTreeSet::new();
        for seed in 0..32 {
            let names = names(&Ctx {
                seed: seed.to_string(),
                ..Ctx::default()
            });
            assert_eq!(names.len(), 1);
            drawn.extend(names);
        }
        assert!(drawn
            .into_iter()
            .eq(all.into_iter().collect::<BTreeSet<_>>()));
        let case = Some(String::new());
        let ctx = Ctx {
            case,
            ..Ctx::default()
        };
        assert_eq!(names(&ctx), ["own"]);
        for shipped in OTHERS {
            let ctx = Ctx {
                kernel: Some(shipped.name.to_owned()),
                ..Ctx::default()
            };
            assert_eq!(names(&ctx), [shipped.name]);
        }
        let of_way = |way, full| {
            let way = Some(way);
            names(&Ctx {
                way,
                full,
                ..Ctx::default()
            })
        };
        assert_eq!(of_way(Way::Patched, false), ["patched"]);
        assert_eq!(of_way(Way::Patched, true), ["patched"]);
        assert!(!of_way(Way::Stock, true).contains(&"patched"));
    }

    #[test]
    fn nothing_is_said_to_lack_twice() {
        let all = On::Patched.lacks();
        for (place, (begin, why)) in all.iter().enumerate() {
            assert!(!why.is_empty());
            let others = all.iter().skip(place + 1);
            let overlaps =
                others.filter(|(other, _)| other.starts_with(begin) || begin.starts_with(other));
            assert_eq!(overlaps.count(), 0, "{begin}");
        }
    }

    #[test]
    fn what_came_later_is_lacking_before() {
        for shipped in OTHERS {
            let lacks = !On::Shipped(shipped).lacks().is_empty();
            assert_eq!(lacks, shipped.name == "debian-12");
        }
    }

    #[test]
    fn docker_itself_is_only_there_if_all_is_wanted_or_it_is_asked_for() {
        assert!(!has_docker(&Ctx::default()));
        assert!(has_docker(&Ctx {
            full: true,
            ..Ctx::default()
        }));
        assert!(has_docker(&Ctx {
            case: Some(OF_DOCKER.to_owned()),
            ..Ctx::default()
        }));
    }

    #[test]
    fn one_family_and_a_part_of_each_group_are_drawn_and_all_at_times() {
        let all = "kube/a kube/a/v6 kube/b/v4 kube/b/v6 kube/c kube/d ufw/v4 ufw/v6 flannel \
                   kube/during kube/during/v6 ufw/a/during/v4 ufw/during mesh/during tproxy/during";
        let all: BTreeSet<String> = all.split(' ').map(str::to_owned).collect();
        let mut ever = BTreeSet::new();
        for seed in 0..64 {
            let some = drawn(&seed.to_string(), all.clone());
            let (during, others): (Vec<_>, Vec<_>) =
                some.into_iter().partition(|name| name.contains("/during"));
            let of = |group| others.iter().filter(|name| name.starts_with(group)).count();
            assert_eq!((of("kube/"), of("ufw/") + of("flannel")), (1, 1));
            assert_eq!(during.len(), 1);
            ever.extend(others.into_iter().chain(during));
        }
        assert_eq!(ever, all);
    }
}
