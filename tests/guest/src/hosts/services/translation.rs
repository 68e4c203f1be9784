// SPDX-License-Identifier: GPL-2.0

//! A container whose namespace translates what comes in to other ports of its own, as a service mesh's REDIRECT and Docker's embedded
//! DNS do. Connection tracking thus has hooks of its own at the end of the way.

use anyhow::{ensure, Result};

use super::conntrack_ports::Tracked;
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Host, Rules};
use crate::hosts::new_flows::{Made, Services, CONNECTIONS, FLOWS};
use crate::hosts::Case;
use crate::network::nft;
use crate::network::topology::{Family, CONTAINER};

const TCP: u16 = 6_101;
const UDP: u16 = 6_102;
const TCP_TO: u16 = 7_002;
const UDP_TO: u16 = 7_003;

const RULES: &str = "
table inet mflow {
    chain before {
        type nat hook prerouting priority dstnat;
        tcp dport 6101 redirect to :7002
        udp dport 6102 redirect to :7003
    }
}
";

pub(in crate::hosts) fn cases() -> Vec<Case> {
    let case = |name, proves, inner: Family, rules| {
        let redirects = match rules {
            Rules::First => {
                "rules in the container that redirect to ports of its own, as a service mesh has"
            }
            Rules::Later => "such rules, made when flows are split already",
        };
        Case::new(name, redirects, proves, move |host| {
            translated(host, inner, rules)
        })
    };
    let first = "rules that redirect are there before splitting is: new connections and datagrams beside a split flow are translated, \
                 and so are their answers";
    vec![
        case("translation/v4", first, Family::V4, Rules::First),
        case("translation/v6", first, Family::V6, Rules::First),
        case(
            "translation/later",
            "the same where the rules come once flows are split",
            Family::V4,
            Rules::Later,
        ),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
}

fn translated(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let set_up = || nft::add(CONTAINER, RULES);
    let compared = host.compare(inner, rules, set_up, |host| seen(host, inner))?;
    compared.off.made.require_all()?;
    // CAST: some hundred.
    let all = CONNECTIONS + FLOWS as u64;
    ensure!(
        compared.off.tracked.entries == all && compared.off.tracked.unreplied == 0,
        "of {all} connections and flows {:?} is tracked with enabled 0",
        compared.off.tracked
    );
    let (on, off) = (&compared.on, &compared.off);
    ensure!(
        on.made == off.made && on.tracked == off.tracked,
        "with enabled 1 {:?} and {:?}, with 0 {:?} and {:?}",
        on.made,
        on.tracked,
        off.made,
        off.tracked
    );
    off.arrived.require_whole()?;
    on.arrived.require_whole()?;
    on.arrived.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP_TO, UDP_TO])?;
    let (arrived, made) =
        Elephant::plain(host, inner)?.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen {
        arrived,
        made,
        tracked: Tracked::read(Some(CONTAINER), &[TCP, UDP])?,
    })
}
