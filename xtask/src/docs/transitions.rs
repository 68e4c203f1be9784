// SPDX-License-Identifier: GPL-2.0

//! The picture of a flow's transitions, from the rows that the host build of the algorithm prints and the comments of the events.

use std::collections::BTreeMap;

use anyhow::{ensure, Context as _, Result};
use syn::Item;

use super::named;

/// A state, the event, and the state that follows. An event is a name in code, or that of the reason behind it.
pub(super) type Row = [String; 3];

/// All events that lead from one state to another.
struct Arrow<'a> {
    from: &'a str,
    next: &'a str,
    events: Vec<&'a str>,
}

/// Returns the picture as lines of a comment, with an arrow in each. `code` has the events, with a comment each.
pub(super) fn picture(rows: &[Row], code: &str) -> Result<String> {
    let comments = comments(code)?;
    let mut arrows: Vec<Arrow<'_>> = Vec::new();
    for [from, event, next] in rows {
        // A reason has the name under which operators meet it.
        let event = comments.get(event).unwrap_or(event);
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

/// Returns the comment of each event, without its full stop.
fn comments(code: &str) -> Result<BTreeMap<String, String>> {
    let items = syn::parse_file(code)?.items.into_iter();
    let mut enums = items.filter_map(|item| match item {
        Item::Enum(item) if item.ident == "Event" => Some(item),
        _ => None,
    });
    let events = enums.next().context("there is no `enum Event` any more")?;
    let commented = events.variants.into_iter().map(|event| {
        let text = named::comment(&event.attrs).join(" ");
        let comment = text.trim_end_matches('.').to_owned();
        ensure!(!comment.is_empty(), "`{}` needs a comment", event.ident);
        Ok((event.ident.to_string(), comment))
    });
    commented.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_the_same_states_are_one_arrow() {
        let code = "
            pub enum Event {
                /// It is
                /// fast.
                Probe,
                /// All came.
                Drained,
                /// A reason.
                Cause(Reason),
            }";
        let rows = [
            ["Counting", "Probe", "Probing"],
            ["Probing", "Drained", "Counting"],
            ["Probing", "no_slot", "Counting"],
            ["Probing", "Drained", "Split"],
        ]
        .map(|row| row.map(str::to_owned));
        let expected = "\
//! ```text
//! Counting -> Probing   It is fast
//! Probing  -> Counting  All came, no_slot
//!          -> Split     All came
//! ```
//! ";
        assert_eq!(picture(&rows, code).unwrap(), expected);
        let silent = code.replace("/// All came.", "");
        let error = picture(&rows, &silent).unwrap_err().to_string();
        assert_eq!(error, "`Drained` needs a comment");
        assert!(picture(&rows, "enum Other {}").is_err());
    }
}
