// SPDX-License-Identifier: GPL-2.0

//! Functions that order memory between CPUs, and the litmus tests that mirror them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use quote::ToTokens as _;
use syn::visit::{self, Visit};

use crate::test::litmus::file::{self, Mirrored};

/// The folders of the module's code.
const RUST: &[&str] = &["rust/algo", "rust/glue"];
const C: &str = "c-shims";
/// Folders of C that is no part of the module: BPF programs, and trials.
const NOT_C: &[&str] = &["c-shims/hike", "c-shims/trial"];

/// The orderings that pair with one on another CPU.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
/// The same of the kernel; `xchg` finds `cmpxchg`, too.
const BARRIERS: &[&str] = &[
    "smp_load_acquire(",
    "smp_mb",
    "smp_rmb(",
    "smp_store_mb(",
    "smp_store_release(",
    "smp_wmb(",
    "xchg(",
];

/// Functions, and whether each orders memory.
type Functions = BTreeMap<Mirrored, bool>;

/// Fails with the functions that order memory and are in no test, and with those that tests name and that are not there.
pub(super) fn check(project: &Path, files: &[PathBuf]) -> Result<()> {
    let mut functions = Functions::new();
    for path in files {
        let file = super::relative(project, path);
        let is_below = |folder: &&&str| Path::new(&file).starts_with(folder);
        if super::has_ending(path, &["rs"]) && RUST.iter().any(|folder| is_below(&folder)) {
            let text = fs::read_to_string(path)?;
            let code = syn::parse_file(&text).with_context(|| format!("cannot parse {file}"))?;
            add_rust(&file, &code, &mut functions);
        }
        let is_c = is_below(&&C) && !NOT_C.iter().any(|folder| is_below(&folder));
        if super::has_ending(path, &["c", "h"]) && is_c {
            add_c(&file, &fs::read_to_string(path)?, &mut functions);
        }
    }
    ensure!(
        functions.values().any(|orders| *orders),
        "no function orders memory: this check no longer understands the code"
    );
    let tests = file::read_all(project)?;
    let mirrored = || tests.iter().flat_map(|test| &test.mirrors);
    let say = |function: &Mirrored| format!("{}: {}", function.file, function.function);
    let lost: Vec<String> = mirrored()
        .filter(|function| !functions.contains_key(function))
        .map(say)
        .collect();
    super::none(&lost, "litmus tests mirror functions that are not there")?;
    let missing: Vec<String> = functions
        .iter()
        .filter(|(function, orders)| **orders && !mirrored().any(|one| one == *function))
        .map(|(function, _)| say(function))
        .collect();
    super::none(
        &missing,
        "these order memory between CPUs, and no litmus test mirrors them (tests/litmus/README.md)",
    )
}

fn add_rust(file: &str, code: &syn::File, functions: &mut Functions) {
    let mut reader = Reader {
        file,
        of: None,
        function: None,
        functions,
    };
    reader.visit_file(code);
}

/// The walk through a file of Rust.
struct Reader<'a> {
    file: &'a str,
    /// The type whose methods are read, and the function.
    of: Option<String>,
    function: Option<Mirrored>,
    functions: &'a mut Functions,
}

impl Reader<'_> {
    fn enter(&mut self, name: &syn::Ident, read: impl FnOnce(&mut Self)) {
        let function = Mirrored {
            file: self.file.to_owned(),
            function: match &self.of {
                Some(of) => format!("{of}::{name}"),
                None => name.to_string(),
            },
        };
        self.functions.entry(function.clone()).or_default();
        let outer = self.function.replace(function);
        read(self);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let syn::Type::Path(path) = &*item.self_ty {
            let last = path.path.segments.last();
            self.of = last.map(|segment| segment.ident.to_string());
        }
        visit::visit_item_impl(self, item);
        self.of = None;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.enter(&item.sig.ident, |reader| visit::visit_item_fn(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let name = &item.sig.ident;
        self.enter(name, |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let text = path.to_token_stream().to_string();
        let ordering = text.strip_prefix("Ordering :: ");
        if ordering.is_some_and(|ordering| ORDERINGS.contains(&ordering)) {
            if let Some(function) = &self.function {
                self.functions.insert(function.clone(), true);
            }
        }
    }
}

/// Adds the functions of a file in the kernel's style: they begin in the first column, and everything in them does not.
fn add_c(file: &str, text: &str, functions: &mut Functions) {
    let mut function = None;
    for line in text.lines() {
        let code = line.trim_start();
        if ["* ", "/*", "#"]
            .iter()
            .any(|begin| code.starts_with(begin))
        {
            continue;
        }
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) && !line.ends_with(';') {
            let name = line.split_once('(').and_then(|(before, _)| {
                let mut words = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                words.next().filter(|word| !word.is_empty())
            });
            function = name.map(|name| Mirrored {
                file: file.to_owned(),
                function: name.to_owned(),
            });
            if let Some(function) = &function {
                functions.entry(function.clone()).or_default();
            }
        }
        if BARRIERS.iter().any(|barrier| code.contains(barrier)) {
            if let Some(function) = &function {
                functions.insert(function.clone(), true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(functions: &Functions) -> Vec<(&str, bool)> {
        functions
            .iter()
            .map(|(function, orders)| (function.function.as_str(), *orders))
            .collect()
    }

    #[test]
    fn methods_are_named_after_their_type() {
        let code = "impl<W: Fn(&A) -> bool> Stop<'_, W> { fn ask(&self) { self.0.load(Ordering::Acquire); } }\n\
                    impl Drop for Guard<'_> { fn drop(&mut self) { self.0.store(1, Ordering::Relaxed); } }\n\
                    fn free() { fence(Ordering::SeqCst); }";
        let mut functions = Functions::new();
        add_rust("a.rs", &syn::parse_file(code).unwrap(), &mut functions);
        let expected = [("Guard::drop", false), ("Stop::ask", true), ("free", true)];
        assert_eq!(named(&functions), expected);
    }

    #[test]
    fn functions_of_c_begin_in_the_first_column() {
        let code = "/* smp_mb() is elsewhere. */\nint declared(void);\nstatic void\tnone(int a,\n\t\tint b)\n{\n\tcall(a);\n}\n\
                    bool *some(void)\n{\n\t/* Pairs with smp_mb(). */\n\tif (xchg(&a, b))\n\t\treturn;\n}\n";
        let mut functions = Functions::new();
        add_c("a.c", code, &mut functions);
        assert_eq!(named(&functions), [("none", false), ("some", true)]);
    }
}
