//! How a ZAP with normalisation flags compares names (`include/sys/u8_textprep.h`): upper case first, character by
//! character, then one of Unicode's normal forms; bytes that are no UTF-8 stay as they are. Everything by Unicode 5.0,
//! later characters stand for themselves.
//!
//! OpenZFS's normal forms differ from Unicode's for a few sequences that no language writes. Their form, and so the
//! hash, is taken to be unknown: [`normalize`] answers `None`, and the caller compares name by name or refuses. All
//! others were compared with OpenZFS's own function: every single character, and 190 000 random sequences.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, decompose_compatible};

use super::assigned::is_assigned;

/// `U8_TEXTPREP_TOUPPER`: names are compared without regard to case.
pub const TO_UPPER: u64 = 0x2;
/// The bits of `U8_TEXTPREP_NFD`, `NFC`, `NFKD` and `NFKC` (canonical and compatible decomposition, composition).
pub const NORMAL_FORMS: u64 = CANONICAL | COMPATIBLE | COMPOSE;

const CANONICAL: u64 = 0x10;
const COMPATIBLE: u64 = 0x20;
const COMPOSE: u64 = 0x40;

/// The only mark whose upper case is a letter: OpenZFS lets it keep its place among the marks.
const IOTA_BELOW: char = '\u{345}';
/// More marks behind one letter are broken up with U+034F by OpenZFS (`U8_STREAM_SAFE_TEXT_MAX`).
const MARKS_MAX: usize = 29;

/// The form of `name` that is hashed in a ZAP with these normalisation flags; `None` when it is not known.
pub fn normalize(name: &[u8], flags: u64) -> Option<Cow<'_, [u8]>> {
    if flags == 0 {
        return Some(Cow::Borrowed(name));
    }
    if flags & !(TO_UPPER | NORMAL_FORMS) != 0 {
        return None;
    }
    let upper = flags & TO_UPPER != 0;
    if name.is_ascii() {
        return Some(if upper { Cow::Owned(name.to_ascii_uppercase()) } else { Cow::Borrowed(name) });
    }
    let mut form = Vec::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        let text: String = match upper {
            true if chunk.valid().contains(IOTA_BELOW) => return None,
            true => chunk.valid().chars().map(to_upper).collect(),
            false => chunk.valid().to_owned(),
        };
        // Later characters take no part in any normal form.
        for run in text.split_inclusive(|c| !is_assigned(c)) {
            let known = run.trim_end_matches(|c| !is_assigned(c));
            form.extend_from_slice(normal_form(known, flags)?.as_bytes());
            form.extend_from_slice(&run.as_bytes()[known.len()..]);
        }
        form.extend_from_slice(chunk.invalid());
    }
    Some(Cow::Owned(form))
}

/// The simple upper case of a character: one character, by Unicode 5.0.
fn to_upper(c: char) -> char {
    let code = u32::from(c);
    // Greek letters with an iota below: the full upper case has two letters, the simple one has the iota beside.
    let beside = match code {
        0x1f80..=0x1faf if code & 8 == 0 => 8,
        0x1fb3 | 0x1fc3 | 0x1ff3 => 9,
        _ => 0,
    };
    if beside != 0 {
        return char::from_u32(code + beside).unwrap_or(c);
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) if is_assigned(c) && is_assigned(single) => single,
        _ => c,
    }
}

/// One of the four normal forms of characters that Unicode 5.0 knew; `None` where OpenZFS's differs.
fn normal_form(text: &str, flags: u64) -> Option<String> {
    let compatible = flags & COMPATIBLE != 0;
    let mut marks = 0;
    let mut several = false;
    for c in text.chars() {
        if canonical_combining_class(c) == 0 {
            let mut letters = 0;
            if compatible {
                decompose_compatible(c, |part| letters += usize::from(canonical_combining_class(part) == 0));
            }
            (marks, several) = (0, letters > 1);
        } else {
            marks += 1;
            if several || marks > MARKS_MAX {
                return None;
            }
        }
    }
    let form: String = match flags & NORMAL_FORMS {
        0 => return Some(text.to_owned()),
        CANONICAL => text.nfd().collect(),
        COMPATIBLE => text.nfkd().collect(),
        form if form & COMPOSE != 0 && compatible => text.nfkc().collect(),
        form if form & COMPOSE != 0 => text.nfc().collect(),
        _ => return None,
    };
    // A mark that stays blocks the next one of its class from being composed, but not in OpenZFS.
    let mut left = [false; 256];
    for c in form.chars().filter(|_| flags & COMPOSE != 0) {
        match canonical_combining_class(c) {
            0 => left = [false; 256],
            class if left[usize::from(class)] => return None,
            class => left[usize::from(class)] = true,
        }
    }
    Some(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NFD: u64 = CANONICAL;
    const NFC: u64 = CANONICAL | COMPOSE;
    const NFKD: u64 = COMPATIBLE;
    const NFKC: u64 = COMPATIBLE | COMPOSE;

    #[test]
    fn ascii_is_its_own_normal_form() {
        assert_eq!(normalize(b"File", 0).unwrap(), &b"File"[..]);
        assert_eq!(normalize(b"File", NFD).unwrap(), &b"File"[..]);
        assert_eq!(normalize(b"File", TO_UPPER | NFKD).unwrap(), &b"FILE"[..]);
        assert!(normalize(b"File", 0x8).is_none());
    }

    #[test]
    fn forms_are_those_of_openzfs() {
        // What OpenZFS's u8_textprep_str answered.
        let table: [(&str, u64, &str); 14] = [
            ("Straße", TO_UPPER, "STRAßE"),
            ("Straße", 0, "Straße"),
            ("é", NFD, "e\u{301}"),
            ("e\u{301}", NFC, "é"),
            ("é", TO_UPPER | NFC, "É"),
            ("e\u{301}", TO_UPPER | NFD, "E\u{301}"),
            ("ﬁ", NFC, "ﬁ"),
            ("ﬁ", NFKC, "fi"),
            ("가", NFD, "\u{1100}\u{1161}"),
            ("ǆ", TO_UPPER, "Ǆ"),
            ("ᾀ", TO_UPPER, "ᾈ"),
            ("ŉ", TO_UPPER | NFKD, "ʼn"),
            ("\u{250}", TO_UPPER, "\u{250}"),
            ("e\u{302}\u{301}", NFC, "ế"),
        ];
        for (name, flags, form) in table {
            let found = normalize(name.as_bytes(), flags).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), form, "{name} {flags:#x}");
        }
        assert_eq!(normalize(b"a\xff\xc3\xa9", TO_UPPER | NFD).unwrap(), &b"A\xffE\xcc\x81"[..]);
    }

    #[test]
    fn sequences_that_openzfs_forms_otherwise_are_unknown() {
        let many = format!("a{}", "\u{301}".repeat(30));
        let table =
            [("\u{345}", TO_UPPER), ("\u{1c6}\u{30f}", NFKC), ("\u{1f80}\u{30f}\u{301}", NFC), (many.as_str(), NFD)];
        for (name, flags) in table {
            assert!(normalize(name.as_bytes(), flags).is_none(), "{name} {flags:#x}");
        }
    }
}
