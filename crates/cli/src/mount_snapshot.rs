//! `mount -t zfs pool/data@snapshot /mnt`: where the file system is mounted its snapshots can be seen already, so a
//! snapshot's directory there is shown at a second place, as a bind mount. It is read-only, whatever the options say,
//! and is unmounted with umount(8); until then the file system is in use.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use platter_api::messages::{ErrorBody, ErrorKind, ListMounts};
use platter_daemon::mountinfo::{self, MountInfo};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::session::Session;

/// Flags of a mount that a remount would take away if it did not repeat them.
const KEPT: [(StatVfsMountFlags, MountFlags); 5] = [
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
];

/// The flags that words like `noexec` stand for; all others make no difference to what is only read.
fn asked(options: &[String]) -> MountFlags {
    let flag = |option: &String| match option.as_str() {
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        _ => MountFlags::empty(),
    };
    options.iter().map(flag).collect()
}

/// A device number as the kernel lists it with a mount.
fn device_of(found: &Metadata) -> String {
    format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()))
}

/// Shows snapshot `name` ("pool/data@snapshot") at `place`.
///
/// # Errors
/// There is none; the file system is not mounted, or does not show its snapshots; the system refuses. Nothing is
/// mounted then.
pub fn mount(session: &mut Session, name: &str, place: &Path, options: &[String]) -> Result<(), ErrorBody> {
    let refused = |why: String| ErrorBody::new(format!("snapshot '{name}' cannot be mounted: {why}"));
    let (dataset, snapshot) = name.split_once('@').unwrap_or((name, ""));
    if matches!(snapshot, "" | "." | "..") || snapshot.contains(['/', '@']) {
        return Err(ErrorBody::new(format!("cannot open '{name}': invalid dataset name")));
    }
    let listed = session.ask(ListMounts {})?.into_iter().find(|mount| mount.dataset == dataset);
    let own = listed.and_then(|listed| mountinfo::find(&listed.mountpoint));
    let Some(own) = own.filter(MountInfo::is_ours) else {
        return Err(refused(format!("'{dataset}' is not mounted"))
            .hint(format!("mount '{dataset}' first: its snapshots are seen through it")));
    };
    if mountinfo::all().iter().any(|mount| mount.mountpoint == place && mount.device == own.device) {
        let busy = format!("'{dataset}' or a snapshot of it is mounted at '{}' already", place.display());
        return Err(ErrorBody::of_kind(ErrorKind::MountBusy, busy));
    }
    let folder = own.mountpoint.join(".zfs/snapshot");
    if !folder.is_dir() {
        return Err(refused(format!("'{}' is not seen", folder.display()))
            .hint(format!("'zfs get snapdir {dataset}' says whether it is disabled")));
    }
    let shown = folder.join(snapshot);
    let found = fs::metadata(&shown).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            ErrorBody::of_kind(ErrorKind::NotFound, format!("cannot open '{name}': dataset does not exist"))
        }
        _ => refused(format!("{}: {error}", shown.display())),
    })?;
    if device_of(&found) != own.device {
        return Err(refused(format!("'{dataset}' is hidden at '{}'", own.mountpoint.display())));
    }
    mount_bind(&shown, place).map_err(|error| refused(error.to_string()))?;
    finish(place, &found, options).map_err(|why| {
        let _ = unmount(place, UnmountFlags::DETACH);
        refused(why)
    })
}

/// Sees to it that what was just mounted at `place` is what was `found`, and read-only.
fn finish(place: &Path, found: &Metadata, options: &[String]) -> Result<(), String> {
    // Somebody may have exchanged a name on the way there.
    let now = fs::metadata(place).map_err(|error| error.to_string())?;
    if (now.dev(), now.ino()) != (found.dev(), found.ino()) {
        return Err("the place or the snapshot is another one now".into());
    }
    let flags = rustix::fs::statvfs(place).map_err(|error| error.to_string())?.f_flag;
    let kept = KEPT.into_iter().filter(|(is, _)| flags.contains(*is)).map(|(_, keep)| keep);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY | asked(options), |all, keep| all | keep);
    mount_remount(place, flags, c"").map_err(|error| error.to_string())
}

/// Takes away what is left at `place` of a mount whose daemon is gone: nobody could mount there any more.
pub fn take_dead_away(place: &Path) {
    let is_ours = mountinfo::find(place).is_some_and(|mount| mount.is_ours());
    // Its attributes the kernel may still know: what lies in there it has to ask for.
    let is_dead = || {
        fs::read_dir(place).is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()))
    };
    if is_ours && is_dead() {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
}
