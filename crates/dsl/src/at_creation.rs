//! Properties that a file system gets when it is made and keeps for ever.

use std::collections::BTreeMap;

use crate::environment::FilesystemOptions;
use crate::error::{PoolError, Result};
use crate::version::PoolVersion;
use crate::version_limits;
use platter_api::properties::{AT_CREATION, index_value};
use platter_api::property_kind::Kind;

/// What was asked of a file system to be made; the rest it takes from its parent (`zfs_fill_zplprops_impl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtCreation {
    version: u64,
    utf8_only: Option<bool>,
    normalization: Option<u64>,
    case_sensitivity: Option<u64>,
}

impl AtCreation {
    /// With what `parent` has, which is a file system's version, `utf8only`, `normalization` and `casesensitivity`.
    pub fn below(self, parent: Option<[u64; 4]>) -> FilesystemOptions {
        let [_, utf8_only, normalization, case_sensitivity] = parent.unwrap_or_default();
        let normalization = self.normalization.unwrap_or(normalization);
        FilesystemOptions {
            version: self.version,
            // Only UTF-8 has normal forms.
            utf8_only: normalization != 0 || self.utf8_only.unwrap_or(utf8_only != 0),
            normalization,
            case_sensitivity: self.case_sensitivity.unwrap_or(case_sensitivity),
            owner: None,
        }
    }
}

/// Properties that a file system gets when it is made, taken out of `given`.
///
/// # Errors
/// Value out of range, or together with another one.
pub fn take_at_creation(given: &mut BTreeMap<String, String>, pool: PoolVersion) -> Result<AtCreation> {
    let mut asked =
        AtCreation { version: pool.zpl_version_max(), utf8_only: None, normalization: None, case_sensitivity: None };
    for (name, kind) in AT_CREATION {
        let (Some(value), Kind::Index(values)) = (given.remove(*name), kind) else { continue };
        let number = index_value(name, values, &value)?;
        match *name {
            "version" => asked.version = version_limits::zpl_version(pool, number)?,
            "utf8only" => asked.utf8_only = Some(number == 1),
            "normalization" => asked.normalization = Some(number),
            _ => asked.case_sensitivity = Some(number),
        }
    }
    match (asked.normalization, asked.utf8_only) {
        (Some(form), Some(false)) if form != 0 => {
            return Err(PoolError::invalid("'utf8only' must be set 'on' if normalization chosen"));
        }
        (None, Some(false)) => asked.normalization = Some(0),
        _ => {}
    }
    Ok(asked)
}

/// A file system's version, as given to `zfs set`.
///
/// # Errors
/// A version that does not exist or that the pool is too old for.
pub fn parse_version(value: &str, pool: PoolVersion) -> Result<u64> {
    let (name, Kind::Index(values)) = AT_CREATION[0] else { unreachable!("versions have names") };
    version_limits::zpl_version(pool, index_value(name, values, value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::properties::{NFC, NFD, NFKD};

    #[test]
    fn what_cannot_be_changed_later_is_taken_at_creation() {
        let given = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let mut some = given(&[("utf8only", "on"), ("version", "5"), ("atime", "off"), ("normalization", "none")]);
        let asked = take_at_creation(&mut some, PoolVersion::FEATURES).unwrap();
        assert!(asked.below(None).utf8_only);
        assert_eq!(some, given(&[("atime", "off")]));
        for (name, value) in [("utf8only", "maybe"), ("casesensitivity", "both"), ("version", "2")] {
            let text = take_at_creation(&mut given(&[(name, value)]), PoolVersion::FEATURES).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
        let clash = [("normalization", "formD"), ("utf8only", "off")];
        assert!(take_at_creation(&mut given(&clash), PoolVersion::FEATURES).is_err());
    }

    #[test]
    fn what_was_not_asked_for_comes_from_the_parent() {
        let made = |pairs: &[(&str, &str)], parent| {
            let mut given = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let made = take_at_creation(&mut given, PoolVersion::FEATURES).unwrap().below(parent);
            (made.utf8_only, made.normalization, made.case_sensitivity)
        };
        assert_eq!(made(&[], None), (false, 0, 0));
        assert_eq!(made(&[], Some([5, 1, NFC, 1])), (true, NFC, 1));
        assert_eq!(made(&[("normalization", "formD")], None), (true, NFD, 0));
        assert_eq!(made(&[("utf8only", "off")], Some([5, 1, NFC, 2])), (false, 0, 2));
        assert_eq!(made(&[("casesensitivity", "sensitive")], Some([5, 1, NFKD, 1])), (true, NFKD, 0));
    }
}
