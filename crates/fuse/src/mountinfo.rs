//! What is mounted where, from `/proc/self/mountinfo` (proc(5)).

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The mount's number, while it lasts.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// Which folder of its file system is mounted.
    pub root: PathBuf,
    /// The group of mounts that tell each other what is mounted on them, if it is in one.
    pub peers: Option<u64>,
    /// The group that tells it so without being told.
    pub master: Option<u64>,
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
        self.kind.strip_prefix("fuse.") == Some(crate::options::SUBTYPE)
    }
}

/// All mounts of this process, oldest first.
pub fn all() -> Vec<MountInfo> {
    of("self")
}

/// All mounts that a process can reach, oldest first; none when it is gone or may not be looked at.
pub(crate) fn of(process: &str) -> Vec<MountInfo> {
    let table = std::fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
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

pub(crate) fn parse(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|&byte| byte == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let path = |field: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(unescape(field)));
    let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let (root, mountpoint) = (path(fields.next()?), path(fields.next()?));
    let (mut peers, mut master) = (None, None);
    // Optional fields end with a dash.
    loop {
        let field = fields.next()?;
        if field == b"-" {
            break;
        }
        if let Some(group) = field.strip_prefix(b"shared:") {
            peers = number(group);
        } else if let Some(group) = field.strip_prefix(b"master:") {
            master = number(group);
        }
    }
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let (kind, source) = (text(fields.next()?), text(fields.next()?));
    Some(MountInfo { id, parent, root, peers, master, device, mountpoint, kind, source })
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
            id: 36,
            parent: 35,
            root: PathBuf::from("/"),
            peers: Some(1),
            master: Some(2),
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
