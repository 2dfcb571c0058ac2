//! Rules about the text of source files: their length, their lines, their opening and what must not be left in them.

use crate::{Complaint, Source};

/// The most lines a source file has, its tests not counted: one idea per file.
const LINES_MAX: usize = 700;
/// The most characters of a line.
const COLUMNS_MAX: usize = 120;

/// A file that is longer holds more than one idea.
pub fn source_files_are_short(source: &Source) -> Vec<Complaint> {
    if source.is_test() {
        return Vec::new();
    }
    let lines = source.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    let what = format!("{lines} lines before its tests, more than {LINES_MAX}: split it by idea");
    complain_if(lines > LINES_MAX, source, 0, what)
}

/// Lines that are longer than a window is wide hide their end.
pub fn lines_are_short(source: &Source) -> Vec<Complaint> {
    let long = source.text.lines().enumerate().filter_map(|(index, line)| {
        let columns = line.chars().count();
        // An address cannot be broken.
        let excused = columns <= COLUMNS_MAX || line.contains("https://");
        let what = format!("{columns} columns, more than {COLUMNS_MAX}");
        (!excused).then(|| Complaint { file: source.path.clone(), line: index + 1, what })
    });
    long.collect()
}

/// What a file holds is said before its first line of code.
pub fn opens_with_its_invariants(source: &Source) -> Vec<Complaint> {
    let first = source.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    let opened = first.is_some_and(|line| line.starts_with("//!"));
    complain_if(!opened, source, 1, "open the file with `//!`: what is true in it at all times".into())
}

/// What is published is finished.
pub fn nothing_is_left_undone(source: &Source) -> Vec<Complaint> {
    // Put together here so that this file does not complain about itself.
    let marks = [["to", "do!("], ["unimple", "mented!("], ["FIX", "ME"], ["TO", "DO"], ["db", "g!("]]
        .map(|parts| parts.concat());
    let mut complaints = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for mark in &marks {
            let what = format!("`{mark}` is left: do it, or open an issue and take the mark away");
            complaints.extend(complain_if(contains_word(line, mark), source, index + 1, what));
        }
    }
    complaints
}

/// Whether `mark` is in `line` and no part of a longer word.
fn contains_word(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + mark.len()..].chars().next();
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !joins(before) && (mark.ends_with('(') || !joins(after))
    })
}

fn complain_if(wrong: bool, source: &Source, line: usize, what: String) -> Vec<Complaint> {
    if wrong { vec![Complaint { file: source.path.clone(), line, what }] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let body = "x\n".repeat(LINES_MAX);
        assert_eq!(source_files_are_short(&source("a.rs", &body)), []);
        assert_eq!(source_files_are_short(&source("a.rs", &format!("{body}#[cfg(test)]\n{body}"))), []);
        assert_eq!(source_files_are_short(&source("a/tests/b.rs", &body.repeat(3))), []);
        assert_eq!(source_files_are_short(&source("a.rs", &format!("{body}x\n"))).len(), 1);
    }

    #[test]
    fn a_long_line_is_found_by_its_characters_not_its_bytes() {
        let fits = "Σ".repeat(COLUMNS_MAX);
        assert_eq!(lines_are_short(&source("a.rs", &fits)), []);
        assert_eq!(lines_are_short(&source("a.rs", &format!("x\n{fits}x")))[0].line, 2);
        assert_eq!(lines_are_short(&source("a.rs", &format!("{fits} https://openzfs.org"))), []);
    }

    #[test]
    fn a_file_without_its_opening_is_found() {
        for fine in ["//! Why.\n", "#![no_main]\n//! Why.\n", "\n//! Why.\n"] {
            assert_eq!(opens_with_its_invariants(&source("a.rs", fine)), [], "{fine:?}");
        }
        for wrong in ["", "use std::fs;\n//! Why.\n", "// Why.\n", "/// Why.\n"] {
            assert_eq!(opens_with_its_invariants(&source("a.rs", wrong)).len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn unfinished_work_is_found_and_similar_words_are_not() {
        for wrong in [["    to", "do!()"], ["// FIX", "ME: later"], ["// TO", "DO later"], ["std::db", "g!(x)"]] {
            assert_eq!(nothing_is_left_undone(&source("a.rs", &wrong.concat())).len(), 1, "{wrong:?}");
        }
        assert_eq!(nothing_is_left_undone(&source("a.rs", "mastodons, PREFIX_MEMBER, redbg!(x)")), []);
    }
}
