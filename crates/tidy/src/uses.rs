//! Which modules of a crate use which.
//!
//! A use is a path in code that ends in another file's module, through however many names it was published under.
//! `pub use` by itself is a signpost and no use.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenTree};

use crate::modules::{Module, ModulePath};
use crate::tokens::{inside, is_path_sign, is_sign, is_word};

/// For each module the others that it uses.
pub(crate) type Uses = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// The uses between these modules.
pub(crate) fn uses(modules: &BTreeMap<ModulePath, Module>) -> Uses {
    Names::of(modules).uses()
}

/// A path as it stands in code: the module it starts from, and the names that follow.
struct CodePath {
    from: ModulePath,
    names: Vec<String>,
}

/// A path that `use` brings in.
struct Import {
    path: CodePath,
    /// The name it has here; none for `*`.
    name: Option<String>,
    /// Whether it is published to others, beyond those who may look in here anyway.
    published: bool,
}

/// What the names in each module mean.
struct Names<'a> {
    modules: &'a BTreeMap<ModulePath, Module>,
    imports: BTreeMap<&'a ModulePath, Vec<Import>>,
    items: BTreeMap<&'a ModulePath, BTreeSet<String>>,
}

impl<'a> Names<'a> {
    fn of(modules: &'a BTreeMap<ModulePath, Module>) -> Self {
        let mut names = Self { modules, imports: BTreeMap::new(), items: BTreeMap::new() };
        for (path, module) in modules {
            let mut imports = Vec::new();
            let mut reader = Reader { modules, path, imported: &BTreeSet::new(), depth: 0 };
            reader.read(&module.tokens, &mut |found| {
                if let Found::Import(import) = found {
                    imports.push(import);
                }
            });
            names.imports.insert(path, imports);
            names.items.insert(path, items(&module.tokens));
        }
        names
    }

    /// The modules that each module uses.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (path, module) in self.modules {
            let mut used = BTreeSet::new();
            let imported = self.imports[path].iter().filter_map(|import| import.name.clone()).collect();
            let mut reader = Reader { modules: self.modules, path, imported: &imported, depth: 0 };
            reader.read(&module.tokens, &mut |found| match found {
                Found::Import(import) if import.published => {}
                Found::Import(Import { path, .. }) | Found::Path(path) => {
                    used.extend(self.resolve(&path, &mut Vec::new()).map(|(module, _)| module));
                }
            });
            used.remove(path);
            uses.insert(path.clone(), used);
        }
        uses
    }

    /// The module in which a path ends, and whether it is that module that is meant rather than something in it; none
    /// for what is not of this crate.
    fn resolve(&self, path: &CodePath, tried: &mut Vec<(ModulePath, String)>) -> Option<(ModulePath, bool)> {
        let mut at = path.from.clone();
        for name in &path.names {
            let child: ModulePath = at.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            if self.items[&at].contains(name) || tried.contains(&(at.clone(), name.clone())) {
                return Some((at, false));
            }
            tried.push((at.clone(), name.clone()));
            let imports = &self.imports[&at];
            if let Some(import) = imports.iter().find(|import| import.name.as_ref() == Some(name)) {
                match self.resolve(&import.path, tried)? {
                    (module, true) => at = module,
                    other => return Some(other),
                }
                continue;
            }
            let mut found = None;
            for import in imports.iter().filter(|import| import.name.is_none()) {
                let Some((module, _)) = self.resolve(&import.path, tried) else { continue };
                let path = CodePath { from: module, names: vec![name.clone()] };
                if self.has(&path.from, name) {
                    found = self.resolve(&path, tried);
                    break;
                }
            }
            match found {
                Some((module, true)) => at = module,
                Some(other) => return Some(other),
                None => return Some((at, false)),
            }
        }
        Some((at, true))
    }

    /// Whether a module has something of this name, be it by publishing it.
    fn has(&self, module: &ModulePath, name: &String) -> bool {
        let child: ModulePath = module.iter().chain([name]).cloned().collect();
        self.modules.contains_key(&child)
            || self.items[module].contains(name)
            || self.imports[module].iter().any(|import| import.name.as_ref() == Some(name))
    }
}

/// What a reader finds.
enum Found {
    Import(Import),
    Path(CodePath),
}

/// Goes through the code of one module.
struct Reader<'a> {
    modules: &'a BTreeMap<ModulePath, Module>,
    /// The module.
    path: &'a ModulePath,
    /// The names that it has from `use`.
    imported: &'a BTreeSet<String>,
    /// How many modules with bodies are around, which count as part of the file.
    depth: usize,
}

impl Reader<'_> {
    fn read(&mut self, tokens: &[TokenTree], found: &mut impl FnMut(Found)) {
        let mut at = 0;
        let mut published = false;
        while let Some(token) = tokens.get(at) {
            match token {
                token if is_word(Some(token), "use") => {
                    at = self.import(tokens, at + 1, published, found);
                    published = false;
                }
                token if is_word(Some(token), "pub") => {
                    published = true;
                    at += if tokens.get(at + 1).is_some_and(is_limit) { 2 } else { 1 };
                }
                TokenTree::Group(group) => {
                    let module = at >= 2 && is_word(tokens.get(at - 2), "mod");
                    self.depth += usize::from(module);
                    self.read(&inside(group), found);
                    self.depth -= usize::from(module);
                    published = false;
                    at += 1;
                }
                _ => {
                    published = false;
                    at = self.path(tokens, at, found);
                }
            }
        }
    }

    /// Reads what may be a path at `at`, and says where to go on.
    fn path(&self, tokens: &[TokenTree], at: usize, found: &mut impl FnMut(Found)) -> usize {
        let inner = at >= 2 && is_path_sign(tokens, at - 2);
        let Some((from, mut next)) = self.start(tokens, at).filter(|_| !inner) else { return at + 1 };
        let mut names = Vec::new();
        while let Some(TokenTree::Ident(name)) = tokens.get(next) {
            names.push(name.to_string());
            next += 1;
            if !is_path_sign(tokens, next) {
                break;
            }
            next += 2;
        }
        if !names.is_empty() {
            found(Found::Path(CodePath { from, names }));
        }
        next.max(at + 1)
    }

    /// The module from which a path at `at` starts, and where the names after it begin; none where no path into this
    /// crate starts.
    fn start(&self, tokens: &[TokenTree], at: usize) -> Option<(ModulePath, usize)> {
        let TokenTree::Ident(first) = tokens.get(at)? else { return None };
        if !is_path_sign(tokens, at + 1) {
            return None;
        }
        match first.to_string().as_str() {
            "crate" => Some((ModulePath::new(), at + 3)),
            "self" => Some((self.path.clone(), at + 3)),
            "super" => {
                let (mut up, mut next) = (1, at + 3);
                while is_word(tokens.get(next), "super") && is_path_sign(tokens, next + 1) {
                    (up, next) = (up + 1, next + 3);
                }
                let up = usize::saturating_sub(up, self.depth);
                Some((self.path[..self.path.len().checked_sub(up)?].to_vec(), next))
            }
            name => {
                let child: ModulePath = self.path.iter().map(String::as_str).chain([name]).map(String::from).collect();
                let known = self.modules.contains_key(&child) || self.imported.contains(name);
                known.then(|| (self.path.clone(), at))
            }
        }
    }

    /// Reads the tree of a `use` that begins at `at`, and says where to go on.
    fn import(&self, tokens: &[TokenTree], at: usize, published: bool, found: &mut impl FnMut(Found)) -> usize {
        let end = tokens[at..].iter().position(|token| is_sign(Some(token), ';')).map_or(tokens.len(), |end| at + end);
        if let Some((from, next)) = self.start(tokens, at) {
            let mut leaf = |names: &[String], name: Option<String>| {
                let path = CodePath { from: from.clone(), names: names.to_vec() };
                found(Found::Import(Import { path, name, published }));
            };
            branches(&tokens[next..end], &mut Vec::new(), &mut leaf);
        }
        end + 1
    }
}

/// Calls `leaf` for each path in a tree of imports, with the name that it has from then on.
fn branches(tokens: &[TokenTree], before: &mut Vec<String>, leaf: &mut impl FnMut(&[String], Option<String>)) {
    for branch in tokens.split(|token| is_sign(Some(token), ',')) {
        let length = before.len();
        for (at, token) in branch.iter().enumerate() {
            match token {
                TokenTree::Group(group) => branches(&inside(group), before, leaf),
                sign if is_sign(Some(sign), '*') => leaf(before, None),
                TokenTree::Ident(word) if word == "as" => {
                    let name = branch.get(at + 1).map(ToString::to_string);
                    leaf(before, name);
                    break;
                }
                TokenTree::Ident(word) => {
                    if word != "self" {
                        before.push(word.to_string());
                    }
                    if at + 1 == branch.len() {
                        leaf(before, before.last().cloned());
                    }
                }
                _ => {}
            }
        }
        before.truncate(length);
    }
}

/// The names of what a file defines at its top.
fn items(tokens: &[TokenTree]) -> BTreeSet<String> {
    const KINDS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];
    let pairs = tokens.windows(2).filter(|pair| KINDS.iter().any(|kind| is_word(pair.first(), kind)));
    pairs.filter_map(|pair| if let TokenTree::Ident(name) = &pair[1] { Some(name.to_string()) } else { None }).collect()
}

/// Whether the token can be what follows `pub` in parentheses.
fn is_limit(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}
