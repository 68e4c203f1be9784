// SPDX-License-Identifier: GPL-2.0

//! The names that the module takes from the kernel's crate, for kernels that are built without Rust: the same few names, over
//! functions of the C half. `rust.mk` compiles it under the name `kernel`, so the module's source does not know which of the two
//! it gets.

#![no_std]

pub mod bindings;
pub mod error;
pub mod init;
pub mod memory;
#[macro_use]
pub mod print;

/// Types of C.
pub mod ffi {
    pub use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
}

/// The names that each file of the module imports.
pub mod prelude {
    pub use crate::error::codes::*;
    pub use crate::error::{Error, Result};
    pub use crate::memory::{KBox, KVBox, VBox, GFP_KERNEL};
    pub use crate::{module, pr_err, pr_info, pr_warn, Module, ThisModule};
}

/// The module, as the kernel knows it. Nothing is asked of it.
pub struct ThisModule(());

impl ThisModule {
    /// The only one.
    pub const THIS: Self = Self(());
}

/// A module: made when it is loaded, dropped when it goes.
pub trait Module: Sized + Sync {
    /// Starts the module.
    ///
    /// # Errors
    ///
    /// The module is not loaded.
    fn init(module: &'static ThisModule) -> error::Result<Self>;
}

/// Gives the C half the functions that load and unload the module. The other fields that `modinfo` shows are in the C half, too.
#[macro_export]
macro_rules! module {
    (type: $type:ident, $($field:ident: $text:literal),+ $(,)?) => {
        struct Loaded(core::cell::UnsafeCell<Option<$type>>);

        // SAFETY: Used by the two functions below, of which the kernel calls one at a time.
        unsafe impl Sync for Loaded {}

        static LOADED: Loaded = Loaded(core::cell::UnsafeCell::new(None));

        /// Returns 0, or a negative error number. Process context.
        #[no_mangle]
        unsafe extern "C" fn mflow_rust_init() -> core::ffi::c_int {
            match <$type as $crate::Module>::init(&$crate::ThisModule::THIS) {
                Ok(module) => {
                    // SAFETY: See the implementation of `Sync`.
                    unsafe { *LOADED.0.get() = Some(module) };
                    0
                }
                Err(error) => error.to_errno(),
            }
        }

        /// Process context.
        #[no_mangle]
        unsafe extern "C" fn mflow_rust_exit() {
            // SAFETY: See the implementation of `Sync`.
            unsafe { *LOADED.0.get() = None };
        }
    };
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    print::line(print::Level::Error, format_args!("{info}\n"));
    // SAFETY: It does not return. objtool may not know that, and would miss the function's end; an instruction that traps is one.
    unsafe {
        bindings::mflow_bug();
        core::arch::asm!("ud2", options(noreturn));
    }
}
