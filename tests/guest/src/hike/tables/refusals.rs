// SPDX-License-Identifier: GPL-2.0

//! Refusals of changes that cannot work: each gives the reason, and nothing changes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_hike::{
    Action, Behaviour, ChainId, Class, Destination, Direction, Engine, ExactFlow, Flavours, Flow,
    Hike, Marking, Monitor, Route, Rule,
};

use super::classes::{frame, path, run};
use crate::hike::{instance, Case};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "tables/refusals",
        proves: "what cannot work is refused with the reason, and what was there stays",
        run: |_| refusals(),
    }]
}

fn refusals() -> Result<()> {
    let mut hike = instance(Engine::Compiled)?;
    let drop_all = hike.add_chain(&"drop".parse()?)?;
    let kernel = hike.add_chain(&"fw-kernel".parse()?)?;
    let encapsulate = "enc,fw-kernel".parse()?;
    let path_used = hike.add_path(&path(1))?;
    let path_unused = hike.add_path(&path(2))?;
    let to = Destination::Address(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
    hike.set_class(
        to,
        Class {
            chain: kernel,
            path: None,
            lanes: None,
        },
    )?;
    refused(
        hike.replace_chain(kernel, &encapsulate),
        "enc needs a path, and the class of 2001:db8::1 has none; give it one first",
    )?;
    refused(
        hike.remove_chain(kernel),
        "the class of 2001:db8::1 takes this chain; change that first",
    )?;
    let with_path = Class {
        chain: drop_all,
        path: Some(path_used),
        lanes: None,
    };
    hike.set_class(to, with_path)?;
    refused(
        hike.remove_path(path_used),
        "the class of 2001:db8::1 uses this path; change that first",
    )?;
    hike.remove_path(path_unused)?;
    hike.remove_chain(kernel)?;
    refused(
        hike.set_class(
            to,
            Class {
                chain: kernel,
                path: None,
                lanes: None,
            },
        ),
        "no such chain",
    )?;
    refused(
        hike.remove_class(Destination::Default),
        "default has no class",
    )?;
    let by_hand = Destination::Prefix(Ipv4Addr::new(10, 0, 0, 1).into(), 8);
    refused(
        hike.set_class(by_hand, Class::of(drop_all)),
        "10.0.0.1/8 has bits beyond its prefix; 10.0.0.0/8 has not",
    )?;
    refuse_behaviours(&mut hike, drop_all)?;
    refused(hike.detach("eth0"), "packets of eth0 do not come here")?;
    let (unknown, everywhere) = (1 << 30, "0.0.0.0/0".parse()?);
    refused(hike.add_port(unknown), "device 1073741824 cannot be a port")?;
    refused(hike.remove_port(unknown), "device 1073741824 is no port")?;
    refused(
        hike.remove_inside(unknown),
        "device 1073741824 is not inside",
    )?;
    refused(hike.remove_route(everywhere), "0.0.0.0/0 has no route")?;
    let route = Route {
        port: 1,
        mtu: 1_500,
        source: [2; 6],
        destination: [2; 6],
    };
    refused(
        hike.set_route(Destination::Default, &route),
        "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0",
    )?;
    hike.set_route(everywhere, &route)?;
    hike.remove_route(everywhere)?;
    let flow = Flow::of(&path(1))?;
    let monitor = Monitor {
        period: Duration::from_secs(1),
        marking: Marking::DscpBit(0),
    };
    let not_there = "this flow is not monitored";
    refused(hike.remove_monitor(&flow, Direction::Out), not_there)?;
    refused(hike.counts(&flow, Direction::Out).map(drop), not_there)?;
    hike.add_monitor(&flow, Direction::Out, &monitor)?;
    refused(
        hike.add_monitor(&flow, Direction::Out, &monitor),
        "this flow is monitored already; remove its monitor first to count from 0 again",
    )?;
    hike.remove_monitor(&flow, Direction::Out)?;
    // Whatever was refused: the class is the last that was not.
    let before = hike.reasons()?;
    run(
        hike.dispatcher()?,
        &frame(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    )?;
    let grown = |(after, before): (&(_, u64), &(_, u64))| after.1 - before.1;
    let after = hike.reasons()?;
    let dropped = after
        .iter()
        .zip(&before)
        .find(|(one, _)| one.0.name == "by-program");
    ensure!(dropped.map(grown) == Some(1), "the packet was not dropped");
    Ok(())
}

fn refused(what: Result<()>, why: &str) -> Result<()> {
    let said = what.err().map(|error| error.to_string());
    ensure!(said.as_deref() == Some(why), "{said:?}, and not `{why}`");
    Ok(())
}

/// Behaviours, exact flows and rules; nothing of them is left.
fn refuse_behaviours(hike: &mut Hike, chain: ChainId) -> Result<()> {
    let sid: Destination = "fc00::/64".parse()?;
    let class = Class::of;
    let (dec, end) = ("dec".parse()?, "end,fw-fib".parse()?);
    let decapsulates = hike.add_chain(&dec)?;
    let dt4 = hike.add_behaviour(&Behaviour::Dt4 { table: None })?;
    let flavours = Flavours::default();
    let ends = hike.add_behaviour(&Behaviour::End { flavours })?;
    let needs = "dec needs a behaviour that it can do, and the class of fc00::/64 has none";
    refused(hike.set_class(sid, class(decapsulates)), needs)?;
    refused(hike.set_local_sid(sid, class(decapsulates), ends), needs)?;
    hike.set_local_sid(sid, class(decapsulates), dt4)?;
    refused(
        hike.remove_behaviour(dt4),
        "the class of fc00::/64 has this behaviour; change that first",
    )?;
    refused(
        hike.replace_chain(decapsulates, &end),
        "end needs a behaviour that it can do, and the class of fc00::/64 has none; give it one first",
    )?;
    hike.remove_class(sid)?;
    hike.remove_behaviour(dt4)?;
    refused(hike.remove_behaviour(dt4), "no such behaviour")?;
    refused(
        hike.set_local_sid(sid, class(chain), dt4),
        "no such behaviour",
    )?;
    let flow = ExactFlow::Label {
        source: Ipv6Addr::LOCALHOST,
        destination: Ipv6Addr::LOCALHOST,
        label: 7,
    };
    refused(
        hike.remove_flow_class(&flow),
        "::1 to ::1, flow label 7 has no class of its own",
    )?;
    let needs =
        "dec needs a behaviour that it can do, and the class of ::1 to ::1, flow label 7 has none";
    refused(hike.set_flow_class(&flow, class(decapsulates)), needs)?;
    hike.remove_chain(decapsulates)?;
    // The rules that were there stay.
    let all = Rule::all(Action::Allow);
    hike.set_rules(std::slice::from_ref(&all))?;
    refused(
        hike.set_rules(&vec![all.clone(); 257]),
        "257 rules are too many: 256 are allowed",
    )?;
    ensure!(hike.rules()? == [(&all, 0)], "the rule is not there");
    hike.set_rules(&[])
}
