//! rsync as the judge of two trees.

use std::path::Path;

use crate::Lab;

/// Asserts that rsync, which compares contents, hard links, ACLs and extended attributes too, would change nothing in
/// `copy` to make it like `source`. Only the two folders themselves may differ: they were made before what is in them.
#[track_caller]
pub fn assert_no_difference(lab: &Lab, source: &Path, copy: &Path) {
    let (from, to) = (format!("{}/", source.display()), format!("{}/", copy.display()));
    let run = lab.run("rsync", ["-aHAXn", "--checksum", "--delete", "--itemize-changes", &from, &to]).ok();
    let different: Vec<&str> = run.stdout.lines().filter(|line| !line.ends_with(" ./")).take(20).collect();
    assert!(different.is_empty(), "rsync --checksum finds differences: {different:?}");
}
