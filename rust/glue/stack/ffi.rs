// SPDX-License-Identifier: GPL-2.0

//! The functions and types that the boundary takes from the kernel: bindings of `net/mflow.h` and `net/mflow_module.h`.

use crate::algo::headers::overlay::OVERLAY_HEADER_BYTES;
use crate::algo::join::{DatagramForm, IdentifierRule};
use crate::algo::knobs::device_command::DEVICE_NAME_SIZE;
use crate::algo::limits::MAX_SLOTS;
use crate::algo::merge::slot::PathFault;
use crate::algo::source::queue_builder::QueueBuilder;
use crate::algo::stage::Stage;
use crate::algo::tag::{Tag, TagKind};
use kernel::bindings;

pub(super) use kernel::bindings::{
    mflow_cpus_share_cache, mflow_deliver, mflow_device_find, mflow_device_gro_holds_ms,
    mflow_device_index, mflow_device_name, mflow_device_node, mflow_device_put,
    mflow_device_set_port, mflow_device_walk_napis, mflow_frag, mflow_frag_sum, mflow_held,
    mflow_held_append, mflow_held_join, mflow_napi_gro_flush, mflow_napi_id, mflow_napi_set_source,
    mflow_napi_source, mflow_ops, mflow_port, mflow_receive_skb, mflow_register, mflow_request,
    mflow_request_drop, mflow_request_frag, mflow_returned_is_full, mflow_skb_copy_header,
    mflow_skb_count_segments, mflow_skb_device_index, mflow_skb_drop, mflow_skb_drop_queueless,
    mflow_skb_frag_header, mflow_skb_hold_socket, mflow_skb_napi_id, mflow_skb_pull_headers,
    mflow_skb_set_verified, mflow_skb_sums_up, mflow_skb_verified, mflow_sock_is_by_cpu,
    mflow_sock_is_staged, mflow_sock_receive_bytes, mflow_source, mflow_unregister,
    mflow_watch_readers, mflow_worker, mflow_worker_build, mflow_worker_create,
    mflow_worker_destroy, mflow_worker_flush, mflow_worker_held, mflow_worker_holds,
    mflow_worker_kick, mflow_worker_kick_on, mflow_worker_receive, mflow_worker_receive_past_gro,
    mflow_worker_receive_stage, mflow_worker_set_sums, napi_struct, net_device, sk_buff, sock,
};

// What both halves know is written in the kernel's headers and in the algorithm: here each is held against the other.
const _: () = {
    assert!(DEVICE_NAME_SIZE == bindings::IFNAMSIZ as usize);
    assert!(MAX_SLOTS == bindings::MFLOW_SLOTS as usize);
    assert!(OVERLAY_HEADER_BYTES == bindings::MFLOW_REQUEST_HEADER as usize);
    assert!(PathFault::Queues as u32 == bindings::MFLOW_PATH_QUEUES);
    assert!(PathFault::Ordered as u32 == bindings::MFLOW_PATH_ORDERED);
    assert!(Stage::Nic as u32 == bindings::MFLOW_STAGE_NIC);
    assert!(Stage::Gro as u32 == bindings::MFLOW_STAGE_GRO);
    assert!(Stage::Tunnel as u32 == bindings::MFLOW_STAGE_TUNNEL);
    assert!(Stage::Veth as u32 == bindings::MFLOW_STAGE_VETH);
    assert!(DatagramForm::Single as u32 == bindings::MFLOW_FORM_SINGLE);
    assert!(DatagramForm::List as u32 == bindings::MFLOW_FORM_LIST);
    assert!(DatagramForm::Aggregate as u32 == bindings::MFLOW_FORM_AGGREGATE);
    assert!(IdentifierRule::Packet as u32 == bindings::MFLOW_ID_RULE_PACKET);
    assert!(IdentifierRule::Innermost as u32 == bindings::MFLOW_ID_RULE_INNERMOST);
    assert!(IdentifierRule::Each as u32 == bindings::MFLOW_ID_RULE_EACH);
    let builders = [
        (QueueBuilder::Unasked, bindings::MFLOW_BUILDER_UNASKED),
        (QueueBuilder::Lane, bindings::MFLOW_BUILDER_LANE),
        (QueueBuilder::Xdp, bindings::MFLOW_BUILDER_XDP),
        (QueueBuilder::AfXdp, bindings::MFLOW_BUILDER_AF_XDP),
        (QueueBuilder::Buffers, bindings::MFLOW_BUILDER_BUFFERS),
    ];
    assert!(builders.len() == QueueBuilder::ALL.len());
    let mut index = 0;
    while index < builders.len() {
        assert!(builders[index].0 as u32 == builders[index].1);
        assert!(QueueBuilder::ALL[index] as u32 == builders[index].1);
        index += 1;
    }
    let kinds = [
        (TagKind::None, bindings::MFLOW_KIND_NONE),
        (TagKind::Split, bindings::MFLOW_KIND_SPLIT),
        (TagKind::Fence, bindings::MFLOW_KIND_FENCE),
        (TagKind::Probe, bindings::MFLOW_KIND_PROBE),
        (TagKind::Queued, bindings::MFLOW_KIND_QUEUED),
    ];
    let mut index = 0;
    while index < kinds.len() {
        let (kind, in_c) = kinds[index];
        // Slot 1 and batch 0 give one bit, the lowest of the slot.
        assert!(
            Tag::new(kind, 1, 0).word()
                == in_c << bindings::MFLOW_KIND_SHIFT | 1 << bindings::MFLOW_SLOT_SHIFT
        );
        index += 1;
    }
};
