//! What is mounted where, from `/proc/self/mountinfo` (proc(5)).

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Device number, `major:minor`.
    pub device: String,
    /// Mount point.
    pub mountpoint: PathBuf,
    /// File system type, as `fuse.zfs`.
    pub kind: String,
    /// Source, as `tank/media`.
    pub source: String,
}

impl MountInfo {
    /// Whether a program like this one serves it.
    pub fn is_ours(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(crate::mount::SUBTYPE)
    }
}

/// All mounts of this process, oldest first.
pub fn all() -> Vec<MountInfo> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// The device numbers of all mounts that a program like this one serves, here; `None` when the system does not tell.
pub fn present() -> Option<std::collections::BTreeSet<String>> {
    let all = all();
    (!all.is_empty()).then(|| all.into_iter().filter(MountInfo::is_ours).map(|found| found.device).collect())
}

/// The topmost mount at `mountpoint`. Does not touch the file system mounted there.
pub fn find(mountpoint: &Path) -> Option<MountInfo> {
    all().into_iter().rev().find(|found| found.mountpoint == mountpoint)
}

fn parse(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let mountpoint = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.nth(1)?)));
    // Optional fields end with a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    Some(MountInfo { device, mountpoint, kind, source })
}

/// Undoes `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_and_optional_fields_is_understood() {
        let line = br"36 35 0:42 / /mnt/my\040files rw,noatime shared:1 master:2 - fuse.zfs tank/media rw,user_id=0";
        let expected = MountInfo {
            device: "0:42".into(),
            mountpoint: PathBuf::from("/mnt/my files"),
            kind: "fuse.zfs".into(),
            source: "tank/media".into(),
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"36 35"), None);
        assert_eq!(parse(b""), None);
        assert!(find(Path::new("/proc")).is_some());
    }
}
