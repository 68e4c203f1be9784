// SPDX-License-Identifier: GPL-2.0

//! Nothing: rustc wants a crate of this name beside core. What core takes from it (floating point, 128-bit division) the module
//! does not use, and so the linker drops.

#![allow(internal_features)]
#![feature(compiler_builtins)]
#![compiler_builtins]
#![no_builtins]
#![no_std]
