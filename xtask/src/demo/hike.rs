// SPDX-License-Identifier: GPL-2.0

//! HIKE with one command: ingress, two waypoints and egress, and loss on one link; what the monitors say of each block, and what a
//! filter on that link has dropped.

use std::process::ExitCode;

use anyhow::{bail, Result};
use mflow_protocol::guest::{LossRow, Message};

use super::{boot, ended, write_json, Options, PATIENCE};
use crate::vm::Event;

const HEAD: &str = "
src ── ingress ── waypoint 1 ── waypoint 2 ── egress ── dst
       enc,mon-in,fw-fib    ╳ drops one in five of odd blocks, one in seven of even ones
                                              mon-out,fw-kernel

            block   entered     left  lost, measured  lost, true";

const NOTE: &str = "
A block is one second of one colour. Packets are coloured and counted at ingress, where a BPF program at XDP puts them into SRv6, and
counted at egress; the waypoints, and what takes SRv6 off again, are the kernel's.";

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let mut vm = boot(options, "hike-demo")?;
    println!("{HEAD}");
    let mut rows: Vec<LossRow> = Vec::new();
    let code = loop {
        match vm.wait(Some(PATIENCE))? {
            Event::Said(Message::Loss(row)) => {
                println!("{}", text(&row));
                rows.push(row);
            }
            Event::Said(other) => bail!("no demo says {other:?}"),
            Event::Complained => {}
            Event::Exit(code) => break code,
            Event::Trouble(trouble) => bail!("{trouble}"),
        }
    };
    if code != 0 || rows.is_empty() {
        return Err(ended(&vm, code));
    }
    println!("{NOTE}");
    if let Some(path) = &options.json {
        write_json(path, &rows)?;
    }
    vm.forget_logs();
    Ok(ExitCode::SUCCESS)
}

fn text(row: &LossRow) -> String {
    // What has left without having entered would be a row to look at, too.
    let lost = i128::from(row.entered) - i128::from(row.left);
    format!(
        "{:>17} {:>9} {:>8} {:>15} {:>11}",
        row.block, row.entered, row.left, lost, row.dropped
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_below_its_head() {
        let row = LossRow {
            block: 1_790_000_000,
            entered: 1600,
            left: 1280,
            dropped: 320,
        };
        assert_eq!(
            text(&row),
            "       1790000000      1600     1280             320         320"
        );
        let head = HEAD.lines().last().unwrap_or_default();
        assert_eq!(text(&row).len(), head.len());
    }
}
