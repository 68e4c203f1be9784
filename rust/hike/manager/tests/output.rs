// SPDX-License-Identifier: GPL-2.0

//! The command when nobody reads its output.

use std::fs::File;
use std::io::pipe;
use std::process::{Command, Output, Stdio};

fn completion(to: impl Into<Stdio>) -> Output {
    let mut hike = Command::new(env!("CARGO_BIN_EXE_hike"));
    let output = hike.args(["completion", "bash"]).stdout(to).output();
    output.expect("it runs")
}

#[test]
fn output_that_nobody_reads_ends_quietly() {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let output = completion(writer);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "it has ended with {} and said: {said}",
        output.status
    );
}

#[test]
fn output_that_is_lost_is_an_error_of_one_line() {
    let full = File::options().write(true).open("/dev/full");
    let output = completion(full.expect("it is there"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.starts_with("hike: cannot print: ") && said.lines().count() == 1,
        "it said: {said}"
    );
}
