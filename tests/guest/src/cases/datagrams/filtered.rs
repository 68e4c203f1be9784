// SPDX-License-Identifier: GPL-2.0

//! A packet filter drops packets at each of its hooks on the way: the merger waits for none of them.

use anyhow::{ensure, Result};

use crate::cases::{Case, Run};
use crate::datagrams::run::Datagrams;
use crate::mflow::{Knobs, STRICT_TIMEOUT_US};
use crate::nft;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::topology::CONTAINER;
use crate::traffic::Load as _;

/// At each hook one packet in so many is dropped.
const ONE_IN: u64 = 200;
const LEAST_DATAGRAMS: u64 = 5_000;
/// Long enough to carry the time of sending.
const BYTES: usize = 64;
/// A wait for one dropped packet until the deadline would be twice as long.
const LONGEST_WAIT_US: u64 = STRICT_TIMEOUT_US as u64 / 2;
/// Hooks on the way, where what the load is can be told from what it is in.
const HOOKS: &[Hook] = &[
    Hook {
        name: "ingress",
        namespace: None,
        place: "ingress device \"eth0\"",
        sees: "udp dport 4789",
    },
    Hook {
        name: "prerouting",
        namespace: None,
        place: "prerouting",
        sees: "udp dport 4789",
    },
    Hook {
        name: "input",
        namespace: None,
        place: "input",
        sees: "udp dport 4789",
    },
    Hook {
        name: "ingress",
        namespace: Some(CONTAINER),
        place: "ingress device \"eth0\"",
        sees: "meta l4proto udp",
    },
    Hook {
        name: "prerouting",
        namespace: Some(CONTAINER),
        place: "prerouting",
        sees: "meta l4proto udp",
    },
    Hook {
        name: "input",
        namespace: Some(CONTAINER),
        place: "input",
        sees: "meta l4proto udp",
    },
];

struct Hook {
    name: &'static str,
    /// None: the host's.
    namespace: Option<&'static str>,
    place: &'static str,
    sees: &'static str,
}

impl Hook {
    fn rules(&self) -> String {
        let Self {
            name, place, sees, ..
        } = self;
        format!(
            "table inet mflow {{
                counter {name} {{ }}
                chain {name} {{
                    type filter hook {place} priority 0;
                    {sees} numgen random mod {ONE_IN} == 0 counter name \"{name}\" drop
                }}
            }}"
        )
    }

    /// Adds its rule; returns whether this kernel has such a hook: small ones have none at ingress.
    fn add(&self) -> Result<bool> {
        let added = nft::add(self.namespace, &self.rules());
        if self.name != "ingress" {
            return added.map(|()| true);
        }
        Ok(added.is_ok())
    }
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "drops/filter",
        "a packet filter drops 0.5 % at each of its hooks: no wait for them, order of the others kept",
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
    let measured = dropped_at_all(|| Datagrams::measure(&plan, |_| Ok(())));
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
        ensure!(
            outcome.longest_wait_us <= LONGEST_WAIT_US,
            "a datagram took {} us: the merger waited for a dropped one",
            outcome.longest_wait_us
        );
        if rig.splits() {
            outcome.require_no_deadline()?;
            outcome.require_split(&knobs, 1)?;
        }
        rig.settle()
    })
}

/// Does some work while packets are dropped at all hooks that there are; returns how many were, by hook.
fn dropped_at_all<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<u64>)> {
    let mut there = Vec::new();
    for hook in HOOKS {
        if hook.add()? {
            there.push(hook);
        }
    }
    let done = work()?;
    let count = |hook: &&Hook| nft::counted_pkts(hook.namespace, hook.name);
    Ok((done, there.iter().map(count).collect::<Result<_>>()?))
}
