// SPDX-License-Identifier: GPL-2.0

//! Every way to read a stream, and `sendfile` to write it.

use anyhow::ensure;

use super::strict;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::streams::read_style::Style;
use crate::streams::run::Plan;
use crate::streams::writers::Writing;

/// What the file of a stream has beyond what is sent after the mark, for the warm-up.
const WARM_UP_BYTES: u64 = 32 << 20;
/// The file is in memory.
const MOST_FILE_BYTES: u64 = 128 << 20;

/// Ciphers in software take their time: so much less is sent.
const CIPHER_SHARE: u64 = 4;
/// What fits into the receive buffer that a parser needs.
const MOST_PARSED_BYTES: u64 = 24 << 20;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Style::ALL
        .into_iter()
        .filter(|&style| style != Style::Slow)
        .map(|style| {
            strict(
                format!("tcp/reader/{}", style.name()),
                "a stream arrives whole at a reader of this kind",
                match style {
                    // Other ways to wait for what `tcp/main` receives.
                    Style::Blocking
                    | Style::Epoll
                    | Style::Poll
                    | Style::Peek
                    | Style::LowWater
                    | Style::Threads
                    | Style::TlsSplice => Run::Plain,
                    _ => Run::Always,
                },
                move |rig| {
                    let plan = rig.tcp_plan();
                    let plan = Plan {
                        style,
                        writing: style.writing(),
                        bytes: match style {
                            Style::Tls | Style::TlsSplice => plan.bytes / CIPHER_SHARE,
                            Style::SockmapParser => plan.bytes.min(MOST_PARSED_BYTES),
                            _ => plan.bytes,
                        },
                        ..plan
                    };
                    (plan, Knobs::default())
                },
            )
        })
        .collect();
    cases.push(slow());
    cases.push(strict(
        "tcp/sendfile",
        "a stream that is sent from a file's pages arrives whole",
        Run::Always,
        |rig| {
            let plan = rig.tcp_plan();
            let file_bytes = (plan.bytes + WARM_UP_BYTES).min(MOST_FILE_BYTES);
            let plan = Plan {
                bytes: file_bytes - WARM_UP_BYTES,
                writing: Writing::Sendfile(file_bytes),
                ..plan
            };
            (plan, Knobs::default())
        },
    ));
    cases
}

fn slow() -> Case {
    Case::of_traffic(
        "tcp/reader/slow",
        "a reader that lets the window close again and again gets its stream whole",
        Run::Always,
        |rig| {
            let plan = Plan {
                style: Style::Slow,
                ..rig.tcp_plan()
            };
            let outcome = rig.strict_tcp(&plan, &Knobs::default(), |_| Ok(()))?;
            outcome.judge(|outcome| {
                let closed = outcome.tcp.get("TCPToZeroWindowAdv").copied().unwrap_or(0);
                ensure!(closed > 0, "the window was never closed: nothing was shown");
                Ok(())
            })
        },
    )
}
