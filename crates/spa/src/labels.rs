//! Labels and uberblocks on the devices (`module/zfs/vdev_label.c`).
//!
//! Invariants:
//! - a pool is always openable: labels 0 and 2 are written and flushed before the uberblocks, labels 1 and 3 after
//!   them, so that at every moment one pair is complete and no newer than the newest uberblock;
//! - what is read is verified: a label or uberblock with a wrong checksum does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use platter_buffer::{Buf, BufMut};
use platter_checksum::sha256;
use platter_device::{BlockDevice, DeviceError};
use platter_hooks::Canary;
use platter_ondisk::label::{
    BOOT_ENV_OFFSET, UBERBLOCK_RING_OFFSET, VDEV_LABEL_SIZE, VDEV_LABELS, VDEV_PAD_SIZE, VDEV_PHYS_OFFSET,
    VDEV_PHYS_SIZE, build_phys, label_offset, moved_boot_env, read_phys, uberblock_offset, uberblock_slot_of,
    uberblock_slot_size, uberblock_slots, usable_size,
};
use platter_ondisk::uberblock::Uberblock;
use platter_ondisk::{Guid, Txg};

use crate::config::{PoolConfig, VdevConfig};

/// Least size of a device (`SPA_MINDEVSIZE`).
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;

/// The labels of one device, as far as they could be read.
#[derive(Clone, Debug)]
pub struct DeviceLabels {
    /// The valid configurations of different groups, newest first; at least one.
    configs: Vec<PoolConfig>,
    /// How many of the four labels are valid.
    pub valid: usize,
    /// The best uberblock in any of the rings.
    pub uberblock: Option<Uberblock>,
    /// The last group before that one's of which there is an uberblock in the rings.
    pub before: Txg,
    /// All groups of which there is an uberblock in the rings.
    groups: Arc<BTreeSet<(Txg, Mark)>>,
}

/// What tells the state of a pool after one group from that after another of the same number, on another host: the
/// checksum of the MOS's root.
pub type Mark = [u64; 4];

/// How far the uberblocks of a device go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The last group that it is known to have.
    pub last: Txg,
    /// The one before, of those that have an uberblock: groups in which nothing was written have none.
    pub before: Txg,
    /// All that its rings tell of, each with its mark.
    pub groups: Arc<BTreeSet<(Txg, Mark)>>,
}

impl Reached {
    /// Whether the last group is one that `other` had, too, as far as its rings still tell.
    pub fn is_part_of(&self, other: &Self) -> bool {
        self.groups.range((self.last, Mark::default())..).any(|group| other.groups.contains(group))
    }
}

impl DeviceLabels {
    /// The newest valid configuration.
    pub fn config(&self) -> &PoolConfig {
        &self.configs[0]
    }

    /// The last group that the device is known to have.
    pub fn reached(&self) -> Txg {
        self.uberblock.as_ref().map_or(Txg(0), |uberblock| uberblock.txg)
    }

    /// The last groups that the device is known to have.
    pub fn history(&self) -> Reached {
        Reached { last: self.reached(), before: self.before, groups: self.groups.clone() }
    }

    /// What tells the newer of two copies of a device.
    pub fn age(&self) -> (Txg, Txg) {
        (self.reached(), self.config().txg)
    }

    /// The pool that the device belongs to: which one its newest uberblock is of. A newer label may be of a pool that
    /// it was to become a device of when a crash came.
    pub fn pool(&self) -> Guid {
        let own = self.uberblock.as_ref().and_then(|uberblock| self.config_at(uberblock.txg));
        own.unwrap_or(self.config()).guid
    }

    /// The same device, of which only the labels of this pool count, if there are any.
    pub fn of_pool(mut self, pool: Guid) -> Self {
        if self.configs.iter().any(|config| config.guid == pool) {
            self.configs.retain(|config| config.guid == pool);
        }
        self
    }

    /// The configuration that belongs to an uberblock of group `txg`. A newer label is of a group that a crash cut off:
    /// what it says (a device more, a new name, that the pool was exported) has not happened
    /// (`vdev_label_read_config`).
    pub fn config_at(&self, txg: Txg) -> Option<&PoolConfig> {
        self.configs.iter().find(|config| config.txg <= txg || Canary::LabelFromTheFuture.sings())
    }
}

/// A later group is damage: no pool has that many, and others are counted from it.
const TXG_MAX: Txg = Txg(1 << 62);
/// What is read at once where a label cannot be read as a whole: the largest sector that disks have.
const PIECE: usize = 4096;
/// With more unreadable pieces than this the disk is failing, and each try may take it seconds.
const UNREADABLE_MAX: usize = 8;

/// The bytes of a label. What the disk cannot read of it is zero: that fails its checksum, and the rest is as good as
/// ever. One bad sector in each label would cost the whole disk otherwise.
async fn read_label(device: &dyn BlockDevice, offset: u64) -> Result<BufMut, DeviceError> {
    let error = match device.read(offset, VDEV_LABEL_SIZE as usize).await {
        Err(error @ DeviceError::Io { .. }) => error,
        other => return other,
    };
    let mut bytes = BufMut::zeroed(VDEV_LABEL_SIZE as usize);
    let mut unreadable = 0;
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        match device.read(offset + (index * PIECE) as u64, PIECE).await {
            Ok(read) => piece.copy_from_slice(&read),
            Err(_) => unreadable += 1,
        }
        if unreadable > UNREADABLE_MAX {
            return Err(error);
        }
    }
    Ok(bytes)
}

/// Reads the labels of a device.
///
/// # Errors
/// Why there is no usable label: too small, unreadable, no valid checksum.
pub async fn read(device: &dyn BlockDevice) -> Result<DeviceLabels, String> {
    let size = usable_size(device.size());
    if size < VDEV_LABELS as u64 * VDEV_LABEL_SIZE {
        return Err("it is too small to hold labels".into());
    }
    let (mut configs, mut valid, mut uberblock): (Vec<PoolConfig>, usize, Option<Uberblock>) = (Vec::new(), 0, None);
    let mut problem = String::from("it has no label");
    let mut rings = Vec::new();
    // A slow disk takes its time once.
    let reads = (0..VDEV_LABELS).map(|index| read_label(device, label_offset(size, index)));
    for (index, read) in join_all(reads).await.into_iter().enumerate() {
        let offset = label_offset(size, index);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(e) => {
                problem = e.to_string();
                continue;
            }
        };
        rings.push((offset + UBERBLOCK_RING_OFFSET, bytes[UBERBLOCK_RING_OFFSET as usize..].to_vec()));
        let phys = &bytes[VDEV_PHYS_OFFSET as usize..(VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE) as usize];
        let parsed = read_phys(phys, offset + VDEV_PHYS_OFFSET, sha256)
            .map_err(|e| e.to_string())
            .and_then(|list| PoolConfig::parse(&list));
        let config = match parsed {
            Ok(config) => config,
            Err(e) => {
                problem = format!("label {index}: {e}");
                continue;
            }
        };
        valid += 1;
        if configs.iter().all(|known| known.txg != config.txg) {
            configs.push(config);
        }
    }
    configs.sort_by_key(|config| std::cmp::Reverse(config.txg));
    let Some(newest) = configs.first() else { return Err(problem) };
    // A ring is as good as ever when the configuration beside it is damaged: the newest uberblock, or the only sign of
    // another host, may stand there (`vdev_uberblock_load`).
    let ashift = newest.vdev_tree.ashift as u32;
    let mut groups = BTreeSet::new();
    for (start, ring) in &rings {
        for slot in 0..uberblock_slots(ashift) {
            let at = uberblock_offset(ashift, slot) - UBERBLOCK_RING_OFFSET;
            let slot_bytes = &ring[at as usize..(at + uberblock_slot_size(ashift)) as usize];
            let Ok(found) = Uberblock::read_slot(slot_bytes, start + at, sha256) else { continue };
            if found.txg > TXG_MAX {
                continue;
            }
            groups.insert((found.txg, mark(&found)));
            if uberblock.as_ref().is_none_or(|b| found.compare(b).is_gt()) {
                uberblock = Some(found);
            }
        }
    }
    let last = uberblock.as_ref().map_or(Txg(0), |uberblock| uberblock.txg);
    let before = groups.range(..(last, Mark::default())).next_back().map_or(Txg(0), |(before, _)| *before);
    Ok(DeviceLabels { configs, valid, uberblock, before, groups: Arc::new(groups) })
}

/// The mark of the group whose uberblock this is.
pub fn mark(uberblock: &Uberblock) -> Mark {
    uberblock.rootbp.checksum()
}

/// A leaf that can be written, with what its label says about it.
#[derive(Clone)]
pub struct LabelTarget {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// The leaf's guid.
    pub guid: Guid,
    /// Its top-level vdev's index.
    pub top: usize,
    /// log2 of the sector size.
    pub ashift: u32,
}

const _: () = assert!(VDEV_LABELS == 4, "each half has a label at either end of a device");

/// Which labels of each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Labels 0 and 2: before the uberblock.
    Even,
    /// Labels 1 and 3: after it.
    Odd,
}

/// Writes the configuration as of group `txg` to one half of every target's labels, and flushes. Returns how many
/// targets took it.
pub async fn write_config(targets: &[LabelTarget], config: &PoolConfig, txg: Txg, half: Half) -> usize {
    let writes = targets.iter().map(|target| async move {
        let top: &VdevConfig = config.vdev_tree.children.get(target.top)?;
        let list = config.to_label_nvlist(txg, top, target.guid);
        let size = usable_size(target.device.size());
        for index in (0..VDEV_LABELS).filter(|index| (index % 2 == 1) == (half == Half::Odd)) {
            let offset = label_offset(size, index) + VDEV_PHYS_OFFSET;
            let phys = build_phys(&list, offset, sha256).ok()?;
            target.device.write(offset, vec![Buf::copy_from(&phys)]).await.ok()?;
        }
        target.device.flush().await.ok()
    });
    join_all(writes).await.into_iter().flatten().count()
}

/// What the labels of a device that is in a pool are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// How many are this device's.
    pub own: usize,
    /// Where on the device one is another pool's or another device's.
    pub others: Vec<u64>,
    /// Where one should be and is not.
    pub damaged: Vec<u64>,
}

impl Survey {
    /// Whether each is as it should be.
    pub fn is_whole(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// Whether it is sure that the device is the pool's still, and no label another's.
    pub fn is_own(&self) -> bool {
        self.own > 0 && self.is_whole()
    }

    /// Where one is not as it should be.
    pub fn wrong(&self) -> impl Iterator<Item = u64> {
        self.others.iter().chain(&self.damaged).copied()
    }
}

/// Looks at the configurations in the labels of the device `guid` of `pool`.
pub async fn survey(device: &dyn BlockDevice, pool: Guid, guid: Guid) -> Survey {
    let size = usable_size(device.size());
    let mut survey = Survey::default();
    for index in 0..VDEV_LABELS {
        let offset = label_offset(size, index) + VDEV_PHYS_OFFSET;
        let config = match device.read(offset, VDEV_PHYS_SIZE as usize).await {
            Ok(phys) => read_phys(&phys, offset, sha256).ok().and_then(|list| PoolConfig::parse(&list).ok()),
            // Whoever reads it next hears of it.
            Err(_) => continue,
        };
        match config {
            None => survey.damaged.push(offset),
            Some(config) if config.guid == pool && config.device_guid == Some(guid) => survey.own += 1,
            Some(_) => survey.others.push(offset),
        }
    }
    survey
}

/// What is there, or nothing where the medium is bad.
async fn read_unless_bad(device: &dyn BlockDevice, offset: u64, length: usize) -> Result<Option<BufMut>, DeviceError> {
    match device.read(offset, length).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(DeviceError::Io { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes anew what cannot be read of those parts of the labels that no group writes: a disk where none of them can be
/// read is given up when something else fails (`Leaf::probe` reads them). Nothing that may be worth something is
/// written over: a boot environment gets what another label has, or stays; of the blank areas only sectors that cannot
/// be read twice are zeroed, and those of the first label, where FreeBSD has boot code, stay. Returns how many
/// places were written.
///
/// # Errors
/// The device is gone, or what it says to a write.
pub async fn mend_areas(device: &dyn BlockDevice) -> Result<usize, DeviceError> {
    let size = usable_size(device.size());
    let (mut unreadable, mut environments) = (Vec::new(), Vec::new());
    for offset in (0..VDEV_LABELS).map(|index| label_offset(size, index) + BOOT_ENV_OFFSET) {
        match read_unless_bad(device, offset, VDEV_PAD_SIZE as usize).await? {
            Some(bytes) => environments.push((offset, bytes)),
            None => unreadable.push(offset),
        }
    }
    let mut written = 0;
    for to in unreadable {
        let kept = environments.iter().find_map(|(from, bytes)| moved_boot_env(bytes, *from, to, sha256).ok());
        let Some(bytes) = kept else { continue };
        device.write(to, vec![Buf::copy_from(&bytes)]).await?;
        written += 1;
    }
    for start in (1..VDEV_LABELS).map(|index| label_offset(size, index)) {
        for offset in (start..start + VDEV_PAD_SIZE).step_by(PIECE) {
            if read_unless_bad(device, offset, PIECE).await?.is_none()
                && read_unless_bad(device, offset, PIECE).await?.is_none()
            {
                device.write(offset, vec![Buf::zeroed(PIECE)]).await?;
                written += 1;
            }
        }
    }
    Ok(written)
}

/// Zeroes the pads, boot environment and uberblock rings of every label: a new member starts without history.
///
/// # Errors
/// The first device that refuses, by name.
pub async fn wipe(targets: &[LabelTarget]) -> Result<(), String> {
    for target in targets {
        zero(&*target.device).await.map_err(|e| e.to_string())?;
    }
    Ok(())
}

async fn zero(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    let size = usable_size(device.size());
    for index in 0..VDEV_LABELS {
        device.write(label_offset(size, index), vec![Buf::zeroed(VDEV_LABEL_SIZE as usize)]).await?;
    }
    Ok(())
}

/// Zeroes all labels of a device, for good.
///
/// # Errors
/// What the device says.
pub async fn clear(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    zero(device).await?;
    device.flush().await
}

/// Gives the labels at the end of a device the uberblocks of the first one: it has grown, and they are elsewhere than
/// they were (`vdev_copy_uberblocks`, `module/zfs/vdev_label.c`). Nobody writes uberblocks meanwhile.
///
/// # Errors
/// What the device says.
pub async fn copy_uberblocks(target: &LabelTarget) -> Result<(), DeviceError> {
    let device = &*target.device;
    let size = usable_size(device.size());
    let slot_size = uberblock_slot_size(target.ashift);
    let first = read_label(device, label_offset(size, 0)).await?;
    for slot in 0..uberblock_slots(target.ashift) {
        let at = uberblock_offset(target.ashift, slot);
        let bytes = &first[at as usize..(at + slot_size) as usize];
        let Ok(uberblock) = Uberblock::read_slot(bytes, label_offset(size, 0) + at, sha256) else { continue };
        for index in VDEV_LABELS / 2..VDEV_LABELS {
            let offset = label_offset(size, index) + at;
            device.write(offset, vec![Buf::copy_from(&uberblock.build_slot(slot_size, offset, sha256))]).await?;
        }
    }
    device.flush().await
}

/// Writes `uberblock` to all four rings of every target, and flushes. With `multihost` the rings' last slot is left
/// alone. Returns how many targets took it.
pub async fn write_uberblock(targets: &[LabelTarget], uberblock: &Uberblock, multihost: bool) -> usize {
    let writes = targets.iter().map(|target| async move {
        let size = usable_size(target.device.size());
        let slot = uberblock_slot_of(target.ashift, uberblock.txg, multihost);
        for index in 0..VDEV_LABELS {
            let offset = label_offset(size, index) + uberblock_offset(target.ashift, slot);
            let bytes = uberblock.build_slot(uberblock_slot_size(target.ashift), offset, sha256);
            target.device.write(offset, vec![Buf::copy_from(&bytes)]).await.ok()?;
        }
        target.device.flush().await.ok()
    });
    join_all(writes).await.into_iter().flatten().count()
}

#[cfg(test)]
mod tests {
    use platter_device::{Fault, FaultDevice, FaultKind, MemDevice};
    use platter_ondisk::label::{BootEnv, build_boot_env, read_boot_env};

    use super::*;

    const SIZE: u64 = 8 << 20;

    fn at(index: usize) -> u64 {
        label_offset(SIZE, index) + BOOT_ENV_OFFSET
    }

    fn unreadable(offset: u64, length: u64, times: u64) -> Fault {
        Fault { kind: FaultKind::ReadError, offset, length, times }
    }

    fn peek(memory: &MemDevice, offset: u64) -> Vec<u8> {
        let mut bytes = vec![1; VDEV_PAD_SIZE as usize];
        memory.peek(offset, &mut bytes);
        bytes
    }

    #[tokio::test]
    async fn areas_that_cannot_be_read_are_written_anew() {
        let env = BootEnv::Raw("saved_entry=1".into());
        let memory = Arc::new(MemDevice::new("d0", SIZE));
        for index in 0..VDEV_LABELS {
            memory.poke(label_offset(SIZE, index), &[7; VDEV_PAD_SIZE as usize]);
            memory.poke(at(index), &build_boot_env(&env, at(index), sha256).unwrap());
        }
        // Readable, and damaged: nothing to go by.
        memory.poke(at(1), &[9; 100]);
        let bad = FaultDevice::new(memory.clone());
        let piece = PIECE as u64;
        for fault in [
            unreadable(at(0), VDEV_PAD_SIZE, 1),
            unreadable(at(3), VDEV_PAD_SIZE, 1),
            // Boot code may be there.
            unreadable(label_offset(SIZE, 0), VDEV_PAD_SIZE, u64::MAX),
            // It passes.
            unreadable(label_offset(SIZE, 2), piece, 1),
            unreadable(label_offset(SIZE, 3) + piece, 512, 2),
        ] {
            bad.inject(fault);
        }
        assert_eq!(mend_areas(&bad).await.unwrap(), 3);
        assert_eq!(mend_areas(&bad).await.unwrap(), 0);
        for index in 0..VDEV_LABELS {
            let mut blank = [7; VDEV_PAD_SIZE as usize];
            if index == 3 {
                blank[PIECE..].fill(0);
            }
            assert_eq!(peek(&memory, label_offset(SIZE, index)), blank, "{index}");
            let read = read_boot_env(&peek(&memory, at(index)), at(index), sha256);
            assert_eq!(read.ok(), (index != 1).then(|| env.clone()), "{index}");
        }
    }

    /// A device that no label of could be read may be anybody's by now.
    #[tokio::test]
    async fn labels_that_cannot_be_read_say_of_nobody_whose_device_it_is() {
        let bad = FaultDevice::new(Arc::new(MemDevice::new("d0", SIZE)));
        for index in 0..VDEV_LABELS {
            bad.inject(unreadable(label_offset(SIZE, index) + VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, u64::MAX));
        }
        let survey = survey(&bad, Guid(1), Guid(2)).await;
        assert!(survey.is_whole() && !survey.is_own(), "{survey:?}");
    }

    /// It may come back: a cable, a controller.
    #[tokio::test]
    async fn a_boot_environment_that_no_label_has_readable_stays() {
        let env = BootEnv::Raw("saved_entry=2".into());
        let memory = Arc::new(MemDevice::new("d0", SIZE));
        let bad = FaultDevice::new(memory.clone());
        for index in 0..VDEV_LABELS {
            memory.poke(at(index), &build_boot_env(&env, at(index), sha256).unwrap());
            bad.inject(unreadable(at(index), VDEV_PAD_SIZE, u64::MAX));
        }
        assert_eq!(mend_areas(&bad).await.unwrap(), 0);
        for index in 0..VDEV_LABELS {
            assert_eq!(read_boot_env(&peek(&memory, at(index)), at(index), sha256).unwrap(), env, "{index}");
        }
    }
}
