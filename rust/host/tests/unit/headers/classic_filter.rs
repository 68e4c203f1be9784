// SPDX-License-Identifier: GPL-2.0

//! Filters of packet sockets against datagrams of a flow.

use mflow_algo::algo::headers::classic_filter::{may_take, Step};
use proptest::prelude::*;

use crate::common::cases;

const LD_HALF: u16 = 0x28;
const LD_BYTE: u16 = 0x30;
const LD_WORD: u16 = 0x20;
const LD_LENGTH: u16 = 0x80;
const LD_HALF_BEHIND_X: u16 = 0x48;
const LDX_HEADER_LENGTH: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const LD_NUMBER: u16 = 0x00;
const LD_CELL: u16 = 0x60;
const STORE: u16 = 0x02;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const ADD_X: u16 = 0x0c;
const EQUALS_X: u16 = 0x1d;
const A_TO_X: u16 = 0x07;
const X_TO_A: u16 = 0x87;

fn step(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Step {
    Step {
        code,
        jump_true,
        jump_false,
        k,
    }
}

/// Returns a frame of UDP with what differs from datagram to datagram.
fn frame(is_ipv6: bool, destination_port: u16, differs: u8, payload: usize) -> Vec<u8> {
    let mut frame = [[2; 6], [differs; 6]].concat();
    if is_ipv6 {
        frame.extend([0x86, 0xdd, 0x60 | differs >> 4, differs, differs, differs]);
        frame.extend([0, differs, 17, differs]);
        frame.extend([7; 32]);
    } else {
        let flags = (differs & 1) << 6;
        frame.extend([8, 0, 0x45, differs, 0, differs, differs, differs, flags, 0]);
        frame.extend([differs, 17, differs, differs]);
        frame.extend([7; 8]);
    }
    frame.extend([0x9c, 0x40]);
    frame.extend(destination_port.to_be_bytes());
    frame.extend([0, differs, differs, differs]);
    frame.extend(vec![differs; payload]);
    frame
}

/// A DHCP client's, as dhclient has it.
fn dhcp() -> Vec<Step> {
    vec![
        step(LD_HALF, 0, 0, 12),
        step(JUMP_EQUAL, 0, 8, 0x0800),
        step(LD_BYTE, 0, 0, 23),
        step(JUMP_EQUAL, 0, 6, 17),
        step(LD_HALF, 0, 0, 20),
        step(JUMP_SET, 4, 0, 0x1fff),
        step(LDX_HEADER_LENGTH, 0, 0, 14),
        step(LD_HALF_BEHIND_X, 0, 0, 16),
        step(JUMP_EQUAL, 0, 1, 68),
        step(RETURN, 0, 0, 0xffff_ffff),
        step(RETURN, 0, 0, 0),
    ]
}

#[test]
fn filters_of_services_take_no_datagrams_of_tunnels() {
    let lldp = [
        step(LD_HALF, 0, 0, 12),
        step(JUMP_EQUAL, 0, 1, 0x88cc),
        step(RETURN, 0, 0, 0xffff_ffff),
        step(RETURN, 0, 0, 0),
    ];
    for is_ipv6 in [false, true] {
        let vxlan = frame(is_ipv6, 4_789, 9, 100);
        assert!(!may_take(&lldp, &vxlan, 0));
        assert!(!may_take(&dhcp(), &vxlan, 0));
    }
    assert!(may_take(&dhcp(), &frame(false, 68, 9, 100), 0));
    // A capture without an expression.
    let capture = [step(RETURN, 0, 0, 0xffff)];
    assert!(may_take(&capture, &frame(false, 4_789, 9, 100), 0));
    // A socket that sees no Ethernet header has the same filter at other places.
    let cooked = |port| {
        [
            step(LD_BYTE, 0, 0, 9),
            step(JUMP_EQUAL, 0, 3, 17),
            step(LD_HALF, 0, 0, 22),
            step(JUMP_EQUAL, 0, 1, port),
            step(RETURN, 0, 0, 0xffff),
            step(RETURN, 0, 0, 0),
        ]
    };
    let vxlan = frame(false, 4_789, 9, 100);
    assert!(!may_take(&cooked(68), &vxlan, 14));
    assert!(may_take(&cooked(4_789), &vxlan, 14));
}

#[test]
fn a_filter_that_reads_what_differs_may_take_some() {
    let refuses_by = |code, k| {
        vec![
            step(code, 0, 0, k),
            step(JUMP_GREATER, 0, 1, 0xfffe),
            step(RETURN, 0, 0, 0xffff),
            step(RETURN, 0, 0, 0),
        ]
    };
    let vxlan = frame(false, 4_789, 9, 100);
    for (code, k) in [
        (LD_LENGTH, 0),
        // The class, the length, a word that has a part of the identifier, the time to live, the payload, data beside the packet.
        (LD_BYTE, 15),
        // The flag not to fragment; and who has sent it last.
        (LD_HALF, 20),
        (LD_HALF, 6),
        (LD_HALF, 16),
        (LD_WORD, 17),
        (LD_BYTE, 22),
        (LD_HALF, 50),
        (LD_HALF, 0xffff_f000),
        (LD_HALF, 5_000),
    ] {
        assert!(may_take(&refuses_by(code, k), &vxlan, 0), "{code:#x} {k}");
    }
    assert!(!may_take(&refuses_by(LD_HALF, 36), &vxlan, 0), "the port");
    // Behind a test of the port, the payload is not reached.
    let mut of_port = dhcp();
    of_port[9] = step(LD_HALF, 0, 0, 50);
    of_port.insert(10, step(RETURN, 0, 0, 1));
    of_port[8] = step(JUMP_EQUAL, 0, 2, 68);
    for back in [1, 3, 5] {
        of_port[back].jump_false += u8::from(back != 5);
        of_port[back].jump_true += u8::from(back == 5);
    }
    assert!(!may_take(&of_port, &vxlan, 0));
    assert!(may_take(&of_port, &frame(false, 68, 9, 100), 0));
    // No step, no frame, and a header with options.
    assert!(may_take(&[], &vxlan, 0));
    assert!(may_take(&dhcp(), &[], 0));
    let mut with_options = vxlan;
    with_options[14] = 0x46;
    assert!(may_take(&dhcp(), &with_options, 0));
}

/// Runs a program of these tests' kinds of steps as the kernel does; a load beyond the frame ends it.
fn takes(steps: &[Step], frame: &[u8]) -> bool {
    let (mut a, mut x, mut at, mut cell) = (0_u32, 0_u32, 0, 0);
    let load = |at: usize, bytes: usize| {
        let field = frame.get(at..at + bytes)?;
        Some(
            field
                .iter()
                .fold(0_u32, |value, byte| value << 8 | u32::from(*byte)),
        )
    };
    loop {
        let step = &steps[at];
        let k = step.k as usize;
        at += 1;
        let holds = match step.code {
            LD_LENGTH => {
                a = frame.len() as u32;
                continue;
            }
            LD_WORD | LD_HALF | LD_BYTE | LD_HALF_BEHIND_X | LDX_HEADER_LENGTH => {
                let (place, bytes) = match step.code {
                    LD_WORD => (k, 4),
                    LD_HALF => (k, 2),
                    LD_HALF_BEHIND_X => (x as usize + k, 2),
                    _ => (k, 1),
                };
                let Some(value) = load(place, bytes) else {
                    return false;
                };
                match step.code {
                    LDX_HEADER_LENGTH => x = (value & 15) * 4,
                    _ => a = value,
                }
                continue;
            }
            LD_NUMBER | LD_CELL | STORE | AND | SHIFT_LEFT | ADD_X | A_TO_X | X_TO_A => {
                match step.code {
                    LD_NUMBER => a = step.k,
                    LD_CELL => a = cell,
                    STORE => cell = a,
                    AND => a &= step.k,
                    SHIFT_LEFT => a <<= step.k % 32,
                    ADD_X => a = a.wrapping_add(x),
                    A_TO_X => x = a,
                    _ => a = x,
                }
                continue;
            }
            RETURN_A => return a != 0,
            EQUALS_X => a == x,
            JUMP_EQUAL => a == step.k,
            JUMP_GREATER => a > step.k,
            JUMP_SET => a & step.k != 0,
            _ => return step.k != 0,
        };
        at += usize::from(if holds {
            step.jump_true
        } else {
            step.jump_false
        });
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let loads = prop_oneof![
        Just(LD_LENGTH),
        Just(LD_WORD),
        Just(LD_HALF),
        Just(LD_BYTE),
        Just(LD_HALF_BEHIND_X),
        Just(LDX_HEADER_LENGTH)
    ];
    let jumps = prop_oneof![
        Just(JUMP_EQUAL),
        Just(JUMP_GREATER),
        Just(JUMP_SET),
        Just(EQUALS_X)
    ];
    let work = prop_oneof![
        Just(LD_NUMBER),
        Just(AND),
        Just(ADD_X),
        Just(A_TO_X),
        Just(X_TO_A),
        Just(RETURN_A)
    ];
    let work = (work, 0..64_u32).prop_map(|(code, k)| step(code, 0, 0, k));
    // One cell, and shifts by less than a word.
    let small = prop_oneof![Just(LD_CELL), Just(STORE), Just(SHIFT_LEFT)];
    let small = small.prop_map(|code| step(code, 0, 0, 2));
    let values = prop_oneof![
        Just(0x0800_u32),
        Just(0x86dd),
        Just(17),
        Just(4_789),
        Just(7),
        0..300_u32
    ];
    let load = (loads, 0..64_u32).prop_map(|(code, k)| step(code, 0, 0, k));
    let jump =
        (jumps, values, 0..3_u8, 0..3_u8).prop_map(|(code, k, yes, no)| step(code, yes, no, k));
    let body = proptest::collection::vec(
        prop_oneof![4 => load, 4 => jump, 2 => work, 1 => small],
        1..10,
    );
    (body, any::<bool>()).prop_map(|(mut steps, takes)| {
        // Jumps beyond the body meet one of these.
        for verdict in [takes, !takes, takes] {
            steps.push(step(RETURN, 0, 0, u32::from(verdict)));
        }
        steps
    })
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// A filter that takes none by one datagram takes none of the flow.
    #[test]
    fn what_is_refused_is_refused_of_each(
        steps in steps(),
        is_ipv6 in any::<bool>(),
        one in (any::<u8>(), 0..60_usize),
        other in (any::<u8>(), 0..60_usize),
    ) {
        let [one, other] = [one, other].map(|(differs, payload)| frame(is_ipv6, 4_789, differs, payload));
        if !may_take(&steps, &one, 0) {
            prop_assert!(!takes(&steps, &one));
            prop_assert!(!takes(&steps, &other));
        }
    }
}
