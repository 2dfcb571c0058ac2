//! The modules of a crate, as its `mod` lines tell: which file each one is, and which files nobody declares.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenTree};

use crate::tokens::{inside, is_sign, is_word, tokens, without_tests};
use crate::{Complaint, Source, Tree};

/// The names from the crate's root down to a module; the root itself has none.
pub(crate) type ModulePath = Vec<String>;

/// One module that is a file.
pub(crate) struct Module {
    /// The file, from the root of the tree.
    pub file: String,
    /// What is in it.
    pub tokens: Vec<TokenTree>,
}

/// The modules under the root file `root`, those for tests left out where `tests` is false.
pub(crate) fn modules(tree: &Tree, root: &str, tests: bool) -> BTreeMap<ModulePath, Module> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(ModulePath::new(), root.to_owned())];
    while let Some((path, file)) = waiting.pop() {
        let Some(source) = tree.source(&file) else { continue };
        let all = tokens(source);
        let tokens = if tests { all } else { without_tests(all) };
        let mut declared = Vec::new();
        declarations(&tokens, &mut Vec::new(), &mut declared);
        for declaration in declared {
            let inner = path.iter().chain(&declaration.names).cloned().collect();
            waiting.extend(declaration.file(tree, &file, path.is_empty()).map(|file| (inner, file)));
        }
        found.insert(path, Module { file, tokens });
    }
    found
}

/// A line `mod name;`.
struct Declaration {
    /// The name, behind those of the modules with bodies around it.
    names: Vec<String>,
    /// What `#[path = "…"]` says.
    place: Option<String>,
}

impl Declaration {
    /// The file that is meant, if it is there, seen from the file that has the line.
    fn file(&self, tree: &Tree, from: &str, from_root: bool) -> Option<String> {
        let (folder, name) = from.rsplit_once('/')?;
        if let Some(place) = &self.place {
            return Some(normal(&format!("{folder}/{place}")));
        }
        let stem = name.trim_end_matches(".rs");
        let own = if from_root || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
        let below = format!("{own}/{}", self.names.join("/"));
        [format!("{below}.rs"), format!("{below}/mod.rs")].into_iter().find(|file| tree.source(file).is_some())
    }
}

/// A path without `..` in it.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Collects the lines `mod name;`, also those in modules with bodies (whose names are `around`).
fn declarations(tokens: &[TokenTree], around: &mut Vec<String>, found: &mut Vec<Declaration>) {
    let mut place = None;
    for (at, token) in tokens.iter().enumerate() {
        if is_sign(Some(token), '#') {
            place = tokens.get(at + 1).and_then(path_attribute).or(place);
        }
        if is_sign(Some(token), ';')
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
        {
            place = None;
        }
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1).filter(|_| is_word(Some(token), "mod")) else { continue };
        match tokens.get(at + 2) {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                around.push(name.to_string());
                declarations(&inside(body), around, found);
                around.pop();
            }
            sign if is_sign(sign, ';') => {
                let names = around.iter().cloned().chain([name.to_string()]).collect();
                found.push(Declaration { names, place: place.take() });
            }
            _ => {}
        }
    }
}

/// The file that an attribute `[path = "…"]` names.
fn path_attribute(attribute: &TokenTree) -> Option<String> {
    let TokenTree::Group(group) = attribute else { return None };
    match inside(group).as_slice() {
        [name, sign, TokenTree::Literal(place)] if is_word(Some(name), "path") && is_sign(Some(sign), '=') => {
            Some(place.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// The files that cargo builds, by where they lie and by what the manifests say.
fn roots(tree: &Tree) -> Vec<String> {
    let by_place = tree.rust().filter(|source| is_root(&source.path)).map(|source| source.path.clone());
    let by_manifest = tree.sources.iter().filter(|source| source.path.ends_with("/Cargo.toml")).flat_map(named_roots);
    by_place.chain(by_manifest).collect()
}

/// Whether cargo builds a file at this place unasked.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let ["crates", _, inside @ ..] = parts.as_slice() else { return false };
    match inside {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", rest @ ..] | ["tests" | "examples" | "benches", rest @ ..] => {
            matches!(rest, [_] | [_, "main.rs"])
        }
        _ => false,
    }
}

/// The files that a manifest names as what is to be built: lines `path = "….rs"`.
fn named_roots(manifest: &Source) -> Vec<String> {
    let folder = manifest.path.trim_end_matches("Cargo.toml");
    let named = manifest.text.lines().filter_map(|line| line.trim().strip_prefix("path = \"")?.strip_suffix("\""));
    named.filter(|file| file.ends_with(".rs")).map(|file| format!("{folder}{file}")).collect()
}

/// A source file that no `mod` reaches is not compiled, and nobody notices what becomes of it.
pub fn no_source_is_dead(tree: &Tree) -> Vec<Complaint> {
    let mut reached = BTreeSet::new();
    for root in roots(tree) {
        reached.extend(modules(tree, &root, true).into_values().map(|module| module.file));
    }
    let dead = tree.rust().filter(|source| !reached.contains(&source.path));
    dead.map(|source| {
        let what = "no `mod` line reaches it: it is never compiled".into();
        Complaint { file: source.path.clone(), line: 0, what }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        no_source_is_dead(&Tree::of(files)).into_iter().map(|complaint| complaint.file).collect()
    }

    #[test]
    fn a_file_that_nothing_declares_is_found() {
        let lib = ("crates/a/src/lib.rs", "mod b; mod c; #[cfg(test)] mod d;");
        let files = [
            lib,
            ("crates/a/src/b.rs", "mod e;"),
            ("crates/a/src/b/e.rs", ""),
            ("crates/a/src/c/mod.rs", "mod f { mod g; }"),
            ("crates/a/src/c/f/g.rs", ""),
            ("crates/a/src/d.rs", ""),
        ];
        assert!(dead(&files).is_empty(), "{:?}", dead(&files));
        assert_eq!(dead(&[lib, ("crates/a/src/e.rs", "// mod e;")]), ["crates/a/src/e.rs"]);
        assert_eq!(dead(&[("crates/a/src/lib.rs", "/* mod b; */ \"mod b;\""), ("crates/a/src/b.rs", "")]).len(), 1);
    }

    #[test]
    fn tests_examples_and_what_manifests_name_are_roots() {
        let files = [
            ("crates/a/tests/b.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/tests/c/main.rs", "#[path = \"../shared/d.rs\"] mod d;"),
            ("crates/a/tests/shared/d.rs", ""),
            ("crates/a/examples/e.rs", ""),
            ("fuzz/Cargo.toml", "[[bin]]\npath = \"targets/f.rs\"\n"),
            ("fuzz/targets/f.rs", ""),
        ];
        assert!(dead(&files).is_empty(), "{:?}", dead(&files));
        assert_eq!(dead(&[("crates/a/tests/c/d.rs", ""), ("fuzz/targets/f.rs", "")]).len(), 2);
    }

    #[test]
    fn modules_for_tests_can_be_left_out() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "mod b; #[cfg(test)] mod c;"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/c.rs", ""),
        ]);
        assert_eq!(modules(&tree, "crates/a/src/lib.rs", true).len(), 3);
        let without: Vec<ModulePath> = modules(&tree, "crates/a/src/lib.rs", false).into_keys().collect();
        assert_eq!(without, [vec![], vec!["b".to_owned()]]);
    }
}
