//! Rust source as a tree of tokens: braces in strings, comments and macros cannot be mistaken for others, and a rule
//! sees what stands in macros' arguments too.

use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::Source;

/// The tokens of a file. Panics where the text is no Rust: the compiler has refused it already.
pub(crate) fn tokens(source: &Source) -> Vec<TokenTree> {
    let stream = TokenStream::from_str(&source.text);
    stream.unwrap_or_else(|error| panic!("{}: {error}", source.path)).into_iter().collect()
}

/// The tokens inside a group.
pub(crate) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// Whether the token is this word.
pub(crate) fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

/// Whether the token is this sign.
pub(crate) fn is_sign(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Whether the tokens from `at` on begin with `::`.
pub(crate) fn is_path_sign(tokens: &[TokenTree], at: usize) -> bool {
    is_sign(tokens.get(at), ':') && is_sign(tokens.get(at + 1), ':')
}

/// Whether an attribute, in its brackets, says that what follows is for tests alone.
fn is_for_tests(attribute: &TokenTree) -> bool {
    let TokenTree::Group(group) = attribute else { return false };
    let tokens = inside(group);
    let [TokenTree::Ident(name), TokenTree::Group(condition)] = tokens.as_slice() else { return false };
    name == "cfg" && inside(condition).len() == 1 && is_word(inside(condition).first(), "test")
}

/// The tokens that remain when everything under `#[cfg(test)]` is taken out, at any depth.
pub(crate) fn without_tests(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if is_sign(Some(&token), '#') && rest.peek().is_some_and(is_for_tests) {
            // The item ends with its body, or else with a semicolon.
            let ends = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                other => is_sign(Some(other), ';'),
            };
            rest.by_ref().find(ends);
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => {
                let stream = without_tests(inside(&group)).into_iter().collect();
                let mut shorter = Group::new(group.delimiter(), stream);
                shorter.set_span(group.span());
                TokenTree::Group(shorter)
            }
            other => other,
        });
    }
    kept
}

/// Calls `look` with these tokens and with those of every group among them.
pub(crate) fn at_every_depth(tokens: &[TokenTree], look: &mut impl FnMut(&[TokenTree])) {
    look(tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            at_every_depth(&inside(group), look);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let source = Source { path: "a.rs".into(), text: text.into() };
        let mut words = Vec::new();
        at_every_depth(&without_tests(tokens(&source)), &mut |tokens| {
            words.extend(tokens.iter().filter_map(|token| match token {
                TokenTree::Ident(ident) => Some(ident.to_string()),
                _ => None,
            }));
        });
        words
    }

    #[test]
    fn strings_and_comments_hold_no_words() {
        assert_eq!(words("fn a() { \"b } {\"; r#\"c\"#; '{'; /* d { */ // e {\n f!(g) }"), ["fn", "a", "f", "g"]);
    }

    #[test]
    fn what_is_for_tests_is_left_out_at_any_depth() {
        assert_eq!(words("#[cfg(test)] mod tests { a } b"), ["b"]);
        assert_eq!(words("#[cfg(test)] #[allow(x)] use a::{b, c}; d"), ["d"]);
        assert_eq!(words("c { #[cfg(test)] fn a(b: C) -> D { e } f }"), ["c", "f"]);
        assert_eq!(words("#[cfg(test)] mod tests; b"), ["b"]);
        assert!(words("#[cfg(not(test))] a").contains(&"a".to_owned()));
    }
}
