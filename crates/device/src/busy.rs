//! Who else uses a device: mounts, swap, stacked devices, locks. Everything is read from `/proc` and `/sys`; what
//! cannot be read counts as "nobody", since the exclusive open and the lock have the last word.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, major, minor};
use rustix::io::Errno;

use crate::backing::{self, Part};
use crate::holder::Holder;
use crate::locks::{self, lock_holder};
use crate::sysfs::{device_number, sysfs};

/// The device itself and its partitions.
fn with_partitions(device: u64) -> Vec<(u64, String)> {
    let own_name = fs::canonicalize(sysfs(device))
        .ok()
        .and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_else(|| format!("{}:{}", major(device), minor(device)));
    let mut all = vec![(device, own_name)];
    for entry in fs::read_dir(sysfs(device)).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists()
            && let Some(number) = fs::read_to_string(entry.path().join("dev")).ok().and_then(|t| device_number(&t))
        {
            all.push((number, entry.file_name().to_string_lossy().into_owned()));
        }
    }
    all
}

/// Undoes the octal escapes of `/proc` tables (`\040` is a space).
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        if *first == b'\\'
            && let Some(code) = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok())
            && let Ok(code) = u8::from_str_radix(code, 8)
        {
            out.push(code);
            bytes = &rest[3..];
        } else {
            out.push(*first);
            bytes = rest;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where `mountinfo` (contents of `/proc/self/mountinfo`) says that `device` is mounted.
fn mount_point(mountinfo: &str, device: u64) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let mounted = device_number(fields.get(2)?) == Some(device)
            // File systems with device numbers of their own (btrfs) name their source.
            || fields.iter().position(|&field| field == "-").is_some_and(|dash| {
                fields.get(dash + 2).is_some_and(|source| {
                    source.starts_with("/dev/")
                        && fs::metadata(unescape(source)).is_ok_and(|data| data.rdev() == device)
                })
            });
        mounted.then(|| unescape(fields[4]))
    })
}

/// Who uses the block device with this number, or a partition of it; `None` when nobody is known to.
pub fn block_device_user(device: u64) -> Option<String> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for (number, name) in with_partitions(device) {
        if let Some(place) = mount_point(&mountinfo, number) {
            return Some(format!("{name} is mounted on {place}"));
        }
        for line in swaps.lines().skip(1) {
            let path = unescape(line.split_whitespace().next().unwrap_or_default());
            if fs::metadata(&path).is_ok_and(|data| data.rdev() == number) {
                return Some(format!("{name} is used as swap space"));
            }
        }
        let holders = fs::read_dir(sysfs(number).join("holders")).into_iter().flatten().flatten();
        if let Some(holder) = holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).min() {
            return Some(format!("{name} is part of {holder}"));
        }
    }
    None
}

/// Who holds the exclusive lock of whoever writes a pool's device; `None` when nobody does. Takes a shared one for the
/// moment of the look.
pub fn writer(path: &Path) -> Option<Holder> {
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    // Behind what cannot be reached nobody is known; to read it harms nobody, and to write it is refused.
    let behind = || backing::behind(file.metadata().ok()?.rdev()).ok();
    holder(&file).or_else(|| {
        behind()?.iter().find_map(|layer| match layer.part {
            Part::Bytes(first, length) if locks::are_bytes_locked(&layer.file, first, length) => Some(Holder::SOMEBODY),
            _ => holder(&layer.file),
        })
    })
}

/// Who has an exclusive lock on an open file.
fn holder(file: &fs::File) -> Option<Holder> {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
    (locked == Err(Errno::WOULDBLOCK)).then(|| {
        let holder = file.metadata().ok().and_then(|data| lock_holder(data.dev(), data.ino()));
        holder.unwrap_or(Holder::SOMEBODY)
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_paths_are_unescaped() {
        let table = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/none rw\n";
        assert_eq!(mount_point(table, makedev(98, 0)).as_deref(), Some("/mnt 2"));
        assert_eq!(mount_point(table, makedev(98, 1)), None);
        assert_eq!(unescape("a\\134b\\"), "a\\b\\");
    }

    #[test]
    fn the_root_disk_is_busy() {
        let root = fs::metadata("/").expect("root").dev();
        if sysfs(root).exists() {
            assert!(block_device_user(root).is_some_and(|reason| reason.contains("mounted on")));
        }
    }
}
