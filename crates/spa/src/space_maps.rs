//! Space maps: the on-disk log of what each metaslab allocated and freed (`module/zfs/space_map.c`,
//! `metaslab_sync` in `module/zfs/metaslab.c`), and reading log space maps that OpenZFS left
//! (`module/zfs/spa_log_spacemap.c`).
//!
//! Invariants:
//! - replaying a metaslab's entries in order over "all free" gives exactly its allocated ranges;
//! - a map that grew beyond twice its optimal size is rewritten from the ranges in memory (condensed), and one whose
//!   end is lost in every copy from what is known to be free: a group is never held up by a map that can only grow;
//! - the histogram in the header describes the free ranges, as far as they were in memory when it was written;
//! - a map is read and written with [`Store::lock_maps`] held, so that neither sees half of the other.

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_ondisk::spacemap::{self, Entry, MapType, SPACE_MAP_SIZE, Segment, SpaceMapPhys, SpaceMapWriter};
use platter_ondisk::{ObjectId, ObjectType, Txg};
use platter_zio::{Histogram, MapAt, Metaslab, MetaslabId, RangeSet, Store, Written};

use platter_dsl::features::Features;

/// Block size of a metaslab's space map (`zfs_metaslab_sm_blksz_no_log`).
pub const BLOCK_SIZE: u32 = 1 << 14;
/// Bytes read at a time.
const READ_CHUNK: u64 = 1 << 20;
/// More zero bytes than this are no entries.
const HOLE: usize = 64;

/// Which of its two forms a pool's space maps have, by its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFormat {
    /// Entries of two words where one does not suffice (`spacemap_v2`).
    two_words: bool,
    /// A histogram in the header (`spacemap_histogram`).
    histogram: bool,
}

impl MapFormat {
    /// The form in a pool with these features.
    pub fn of(features: &Features) -> Self {
        Self {
            two_words: features.is_enabled(Feature::SpacemapV2),
            histogram: features.is_enabled(Feature::SpacemapHistogram),
        }
    }
}

/// What is written behind a map's present end.
pub struct Tail {
    /// The map.
    pub object: ObjectId,
    /// Where it ends now, bytes.
    pub at: u64,
    /// Allocated bytes (of a dirty time log: groups) that the whole map then stands for.
    pub allocated: i64,
    /// Free runs that it then stands for, by size; maps that describe no space have none.
    pub histogram: Option<[u64; 32]>,
}

/// Appends to a map what `put` writes, and brings its header up to date. Returns its new length in bytes.
///
/// # Errors
/// Out of space, device errors.
pub async fn append(
    mos: &Arc<Objset>,
    tx: &Tx,
    format: MapFormat,
    tail: Tail,
    put: impl FnOnce(&mut SpaceMapWriter),
) -> Result<u64> {
    let dnode = mos.dnode(tail.object).await?;
    let mut writer = SpaceMapWriter::new(tail.at, u64::from(dnode.block_size()), format.two_words);
    put(&mut writer);
    let length = writer.length();
    dnode.write(tx, tail.at, &writer.finish()).await?;
    // A map that was made before the pool had the feature keeps its short header.
    let has_room = dnode.bonus().len() >= SPACE_MAP_SIZE;
    let mut phys = SpaceMapPhys::new(tail.object.0, format.histogram && has_room);
    phys.length = length;
    phys.allocated = tail.allocated;
    if let (Some(own), Some(histogram)) = (&mut phys.histogram, tail.histogram) {
        *own = histogram;
    }
    dnode.set_bonus(tx, ObjectType::SPACE_MAP_HEADER, &phys.encode())?;
    Ok(length)
}

/// A metaslab's space map before its ranges are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Bytes in use.
    pub length: u64,
    /// Allocated bytes.
    pub allocated: i64,
    /// Free runs by size; none in old pools.
    pub histogram: Option<[u64; 32]>,
}

/// Reads a space map's header from its bonus; nothing of the map itself is read.
///
/// # Errors
/// Damage.
pub async fn header(mos: &Arc<Objset>, object: ObjectId) -> Result<Header> {
    let dnode = mos.dnode(object).await?;
    let info = dnode.info();
    // Numbers of another object's are no lengths, and a map that were one would be written to.
    if info.object_type != ObjectType::SPACE_MAP || info.bonus_type != ObjectType::SPACE_MAP_HEADER {
        let what = format!("object {object} is none, but of types {} and {}", info.object_type, info.bonus_type);
        return Err(ZioError::corrupt("space map", what));
    }
    let phys = SpaceMapPhys::decode(&dnode.bonus())
        .map_err(|e| ZioError::corrupt("space map", format!("object {object}: {e}")))?;
    if !phys.length.is_multiple_of(ENTRY_BYTES) || !info.block_size.is_multiple_of(2 * ENTRY_BYTES as u32) {
        let what =
            format!("object {object}: {} bytes in blocks of {} are no whole words", phys.length, info.block_size);
        return Err(ZioError::corrupt("space map", what));
    }
    let end = info.max_blkid.saturating_add(1).saturating_mul(u64::from(info.block_size));
    if phys.length > end {
        let what = format!("object {object}: {} bytes in use of {end}", phys.length);
        return Err(ZioError::corrupt("space map", what));
    }
    Ok(Header { length: phys.length, allocated: phys.allocated, histogram: phys.histogram })
}

/// How much there can be in the space maps of a pool. A map that repeats itself, through pointers that somebody made
/// lead to the same block, need not contradict itself: what it allocates it may free again, for ever. But whoever
/// writes maps rewrites those that are long for the space they stand for.
#[derive(Debug)]
pub struct Words(u64);

/// Words of maps for each sector of space, at most: twice the optimal size (two words for each second sector), frees
/// that were added since, and the few blocks that a map may have before it is rewritten.
const WORDS_PER_SECTOR: u64 = 32;
/// Words that metaslabs may have however small they are.
const WORDS_LEAST: u64 = 1 << 20;
/// Words that logs may have however small the pool is: 1000 blocks (`zfs_unflushed_log_block_min`).
const WORDS_OF_LOGS: u64 = 1000 << 14;

impl Words {
    /// What the metaslabs' own maps of a vdev with so many sectors may take.
    pub fn of_maps(sectors: u64) -> Self {
        Self(WORDS_LEAST.saturating_add(sectors.saturating_mul(WORDS_PER_SECTOR)))
    }

    /// What the logs of a pool with so many sectors may take.
    pub fn of_logs(sectors: u64) -> Self {
        Self(WORDS_OF_LOGS.saturating_add(sectors.saturating_mul(WORDS_PER_SECTOR)))
    }

    /// What maps may take that have nothing to do with space.
    pub const fn exactly(words: u64) -> Self {
        Self(words)
    }

    /// Takes what a map of `bytes` bytes has.
    ///
    /// # Errors
    /// There is not as much left.
    pub fn take(&mut self, object: ObjectId, bytes: u64) -> Result<()> {
        self.0 = self.0.checked_sub(bytes.div_ceil(8)).ok_or_else(|| {
            let what = format!("object {object}: with its {bytes} bytes the maps are longer than their space can need");
            ZioError::corrupt("space map", what)
        })?;
        Ok(())
    }
}

/// Hands every entry of a space map to `each`, in order, when it is no longer than what is `left`. Nothing is gathered.
///
/// # Errors
/// Damage, unreadable blocks; what `each` says.
pub async fn for_each(
    mos: &Arc<Objset>,
    object: ObjectId,
    left: &mut Words,
    mut each: impl FnMut(Segment) -> Result<()> + Send,
) -> Result<()> {
    let header = header(mos, object).await?;
    let dnode = mos.dnode(object).await?;
    left.take(object, header.length)?;
    let mut at = 0;
    // Whole blocks at a time: no entry lies across the end of one.
    while at < header.length {
        let mut bytes = vec![0; READ_CHUNK.min(header.length - at) as usize];
        dnode.read(at, &mut bytes).await?;
        if bytes.len() > HOLE && bytes.iter().all(|&byte| byte == 0) {
            // One such entry means something, many say the same again; and holes may have any length.
            return Err(ZioError::corrupt("space map", format!("object {object}: nothing is stored at byte {at}")));
        }
        for entry in spacemap::entries(&bytes) {
            match entry {
                Ok(Entry::Segment(segment)) => each(segment)?,
                Ok(Entry::Debug { .. }) => {}
                Err(e) => return Err(ZioError::corrupt("space map", format!("object {object} after byte {at}: {e}"))),
            }
        }
        at += bytes.len() as u64;
    }
    Ok(())
}

/// A metaslab as its space map's header describes it (`object` 0: never written, all free), for a vdev with these log2
/// of its metaslabs' and its sectors' sizes.
///
/// # Errors
/// Damage, an unreadable dnode.
pub async fn unloaded(
    mos: &Arc<Objset>,
    object: ObjectId,
    index: u64,
    (metaslab_shift, ashift): (u32, u32),
) -> Result<Metaslab> {
    let (start, size) = (index << metaslab_shift, 1 << metaslab_shift);
    let header = match object.is_some() {
        true => header(mos, object).await?,
        false => Header { length: 0, allocated: 0, histogram: None },
    };
    let known = Metaslab::on_disk(index, (start, size), object, (header.length, header.allocated));
    let mut metaslab = known.ok_or_else(|| {
        let what = format!("object {object}: {} bytes are allocated of {size} in metaslab {index}", header.allocated);
        ZioError::corrupt("space map", what)
    })?;
    metaslab.histogram = match header.length {
        0 => Some(Histogram::of([size], ashift)),
        _ => header.histogram.and_then(|buckets| Histogram::checked(buckets, ashift, size)),
    };
    Ok(metaslab)
}

/// Applies `entry` (offset and run in units of the map, relative to the metaslab's start) to the free ranges.
fn apply(free: &mut RangeSet, map: &MapAt, entry: &Segment) -> Result<()> {
    let (units, object) = (map.size >> map.shift, map.object);
    if entry.offset.checked_add(entry.run).is_none_or(|end| end > units) {
        return Err(ZioError::corrupt("space map", format!("object {object}: {entry:?} leaves its metaslab")));
    }
    let (start, length) = (map.start + (entry.offset << map.shift), entry.run << map.shift);
    let applied = match entry.kind {
        MapType::Alloc => free.remove(start, length),
        MapType::Free => free.add(start, length),
    };
    applied.map_err(|e| ZioError::corrupt("space map", format!("object {object}: {e}")))
}

/// The free ranges that a metaslab's own map stands for.
///
/// # Errors
/// Damage: an entry allocates what is not free, frees what is not allocated, or leaves the metaslab. Unreadable blocks.
pub async fn free_ranges(mos: &Arc<Objset>, map: &MapAt) -> Result<RangeSet> {
    let mut free = RangeSet::of(map.start, map.size);
    // How long it may be was looked at when the pool was opened; since then it has grown only by what was written.
    let mut words = Words::exactly(map.length.div_ceil(8));
    for_each(mos, map.object, &mut words, |entry| apply(&mut free, map, &entry)).await?;
    Ok(free)
}

/// The changes of one metaslab, taken out of the allocator to be written.
struct Pending {
    vdev: u32,
    index: u64,
    start: u64,
    object: ObjectId,
    length: u64,
    allocated: i64,
    allocating: RangeSet,
    freeing: RangeSet,
    /// The allocated ranges, when the map is to be rewritten.
    rewrite: Option<RangeSet>,
    /// None when nobody knows: the header keeps what it says.
    histogram: Option<Histogram>,
}

/// What a pool needs to know to write a vdev's space maps.
#[derive(Clone, Copy, Debug)]
pub struct VdevMaps {
    /// Top-level vdev index.
    pub vdev: u32,
    /// Object that lists the metaslabs' space maps.
    pub array: ObjectId,
    /// log2 of the vdev's sector size.
    pub ashift: u32,
    /// How they are written.
    pub format: MapFormat,
}

/// Encoded size of one entry without prefix, in bytes, as an estimate of the optimal size.
const ENTRY_BYTES: u64 = 8;

/// Whether a map of so many bytes is worth rewriting for a metaslab with so many runs.
fn is_bloated(metaslab: &Metaslab) -> bool {
    let best = ENTRY_BYTES.saturating_mul(metaslab.runs().saturating_add(1));
    metaslab.map_length > best.saturating_mul(2).max(4 * u64::from(BLOCK_SIZE))
}

impl Pending {
    /// Changes of `metaslab`; the map is rewritten when it is given what to write.
    fn of(
        metaslab: &Metaslab,
        maps: &VdevMaps,
        (allocating, freeing): (RangeSet, RangeSet),
        rewrite: Option<RangeSet>,
    ) -> Self {
        let is_loaded = metaslab.is_loaded();
        Self {
            vdev: maps.vdev,
            index: metaslab.index,
            start: metaslab.start,
            object: metaslab.space_map,
            length: metaslab.map_length,
            allocated: metaslab.map_allocated,
            rewrite,
            allocating,
            freeing,
            histogram: match is_loaded {
                true => Some(Histogram::of(metaslab.free_runs(), maps.ashift)),
                false => metaslab.histogram,
            },
        }
    }
}

/// Whether a metaslab's map is to be rewritten, where those of the metaslabs in `lost` cannot be read any more.
fn is_rewritten(metaslab: &mut Metaslab, maps: &VdevMaps, lost: &[u64]) -> bool {
    if lost.contains(&metaslab.index) {
        let reason = "the end of its space map is lost in every copy: it begins anew";
        tracing::error!(vdev = maps.vdev, metaslab = metaslab.index, is_loaded = metaslab.is_loaded(), reason);
        metaslab.begin_anew(maps.ashift);
        return true;
    }
    metaslab.is_loaded() && is_bloated(metaslab)
}

/// Those of the metaslabs that `changes` says are about to be written whose maps cannot be appended to: the block that
/// the map ends in is lost, or a block that leads to it.
async fn lost(mos: &Arc<Objset>, store: &Store, maps: &VdevMaps, changes: impl Fn(&Metaslab) -> bool) -> Vec<u64> {
    let ends: Vec<(u64, ObjectId, u64)> = {
        let allocator = store.state().allocator.lock();
        let metaslabs = allocator.group(maps.vdev).into_iter().flat_map(|group| group.metaslabs());
        let written = metaslabs.filter(|m| changes(m) && m.space_map.is_some() && m.map_length > 0);
        written.map(|m| (m.index, m.space_map, m.map_length)).collect()
    };
    let mut lost = Vec::new();
    for (index, object, length) in ends {
        let mut last = [0; 8];
        let read = match mos.dnode(object).await {
            Ok(dnode) => dnode.read(length.saturating_sub(8), &mut last).await,
            Err(error) => Err(error),
        };
        if read.is_err_and(|error| error.is_loss()) {
            lost.push(index);
        }
    }
    lost
}

/// Takes what the syncing group changed in the metaslabs of a vdev; the maps of those in `lost` are written anew.
fn take_dirty(store: &Store, maps: &VdevMaps, lost: &[u64]) -> Vec<Pending> {
    let mut allocator = store.state().allocator.lock();
    let mut pending = Vec::new();
    for group in allocator.groups_mut().iter_mut().filter(|group| group.vdev == maps.vdev) {
        group.change_active(|metaslab| {
            if metaslab.is_dirty() {
                let is_rewritten = is_rewritten(metaslab, maps, lost);
                let changes = metaslab.take_changes();
                let rewrite = is_rewritten.then(|| metaslab.allocated_ranges());
                pending.push(Pending::of(metaslab, maps, changes, rewrite));
            }
        });
    }
    pending
}

/// Takes what metaslab `index` has only in logs of groups before this one, to be written to its space map, or to a new
/// one when it is in `lost`.
fn take_unflushed(store: &Store, tx: &Tx, maps: &VdevMaps, index: u64, lost: &[u64]) -> Option<Pending> {
    let mut allocator = store.state().allocator.lock();
    let group = allocator.groups_mut().iter_mut().find(|group| group.vdev == maps.vdev)?;
    group.change(index as usize, |metaslab| {
        metaslab.unflushed_txg = tx.txg();
        if metaslab.is_flushed() {
            return None;
        }
        let rewrite = is_rewritten(metaslab, maps, lost).then(|| metaslab.allocated_before());
        let changes = (metaslab.unflushed_allocs.take(), metaslab.unflushed_frees.take());
        Some(Pending::of(metaslab, maps, changes, rewrite))
    })?
}

/// Loads a metaslab whose map is to be rewritten and whose ranges are not in memory: each time that some are allocated
/// and freed in it its map grows.
async fn load_if_bloated(store: &Store, maps: &VdevMaps, index: u64) {
    let is_wanted = {
        let allocator = store.state().allocator.lock();
        let metaslab = allocator.group(maps.vdev).and_then(|group| group.metaslabs().get(index as usize));
        // Without a histogram nobody knows how long it need be.
        metaslab.is_some_and(|metaslab| !metaslab.is_flushed() && metaslab.histogram.is_some() && is_bloated(metaslab))
    };
    if is_wanted {
        store.load(MetaslabId { vdev: maps.vdev, index: index as usize }).await;
    }
}

/// Writes the unflushed changes of metaslab `index` of a vdev, if it has any, to its own space map, in the first pass;
/// from this group on only later logs count for it. Returns how many
/// space maps were created.
///
/// # Errors
/// Out of space, device errors.
pub async fn flush(mos: &Arc<Objset>, store: &Store, tx: &Tx, maps: &VdevMaps, index: u64) -> Result<u64> {
    load_if_bloated(store, maps, index).await;
    let _maps = store.lock_maps().await;
    let lost = lost(mos, store, maps, |metaslab| metaslab.index == index && !metaslab.is_flushed()).await;
    let Some(pending) = take_unflushed(store, tx, maps, index, &lost) else { return Ok(0) };
    write_pending(mos, store, tx, 1, maps, vec![pending]).await
}

/// Writes every dirty metaslab's changes of this group to its space map. Returns how many space maps were created (each
/// counts for the feature `spacemap_histogram`).
///
/// # Errors
/// Out of space, device errors.
pub async fn sync(mos: &Arc<Objset>, store: &Store, tx: &Tx, pass: u32, vdevs: &[VdevMaps]) -> Result<u64> {
    let mut created = 0;
    for maps in vdevs {
        let _maps = store.lock_maps().await;
        let lost = lost(mos, store, maps, Metaslab::is_dirty).await;
        let pending = take_dirty(store, maps, &lost);
        created += write_pending(mos, store, tx, pass, maps, pending).await?;
    }
    Ok(created)
}

/// The vdevs whose space maps are written.
pub fn vdev_maps(core: &crate::core::Core) -> Vec<VdevMaps> {
    let config = core.config.read();
    let tops = config.vdev_tree.children.iter().filter(|top| top.metaslab_array.is_some());
    let format = MapFormat::of(&core.dsl.features);
    tops.map(|top| VdevMaps { vdev: top.id as u32, array: top.metaslab_array, ashift: top.ashift as u32, format })
        .collect()
}

/// Makes the space map of a metaslab that never had one, and lists it.
///
/// # Errors
/// Out of space, device errors.
pub async fn create_for(mos: &Arc<Objset>, store: &Store, tx: &Tx, maps: &VdevMaps, index: u64) -> Result<()> {
    let _maps = store.lock_maps().await;
    let object = create(mos, tx, maps.format, BLOCK_SIZE).await?;
    mos.dnode(maps.array).await?.write(tx, index * 8, &object.0.to_le_bytes()).await?;
    note_written(store, maps.vdev, index, Written { object, length: 0, allocated: 0, histogram: None });
    Ok(())
}

async fn write_pending(
    mos: &Arc<Objset>,
    store: &Store,
    tx: &Tx,
    pass: u32,
    maps: &VdevMaps,
    all: Vec<Pending>,
) -> Result<u64> {
    let mut created = 0;
    for mut pending in all {
        if pending.rewrite.is_some() && pending.object.is_some() {
            match empty(mos, tx, pending.object).await {
                // Nobody can tell any more which blocks it has: another takes its place.
                Err(error) if error.is_loss() => pending.object = ObjectId::NONE,
                emptied => emptied?,
            }
            pending.length = 0;
        }
        if !pending.object.is_some() {
            pending.object = create(mos, tx, maps.format, BLOCK_SIZE).await?;
            created += 1;
            let array = mos.dnode(maps.array).await?;
            array.write(tx, pending.index * 8, &pending.object.0.to_le_bytes()).await?;
        }
        write_one(mos, tx, pass, maps, &mut pending).await?;
        let Pending { object, length, allocated, histogram, .. } = pending;
        note_written(store, pending.vdev, pending.index, Written { object, length, allocated, histogram });
    }
    Ok(created)
}

fn note_written(store: &Store, vdev: u32, index: u64, map: Written) {
    let mut allocator = store.state().allocator.lock();
    let group = allocator.groups_mut().iter_mut().find(|group| group.vdev == vdev).expect("it was there");
    group.written(index as usize, map);
}

/// Makes an empty space map object.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(mos: &Arc<Objset>, tx: &Tx, format: MapFormat, block_size: u32) -> Result<ObjectId> {
    let bonus = |object: u64| SpaceMapPhys::new(object, format.histogram).encode();
    let new = NewDnode {
        bonus_type: ObjectType::SPACE_MAP_HEADER,
        bonus_length: bonus(0).len() as u16,
        ..NewDnode::plain(ObjectType::SPACE_MAP, block_size)
    };
    let dnode = mos.allocate(tx, new).await?;
    let object = dnode.object();
    dnode.set_bonus(tx, ObjectType::SPACE_MAP_HEADER, &bonus(object.0))?;
    Ok(object)
}

/// Frees what a space map has.
async fn empty(mos: &Arc<Objset>, tx: &Tx, object: ObjectId) -> Result<()> {
    mos.dnode(object).await?.free_range(tx, 0, u64::MAX).await
}

async fn write_one(mos: &Arc<Objset>, tx: &Tx, pass: u32, maps: &VdevMaps, pending: &mut Pending) -> Result<()> {
    let histogram = match pending.histogram {
        Some(histogram) => Some(histogram.buckets),
        None => header(mos, pending.object).await?.histogram,
    };
    if let Some(all) = &pending.rewrite {
        pending.allocated = all.total() as i64;
    } else {
        let change = pending.allocating.total() as i64 - pending.freeing.total() as i64;
        pending.allocated = pending.allocated.saturating_add(change);
    }
    let tail = Tail { object: pending.object, at: pending.length, allocated: pending.allocated, histogram };
    let (start, ashift) = (pending.start, maps.ashift);
    pending.length = append(mos, tx, maps.format, tail, |writer| {
        let mut put = |kind: MapType, set: &RangeSet| {
            if !set.is_empty() {
                writer.debug(kind, u64::from(pass), tx.txg().0);
            }
            for (at, length) in set.iter() {
                assert!(at >= start, "a metaslab that begins at {start} changes what lies at {at}");
                writer.segment(kind, None, (at - start) >> ashift, length >> ashift);
            }
        };
        if let Some(all) = &pending.rewrite {
            put(MapType::Alloc, all);
        } else {
            put(MapType::Alloc, &pending.allocating);
            put(MapType::Free, &pending.freeing);
        }
    })
    .await?;
    Ok(())
}

/// The log space maps, oldest first: group and object.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn logs(mos: &Arc<Objset>, directory: &Zap) -> Result<Vec<(Txg, ObjectId)>> {
    let Some(object) = directory.get_u64(platter_dsl::mos::LOG_SPACEMAP_ZAP.as_bytes()).await? else {
        return Ok(Vec::new());
    };
    let mut logs = Zap::open(mos, ObjectId(object)).await?.ints().await?;
    logs.sort_unstable();
    Ok(logs.into_iter().map(|(txg, map)| (Txg(txg), ObjectId(map))).collect())
}

#[cfg(test)]
mod tests {
    use platter_ondisk::Txg;

    use super::*;

    const FORMAT: MapFormat = MapFormat { two_words: false, histogram: false };

    async fn map_of(
        os: &Arc<Objset>,
        tx: &Tx,
        allocated: i64,
        put: impl FnOnce(&mut SpaceMapWriter),
    ) -> (ObjectId, u64) {
        let object = create(os, tx, FORMAT, BLOCK_SIZE).await.unwrap();
        let tail = Tail { object, at: 0, allocated, histogram: None };
        (object, append(os, tx, FORMAT, tail, put).await.unwrap())
    }

    // What a map allocates it may free again, so that one which repeats itself never contradicts itself: a few KiB of
    // indirect blocks made it go on for ever. So did many metaslabs, or groups, that named the same map.
    #[tokio::test]
    async fn maps_are_no_longer_than_their_space_can_need() {
        let tx = Tx::syncing(Txg(4));
        let os = platter_dsl::mos_properties::in_memory(&tx);
        let pairs = WORDS_LEAST / 4;
        let (object, length) = map_of(&os, &tx, 0, |writer| {
            for _ in 0..pairs {
                writer.segment(MapType::Alloc, None, 0, 1);
                writer.segment(MapType::Free, None, 0, 1);
            }
        })
        .await;
        assert_eq!(length, pairs * 16);
        let mut left = Words::of_maps(4);
        for index in 0..2 {
            let metaslab = unloaded(&os, object, index, (11, 9)).await.unwrap();
            left.take(object, metaslab.map_length).unwrap();
        }
        let third = left.take(object, length);
        assert!(third.is_err_and(|error| error.to_string().contains("longer than their space")));
        // Where there is more space there may be more of them.
        Words::of_maps(1 << 20).take(object, length).unwrap();
        let map = MapAt { id: MetaslabId { vdev: 0, index: 0 }, start: 0, size: 2048, shift: 9, object, length };
        assert!(free_ranges(&os, &map).await.unwrap().iter().eq([(0, 2048)]));
    }

    #[tokio::test]
    async fn what_a_header_alone_shows_to_be_damage_is_refused_at_once() {
        let tx = Tx::syncing(Txg(4));
        let os = platter_dsl::mos_properties::in_memory(&tx);
        for allocated in [-512, 4096] {
            let (object, _) = map_of(&os, &tx, allocated, |writer| writer.segment(MapType::Alloc, None, 0, 1)).await;
            let refused = unloaded(&os, object, 0, (11, 9)).await;
            assert!(refused.is_err_and(|error| error.to_string().contains("bytes are allocated of 2048")));
        }
    }

    /// A number in a list of maps that damage made another object's: what its bonus holds is no length.
    #[tokio::test]
    async fn an_object_of_another_kind_is_no_map() {
        let tx = Tx::syncing(Txg(4));
        let os = platter_dsl::mos_properties::in_memory(&tx);
        let array = os.allocate(&tx, platter_dmu::NewDnode::plain(ObjectType::OBJECT_ARRAY, 16 << 10)).await.unwrap();
        let refused = header(&os, array.object()).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("is none, but of types 2 and 0")));
        let (object, _) = map_of(&os, &tx, 512, |writer| writer.segment(MapType::Alloc, None, 0, 1)).await;
        let dnode = os.dnode(object).await.unwrap();
        let phys = SpaceMapPhys { length: 7, ..SpaceMapPhys::new(object.0, false) };
        dnode.set_bonus(&tx, ObjectType::SPACE_MAP_HEADER, &phys.encode()).unwrap();
        let refused = header(&os, object).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("7 bytes in blocks of")));
    }

    #[tokio::test]
    async fn entries_that_contradict_each_other_are_damage() {
        let tx = Tx::syncing(Txg(4));
        let os = platter_dsl::mos_properties::in_memory(&tx);
        for (first, second) in [((0, 2), (1, 2)), ((0, 1), (3, 2))] {
            let (object, length) = map_of(&os, &tx, 1024, |writer| {
                writer.segment(MapType::Alloc, None, first.0, first.1);
                writer.segment(MapType::Alloc, None, second.0, second.1);
            })
            .await;
            let map = MapAt { id: MetaslabId { vdev: 0, index: 0 }, start: 0, size: 2048, shift: 9, object, length };
            assert!(matches!(free_ranges(&os, &map).await, Err(ZioError::Corrupt { .. })));
        }
    }
}
