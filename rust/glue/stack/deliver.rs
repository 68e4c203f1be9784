// SPDX-License-Identifier: GPL-2.0

//! The hand-over of packets to the stack: merged ones go to their sockets, or on an unpatched kernel to the part of the stack that is
//! left before these; inline ones go on from where they were dispatched (`carry`).

use super::skb::SkBuff;
use super::{ffi, way};
use crate::algo::lanes::queue::chain::Chain;
use crate::algo::lanes::queue::Packet;
use crate::algo::parked_amount::Amount;

/// Makes the last packet of a run hold the run's socket. Returns false if the socket is being destroyed.
///
/// # Safety: `socket` is the number of the packets' socket, which is valid.
#[inline]
pub(crate) unsafe fn hold_socket(chain: &Chain<SkBuff>, socket: usize) -> bool {
    chain.last_node().is_some_and(|last| {
        let socket = core::ptr::with_exposed_provenance_mut(socket);
        // SAFETY: The packet is the chain's; the socket is valid by the contract.
        unsafe { ffi::mflow_skb_hold_socket(last.as_ptr(), socket) }
    })
}

/// Returns whether look-ups choose among sockets like this one by their CPU.
///
/// # Safety: `socket` is the number of a socket that a look-up has found in this softirq.
#[inline]
pub(crate) unsafe fn is_by_cpu(socket: usize) -> bool {
    // SAFETY: The socket is valid by the contract, and softirqs are disabled.
    unsafe { ffi::mflow_sock_is_by_cpu(core::ptr::with_exposed_provenance(socket)) }
}

/// Returns the memory of packets that fits into the buffer of a socket, in bytes. Returns 0 if that is not known, or if the sender
/// keeps to it (TCP).
///
/// # Safety: as for [`is_by_cpu`].
#[inline]
pub(crate) unsafe fn receive_bytes(socket: usize) -> u32 {
    // SAFETY: The socket is valid by the contract.
    unsafe { ffi::mflow_sock_receive_bytes(core::ptr::with_exposed_provenance(socket)) }
}

/// Gives packets to their sockets, in order. Returns their amount, as it was when they were parked. Raises time stamps before
/// `stamp_ns` to it, and sets `stamp_ns` to the latest time stamp.
///
/// # Safety: softirqs are disabled, each packet is [`set_parked`](SkBuff::set_parked), and each run holds its socket.
#[inline]
pub(crate) unsafe fn deliver(chain: Chain<SkBuff>, stamp_ns: &mut u64) -> Amount {
    // SAFETY: By the contract; packets are linked, and we give up ownership of all of them.
    Amount::from_bits(unsafe { ffi::mflow_deliver(chain.into_first(), stamp_ns) })
}

/// Carries a packet to its end in this call, on this CPU.
///
/// # Safety: softirqs are disabled.
pub(crate) unsafe fn carry(packet: SkBuff) {
    // SAFETY: By the contract; the packet is ours to give.
    unsafe { ffi::mflow_receive_skb(packet.into_raw()) };
}

/// Queues a packet behind the packets that wait on the ordinary path of another CPU. Returns it if none wait, or too many.
///
/// # Safety: softirqs are disabled, it is a possible CPU, and the packet comes from a hook at the device's ingress.
pub(crate) unsafe fn keep_behind(packet: SkBuff, cpu: u32) -> Option<SkBuff> {
    let skb = packet.into_node();
    // SAFETY: By the contract; the packet is ours to give.
    if unsafe { way::keep_behind(skb, cpu) } {
        return None;
    }
    // SAFETY: It was not taken.
    Some(unsafe { SkBuff::from_node(skb) })
}
