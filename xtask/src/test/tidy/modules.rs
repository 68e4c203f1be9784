// SPDX-License-Identifier: GPL-2.0

//! The modules of Rust code below a folder, and the modules that each names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The names of a path's segments, from the crate's root.
pub(super) type Segments = Vec<String>;

/// The modules of a crate or of a part of it.
#[derive(Default)]
pub(super) struct Modules(BTreeMap<Segments, Module>);

/// A file or an inline module, without the tests in it. Paths are as they are written.
#[derive(Default)]
struct Module {
    /// The names that it imports, and the paths behind them.
    imported: BTreeMap<String, Segments>,
    /// The names of these that it hands on.
    handed_on: BTreeSet<String>,
    /// The modules of which it imports all names.
    globs: BTreeSet<Segments>,
    /// The paths in its code.
    paths: BTreeSet<Segments>,
}

impl Modules {
    /// Reads the files of a crate that are below `folder`; `root` is the crate's folder of sources.
    pub(super) fn read(root: &Path, folder: &Path, files: &[PathBuf]) -> Result<Self> {
        let mut modules = Self::default();
        let mut tests = Vec::new();
        for file in files.iter().filter(|file| file.starts_with(folder)) {
            let path = file.strip_prefix(root).unwrap_or(file);
            let Some(path) = path.to_str().and_then(|path| path.strip_suffix(".rs")) else {
                continue;
            };
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {path}"))?;
            let code = syn::parse_file(&text).with_context(|| format!("cannot parse {path}"))?;
            tests.extend(modules.add(module_of(path), &code));
        }
        let is_test = |module: &Segments| tests.iter().any(|test| module.starts_with(test));
        modules.0.retain(|module, _| !is_test(module));
        Ok(modules)
    }

    /// Adds a module's code; returns the modules in it that are for tests alone.
    fn add(&mut self, module: Segments, code: &syn::File) -> Vec<Segments> {
        let mut reader = Reader {
            modules: self,
            module: module.clone(),
            tests: Vec::new(),
        };
        reader.modules.0.entry(module).or_default();
        reader.visit_file(code);
        reader.tests
    }

    /// Returns the modules, and the paths from the crate's root that each imports or names.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&Segments, BTreeSet<Segments>)> {
        self.0.iter().map(|(module, code)| {
            let written = code.paths.iter().chain(code.imported.values());
            let paths = written.chain(&code.globs);
            (
                module,
                paths.filter_map(|path| relative(module, path)).collect(),
            )
        })
    }

    /// Returns the modules, and those that each names: by an import, or by a path in its code. What a module only hands on is
    /// named by the module that takes it.
    pub(super) fn arrows(&self) -> BTreeMap<&Segments, BTreeSet<&Segments>> {
        let arrows = self.0.iter().map(|(module, code)| {
            let home = |path: Segments| Some(self.home(&path)?.0);
            let globs = code
                .globs
                .iter()
                .filter_map(|path| self.start(module, path));
            let named = code
                .paths
                .iter()
                .filter_map(|path| self.resolve_at_root(module, path));
            let mut others: BTreeSet<_> = globs.chain(named).filter_map(home).collect();
            for (name, path) in &code.imported {
                let is_used = !code.handed_on.contains(name)
                    || code.paths.iter().any(|path| path.first() == Some(name));
                let imported = self.start(module, path);
                // An import of a module is a short name for it, for the paths that begin with this name.
                let home = imported.as_deref().and_then(|path| self.home(path));
                others.extend(home.filter(|home| is_used && home.1).map(|home| home.0));
            }
            others.remove(module);
            (module, others)
        });
        arrows.collect()
    }

    /// Returns the path from the crate's root that a path in a module's code stands for, unless it is in another crate or begins with
    /// a name of the module's own.
    fn resolve_at_root(&self, module: &Segments, path: &[String]) -> Option<Segments> {
        let (first, rest) = path.split_first()?;
        self.start(module, path).or_else(|| {
            let imported = self.0[module].imported.get(first)?;
            let imported = self.start(module, imported)?;
            (!rest.is_empty()).then(|| [&imported, rest].concat())
        })
    }

    /// Returns the path from the crate's root, if a path begins with `crate`, `self`, `super` or a module inside this one.
    fn start(&self, module: &Segments, path: &[String]) -> Option<Segments> {
        relative(module, path).or_else(|| {
            let inside = [module, path].concat();
            let child = inside.get(..=module.len())?;
            (path.len() > 1 && self.0.contains_key(child)).then_some(inside)
        })
    }

    /// Returns the module that has what a path from the crate's root stands for, and whether this is an item of the module; nothing
    /// if it is in another crate.
    fn home(&self, path: &[String]) -> Option<(&Segments, bool)> {
        for end in 0..path.len() {
            if self.0.contains_key(&path[..=end]) {
                continue;
            }
            let (module, code) = self.0.get_key_value(&path[..end])?;
            let (name, rest) = (&path[end], &path[end + 1..]);
            if let Some(imported) = code.imported.get(name) {
                return self.home(&[&self.start(module, imported)?, rest].concat());
            }
            let hands_on = |glob: &Segments| {
                let glob = self.start(module, glob)?;
                let named = [&glob, &path[end..]].concat();
                self.0
                    .get(&glob)?
                    .imported
                    .contains_key(name)
                    .then_some(named)
            };
            let handed_on = code.globs.iter().find_map(hands_on);
            return handed_on.map_or(Some((module, true)), |path| self.home(&path));
        }
        Some((self.0.get_key_value(path)?.0, false))
    }
}

/// Returns the module that is in the file at a path without its ending.
fn module_of(path: &str) -> Segments {
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" => Segments::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    }
}

/// Returns the path from the crate's root, if the path of `module` says where it begins.
fn relative(module: &Segments, path: &[String]) -> Option<Segments> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module.as_slice(), rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            let parent = &module[..module.len().checked_sub(ups)?];
            Some([parent, &path[ups..]].concat())
        }
        _ => None,
    }
}

/// Reads one file's modules.
struct Reader<'a> {
    modules: &'a mut Modules,
    module: Segments,
    tests: Vec<Segments>,
}

impl Reader<'_> {
    fn current(&mut self) -> &mut Module {
        self.modules.0.entry(self.module.clone()).or_default()
    }

    /// Notes what a use tree behind `path` imports.
    fn import(&mut self, mut path: Segments, tree: &syn::UseTree, hands_on: bool) {
        let (last, name) = match tree {
            syn::UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(path, &tree.tree, hands_on);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(path.clone(), tree, hands_on);
                }
                return;
            }
            syn::UseTree::Name(tree) => (tree.ident.to_string(), None),
            syn::UseTree::Rename(tree) => (tree.ident.to_string(), Some(tree.rename.to_string())),
            _ => {
                self.current().globs.insert(path);
                return;
            }
        };
        if last != "self" {
            path.push(last);
        }
        let Some(name) = name.or_else(|| path.last().cloned()) else {
            return;
        };
        let module = self.current();
        if hands_on {
            module.handed_on.insert(name.clone());
        }
        module.imported.insert(name, path);
    }

    /// Notes the paths in the body of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                    self.path(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.path(path);
    }

    fn path(&mut self, path: Segments) {
        if !path.is_empty() {
            self.current().paths.insert(path);
        }
    }
}

/// Returns whether an item is for tests alone.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        if is_test(&item.attrs) {
            self.tests.push(self.module.clone());
        } else if item.content.is_some() {
            self.current();
            visit::visit_item_mod(self, item);
        }
        self.module.pop();
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let hands_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(Segments::new(), &item.tree, hands_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.path(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 4] = [
        (
            "lib",
            "mod a; mod b; pub(crate) use self::b::X as Other; pub(crate) mod inner { pub fn f() {} }",
        ),
        (
            "a/mod",
            "pub mod c; #[cfg(test)] mod tests; pub(crate) use self::c::Y;",
        ),
        (
            "a/c",
            "use std::a::b; use super::super::b; fn f() { b::X::new(); assert!(crate::inner::f()); }
             #[cfg(test)] mod tests { use crate::Other; }",
        ),
        ("b", "use crate::a::{Y, c::{self}}; pub(in crate::a) fn g() {} use super::Other;"),
    ];

    fn modules() -> Modules {
        let mut modules = Modules::default();
        for (file, text) in FILES {
            let code = syn::parse_file(text).expect("Rust");
            modules.add(module_of(file), &code);
        }
        modules
    }

    #[test]
    fn modules_name_those_that_have_what_they_use() {
        let modules = modules();
        let arrows = modules.arrows();
        let named = |module: &str| -> Vec<String> {
            let module: Segments = module.split('/').map(str::to_owned).collect();
            arrows[&module]
                .iter()
                .map(|other| other.join("/"))
                .collect()
        };
        assert_eq!(named("a/c"), ["b", "inner"]);
        // Of what it imports, one is handed on from another file, one is not used, and one is its own.
        assert_eq!(named("b"), ["a/c"]);
        assert!(named("a").is_empty() && arrows[&Segments::new()].is_empty());
        assert!(!arrows
            .keys()
            .any(|module| module.ends_with(&["tests".to_owned()])));
    }

    #[test]
    fn paths_begin_at_the_root() {
        let modules = modules();
        let found = modules
            .paths()
            .find(|(module, _)| module.join("/") == "a/c");
        let paths = found.map(|(_, paths)| paths).expect("there");
        let paths: Vec<String> = paths.iter().map(|path| path.join("/")).collect();
        assert_eq!(paths, ["b", "inner/f"]);
    }
}
