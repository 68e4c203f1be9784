// SPDX-License-Identifier: GPL-2.0

//! The places of all fields of commands, events, completions and work queue entries, and the commands' numbers. The build script
//! makes them (see [`crate::ifc`]). Below are the bits of words that the kernel takes apart in code only.

#![allow(
    missing_docs,
    dead_code,
    reason = "the names are the kernel's, which documents them"
)]

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));

/// Returns the name of a command.
pub fn command_name(number: u16) -> Option<&'static str> {
    let mut commands = COMMANDS.iter();
    commands.find_map(|(known, name)| (*known == number).then_some(*name))
}

/// Makes a module for a structure: all of its fields, and bits of them as `high:low NAME`.
///
/// The bits of a word may not overlap; a word with two meanings is listed twice.
macro_rules! bits_of {
    ($($(#[$doc:meta])* pub mod $module:ident: $structure:ident {
        $($word:ident { $($high:literal:$low:literal $name:ident),* })*
    })*) => {$(
        $(#[$doc])*
        pub mod $module {
            pub use super::$structure::*;
            $($(pub const $name: crate::firmware::field::Field = $word.bits($high, $low);)*
            const _: () = crate::firmware::field::assert_disjoint(&[$($name),*]);)*
        }
    )*};
}

bits_of! {
    /// A completion: the functions and constants behind `struct mlx5_cqe64` in `device.h`, `mpwrq_cqe_bc` for the strides.
    pub mod completion: cqe64 {
        RSS_HASH_TYPE { 7:6 HASH_L4, 3:2 HASH_IP }
        FLAGS_RQPN { 23:0 QUEUE }
        HDS_IP_EXT { 2:2 L4_OK, 1:1 L3_OK, 0:0 L2_OK }
        L4_L3_HDR_TYPE { 6:4 L4_TYPE, 3:2 L3_TYPE, 0:0 HAS_TAG }
        BYTE_CNT { 31:31 FILLER, 30:16 STRIDES, 15:0 FRAME_BYTES }
        SOP_DROP_QPN { 23:0 FLOW_TAG }
        SOP_DROP_QPN { 31:24 SEND_OPCODE, 23:0 SEND_QUEUE }
        OP_OWN { 7:4 OPCODE, 3:2 FORMAT, 0:0 OWNER }
    }
    /// The first segment of every entry of a send queue, and the send doorbell: `MLX5_WQE_CTRL_*` in `qp.h`. The length is in
    /// units of 16 bytes.
    pub mod control_segment: wqe_ctrl_seg {
        OPMOD_IDX_OPCODE { 7:0 OPCODE }
        QPN_DS { 31:8 QUEUE, 5:0 LENGTH }
        FM_CE_SE { 3:2 COMPLETION_MODE }
    }
    /// The segment that says how to finish a frame: `MLX5_ETH_WQE_*` in `qp.h`.
    pub mod ethernet_segment: wqe_eth_seg {
        CS_FLAGS { 7:7 L4_CHECKSUM, 6:6 L3_CHECKSUM }
        INLINE_HDR_SZ { 9:0 HEADER_BYTES }
        INSERT_TYPE { 15:15 INSERT_TAG, 0:0 SERVICE_TAG }
    }
    /// A piece of memory, or bytes that are here: `MLX5_INLINE_SEG` in `device.h`, `MLX5_WQE_INLINE_SEG_*` in `qp.h`.
    pub mod data_segment: wqe_data_seg {
        BYTE_COUNT { 31:31 IS_INLINE, 30:0 MEMORY_BYTES }
        BYTE_COUNT { 9:0 INLINE_BYTES }
    }
}

/// The offsets of the doorbells in their page, and the fields of the values written there: arrays of words in `doorbell.h`,
/// `cq.h` and `eq.c`.
pub mod doorbell {
    use crate::firmware::field::Field;

    pub const COMPLETION: u64 = 0x20;
    pub const COMPLETION_CONSUMER: Field = Field::new(8, 24);
    pub const COMPLETION_QUEUE: Field = Field::new(32, 32);
    pub const EVENT_ARM: u64 = 0x40;
    pub const EVENT: u64 = 0x48;
    pub const EVENT_QUEUE: Field = Field::new(0, 8);
    pub const EVENT_CONSUMER: Field = Field::new(8, 24);
    pub const SEND: u64 = 0x800;
}

/// The driver's records in memory of how far it is with its queues: `MLX5_RCV_DBR` and `MLX5_SND_DBR` in `qp.h`, `set_ci_db` in
/// `cq.h`.
pub mod doorbell_record {
    use crate::firmware::field::Field;

    pub const COMPLETION_CONSUMER: Field = Field::new(0, 32);
    pub const RECEIVE_PRODUCER: Field = Field::new(0, 32);
    pub const SEND_PRODUCER: Field = Field::new(32, 32);
}
