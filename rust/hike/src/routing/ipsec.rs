// SPDX-License-Identifier: GPL-2.0

//! Policies of IPsec, of which XDP knows nothing: linux/xfrm.h.

use anyhow::Result;
use netlink_sys::protocols::NETLINK_XFRM;

use super::netlink::{attributes, word, Netlink};

/// `XFRM_MSG_GETSPDINFO`, whose answer is a word and attributes.
const GET_COUNTS: u16 = 0x25;
/// `XFRMA_SPD_INFO`: words, of which these two are the policies for what is sent, and for what is forwarded.
const COUNTS: u16 = 1;
const SENT_AT: usize = 4;
const FORWARDED_AT: usize = 8;
/// `XFRM_MSG_GETDEFAULT`: a byte each for what is received, forwarded and sent. 1: without a policy it is blocked.
const GET_DEFAULT: u16 = 0x28;
const BLOCKED: u8 = 1;

/// Returns whether forwarded packets may meet a policy.
pub(crate) fn has_policies() -> Result<bool> {
    // Without IPsec, there is no such socket.
    let Ok(mut netlink) = Netlink::open(NETLINK_XFRM) else {
        return Ok(false);
    };
    let mut found = false;
    netlink.get(GET_COUNTS, &[0; 4], |message| {
        let counts = attributes(message.body, 4)
            .value(COUNTS)
            .unwrap_or_default();
        let count = |at: usize| counts.get(at..).and_then(word);
        found |= count(SENT_AT) != Some(0) || count(FORWARDED_AT) != Some(0);
    })?;
    // Kernels before 5.14 block nothing without a policy.
    let _unknown = netlink.get(GET_DEFAULT, &[0; 4], |message| {
        found |= message
            .body
            .get(1..3)
            .is_some_and(|of| of.contains(&BLOCKED));
    });
    Ok(found)
}
