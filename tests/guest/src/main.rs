// SPDX-License-Identifier: GPL-2.0

//! The whole userland of the test guest in one static program.
//!
//! As process 1 it is the guest's init ([`init`]); everything else is a subcommand. Read in this order: [`topology`] (the
//! network that is tested), [`traffic`] (one run), [`datagrams`] and [`streams`] (how order and integrity are proven),
//! [`cases`] (the test cases), [`chaos`] (random sequences of what they do), [`demo`].

#![deny(unsafe_code)]

mod absence;
mod bench;
mod bpf;
mod cases;
mod chaos;
mod clock;
mod command;
mod conntrack;
mod cpu;
mod datagrams;
mod demo;
mod devlink;
mod driver;
mod drops;
mod flows;
mod hike;
mod hog;
mod hosts;
mod init;
mod interrupts;
mod ipsec;
mod iptables;
mod kmemleak;
mod memory;
mod mflow;
mod netlink;
mod netns;
mod nfqueue;
mod nft;
mod nginx;
mod outcome;
mod packet_socket;
mod page_pool;
mod proc_net;
mod rig;
mod runner;
mod sockopt;
mod sockperf;
mod softnet;
mod streams;
mod tcpdump;
mod threads;
mod topology;
mod traffic;
mod verdict;
mod virtual_nic;
mod xdp_socket;

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
    /// Test chains of BPF programs at XDP; one JSON line per case on the verdict port.
    Hike(hike::Options),
    /// Test hosts as their operators set them up; one JSON line per case on the verdict port.
    Hosts(hosts::Options),
    /// Measure the loss of a flow through an SRv6 domain block by block, beside the true one.
    HikeDemo(hike::demo::Options),
    /// Send one stream of numbered datagrams through the overlay and say what arrived.
    Stream(datagrams::command::Options),
    /// Build the overlay network of the test cases and leave it standing.
    Topology(topology::Options),
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    let result: Result<ExitCode> = match Cli::parse().command {
        Subcommand::Bench(options) => bench::run(&options),
        Subcommand::Cases(options) => cases::run(&options),
        Subcommand::Chaos(options) => chaos::run(&options),
        Subcommand::Demo(options) => demo::run(&options),
        Subcommand::Driver(options) => driver::run(&options),
        Subcommand::Hike(options) => hike::run(&options),
        Subcommand::Hosts(options) => hosts::run(&options),
        Subcommand::HikeDemo(options) => hike::demo::run(&options),
        Subcommand::Stream(options) => datagrams::command::run(&options),
        Subcommand::Topology(options) => topology::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
