//! Which names pools and data sets may have (`module/zcommon/zfs_namecheck.c`).

use crate::error::{Refused, Result};

/// Longest name of a data set in bytes, less the terminating zero (`ZFS_MAX_DATASET_NAME_LEN`).
pub const NAME_MAX: usize = 255;
/// Deepest nesting (`zfs_max_dataset_nesting`).
pub const NESTING_MAX: usize = 50;

/// Whether the data set `name` lies below `above`.
pub fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// As [`is_below`], or is it itself.
pub fn is_at_or_below(name: &str, above: &str) -> bool {
    name == above || is_below(name, above)
}

fn is_valid(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.: ".contains(c)
}

/// Checks a pool's name.
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn check_pool(name: &str) -> Result<()> {
    let refuse = |why: &str| Err(Refused::invalid(why));
    if name.is_empty() {
        return refuse("name is empty");
    }
    // $ORIGIN and its kin must fit behind the pool's name.
    if name.len() > NAME_MAX - 2 - 2 * 7 {
        return refuse("name is too long");
    }
    if let Some(bad) = name.chars().find(|&c| !is_valid(c)) {
        return Err(Refused::invalid(format!("invalid character '{bad}' in pool name")));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return refuse("name must begin with a letter");
    }
    // Of these any beginning is reserved, of "log" the word (`zpool_name_valid` in `lib/libzfs/libzfs_pool.c`).
    let reserved = ["mirror", "raidz", "draid", "spare"];
    let is_disk = name.strip_prefix('c').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if reserved.iter().any(|word| name.starts_with(word)) || name == "log" {
        return Err(Refused::invalid("name is reserved\npool name may have been omitted"));
    }
    if is_disk {
        return refuse("pool name is reserved for a disk name ('c[0-9]…')");
    }
    Ok(())
}

/// Checks a data set's full name.
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn check_dataset(name: &str) -> Result<()> {
    let refuse = |why: &str| Err(Refused::invalid(why));
    if name.len() > NAME_MAX {
        return refuse("name is too long");
    }
    if name.starts_with('/') {
        return refuse("leading slash in name");
    }
    if name.ends_with('/') {
        return refuse("trailing slash in name");
    }
    if name.split('/').count() > NESTING_MAX {
        return refuse("name is too deeply nested");
    }
    for part in name.split('/') {
        if part.is_empty() {
            return refuse("empty component or misplaced '@' or '#' delimiter in name");
        }
        if part == "." || part == ".." {
            return Err(Refused::invalid(format!("self or parent reference, '{part}', is found in name")));
        }
        if let Some(bad) = part.chars().find(|&c| !is_valid(c)) {
            return Err(Refused::invalid(format!("invalid character '{bad}' in name")));
        }
    }
    Ok(())
}

/// The parts of a snapshot's full name: its data set's, and its own. `None` when it is no snapshot's.
pub fn split_snapshot(name: &str) -> Option<(&str, &str)> {
    name.split_once('@')
}

/// Checks a snapshot's full name; the parts of it (`snapshot_namecheck`).
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn check_snapshot(name: &str) -> Result<(&str, &str)> {
    let refuse = |why: &str| Err(Refused::invalid(why));
    if name.len() > NAME_MAX {
        return refuse("name is too long");
    }
    let Some((dataset, own)) = split_snapshot(name) else {
        return refuse("missing '@' delimiter in snapshot name");
    };
    check_dataset(dataset)?;
    if own.is_empty() {
        return refuse("empty component or misplaced '@' or '#' delimiter in name");
    }
    if own.contains(['@', '#']) {
        return refuse("multiple '@' and/or '#' delimiters in name");
    }
    if let Some(bad) = own.chars().find(|&c| !is_valid(c)) {
        return Err(Refused::invalid(format!("invalid character '{bad}' in name")));
    }
    Ok((dataset, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_one_delimiter_and_a_short_name() {
        assert_eq!(check_snapshot("tank/a b@c:d").unwrap(), ("tank/a b", "c:d"));
        let long = format!("tank@{}", "x".repeat(251));
        for name in ["tank", "tank@", "@a", "tank@a@b", "tank@a#b", "tank@a/b", "tank@a%b", "tank//a@b", &long] {
            assert!(check_snapshot(name).is_err(), "{name}");
        }
        check_snapshot(&long[..255]).unwrap();
    }

    #[test]
    fn ordinary_names_pass() {
        for name in ["tank", "a", "pool-1_x.y:z", "Media", "logs", "log-1"] {
            check_pool(name).unwrap();
        }
        check_dataset("tank/a b/c").unwrap();
    }

    #[test]
    fn reserved_and_malformed_names_are_refused() {
        for name in ["", "1tank", "mirror", "mirror-1", "raidz2", "log", "spare", "c0t0d0", "ta/nk", "t@nk", "t%"] {
            assert!(check_pool(name).is_err(), "{name}");
        }
        for name in ["tank//x", "tank/", "/tank", "tank/..", "tank/a@b", "tank/x*"] {
            assert!(check_dataset(name).is_err(), "{name}");
        }
        assert!(check_pool(&"x".repeat(300)).is_err());
    }
}
