// SPDX-License-Identifier: GPL-2.0

//! Makes Rust of the proto files; the compiler of these is a library, so no `protoc` has to be there.

use std::error::Error;

const PROTO: &str = "proto";
const FILES: [&str; 2] = [
    "mflow/hike/v1/configuration.proto",
    "mflow/hike/v1/manager.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile(FILES, [PROTO])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
