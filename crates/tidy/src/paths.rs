//! Rules about names: those of files, and those of places on somebody's machine.

use crate::{Complaint, Source};

/// File names that say nothing about what is inside: a newcomer finds a thing by its ZFS name.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "misc", "common", "stuff"];

/// A file is named after its idea.
pub fn file_names_say_what_is_inside(source: &Source) -> Vec<Complaint> {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    let what = format!("`{stem}` says nothing about what is inside: name the file after its idea");
    let complaint = Complaint { file: source.path.clone(), line: 0, what };
    if EMPTY_NAMES.contains(&stem) { vec![complaint] } else { Vec::new() }
}

/// What is true on one machine only does not belong into the tree.
pub fn no_machine_paths(source: &Source) -> Vec<Complaint> {
    // Put together here so that this file does not complain about itself.
    let places = [["/work", "/"], ["/root", "/"], ["/tmp/target", "-"], ["/tmp/open", "zfs"], ["/tmp/po", "ols"]];
    let places = places.map(|parts| parts.concat());
    let mut complaints = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for place in &places {
            // Part of a longer path (`.../work/`) is fine: only absolute ones name a machine.
            let absolute = line
                .match_indices(place.as_str())
                .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}$)".contains(c)));
            if absolute {
                let what = format!("`{place}` is a place on one machine: make it relative or an argument");
                complaints.push(Complaint { file: source.path.clone(), line: index + 1, what });
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(file_names_say_what_is_inside(&source("crates/spa/src/utils.rs", "")).len(), 1);
        assert_eq!(file_names_say_what_is_inside(&source("crates/spa/src/metaslab.rs", "")), []);
    }

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        let path = ["/work", "/main"].concat();
        assert_eq!(no_machine_paths(&source("a.md", &format!("x\nsee {path}")))[0].line, 2);
        assert_eq!(no_machine_paths(&source("a.sh", &format!("$HOME{path} {{root}}{path} a{path}"))), []);
    }
}
