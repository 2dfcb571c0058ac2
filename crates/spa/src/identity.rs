//! Which leaf a device is: its labels decide, never its path (`vdev_validate`, `module/zfs/vdev.c`).
//!
//! Invariants:
//! - a device becomes usable only after its labels were read through the very handle that will be used, and named this
//!   pool and this leaf, or the spare that this leaf was;
//! - what belongs to somebody else is opened for reading only, and without a lock;
//! - looking for a leaf at another path ends, whatever the devices do: there are bounds for the paths and for the time.
//!
//! The label's pool state is not asked, as OpenZFS does not ask it of a device that returns: a disk that was away when
//! its pool was imported again still says "exported". An old pool guid cannot happen to the pool's own disks: a pool
//! gets a new guid only while all of its devices are there. Another guid means a copy of the disk in a pool of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use platter_device::{BlockDevice, DeviceError, DeviceSource, OpenOptions, PathKind};
use platter_hooks::Canary;
use platter_ondisk::{Guid, Txg};
use platter_vdev::{DeviceOpener, OpenError, VdevAux, VdevKind, VdevSpec};

use crate::label_search::labels_at;
use crate::labels::{self, DeviceLabels, Reached};
use crate::{spare_label, split_pairs};

/// How long the device at a leaf's own path may take to be opened and to show its labels: a disk may have to spin up,
/// and Linux itself tries for 30 seconds.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// How long another device may take to show its labels, and all of them.
const LOOK_MAX: Duration = Duration::from_secs(5);
const SEARCH_MAX: Duration = Duration::from_secs(15);
const _: () = assert!(LOOK_MAX.as_secs() < SEARCH_MAX.as_secs(), "one device must not take the time of all others");
/// Bytes that a device must give for what is on it to be judged.
const PROBE: usize = 4096;
/// So many devices are looked at together, and so many paths of a folder at all.
const LOOKS_AT_ONCE: usize = 16;
const PATHS_MAX: usize = 4096;
/// Where disks are looked for, besides beside the pool's other devices.
const DISK_FOLDERS: [&str; 2] = ["/dev/disk/by-id", "/dev"];

/// Opens the device at `path`, or gives up when it does not answer.
///
/// # Errors
/// What opening it says, or [`DeviceError::Gone`].
pub async fn in_time<T, E: From<DeviceError>>(path: &Path, opened: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::time::timeout(OPEN_MAX, opened).await.unwrap_or_else(|_| {
        let reason = format!("it did not answer within {} seconds", OPEN_MAX.as_secs());
        Err(DeviceError::Gone { device: path.display().to_string(), reason }.into())
    })
}

/// A leaf of a pool, to be recognised by a label.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The pool.
    pub pool: Guid,
    /// The leaf.
    pub leaf: Guid,
    /// No label of the pool's own is of a later group.
    pub newest: Txg,
    /// The last group that the leaf has.
    pub complete: Txg,
}

impl Member {
    /// Whether `found`, the labels of a device, make it this leaf.
    fn recognise(&self, found: &DeviceLabels) -> Result<(), (VdevAux, String)> {
        if Canary::StrangerTaken.sings() {
            return Ok(());
        }
        let newest = found.config();
        let is_split_off = split_pairs::origin(newest) == Some(self.pool);
        if newest.guid != self.pool && !(is_split_off && found.pool() == self.pool) {
            let aux = if is_split_off { VdevAux::SplitPool } else { VdevAux::CorruptData };
            return Err((aux, format!("it belongs to pool '{}' (guid {})", newest.name, newest.guid)));
        }
        // Labels of a pool that a crash kept from being split off say nothing.
        let found = &found.clone().of_pool(self.pool);
        let newest = found.config();
        let Some(config) = found.config_at(self.newest) else {
            return Err((VdevAux::BadLabel, self.beyond(newest.txg)));
        };
        // A leaf that is its own top-level vdev may have got that vdev's guid after its label was written (`detach`).
        // The labels of those that were in that vdev before tell of the same; but they were away since.
        let has_adopted = config.top_guid == Some(self.leaf) && found.reached() >= self.complete;
        if config.device_guid != Some(self.leaf) && !has_adopted {
            let guid = config.device_guid.map_or_else(|| "without a guid".into(), |guid| format!("guid {guid}"));
            return Err((VdevAux::CorruptData, format!("it is another device of this pool ({guid})")));
        }
        match &found.uberblock {
            Some(uberblock) if uberblock.txg > self.newest => Err((VdevAux::BadLabel, self.beyond(uberblock.txg))),
            _ => Ok(()),
        }
    }

    fn beyond(&self, txg: Txg) -> String {
        format!(
            "another system has written to it: it is of group {txg}, which this pool (at {}) has not reached",
            self.newest
        )
    }

    /// Reads the labels of an open device and checks that it is this leaf; the last groups that it is known to have.
    ///
    /// # Errors
    /// What it is instead.
    pub async fn check(&self, device: &dyn BlockDevice) -> Result<Reached, OpenError> {
        let refused = |aux, why: String| {
            let detail = format!("{} is not this pool's device: {why}", device.name());
            Err(OpenError::Refused { aux, detail })
        };
        match labels::read(device).await {
            Ok(found) => match self.recognise(&found) {
                Ok(()) => Ok(found.history()),
                Err((aux, why)) => refused(aux, why),
            },
            Err(_) if Canary::StrangerTaken.sings() => Ok(Reached { last: self.newest, ..Reached::default() }),
            Err(reason) => match device.read(0, PROBE).await {
                Ok(_) => refused(VdevAux::BadLabel, reason),
                // Who does not answer may be anybody.
                Err(error) => Err(error.into()),
            },
        }
    }
}

/// Opens the devices of leaves that have none: at the path where they were, else wherever they are found.
pub struct Returning<'a> {
    /// Who opens them.
    pub devices: &'a Arc<dyn DeviceSource>,
    /// How to open them.
    pub options: OpenOptions,
    /// The pool's guid.
    pub pool: Guid,
    /// No label of the pool's own is of a later group.
    pub newest: Txg,
    /// Where the pool's leaves are, or were.
    pub places: Vec<PathBuf>,
    /// Where devices of this pool were seen while one was looked for, by guid.
    pub seen: Mutex<BTreeMap<u64, PathBuf>>,
    /// The last group that each leaf has, by guid: what has less is a copy from before, and is used only when it lies
    /// where the leaf was.
    pub complete: BTreeMap<u64, Txg>,
    /// The last groups that the devices which were opened have, by guid.
    pub reached: Mutex<BTreeMap<u64, Reached>>,
}

impl Returning<'_> {
    fn member(&self, leaf: Guid) -> Member {
        let complete = self.complete.get(&leaf.0).copied().unwrap_or_default();
        Member { pool: self.pool, leaf, newest: self.newest, complete }
    }

    /// As [`Member::check`]; what went away as a spare, before it got its first label as a device of the pool, is the
    /// leaf that has nothing yet. Only in a pool that is open the others are there that have what it lacks.
    async fn check(&self, member: &Member, path: &Path, device: &dyn BlockDevice) -> Result<Reached, OpenError> {
        let refused = match member.check(device).await {
            Ok(reached) => return Ok(reached),
            Err(refused) => refused,
        };
        let is_spare = labels::read(device).await.is_err() && spare_label::read(device).await == Some(member.leaf);
        match is_spare && spare_label::disk_is_another(&**self.devices, path).await.is_none() {
            true => Ok(Reached::default()),
            false => Err(refused),
        }
    }

    /// Opens the leaf's device at `path`, when it is there. A look without a lock comes first: another's device is none
    /// of ours to lock.
    async fn take(&self, spec: &VdevSpec, path: &Path) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let member = self.member(spec.guid);
        let opened = async {
            let look = self.devices.open_vdev(path, spec.whole_disk, OpenOptions::read_only()).await?;
            self.check(&member, path, &*look).await?;
            drop(look);
            let device = self.devices.open_vdev(path, spec.whole_disk, self.options).await?;
            let reached = self.check(&member, path, &*device).await?;
            self.reached.lock().insert(spec.guid.0, reached);
            Ok(device)
        };
        in_time(path, opened).await
    }

    /// Paths at which a leaf's device may be, likely ones first; what is there nobody has looked at.
    async fn candidates(&self, spec: &VdevSpec) -> Vec<PathBuf> {
        let mut paths = self.places.clone();
        let mut folders: Vec<PathBuf> = Vec::new();
        let own = spec.path.iter().chain(&self.places).filter_map(|path| path.parent().map(Path::to_owned));
        let disks = DISK_FOLDERS.iter().map(PathBuf::from).filter(|_| spec.kind == VdevKind::Disk);
        for folder in own.chain(disks) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        for folder in folders {
            let found = self.devices.entries(&folder, PATHS_MAX).await.into_iter();
            let mut more: Vec<PathBuf> = found.filter(|path| !paths.contains(path)).collect();
            more.sort();
            paths.append(&mut more);
        }
        paths
    }

    /// The labels of what is at a path, if that may be a device. One that does not answer costs the others nothing.
    async fn look(&self, path: PathBuf) -> Option<(PathBuf, DeviceLabels)> {
        let looking = async {
            let fits = match self.devices.look(&path).await.kind {
                PathKind::BlockDevice => true,
                PathKind::File(size) => !path.starts_with("/dev") && size >= labels::DEVICE_SIZE_MIN,
                PathKind::Missing(_) | PathKind::Folder | PathKind::Other => false,
            };
            if fits { labels_at(&**self.devices, &path).await } else { None }
        };
        tokio::time::timeout(LOOK_MAX, looking).await.ok().flatten()
    }

    /// Looks for a leaf's device at all likely paths. Of several copies the newest is it, if it is up to date.
    async fn find(&self, spec: &VdevSpec) -> Option<PathBuf> {
        let mut newest: BTreeMap<u64, ((Txg, Txg), PathBuf)> = BTreeMap::new();
        let searching = async {
            let looks = self.candidates(spec).await.into_iter().map(|path| self.look(path));
            let mut looks = futures::stream::iter(looks).buffered(LOOKS_AT_ONCE);
            while let Some(look) = looks.next().await {
                let Some((path, found)) = look else { continue };
                let Some(guid) = found.config().device_guid else { continue };
                if self.complete.get(&guid.0).is_some_and(|complete| found.reached() < *complete) {
                    tracing::info!("{} is an older copy of device {guid}, and is left alone", path.display());
                    continue;
                }
                let is_newer = newest.get(&guid.0).is_none_or(|(age, _)| found.age() > *age);
                if is_newer && self.member(guid).recognise(&found).is_ok() {
                    newest.insert(guid.0, (found.age(), path));
                }
            }
        };
        let _ = tokio::time::timeout(SEARCH_MAX, searching).await;
        let mut seen = self.seen.lock();
        seen.extend(newest.into_iter().map(|(guid, (_, path))| (guid, path)));
        seen.get(&spec.guid.0).cloned()
    }
}

#[async_trait]
impl DeviceOpener for Returning<'_> {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let at_home = match &spec.path {
            Some(path) => self.take(spec, path).await,
            None => {
                Err(DeviceError::Gone { device: spec.guid.to_string(), reason: "its path is not known".into() }.into())
            }
        };
        let error = match at_home {
            Err(error) => error,
            device => return device,
        };
        match self.find(spec).await {
            Some(path) if spec.path.as_ref() != Some(&path) => self.take(spec, &path).await.or(Err(error)),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_device::MemDevice;
    use platter_nvlist::NvList;

    use super::*;
    use crate::config::{PoolConfig, PoolState, VdevConfig};
    use crate::labels::{Half, LabelTarget, write_config};

    /// A device with the labels of pool `pool`, leaf `leaf`, as of group `txg`.
    async fn labelled(pool: u64, leaf: u64, txg: u64) -> Arc<MemDevice> {
        let device = Arc::new(MemDevice::new("d".to_owned(), 64 << 20));
        let child = VdevConfig { kind: "file".into(), guid: Guid(leaf), ashift: 12, ..VdevConfig::default() };
        let top = VdevConfig {
            kind: "mirror".into(),
            guid: Guid(9),
            ashift: 12,
            children: vec![child],
            ..VdevConfig::default()
        };
        let vdev_tree =
            VdevConfig { kind: "root".into(), guid: Guid(pool), children: vec![top], ..VdevConfig::default() };
        let config = PoolConfig {
            version: 5000,
            name: "theirs".into(),
            stored_name: None,
            state: PoolState::Active,
            txg: Txg(txg),
            guid: Guid(pool),
            hostid: None,
            hostname: None,
            comment: None,
            features_for_read: Vec::new(),
            has_vdev_zaps: false,
            vdev_children: 1,
            holes: Vec::new(),
            top_guid: None,
            device_guid: None,
            vdev_tree,
            other: NvList::new(),
        };
        let target = LabelTarget { device: device.clone(), guid: Guid(leaf), top: 0, ashift: 12 };
        for half in [Half::Even, Half::Odd] {
            assert_eq!(write_config(std::slice::from_ref(&target), &config, Txg(txg), half).await, 1);
        }
        device
    }

    /// A look at the rings, to find another host, reads all of them, whatever the configuration beside them is like.
    /// The look that finds pools left out rings beside a damaged one: when the last heartbeat stood there, the pool
    /// seemed to have moved on since, and no import was possible.
    #[tokio::test]
    async fn a_ring_counts_although_the_configuration_beside_it_is_damaged() {
        use platter_ondisk::label::{VDEV_PHYS_OFFSET, label_offset, uberblock_offset, uberblock_slot_size};
        use platter_ondisk::uberblock::Uberblock;
        let device = labelled(1, 2, 30).await;
        let damaged = label_offset(device.size(), 1);
        let newest = Uberblock { version: 5000, txg: Txg(30), timestamp: 7, ..Uberblock::default() };
        let at = damaged + uberblock_offset(12, 3);
        let slot = newest.build_slot(uberblock_slot_size(12), at, platter_checksum::sha256);
        device.write(at, vec![platter_buffer::Buf::copy_from(&slot)]).await.expect("a write");
        device.write(damaged + VDEV_PHYS_OFFSET, vec![platter_buffer::Buf::zeroed(4096)]).await.expect("a write");
        let found = crate::labels::read(&*device).await.expect("three labels are left");
        assert_eq!((found.valid, found.uberblock), (3, Some(newest)));
    }

    /// When the other side of a mirror is detached, the one that is left gets the mirror's guid. A disk that had been
    /// replaced in that mirror, away at the time, was taken for it: its labels tell of the same mirror.
    #[tokio::test]
    async fn what_was_once_in_the_mirror_is_not_what_is_left_of_it() {
        use platter_ondisk::uberblock::Uberblock;
        let device = labelled(1, 3, 50).await;
        let top = crate::labels::read(&*device).await.expect("labels").config().top_guid.expect("a guid");
        let target = LabelTarget { device: device.clone(), guid: Guid(3), top: 0, ashift: 12 };
        let uberblock = Uberblock { version: 5000, txg: Txg(55), timestamp: 7, ..Uberblock::default() };
        assert_eq!(crate::labels::write_uberblock(&[target], &uberblock, false).await, 1);
        let left = |complete| Member { pool: Guid(1), leaf: top, newest: Txg(100), complete: Txg(complete) };
        assert!(left(55).check(&*device).await.is_ok(), "it was there until then");
        let refused = left(56).check(&*device).await;
        assert!(matches!(refused, Err(OpenError::Refused { aux: VdevAux::CorruptData, .. })), "{refused:?}");
    }

    /// `zpool online`, `clear` and `reopen` took over whatever lay at the path: another pool's disk, a file system, the
    /// disk of another leaf. It was overwritten with our labels and "resilvered".
    #[tokio::test]
    async fn only_the_leafs_own_labels_make_a_device_the_leaf() {
        let ours = Member { pool: Guid(1), leaf: Guid(2), newest: Txg(100), complete: Txg(60) };
        assert!(ours.check(&*labelled(1, 2, 100).await).await.is_ok());
        let blank = Arc::new(MemDevice::new("d".to_owned(), 64 << 20));
        for (device, aux, words) in [
            (labelled(7, 2, 50).await, VdevAux::CorruptData, "it belongs to pool 'theirs' (guid 7)"),
            (labelled(1, 3, 50).await, VdevAux::CorruptData, "it is another device of this pool (guid 3)"),
            (labelled(1, 2, 101).await, VdevAux::BadLabel, "another system has written to it"),
            (blank, VdevAux::BadLabel, ""),
        ] {
            match ours.check(&*device).await {
                Err(OpenError::Refused { aux: found, detail }) => {
                    assert_eq!(found, aux, "{detail}");
                    assert!(detail.starts_with("d is not this pool's device: ") && detail.contains(words), "{detail}");
                }
                other => panic!("{words}: {other:?}"),
            }
        }
    }

    /// The spare lost its power while it took over, before its labels were the pool's. Every `zpool online` refused it
    /// from then on, and the next spare stayed in use for ever.
    #[tokio::test]
    async fn a_spare_that_went_before_its_first_label_is_the_leaf_and_has_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d");
        std::fs::write(&path, [0]).expect("written");
        std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(64 << 20)).expect("grown");
        let devices: Arc<dyn DeviceSource> = Arc::new(platter_device::SystemDevices::default());
        let spare = devices.open_path(&path, OpenOptions::exclusive()).await.expect("open");
        let returning = Returning {
            devices: &devices,
            options: OpenOptions::read_only(),
            pool: Guid(1),
            newest: Txg(100),
            places: Vec::new(),
            seen: Mutex::default(),
            complete: BTreeMap::new(),
            reached: Mutex::default(),
        };
        let ours = returning.member(Guid(2));
        spare_label::write(&*spare, 5000, Guid(3)).await.expect("written");
        assert!(returning.check(&ours, &path, &*spare).await.is_err(), "another spare");
        spare_label::write(&*spare, 5000, Guid(2)).await.expect("written");
        assert_eq!(returning.check(&ours, &path, &*spare).await.expect("it is"), Reached::default());
        assert!(ours.check(&*spare).await.is_err(), "an import does not know whether the others are there");
        // What the pool that has it now left of the spare's labels says nothing.
        let theirs = labelled(7, 3, 50).await.read(0, 1 << 18).await.expect("read");
        spare.write(0, vec![platter_buffer::Buf::copy_from(&theirs)]).await.expect("written");
        assert!(returning.check(&ours, &path, &*spare).await.is_err(), "another pool's");
    }
}
