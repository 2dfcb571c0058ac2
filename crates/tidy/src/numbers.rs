//! Rules about kinds of numbers: what counts something else has another type, and each conversion one place.

use proc_macro2::{Delimiter, TokenTree};

use crate::tokens::{at_every_depth, inside, is_sign, tokens, without_tests};
use crate::{Complaint, Source};

/// Names of fields and parameters that stand for a number with a type of its own, and the type.
const KINDS: [(&str, &str); 6] = [
    ("bonus_type", "ObjectType"),
    ("checksum", "Checksum"),
    ("checksum_kind", "Checksum"),
    ("compression", "Compression"),
    ("object_set_type", "ObjsetType"),
    ("object_type", "ObjectType"),
];

/// The types that such a name must not have.
const PLAIN: [&str; 5] = ["u8", "u16", "u32", "u64", "usize"];

/// Parts of the names of methods whose argument is a unit.
const ARITHMETIC: [&str; 4] = ["mul", "multiple", "div", "rem"];

/// Sectors become bytes through `platter_ondisk::sector`, and the numbers of the format have their types. Tests may
/// write numbers as they like.
pub fn numbers_have_kinds(source: &Source) -> Vec<Complaint> {
    if source.is_test() || !source.path.starts_with("crates/") {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    at_every_depth(&without_tests(tokens(source)), &mut |tokens| {
        for at in 0..tokens.len() {
            let what = raw_sector(tokens, at).or_else(|| plain_kind(tokens, at));
            let line = tokens[at].span().start().line;
            complaints.extend(what.map(|what| Complaint { file: source.path.clone(), line, what }));
        }
    });
    complaints
}

/// 512 as a factor or divisor, 9 as the distance of a shift.
fn raw_sector(tokens: &[TokenTree], at: usize) -> Option<String> {
    let sign = |index: Option<usize>, signs: &[char]| {
        index.is_some_and(|index| signs.iter().any(|&sign| is_sign(tokens.get(index), sign)))
    };
    let factors = ['*', '/', '%'];
    let is_raw = match &tokens[at] {
        TokenTree::Literal(_) if is_number(&tokens[at], "512") => {
            sign(at.checked_sub(1), &factors) || sign(Some(at + 1), &factors)
        }
        TokenTree::Literal(_) if is_number(&tokens[at], "9") => ['<', '>'].iter().any(|&shift| {
            let two = sign(at.checked_sub(1), &[shift]) && sign(at.checked_sub(2), &[shift]);
            let assigned = sign(at.checked_sub(1), &['=']) && sign(at.checked_sub(2), &[shift]);
            two || assigned && sign(at.checked_sub(3), &[shift])
        }),
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            let named = at.checked_sub(1).and_then(|before| tokens.get(before));
            let arithmetic = matches!(named, Some(TokenTree::Ident(name))
                if name.to_string().split('_').any(|part| ARITHMETIC.contains(&part)));
            arithmetic && matches!(inside(group).as_slice(), [unit] if is_number(unit, "512"))
        }
        _ => false,
    };
    is_raw.then(|| "sectors become bytes in `sector.rs` alone: use `Sectors` or `SECTOR`".into())
}

/// Whether the token is this number, of whatever type.
fn is_number(token: &TokenTree, number: &str) -> bool {
    let TokenTree::Literal(literal) = token else { return false };
    let text = literal.to_string().replace('_', "");
    text.strip_prefix(number).is_some_and(|rest| rest.is_empty() || rest.starts_with(['u', 'i']))
}

/// `checksum: u8`, as a field or parameter.
fn plain_kind(tokens: &[TokenTree], at: usize) -> Option<String> {
    let TokenTree::Ident(name) = &tokens[at] else { return None };
    let (_, kind) = KINDS.iter().find(|(kind, _)| name == kind)?;
    let Some(TokenTree::Ident(plain)) = tokens.get(at + 2).filter(|_| is_sign(tokens.get(at + 1), ':')) else {
        return None;
    };
    PLAIN.iter().any(|known| plain == known).then(|| format!("`{name}` is a `{kind}` and no `{plain}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        numbers_have_kinds(&Source { path: "crates/a/src/a.rs".into(), text: text.into() }).len()
    }

    #[test]
    fn sectors_by_hand_are_found() {
        for raw in ["n * 512", "512u64 * n", "n / 512", "n % 512 > 256", "n << 9", "n >> 9_u32", "n >>= 9"] {
            assert_eq!(found(&format!("fn a() {{ {raw}; }}")), 1, "{raw}");
        }
        for raw in ["n.checked_mul(512)", "n.is_multiple_of(512)", "n.div_ceil(512)", "n.next_multiple_of(512)"] {
            assert_eq!(found(&format!("fn a() {{ {raw}; }}")), 1, "{raw}");
        }
    }

    #[test]
    fn other_numbers_and_names_are_free() {
        for fine in ["n * SECTOR", "512 << 10", "n < 9", "n > 9", "n >> 19", "n * 5120", "n.max(512)", "vec![0; 512]"] {
            assert_eq!(found(&format!("fn a() {{ {fine}; }}")), 0, "{fine}");
        }
        assert_eq!(found("#[cfg(test)] mod tests { fn a() { b * 512 } }\n// n * 512"), 0);
        assert_eq!(numbers_have_kinds(&Source { path: "crates/a/tests/a.rs".into(), text: "n * 512".into() }), []);
    }

    #[test]
    fn a_number_of_the_format_without_its_type_is_found() {
        assert_eq!(found("fn a(checksum: u8, object_type: u64) {}"), 2);
        assert_eq!(found("struct A { pub compression: u8 }"), 1);
        assert_eq!(found("fn a(checksum: Checksum, compression_level: u8) { checksum::f(u8) }"), 0);
        assert_eq!(found("fn a() { A { checksum: x } }"), 0);
    }
}
