// SPDX-License-Identifier: GPL-2.0

//! Builds, checks and runs everything of mflow: the command line, and what the laboratory (`xtask/lab`) needs of it.

pub mod builds;
mod debian;
mod demo;
mod dkms;
pub mod docs;
mod doctor;
pub mod kernel;
mod lab;
pub mod module;
pub mod paths;
pub mod results;
pub mod setup;
pub mod step;
mod test;
pub mod tools;
pub mod vm;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    /// Install what is missing
    Setup(setup::Options),
    /// Check every prerequisite, one line each
    Doctor,
    /// Build the patched kernel with mflow in it
    BuildKernel(kernel::Options),
    /// Build the module alone, out of the kernel tree
    BuildModule(module::Options),
    /// Show the main job: the vanilla stack and mflow side by side
    Demo(demo::Options),
    /// Measure instructions per packet on the busiest core, for every stack
    #[command(disable_help_flag = true)]
    Bench(lab::Arguments),
    /// Predict other machines from measured costs, and check the predictions against what was measured
    #[command(disable_help_flag = true)]
    Sim(lab::Arguments),
    /// Boot a guest: an interactive shell, or one command
    Vm(vm::Options),
    /// Run the test layers
    Test(test::Options),
    /// Write the parts of documents that are made from code
    Docs,
}

/// Runs the command that the command line names.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Subcommand::Setup(options) => setup::run(options),
        Subcommand::Doctor => doctor::run(),
        Subcommand::BuildKernel(options) => kernel::run(options),
        Subcommand::BuildModule(options) => module::run(options),
        Subcommand::Demo(options) => demo::run(options),
        Subcommand::Bench(arguments) => lab::run("bench", arguments),
        Subcommand::Sim(arguments) => lab::run("sim", arguments),
        Subcommand::Vm(options) => vm::run(options),
        Subcommand::Test(options) => test::run(options),
        Subcommand::Docs => docs::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn readme_names_every_command() {
        let readme = std::fs::read_to_string(paths::project().join("xtask/README.md")).unwrap();
        let cli = Cli::command();
        cli.clone().debug_assert();
        for command in cli.get_subcommands() {
            let name = command.get_name();
            let named = readme.contains(&format!("| `{name}")) && !name.is_empty();
            assert!(named, "xtask/README.md has no line for `{name}`");
        }
    }
}
