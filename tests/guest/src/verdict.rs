// SPDX-License-Identifier: GPL-2.0

//! The verdict port: a serial port of its own that the host reads, so that success is always a positive statement and no
//! program's output or kernel message can be mistaken for one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::init::ORDER;

/// The serial port the host reads verdicts from.
const PORT: &str = "/dev/ttyS1";

/// Writes one line `<word> <value as JSON>`; outside the guest it goes to standard output.
pub(crate) fn say(word: &str, value: &impl Serialize) {
    let line = match serde_json::to_string(value) {
        Ok(json) => format!("{word} {json}\n"),
        Err(error) => format!("error \"cannot express {word}: {error}\"\n"),
    };
    if !Path::new(ORDER).exists() {
        print!("{line}");
        return;
    }
    let written = OpenOptions::new()
        .write(true)
        .open(PORT)
        .and_then(|mut port| port.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("cannot write to {PORT}: {error}: {line}");
    }
}
