// SPDX-License-Identifier: GPL-2.0

//! Rules of iptables, in the form in which its programs save them. Of those the ones that hand rules to the kernel's nf_tables are meant,
//! as distributions have them by default.

use anyhow::Result;

use crate::machine::command;
use crate::network::topology::Family;

/// Adds rules to those of a namespace, or of the first one.
pub(crate) fn restore<'a>(
    namespace: impl Into<Option<&'a str>>,
    family: Family,
    rules: &str,
) -> Result<()> {
    let program = match family {
        Family::V4 => "iptables-nft-restore",
        Family::V6 => "ip6tables-nft-restore",
    };
    let line = command::within(namespace, &format!("{program} --noflush"));
    command::run_with_input(&line, rules).map(drop)
}
