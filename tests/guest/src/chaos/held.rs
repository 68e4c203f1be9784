// SPDX-License-Identifier: GPL-2.0

//! The module is loaded again while packets of split flows wait on the way.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::host::Host;
use super::note;
use super::step::Waiting;
use super::switch::Switch;
use crate::machine::command::wait_until;
use crate::machine::threads;
use crate::mflow::{self, Stats};
use crate::network::nfqueue::SlowJudge;
use crate::network::topology::CONTAINER;
use crate::network::{nft, topology};

/// The time in which a flow is split again, unless an earlier step keeps that from it.
const SPLIT: Duration = Duration::from_secs(2);
/// The time for which packets come to wait before the module goes, at the loads' rate.
const FILL: Duration = Duration::from_millis(120);
/// Longer than what the last of them wait beyond their delay.
const BEYOND: Duration = Duration::from_millis(100);

/// A program is asked about packets of both loads.
const ASKED: &str = "
table inet mflow_held {
    chain in {
        type filter hook input priority 0;
        udp dport 5001 queue num 0
        tcp dport 5101 queue num 0
    }
}
";

impl Host<'_> {
    /// Makes packets of split flows wait, loads the module again, and lets them go on.
    pub(super) fn hold_over_reload(&mut self, waiting: Waiting) -> Result<()> {
        // The device has one discipline, and the queue one program.
        self.switch(Switch::Qdisc, false, || Ok(()))?;
        self.ask_no_more()?;
        // A flow that has met a queue stays whole for long. The next module does not know of that.
        self.reload_module()?;
        let split = threads::until_ok(SPLIT, || {
            ensure!(mflow::flows_split()? > 0, "no flow is split");
            Ok(())
        });
        let judge = self.hold(waiting)?;
        self.loads()?.flow_for(FILL)?;
        let (filled, queued) = (Instant::now(), Stats::read()?.get("paths_async")?);
        self.reload_module()?;
        let away = filled.elapsed();
        self.loads()?.flow()?;
        self.release(waiting, filled, judge)?;
        note(&format!(
            "{}: {}, {queued} time(s) noticed, loaded again after {} ms, then {} packet(s) late",
            waiting.kind(),
            if split.is_ok() { "split" } else { "whole" },
            away.as_millis(),
            Stats::read()?.get("late_pkts")?
        ));
        Ok(())
    }

    fn hold(&self, waiting: Waiting) -> Result<Option<SlowJudge>> {
        let words = match waiting {
            Waiting::Netem { seconds } => format!("netem delay {seconds}s limit 100000"),
            // About two packets a second, behind a few at once.
            Waiting::Bucket => "tbf rate 1kbit burst 2000 limit 100mb".to_owned(),
            Waiting::Plug => "plug limit 100000000".to_owned(),
            Waiting::Judge { ms } => {
                let judge = SlowJudge::start(Duration::from_millis(ms))?;
                nft::add(CONTAINER, ASKED)?;
                return Ok(Some(judge));
            }
        };
        topology::tc(&format!("qdisc add dev veth0 root handle 1: {words}"))?;
        Ok(None)
    }

    /// Lets all that waits go on, and then no packet wait any more.
    fn release(
        &mut self,
        waiting: Waiting,
        filled: Instant,
        judge: Option<SlowJudge>,
    ) -> Result<()> {
        let delay = match waiting {
            Waiting::Netem { seconds } => Duration::from_secs(seconds),
            Waiting::Judge { ms } => Duration::from_millis(ms),
            Waiting::Bucket | Waiting::Plug => Duration::ZERO,
        };
        if delay > Duration::ZERO {
            thread::sleep((delay + BEYOND).saturating_sub(filled.elapsed()));
        }
        match waiting {
            Waiting::Netem { .. } => {}
            Waiting::Bucket => {
                topology::tc(
                    "qdisc change dev veth0 root handle 1: tbf rate 10gbit burst 10mb limit 100mb",
                )?;
                until_empty("tbf")?;
            }
            Waiting::Plug => {
                topology::tc("qdisc change dev veth0 root handle 1: plug release_indefinite")?;
                until_empty("plug")?;
            }
            Waiting::Judge { .. } => {
                if let Some(judge) = &judge {
                    judge.hurry();
                }
            }
        }
        self.loads()?.flow_for(FILL)?;
        if let Some(judge) = judge {
            // The rules go first: the kernel drops what waits when the chain goes.
            nft::add(CONTAINER, "flush chain inet mflow_held in")?;
            self.loads()?.flow()?;
            nft::add(CONTAINER, "delete table inet mflow_held")?;
            return judge.end().map(drop);
        }
        topology::tc("qdisc del dev veth0 root")
    }
}

/// Waits until nothing waits in a discipline that is to go, as it drops what waits then. A stream that has met a wait of many seconds takes
/// as long to send again.
fn until_empty(kind: &str) -> Result<()> {
    wait_until("all that was held goes on", || {
        Ok(topology::queued("veth0", kind)?.pkts == 0)
    })
}
