// SPDX-License-Identifier: GPL-2.0

//! The declarations in `rust/stock/bindings.rs`, compared with the C headers: a kernel without Rust has no bindgen to make them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use quote::{quote, ToTokens};
use syn::{Expr, ForeignItem, Item, Visibility};

const BINDINGS: &str = "rust/stock/bindings.rs";
const HEADERS: &[&str] = &[
    "c-shims/kernel/include/net/mflow.h",
    "c-shims/kernel/include/net/mflow_module.h",
    "c-shims/stock/mflow_stock.h",
];

/// Names of the kernel's own, which other headers declare.
const OF_THE_KERNEL: &[&str] = &[
    "EINVAL",
    "IFNAMSIZ",
    "fn ktime_get",
    "fn get_random_u64",
    "struct sk_buff",
];

/// Names, and the declaration of each: a function's parameters, a structure's fields, a number.
type Declarations = BTreeMap<String, String>;

/// Fails with each function, constant and structure of the bindings that the headers do not have like this.
pub(super) fn check(project: &Path) -> Result<()> {
    let read = |path: &str| {
        fs::read_to_string(project.join(path)).with_context(|| format!("cannot read {path}"))
    };
    let mut in_c = Declarations::new();
    for header in HEADERS {
        in_c.append(&mut of_c(&read(header)?));
    }
    let in_rust = of_rust(&read(BINDINGS)?).with_context(|| format!("cannot parse {BINDINGS}"))?;
    ensure!(
        in_rust.len() > 50,
        "{BINDINGS} is not what this check can read"
    );
    let bad: Vec<String> = in_rust
        .iter()
        .filter(|(name, declaration)| {
            !OF_THE_KERNEL.contains(&name.as_str()) && in_c.get(*name) != Some(declaration)
        })
        .map(|(name, declaration)| {
            let other = in_c.get(name).map_or("nothing", String::as_str);
            format!("{name}: {declaration}; in C: {other}")
        })
        .collect();
    ensure!(
        bad.is_empty(),
        "{BINDINGS} differs from the headers:\n  {}",
        bad.join("\n  ")
    );
    Ok(())
}

/// Returns the functions, the numbers, and the structures whose fields are known.
fn of_rust(code: &str) -> syn::Result<Declarations> {
    let mut found = Declarations::new();
    let mut add = |name: String, declaration: &dyn ToTokens| {
        let mut text = quote!(#declaration).to_string();
        // A comma behind the last part says nothing.
        for end in [" }", " >", ")"] {
            text = text.replace(&format!(" ,{end}"), end);
        }
        found.insert(name, text);
    };
    for item in syn::parse_file(code)?.items {
        match item {
            Item::Const(item) if matches!(*item.expr, Expr::Lit(_)) => {
                add(item.ident.to_string(), &item.expr)
            }
            Item::Struct(item) => {
                let is_public = |field: &syn::Field| matches!(field.vis, Visibility::Public(_));
                if item.fields.iter().all(is_public) {
                    add(format!("struct {}", item.ident), &item.fields);
                }
            }
            Item::ForeignMod(block) => {
                for item in block.items {
                    if let ForeignItem::Fn(item) = item {
                        add(format!("fn {}", item.sig.ident), &item.sig);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Returns what a header declares, as Rust would; nothing of what Rust cannot read then, such as the code of inline functions.
fn of_c(text: &str) -> Declarations {
    let text = bare(text, "/*", "*/");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let code = lines.collect::<Vec<_>>().join(" ");
    let macros = text.lines().filter_map(c_number);
    let all = macros.chain(c_functions(&code)).chain(c_structures(&code));
    all.filter_map(|item| of_rust(&item).ok())
        .flatten()
        .collect()
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

/// Returns the number that a macro stands for.
fn c_number(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("#define")?.split_whitespace();
    let (name, value) = (words.next()?, words.next()?);
    let number: u32 = value.trim_end_matches('U').parse().ok()?;
    Some(format!("pub const {name}: c_uint = {number};"))
}

/// Returns the prototypes.
fn c_functions(code: &str) -> impl Iterator<Item = String> + '_ {
    code.split(';').filter_map(|statement| {
        let statement = statement.rsplit(['{', '}']).next()?;
        let (head, rest) = statement.split_once('(')?;
        let (params, "") = rest.rsplit_once(')')? else {
            return None;
        };
        let (name, kind) = c_declaration(head);
        let params: Vec<String> = c_params(params)
            .map(|(name, kind)| format!("{name}: {kind}"))
            .collect();
        let signature = format!("{name}({}){}", params.join(", "), returning(&kind));
        Some(format!("extern \"C\" {{ fn {signature}; }}"))
    })
}

/// Returns the structures.
fn c_structures(code: &str) -> impl Iterator<Item = String> + '_ {
    code.match_indices("struct ").filter_map(|(place, _)| {
        let (name, rest) = code[place..].split_once('{')?;
        let (fields, _) = rest.split_once('}')?;
        let fields: Vec<String> = fields
            .split(';')
            .filter(|field| !field.trim().is_empty())
            .map(c_field)
            .collect();
        Some(format!("pub {name} {{ {} }}", fields.join(", ")))
    })
}

/// Returns a structure's field: a function's address, a list, or a plain one.
fn c_field(field: &str) -> String {
    if let Some((head, rest)) = field.split_once("(*") {
        let (name, params) = rest.split_once(")(").unwrap_or_default();
        let (_, kind) = c_declaration(&format!("{head} {name}"));
        let kinds: Vec<String> = c_params(params.trim_end_matches(')'))
            .map(|(_, kind)| kind)
            .collect();
        let kinds = kinds.join(", ");
        let function = format!("unsafe extern \"C\" fn({kinds}){}", returning(&kind));
        return format!("pub {name}: Option<{function}>");
    }
    let (name, kind) = c_declaration(field);
    match name.split_once('[') {
        None => format!("pub {name}: {kind}"),
        Some((name, len)) => format!("pub {name}: [{kind}; {len}"),
    }
}

/// Returns the names and the types of parameters.
fn c_params(params: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let params = params.split(',').filter(|param| param.trim() != "void");
    params.map(c_declaration)
}

/// Returns the end of a signature with this type.
fn returning(kind: &str) -> String {
    match kind {
        "()" => String::new(),
        _ => format!(" -> {kind}"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = "
        pub const MFLOW_A: c_uint = 3;
        extern \"C\" {
            pub fn mflow_f(name: *const c_char, value: *mut *const c_char, n: c_uint) -> c_int;
            pub fn mflow_g() -> bool;
        }
        pub struct mflow_s {
            pub x: *mut u64,
            pub y: [c_int; 6],
            pub f: Option<unsafe extern \"C\" fn(*const c_void) -> *mut sock>,
        }
        pub struct mflow_of_c {
            _private: [u8; 0],
        }";

    #[test]
    fn both_languages_say_the_same() {
        let in_c = of_c(
            "#define MFLOW_A\t3U /* it is; not (that) */\nint\tmflow_f(const char *name, const char **value,\n\t\tunsigned int n);\n\
             bool mflow_g(void);\nstatic inline int mflow_h(void) { return mflow_g(); }\n\
             struct mflow_s {\n\tu64 *x;\n\tint y[6];\n\tstruct sock *(*f)(const void *x);\n};\n",
        );
        let in_rust = of_rust(RUST).expect("Rust");
        assert_eq!(in_c, in_rust);
        assert_eq!(in_c.len(), 4);
        for (here, there) in [
            ("-> bool", "-> u32"),
            ("n: c_uint", "m: c_uint"),
            ("= 3", "= 4"),
            ("*const c_void", "*mut c_void"),
            ("[c_int; 6]", "[c_int; 7]"),
        ] {
            let other = of_rust(&RUST.replace(here, there)).expect("Rust");
            assert_ne!(in_c, other, "{there}");
        }
    }
}
