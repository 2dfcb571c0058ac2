//! Rules about chance: a simulation of the engine has one history for each seed.

use crate::unsafety::code;
use crate::{Complaint, Source};

/// The crates that a simulation runs.
const ENGINE: [&str; 15] = [
    "buffer", "nvlist", "parity", "ondisk", "checksum", "compress", "device", "zio", "vdev", "spa", "dmu", "zil",
    "dsl", "zpl", "sim",
];

/// Which branch of tokio's `select!` is asked first is chance, unless it begins with `biased;`.
pub fn nothing_is_selected_by_chance(source: &Source) -> Vec<Complaint> {
    if source.is_test() || !source.crate_folder().is_some_and(|folder| ENGINE.contains(&folder)) {
        return Vec::new();
    }
    // Put together here so that a crate of the engine could hold this rule.
    let mark = ["sel", "ect!"].concat();
    let mut complaints = Vec::new();
    let mut lines = source.text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let code = code(line);
        let Some(at) = code.find(&mark) else { continue };
        let opened = code[at..].contains("biased;");
        if opened || lines.peek().is_some_and(|(_, next)| next.trim() == "biased;") {
            continue;
        }
        let what = format!("`{mark}` chooses by chance, and no simulation would replay: begin it with `biased;`");
        complaints.push(Complaint { file: source.path.clone(), line: index + 1, what });
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_by_chance_is_found_in_the_engine_alone() {
        let found = |path: &str, text: &str| {
            let text = text.replace("choose!", &["sel", "ect!"].concat());
            nothing_is_selected_by_chance(&Source { path: path.into(), text }).len()
        };
        let (chance, biased) =
            ("x(tokio::choose! {\n    _ = a => {}\n", "tokio::choose! {\n    biased;\n    _ = a => {}\n");
        assert_eq!(found("crates/zio/src/a.rs", chance), 1);
        assert_eq!(found("crates/zio/src/a.rs", &format!("{biased}{chance}{biased}")), 1);
        assert_eq!(found("crates/zio/src/a.rs", biased), 0);
        assert_eq!(found("crates/zio/src/a.rs", "choose! { biased; _ = a => {} }\n// choose! { _ = a => {} }\n"), 0);
        for elsewhere in ["crates/zio/tests/a.rs", "crates/daemon/src/a.rs", "fuzz/a.rs"] {
            assert_eq!(found(elsewhere, chance), 0, "{elsewhere}");
        }
    }
}
