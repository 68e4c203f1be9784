// SPDX-License-Identifier: GPL-2.0

//! The program behind `cargo xtask`.

fn main() -> std::process::ExitCode {
    xtask::main()
}
