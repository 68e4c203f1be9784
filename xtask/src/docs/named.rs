// SPDX-License-Identifier: GPL-2.0

//! Names that operators meet, as macros in the module's code list them: a comment and a line `Variant = "name", values;`.

use anyhow::{ensure, Context as _, Result};

/// A name and all that its place in the code says of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    /// The name in code.
    pub(super) variant: String,
    /// The words that files print beside the name.
    pub(super) words: String,
    /// The last of the values behind the name, as the code has it.
    pub(super) value: String,
    /// The first paragraph of the comment: for what it stands.
    pub(super) meaning: String,
    /// The second, where the list has it: what an operator makes of it.
    pub(super) advice: String,
}

/// Reads the list that begins with this line, such as `knobs! {`.
pub(super) fn read(code: &str, begin: &str) -> Result<Vec<Named>> {
    let (_, list) = code
        .split_once(&format!("\n{begin}\n"))
        .with_context(|| format!("no line `{begin}`: this no longer understands the code"))?;
    let mut all = Vec::new();
    let mut comment = Vec::new();
    for line in list.lines().map(str::trim).take_while(|line| *line != "}") {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with("//") {
            // It is for those who read the code.
        } else if let Some((variant, values)) = line.split_once(" = ") {
            let mut strings = values.split('"').skip(1).step_by(2).map(str::to_owned);
            let value = values.rsplit(", ").next().unwrap_or_default();
            let (meaning, advice) = paragraphs(&std::mem::take(&mut comment));
            all.push(Named {
                name: strings.next().unwrap_or_default(),
                variant: variant.to_owned(),
                words: strings.next().unwrap_or_default(),
                value: value.trim_end_matches([',', ';']).to_owned(),
                meaning,
                advice,
            });
        }
    }
    for one in &all {
        ensure!(
            !one.name.is_empty() && !one.meaning.is_empty(),
            "`{}` in `{begin}` needs a name and a comment that says for what it stands",
            one.name
        );
    }
    Ok(all)
}

/// Reads such a list, where each comment has two paragraphs.
pub(super) fn read_advised(code: &str, begin: &str) -> Result<Vec<Named>> {
    let all = read(code, begin)?;
    for one in &all {
        ensure!(
            !one.advice.is_empty(),
            "`{}` in `{begin}` needs a comment of two paragraphs: for what it stands, and what an operator makes of it",
            one.name
        );
    }
    Ok(all)
}

/// Returns the first paragraph of a comment and the second.
fn paragraphs(lines: &[&str]) -> (String, String) {
    let mut paragraphs = lines.split(|line| line.is_empty());
    let mut next = || paragraphs.next().unwrap_or_default().join(" ");
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_their_comments_and_words() {
        let code = "\nreasons! {\n    /// All are\n    /// taken.\n    ///\n    /// Wait.\n    #[default]\n    NoSlot = \"no_slot\", \"it waits\";\n}\nlet a = \"b\";\n";
        let expected = Named {
            name: "no_slot".to_owned(),
            variant: "NoSlot".to_owned(),
            words: "it waits".to_owned(),
            value: "\"it waits\"".to_owned(),
            meaning: "All are taken.".to_owned(),
            advice: "Wait.".to_owned(),
        };
        assert_eq!(read_advised(code, "reasons! {").unwrap(), [expected]);
        let error = read(code, "counters! {").unwrap_err().to_string();
        assert!(error.contains("counters! {"), "{error}");
    }

    #[test]
    fn names_need_as_many_paragraphs_as_their_list_has() {
        let short = "\nfiles! {\n    /// All.\n    // a = b\n    Stats = c\"stats\", 0o444;\n}\n";
        let expected = Named {
            name: "stats".to_owned(),
            variant: "Stats".to_owned(),
            value: "0o444".to_owned(),
            meaning: "All.".to_owned(),
            ..Named::default()
        };
        assert_eq!(read(short, "files! {").unwrap(), [expected]);
        let error = read_advised(short, "files! {").unwrap_err().to_string();
        assert!(error.starts_with("`stats`"), "{error}");
        let none = short.replace("///", "//");
        let error = read(&none, "files! {").unwrap_err().to_string();
        assert!(error.starts_with("`stats`"), "{error}");
    }
}
