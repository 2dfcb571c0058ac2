//! Rules about `unsafe`: where it may be, and that each use says why it is sound.

use crate::{Complaint, Source};

/// The crates that may contain `unsafe`: devices, the vector kernels and the FUSE transport.
pub const UNSAFE_CRATES: [&str; 4] = ["device", "checksum", "parity", "transport"];

/// How many lines above the code its reason may start.
const REASON_ABOVE: usize = 8;

/// The code of a line without its comment and without what stands in quotes, roughly.
pub(crate) fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect()
}

/// Whether the line's code opens something unsafe, rather than naming the lint or a function type.
fn opens_unsafe(line: &str) -> bool {
    let code = code(line);
    ["unsafe {", "unsafe fn ", "unsafe impl", "unsafe extern", "unsafe trait"].iter().any(|open| code.contains(open))
}

/// Every `unsafe` says why it is sound, and stands in a crate that may have it.
pub fn unsafe_is_explained(source: &Source) -> Vec<Complaint> {
    let allowed = source.crate_folder().is_some_and(|folder| UNSAFE_CRATES.contains(&folder));
    let lines: Vec<&str> = source.text.lines().collect();
    let mut complaints = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| opens_unsafe(line)) {
        let above = &lines[index.saturating_sub(REASON_ABOVE)..=index];
        let explained = above.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
        let what = match (allowed, explained) {
            (true, true) => continue,
            (false, _) => format!("`{}` in a crate that has no business with it", line.trim()),
            (true, false) => format!("`{}` without a `// SAFETY:` comment above it", line.trim()),
        };
        complaints.push(Complaint { file: source.path.clone(), line: index + 1, what });
    }
    complaints
}

/// The roots of all other crates promise the compiler that there is none; those with some deny it outside their
/// kernels.
pub fn crate_forbids_unsafe(source: &Source) -> Vec<Complaint> {
    let Some(folder) = source.crate_folder() else { return Vec::new() };
    let root = ["lib.rs", "main.rs"].iter().any(|name| source.path == format!("crates/{folder}/src/{name}"));
    if !root || UNSAFE_CRATES.contains(&folder) || source.text.contains("#![forbid(unsafe_code)]") {
        return Vec::new();
    }
    let what = "add `#![forbid(unsafe_code)]` to the root of the crate".into();
    vec![Complaint { file: source.path.clone(), line: 1, what }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn an_unexplained_or_misplaced_block_is_found() {
        let open = ["let x = un", "safe { f() };"].concat();
        let explained = format!("// SAFETY: f needs nothing.\n{open}");
        assert_eq!(unsafe_is_explained(&source("crates/device/src/a.rs", &explained)), []);
        assert_eq!(unsafe_is_explained(&source("crates/device/src/a.rs", &open)).len(), 1);
        assert_eq!(unsafe_is_explained(&source("crates/spa/src/a.rs", &explained)).len(), 1);
        let far = format!("// SAFETY: f needs nothing.\n{}{open}", "\n".repeat(REASON_ABOVE));
        assert_eq!(unsafe_is_explained(&source("crates/device/src/a.rs", &far)).len(), 1);
    }

    #[test]
    fn words_in_comments_and_strings_are_no_code() {
        let text = ["// un", "safe { } is rare\nlet s = \"un", "safe { }\";\n#![forbid(unsafe_code)]"].concat();
        assert_eq!(unsafe_is_explained(&source("crates/spa/src/a.rs", &text)), []);
    }

    #[test]
    fn a_root_without_its_promise_is_found() {
        assert_eq!(crate_forbids_unsafe(&source("crates/spa/src/lib.rs", "//! x")).len(), 1);
        assert_eq!(crate_forbids_unsafe(&source("crates/spa/src/lib.rs", "#![forbid(unsafe_code)]")), []);
        assert_eq!(crate_forbids_unsafe(&source("crates/spa/src/read.rs", "//! x")), []);
        assert_eq!(crate_forbids_unsafe(&source("crates/parity/src/lib.rs", "//! x")), []);
    }
}
