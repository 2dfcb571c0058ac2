//! The rule about walks: `ARCHITECTURE.md` leads newcomers through the files that a call crosses, and they are there.

use crate::{Complaint, Tree};

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Six walks";
/// The calls that are followed.
const WALKS: [&str; 6] = ["read", "write", "fsync", "create", "import", "scrub"];

/// Each walk is there, and each file that it names.
pub fn walks_lead_through_files_that_exist(tree: &Tree) -> Vec<Complaint> {
    let text = tree.source(PAGE).map_or("", |page| page.text.as_str());
    let complain = |line: usize, what: String| Complaint { file: PAGE.into(), line, what };
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let section: Vec<(usize, &str)> = lines.take_while(|(_, line)| !line.starts_with("## ")).collect();
    let is_there = |walk: &str| section.iter().any(|(_, line)| *line == format!("### `{walk}`"));
    let missing = WALKS.iter().filter(|walk| !is_there(walk));
    let missing = missing.map(|walk| complain(0, format!("say under `{HEADING}` which files `{walk}` crosses")));
    let named = section.iter().flat_map(|(index, line)| {
        let quoted = line.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"));
        quoted.map(move |name| (index + 1, name))
    });
    let gone = named.filter(|(_, name)| tree.source(&format!("crates/{name}")).is_none());
    let gone = gone.map(|(line, name)| complain(line, format!("there is no `{name}`: where does the call go now?")));
    missing.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_that_is_missing_and_a_file_that_is_gone_are_found() {
        let all: String = WALKS.iter().map(|walk| format!("### `{walk}`\n\n1. `a/src/b.rs`: why\n")).collect();
        let found = |page: &str| {
            let files = [(PAGE, page), ("crates/a/src/b.rs", "")];
            walks_lead_through_files_that_exist(&Tree::of(&files)).len()
        };
        assert_eq!(found(&format!("{HEADING}\n{all}\n## Other\n`c/src/d.rs`")), 0);
        assert_eq!(found(&format!("{HEADING}\n{all}2. `c/src/d.rs`: why\n")), 1);
        assert_eq!(found(&format!("{HEADING}\n{}", all.replace("fsync", "sync"))), 1);
        assert_eq!(found(""), WALKS.len());
    }
}
