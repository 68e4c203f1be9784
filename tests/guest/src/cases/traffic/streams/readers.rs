// SPDX-License-Identifier: GPL-2.0

//! Every way to read a stream, and `sendfile` to write it.

use anyhow::ensure;
use clap::ValueEnum as _;

use crate::cases::traffic::shapes::strict;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::traffic::streams::read_style::ReadStyle;
use crate::traffic::streams::run::Streams;
use crate::traffic::streams::writers::WriteStyle;

/// Bytes of a stream's file that are sent before the mark.
const WARM_UP_BYTES: u64 = 32 << 20;
const MOST_FILE_BYTES: u64 = 128 << 20;

/// Ciphers in software are slow: this part of the usual bytes is sent.
const CIPHER_SHARE: u64 = 4;
/// The number of bytes that fit into the receive buffer that a parser needs.
const MOST_PARSED_BYTES: u64 = 24 << 20;

pub(in crate::cases) fn cases() -> Vec<Case> {
    let usual = |&&style: &&ReadStyle| style != ReadStyle::Slow;
    let styles = ReadStyle::value_variants().iter().filter(usual);
    let mut cases: Vec<Case> = styles.map(|&style| reader(style)).collect();
    cases.push(slow());
    cases.push(strict::<Streams>(
        "sendfile",
        "a stream that is sent from a file's pages arrives whole",
        Run::Always,
        |plan, _| {
            let file_bytes = (plan.load.bytes + WARM_UP_BYTES).min(MOST_FILE_BYTES);
            plan.load.bytes = file_bytes - WARM_UP_BYTES;
            plan.load.write_style = WriteStyle::Sendfile(file_bytes);
        },
    ));
    cases
}

fn reader(read_style: ReadStyle) -> Case {
    strict::<Streams>(
        format!("reader/{}", read_style.name()),
        "a stream arrives whole at a reader of this kind",
        match read_style {
            // Other ways to wait for what `tcp/main` receives.
            ReadStyle::Blocking
            | ReadStyle::Epoll
            | ReadStyle::Poll
            | ReadStyle::Peek
            | ReadStyle::LowWater
            | ReadStyle::Threads
            | ReadStyle::TlsSplice => Run::Plain,
            _ => Run::Always,
        },
        move |plan, _| {
            plan.load.read_style = read_style;
            plan.load.write_style = read_style.write_style();
            plan.load.bytes = match read_style {
                ReadStyle::Tls | ReadStyle::TlsSplice => plan.load.bytes / CIPHER_SHARE,
                ReadStyle::SockmapParser => plan.load.bytes.min(MOST_PARSED_BYTES),
                _ => plan.load.bytes,
            };
        },
    )
}

fn slow() -> Case {
    Case::of_traffic(
        "tcp/reader/slow",
        "a reader that lets the window close again and again gets its stream whole",
        Run::Always,
        |rig| {
            let mut plan = rig.streams();
            plan.load.read_style = ReadStyle::Slow;
            let outcome = rig.strict(&plan, &Knobs::default(), |_| Ok(()))?;
            outcome.judge(|outcome| {
                let closed = outcome.tcp.get("TCPToZeroWindowAdv").copied().unwrap_or(0);
                ensure!(closed > 0, "the window was never closed: nothing was shown");
                Ok(())
            })
        },
    )
}
