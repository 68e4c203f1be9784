// SPDX-License-Identifier: GPL-2.0

//! The words that comments in the module's code have for counters and reasons, for people. Each has two paragraphs.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::report::reason::Reason;

/// Returns what a counter counts.
pub fn meaning(counter: Counter) -> String {
    paragraph(counter.comment(), 0)
}

/// Returns what an operator may do about a reason of this name; `None` if there is no such reason.
pub fn advice(reason: &str) -> Option<String> {
    let mut all = Reason::ALL.iter();
    let reason = all.find(|one| one.name() == reason)?;
    Some(paragraph(reason.comment(), 1))
}

/// Returns a paragraph of a comment in one line, without the marks of code.
fn paragraph(comment: &[&str], number: usize) -> String {
    let lines: Vec<&str> = comment.iter().map(|line| line.trim()).collect();
    let mut paragraphs = lines.split(|line| line.is_empty());
    let lines = paragraphs.nth(number).unwrap_or_default();
    lines.join(" ").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_both_paragraphs() {
        for counter in Counter::ALL {
            assert!(meaning(*counter).ends_with('.'), "{}", counter.name());
        }
        for reason in Reason::ALL {
            let advice = advice(reason.name()).unwrap_or_default();
            assert!(advice.ends_with('.'), "{}: {advice}", reason.name());
        }
        assert_eq!(meaning(Counter::LanePkts), "Packets handed to lanes.");
        assert_eq!(advice("new").as_deref(), Some("Wait a moment."));
        assert_eq!(advice("no_such_reason"), None);
    }
}
