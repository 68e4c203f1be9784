// SPDX-License-Identifier: GPL-2.0

//! Makes Rust of the proto files; the compiler of these is a library, so no `protoc` has to be there.

use std::error::Error;

const PROTO: &str = "proto";
const FILES: [&str; 2] = [
    "mflow/hike/v1/configuration.proto",
    "mflow/hike/v1/manager.proto",
];
/// The messages that the command prints as JSON.
const PRINTED: [&str; 15] = [
    "ApplyResponse",
    "DiffResponse",
    "WatchResponse",
    "Difference",
    "Result",
    "Block",
    "v1.Flow",
    "Counter",
    "LocalSid",
    "SessionResult",
    "SessionCounts",
    "v1.Delay",
    "Clocks",
    "StatusResponse",
    "DeviceStatus",
];
/// Their fields that are numbers in messages and words there, and what has those numbers.
const WORDS: [(&str, &str); 4] = [
    ("Difference.kind", "crate::configuration::objects::Kind"),
    ("Result.direction", "mflow_hike::Direction"),
    ("Counter.fate", "mflow_hike::counters::reason::Fate"),
    ("DeviceStatus.mode", "mflow_hike::XdpMode"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile(FILES, [PROTO])?;
    let mut builder = tonic_prost_build::configure();
    for message in PRINTED {
        builder = builder.message_attribute(message, "#[derive(serde::Serialize)]");
    }
    for (field, value) in WORDS {
        let writer =
            format!("#[serde(serialize_with = \"crate::proto::write_word::<{value}, _>\")]");
        builder = builder.field_attribute(field, writer);
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}
