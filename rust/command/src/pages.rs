// SPDX-License-Identifier: GPL-2.0

//! Completion and man pages, made of the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::options::Cli;

/// Returns the script that completes command lines in a shell.
pub fn completion(shell: clap_complete::Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mflow", &mut script);
    Ok(String::from_utf8(script)?)
}

/// Writes the man pages.
pub fn man(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command() {
        let folder = std::env::temp_dir().join(format!("mflow-man-{}", std::process::id()));
        man(&folder).expect("pages");
        let page = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
        let (all, set) = (page("mflow.1"), page("mflow-set.1"));
        fs::remove_dir_all(&folder).expect("there");
        assert!(all.contains("Exit status") && set.contains("lane+stage"));
    }

    #[test]
    fn completion_knows_the_commands() {
        let script = completion(clap_complete::Shell::Bash).expect("text");
        assert!(script.contains("diagnose") && script.contains("--confirm"));
    }
}
