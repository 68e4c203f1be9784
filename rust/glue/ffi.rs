// SPDX-License-Identifier: GPL-2.0

//! What the C half gives, with the types that bindgen read from `net/mflow.h` and `net/mflow_module.h`.

use kernel::bindings;
pub(crate) use kernel::bindings::{
    mflow_bh_disable, mflow_bh_enable, mflow_complain, mflow_config_lock, mflow_config_unlock,
    mflow_cpu_is_online, mflow_deadline_start, mflow_deadlines_cancel, mflow_deliver,
    mflow_device_find, mflow_device_name, mflow_device_put, mflow_device_set_port,
    mflow_device_walk_napis, mflow_file_add, mflow_files_create, mflow_files_remove,
    mflow_napi_gro_flush, mflow_napi_set_source, mflow_napi_source, mflow_ops, mflow_param,
    mflow_receive_skb, mflow_register, mflow_rescan, mflow_rtnl_lock, mflow_rtnl_unlock,
    mflow_set_enabled, mflow_shim_exit, mflow_shim_init, mflow_shim_quiesce, mflow_skb_copy_header,
    mflow_skb_drop, mflow_skb_frag_header, mflow_skb_hold_socket, mflow_skb_pull_headers,
    mflow_sleep_ms, mflow_stack_max_bytes, mflow_stack_reset, mflow_synchronize, mflow_this_cpu,
    mflow_unregister, mflow_worker, mflow_worker_create, mflow_worker_destroy, mflow_worker_flush,
    mflow_worker_kick, mflow_worker_receive, mflow_worker_receive_past_gro, napi_struct,
    net_device, sk_buff, skb_shared_info, sock, MFLOW_ABI, MFLOW_HZ,
};

// What both halves know is written in `net/mflow.h` and in the algorithm: here each is held against the other.
const _: () = {
    use crate::algo::tag::{Tag, TagKind, MAX_SLOTS};
    assert!(MAX_SLOTS == bindings::MFLOW_SLOTS as usize);
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
    assert!(crate::algo::knobs::DEVICE_NAME_SIZE == bindings::IFNAMSIZ as usize);
};

/// Checks at build time that a function given to C has the type that C was told.
macro_rules! check_export {
    ($($name:ident),+ $(,)?) => {
        $(const _: () = {
            // The two arms of an `if` have one type.
            let _ = if true { kernel::bindings::$name } else { $name };
        };)+
    };
}
pub(crate) use check_export;
