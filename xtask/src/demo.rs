// SPDX-License-Identifier: GPL-2.0

//! The main job with one command: three clients stream into one container, through the vanilla stack and through mflow.
//! [`hike`] has the other demo.

mod hike;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Context as _, Error, Result};
use mflow_protocol::cpus;
use mflow_protocol::guest::{DemoRow, Message, Order};
use serde::Serialize;

use crate::kernel::Flavor;
use crate::step;
use crate::vm::{self, Event, Hardware, Terminal, Vm};

/// The time limit for one stack.
const PATIENCE: Duration = Duration::from_secs(180);
/// The stacks that are compared, in the order in which the guest measures them.
const STACKS: [&str; 3] = ["the vanilla stack", "mflow on 2 lanes", "mflow on 4 lanes"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Demo to show
    #[arg(value_enum, default_value_t)]
    show: Show,
    #[command(flatten)]
    hardware: Hardware,
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Show {
    /// One elephant flow of an overlay on one core, and split over several
    #[default]
    Mflow,
    /// An SRv6 domain with loss on one link: what is measured block by block, and what is true
    Hike,
}

#[derive(Debug, Serialize)]
struct Line {
    mode: String,
    offered_per_s: u64,
    sent: u64,
    delivered: u64,
    lost: u64,
    reordered: u64,
    corrupt: u64,
    messages_per_s: u64,
    seconds: f64,
    packets_per_core: Vec<Core>,
    errors: Vec<String>,
}

/// The work of one core while the sockperf clients streamed.
#[derive(Debug, Serialize)]
struct Core {
    cpu: usize,
    role: &'static str,
    /// Passes through the stack: a packet makes one on the NIC, one on the VXLAN device, one in the container.
    stack_passes: u64,
    /// Packets that the module gave this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_pkts: Option<i64>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.show {
        Show::Mflow => run_mflow(&options),
        Show::Hike => hike::run(&options),
    }
}

fn run_mflow(options: &Options) -> Result<ExitCode> {
    let mut vm = boot(options, "demo")?;
    let mut lines = Vec::new();
    for stack in STACKS {
        let row = step::work(&format!("measure {stack}"), || next_row(&mut vm))?;
        lines.push(Line::of(row));
    }
    let code = end(&mut vm)?;
    print!("{HEAD}");
    for line in &lines {
        println!("{}", line.text());
    }
    println!("{NOTES}");
    let terminal = vm.terminal_log();
    if let Some(path) = &options.json {
        write_json(path, &lines)?;
    }
    let errors: Vec<String> = lines
        .iter()
        .flat_map(|line| {
            line.errors
                .iter()
                .map(|error| format!("{}: {error}", line.mode))
        })
        .collect();
    if !errors.is_empty() {
        bail!("{}\nlog:  {}", errors.join("\n"), terminal.display());
    }
    ensure!(
        code == 0,
        "the guest program ended with {code}; see {}",
        terminal.display()
    );
    vm.forget_logs();
    Ok(ExitCode::SUCCESS)
}

/// Boots a guest that runs one command of `mflow-guest`, and powers off.
fn boot(options: &Options, command: &str) -> Result<Vm> {
    let machine = vm::machine(Flavor::Vm, &options.hardware)?;
    machine.probe()?;
    let order = Order {
        argv: vec!["mflow-guest".to_owned(), command.to_owned()],
        ..Order::default()
    };
    // Two demos at once must not share logs.
    let name = format!("{command}-{}", process::id());
    Vm::boot(&machine, &order, &name, Terminal::Log)
}

fn next_row(vm: &mut Vm) -> Result<DemoRow> {
    loop {
        match vm.wait(Some(PATIENCE))? {
            Event::Said(Message::Row(row)) => return Ok(row),
            Event::Said(other) => bail!("no demo says {other:?}"),
            Event::Complained => {}
            Event::Exit(code) => return Err(ended(vm, code)),
            Event::Trouble(trouble) => bail!("{trouble}"),
        }
    }
}

/// Returns an error with the output of a guest program that has ended too early.
fn ended(vm: &Vm, code: i32) -> Error {
    let said = fs::read_to_string(vm.terminal_log()).unwrap_or_default();
    anyhow!("the guest program ended with {code}: {}", said.trim())
}

fn write_json(path: &Path, table: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(table)? + "\n";
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until the guest has powered off.
fn end(vm: &mut Vm) -> Result<i32> {
    loop {
        match vm.wait(Some(PATIENCE))? {
            Event::Said(_) | Event::Complained => {}
            Event::Exit(code) => return Ok(code),
            Event::Trouble(trouble) => bail!("{trouble}"),
        }
    }
}

const HEAD: &str = concat!(
    "\n",
    "            numbered datagrams, 3 flows of 16 bytes              3 sockperf clients of 16 bytes, flat out\n",
    "mode          sent/s  delivered    lost  reordered  corrupt    messages/s  packets per core\n",
);

const NOTES: &str = "
Numbered datagrams are offered at 60 % of the rate that the vanilla stack carried without loss. Packets per core are
passes through the stack: one on the NIC, one on the VXLAN device, one in the container. The merge deadline is 1 s here, as
an emulated lane may be away for a while; and as the host has fewer cores than the guest, rates say nothing about speed.";

impl Line {
    fn of(row: DemoRow) -> Self {
        let passes = |cpu: &usize| row.sockperf.softnet_pkts.get(cpu).copied().unwrap_or(0);
        let mut cores = vec![Core {
            cpu: cpus::NIC,
            role: "NIC",
            stack_passes: passes(&cpus::NIC),
            lane_pkts: None,
        }];
        cores.extend(cpus::LANES.iter().take(row.lanes).map(|cpu| {
            Core {
                cpu: *cpu,
                role: "lane",
                stack_passes: passes(cpu),
                lane_pkts: row
                    .sockperf
                    .mflow
                    .get(&format!("lane_cpu{cpu}_pkts"))
                    .copied(),
            }
        }));
        Self {
            mode: match row.lanes {
                0 => "vanilla".to_owned(),
                lanes => format!("mflow {lanes}"),
            },
            offered_per_s: row.numbered.offered_per_s,
            sent: row.numbered.sent,
            delivered: row.numbered.delivered,
            lost: row.numbered.lost,
            reordered: row.numbered.reordered,
            corrupt: row.numbered.corrupt,
            messages_per_s: row.sockperf.messages_per_s,
            seconds: row.sockperf.seconds,
            packets_per_core: cores,
            errors: row.errors,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{:<10} {:>10} {:>10} {:>7} {:>10} {:>8}    {:>10}  ",
            self.mode,
            self.offered_per_s,
            self.delivered,
            self.lost,
            self.reordered,
            self.corrupt,
            self.messages_per_s
        );
        let cores: Vec<String> = self
            .packets_per_core
            .iter()
            .map(|core| format!("{} {}: {}", core.role, core.cpu, core.stack_passes))
            .collect();
        text += &cores.join(", ");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"lanes":2,
        "numbered":{"sent":10,"delivered":9,"lost":1,"reordered":0,"corrupt":0,"offered_per_s":5,"longest_stall_us":0,"stream_bytes":0},
        "sockperf":{"messages_per_s":7,"seconds":6.0,"softnet_pkts":{"1":0,"2":30,"3":33,"6":1},
        "mflow":{"lane_cpu2_pkts":10,"lane_cpu3_pkts":11}},"errors":["one lost"]}"#;

    #[test]
    fn a_row_becomes_a_line() {
        let row: DemoRow = serde_json::from_str(ROW).expect("good row");
        let line = Line::of(row);
        assert_eq!((line.mode.as_str(), line.lost), ("mflow 2", 1));
        assert!(line.text().ends_with("NIC 1: 0, lane 2: 30, lane 3: 33"));
        assert_eq!(line.packets_per_core[2].lane_pkts, Some(11));
        let head = HEAD.lines().map(str::len).max().unwrap_or(0);
        assert!(line.text().find("NIC").is_some_and(|place| place < head));
    }
}
