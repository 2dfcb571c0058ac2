//! The rule about invariants: where a file says what is true in it at all times, something there would notice if it
//! were not.

use proc_macro2::{Delimiter, TokenTree};

use crate::tokens::{at_every_depth, is_sign, is_word, tokens, without_tests};
use crate::{Complaint, Source};

/// Macros that notice.
const MACROS: [&str; 6] = ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// A file whose opening has invariants asserts something outside of its tests: with an assertion, at compile time or
/// when it runs, or with a call of a function `assert_…` or `check_…`. One that has no function has nothing to assert
/// with: what it says of a crate is asserted in the files that it lists.
pub fn invariants_are_asserted(source: &Source) -> Vec<Complaint> {
    let mut opening = source.text.lines().take_while(|line| line.starts_with("//!") || line.trim().is_empty());
    if source.is_test() || !opening.any(|line| line.contains("Invariant")) {
        return Vec::new();
    }
    let (mut asserted, mut has_code) = (false, false);
    at_every_depth(&without_tests(tokens(source)), &mut |tokens| {
        has_code |= tokens.iter().any(|token| is_word(Some(token), "fn"));
        asserted |= (0..tokens.len()).any(|at| asserts(tokens, at));
    });
    let what = "it has invariants, and nothing would notice if they did not hold: assert one of them".into();
    if asserted || !has_code { Vec::new() } else { vec![Complaint { file: source.path.clone(), line: 1, what }] }
}

/// Whether an assertion begins at `at`.
fn asserts(tokens: &[TokenTree], at: usize) -> bool {
    let TokenTree::Ident(name) = &tokens[at] else { return false };
    let name = name.to_string();
    let is_definition = at > 0 && is_word(tokens.get(at - 1), "fn");
    match tokens.get(at + 1) {
        sign if is_sign(sign, '!') => MACROS.contains(&name.as_str()),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            !is_definition && (name.starts_with("assert_") || name.starts_with("check_"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        invariants_are_asserted(&Source { path: "crates/zpl/src/a.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn invariants_without_an_assertion_are_found() {
        for nothing in [
            "fn a() {}",
            "fn check_all() {}",
            "fn a() {} // assert!(true)",
            "fn a() {} #[cfg(test)] mod tests { fn a() { assert!(b) } }",
        ] {
            assert_eq!(found(&format!("//! Why.\n//!\n//! Invariants: all.\n{nothing}")), 1, "{nothing}");
        }
        assert_eq!(found("//! Why.\nfn a() {}"), 0);
        assert_eq!(found("//! Invariants: all.\nmod b;\npub use b::B;\n#[cfg(test)] mod tests { fn c() {} }"), 0);
        assert_eq!(found("//! Why.\n\nuse a;\n/// Invariants: of another thing.\nfn a() {}"), 0);
    }

    #[test]
    fn every_kind_of_assertion_counts() {
        let ways = [
            "fn a() { assert!(b); }",
            "fn a() { debug_assert_eq!(b, c); }",
            "const _: () = assert!(A == B);",
            "const { assert!(L == 4) }",
            "fn a(&self) { self.check_shapes(b); }",
            "fn a() { assert_ordered(b); }",
        ];
        for way in ways {
            assert_eq!(found(&format!("//! Invariant: all.\n{way}")), 0, "{way}");
        }
    }
}
