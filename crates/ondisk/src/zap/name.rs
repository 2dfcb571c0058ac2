//! How a ZAP with normalisation flags compares names (`include/sys/u8_textprep.h`).
//!
//! Only what needs no Unicode tables is here: an ASCII name is its own normal form in all four forms, and its upper
//! case is ASCII too. For other names the normal form, and so the hash, is unknown: [`normalize`] answers `None`, and
//! the caller compares name by name or refuses.

use std::borrow::Cow;

/// `U8_TEXTPREP_TOUPPER`: names are compared without regard to case.
pub const TO_UPPER: u64 = 0x2;
/// The bits of `U8_TEXTPREP_NFD`, `NFC`, `NFKD` and `NFKC` (canonical and compatible decomposition, composition).
pub const NORMAL_FORMS: u64 = 0x10 | 0x20 | 0x40;

/// The form of `name` that is hashed in a ZAP with these normalisation flags; `None` when it needs Unicode tables.
pub fn normalize(name: &[u8], flags: u64) -> Option<Cow<'_, [u8]>> {
    if flags == 0 {
        Some(Cow::Borrowed(name))
    } else if !name.is_ascii() || flags & !(TO_UPPER | NORMAL_FORMS) != 0 {
        None
    } else if flags & TO_UPPER != 0 {
        Some(Cow::Owned(name.to_ascii_uppercase()))
    } else {
        Some(Cow::Borrowed(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_is_its_own_normal_form() {
        assert_eq!(normalize(b"File", 0).unwrap(), &b"File"[..]);
        assert_eq!(normalize(b"File", 0x10).unwrap(), &b"File"[..]);
        assert_eq!(normalize(b"File", TO_UPPER | 0x20).unwrap(), &b"FILE"[..]);
        assert_eq!(normalize("Straße".as_bytes(), 0x10), None);
        assert!(normalize("Straße".as_bytes(), 0).is_some());
    }
}
