// SPDX-License-Identifier: GPL-2.0

//! The functions of the module's own C half, the same on each kernel: bindings of `net/mflow_module.h`.

pub(crate) use kernel::bindings::{
    mflow_bh_disable, mflow_bh_enable, mflow_change, mflow_changes_wanted, mflow_complain,
    mflow_config_lock, mflow_config_unlock, mflow_cpu_is_online, mflow_cpu_is_quiet,
    mflow_cpu_place, mflow_cpu_times, mflow_cpus_are_one_core, mflow_deadline_start,
    mflow_deadlines_cancel, mflow_file_add, mflow_files_create, mflow_files_remove,
    mflow_flows_traced, mflow_freed_pkts, mflow_freed_reset, mflow_lane_is_here,
    mflow_merges_traced, mflow_netlink_register, mflow_netlink_unregister, mflow_param,
    mflow_placing_start, mflow_rescan, mflow_restage, mflow_returned_bytes, mflow_rtnl_lock,
    mflow_rtnl_unlock, mflow_sampling_start, mflow_sampling_stop, mflow_shim_exit, mflow_shim_init,
    mflow_shim_quiesce, mflow_sleep_ms, mflow_sleep_us, mflow_stack_max_bytes, mflow_stack_reset,
    mflow_stages_here, mflow_stages_set, mflow_synchronize, mflow_tell_change, mflow_tell_soon,
    mflow_this_cpu, mflow_trace_batch, mflow_trace_flow, mflow_trace_given_up, mflow_trace_late,
    mflow_trace_merge, net_device, MFLOW_ABI, MFLOW_HZ, MFLOW_NO_NODE,
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
