// SPDX-License-Identifier: GPL-2.0

//! The declarations in `rust/stock/bindings.rs`, compared with the C headers: a kernel without Rust has no bindgen to make them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};

const BINDINGS: &str = "rust/stock/bindings.rs";
const HEADERS: &[&str] = &[
    "c-shims/kernel/include/net/mflow.h",
    "c-shims/kernel/include/net/mflow_module.h",
    "c-shims/stock/mflow_stock.h",
];

/// Names of the kernel's own, which other headers declare.
const OF_THE_KERNEL: &[&str] = &["ktime_get", "get_random_u64"];

/// Names, and what each stands for: a function's types, a structure's fields, a number.
type Facts = BTreeMap<String, String>;

/// Fails with each function, constant and structure of the bindings that the headers do not have like this.
pub(super) fn check(project: &Path) -> Result<()> {
    let read = |path: &str| {
        fs::read_to_string(project.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let mut in_c = Facts::new();
    for header in HEADERS {
        in_c.append(&mut c_facts(&read(header)?));
    }
    let in_rust = rust_facts(&read(BINDINGS)?);
    ensure!(
        in_rust.len() > 50,
        "{BINDINGS} is not what this check can read"
    );
    let bad: Vec<String> = in_rust
        .iter()
        .filter(|(name, fact)| {
            !OF_THE_KERNEL.contains(&name.as_str()) && in_c.get(*name) != Some(fact)
        })
        .map(|(name, fact)| {
            let other = in_c.get(name).map_or("nothing", String::as_str);
            format!("{name}: {fact}; in C: {other}")
        })
        .collect();
    ensure!(
        bad.is_empty(),
        "{BINDINGS} differs from the headers:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

/// Returns the text without comments, as one line.
fn bare(text: &str, open: &str, close: &str) -> String {
    let mut parts = text.split(open);
    let mut bare = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        bare.push_str(part.split_once(close).map_or("", |(_, rest)| rest));
        bare.push('\n');
    }
    bare
}

/// Returns the prototypes, numbers of macros and structures of plain fields in a header.
fn c_facts(text: &str) -> Facts {
    let text = bare(text, "/*", "*/");
    let mut facts = Facts::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some("#define"), Some(name), Some(value)) =
            (words.next(), words.next(), words.next())
        {
            let number = value.trim_end_matches('U');
            if number.parse::<u32>().is_ok() {
                facts.insert(name.to_owned(), number.to_owned());
            }
        }
    }
    let code: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let code = code.join(" ");
    for statement in code.split(';') {
        let statement = statement.rsplit(['{', '}']).next().unwrap_or_default();
        let Some((head, rest)) = statement.split_once('(') else {
            continue;
        };
        let Some((params, "")) = rest.rsplit_once(')') else {
            continue;
        };
        if params.contains('(') {
            continue;
        }
        let (name, returns) = c_declaration(head);
        let params: Vec<String> = params
            .split(',')
            .filter(|param| param.trim() != "void")
            .map(|param| c_declaration(param).1)
            .collect();
        facts.insert(name, format!("({}) -> {returns}", params.join(", ")));
    }
    for (place, word) in code.match_indices("struct ") {
        let Some((name, rest)) = code[place + word.len()..].split_once('{') else {
            continue;
        };
        let fields = rest.split('}').next().unwrap_or_default();
        let name = name.trim();
        if name.contains(|c: char| !c.is_alphanumeric() && c != '_') || fields.contains('(') {
            continue;
        }
        let fields: Vec<String> = fields
            .split(';')
            .filter(|field| !field.trim().is_empty())
            .map(|field| {
                let (name, kind) = c_declaration(field);
                match name.split_once('[') {
                    None => format!("{name}: {kind}"),
                    Some((name, len)) => {
                        format!("{name}: [{kind}; {}]", len.trim_end_matches(']'))
                    }
                }
            })
            .collect();
        facts.insert(name.to_owned(), fields.join(", "));
    }
    facts
}

/// Returns the name and the type, as Rust writes it, of what C declares.
fn c_declaration(text: &str) -> (String, String) {
    let text = text.replace('*', " * ");
    let mut words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !matches!(*word, "struct" | "__noreturn" | "extern"))
        .collect();
    let name = words.pop().unwrap_or_default().to_owned();
    let is_const = words.first() == Some(&"const");
    let stars = words.iter().filter(|word| **word == "*").count();
    words.retain(|word| !matches!(*word, "*" | "const"));
    let base = match words.join(" ").as_str() {
        "void" if stars == 0 => "()",
        "void" => "c_void",
        "char" => "c_char",
        "int" => "c_int",
        "unsigned int" => "c_uint",
        "size_t" => "usize",
        "ssize_t" => "isize",
        "umode_t" | "__be16" => "u16",
        other => return (name, pointer(other, stars, is_const)),
    }
    .to_owned();
    (name, pointer(&base, stars, is_const))
}

fn pointer(base: &str, stars: usize, is_const: bool) -> String {
    let inner = if is_const { "*const " } else { "*mut " };
    match stars {
        0 => base.to_owned(),
        _ => format!("{}{inner}{base}", "*mut ".repeat(stars - 1)),
    }
}

/// Returns the functions, numbers and structures of the bindings.
fn rust_facts(text: &str) -> Facts {
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join(" ");
    let mut facts = Facts::new();
    for part in code.split("pub fn ").skip(1) {
        let declaration = part.split(';').next().unwrap_or_default();
        let Some((name, rest)) = declaration.split_once('(') else {
            continue;
        };
        let (params, returns) = rest.rsplit_once(')').unwrap_or((rest, ""));
        let returns = match returns.trim().trim_start_matches("-> ") {
            "" | "!" => "()",
            other => other,
        };
        let params: Vec<&str> = params
            .split(',')
            .filter_map(|param| Some(param.split_once(':')?.1.trim()))
            .collect();
        facts.insert(
            name.to_owned(),
            format!("({}) -> {returns}", params.join(", ")),
        );
    }
    for part in code.split("pub const MFLOW_").skip(1) {
        let declaration = part.split(';').next().unwrap_or_default();
        if let Some((name, number)) = declaration.split_once(": c_uint = ") {
            if number.parse::<u32>().is_ok() {
                facts.insert(format!("MFLOW_{name}"), number.to_owned());
            }
        }
    }
    for part in code.split("pub struct mflow_").skip(1) {
        let Some((name, rest)) = part.split_once('{') else {
            continue;
        };
        let fields = rest.split('}').next().unwrap_or_default();
        if fields.contains("_private") || fields.contains("Option<") {
            continue;
        }
        let fields: Vec<&str> = fields
            .split("pub ")
            .map(|field| field.trim().trim_end_matches(','))
            .filter(|field| !field.is_empty())
            .collect();
        facts.insert(format!("mflow_{}", name.trim()), fields.join(", "));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_say_the_same() {
        let in_c = c_facts(
            "#define MFLOW_A\t3U /* it is; not (that) */\nint\tmflow_f(const char *name, const char **value,\n\t\tunsigned int n);\n\
             bool mflow_g(void);\nstruct mflow_s {\n\tu64 *x;\n\tint y[6];\n};\n",
        );
        let in_rust = rust_facts(
            "pub const MFLOW_A: c_uint = 3;\npub fn mflow_f(name: *const c_char, value: *mut *const c_char, n: c_uint) -> c_int;\n\
             pub fn mflow_g() -> bool;\npub struct mflow_s {\n    pub x: *mut u64,\n    pub y: [c_int; 6],\n}\n",
        );
        assert_eq!(in_c, in_rust);
        assert_eq!(in_c.len(), 4);
        let other = rust_facts("pub fn mflow_g() -> u32;");
        assert_ne!(in_c["mflow_g"], other["mflow_g"]);
    }
}
