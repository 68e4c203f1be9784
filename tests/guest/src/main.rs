// SPDX-License-Identifier: GPL-2.0

//! The whole userland of the test guest in one static program.
//!
//! As process 1 it is the guest's init ([`machine::init`]); everything else is a subcommand. Read in this order: [`network::topology`] (the
//! network that is tested), [`traffic`] (one run), [`traffic::datagrams`] and [`traffic::streams`] (how order and integrity are proven),
//! [`cases`] (the test cases), [`chaos`] (random sequences of what they do), [`demo`].

#![deny(unsafe_code)]

mod bench;
mod cases;
mod chaos;
mod demo;
mod driver;
mod drops;
mod flows;
mod hike;
mod hosts;
mod kmemleak;
mod machine;
mod mflow;
mod mflow_family;
mod network;
mod runner;
mod traffic;
mod verdict;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(name = "mflow-guest", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Measure cases that the host ordered, with the frames and the counting plug-in it provides.
    Bench(bench::Options),
    /// Run the test cases, one after the other; one JSON line per case on the verdict port.
    Cases(cases::Options),
    /// Run random sequences of what can happen to a host under load; one JSON line per sequence on the verdict port.
    Chaos(chaos::Options),
    /// Measure the vanilla stack and mflow on 2 and 4 lanes side by side.
    Demo(demo::Options),
    /// Test the driver of the ConnectX model; one JSON line per case on the verdict port.
    Driver(driver::Options),
    /// Ask the module's netlink family with the caller's rights, and say what is refused.
    Family(mflow_family::Options),
    /// Test chains of BPF programs at XDP; one JSON line per case on the verdict port.
    Hike(hike::Options),
    /// Test hosts as their operators set them up; one JSON line per case on the verdict port.
    Hosts(hosts::Options),
    /// Measure the loss of a flow through an SRv6 domain block by block, beside the true one.
    HikeDemo(hike::demo::Options),
    /// Send one stream of numbered datagrams through the overlay and say what arrived.
    Stream(traffic::command::Options),
    /// Build the overlay network of the test cases and leave it standing.
    Topology(network::topology::Options),
    /// Do nothing until a signal comes, as the program of a container.
    Wait,
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        machine::init::main();
    }
    let result: Result<ExitCode> = match Cli::parse().command {
        Subcommand::Bench(options) => bench::run(&options),
        Subcommand::Cases(options) => cases::run(&options),
        Subcommand::Chaos(options) => chaos::run(&options),
        Subcommand::Demo(options) => demo::run(&options),
        Subcommand::Driver(options) => driver::run(&options),
        Subcommand::Family(options) => mflow_family::run(&options),
        Subcommand::Hike(options) => hike::run(&options),
        Subcommand::Hosts(options) => hosts::run(&options),
        Subcommand::HikeDemo(options) => hike::demo::run(&options),
        Subcommand::Stream(options) => traffic::command::run(&options),
        Subcommand::Topology(options) => network::topology::run(&options),
        Subcommand::Wait => loop {
            std::thread::park();
        },
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
