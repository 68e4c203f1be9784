// SPDX-License-Identifier: GPL-2.0

//! The picture of a flow's transitions, from the table in the module's code: an enum of events, each with a comment, and rows
//! `row(State, Event, NextState),`.

use std::collections::BTreeMap;

use anyhow::{bail, ensure, Context as _, Result};

use super::named::Named;

const EVENTS: &str = "pub enum Event {";
const ROWS: &str = "pub const TRANSITIONS: &[Transition] = {";
const NOT_UNDERSTOOD: &str = "this no longer understands the code";

/// All events that lead from one state to another.
struct Arrow<'a> {
    from: &'a str,
    next: &'a str,
    events: Vec<String>,
}

/// Returns the picture as lines of a comment, with an arrow in each. Reasons have the names under which operators meet them.
pub(super) fn picture(code: &str, reasons: &[Named]) -> Result<String> {
    let arrows = arrows(code, reasons)?;
    let width = |name: fn(&Arrow<'_>) -> usize| arrows.iter().map(name).max().unwrap_or_default();
    let from_width = width(|arrow| arrow.from.len());
    let next_width = width(|arrow| arrow.next.len());
    let mut lines = "//! ```text\n".to_owned();
    let mut before = "";
    for Arrow { from, next, events } in &arrows {
        let from_once = if before == *from { "" } else { from };
        let events = events.join(", ");
        lines += &format!("//! {from_once:from_width$} -> {next:next_width$}  {events}\n");
        before = from;
    }
    // The line that ends the part is of the comment, too.
    Ok(lines + "//! ```\n//! ")
}

fn arrows<'a>(code: &'a str, reasons: &[Named]) -> Result<Vec<Arrow<'a>>> {
    let comments = comments(code)?;
    let mut arrows: Vec<Arrow<'_>> = Vec::new();
    for line in lines_behind(code, ROWS)? {
        let Some(row) = line.strip_prefix("row(") else {
            ensure!(
                line.starts_with("use ") || ["&[", "]"].contains(&line),
                "`{line}` in `{ROWS}` is no row: {NOT_UNDERSTOOD}"
            );
            continue;
        };
        let row: Vec<&str> = row.trim_end_matches("),").split(", ").collect();
        let [from, event, next] = row[..] else {
            bail!("`{line}` is no row of three: {NOT_UNDERSTOOD}");
        };
        let event = words(event, &comments, reasons)?;
        let mut known = arrows.iter_mut();
        match known.find(|arrow| arrow.from == from && arrow.next == next) {
            Some(arrow) => arrow.events.push(event),
            None => arrows.push(Arrow {
                from,
                next,
                events: vec![event],
            }),
        }
    }
    ensure!(!arrows.is_empty(), "`{ROWS}` has no row: {NOT_UNDERSTOOD}");
    Ok(arrows)
}

/// Returns the words for an event: a reason's name, and of others the comment.
fn words(event: &str, comments: &BTreeMap<&str, String>, reasons: &[Named]) -> Result<String> {
    let reason = event
        .strip_prefix("Cause(Reason::")
        .and_then(|rest| rest.strip_suffix(')'));
    let words = match reason {
        Some(variant) => reasons
            .iter()
            .find(|reason| reason.variant == variant)
            .map(|reason| reason.name.clone()),
        None => comments.get(event).cloned(),
    };
    words
        .with_context(|| format!("`{event}` in `{ROWS}` is no event with a comment, and no reason"))
}

/// Reads the comment of each event.
fn comments(code: &str) -> Result<BTreeMap<&str, String>> {
    let mut comments = BTreeMap::new();
    let mut comment = Vec::new();
    for line in lines_behind(code, EVENTS)? {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else {
            let text = std::mem::take(&mut comment).join(" ");
            comments.insert(
                line.trim_end_matches(','),
                text.trim_end_matches('.').to_owned(),
            );
        }
    }
    Ok(comments)
}

/// Returns the lines between one that stands at the margin and the end of its block.
fn lines_behind<'a>(code: &'a str, begin: &str) -> Result<impl Iterator<Item = &'a str>> {
    let (_, block) = code
        .split_once(&format!("\n{begin}\n"))
        .with_context(|| format!("no line `{begin}`: {NOT_UNDERSTOOD}"))?;
    let lines = block.lines().take_while(|line| !line.starts_with('}'));
    Ok(lines.map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS_AND_ROWS: &str = "
pub enum Event {
    /// It is
    /// fast.
    Probe,
    /// All came.
    Drained,
    /// A reason.
    Cause(Reason),
}

pub const TRANSITIONS: &[Transition] = {
    use Event::Probe;
    &[
        row(Counting, Probe, Probing),
        row(Probing, Drained, Counting),
        row(Probing, Cause(Reason::NoSlot), Counting),
        row(Probing, Drained, Split),
    ]
};
";

    fn drawn(code: &str) -> Result<String> {
        let no_slot = Named {
            name: "no_slot".to_owned(),
            variant: "NoSlot".to_owned(),
            ..Named::default()
        };
        picture(code, &[no_slot])
    }

    #[test]
    fn rows_between_the_same_states_are_one_arrow() {
        let expected = "\
//! ```text
//! Counting -> Probing   It is fast
//! Probing  -> Counting  All came, no_slot
//!          -> Split     All came
//! ```
//! ";
        assert_eq!(drawn(EVENTS_AND_ROWS).unwrap(), expected);
    }

    #[test]
    fn rows_that_are_not_understood_are_named() {
        for (from, to, named) in [
            ("Reason::NoSlot", "Reason::Other", "Cause(Reason::Other)"),
            ("Counting, Probe,", "Counting, Unknown,", "Unknown"),
            ("row(Counting, Probe, Probing)", "ROW", "ROW"),
            ("row(Counting, Probe, Probing)", "row(Counting)", "Counting"),
            (EVENTS, "enum Other {", EVENTS),
            (ROWS, "const OTHER: () = {", ROWS),
        ] {
            let error = drawn(&EVENTS_AND_ROWS.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
        let (head, _) = EVENTS_AND_ROWS.split_once("        row(").unwrap();
        assert!(drawn(head).is_err());
    }
}
