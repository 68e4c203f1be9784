// SPDX-License-Identifier: GPL-2.0

//! A packet filter drops packets at each of its hooks on the way: the merger waits for none of them.

use anyhow::{ensure, Result};
use mflow_protocol::network::VXLAN_PORT;

use super::drops::{require_no_wait, BYTES};
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::nft::{self, Counted};
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Load as _, Plan};

/// At each hook one packet in this many is dropped, be it one that GRO has made of many.
const ONE_IN: u64 = 50;
const LEAST_DATAGRAMS: u64 = 10_000;
/// Headers of IPv4 and UDP; and those around a frame in the overlay, with VXLAN's and its own.
const HEADERS: u64 = 28;
const OVERLAY_HEADERS: u64 = HEADERS + 8 + 14;
/// Hooks on the way: of the host, and of the container.
const HOOKS: &[Hook] = &[
    hook(None, "ingress", "ingress device \"eth0\""),
    hook(None, "prerouting", "prerouting"),
    hook(None, "input", "input"),
    hook(Some(CONTAINER), "ingress", "ingress device \"eth0\""),
    hook(Some(CONTAINER), "prerouting", "prerouting"),
    hook(Some(CONTAINER), "input", "input"),
];

struct Hook {
    /// None: the host's.
    namespace: Option<&'static str>,
    name: &'static str,
    place: &'static str,
}

const fn hook(namespace: Option<&'static str>, name: &'static str, place: &'static str) -> Hook {
    Hook {
        namespace,
        name,
        place,
    }
}

impl Hook {
    /// Adds it, without a rule; returns whether this kernel has it: small ones have none at ingress.
    fn add(&self) -> Result<bool> {
        let Self { name, place, .. } = self;
        let added = nft::add(
            self.namespace,
            &format!(
                "table inet mflow {{
                    counter {name} {{ }}
                    chain {name} {{ type filter hook {place} priority 0; }}
                }}"
            ),
        );
        if *name != "ingress" {
            return added.map(|()| true);
        }
        Ok(added.is_ok())
    }

    /// Makes the hook drop some packets from now on.
    fn drop_some(&self) -> Result<()> {
        let name = self.name;
        // The host sees the load in the overlay.
        let sees = match self.namespace {
            None => format!("udp dport {VXLAN_PORT}"),
            Some(_) => "meta l4proto udp".to_owned(),
        };
        nft::add(
            self.namespace,
            &format!("add rule inet mflow {name} {sees} numgen inc mod {ONE_IN} == 0 counter name \"{name}\" drop"),
        )
    }

    /// Returns how many datagrams it has dropped: one that GRO has joined to others has brought its bytes, and no headers.
    fn dropped(&self) -> Result<u64> {
        let Counted { pkts, bytes } = nft::counted(self.namespace, self.name)?;
        let headers = match self.namespace {
            None => OVERLAY_HEADERS + HEADERS,
            Some(_) => HEADERS,
        };
        Ok((bytes - pkts * headers) / BYTES as u64)
    }
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "drops/filter",
        "a packet filter drops 2 % at each of its hooks: no wait for them, order of the others kept",
        Run::Plain,
        filter,
    )]
}

fn filter(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load = plan.load.sized(BYTES);
    plan.load.send_at_least(LEAST_DATAGRAMS);
    let knobs = Knobs::default();
    rig.prepare(&plan, &knobs)?;
    let measured = dropped_at_all(&plan);
    // The container's rules go with it; also after a failure.
    nft::flush(None)?;
    let (outcome, dropped) = measured?;
    outcome.judge(|outcome| {
        outcome.require_intact()?;
        outcome.require_order()?;
        ensure!(
            dropped.iter().all(|&pkts| pkts > 0) && outcome.lost == dropped.iter().sum::<u64>(),
            "{} of {} datagrams lost, and the hooks have dropped {dropped:?}",
            outcome.lost,
            outcome.frames
        );
        require_no_wait(rig, &knobs, outcome)
    })
}

/// Measures with packets dropped at all hooks that there are, once the flow is split; returns how many datagrams were, by hook.
fn dropped_at_all(plan: &Plan<Datagrams>) -> Result<(Outcome, Vec<u64>)> {
    // Before there is traffic: the first use of a hook patches the kernel's code.
    let mut there = Vec::new();
    for hook in HOOKS {
        if hook.add()? {
            there.push(hook);
        }
    }
    let outcome = Datagrams::measure(plan, |live| {
        there.iter().try_for_each(|hook| hook.drop_some())?;
        live.send_more(plan.load.count)
    })?;
    let dropped = there.iter().map(|hook| hook.dropped());
    Ok((outcome, dropped.collect::<Result<_>>()?))
}
