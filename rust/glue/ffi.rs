// SPDX-License-Identifier: GPL-2.0

//! What the C half gives, with the types that bindgen read from `net/mflow.h` and `net/mflow_module.h`.

pub(crate) use kernel::bindings::{
    mflow_bh_disable, mflow_bh_enable, mflow_complain, mflow_config_lock, mflow_config_lock_inner,
    mflow_config_unlock, mflow_config_unlock_inner, mflow_cpu_is_online, mflow_deadline_start,
    mflow_deadlines_cancel, mflow_deliver, mflow_device_find, mflow_device_name, mflow_device_put,
    mflow_device_set_port, mflow_device_walk_napis, mflow_file_add, mflow_files_create,
    mflow_files_remove, mflow_free, mflow_napi_gro_flush, mflow_napi_set_source, mflow_napi_source,
    mflow_ops, mflow_param, mflow_receive_skb, mflow_register, mflow_rescan, mflow_set_enabled,
    mflow_shim_exit, mflow_shim_init, mflow_shim_quiesce, mflow_skb_copy_header, mflow_skb_drop,
    mflow_skb_frag_header, mflow_skb_hold_socket, mflow_skb_pull_headers, mflow_sleep_ms,
    mflow_stack_max_bytes, mflow_stack_reset, mflow_synchronize, mflow_this_cpu, mflow_unregister,
    mflow_worker, mflow_worker_create, mflow_worker_destroy, mflow_worker_flush, mflow_worker_kick,
    mflow_worker_receive, mflow_worker_receive_past_gro, mflow_zalloc, napi_struct, net_device,
    sk_buff, skb_shared_info, sock, MFLOW_ABI, MFLOW_HEADER_BYTES, MFLOW_HZ,
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
