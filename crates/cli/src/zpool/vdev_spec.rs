//! The vdev words of `zpool create` (OpenZFS: `cmd/zpool/zpool_vdev.c`): groups, device names, and the checks that
//! need no label: are there enough devices, are they of one size and kind, do the groups protect equally.
//!
//! Nothing here writes or opens a device for writing. Whether a device is in use is for the engine to find out.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use platter_api::request::VdevRequest;

use crate::session::{Failure, refused};

/// Sizes may differ by this much (`ZPOOL_FUZZ`): 16 MiB.
const FUZZ_BYTES: u64 = 16 << 20;

/// Most devices in a raidz group (`VDEV_RAIDZ_MAXCHILDREN`).
const RAIDZ_DEVICES_MAX: usize = 255;

/// A device as far as it can be judged from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Absolute path.
    pub path: PathBuf,
    /// Disk or partition, or else a regular file.
    pub is_disk: bool,
    /// Size in bytes; 0 when unknown.
    pub size: u64,
}

/// What a word means before its devices are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Mirror,
    Raidz(u8),
    /// No group: what follows are separate intent log devices, and mirrors of them.
    Log,
    Spare,
    Cache,
}

fn group(word: &str) -> Option<Result<Group, Failure>> {
    let refuse = || Some(Err(refused(format!("invalid vdev specification: '{word}' vdevs are not supported yet"))));
    match word {
        "mirror" => Some(Ok(Group::Mirror)),
        "raidz" | "raidz1" => Some(Ok(Group::Raidz(1))),
        "raidz2" => Some(Ok(Group::Raidz(2))),
        "raidz3" => Some(Ok(Group::Raidz(3))),
        "spare" => Some(Ok(Group::Spare)),
        "log" => Some(Ok(Group::Log)),
        "cache" => Some(Ok(Group::Cache)),
        "special" | "dedup" => refuse(),
        _ if word == "draid"
            || word
                .strip_prefix("draid")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == ':')) =>
        {
            refuse()
        }
        _ => None,
    }
}

/// A top-level vdev with its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Top {
    group: Option<Group>,
    devices: Vec<Device>,
    is_log: bool,
}

impl Top {
    /// Whether these devices are no part of the tree of vdevs.
    fn is_beside(&self) -> bool {
        matches!(self.group, Some(Group::Spare | Group::Cache))
    }
}

/// Parses the words and checks them.
///
/// # Errors
/// What is wrong, with the way out.
pub fn parse(words: &[String], force: bool) -> Result<Vec<VdevRequest>, Failure> {
    parse_with(words, force, &look_up)
}

fn parse_with(
    words: &[String],
    force: bool,
    look_up: &dyn Fn(&str) -> Result<Device, Failure>,
) -> Result<Vec<VdevRequest>, Failure> {
    let mut tops: Vec<Top> = Vec::new();
    let (mut is_log, mut names_logs) = (false, false);
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let Some(group_of_word) = group(word) else {
            tops.push(Top { group: None, devices: vec![look_up(word)?], is_log });
            continue;
        };
        let kind = group_of_word?;
        match kind {
            Group::Log if names_logs => {
                return Err(refused("invalid vdev specification: 'log' can be specified only once"));
            }
            Group::Log => {
                (is_log, names_logs) = (true, true);
                continue;
            }
            Group::Spare | Group::Cache => is_log = false,
            Group::Raidz(_) if is_log => {
                return Err(refused("invalid vdev specification: unsupported 'log' device: raidz"));
            }
            Group::Mirror | Group::Raidz(_) => {}
        }
        let count = rest.iter().position(|word| group(word).is_some()).unwrap_or(rest.len());
        let (names, after) = rest.split_at(count);
        rest = after;
        let is_once = matches!(kind, Group::Spare | Group::Cache);
        if is_once && tops.iter().any(|top| top.group == Some(kind)) {
            return Err(refused(format!("invalid vdev specification: '{word}' can be specified only once")));
        }
        let devices = names.iter().map(|name| look_up(name)).collect::<Result<Vec<_>, _>>()?;
        check_width(word, kind, devices.len())?;
        tops.push(Top { group: Some(kind), devices, is_log });
    }
    if tops.is_empty() {
        return Err(refused("invalid vdev specification: at least one toplevel vdev must be specified"));
    }
    if names_logs && !tops.iter().any(|top| top.is_log) {
        return Err(refused("invalid vdev specification: log requires at least 1 device"));
    }
    let mut seen: Vec<&Path> = Vec::new();
    for device in tops.iter().flat_map(|top| &top.devices) {
        if seen.contains(&device.path.as_path()) {
            return Err(refused(format!(
                "invalid vdev specification: '{}' is given more than once",
                device.path.display()
            )));
        }
        seen.push(&device.path);
    }
    let complaints = mismatches(&tops);
    if !complaints.is_empty() && !force {
        return Err(refused(format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n{}",
            complaints.join("\n")
        )));
    }
    Ok(tops.into_iter().map(request).collect())
}

/// A group has enough devices, and not too many.
fn check_width(word: &str, kind: Group, devices: usize) -> Result<(), Failure> {
    let (least, most) = match kind {
        Group::Mirror => (2, usize::MAX),
        Group::Raidz(parity) => (usize::from(parity) + 1, RAIDZ_DEVICES_MAX),
        Group::Spare | Group::Cache | Group::Log => (1, usize::MAX),
    };
    if devices < least {
        let many = if least == 1 { "" } else { "s" };
        return Err(refused(format!("invalid vdev specification: {word} requires at least {least} device{many}")));
    }
    if devices > most {
        return Err(refused(format!("invalid vdev specification: {word} supports no more than {most} devices")));
    }
    Ok(())
}

fn request(top: Top) -> VdevRequest {
    let mut paths: Vec<PathBuf> = top.devices.into_iter().map(|device| device.path).collect();
    match top.group {
        _ if top.is_log => VdevRequest::Log(paths),
        Some(Group::Mirror) => VdevRequest::Mirror(paths),
        Some(Group::Raidz(parity)) => VdevRequest::Raidz { parity, children: paths },
        Some(Group::Spare) => VdevRequest::Spare(paths),
        Some(Group::Cache) => VdevRequest::Cache(paths),
        Some(Group::Log) | None => VdevRequest::Leaf(paths.swap_remove(0)),
    }
}

/// Kind, parity and width of a top-level vdev, as far as they must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub kind: &'static str,
    pub parity: u8,
    pub width: usize,
}

/// The level of a vdev to be made; logs and spares have none.
pub(super) fn level_of_request(vdev: &VdevRequest) -> Option<Level> {
    match vdev {
        VdevRequest::Mirror(children) => Some(Level { kind: "mirror", parity: 0, width: children.len() }),
        VdevRequest::Raidz { parity, children } => {
            Some(Level { kind: "raidz", parity: *parity, width: children.len() })
        }
        VdevRequest::Leaf(path) => {
            let is_disk = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
            Some(Level { kind: if is_disk { "disk" } else { "file" }, parity: 0, width: 1 })
        }
        VdevRequest::Log(_) | VdevRequest::Spare(_) | VdevRequest::Cache(_) => None,
    }
}

fn level(top: &Top) -> Level {
    match top.group {
        Some(Group::Mirror) => Level { kind: "mirror", parity: 0, width: top.devices.len() },
        Some(Group::Raidz(parity)) => Level { kind: "raidz", parity, width: top.devices.len() },
        Some(Group::Log | Group::Spare | Group::Cache) | None => {
            Level { kind: if top.devices[0].is_disk { "disk" } else { "file" }, parity: 0, width: 1 }
        }
    }
}

fn mismatches(tops: &[Top]) -> Vec<String> {
    let mut found = Vec::new();
    // What a log protects is its own matter (`get_replication`).
    let tops: Vec<&Top> = tops.iter().filter(|top| !top.is_beside() && !top.is_log).collect();
    for top in tops.iter().filter(|top| top.group.is_some()) {
        let kind = level(top).kind;
        if top.devices.windows(2).any(|pair| pair[0].is_disk != pair[1].is_disk) {
            found.push(format!("mismatched replication level: {kind} contains both files and devices"));
            continue;
        }
        let known: Vec<u64> = top.devices.iter().map(|device| device.size).filter(|size| *size > 0).collect();
        if known.windows(2).any(|pair| pair[0].abs_diff(pair[1]) > FUZZ_BYTES) {
            found.push(format!("{kind} contains devices of different sizes"));
        }
    }
    for pair in tops.windows(2) {
        let (last, this) = (level(pair[0]), level(pair[1]));
        let text = match (last.kind, this.kind) {
            ("raidz", "mirror") | ("mirror", "raidz") => {
                let (raidz, mirror) = if last.kind == "raidz" { (&last, &this) } else { (&this, &last) };
                if usize::from(raidz.parity) + 1 == mirror.width {
                    continue;
                }
                format!(
                    "mismatched replication level: raidz and mirror vdevs with different redundancy, \
                     {} vs. {} ({}-way) are present",
                    raidz.parity,
                    mirror.width - 1,
                    mirror.width
                )
            }
            (a, b) if a != b => format!("mismatched replication level: both {a} and {b} vdevs are present"),
            (kind, _) if last.parity != this.parity => format!(
                "mismatched replication level: both {} and {} device parity {kind} vdevs are present",
                last.parity, this.parity
            ),
            (kind, _) if last.width != this.width => format!(
                "mismatched replication level: both {}-way and {}-way {kind} vdevs are present",
                last.width, this.width
            ),
            _ => continue,
        };
        found.push(text);
    }
    found
}

/// Finds a device. A word with a slash is a path; a bare word is a device below /dev, else a file in the current
/// folder.
fn look_up(word: &str) -> Result<Device, Failure> {
    let given = Path::new(word);
    let mut path = given.to_path_buf();
    if !word.contains('/') {
        let below_dev = Path::new("/dev").join(word);
        if below_dev.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
            path = below_dev;
        } else if !given.exists() {
            return Err(refused(format!(
                "cannot open '{word}': no such device in /dev\nmust be a full path or shorthand device name"
            )));
        }
    }
    let path = std::path::absolute(&path).map_err(|error| refused(format!("cannot resolve path '{word}': {error}")))?;
    let path = without_dots(&path);
    let metadata =
        std::fs::metadata(&path).map_err(|_| refused(format!("cannot resolve path '{}'", path.display())))?;
    let kind = metadata.file_type();
    if !kind.is_block_device() && !kind.is_file() {
        return Err(refused(format!("cannot use '{}': must be a block device or regular file", path.display())));
    }
    let size = if kind.is_file() { metadata.len() } else { disk_size(&path) };
    Ok(Device { path, is_disk: kind.is_block_device(), size })
}

/// `/a/./b/../c` is shown as `/a/c` when that is the same place; a symbolic link on the way makes it another.
fn without_dots(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    match (plain.canonicalize(), path.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => plain,
        _ => path.to_path_buf(),
    }
}

fn disk_size(path: &Path) -> u64 {
    use std::io::{Seek, SeekFrom};
    std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Names decide: `disk…` is a disk, `big…` has 2 GiB, all else is a file of 1 GiB.
    fn fake(word: &str) -> Result<Device, Failure> {
        if word.starts_with("missing") {
            return Err(refused(format!("cannot open '{word}'")));
        }
        let size = if word.starts_with("big") { 2 * GIB } else { GIB };
        Ok(Device { path: Path::new("/v").join(word), is_disk: word.starts_with("disk"), size })
    }

    fn parsed(line: &str, force: bool) -> Result<Vec<VdevRequest>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse_with(&words, force, &fake).map_err(|failure| match failure {
            Failure::Refused(body) => body.message,
            Failure::Usage(message) => message,
        })
    }

    fn paths(line: &str) -> Vec<PathBuf> {
        line.split_whitespace().map(|word| Path::new("/v").join(word)).collect()
    }

    #[test]
    fn words_become_vdevs() {
        assert_eq!(parsed("a b", false).unwrap(), [VdevRequest::Leaf("/v/a".into()), VdevRequest::Leaf("/v/b".into())]);
        assert_eq!(
            parsed("raidz a b c raidz1 d e f", false).unwrap(),
            [
                VdevRequest::Raidz { parity: 1, children: paths("a b c") },
                VdevRequest::Raidz { parity: 1, children: paths("d e f") }
            ]
        );
        assert_eq!(
            parsed("mirror a b mirror c d", false).unwrap(),
            [VdevRequest::Mirror(paths("a b")), VdevRequest::Mirror(paths("c d"))]
        );
        // A spare may be of any kind and size.
        assert_eq!(
            parsed("mirror a b spare disk big", false).unwrap(),
            [VdevRequest::Mirror(paths("a b")), VdevRequest::Spare(paths("disk big"))]
        );
        assert_eq!(parsed("mirror a b log c cache disk big", false).unwrap()[2], VdevRequest::Cache(paths("disk big")));
        // A log protects as it likes, and is no group: what follows it is one log after the other.
        assert_eq!(
            parsed("mirror a b log disk e mirror c d spare f", false).unwrap(),
            [
                VdevRequest::Mirror(paths("a b")),
                VdevRequest::Log(paths("disk")),
                VdevRequest::Log(paths("e")),
                VdevRequest::Log(paths("c d")),
                VdevRequest::Spare(paths("f")),
            ]
        );
        for (line, expected) in [
            ("a log raidz b c d", "unsupported 'log' device: raidz"),
            ("a log b log c", "'log' can be specified only once"),
            ("a log", "log requires at least 1 device"),
            ("a log mirror b", "mirror requires at least 2 devices"),
        ] {
            assert_eq!(parsed(line, true).unwrap_err(), format!("invalid vdev specification: {expected}"), "{line}");
        }
        assert_eq!(
            parsed("raidz3 a b c d", false).unwrap(),
            [VdevRequest::Raidz { parity: 3, children: paths("a b c d") }]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            ("", "at least one toplevel vdev must be specified"),
            ("mirror a", "mirror requires at least 2 devices"),
            ("raidz a", "raidz requires at least 2 devices"),
            ("raidz2 a b", "raidz2 requires at least 3 devices"),
            ("raidz3 a b c mirror d e", "raidz3 requires at least 4 devices"),
            ("raidz a b special c", "'special' vdevs are not supported yet"),
            ("a cache", "cache requires at least 1 device"),
            ("a cache b cache c", "'cache' can be specified only once"),
            ("draid2:4d a b", "'draid2:4d' vdevs are not supported yet"),
            ("a spare", "spare requires at least 1 device"),
            ("a spare b mirror c d spare e", "'spare' can be specified only once"),
            ("a spare b a", "'/v/a' is given more than once"),
            ("mirror a a", "'/v/a' is given more than once"),
            ("raidz a missing b", "cannot open 'missing'"),
        ];
        for (line, expected) in table {
            let error = parsed(line, true).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn what_force_overrides_is_refused_without_it() {
        let table = [
            ("raidz a b mirror c d e", "raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present"),
            ("mirror a b c", ""),
            ("a mirror b c", "both file and mirror vdevs are present"),
            ("raidz a b c raidz2 d e f", "both 1 and 2 device parity raidz vdevs are present"),
            ("raidz a b c raidz d e", "both 3-way and 2-way raidz vdevs are present"),
            ("raidz a b big", "raidz contains devices of different sizes"),
            ("mirror a disk", "mirror contains both files and devices"),
            ("a disk", "both file and disk vdevs are present"),
            ("raidz a b c mirror d e", ""),
            ("a big", ""),
        ];
        for (line, expected) in table {
            assert!(parsed(line, true).is_ok(), "{line}");
            match parsed(line, false) {
                Ok(_) => assert_eq!(expected, "", "{line}"),
                Err(error) => {
                    assert!(!expected.is_empty() && error.ends_with(expected), "{line}: {error}");
                    assert!(error.contains("use '-f' to override the following errors:"), "{error}");
                }
            }
        }
    }

    #[test]
    fn files_are_found_in_the_current_folder_and_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d0");
        std::fs::write(&file, [0; 512]).unwrap();
        let device = look_up(file.to_str().unwrap()).unwrap();
        assert_eq!(device, Device { path: file.clone(), is_disk: false, size: 512 });
        let roundabout = dir.path().join("./x/../d0");
        std::fs::create_dir(dir.path().join("x")).unwrap();
        assert_eq!(look_up(roundabout.to_str().unwrap()).unwrap().path, file);
        assert!(look_up(dir.path().to_str().unwrap()).is_err());
        assert!(look_up("surely-no-such-device").is_err());
    }
}
