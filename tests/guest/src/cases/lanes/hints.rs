// SPDX-License-Identifier: GPL-2.0

//! Requests for flows by XDP programs on the NIC: a chain of HIKE, and programs whose metadata is no hint.

use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_hike::{Class, Destination, Engine, Hike, Lanes};

use crate::cases::operation::devices::MIXED_PKTS;
use crate::cases::operation::reasons::{FlowLive as _, LIMIT};
use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::network::bpf::Xdp;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live, Load as _};
use crate::{flows, hike};

const NIC: &str = "eth0";
/// The outer destination of all flows.
const HOST: &str = "192.168.50.2";
/// No flow of a guest is as fast: what is split then is split for its hint.
const UNREACHED_PPS: &str = "10000000";
/// Several windows of a flow.
const WINDOWS: Duration = Duration::from_millis(500);

const SPLIT: [u8; 8] = *b"mflw\x01\x08\x01\0";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::of_module(
            "hints/hike",
            "a class of HIKE keeps a fast flow whole, and has a slow one split: flows says so, and no packet is lost or out of order",
            Run::Plain,
            by_hike,
        ),
        Case::of_module(
            "hints/metadata",
            "metadata of an XDP program that is not exactly a hint changes nothing",
            Run::Plain,
            metadata,
        )
        .patching_code(),
    ]
}

fn by_hike(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = false;
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default().eager()
    };
    rig.prepare(&plan, &knobs)?;
    let mut hike = hike::instance(Engine::Compiled)?;
    let chain = hike.add_chain(&"lanes,fw-kernel".parse()?)?;
    let host: Destination = HOST.parse()?;
    let ask = |hike: &mut Hike, lanes| {
        let class = Class {
            lanes,
            ..Class::of(chain)
        };
        hike.set_class(host, class)
    };
    ask(&mut hike, Some(Lanes::Never))?;
    hike.attach(NIC)?;
    let outcome = Datagrams::measure(&plan, |live| {
        let never = [
            ("state", "whole"),
            ("hint", "never"),
            ("reason", "hint_never"),
        ];
        let split = [("state", "split"), ("hint", "split")];
        live.wait_for_flow("it is told that the flow stays whole", |flow| {
            flow.has(&never)
        })?;
        let begun = mflow::flows_split()?;
        ensure!(begun == 0, "flows were split {begun} time(s)");
        // From here on it is slow, by what counts as fast.
        mflow::write("min_flow_pps", UNREACHED_PPS)?;
        live.wait_for("it is not listed any more", LIMIT, || {
            Ok(!flows::any(&never)?)
        })?;
        ask(&mut hike, Some(Lanes::Split))?;
        live.wait_for_flow("a slow flow is split", |flow| flow.has(&split))?;
        live.flow_for(WINDOWS)?;
        ensure!(flows::any(&split)?, "a slow flow does not stay split");
        ask(&mut hike, None)?;
        live.wait_for("it stops without the hint", LIMIT, || {
            Ok(!flows::any(&[("state", "split")])?)
        })?;
        ask(&mut hike, Some(Lanes::Split))?;
        live.wait_for_flow("it is split again", |flow| flow.has(&split))?;
        mflow::write("min_flow_pps", &knobs.min_flow_pps.to_string())?;
        live.wait_for_flow("a fast flow is split", |flow| flow.has(&split))?;
        ask(&mut hike, Some(Lanes::Never))?;
        live.wait_for_flow("it becomes whole", |flow| flow.has(&never))?;
        Ok(())
    })?;
    drop(hike);
    outcome.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

fn metadata(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.split = false;
    // A device has one program.
    let knobs = Knobs {
        build: "auto",
        ..Knobs::default()
    };
    rig.prepare(&plan, &knobs)?;
    mflow::write("min_flow_pps", UNREACHED_PPS)?;
    let outcome = Datagrams::measure(&plan, |live| {
        for at in 0..SPLIT.len() {
            let mut wrong = SPLIT;
            wrong[at] ^= 0x80;
            let program = Xdp::with_metadata(NIC, wrong)?;
            live.flow_for(WINDOWS)?;
            drop(program);
        }
        let begun = mflow::flows_split()?;
        ensure!(
            begun == 0,
            "metadata that is no hint had flows split {begun} time(s)"
        );
        // The same program does ask if it says so.
        let program = Xdp::with_metadata(NIC, SPLIT)?;
        live.wait_for_flow("the flow is split", |flow| {
            flow.has(&[("state", "split"), ("hint", "split")])
        })?;
        drop(program);
        live.wait_for("it stops without the program", LIMIT, || {
            Ok(!flows::any(&[("state", "split")])?)
        })
    })?;
    outcome.judge(|outcome| {
        // Drivers have the CPU that attaches a program or takes it off poll a queue once, and what that CPU's queues still hold may be
        // passed by what comes next, split or not. Without our hooks sources are of CPUs, too, and the flow is split there again before
        // it has ended where it was.
        let is_patched = mflow::is_patched()?;
        let most = MIXED_PKTS * if is_patched { 1 } else { 2 };
        let is_noticed = !is_patched || outcome.reordered > 0;
        if !is_noticed || outcome.reordered > most {
            return rig.require_unnoticed::<Datagrams>(outcome);
        }
        outcome.require_whole()?;
        rig.settle()
    })
}
