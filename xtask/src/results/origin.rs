// SPDX-License-Identifier: GPL-2.0

//! The circumstances of a measurement, which every row of the results names.

use std::fs;
use std::process::Command;

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

use super::{DOCUMENT, FOLDER};
use crate::{paths, tools};

/// The end of a commit's name where files have been changed since.
const CHANGED: &str = "-dirty";
/// The words before the emulator's version in a machine's name.
const EMULATOR: &str = ", QEMU ";

/// The time, the place and the way of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The day on which it began, such as `2026-11-28`.
    pub date: String,
    /// The commit that was measured.
    pub commit: String,
    /// The release of the kernel, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The processor and the emulator, if they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The number of windows, of which the figure is the median, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<u32>,
    /// The command line that measures it again.
    pub command: String,
}

impl Origin {
    /// Returns that of a measurement which begins now; the guest and the emulator are not known yet.
    pub fn now(command: String, windows: u32) -> Result<Self> {
        let date = tools::output(tools::command("date").args(["--utc", "+%F"]))?;
        Ok(Self {
            date: date.trim().to_owned(),
            commit: commit().unwrap_or_else(|_| "unknown".to_owned()),
            windows: Some(windows),
            command,
            ..Self::default()
        })
    }

    /// Fills in the kernel that was booted, and the machine with this emulator.
    pub fn booted(&mut self, release: &str, qemu: &str) {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.map_or("unknown", |name| name.trim_start_matches(['\t', ':', ' ']));
        self.kernel = Some(release.to_owned());
        self.machine = Some(format!("{model}, {} CPUs{EMULATOR}{qemu}", tools::cores()));
    }

    /// Returns the machine without the emulator. The model of the ConnectX needs a newer emulator than the distribution's.
    pub(super) fn host(&self) -> Option<&str> {
        let machine = self.machine.as_deref()?;
        Some(
            machine
                .split_once(EMULATOR)
                .map_or(machine, |(host, _)| host),
        )
    }

    /// Fails unless the commit is one that others can have, too.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.commit != "unknown" && !self.commit.ends_with(CHANGED),
            "the results name the commit that was measured, and this is {}; commit your changes first, or keep the rows with --json FILE",
            self.commit
        );
        Ok(())
    }
}

/// Returns the commit of the work tree, marked if files have been changed since, but for those that results are written to.
fn commit() -> Result<String> {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        let text = tools::output(command.current_dir(paths::project()).args(words))?;
        Ok::<_, anyhow::Error>(text.trim().to_owned())
    };
    let written = [FOLDER, DOCUMENT, "README.md"].map(|path| format!(":!{path}"));
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--", "."];
    status.extend(written.iter().map(String::as_str));
    let mark = if git(&status)?.is_empty() {
        ""
    } else {
        CHANGED
    };
    Ok(git(&["rev-parse", "--short=7", "HEAD"])? + mark)
}
