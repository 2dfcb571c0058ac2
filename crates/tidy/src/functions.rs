//! The rule about functions: what one does is seen at a glance.

use proc_macro2::{Delimiter, TokenTree};

use crate::tokens::{at_every_depth, is_sign, is_word, tokens};
use crate::{Complaint, Source};

/// The most lines of a function, from its `fn` to its closing brace: what a window shows.
const LINES_MAX: usize = 70;

/// A function that is longer does more than one thing. Tests count, and so does what stands in a macro's arguments.
pub fn functions_are_short(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    at_every_depth(&tokens(source), &mut |tokens| {
        for at in 0..tokens.len() {
            let Some((name, first, last)) = function(tokens, at) else { continue };
            let lines = last + 1 - first;
            if lines > LINES_MAX {
                let what = format!("`{name}` has {lines} lines, more than {LINES_MAX}: give its steps names");
                complaints.push(Complaint { file: source.path.clone(), line: first, what });
            }
        }
    });
    complaints.sort_by_key(|complaint| complaint.line);
    complaints
}

/// The function that begins at `at`, if one with a body does: its name, its first line and its last.
fn function(tokens: &[TokenTree], at: usize) -> Option<(String, usize, usize)> {
    if !is_word(tokens.get(at), "fn") {
        return None;
    }
    // The type of a pointer to a function has no name.
    let TokenTree::Ident(name) = tokens.get(at + 1)? else { return None };
    for token in &tokens[at + 2..] {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let (first, last) = (tokens[at].span().start().line, group.span_close().end().line);
                return Some((name.to_string(), first, last));
            }
            token if is_sign(Some(token), ';') => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn found(text: &str) -> Vec<usize> {
        let source = Source { path: "crates/zpl/src/a.rs".into(), text: text.into() };
        functions_are_short(&source).into_iter().map(|complaint| complaint.line).collect()
    }

    fn lines(count: usize) -> String {
        "    a();\n".repeat(count)
    }

    #[test]
    fn a_long_function_is_found_wherever_it_stands() {
        assert_eq!(found(&format!("fn a() {{\n{}}}\n", lines(LINES_MAX - 2))), NONE);
        let long = format!("fn a() {{\n{}}}\n", lines(LINES_MAX - 1));
        assert_eq!(found(&format!("\n{long}")), [2]);
        for around in ["impl A", "trait A", "mod a", "#[cfg(test)]\nmod tests", "proptest!", "fn b()"] {
            let text = format!("{around} {{ {long} }}");
            assert!(!found(&text).is_empty(), "{around}");
        }
    }

    #[test]
    fn braces_in_strings_comments_and_macros_are_no_ends() {
        let tricks = "    \"}\"; '}'; r#\"}\"#; /* } */ format!(\"{{{x}\"); // }\n";
        let text = format!("fn a() {{\n{tricks}{}}}\n", lines(LINES_MAX - 2));
        assert_eq!(found(&text), [1]);
    }

    #[test]
    fn what_has_no_body_is_no_function() {
        let pointer = format!("type A = fn(u8) -> u8;\nstruct B {{\n{}}}\n", "    b: fn(u8),\n".repeat(LINES_MAX));
        assert_eq!(found(&pointer), NONE);
        assert_eq!(found(&format!("trait A {{\n    fn a();\n{}}}\n", "    fn b() {}\n".repeat(LINES_MAX))), NONE);
    }
}
