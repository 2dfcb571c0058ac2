//! `mount.zfs`: what mount(8) runs for `mount -t zfs pool/data /mnt`, and so for lines of `/etc/fstab`, when the
//! program has that name in `/sbin` (`cmd/mount_zfs.c`). A device of a pool stands for the pool's root file system.
//! Exit codes are mount(8)'s.
//!
//! What is mounted has the type `fuse.zfs`: for `mount -o remount,ro /mnt`, mount(8) runs `mount.fuse.zfs`, or
//! `mount.fuse`, which runs `zfs pool/data /mnt -o …`, both with the options that the kernel shows.
//!
//! It ends with 0 only when the file system is mounted where the caller sees it, or only words were to be checked.

use std::fs;
use std::path::{Path, PathBuf};

use platter_api::messages::{ErrorBody, ErrorKind, GetStatus, MOUNT_OPTIONS, MountRequest};
use platter_api::report::{Detail, VdevReport};
use platter_daemon::mountinfo;
use platter_daemon::process;

use crate::getopt::{Grammar, parse_as};
use crate::mount_snapshot;
use crate::session::{Session, complain};
use crate::zpool::pools;

/// The words make no sense (`MOUNT_USAGE`).
const USAGE: u8 = 1;
/// The system, or who runs the pool, refused (`MOUNT_SYSERR`).
const SYSTEM: u8 = 2;
/// Exit code of mount(8) for what is mounted already.
const MOUNT_BUSY: u8 = 32;

/// Options that are mount(8)'s own, or have nothing to act on.
const IGNORED: [&str; 18] = [
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "nostrictatime",
];

/// Says that the file system need not have `mountpoint=legacy`.
const ZFSUTIL: &str = "zfsutil";

/// Options that the kernel shows of every mount of a FUSE file system; the daemon knows them.
const SHOWN: [&str; 7] =
    ["user_id", "group_id", "default_permissions", "allow_other", "max_read", "blksize", "rootmode"];

/// Whether there is nothing to do for it.
fn is_ignored(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    IGNORED.contains(&option) || SHOWN.contains(&name) || option.starts_with("x-")
}

/// Whether `zfs` was called as mount.fuse calls a file system: with no command, but what is to be mounted, and where.
pub fn is_meant(words: &[String]) -> bool {
    matches!(words, [_, place, option, ..] if place.starts_with('/') && option.starts_with("-o"))
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// Unknown options are passed over (`-s`).
    sloppy: bool,
    /// Everything but the mounting (`-f`).
    fake: bool,
    options: Vec<String>,
    dataset: String,
    place: String,
}

/// `-n` and `-v` are about /etc/mtab and how much is said; `-t` is this program.
const GRAMMAR: Grammar = Grammar { short: "sfnvo:t:N:", long: &[] };

/// mount(8) puts options behind the operands, whatever POSIX says: `mount.zfs pool/data /mnt -o rw,noatime`.
fn parse(words: &[String]) -> Result<Request, String> {
    let parsed = parse_as(GRAMMAR, words, false).map_err(|error| error.replacen("invalid", "Invalid", 1))?;
    if parsed.has("N") {
        return Err("Invalid option 'N': the daemon mounts in its own namespace".into());
    }
    let options = parsed.all("o").flat_map(|list| list.split(',')).filter(|option| !option.is_empty());
    let options = options.map(str::to_owned).collect();
    let (sloppy, fake) = (parsed.has("s"), parsed.has("f"));
    match <[String; 2]>::try_from(parsed.operands) {
        Ok([dataset, place]) => Ok(Request { sloppy, fake, options, dataset, place }),
        Err(operands) => Err(match operands.len() {
            0 => "missing dataset argument".into(),
            1 => "missing mountpoint argument".into(),
            _ => "too many arguments".into(),
        }),
    }
}

/// The data set's name: older mount(8) puts the working directory before a name that is also a file there.
fn dataset_name(given: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    match Path::new(given).strip_prefix(&here) {
        Ok(rest) if given.starts_with('/') => rest.display().to_string(),
        _ => given.to_owned(),
    }
}

/// The pool that has this device or file as a leaf: its root file system is meant then.
fn pool_with(session: &mut Session, device: &Path) -> Result<Option<String>, ErrorBody> {
    fn has(vdev: &VdevReport, device: &Path) -> bool {
        let is_this = |path: &String| fs::canonicalize(path).is_ok_and(|path| path == device);
        vdev.path.as_ref().is_some_and(is_this) || vdev.children.iter().any(|child| has(child, device))
    }
    let Ok(device) = fs::canonicalize(device) else { return Ok(None) };
    for name in pools::names(session, &[])? {
        let view = pools::view(session, &name, Detail::default())?;
        if has(&view.report.vdevs, &device) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether the kernel says that `dataset` is mounted at `place`.
fn is_mounted(dataset: &str, place: &Path) -> bool {
    mountinfo::all().iter().any(|mount| mount.source == dataset && mount.mountpoint == place)
}

/// Runs it; the exit code.
pub fn main(words: &[String]) -> u8 {
    let request = match parse(words) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("{reason}\nUsage: mount.zfs [-sfnvh] [-o options] <dataset> <mountpoint>");
            return USAGE;
        }
    };
    let dataset = dataset_name(&request.dataset);
    if !request.fake
        && let Ok(place) = std::path::absolute(&request.place)
    {
        mount_snapshot::take_dead_away(&place);
    }
    let place: PathBuf = match fs::canonicalize(&request.place) {
        Ok(place) => place,
        Err(error) => {
            eprintln!("filesystem '{dataset}' cannot be mounted at '{}': {error}", request.place);
            return SYSTEM;
        }
    };
    if !place.is_dir() {
        eprintln!("filesystem '{dataset}' cannot be mounted at '{}': Not a directory", place.display());
        return SYSTEM;
    }
    let mut options = request.options;
    let zfsutil = options.iter().any(|option| option == ZFSUTIL);
    options.retain(|option| option != ZFSUTIL);
    options.retain(|option| !is_ignored(option));
    if request.sloppy {
        options.retain(|option| MOUNT_OPTIONS.contains(&option.as_str()));
    } else if let Some(bad) = options.iter().find(|option| !MOUNT_OPTIONS.contains(&option.as_str())) {
        eprintln!("filesystem '{dataset}' cannot be mounted due to invalid option '{bad}'.");
        eprintln!("Use the '-s' option to ignore the bad mount option.");
        return USAGE;
    }
    if request.fake {
        return 0;
    }
    let mounted = Session::new(format!("mount.zfs {dataset} {}", place.display())).and_then(|mut session| {
        let daemon = session.ask(GetStatus {})?;
        if !process::sees_mounts_of(daemon.pid) {
            return Err(ErrorBody::new(format!(
                "filesystem '{dataset}' cannot be mounted here: the daemon (pid {}) lives in another mount namespace",
                daemon.pid
            )));
        }
        if dataset.contains('@') {
            return mount_snapshot::mount(&mut session, &dataset, &place, &options).map(|()| None);
        }
        let device = Path::new(&request.dataset);
        let pool = if device.is_absolute() { pool_with(&mut session, device)? } else { None };
        let dataset = pool.unwrap_or_else(|| dataset.clone());
        let (wanted, at) = (Some(dataset.clone()), Some(place.clone()));
        let call = MountRequest { dataset: wanted, options, overlay: true, at, zfsutil, ..MountRequest::default() };
        session.ask(call).map(|_| Some(dataset))
    });
    match mounted {
        Ok(None) => 0,
        Ok(Some(dataset)) if is_mounted(&dataset, &place) => 0,
        Ok(Some(dataset)) => {
            eprintln!("filesystem '{dataset}' was mounted, but is not seen at '{}'", place.display());
            SYSTEM
        }
        Err(error) => {
            complain(&error);
            if error.kind == ErrorKind::MountBusy { MOUNT_BUSY } else { SYSTEM }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_taken_as_mount_gives_them() {
        let request = parsed("tank/a /mnt -o rw,noatime -n -t zfs").unwrap();
        assert_eq!((request.dataset.as_str(), request.place.as_str()), ("tank/a", "/mnt"));
        assert_eq!(request.options, ["rw", "noatime"]);
        assert!(parsed("-sfo ro tank/a /mnt").unwrap().sloppy);
        for (line, expected) in [
            ("", "missing dataset argument"),
            ("tank", "missing mountpoint argument"),
            ("tank a b", "too many arguments"),
            ("-x tank a", "Invalid option 'x'"),
            ("tank a -o", "Invalid option 'o'"),
        ] {
            assert_eq!(parsed(line).unwrap_err(), expected, "{line}");
        }
    }

    #[test]
    fn a_working_directory_before_the_name_is_taken_off() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(dataset_name(&here.join("tank/a").display().to_string()), "tank/a");
        assert_eq!(dataset_name("tank/a"), "tank/a");
    }
}
