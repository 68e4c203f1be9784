// SPDX-License-Identifier: GPL-2.0

//! A container with firewalld.

use anyhow::Result;

use super::iptables_counters::Counts;
use super::stateful_firewall::Wall;
use crate::hosts::host::{Host, Rules};
use crate::hosts::Case;
use crate::network::nft;
use crate::network::topology::{Family, CONTAINER};

/// The rules, as firewalld has written them.
const RULES: &str = include_str!("firewalld.nft");
/// Ports that the rules let in.
const TCP: u16 = 6_801;
const UDP: u16 = 6_802;

pub(super) fn cases() -> Vec<Case> {
    let case = |name, inner, rules| {
        let has = match rules {
            Rules::First => "firewalld in the container, and a helper for FTP",
            Rules::Later => "firewalld in the container, started when splitting is on already",
            Rules::During => "firewalld in the container, started, stopped and started again while a flow is split",
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
        case("firewalld/during", Family::V4, Rules::During),
    ]
}

fn walled(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    let wall = Wall {
        namespace: Some(CONTAINER),
        inner,
        rules,
        tcp: TCP,
        udp: UDP,
        // Its rules count nothing.
        count: |_| Ok(Counts::new()),
    };
    let rules = || nft::add(CONTAINER, RULES);
    wall.compare(host, || Ok(()), rules).map(drop)
}
