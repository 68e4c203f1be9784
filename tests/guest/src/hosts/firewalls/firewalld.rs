// SPDX-License-Identifier: GPL-2.0

//! A container with firewalld: what is new passes by port, the rest by the state of its connection, and FTP has a helper that says
//! which connections are to come.

use anyhow::{ensure, Context as _, Result};

use super::ftp::{Server, SESSIONS};
use crate::hosts::arrivals::Arrived;
use crate::hosts::beside::{Made, Services};
use crate::hosts::elephant::Elephant;
use crate::hosts::host::{Host, Rules};
use crate::hosts::services::tracked::{self, Tracked};
use crate::hosts::Case;
use crate::nft;
use crate::topology::{Family, CONTAINER};

/// The rules, as firewalld has written them.
const RULES: &str = include_str!("firewalld.nft");
/// Counts what fits to no connection, before firewalld drops it.
const WATCH: &str = "
table inet mflow {
    counter invalid { }
    chain input {
        type filter hook input priority filter;
        ct state invalid counter name invalid
    }
}
";
/// Ports that the rules let in.
const TCP: u16 = 6_801;
const UDP: u16 = 6_802;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner, rules| {
        let has = match rules {
            Rules::First => "firewalld in the container, and a helper for FTP",
            Rules::Later => "firewalld in the container, started when flows are split already",
        };
        Case::new(
            name,
            has,
            "files come by FTP over connections that only the helper has announced, beside a split flow; new connections and flows pass, \
             and none is invalid",
            move |host| walled(host, inner, rules),
        )
    };
    vec![
        case("firewalld/v4", Family::V4, Rules::First),
        case("firewalld/v6", Family::V6, Rules::First),
        case("firewalld/later", Family::V4, Rules::Later),
    ]
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
    files: u64,
    tracked: Tracked,
    announced: u64,
    invalid: u64,
}

fn walled(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let set_up = || {
        nft::add(CONTAINER, RULES)?;
        nft::add(CONTAINER, WATCH)
    };
    let compared = host.compare(inner, rules, set_up, |host| seen(host, inner))?;
    compared.each(|seen| {
        let counters = || format!("counters: {}", seen.arrived.counters());
        seen.made.require_all().with_context(counters)?;
        ensure!(
            seen.files == SESSIONS && seen.announced == SESSIONS && seen.invalid == 0,
            "{} of {SESSIONS} files came, {} connections were announced, and {} packets were invalid; {:?}",
            seen.files,
            seen.announced,
            seen.invalid,
            seen.tracked
        );
        seen.arrived.require_whole()
    })?;
    compared.require_same(|seen| &seen.tracked)?;
    let (on, off) = (&compared.on, &compared.off);
    on.arrived.require_looks_of(&off.arrived)?;
    on.arrived.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let services = Services::of_container(inner, [TCP, UDP], [TCP, UDP])?;
    let server = Server::bind(inner)?;
    let (arrived, (files, made)) = Elephant::plain(host, inner)?.run(host.datagrams / 4, |_| {
        Ok((server.serve()?, services.make()?))
    })?;
    Ok(Seen {
        arrived,
        made,
        files,
        tracked: Tracked::read(Some(CONTAINER), &[TCP, UDP])?,
        announced: tracked::announced(CONTAINER)?,
        invalid: nft::counted(CONTAINER, "invalid")?.pkts,
    })
}
