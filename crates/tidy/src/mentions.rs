//! The rule about what lies beside the code: whoever finds a document, a script or a figure can find out what it is
//! for.

use crate::{Complaint, Tree};

/// The folders that are looked at.
const FOLDERS: [&str; 4] = ["docs/", "judges/", "demo/", "bench/"];

/// Each file beside the code is mentioned in another file: by its name, or as all that are in its folder (`tools/*`).
pub fn everything_beside_the_code_is_mentioned(tree: &Tree) -> Vec<Complaint> {
    let beside = tree.files.iter().filter(|path| FOLDERS.iter().any(|folder| path.starts_with(folder)));
    let forgotten = beside.filter(|path| {
        let mut parts = path.rsplit('/');
        let name = parts.next().unwrap_or_default();
        let folder = format!("{}/*", parts.next().unwrap_or_default());
        let mut others = tree.sources.iter().filter(|source| source.path != **path);
        !others.any(|source| is_mentioned(&source.text, name) || is_mentioned(&source.text, &folder))
    });
    forgotten
        .map(|path| {
            let what = "nothing mentions it: say in another file what it is for, or take it away".into();
            Complaint { file: path.clone(), line: 0, what }
        })
        .collect()
}

/// Whether `name` is in `text` and no part of a longer name.
fn is_mentioned(text: &str, name: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let found = text.match_indices(name);
    found
        .into_iter()
        .any(|(at, _)| !joins(text[..at].chars().next_back()) && !joins(text[at + name.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_mentions_is_found() {
        let found = |text: &str| {
            let files = [("Makefile", text), ("demo/demo.sh", "# demo.sh"), ("crates/a/src/lib.rs", "")];
            everything_beside_the_code_is_mentioned(&Tree::of(&files)).len()
        };
        assert_eq!(found("demo:\n\tdemo/demo.sh\n"), 0);
        assert_eq!(found("demo:\n\tdemo/my-demo.sh\n"), 1);
        assert_eq!(found("for program in demo/*; do"), 0);
        assert_eq!(found(""), 1);
    }
}
