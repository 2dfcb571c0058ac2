//! The rule about circles: what uses what within a crate has an order, so that it can be read from the bottom up. It
//! holds between files, and between folders with all that is in them.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{ModulePath, modules};
use crate::uses::{Uses, uses};
use crate::{Complaint, Tree};

/// Modules that use each other cannot be understood, tested or moved one at a time. Tests do not count.
pub fn modules_use_each_other_in_one_direction(tree: &Tree) -> Vec<Complaint> {
    let roots = tree.rust().filter(|source| {
        let root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        root && source.crate_folder().is_some()
    });
    roots.flat_map(|root| circles_under(tree, &root.path)).collect()
}

fn circles_under(tree: &Tree, root: &str) -> Vec<Complaint> {
    let modules = modules(tree, root, false);
    let uses = uses(&modules);
    let between_folders = modules.keys().map(|folder| between(&uses, folder));
    let mut told: BTreeSet<Vec<ModulePath>> = BTreeSet::new();
    let mut complaints = Vec::new();
    for graph in [uses.clone()].into_iter().chain(between_folders) {
        for circle in circles(&graph) {
            if !told.insert(circle.clone()) {
                continue;
            }
            let edges: Vec<String> = circle.iter().map(|path| edges_shown(&graph, path, &circle)).collect();
            let what = format!("modules use each other in a circle: {}", edges.join("; "));
            let file = modules.get(&circle[0]).map_or(root, |module| module.file.as_str()).to_owned();
            complaints.push(Complaint { file, line: 0, what });
        }
    }
    complaints
}

/// What a module uses of a circle, in words.
fn edges_shown(uses: &Uses, path: &ModulePath, circle: &[ModulePath]) -> String {
    let others = uses[path].iter().filter(|other| circle.contains(other)).map(shown);
    format!("{} uses {}", shown(path), others.collect::<Vec<_>>().join(", "))
}

fn shown(path: &ModulePath) -> String {
    if path.is_empty() { "the root".into() } else { format!("`{}`", path.join("::")) }
}

/// The uses between the modules of one folder, each with all that is in it.
fn between(uses: &Uses, folder: &ModulePath) -> Uses {
    let part = |path: &ModulePath| {
        let inside = path.len() > folder.len() && path.starts_with(folder);
        inside.then(|| path[..=folder.len()].to_vec())
    };
    let mut between = Uses::new();
    for (path, used) in uses {
        let Some(from) = part(path) else { continue };
        let others: Vec<ModulePath> = used.iter().filter_map(part).filter(|other| *other != from).collect();
        between.entry(from).or_default().extend(others);
    }
    between
}

/// The sets of modules in which each reaches each other.
fn circles(uses: &Uses) -> Vec<Vec<ModulePath>> {
    let reach: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        uses.keys().map(|path| (path, reached(uses, path))).collect();
    let mut circles: Vec<Vec<ModulePath>> = Vec::new();
    for path in uses.keys().filter(|path| reach[path].contains(path)) {
        if circles.iter().any(|circle| circle.contains(path)) {
            continue;
        }
        let members = reach[path].iter().filter(|other| reach[*other].contains(path));
        circles.push(members.map(|other| (*other).clone()).collect());
    }
    circles
}

/// What can be reached from a module in one step or more.
fn reached<'a>(uses: &'a Uses, from: &ModulePath) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&ModulePath> = uses[from].iter().collect();
    while let Some(path) = waiting.pop() {
        if reached.insert(path) {
            waiting.extend(&uses[path]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(file, text)| (format!("crates/zpl/src/{file}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        modules_use_each_other_in_one_direction(&Tree::of(&files)).into_iter().map(|found| found.what).collect()
    }

    fn circle(a: &str, b: &str) -> bool {
        !found(&[("lib.rs", "mod a; mod b; pub use b::B;"), ("a.rs", a), ("b.rs", b)]).is_empty()
    }

    #[test]
    fn a_circle_is_found_however_its_paths_are_written() {
        let b = "use crate::a::A; pub struct B; pub fn f(_: A) {}";
        let ways = [
            "use crate::b::B;",
            "use crate::{b::{B, f}};",
            "use crate::{b};",
            "use crate::b as c;",
            "use crate::b::*;",
            "use super::b::f;",
            "use super::B;",
            "use crate::B;",
            "fn g() { crate::b::f(A) }",
            "fn g() { vec![super::B] }",
            "mod c { use super::super::B; }",
        ];
        for way in ways {
            assert!(circle(way, b), "{way}");
        }
    }

    #[test]
    fn what_is_no_use_makes_no_circle() {
        let b = "use crate::a::A; pub struct B;";
        let ways = [
            "pub struct A;",
            "// crate::b::B\nconst A: &str = \"crate::b::B\";",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "use other::b::B;",
            "pub(in crate::b) struct C;",
            "pub use crate::b::B;",
            "use self::c::d; mod c { pub use super::d; }",
        ];
        for way in ways {
            assert!(!circle(way, b), "{way}");
        }
    }

    #[test]
    fn a_folder_and_what_is_in_it_are_modules_like_others() {
        let lib = ("lib.rs", "mod a;");
        let b = ("a/b.rs", "use super::A; pub fn f(_: A) {}");
        assert_eq!(found(&[lib, ("a/mod.rs", "mod b; pub struct A;"), b]).len(), 0);
        assert_eq!(found(&[lib, ("a/mod.rs", "mod b; pub use b::f; pub struct A;"), b]).len(), 0);
        assert_eq!(found(&[lib, ("a/mod.rs", "mod b; pub struct A; fn g() { b::f(A) }"), b]).len(), 1);
        assert_eq!(found(&[lib, ("a/mod.rs", "mod b; use b::f; pub struct A;"), b]).len(), 1);
    }

    #[test]
    fn names_are_followed_through_those_who_publish_them() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod c; pub use c::*;"),
            ("a/c.rs", "pub struct C; fn f() { crate::b::g() }"),
            ("b.rs", "use crate::a; pub fn g() { a::C; }"),
        ];
        assert_eq!(found(&files)[0], "modules use each other in a circle: `a::c` uses `b`; `b` uses `a::c`");
    }

    #[test]
    fn folders_that_use_each_other_are_found_though_their_files_do_not() {
        let lib = ("lib.rs", "mod a; mod b;");
        let (a, b) = (("a/mod.rs", "mod c; mod d;"), ("b/mod.rs", "mod e; mod f;"));
        let files = [lib, a, b, ("a/c.rs", "use crate::b::e::E;"), ("a/d.rs", ""), ("b/e.rs", ""), ("b/f.rs", "")];
        assert_eq!(found(&files).len(), 0);
        let back = ("b/f.rs", "use crate::a::d::D;");
        assert_eq!(found(&[lib, a, b, files[3], files[4], files[5], back]).len(), 1);
    }

    #[test]
    fn a_long_circle_is_one_complaint() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
            ("d.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files).len(), 1);
    }
}
