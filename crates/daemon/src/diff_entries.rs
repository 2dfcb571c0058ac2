//! Differences between two states of a file system as the API tells them.

use platter_api::snapshots::{Became, DiffEntry};
use platter_zpl::FileKind;
use platter_zpl::diff::{Change, Difference};

/// A file name as `zfs diff` prints it (`stream_bytes`, `lib/libzfs/libzfs_diff.c`): what is no printable character of
/// ASCII as a backslash and four octal digits.
pub fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'!'..=b'~' if byte != b'\\' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:04o}")),
        }
    }
    text
}

/// The letter of a kind (`get_what`).
fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::BlockDevice => 'B',
        FileKind::CharDevice => 'C',
        FileKind::Directory => '/',
        FileKind::Fifo => '|',
        FileKind::Symlink => '@',
        FileKind::Socket => '=',
        FileKind::Regular => 'F',
    }
}

/// A difference as the API tells it.
pub fn diff_entry(found: Difference) -> DiffEntry {
    let became = match found.change {
        Change::Added => Became::Added,
        Change::Removed => Became::Removed,
        Change::Modified => Became::Modified,
        Change::Links(more) => Became::Links(more),
        Change::Renamed { to } => Became::Renamed(printable(&to)),
    };
    let (seconds, nanoseconds) = (found.ctime.seconds, found.ctime.nanoseconds);
    DiffEntry { became, kind: letter(found.kind), seconds, nanoseconds, path: printable(&found.path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printed_as_openzfs_prints_them() {
        assert_eq!(printable("/a b\\ü\n".as_bytes()), "/a\\0040b\\0134\\0303\\0274\\0012");
    }
}
