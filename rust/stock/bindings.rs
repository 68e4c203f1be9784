// SPDX-License-Identifier: GPL-2.0

//! The declarations of `net/mflow.h` and `net/mflow_module.h`, written by hand: the kernel's own bindings come from bindgen,
//! which a kernel without Rust does not have. `cargo xtask test tidy` compares them with the headers.

#![allow(
    non_camel_case_types,
    missing_docs,
    reason = "names of C, which documents them"
)]

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

pub const EINVAL: c_uint = 22;
pub const IFNAMSIZ: c_uint = 16;

pub const MFLOW_ABI: c_uint = 17;
pub const MFLOW_SLOT_SHIFT: c_uint = 23;
pub const MFLOW_KIND_SHIFT: c_uint = 29;
pub const MFLOW_SLOTS: c_uint = 64;
pub const MFLOW_REQUEST_HEADER: c_uint = 192;
pub const MFLOW_KIND_NONE: c_uint = 0;
pub const MFLOW_KIND_SPLIT: c_uint = 1;
pub const MFLOW_KIND_FENCE: c_uint = 2;
pub const MFLOW_KIND_PROBE: c_uint = 3;
pub const MFLOW_KIND_QUEUED: c_uint = 4;
pub const MFLOW_PATH_QUEUES: c_uint = 1;
pub const MFLOW_PATH_ORDERED: c_uint = 2;
pub const MFLOW_STAGE_NIC: c_uint = 1;
pub const MFLOW_STAGE_GRO: c_uint = 2;
pub const MFLOW_STAGE_TUNNEL: c_uint = 3;
pub const MFLOW_STAGE_VETH: c_uint = 4;
pub const MFLOW_FORM_SINGLE: c_uint = 0;
pub const MFLOW_FORM_LIST: c_uint = 1;
pub const MFLOW_FORM_AGGREGATE: c_uint = 2;
pub const MFLOW_SUMS_VERIFIED: c_uint = 0;
pub const MFLOW_SUMS_COMPLETE: c_uint = 1;
pub const MFLOW_ID_RULE_PACKET: c_uint = 0;
pub const MFLOW_ID_RULE_INNERMOST: c_uint = 1;
pub const MFLOW_ID_RULE_EACH: c_uint = 2;
pub const MFLOW_BUILDER_UNASKED: c_uint = 0;
pub const MFLOW_BUILDER_LANE: c_uint = 1;
pub const MFLOW_BUILDER_XDP: c_uint = 2;
pub const MFLOW_BUILDER_AF_XDP: c_uint = 3;
pub const MFLOW_BUILDER_BUFFERS: c_uint = 4;
pub const MFLOW_COLLECTOR_WORDS: c_uint = 8;

/// Ticks in a second: `rust.mk` says what this kernel's configuration has.
pub const MFLOW_HZ: c_uint = number(env!("MFLOW_HZ"));
pub const MFLOW_NO_NODE: c_int = -1;

/// Reads a number at build time.
const fn number(digits: &str) -> c_uint {
    let (digits, mut value, mut index) = (digits.as_bytes(), 0, 0);
    while index < digits.len() {
        assert!(digits[index].is_ascii_digit());
        value = value * 10 + (digits[index] - b'0') as c_uint;
        index += 1;
    }
    value
}

/// A structure of which nothing is known here.
macro_rules! opaque {
    ($($name:ident),+ $(,)?) => {
        $(#[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        })+
    };
}
opaque!(mflow_worker, napi_struct, net_device, page, sock);

/// The head of a packet: the links that it is queued by.
#[repr(C)]
pub struct sk_buff {
    pub next: *mut sk_buff,
    pub prev: *mut sk_buff,
    pub dev_scratch: c_ulong,
}

/// The offsets of the fields of a packet (`c-shims/stock/mflow_skb.c`).
#[repr(C)]
pub struct mflow_skb_layout {
    pub len: u16,
    pub data_len: u16,
    pub protocol: u16,
    pub end: u16,
    pub head: u16,
    pub data: u16,
    pub truesize: u16,
    pub gso_size: u16,
    pub gso_segs: u16,
}

#[repr(C)]
pub struct mflow_request_ops {
    _private: [u8; 0],
}

#[repr(C)]
pub struct mflow_request {
    pub ops: *const mflow_request_ops,
    pub driver: [u64; 6],
    pub memory_bytes: c_uint,
}

#[repr(C)]
pub struct mflow_frag {
    pub dev: *mut net_device,
    pub data: *mut c_void,
    pub page: *mut page,
    pub bytes: c_uint,
    pub memory_bytes: c_uint,
    pub recycles: u8,
    pub copies: u8,
    pub sums: u8,
    pub note: u8,
    pub sum: u32,
}

/// A flow that begins to be split, or stops (`net/mflow_module.h`).
#[repr(C)]
pub struct mflow_change {
    pub device: *const c_char,
    pub reason: *const c_char,
    pub words: *const c_char,
    pub from: *const c_void,
    pub to: *const c_void,
    pub device_bytes: c_uint,
    pub reason_bytes: c_uint,
    pub words_bytes: c_uint,
    pub address_bytes: c_uint,
    pub cpu: u32,
    pub pps: u32,
    pub lost: u32,
    pub from_port: u16,
    pub to_port: u16,
    pub queue: u16,
    pub protocol: u8,
    pub has_queue: bool,
    pub has_pps: bool,
    pub begins: bool,
}

#[repr(C)]
pub struct mflow_held {
    pub skb: *mut sk_buff,
    pub headers: *const c_void,
    pub linear_bytes: c_uint,
    pub outer_at: c_uint,
    pub network_at: c_uint,
    pub transport_at: c_uint,
    pub bytes: c_uint,
    pub limit_bytes: c_uint,
    pub frame_payload_bytes: c_uint,
    pub frames: u16,
    pub room_frames: u16,
    pub room_fragments: u16,
    pub summed: bool,
    pub list: bool,
    pub id_rule: u8,
    pub fixed_ids: u8,
}

#[repr(C)]
pub struct mflow_source {
    pub takes_requests: bool,
    pub rests: bool,
}

#[repr(C)]
pub struct mflow_port {
    pub uses_gro: bool,
    pub splits_behind_gro: bool,
}

#[repr(C)]
#[derive(Default)]
pub struct mflow_cpu_times {
    pub at_us: u64,
    pub idle_us: u64,
    pub softirq_us: u64,
    pub interrupt_us: u64,
    pub guest_us: u64,
    pub task_us: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct mflow_cpu_place {
    pub usable: bool,
    pub node: c_int,
    pub reader_ticks: u32,
}

#[repr(C)]
pub struct mflow_ops {
    pub split_napi:
        Option<unsafe extern "C" fn(*mut c_void, *mut napi_struct, *mut sk_buff) -> bool>,
    pub builder: Option<unsafe extern "C" fn(*mut c_void, c_uint)>,
    pub take_request: Option<
        unsafe extern "C" fn(*mut c_void, u16, *const c_void, c_uint, c_uint) -> *mut mflow_request,
    >,
    pub split_ingress: Option<unsafe extern "C" fn(*mut c_void, *mut sk_buff) -> bool>,
    pub napi_flush: Option<unsafe extern "C" fn(*mut c_void, bool)>,
    pub napi_del: Option<unsafe extern "C" fn(*mut napi_struct)>,
    pub want_source: Option<unsafe extern "C" fn(*mut c_void)>,
    pub arrived: Option<unsafe extern "C" fn(*mut sock, *mut sk_buff, *mut c_void, c_uint) -> bool>,
    pub passed: Option<unsafe extern "C" fn(*mut sk_buff)>,
    pub unsuited: Option<unsafe extern "C" fn(*mut sk_buff, *mut c_void, c_uint)>,
    pub copied: Option<unsafe extern "C" fn(*mut sk_buff)>,
    pub drain: Option<unsafe extern "C" fn(*mut sock) -> bool>,
    pub hand_on:
        Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut sk_buff, c_uint) -> bool>,
    pub list_begins: Option<unsafe extern "C" fn(*mut sk_buff)>,
    pub list_ends: Option<unsafe extern "C" fn(*mut sk_buff)>,
    pub list_arrives: Option<unsafe extern "C" fn(*const sock, *mut sk_buff)>,
    pub is_merged: Option<unsafe extern "C" fn(*mut sock) -> bool>,
}

extern "C" {
    pub static jiffies: c_ulong;
    pub static mflow_skb_layout: mflow_skb_layout;
    pub fn ktime_get() -> i64;
    pub fn get_random_u64() -> u64;

    // Of the stock way alone (`c-shims/stock/mflow_stock.h`).
    pub fn mflow_alloc(size: usize, by_pages: bool) -> *mut c_void;
    pub fn mflow_free(memory: *mut c_void);
    pub fn mflow_print(level: c_uint, text: *const c_char, len: c_uint);
    pub fn mflow_switch_on() -> c_int;
    pub fn mflow_switch_off(drained: bool);
    pub fn mflow_bug();
    pub fn mflow_skb_tag(skb: *const sk_buff) -> u32;
    pub fn mflow_skb_set_tag(skb: *mut sk_buff, tag: u32);
    pub fn mflow_skb_set_parked(skb: *mut sk_buff, amount: u32);
    pub fn mflow_skb_rx_queue(skb: *const sk_buff) -> u16;
    pub fn mflow_skb_metadata(skb: *const sk_buff, to: *mut u8, bytes: c_uint) -> bool;
    pub fn mflow_hold_is_clear() -> bool;
    pub fn mflow_hold_begin();
    pub fn mflow_hold_back_on(cpu: c_uint, skb: *mut sk_buff) -> bool;
    pub fn mflow_napi_is_there(napi_id: c_uint) -> bool;
    pub fn mflow_device_has_napi_id(dev: *const net_device) -> bool;
    pub fn mflow_run_here() -> *mut c_void;
    pub fn mflow_run_flush_later(source: *mut mflow_source);
    pub fn mflow_run_forget(source: *mut mflow_source);
    pub fn mflow_run_park(collector: *mut c_void);
    pub fn mflow_run_flush(source: *mut mflow_source);
    pub fn mflow_packet_verify(skb: *mut sk_buff);
    pub fn mflow_note_path_fault(slot: c_uint, fault: c_uint);
    pub fn mflow_note_receive_pkts(slot: c_uint, pkts: c_uint);
    pub fn mflow_tag_may_come(tag: u32) -> bool;
    pub fn mflow_port_source(port: *mut c_void) -> *mut mflow_source;
    pub fn mflow_take_requests(
        source: *mut mflow_source,
        protocol: u16,
        header: *const c_void,
        header_bytes: c_uint,
        memory_bytes: c_uint,
        pkts: *mut c_uint,
    ) -> *mut mflow_request;
    pub fn mflow_device_lend_gro(dev: *const net_device);
    pub fn mflow_device_redirect(dev: *mut net_device) -> c_int;
    pub fn mflow_xdp_wait();
    pub fn mflow_device_dispatch_early(dev: *mut net_device);
    pub fn mflow_device_end_redirect(dev: *mut net_device);
    pub fn mflow_worker_settle(worker: *mut mflow_worker, tag: u32);
    pub fn mflow_worker_has_settled(worker: *mut mflow_worker) -> bool;
    pub fn mflow_worker_follows(worker: *mut mflow_worker) -> bool;

    // net/mflow.h
    pub fn mflow_receive_skb(skb: *mut sk_buff);
    pub fn mflow_register(ops: *const mflow_ops) -> c_int;
    pub fn mflow_unregister();
    pub fn mflow_napi_gro_flush(napi: *mut napi_struct);
    pub fn mflow_watch_readers(watch: bool);
    pub fn mflow_returned_is_full() -> bool;
    pub fn mflow_cpus_share_cache(cpu: c_uint, other: c_uint) -> bool;
    pub fn mflow_sock_is_by_cpu(sk: *const sock) -> bool;
    pub fn mflow_sock_receive_bytes(sk: *const sock) -> u32;
    pub fn mflow_deliver(first: *mut sk_buff, stamp_ns: *mut u64) -> u64;

    // net/mflow_module.h
    pub static mflow_merges_traced: c_uint;
    pub fn mflow_flows_traced() -> bool;
    pub fn mflow_trace_flow(dev: *const net_device, change: *const mflow_change, slot: c_uint);
    pub fn mflow_trace_batch(slot: c_uint, batch: u32, lane_cpu: c_int) -> c_uint;
    pub fn mflow_trace_merge(slot: c_uint, batch: u32, waited_us: u64);
    pub fn mflow_trace_given_up(
        slot: c_uint,
        batch: u32,
        waited_us: u64,
        parked_pkts: u32,
        overflowed: bool,
    );
    pub fn mflow_trace_late(slot: c_uint, batch: u32, pkts: u32);
    pub fn mflow_param(name: *const c_char, value: *mut *const c_char) -> c_int;
    pub fn mflow_files_create() -> c_int;
    pub fn mflow_files_remove();
    pub fn mflow_file_add(name: *const c_char, mode: u16, file: c_uint) -> c_int;
    pub fn mflow_complain(text: *const c_char, len: c_uint);
    pub fn mflow_netlink_register() -> c_int;
    pub fn mflow_netlink_unregister();
    pub fn mflow_changes_wanted() -> bool;
    pub fn mflow_tell_change(change: *const mflow_change) -> bool;
    pub fn mflow_tell_soon();
    pub fn mflow_rtnl_lock();
    pub fn mflow_rtnl_unlock();
    pub fn mflow_config_lock();
    pub fn mflow_config_unlock();
    pub fn mflow_synchronize();
    pub fn mflow_sleep_ms(ms: c_uint);
    pub fn mflow_sleep_us(us: c_uint);
    pub fn mflow_bh_disable();
    pub fn mflow_bh_enable();
    pub fn mflow_worker_create(cpu: c_uint, lane: *mut c_void, builds: bool) -> *mut mflow_worker;
    pub fn mflow_worker_destroy(worker: *mut mflow_worker);
    pub fn mflow_worker_kick(worker: *mut mflow_worker);
    pub fn mflow_worker_kick_on(worker: *mut mflow_worker, cpu: c_uint);
    pub fn mflow_worker_build(
        worker: *mut mflow_worker,
        request: *mut mflow_request,
    ) -> *mut sk_buff;
    pub fn mflow_worker_receive(worker: *mut mflow_worker, skb: *mut sk_buff, form: c_uint)
        -> bool;
    pub fn mflow_worker_receive_past_gro(worker: *mut mflow_worker, skb: *mut sk_buff);
    pub fn mflow_worker_receive_stage(worker: *mut mflow_worker, skb: *mut sk_buff);
    pub fn mflow_worker_set_sums(sums: bool);
    pub fn mflow_worker_held(worker: *mut mflow_worker, tag: u32, held: *mut mflow_held) -> bool;
    pub fn mflow_worker_holds(worker: *mut mflow_worker, skb: *const sk_buff, tag: u32) -> bool;
    pub fn mflow_held_append(
        held: *mut sk_buff,
        skb: *mut sk_buff,
        network_at: c_uint,
        transport_at: c_uint,
        payload_at: c_uint,
        fixed_ids: u8,
    ) -> c_int;
    pub fn mflow_request_frag(request: *const mflow_request, frag: *mut mflow_frag) -> bool;
    pub fn mflow_frag_sum(frag: *const mflow_frag, at: c_uint) -> u32;
    pub fn mflow_held_join(
        held: *mut sk_buff,
        request: *const mflow_request,
        frag: *const mflow_frag,
        payload_at: c_uint,
        fixed_ids: u8,
    ) -> bool;
    pub fn mflow_worker_flush(worker: *mut mflow_worker);
    pub fn mflow_deadline_start(slot: c_uint, after_us: c_uint);
    pub fn mflow_deadlines_cancel();
    pub fn mflow_device_find(name: *const c_char) -> *mut net_device;
    pub fn mflow_device_put(dev: *mut net_device);
    pub fn mflow_device_name(dev: *const net_device, name: *mut c_char);
    pub fn mflow_device_set_port(dev: *mut net_device, port: *mut c_void) -> c_int;
    pub fn mflow_device_walk_napis(dev: *mut net_device, found: *mut c_void);
    pub fn mflow_napi_source(napi: *mut napi_struct) -> *mut c_void;
    pub fn mflow_napi_id(napi: *const napi_struct) -> c_uint;
    pub fn mflow_napi_set_source(napi: *mut napi_struct, source: *mut c_void);
    pub fn mflow_rescan();
    pub fn mflow_cpu_is_online(cpu: c_uint) -> bool;
    pub fn mflow_cpu_is_quiet(cpu: c_uint) -> bool;
    pub fn mflow_this_cpu() -> c_uint;
    pub fn mflow_stages_set(cpu: c_uint, stages: *mut c_void);
    pub fn mflow_sock_is_staged(sk: *const sock) -> bool;
    pub fn mflow_stages_here() -> *mut c_void;
    pub fn mflow_lane_is_here() -> bool;
    pub fn mflow_device_index(dev: *const net_device) -> c_uint;
    pub fn mflow_device_gro_holds_ms(dev: *const net_device) -> c_uint;
    pub fn mflow_skb_device_index(skb: *const sk_buff) -> c_uint;
    pub fn mflow_skb_napi_id(skb: *const sk_buff) -> c_uint;
    pub fn mflow_freed_pkts(for_lanes: bool) -> u64;
    pub fn mflow_freed_reset();
    pub fn mflow_returned_bytes() -> u64;
    pub fn mflow_stack_max_bytes() -> c_uint;
    pub fn mflow_stack_reset();
    pub fn mflow_sampling_start(period_ms: c_uint);
    pub fn mflow_sampling_stop();
    pub fn mflow_cpu_times(cpu: c_uint, times: *mut mflow_cpu_times);
    pub fn mflow_restage();
    pub fn mflow_cpu_place(cpu: c_uint, place: *mut mflow_cpu_place);
    pub fn mflow_cpus_are_one_core(cpu: c_uint, other: c_uint) -> bool;
    pub fn mflow_device_node(dev: *const net_device) -> c_int;
    pub fn mflow_placing_start(period_ms: c_uint);
    pub fn mflow_skb_drop(skb: *mut sk_buff);
    pub fn mflow_skb_drop_queueless(skb: *mut sk_buff);
    pub fn mflow_request_drop(request: *mut mflow_request);
    pub fn mflow_skb_frag_header(skb: *const sk_buff, bytes: *mut c_uint) -> *const c_void;
    pub fn mflow_skb_copy_header(skb: *const sk_buff, to: *mut c_void, bytes: c_uint);
    pub fn mflow_skb_count_segments(skb: *mut sk_buff);
    pub fn mflow_skb_pull_headers(skb: *mut sk_buff, bytes: c_uint);
    pub fn mflow_skb_verified(skb: *const sk_buff) -> c_int;
    pub fn mflow_skb_sums_up(skb: *const sk_buff, at: c_uint, bytes: c_uint, pseudo: u32) -> bool;
    pub fn mflow_skb_set_verified(skb: *mut sk_buff, count: c_uint);
    pub fn mflow_skb_hold_socket(skb: *mut sk_buff, sk: *mut sock) -> bool;
    pub fn mflow_shim_init() -> c_int;
    pub fn mflow_shim_quiesce();
    pub fn mflow_shim_exit();

    // What the Rust half gives to the C half; here to hold its types against these.
    pub fn mflow_lane_poll(lane: *mut c_void, budget: c_int) -> c_int;
    pub fn mflow_lane_build(lane: *mut c_void, budget: c_int) -> c_int;
    pub fn mflow_deadline_expired(slot: c_uint);
    pub fn mflow_file_read(file: c_uint, text: *mut c_char, size: usize) -> isize;
    pub fn mflow_file_write(
        file: c_uint,
        text: *const c_char,
        len: usize,
        said: *mut c_char,
        said_bytes: usize,
    ) -> c_int;
    pub fn mflow_file_named(name: *const c_char, said: *mut c_char, said_bytes: usize) -> c_int;
    pub fn mflow_tell_changes();
    pub fn mflow_napi_found(found: *mut c_void, napi: *mut napi_struct);
    pub fn mflow_device_gone(dev: *mut net_device, opted_in: bool);
    pub fn mflow_rescan_devices();
    pub fn mflow_cpu_changed(cpu: c_uint, online: bool);
    pub fn mflow_sample();
    pub fn mflow_place_lanes() -> bool;
    pub fn mflow_restage_flows();
}
