// SPDX-License-Identifier: GPL-2.0

//! The memory of attempts to fetch something that have failed: commands other than `setup` do without for a while.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::step;

/// After a failure, commands other than `setup` do without for this long.
const PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that holds why the last attempt has failed.
pub(super) struct Failure(pub(super) PathBuf);

impl Failure {
    /// Returns why the last attempt has failed, if that is not long ago.
    pub(super) fn lately(&self) -> Option<String> {
        let Self(file) = self;
        let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
        (age < PAUSE)
            .then(|| fs::read_to_string(file).ok())
            .flatten()
    }

    /// Notes why an attempt has failed; returns the reason in one line.
    pub(super) fn note(&self, error: &anyhow::Error) -> Result<String> {
        let why = in_one_line(error);
        fs::write(&self.0, &why)?;
        Ok(why)
    }

    /// Makes the next attempt real.
    pub(super) fn forget(&self) {
        // Usually there is none.
        let _best_effort = fs::remove_file(&self.0);
    }
}

/// Returns the reason alone: of a failed command, the first line of its tail that begins with `E: `, or else the last line.
fn in_one_line(error: &anyhow::Error) -> String {
    match error.downcast_ref::<step::Failed>() {
        Some(failed) => {
            let said = failed.tail.lines().find(|line| line.starts_with("E: "));
            let last = said.or(failed.tail.lines().last()).unwrap_or_default();
            format!("{last}; log: {}", failed.log.display())
        }
        None => format!("{error:#}").replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_failed_command_its_error_is_told() {
        let error = step::Failed {
            command: "apt-get update".to_owned(),
            status: "exit status: 100".to_owned(),
            tail: "Err:1 trixie\nE: The repository has no Release file.\nN: See apt-secure(8).\n"
                .to_owned(),
            log: "/log".into(),
            hint: String::new(),
        };
        assert_eq!(
            in_one_line(&error.into()),
            "E: The repository has no Release file.; log: /log"
        );
    }

    #[test]
    fn a_failure_is_remembered_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let failure = Failure(dir.path().join("failed"));
        assert_eq!(failure.lately(), None);
        let why = failure.note(&anyhow::anyhow!("no\nnetwork")).unwrap();
        assert_eq!(why, "no network");
        assert_eq!(failure.lately(), Some(why));
        failure.forget();
        assert_eq!(failure.lately(), None);
    }
}
