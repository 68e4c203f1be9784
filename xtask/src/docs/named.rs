// SPDX-License-Identifier: GPL-2.0

//! Names that operators meet, as macros in the module's code list them: a comment and a line `Variant = "name", values;`.

use anyhow::{ensure, Context as _, Result};
use syn::parse::ParseStream;
use syn::{Attribute, Expr, ExprLit, Ident, Item, Lit, Meta, Token};

/// A name and all that its place in the code says of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    /// The words that files print beside the name.
    pub(super) words: String,
    /// The number behind the name, as the code has it.
    pub(super) number: String,
    /// The first paragraph of the comment: for what it stands.
    pub(super) meaning: String,
    /// The second, where the list has it: what an operator makes of it.
    pub(super) advice: String,
}

/// Reads the list in the call of this macro, such as `knobs`.
pub(super) fn read(code: &str, list: &str) -> Result<Vec<Named>> {
    let mut items = syn::parse_file(code)?.items.into_iter();
    let body = items.find_map(|item| match item {
        Item::Macro(item) if item.mac.path.is_ident(list) => Some(item.mac),
        _ => None,
    });
    let body = body.with_context(|| format!("there is no `{list}!` any more"))?;
    let all = body.parse_body_with(entries)?;
    for one in &all {
        ensure!(
            !one.name.is_empty() && !one.meaning.is_empty(),
            "`{}` in `{list}!` needs a name and a comment that says for what it stands",
            one.name
        );
    }
    Ok(all)
}

/// Reads the entries of a list: the comment, the name in code, and values up to a semicolon or the next comment.
fn entries(input: ParseStream<'_>) -> syn::Result<Vec<Named>> {
    let mut all = Vec::new();
    while !input.is_empty() {
        let lines = comment(&input.call(Attribute::parse_outer)?);
        let mut paragraphs = lines.split(String::is_empty);
        let mut next = || paragraphs.next().unwrap_or_default().join(" ");
        let mut one = Named {
            meaning: next(),
            advice: next(),
            ..Named::default()
        };
        input.parse::<Ident>()?;
        input.parse::<Token![=]>()?;
        let mut texts = Vec::new();
        loop {
            match literal(&input.parse()?) {
                Some(Lit::Str(text)) => texts.push(text.value()),
                Some(Lit::CStr(text)) => texts.push(text.value().to_string_lossy().into_owned()),
                Some(Lit::Int(number)) => one.number = number.to_string(),
                _ => {}
            }
            let is_last = input.parse::<Option<Token![,]>>()?.is_none();
            if is_last || input.is_empty() || input.peek(Token![#]) {
                break;
            }
        }
        input.parse::<Option<Token![;]>>()?;
        let mut texts = texts.into_iter();
        one.name = texts.next().unwrap_or_default();
        one.words = texts.next().unwrap_or_default();
        all.push(one);
    }
    Ok(all)
}

/// Returns the lines of a comment.
pub(super) fn comment(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|one| match &one.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => literal(&meta.value),
        _ => None,
    });
    let lines = lines.filter_map(|line| match line {
        Lit::Str(text) => Some(text.value().trim().to_owned()),
        _ => None,
    });
    lines.collect()
}

fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

/// Reads such a list, where each comment has two paragraphs.
pub(super) fn read_advised(code: &str, list: &str) -> Result<Vec<Named>> {
    let all = read(code, list)?;
    for one in &all {
        ensure!(
            !one.advice.is_empty(),
            "`{}` in `{list}!` needs a comment of two paragraphs: for what it stands, and what an operator makes of it",
            one.name
        );
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_their_comments_and_words() {
        let code = "\nreasons! {\n    /// All are\n    /// taken.\n    ///\n    /// Wait.\n    #[default]\n    NoSlot = \"no_slot\", \"it waits\";\n}\nconst A: &str = \"b\";\n";
        let expected = Named {
            name: "no_slot".to_owned(),
            words: "it waits".to_owned(),
            meaning: "All are taken.".to_owned(),
            advice: "Wait.".to_owned(),
            ..Named::default()
        };
        assert_eq!(read_advised(code, "reasons").unwrap(), [expected]);
        let error = read(code, "counters").unwrap_err().to_string();
        assert!(error.contains("`counters!`"), "{error}");
    }

    #[test]
    fn names_need_as_many_paragraphs_as_their_list_has() {
        let short = "\nfiles! {\n    /// All.\n    // a = b\n    Stats = c\"stats\", 0o444;\n}\n";
        let expected = Named {
            name: "stats".to_owned(),
            number: "0o444".to_owned(),
            meaning: "All.".to_owned(),
            ..Named::default()
        };
        assert_eq!(read(short, "files").unwrap(), [expected]);
        let error = read_advised(short, "files").unwrap_err().to_string();
        assert!(error.starts_with("`stats`"), "{error}");
        let none = short.replace("///", "//");
        let error = read(&none, "files").unwrap_err().to_string();
        assert!(error.starts_with("`stats`"), "{error}");
    }
}
