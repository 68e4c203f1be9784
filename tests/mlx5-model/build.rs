// SPDX-License-Identifier: GPL-2.0

//! Makes constants of the layouts: of the headers of the kernel that is under test if `MLX5_IFC_H` names the first of them,
//! else of the table that is kept here.
//!
//! The table is for builds where no kernel source is at hand, such as a first `cargo clippy`; a test compares it with the
//! headers.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is the library's, which needs more of it than this script"
)]
#[path = "src/ifc.rs"]
mod ifc;

const TABLE: &str = "layouts/linux-6.12.txt";

fn main() {
    println!("cargo::rerun-if-env-changed=MLX5_IFC_H");
    println!("cargo::rerun-if-changed={TABLE}");
    println!("cargo::rerun-if-changed=src/ifc.rs");
    if let Err(error) = generate() {
        println!("cargo::error={error}");
    }
}

fn generate() -> Result<(), String> {
    let layouts = match env::var_os("MLX5_IFC_H") {
        Some(header) => {
            let header = PathBuf::from(header);
            println!("cargo::rerun-if-changed={}", header.display());
            for neighbour in ifc::neighbours(&header) {
                println!("cargo::rerun-if-changed={}", neighbour.display());
            }
            ifc::Layouts::from_headers(&header)?
        }
        None => ifc::Layouts::from_table(&ifc::read(Path::new(TABLE))?)?,
    };
    let out = env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?;
    fs::write(PathBuf::from(out).join("layouts.rs"), layouts.to_rust())
        .map_err(|error| error.to_string())
}
