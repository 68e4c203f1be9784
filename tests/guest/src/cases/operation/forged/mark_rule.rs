// SPDX-License-Identifier: GPL-2.0

//! The rule that writes the first bytes of a datagram's data into its security mark, and counts it. The kernel lets each namespace have
//! it, and the program `nft` knows no words for it: it writes labels there only. So the rule is built here, over netlink.

use std::os::fd::AsRawFd as _;

use anyhow::{ensure, Context as _, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    recv, send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType,
};

// linux/netlink.h, linux/netfilter/nfnetlink.h and nf_tables.h
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLMSG_ERROR: u16 = 0x2;
const NLA_F_NESTED: u16 = 0x8000;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const FAMILY_NONE: u8 = 0;
const FAMILY_INET: u8 = 1;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;

const PAYLOAD_REGISTER: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const TRANSPORT_HEADER: u32 = 2;
const META_KEY: u16 = 2;
const META_FROM_REGISTER: u16 = 3;
const META_SECMARK: u32 = 14;
const OBJECT_KIND: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_COUNTER: u32 = 1;
/// Any register will do.
const REGISTER: u32 = 1;

const UDP_HEADER_BYTES: u32 = 8;
const MARK_BYTES: u32 = 4;
const ANSWER_BYTES: usize = 4 << 10;
/// The length of a message's header, and the place where an answer has its error.
const HEADER_BYTES: usize = 16;
const ERROR_BYTES: usize = 4;

/// Adds the rule to a chain of a table of the family `inet`, which has the counter, in the calling thread's namespace.
pub(super) fn add(table: &str, chain: &str, counter: &str) -> Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )
    .context("no netlink socket of the packet filter")?;
    let messages = batch(table, chain, counter);
    send(socket.as_raw_fd(), &messages, MsgFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let error = error_of(&answer[..length])?;
    ensure!(
        error == 0,
        "the kernel takes no rule that writes a security mark: {}",
        Errno::from_raw(-error)
    );
    Ok(())
}

/// Returns the messages that add the rule, as one change.
fn batch(table: &str, chain: &str, counter: &str) -> Vec<u8> {
    let load = [
        number(PAYLOAD_REGISTER, REGISTER),
        number(PAYLOAD_BASE, TRANSPORT_HEADER),
        number(PAYLOAD_OFFSET, UDP_HEADER_BYTES),
        number(PAYLOAD_LENGTH, MARK_BYTES),
    ];
    let store = [
        number(META_KEY, META_SECMARK),
        number(META_FROM_REGISTER, REGISTER),
    ];
    let count = [
        number(OBJECT_KIND, OBJECT_COUNTER),
        text(OBJECT_NAME, counter),
    ];
    let expressions = [
        expression("payload", &load),
        expression("meta", &store),
        expression("objref", &count),
    ];
    let rule = [
        text(RULE_TABLE, table),
        text(RULE_CHAIN, chain),
        attribute(RULE_EXPRESSIONS | NLA_F_NESTED, &expressions.concat()),
    ];
    let flags = NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK;
    [
        message(BATCH_BEGIN, 0, FAMILY_NONE, SUBSYSTEM, &[]),
        message(NEW_RULE, flags, FAMILY_INET, 0, &rule.concat()),
        message(BATCH_END, 0, FAMILY_NONE, SUBSYSTEM, &[]),
    ]
    .concat()
}

fn message(kind: u16, flags: u16, family: u8, subsystem: u16, attributes: &[u8]) -> Vec<u8> {
    let [high, low] = subsystem.to_be_bytes();
    let body = [&[family, 0, high, low], attributes].concat();
    // CAST: a few hundred bytes.
    let length = (HEADER_BYTES + body.len()) as u32;
    [
        &length.to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &(NLM_F_REQUEST | flags).to_ne_bytes(),
        // The sequence number and the port, which nobody looks at.
        &[0; 8],
        &body,
    ]
    .concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // CAST: a few hundred bytes.
    let length = (4 + value.len()) as u16;
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    let parts = [
        text(EXPRESSION_NAME, name),
        attribute(EXPRESSION_DATA | NLA_F_NESTED, &data.concat()),
    ];
    attribute(LIST_ELEMENT | NLA_F_NESTED, &parts.concat())
}

/// Returns the error of an answer: 0, or a negative number.
fn error_of(answer: &[u8]) -> Result<i32> {
    let kind = answer.get(4..6).context("a short answer")?;
    ensure!(kind == NLMSG_ERROR.to_ne_bytes(), "no answer to the rule");
    let error = answer
        .get(HEADER_BYTES..HEADER_BYTES + ERROR_BYTES)
        .context("an answer without an error")?;
    Ok(i32::from_ne_bytes(error.try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_they_say() {
        let bytes = batch("mflow", "forge", "tagged");
        let mut left = &bytes[..];
        let mut kinds = Vec::new();
        while let Some(length) = left.get(..4) {
            let length = u32::from_ne_bytes(length.try_into().unwrap());
            kinds.push(u16::from_ne_bytes(left[4..6].try_into().unwrap()));
            left = &left[usize::try_from(length).unwrap()..];
        }
        assert_eq!(kinds, [BATCH_BEGIN, NEW_RULE, BATCH_END]);
        assert!(left.is_empty() && bytes.len().is_multiple_of(4));
    }

    #[test]
    fn an_answer_tells_the_error() {
        let mut answer = vec![0; HEADER_BYTES + ERROR_BYTES];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        answer[HEADER_BYTES..].copy_from_slice(&(-95_i32).to_ne_bytes());
        assert_eq!(error_of(&answer).unwrap(), -95);
        error_of(&answer[..HEADER_BYTES]).unwrap_err();
    }
}
