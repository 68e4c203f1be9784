// SPDX-License-Identifier: GPL-2.0

//! The few declarations of QEMU's plug-in interface that are needed (`qemu-plugin.h`), as they stand since QEMU 9.1.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the interface these declarations are of: 3 came with QEMU 9.1, 7 is that of 11.1.
pub(crate) const VERSION: c_int = if cfg!(feature = "api-7") { 7 } else { 3 };

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback reads no registers.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub(crate) const ADD_U64: c_int = 0;

/// The number by which QEMU knows the plug-in.
pub(crate) type PluginId = u64;

/// The description of the machine that a plug-in gets. Only the part that is the same in all versions is read.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_cur: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// A block that is being translated.
#[repr(C)]
pub(crate) struct Block {
    _opaque: [u8; 0],
}

/// An instruction of such a block.
#[repr(C)]
pub(crate) struct Instruction {
    _opaque: [u8; 0],
}

/// Memory with one element for each CPU.
#[repr(C)]
pub(crate) struct Scoreboard {
    _opaque: [u8; 0],
}

/// A 64-bit number in each element of a scoreboard (`qemu_plugin_u64`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Counter {
    pub(crate) scoreboard: *mut Scoreboard,
    pub(crate) offset: usize,
}

#[cfg(not(feature = "api-7"))]
pub(crate) type TranslationCallback = extern "C" fn(PluginId, *mut Block);
#[cfg(feature = "api-7")]
pub(crate) type TranslationCallback = extern "C" fn(*mut Block, *mut c_void);
pub(crate) type ExecutionCallback = extern "C" fn(c_uint, *mut c_void);

extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        callback: TranslationCallback,
        #[cfg(feature = "api-7")] user_data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub(crate) fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub(crate) fn qemu_plugin_insn_data(
        instruction: *const Instruction,
        to: *mut c_void,
        bytes: usize,
    ) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut Block,
        operation: c_int,
        counter: Counter,
        operand: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecutionCallback,
        flags: c_int,
        user_data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_scoreboard_new(element_bytes: usize) -> *mut Scoreboard;
    pub(crate) fn qemu_plugin_scoreboard_find(
        scoreboard: *mut Scoreboard,
        cpu: c_uint,
    ) -> *mut c_void;
    pub(crate) fn qemu_plugin_num_vcpus() -> c_int;
}
