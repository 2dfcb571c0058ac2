//! The files behind the `compatibility` property: which features a pool may have (`zpool_load_compat` in
//! `lib/libzfs/libzfs_pool.c`, `man/man7/zpool-features.7`).

use std::collections::BTreeSet;
use std::path::Path;

use platter_api::messages::PoolView;
use platter_api::report::PropertyValue;

use crate::props::pool::FEATURES;
use crate::session::{Failure, refused};

/// Where the files are: the machine's own first, then those that come with OpenZFS. A bad word in one of the former is
/// an error, in the latter a warning.
const FOLDERS: [(&str, bool); 2] = [("/etc/zfs/compatibility.d", true), ("/usr/share/zfs/compatibility.d", false)];

/// Larger files are not read (`ZPOOL_COMPAT_MAXSIZE`).
const SIZE_MAX: u64 = 16 << 10;

/// The features that a value of the property allows; `None` for all.
///
/// # Errors
/// The file that cannot be used, with its reason.
pub fn load(value: &str) -> Result<Option<BTreeSet<String>>, Failure> {
    load_from(value, &FOLDERS)
}

/// What `zpool set` has to say before it changes a pool that has the features `enabled` and the property `current`: a
/// feature must be one that the files allow, and files that allow less than there is are worth a warning
/// (`set_pool_callback` in `cmd/zpool/zpool_main.c`).
///
/// # Errors
/// Why nothing is changed.
pub fn check_setting(pool: &PoolView, property: &str, value: &str) -> Result<(), Failure> {
    let name = &pool.report.name;
    let text = |property: &str| match &pool.properties.get(property)?.value {
        PropertyValue::Text(text) => Some(text.as_str()),
        PropertyValue::Number(_) => None,
    };
    if property == "compatibility" {
        let Some(allowed) = load(value)? else { return Ok(()) };
        let is_enabled = |feature: &str| {
            text(&format!("feature@{feature}")).is_some_and(|state| matches!(state, "enabled" | "active"))
        };
        if FEATURES.iter().any(|feature| is_enabled(feature) && !allowed.contains(*feature)) {
            eprintln!(
                "Warning: one or more features already enabled on pool '{name}'\nare not present in this \
                 compatibility set."
            );
        }
    }
    let feature = property.strip_prefix("feature@").filter(|feature| value == "enabled" && FEATURES.contains(feature));
    let Some(feature) = feature else { return Ok(()) };
    let cannot = format!("Error: cannot enable feature '{feature}' on pool '{name}'");
    match load(text("compatibility").unwrap_or("off")) {
        Ok(Some(allowed)) if !allowed.contains(feature) => Err(refused(format!(
            "{cannot}\nas it is not specified in this pool's current compatibility set.\nConsider setting \
             'compatibility' to a less restrictive set, or to 'off'."
        ))),
        Ok(_) => Ok(()),
        Err(_) => Err(refused(format!("{cannot}\nbecause the pool's 'compatibility' property cannot be parsed."))),
    }
}

fn load_from(value: &str, folders: &[(&str, bool)]) -> Result<Option<BTreeSet<String>>, Failure> {
    match value {
        "" | "off" => return Ok(None),
        "legacy" => return Ok(Some(BTreeSet::new())),
        _ => {}
    }
    let mut allowed: Option<BTreeSet<String>> = None;
    for name in value.split(',').filter(|name| !name.is_empty()) {
        let features = read(name, folders)?;
        allowed = Some(match allowed {
            None => features,
            Some(before) => before.intersection(&features).cloned().collect(),
        });
    }
    match allowed {
        Some(allowed) => Ok(Some(allowed)),
        None => Err(refused("Error: no valid compatibility files specified")),
    }
}

fn read(name: &str, folders: &[(&str, bool)]) -> Result<BTreeSet<String>, Failure> {
    let bad = |reason: &str| {
        let places: Vec<&str> = folders.iter().map(|(folder, _)| *folder).collect();
        refused(format!(
            "Error: could not read/parse feature file(s): {name}: {reason}\nfiles are looked for in {}",
            places.join(" and ")
        ))
    };
    let found = folders.iter().map(|(folder, strict)| (Path::new(folder).join(name), *strict));
    let Some((path, strict)) = found.into_iter().find(|(path, _)| path.is_file()) else {
        return Err(bad("there is no such file"));
    };
    if path.metadata().map_or(0, |metadata| metadata.len()) > SIZE_MAX {
        return Err(bad("it is too long"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| bad(&error.to_string()))?;
    if !text.ends_with('\n') {
        return Err(bad("it does not end with a newline"));
    }
    let mut features = BTreeSet::new();
    for line in text.lines() {
        let words = line.split('#').next().unwrap_or("").split([',', ' ', '\t']);
        for word in words.filter(|word| !word.is_empty()) {
            if FEATURES.contains(&word) {
                features.insert(word.to_owned());
            } else if strict {
                return Err(refused(format!(
                    "Error: invalid feature name(s) in local compatibility files: {}",
                    word.escape_default()
                )));
            } else {
                eprintln!(
                    "Warning: unrecognized feature name(s) in distribution compatibility files: {}",
                    word.escape_default()
                );
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_features_and_several_files_allow_what_all_of_them_name() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [(dir.path().to_str().unwrap(), true)];
        let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        file("a", "# comment\nlz4_compress, hole_birth\tlarge_blocks # more\n");
        file("b", "lz4_compress\nasync_destroy\n");
        file("open-end", "lz4_compress");
        file("strange", "no_such_feature\n");
        let names =
            |value: &str| load_from(value, &folders).map(|set| set.map(|set| set.into_iter().collect::<Vec<_>>()));
        assert_eq!(names("a").unwrap().unwrap(), ["hole_birth", "large_blocks", "lz4_compress"]);
        assert_eq!(names("a,b").unwrap().unwrap(), ["lz4_compress"]);
        assert_eq!(names("off").unwrap(), None);
        assert_eq!(names("legacy").unwrap().unwrap(), Vec::<String>::new());
        for bad in ["missing", "open-end", "strange", "a,missing", ","] {
            assert!(names(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_word_in_a_distributed_file_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "lz4_compress newer_than_us\n").unwrap();
        let found = load_from("x", &[("/nonexistent", true), (dir.path().to_str().unwrap(), false)]).unwrap().unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["lz4_compress"]);
    }
}
