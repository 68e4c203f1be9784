// SPDX-License-Identifier: GPL-2.0

//! The verdict of a packet socket's filter on all datagrams of a flow, of which one is there. A filter is a classic BPF program
//! (`struct sock_filter` of linux/filter.h, net/core/filter.c of the kernel).
//!
//! The program runs on that datagram. As long as it only reads what is the same in each datagram of the flow, it ends with each as
//! with this one. Where it reads anything else, it may take some of them.

use super::flow_key::{ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP};
use core::mem::size_of;
use core::ops::Range;

/// A step of a program, as `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Step {
    /// The operation.
    pub code: u16,
    /// The number of steps to skip if a comparison holds.
    pub jump_true: u8,
    /// The same if it does not.
    pub jump_false: u8,
    /// The operand.
    pub k: u32,
}

const _: () = assert!(size_of::<Step>() == 8);

/// The cells of a program's memory: BPF_MEMWORDS.
const CELLS: usize = 16;

// Classes of operations, and their parts: linux/bpf_common.h.
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const IMM: u16 = 0;
const MEM: u16 = 0x60;
const MSH: u16 = 0xa0;
const BY_X: u16 = 0x08;
const RETURNS_A: u16 = 0x10;
const TXA: u16 = 0x80;

/// Bytes of an IPv4 frame without options that are the same in each datagram of a flow: Ethernet's header but the sender, version and
/// length of the header, flags and offset, protocol, addresses and ports. Length, class, identifier, time to live and checksum differ.
const SAME_OF_IPV4: [Range<usize>; 5] = [0..6, 12..15, FLAGS, 23..24, 26..38];
/// The flags and the offset of a fragment. The flag not to fragment may differ, so only tests for other bits may follow.
const FLAGS: Range<usize> = 20..22;
const SAME_FLAGS: u32 = 0x3fff;
/// The same of IPv6 without extension headers: next header, addresses and ports.
const SAME_OF_IPV6: [Range<usize>; 4] = [0..6, 12..14, 20..21, 22..58];

/// Returns whether a filter may take one of the datagrams of a flow. `frame` is one of them, from Ethernet's header on, as far as it can
/// be read; the filter sees it from `shown_from` on. All jumps lead forward, so the program ends within as many steps as it has.
pub fn may_take(steps: &[Step], frame: &[u8], shown_from: usize) -> bool {
    let Some(same) = same_bytes(frame) else {
        return true;
    };
    let shown = Shown {
        frame,
        from: shown_from,
        same,
    };
    // Nothing is known of it if it reads what may differ.
    shown.is_taken(steps).unwrap_or(true)
}

/// Returns the bytes that are the same in each datagram; nothing for frames of other protocols, or with more headers.
fn same_bytes(frame: &[u8]) -> Option<&'static [Range<usize>]> {
    let eth_proto = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let (protocol, same): (_, &[_]) = match eth_proto {
        ETH_P_IP if *frame.get(14)? == 0x45 => (*frame.get(23)?, &SAME_OF_IPV4),
        ETH_P_IPV6 => (*frame.get(20)?, &SAME_OF_IPV6),
        _ => return None,
    };
    matches!(protocol, IPPROTO_UDP | IPPROTO_TCP).then_some(same)
}

/// A frame as a filter sees it.
struct Shown<'a> {
    frame: &'a [u8],
    from: usize,
    same: &'static [Range<usize>],
}

impl Shown<'_> {
    /// Returns whether a program takes the frame; nothing if it reads what may differ.
    fn is_taken(&self, steps: &[Step]) -> Option<bool> {
        let (mut a, mut x, mut cells) = (0_u32, 0_u32, [0_u32; CELLS]);
        let mut has_flags = false;
        let mut at = 0;
        loop {
            let step = steps.get(at)?;
            at += 1;
            if has_flags && uses_differing_flag(step) {
                return None;
            }
            let operand = if step.code & BY_X != 0 { x } else { step.k };
            match step.code & 7 {
                LD => (a, has_flags) = self.load(step, x, &cells)?,
                LDX => {
                    let (value, is_flags) = self.load(step, x, &cells)?;
                    if is_flags {
                        return None;
                    }
                    x = value;
                }
                ST => *cell(&mut cells, step.k)? = a,
                STX => *cell(&mut cells, step.k)? = x,
                ALU => a = calculate(step.code & 0xf0, a, operand)?,
                JMP => {
                    let skipped = match step.code & 0xf0 {
                        0x00 => step.k,
                        code => {
                            let holds = match code {
                                0x10 => a == operand,
                                0x20 => a > operand,
                                0x30 => a >= operand,
                                0x40 => a & operand != 0,
                                _ => return None,
                            };
                            u32::from(if holds {
                                step.jump_true
                            } else {
                                step.jump_false
                            })
                        }
                    };
                    at = at.checked_add(usize::try_from(skipped).ok()?)?;
                }
                RET if step.code & RETURNS_A != 0 => return Some(a != 0),
                RET => return Some(step.k != 0),
                // Of the last class there are two.
                _ if step.code & TXA != 0 => (a, has_flags) = (x, false),
                _ => x = a,
            }
        }
    }

    /// Returns what a step loads, and whether these are the flags of IPv4.
    fn load(&self, step: &Step, x: u32, cells: &[u32; CELLS]) -> Option<(u32, bool)> {
        let bytes = match step.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return None,
        };
        match step.code & 0xe0 {
            IMM => Some((step.k, false)),
            MEM => Some((*cells.get(usize::try_from(step.k).ok()?)?, false)),
            ABS => self.field(step.k, bytes),
            IND => self.field(x.checked_add(step.k)?, bytes),
            MSH => Some(((self.field(step.k, 1)?.0 & 0xf) * 4, false)),
            // The length of the frame.
            _ => None,
        }
    }

    fn field(&self, at: u32, bytes: usize) -> Option<(u32, bool)> {
        let at = usize::try_from(at).ok()?.checked_add(self.from)?;
        let end = at.checked_add(bytes)?;
        let same = self
            .same
            .iter()
            .find(|same| same.start <= at && end <= same.end)?;
        let is_flags = *same == FLAGS;
        if is_flags && bytes != FLAGS.len() {
            return None;
        }
        let field = self.frame.get(at..end)?;
        let value = field
            .iter()
            .fold(0, |value, byte| value << 8 | u32::from(*byte));
        Some((value, is_flags))
    }
}

/// Returns whether a step makes use of the flag that may differ, which the accumulator has.
fn uses_differing_flag(step: &Step) -> bool {
    match step.code & 7 {
        LD | LDX | STX => false,
        JMP => {
            let is_test = step.code & 0xf8 == 0x40 && step.k & !SAME_FLAGS == 0;
            step.code & 0xf0 != 0 && !is_test
        }
        RET => step.code & RETURNS_A != 0,
        ST | ALU => true,
        _ => step.code & TXA == 0,
    }
}

fn cell(cells: &mut [u32; CELLS], k: u32) -> Option<&mut u32> {
    cells.get_mut(usize::try_from(k).ok()?)
}

fn calculate(code: u16, a: u32, operand: u32) -> Option<u32> {
    match code {
        0x00 => Some(a.wrapping_add(operand)),
        0x10 => Some(a.wrapping_sub(operand)),
        0x20 => Some(a.wrapping_mul(operand)),
        0x30 => a.checked_div(operand),
        0x40 => Some(a | operand),
        0x50 => Some(a & operand),
        0x60 => a.checked_shl(operand),
        0x70 => a.checked_shr(operand),
        0x80 => Some(a.wrapping_neg()),
        0x90 => a.checked_rem(operand),
        0xa0 => Some(a ^ operand),
        _ => None,
    }
}
