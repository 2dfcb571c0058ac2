//! `mount -t zfs pool/data@snapshot /mnt`: where the file system is mounted its snapshots can be seen already, so a
//! snapshot's directory there is shown at a second place, as a bind mount. It is read-only, whatever the options say,
//! and is unmounted with umount(8); until then the file system is in use.

use std::fs;
use std::path::Path;

use platter_api::messages::{ErrorBody, ErrorKind, ListMounts};
use platter_daemon::dead_mounts::system_mounts;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, mount_bind, mount_remount, unmount};

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

/// Shows snapshot `name` ("pool/data@snapshot") at `place`.
///
/// # Errors
/// There is none; the file system is not mounted, or does not show its snapshots; the system refuses.
pub fn mount(session: &mut Session, name: &str, place: &Path, options: &[String]) -> Result<(), ErrorBody> {
    let refused = |why: String| ErrorBody::new(format!("snapshot '{name}' cannot be mounted: {why}"));
    let (dataset, snapshot) = name.split_once('@').unwrap_or((name, ""));
    if system_mounts().iter().any(|mount| mount.mountpoint == place && mount.source == dataset) {
        let busy = format!("'{dataset}' or a snapshot of it is mounted at '{}' already", place.display());
        return Err(ErrorBody::of_kind(ErrorKind::MountBusy, busy));
    }
    let mounts = session.ask(ListMounts {})?;
    let Some(mount) = mounts.into_iter().find(|mount| mount.dataset == dataset) else {
        return Err(refused(format!("'{dataset}' is not mounted"))
            .hint(format!("mount it with 'zfs mount {dataset}': its snapshots are seen through it")));
    };
    let shown = mount.mountpoint.join(".zfs/snapshot");
    if snapshot.is_empty() || snapshot.starts_with('.') || snapshot.contains('/') {
        return Err(ErrorBody::new(format!("cannot open '{name}': invalid dataset name")));
    }
    if !shown.is_dir() {
        return Err(refused(format!("'{}' is not seen", shown.display()))
            .hint(format!("'zfs get snapdir {dataset}' says whether it is disabled")));
    }
    let shown = shown.join(snapshot);
    if !fs::metadata(&shown).is_ok_and(|found| found.is_dir()) {
        return Err(ErrorBody::of_kind(ErrorKind::NotFound, format!("cannot open '{name}': dataset does not exist")));
    }
    mount_bind(&shown, place).map_err(|error| refused(error.to_string()))?;
    let flags = rustix::fs::statvfs(place).map(|found| found.f_flag).unwrap_or(StatVfsMountFlags::empty());
    let kept = KEPT.into_iter().filter(|(is, _)| flags.contains(*is)).map(|(_, keep)| keep);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY | asked(options), |all, keep| all | keep);
    mount_remount(place, flags, c"").map_err(|error| {
        // Nothing can be written there anyway, but nothing half done stays.
        let _ = unmount(place, rustix::mount::UnmountFlags::DETACH);
        refused(error.to_string())
    })
}
