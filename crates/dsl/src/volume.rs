//! Volumes from the pool's side: how one is made, what is reserved for it, its size, and who has it open
//! (`zvol_create_cb`, `zvol_set_volsize`, `module/zfs/zvol.c`; `zvol_volsize_to_reservation`,
//! `lib/libzfs/libzfs_dataset.c`).
//!
//! Invariants:
//! - a volume's size is a multiple of its block size and not zero, and nothing is behind it;
//! - while somebody has a volume open, its head is neither destroyed nor exchanged; while it is, nobody opens it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use platter_api::numbers;
use platter_api::request::{NewVolume, Setting};
use platter_dmu::zap::Zap;
use platter_dmu::{NewDnode, Objset, Tx};
use platter_ondisk::dnode::MAX_INDIRECT_SHIFT;
use platter_ondisk::features::Feature;
use platter_ondisk::zvol::{BLOCK_SIZE_DEFAULT, DATA_OBJECT, PROPERTIES_OBJECT, SIZE};
use platter_ondisk::{ObjectId, ObjectType, Sectors};
use platter_zil::Zil;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::dataset_report;
use crate::error::{PoolError, Result};
use crate::inheritance::number;
use crate::mos;
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
pub use crate::volume_server::Server;
use platter_api::report::DatasetKind;

/// The property that is a volume's size.
pub const VOLSIZE: &str = "volsize";
/// The property that says what is reserved for it.
pub const RESERVED: &str = "refreservation";
/// The largest block without feature `large_blocks`, in bytes (`SPA_OLD_MAXBLOCKSIZE`).
const OLD_BLOCK_MAX: u64 = 128 << 10;
/// Pointers in an indirect block, and most copies of one (`DNODES_PER_LEVEL`, `SPA_DVAS_PER_BP`).
const POINTERS: u64 = 1 << 10;
const COPIES_MAX: u64 = 3;
/// Blocks of the meta-dnode, a level each (`zvol_volsize_to_reservation`).
const META_LEVELS: u64 = 7;
/// For so long a volume may be in use still by who has closed its file: the kernel does not wait for its server then.
const CLOSING: Duration = Duration::from_secs(1);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);

/// What a volume is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

/// A volume that could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is made with.
    pub shape: Shape,
    /// Bytes that are reserved for it; `None` when it is sparse.
    pub reserved: Option<u64>,
    /// What is unwise about it; empty when nothing is.
    pub warning: String,
}

/// A size in bytes, in the words of OpenZFS's messages (`zfs_nicebytes`): of powers of two.
fn nice(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

/// The block size of volumes when none is asked for: the least power of two, from the default on, of which half is used
/// wherever it is put (`default_volblocksize`, `cmd/zfs/zfs_main.c`).
fn default_block_size(dsl: &DslPool) -> u64 {
    let least = dsl.store.state().vdevs.least_sensible_block();
    let mut size = BLOCK_SIZE_DEFAULT;
    while size * 2 <= least {
        size *= 2;
    }
    size
}

/// What is unwise about a block size that was asked for (`default_volblocksize`).
fn warning(dsl: &DslPool, shape: Shape) -> String {
    let (size, least, best) =
        (shape.block_size, dsl.store.state().vdevs.least_sensible_block(), default_block_size(dsl));
    if size < BLOCK_SIZE_DEFAULT {
        return format!(
            "Warning: volblocksize ({size}) is less than the default minimum block size ({BLOCK_SIZE_DEFAULT}).\n\
             To reduce wasted space a volblocksize of {best} is recommended."
        );
    }
    if size >= best {
        return String::new();
    }
    let wasted = 100 * (least - size) / least;
    format!(
        "Warning: volblocksize ({size}) is much less than the minimum allocation\nunit ({least}), which wastes at \
         least {wasted}% of space. To reduce wasted space,\nuse a larger volblocksize ({best} is recommended), fewer \
         dRAID data disks\nper group, or smaller sector size (ashift)."
    )
}

/// What the volume that is asked for is made with; `properties` get what is reserved for it.
///
/// # Errors
/// In OpenZFS's words, what is wrong with its size or block size.
pub fn plan(dsl: &DslPool, asked: &NewVolume, properties: &mut BTreeMap<String, String>) -> Result<Shape> {
    let block_size = asked.block_size.unwrap_or_else(|| default_block_size(dsl));
    let most = if dsl.features.is_enabled(Feature::LargeBlocks) { 16 << 20 } else { OLD_BLOCK_MAX };
    if !block_size.is_power_of_two() || !(512..=most).contains(&block_size) {
        return Err(PoolError::invalid(format!("'volblocksize' must be power of 2 from 512B to {}", nice(most))));
    }
    if asked.size == 0 {
        return Err(PoolError::invalid("volume size cannot be zero"));
    }
    let size = asked.size.checked_next_multiple_of(block_size).filter(|size| i64::try_from(*size).is_ok());
    let size = size.ok_or_else(|| PoolError::invalid("volume size exceeds limit for this system"))?;
    let given = properties.get(RESERVED).map(String::as_str);
    if given == Some("auto") || given.is_none() && !asked.sparse {
        let copies = properties.get("copies").and_then(|copies| copies.parse().ok()).unwrap_or(1);
        let reserved = reservation(dsl, Shape { size, block_size }, copies);
        properties.insert(RESERVED.to_owned(), reserved.to_string());
    }
    Ok(Shape { size, block_size })
}

/// What a volume takes at most, with its indirect blocks: what is reserved for one that is not sparse.
pub fn reservation(dsl: &DslPool, shape: Shape, copies: u64) -> u64 {
    let mut blocks = shape.size / shape.block_size;
    // Small blocks on raidz take more than what is counted of large ones.
    let scaled = |(own, typical): (u64, u64)| {
        let scaled = blocks.saturating_mul(own) / Sectors::within(typical).0.max(1);
        scaled.saturating_mul(Sectors::of(OLD_BLOCK_MAX).0)
    };
    let vdevs = &dsl.store.state().vdevs;
    let data = vdevs.raidz_sizes(shape.block_size, OLD_BLOCK_MAX).map(scaled).max().unwrap_or(shape.size);
    let mut above = META_LEVELS;
    while blocks > 1 {
        blocks = blocks.div_ceil(POINTERS);
        above += blocks;
    }
    let above = (above * COPIES_MAX.min(copies + 1)) << MAX_INDIRECT_SHIFT;
    data.saturating_mul(copies).saturating_add(above)
}

/// Fills the new object set `os` with an empty volume, all within `tx`.
///
/// # Errors
/// Out of space, device errors.
pub async fn fill(os: &Arc<Objset>, tx: &Tx, shape: Shape, salt: u64) -> platter_zio::Result<()> {
    os.claim(tx, ObjectId(DATA_OBJECT), NewDnode::plain(ObjectType::ZVOL, shape.block_size as u32)).await?;
    let properties = mos::new_zap(ObjectType::ZVOL_PROP, salt);
    let zap = Zap::create(os, tx, Some(ObjectId(PROPERTIES_OBJECT)), properties).await?;
    zap.put_u64(tx, SIZE.as_bytes(), shape.size).await
}

/// Changes of a volume's properties: those that are set as any others, and the new size.
pub struct Changes {
    /// Settings, with what is reserved as a number.
    pub settings: Vec<(String, Setting)>,
    /// Bytes that it is to have.
    pub size: Option<u64>,
}

/// Parts `settings`, of a volume or of anything else. Whoever had all of a volume reserved has so with the new size
/// (`zfs_add_synthetic_resv`, `zfs_fix_auto_resv`).
///
/// # Errors
/// In OpenZFS's words, what is wrong with the new size.
pub async fn part(dsl: &DslPool, dataset: &Dataset, settings: &[(String, Setting)]) -> Result<Changes> {
    let mut changes = Changes { settings: settings.to_vec(), size: None };
    if dataset.kind != DatasetKind::Volume {
        return Ok(changes);
    }
    if settings.iter().any(|(name, _)| matches!(&**name, "volblocksize" | "volblock")) {
        return Err(PoolError::invalid("'volblocksize' is readonly"));
    }
    if !settings.iter().any(|(name, _)| name == VOLSIZE || is_reservation(name)) {
        return Ok(changes);
    }
    let Contents::Volume(size, block_size) = dataset_report::contents_of(dsl, dataset).await else {
        return Err(PoolError::invalid("its size cannot be read"));
    };
    let shape = Shape { size, block_size };
    changes.settings.retain(|(name, _)| name != VOLSIZE);
    for (_, setting) in settings.iter().filter(|(name, _)| name == VOLSIZE) {
        changes.size = Some(new_size(setting, block_size)?);
    }
    if changes.size.is_some() && number(&dataset.dir, "readonly") != 0 {
        return Err(PoolError::invalid("dataset is read-only"));
    }
    let new = Shape { size: changes.size.unwrap_or(size), ..shape };
    let auto = || Setting::Value(reservation(dsl, new, 1).to_string());
    let mut given = changes.settings.iter_mut().filter(|(name, _)| is_reservation(name)).peekable();
    let had_all = dataset.dir.local_number(RESERVED) == reservation(dsl, shape, 1);
    if given.peek().is_none() && had_all && changes.size.is_some() {
        changes.settings.push((RESERVED.to_owned(), auto()));
        return Ok(changes);
    }
    for (_, setting) in given {
        if matches!(setting, Setting::Value(value) if value == "auto") {
            *setting = auto();
        }
    }
    Ok(changes)
}

fn is_reservation(name: &str) -> bool {
    matches!(name, RESERVED | "refreserv")
}

/// The size that `volsize` is set to.
fn new_size(setting: &Setting, block_size: u64) -> Result<u64> {
    let Setting::Value(text) = setting else {
        return Err(PoolError::invalid(format!("'{VOLSIZE}' property cannot be inherited")));
    };
    let size = numbers::parse(text).map_err(PoolError::invalid)?;
    if !size.is_multiple_of(block_size) {
        let unit = nice(block_size);
        return Err(PoolError::invalid(format!("'{VOLSIZE}' must be a multiple of volume block size ({unit})")));
    }
    if size == 0 {
        return Err(PoolError::invalid(format!("'{VOLSIZE}' cannot be zero")));
    }
    if i64::try_from(size).is_err() {
        return Err(PoolError::invalid("volume size exceeds limit for this system"));
    }
    Ok(size)
}

/// A volume that somebody has open. It is given back with [`DslPool::close_volume`].
pub struct OpenVolume {
    dataset: Arc<Dataset>,
    /// Its object set.
    pub objset: Arc<Objset>,
    /// Its intent log; none when the pool is read-only.
    pub log: Option<Arc<Zil>>,
}

impl OpenVolume {
    async fn tell_size(&self, size: u64) {
        let server = self.dataset.server.lock().clone().and_then(|server| server.upgrade());
        if let Some(server) = server {
            server.resized(size).await;
        }
    }

    /// Who serves it, and is told from now on what changes under it.
    pub fn served_by(&self, server: Weak<dyn Server>) {
        *self.dataset.server.lock() = Some(server);
    }
}

impl DslPool {
    /// What the volume that is asked for would be made with.
    ///
    /// # Errors
    /// As [`create_volume`](Self::create_volume).
    pub fn check_new_volume(&self, asked: &NewVolume, given: &BTreeMap<String, String>) -> Result<Plan> {
        let (shape, properties) = self.parse_new_volume(asked, given)?;
        let reserved = match properties.get(RESERVED) {
            Some(StoredProperty::Number(bytes)) => Some(*bytes),
            _ => None,
        };
        Ok(Plan { shape, reserved, warning: warning(self, shape) })
    }

    pub(crate) fn parse_new_volume(
        &self,
        asked: &NewVolume,
        given: &BTreeMap<String, String>,
    ) -> Result<(Shape, BTreeMap<String, StoredProperty>)> {
        let mut given = given.clone();
        let shape = plan(self, asked, &mut given)?;
        Ok((shape, self.parse_properties(&given)?))
    }

    /// Opens a volume; its log, if a crash left one, is for the caller to replay.
    ///
    /// # Errors
    /// It does not exist, is no volume, is being received or destroyed; device errors, damage.
    pub async fn open_volume(self: &Arc<Self>, name: &str) -> Result<OpenVolume> {
        let dataset = self.find(name)?;
        if dataset.kind != DatasetKind::Volume {
            return Err(PoolError::invalid("it is no volume"));
        }
        // While it is sent nobody waits for that.
        if self.in_use.has(dataset.object) && !self.read_only {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        if dataset.features.lock().contains(&Feature::RedactedDatasets) {
            return Err(PoolError::invalid("blocks were left out of it: it was received redacted"));
        }
        let mut users = dataset.users.clone().lock_owned().await;
        // It may have gone meanwhile.
        if !self.find(name).is_ok_and(|found| Arc::ptr_eq(&found, &dataset)) {
            return Err(PoolError::NotFound("dataset does not exist".into()));
        }
        let objset = self.open_head(&dataset).await?;
        let log = self.log_of(&dataset, &objset);
        *users += 1;
        Ok(OpenVolume { dataset, objset, log })
    }

    /// Gives a volume back. The last one to do so waits until everything is on disk.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn close_volume(&self, volume: OpenVolume) -> Result<()> {
        let OpenVolume { dataset, objset, log } = volume;
        drop((objset, log));
        let mut users = dataset.users.clone().lock_owned().await;
        assert!(*users > 0, "what is given back was opened");
        *users -= 1;
        if *users == 0 { self.close_head(&dataset).await } else { Ok(()) }
    }

    /// Waits for who has just closed the volume `dataset`, for a moment: whoever holds a lock that others want does so
    /// before. What is no volume is never in use here.
    pub async fn wait_closed(&self, dataset: &str) {
        if let Ok(dataset) = self.find(dataset) {
            drop(self.keep_closed(&dataset).await);
        }
    }

    /// Keeps whoever wants to open the volume `dataset` waiting while the result lives. Waits for who has just closed
    /// it.
    ///
    /// # Errors
    /// Somebody has it open.
    pub(crate) async fn keep_closed(&self, dataset: &Dataset) -> Result<OwnedMutexGuard<usize>> {
        let until = Instant::now() + CLOSING;
        loop {
            match self.try_keep_closed(dataset) {
                Err(_) if Instant::now() < until => sleep(LOOK).await,
                closed => return closed,
            }
        }
    }

    /// As [`keep_closed`](Self::keep_closed), at once or not at all.
    ///
    /// # Errors
    /// Somebody has it open.
    pub(crate) fn try_keep_closed(&self, dataset: &Dataset) -> Result<OwnedMutexGuard<usize>> {
        match dataset.users.clone().try_lock_owned() {
            Ok(users) if *users == 0 => Ok(users),
            _ => Err(PoolError::Busy("dataset is busy".into())),
        }
    }

    /// Whether nobody has `dataset` open, or keeps it closed.
    ///
    /// # Errors
    /// It does not exist; somebody has.
    pub fn check_unused(&self, dataset: &str) -> Result<()> {
        self.try_keep_closed(&*self.find(dataset)?).map(drop)
    }

    /// Gives a volume another size; what a smaller one cuts off is freed (`zvol_update_volsize`). Whoever serves the
    /// volume sees to it that nothing is written behind the new end.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; device errors, damage.
    pub(crate) async fn resize_volume(self: &Arc<Self>, name: &str, size: u64) -> Result<()> {
        let open = self.open_volume(name).await?;
        let resized = resize(self, &open, size).await;
        let closed = self.close_volume(open).await;
        resized.and(closed)
    }
}

async fn resize(dsl: &DslPool, open: &OpenVolume, size: u64) -> Result<()> {
    let Contents::Volume(before, block_size) = dataset_report::contents_of(dsl, &open.dataset).await else {
        return Err(PoolError::invalid("its size cannot be read"));
    };
    // Nothing is written behind a nearer end, and behind a farther one only when that is on disk: the log has records
    // of it.
    if size < before {
        open.tell_size(size).await;
    }
    let resized = async {
        store_size(open, size).await?;
        *open.dataset.contents.lock() = Contents::Volume(size, block_size);
        dsl.sync().await
    };
    let resized = resized.await;
    open.tell_size(if resized.is_ok() { size } else { before }).await;
    resized
}

/// Stores another size, and frees what is behind it: both or nothing.
async fn store_size(open: &OpenVolume, size: u64) -> Result<()> {
    let os = &open.objset;
    let (zap, data) = (Zap::open(os, ObjectId(PROPERTIES_OBJECT)).await?, os.dnode(ObjectId(DATA_OBJECT)).await?);
    let tx = os.begin_net_free().await?;
    zap.put_u64(&tx, SIZE.as_bytes(), size).await?;
    Ok(data.free_range(&tx, size, u64::MAX).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_size_is_a_multiple_of_the_block_size() {
        let set = |text: &str| new_size(&Setting::Value(text.into()), 16 << 10).map_err(|error| error.to_string());
        assert_eq!(set("1G").unwrap(), 1 << 30);
        assert!(set("100K").unwrap_err().contains("'volsize' must be a multiple of volume block size (16K)"));
        assert!(set("0").unwrap_err().contains("'volsize' cannot be zero"));
        assert!(set("16E").is_err() && set("8E").is_err());
        assert!(new_size(&Setting::Inherit, 512).is_err());
    }
}
