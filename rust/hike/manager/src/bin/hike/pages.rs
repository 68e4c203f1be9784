// SPDX-License-Identifier: GPL-2.0

//! Completion and man pages, made of the command lines.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use mflow_hike_manager::options::{Cli, Daemon};

use crate::output::print;

pub(crate) fn completion(shell: clap_complete::Shell) -> Result<()> {
    print(script(shell)?)
}

/// Returns the script that completes command lines in a shell.
fn script(shell: clap_complete::Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hike", &mut script);
    Ok(String::from_utf8(script)?)
}

pub(crate) fn man(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    let mut daemon = File::create(folder.join("hiked.8"))?;
    clap_mangen::Man::new(Daemon::command())
        .section("8")
        .render(&mut daemon)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command() {
        let folder = std::env::temp_dir().join(format!("mflow-hike-man-{}", std::process::id()));
        man(&folder).expect("pages");
        let page = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
        let (apply, daemon) = (page("hike-apply.1"), page("hiked.8"));
        fs::remove_dir_all(&folder).expect("there");
        assert!(apply.contains("all of it, or nothing") && daemon.contains(".TH hiked 8"));
    }

    #[test]
    fn completion_knows_the_commands() {
        let script = script(clap_complete::Shell::Bash).expect("text");
        assert!(script.contains("apply") && script.contains("monitor"));
    }
}
