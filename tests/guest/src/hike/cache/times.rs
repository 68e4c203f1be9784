// SPDX-License-Identifier: GPL-2.0

//! The time for which an entry is good: a second at most, and no longer than its colour.
//!
//! The one case fails if entries are good for three seconds, the other one if they are good in the next block.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Class, Destination, Direction, Engine, Flow, Hike, Marking, Monitor};

use super::kernel_changes::SECOND;
use super::own_changes::{path, COLOUR, SIDS};
use super::ways::{
    by, forget_mtu, hits_in, is_used, router, Seen, Ways, ENOUGH, OUT, ROUTER, TO_V6,
};
use crate::hike::instance;
use crate::machine::clock::now_ns;
use crate::network::{netns, topology};

/// Blocks that are shorter than an entry is good otherwise, and the time for which packets are looked at: a dozen of them.
const BLOCK: Duration = Duration::from_millis(200);
const BLOCKS: Duration = Duration::from_millis(2_500);
/// An MTU that the larger packets do not fit.
const SMALL_MTU: &str = "1280";
const USUAL_MTU: &str = "1500";

/// Holds packets against their colours: by its colour, a packet takes the one way or the other.
pub(super) fn of_colours() -> Result<()> {
    let ways = Ways::up()?;
    let sid = SIDS[0];
    router(&format!(
        "route add {sid} {}\nroute add {sid} {} table 100",
        by(0, sid.into()),
        by(1, sid.into())
    ))?;
    netns::run(
        ROUTER,
        &format!("ip -6 rule add pref 100 tos {COLOUR:#04x} lookup 100"),
    )?;
    under_cache(&ways, colours)
}

/// Makes a change of which nobody tells.
pub(super) fn of_entries() -> Result<()> {
    under_cache(&Ways::up()?, second)
}

/// Runs `work` with an instance of each engine, while datagrams cross the router.
fn under_cache(ways: &Ways, work: impl Fn(&mut Hike, &Seen) -> Result<()>) -> Result<()> {
    ways.leads_to(1)?;
    ways.leads_to(0)?;
    for engine in [Engine::Compiled, Engine::TailCalls] {
        let mut hike = instance(engine)?;
        ways.attach(&mut hike)?;
        ways.under_traffic(TO_V6.into(), |seen| work(&mut hike, seen))
            .with_context(|| format!("{engine:?}"))?;
    }
    Ok(())
}

/// Looks at packets whose colours, and so ways, change with each block.
fn colours(hike: &mut Hike, seen: &Seen) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    let path = path(SIDS[0]);
    let monitor = Monitor {
        period: BLOCK,
        marking: Marking::DscpBit(0),
    };
    hike.add_monitor(&Flow::of(&path)?, Direction::In, &monitor)?;
    let chain = hike.add_chain(&"enc,mon-in,fw-fib".parse()?)?;
    let coloured = Class {
        path: Some(hike.add_path(&path)?),
        ..Class::of(chain)
    };
    hike.set_class(Destination::Address(TO_V6.into()), coloured)?;
    seen.settles("they have a colour or none", |one| one.outer.is_some())?;
    let (begin, before) = (now_ns(), hits()?);
    thread::sleep(BLOCKS);
    let sent = seen.sent_since(begin);
    for way in [0, 1] {
        let colour = if way == 1 { COLOUR } else { 0 };
        let taken = sent.iter().filter(|one| one.way == way);
        ensure!(
            taken.clone().count() >= ENOUGH,
            "few packets take way {way}"
        );
        for one in taken {
            ensure!(
                one.outer == Some((SIDS[0], colour)),
                "a packet of a block has taken the way of another one: {one:?}"
            );
        }
    }
    let hits = hits()? - before;
    // CAST: some thousands.
    ensure!(
        hits >= sent.len() as u64 / 2,
        "of {} packets, {hits} were taken from the cache",
        sent.len()
    );
    Ok(())
}

/// Makes the MTU of IPv6 smaller, and gives it back.
fn second(hike: &mut Hike, seen: &Seen) -> Result<()> {
    let folder = hike.folder().to_owned();
    let hits = || hits_in(&folder);
    let set = |mtu| {
        let knob = format!("net/ipv6/conf/{}/mtu", OUT[0]);
        netns::within(ROUTER, || topology::sysctl(&knob, mtu))
    };
    let forwards = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    let to = Destination::Address(TO_V6.into());
    hike.set_class(to, forwards)?;
    is_used("before the MTU", &hits)?;
    // From here on, all entries are new.
    hike.set_class(to, forwards)?;
    seen.changes(
        "the MTU of IPv6",
        SECOND,
        &hits,
        || set(SMALL_MTU),
        |one| !one.is_large,
    )?;
    set(USUAL_MTU)?;
    forget_mtu()
}
