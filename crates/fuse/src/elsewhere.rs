//! Where else a mount is kept: at a second place here, or in another mount name space (a container that was given
//! a folder of ours). Unmounting it where we mounted it does not end those, and only cutting the connection would:
//! whoever works there gets errors for ever.
//!
//! Invariant: what `umount(2)` of our own place takes away with it, as the kernel passes it on to name spaces that
//! follow this one (mount_namespaces(7), "propagation"), is not counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::mountinfo::{self, MountInfo};

/// The mount tables of all name spaces that have a process, as of one moment.
#[derive(Debug)]
pub struct Elsewhere {
    /// This process's.
    own: Table,
    /// Those of others, each with a process that lives there.
    others: Vec<(u32, Table)>,
    /// Groups of mounts that follow another group.
    followers: BTreeMap<u64, BTreeSet<u64>>,
}

/// One mount table, with thousands of mounts perhaps.
#[derive(Debug)]
struct Table {
    mounts: Vec<MountInfo>,
    by_id: HashMap<u64, usize>,
    by_device: HashMap<String, Vec<usize>>,
}

/// Who keeps a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeper {
    /// A process of the other name space; `None` when it is this one.
    process: Option<u32>,
    /// Where it is mounted there.
    place: PathBuf,
}

impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(pid) => {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                write!(f, "process {pid} ({}) has it in a mount namespace of its own, at ", name.trim())?;
            }
            None => write!(f, "it is mounted a second time, at ")?,
        }
        write!(f, "'{}'", self.place.display())
    }
}

impl Elsewhere {
    /// Asks the system. Name spaces of processes that this user may not look at are not seen.
    pub fn look() -> Self {
        let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let own_space = space("self");
        let mut found: BTreeMap<PathBuf, (u32, bool)> = BTreeMap::new();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let Some(other) = space(&pid.to_string()).filter(|other| Some(other) != own_space.as_ref()) else {
                continue;
            };
            // The table is what the process can reach: one in a chroot would not see all of it.
            let sees_all = || std::fs::read_link(format!("/proc/{pid}/root")).is_ok_and(|root| root == Path::new("/"));
            let entry = found.entry(other).or_insert((pid, false));
            if !entry.1 && sees_all() {
                *entry = (pid, true);
            }
        }
        let others = found.into_values().map(|(pid, _)| (pid, mountinfo::of(&pid.to_string()))).collect();
        Self::new(mountinfo::all(), others)
    }

    fn new(own: Vec<MountInfo>, others: Vec<(u32, Vec<MountInfo>)>) -> Self {
        let mut followers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for mount in others.iter().flat_map(|(_, table)| table).chain(&own) {
            if let (Some(master), Some(peers)) = (mount.master, mount.peers) {
                followers.entry(master).or_default().insert(peers);
            }
        }
        let others = others.into_iter().map(|(pid, table)| (pid, Table::new(table))).collect();
        Self { own: Table::new(own), others, followers }
    }

    /// Who keeps the file system with this device number beside the mount at `place` here.
    pub fn keeper(&self, device: &str, place: &Path) -> Option<Keeper> {
        let ours = self.own.of_device(device).filter(|mount| mount.mountpoint == place).last();
        let reached = ours.and_then(|mount| self.reached_by_unmounting(mount));
        let tables =
            std::iter::once((None, &self.own)).chain(self.others.iter().map(|(pid, table)| (Some(*pid), table)));
        for (process, table) in tables {
            let is_ours = |mount: &MountInfo| process.is_none() && ours.is_some_and(|ours| ours.id == mount.id);
            for mount in table.of_device(device).filter(|mount| !is_ours(mount)) {
                if !reached.as_ref().is_some_and(|reached| reached.includes(mount, table)) {
                    return Some(Keeper { process, place: mount.mountpoint.clone() });
                }
            }
        }
        None
    }

    /// What the kernel unmounts with `mount`: it goes by the mount that it lies on.
    fn reached_by_unmounting(&self, mount: &MountInfo) -> Option<Reached> {
        let below = self.own.parent(mount)?;
        let mut groups = BTreeSet::new();
        // And followers of followers.
        let mut pending = vec![below.peers?];
        while let Some(group) = pending.pop() {
            if groups.insert(group) {
                pending.extend(self.followers.get(&group).into_iter().flatten());
            }
        }
        let reached = Reached { groups, folder: folder(mount, below)?, device: below.device.clone() };
        assert!(reached.includes(mount, &self.own), "it goes itself");
        Some(reached)
    }
}

impl Table {
    fn new(mounts: Vec<MountInfo>) -> Self {
        let by_id = mounts.iter().enumerate().map(|(at, mount)| (mount.id, at)).collect();
        let mut by_device: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, mount) in mounts.iter().enumerate() {
            by_device.entry(mount.device.clone()).or_default().push(at);
        }
        Self { mounts, by_id, by_device }
    }

    /// The mounts of one file system, oldest first.
    fn of_device(&self, device: &str) -> impl Iterator<Item = &MountInfo> {
        self.by_device.get(device).into_iter().flatten().map(|&at| &self.mounts[at])
    }

    /// The mount that this one lies on.
    fn parent(&self, mount: &MountInfo) -> Option<&MountInfo> {
        self.by_id.get(&mount.parent).map(|&at| &self.mounts[at])
    }
}

/// Mounts that are unmounted together.
struct Reached {
    /// Groups of mounts that tell each other what is mounted on them.
    groups: BTreeSet<u64>,
    /// The mount point, from the root of the file system that it lies in.
    folder: PathBuf,
    /// Device number of that file system.
    device: String,
}

impl Reached {
    fn includes(&self, mount: &MountInfo, table: &Table) -> bool {
        table.parent(mount).is_some_and(|below| {
            let told = |group: Option<u64>| group.is_some_and(|group| self.groups.contains(&group));
            (told(below.peers) || told(below.master))
                && below.device == self.device
                && folder(mount, below).is_some_and(|folder| folder == self.folder)
        })
    }
}

/// Where `mount` lies in the file system that is mounted below it.
fn folder(mount: &MountInfo, below: &MountInfo) -> Option<PathBuf> {
    Some(below.root.join(mount.mountpoint.strip_prefix(&below.mountpoint).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Vec<MountInfo> {
        lines.iter().map(|line| mountinfo::parse(line.as_bytes()).expect("a line")).collect()
    }

    /// Who keeps device 0:9, of which one mount is at /tank here.
    fn keeper(own: &[&str], other: &[&str]) -> Option<Keeper> {
        Elsewhere::new(table(own), vec![(7, table(other))]).keeper("0:9", Path::new("/tank"))
    }

    const ROOT: &str = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw";
    const OURS: &str = "2 1 0:9 / /tank rw shared:2 - fuse.zfs tank rw";

    #[test]
    fn what_goes_with_our_mount_does_not_count() {
        assert_eq!(keeper(&[ROOT, OURS], &["5 0 8:1 / / rw - ext4 /dev/sda1 rw"]), None);
        for passed_on in ["shared:1", "master:1", "shared:4 master:1"] {
            let root = format!("5 0 8:1 / / rw {passed_on} - ext4 /dev/sda1 rw");
            assert_eq!(keeper(&[ROOT, OURS], &[&root, "6 5 0:9 / /tank rw - fuse.zfs tank rw"]), None, "{passed_on}");
        }
        // A follower of a follower, which sees a part of the file system as its root.
        let chain = ["4 0 8:1 / /x rw shared:4 master:1 - ext4 /dev/sda1 rw", "5 0 8:1 /ta / rw master:4 - ext4 x rw"];
        let ours = "2 1 0:9 / /ta/nk rw - fuse.zfs tank rw";
        let other = [chain[0], chain[1], "6 5 0:9 / /nk rw - fuse.zfs tank rw"];
        let all = Elsewhere::new(table(&[ROOT, ours]), vec![(7, table(&other))]);
        assert_eq!(all.keeper("0:9", Path::new("/ta/nk")), None);
    }

    #[test]
    fn what_stays_is_found() {
        let private = ["5 0 8:1 / / rw - ext4 /dev/sda1 rw", "6 5 0:9 / /tank rw - fuse.zfs tank rw"];
        let found = keeper(&[ROOT, OURS], &private);
        assert_eq!(found, Some(Keeper { process: Some(7), place: "/tank".into() }));
        // A part of it, at another place, below a mount that is told of ours.
        let bound = ["5 0 8:1 / / rw master:1 - ext4 /dev/sda1 rw", "6 5 0:9 /a /data rw - fuse.zfs tank rw"];
        assert_eq!(keeper(&[ROOT, OURS], &bound), Some(Keeper { process: Some(7), place: "/data".into() }));
        let here = keeper(&[ROOT, OURS, "3 1 0:9 /a /srv rw - fuse.zfs tank rw"], &[]);
        assert_eq!(here.expect("kept").to_string(), "it is mounted a second time, at '/srv'");
        let root = "1 0 8:1 / / rw - ext4 /dev/sda1 rw";
        assert!(
            keeper(&[root, OURS], &["5 0 8:1 / / rw - ext4 /d rw", "6 5 0:9 / /tank rw - fuse.zfs tank rw"]).is_some()
        );
    }
}
