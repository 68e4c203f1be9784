// SPDX-License-Identifier: GPL-2.0

//! The messages of commits since the newest tag, or since the version changed.

use std::path::Path;

use anyhow::{ensure, Result};

use crate::tools;

/// Characters of a subject at most.
const SUBJECT: usize = 72;

/// Subjects of commits of 0.3.0 that have no body: they change comments alone, and are older than this check.
const WITHOUT_BODY: &[&str] = &[
    "bench: comments of the tuned stacks begin with a noun",
    "comments: a member is built, be it a datagram or a segment",
    "tests: comments of two cases begin with a verb",
    "tests: without our patches a socket with UDP_GRO gets single datagrams",
];

/// Fails with the commits whose messages are not as they have to be. Returns the reason if there is no history to look at.
pub(super) fn check(project: &Path) -> Result<Option<&'static str>> {
    let git = |words: &[&str]| {
        let mut command = tools::command("git");
        tools::output(command.current_dir(project).args(words))
    };
    // A copy without history may lie in the folder of another repository.
    match git(&["rev-parse", "--show-prefix", "--is-shallow-repository"]) {
        Ok(text) if text.trim() == "false" => {}
        Ok(text) if text.trim() == "true" => return Ok(Some("the clone is shallow")),
        _ => return Ok(Some("this is no clone of the repository")),
    }
    let version = [
        "log",
        "-1",
        "--format=%H",
        "-G^version = ",
        "--",
        "Cargo.toml",
    ];
    let begin = git(&["describe", "--tags", "--abbrev=0"]).or_else(|_| git(&version))?;
    let range = format!("{}..HEAD", begin.trim());
    let log = git(&["log", "--no-merges", "-z", "--format=%h %s%n%b", &range])?;
    let bad: Vec<String> = log.split('\0').filter_map(fault).collect();
    ensure!(
        bad.is_empty(),
        "the messages of these commits are not `word: text` of {SUBJECT} characters at most, with a body:\n  {}",
        bad.join("\n  ")
    );
    Ok(None)
}

/// Returns the fault of a commit's message, behind its number.
fn fault(commit: &str) -> Option<String> {
    let (head, body) = commit.split_once('\n').unwrap_or((commit, ""));
    let (_, subject) = head.split_once(' ')?;
    let fault = if subject.chars().count() > SUBJECT {
        "too long"
    } else if !has_form(subject) {
        "no `word: text`"
    } else if body.trim().is_empty() && !WITHOUT_BODY.contains(&subject) {
        "no body"
    } else {
        return None;
    };
    Some(format!("{head}: {fault}"))
}

/// Returns whether a subject names a part of the project, and what changes there.
fn has_form(subject: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || "_-/., ".contains(c);
    subject.split_once(": ").is_some_and(|(part, text)| {
        !part.is_empty() && part.chars().all(is_name) && !text.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_part_a_subject_and_a_body() {
        let body = "\nWhy.\n";
        assert_eq!(
            fault(&format!("1a2b3c4 rust/algo, glue: a thing\n{body}")),
            None
        );
        let long = format!("1a2b3c4 glue: {}\n{body}", "x".repeat(SUBJECT));
        for bad in [
            &long,
            "1a2b3c4 glue: a thing\n\n",
            "1a2b3c4 Fix it\n\nWhy.\n",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
        let without = format!("1a2b3c4 {}\n", WITHOUT_BODY[0]);
        assert_eq!(fault(&without), None);
    }
}
