//! The list of objects with lost blocks, in the MOS (`module/zfs/spa_errlog.c`): a ZAP whose names are bookmarks.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Objset, Result, Tx};
use platter_dsl::mos;
use platter_ondisk::features::Feature;
use platter_ondisk::{BlkPtr, ObjectId, ObjectType};
use platter_zio::Bookmark;

use crate::core::Core;
use crate::error_heads::{self, LostBlock};
use crate::lost::{InDataset, Lost};
use crate::{error_holders, family};

/// More entries are not loaded: the message is the same.
const ENTRIES_MAX: usize = 100_000;

/// For so long damage that readers come across gathers before it is written: one that reads a whole damaged file comes
/// across much. (OpenZFS writes it with each group.)
const GATHER: Duration = Duration::from_secs(5);
/// After so long whoever waits for new damage looks whether the pool is there still.
const LOOK: Duration = Duration::from_secs(60);

/// Notes that a block is lost.
pub fn note(core: &Core, bookmark: Bookmark, bp: &BlkPtr) {
    let object = (bookmark.objset, bookmark.object);
    let (is_new, is_listed) = {
        let mut damaged = core.damaged.lock();
        (add(core, &mut damaged, object), damaged.contains(&object))
    };
    if is_listed && core.new_damage.is_first(bookmark, bp.physical_birth()) {
        core.new_damage.found.lock().add(bookmark, bp);
        core.new_damage.noted.notify_one();
    }
    if is_new {
        core.new_damage.comes();
    }
    // A scan under way has passed it, or does not come there: its end does not make that whole.
    let scanned = core.scan.lock().lost.upgrade();
    if let Some(lost) = scanned {
        let mut lost = lost.lock();
        if family::is_there(core, bookmark.objset) {
            lost.add(bookmark, bp);
        }
    }
}

/// Adds an object to what is known, unless its data set is gone; `true` if it is new. `known` is locked, so that
/// [`forget`] comes before or after.
fn add(core: &Core, known: &mut BTreeSet<InDataset>, object: InDataset) -> bool {
    !known.contains(&object) && family::is_there(core, object.0) && known.insert(object)
}

fn remove(known: &mut BTreeSet<InDataset>, objset: ObjectId) -> bool {
    let of_it = known.range((objset, ObjectId(0))..=(objset, ObjectId(u64::MAX)));
    let of_it: Vec<_> = of_it.copied().collect();
    for object in &of_it {
        known.remove(object);
    }
    !of_it.is_empty()
}

/// A data set or snapshot is being destroyed: what it lacked nobody misses, and its number may be another's soon
/// (`spa_delete_dataset_errlog`).
pub fn forget(core: &Core, objset: ObjectId) {
    assert!(!family::is_there(core, objset), "what is forgotten can be added no more");
    // It is not found again by the scan that may be under way.
    let scanned = core.scan.lock().lost.upgrade();
    if let Some(lost) = scanned {
        remove(&mut lost.lock().objects, objset);
    }
    if remove(&mut core.damaged.lock(), objset) {
        core.new_damage.comes();
    }
}

/// Looks for what else lost the blocks that `lost` found so far, and adds it to these. What an interrupted scan leaves
/// is looked for later, as if a reader had come across it.
pub async fn spread(core: &Arc<Core>, lost: &Mutex<Lost>) {
    let blocks = lost.lock().blocks.take();
    let is_over = || core.is_over() || core.scan.lock().is_interrupted();
    let left = error_holders::spread(core, blocks, is_over, |other, _| {
        add(core, &mut lost.lock().objects, other);
    });
    let left = left.await;
    if !left.is_empty() {
        core.new_damage.found.lock().extend(left);
        core.new_damage.noted.notify_one();
    }
}

/// Looks for what else lost what readers came across, and writes both, until the pool is closed.
pub async fn watch(weak: Weak<Core>) {
    let Some(noted) = weak.upgrade().map(|core| core.new_damage.noted.clone()) else { return };
    loop {
        let is_new = tokio::time::timeout(LOOK, noted.notified()).await.is_ok();
        if is_new {
            tokio::time::sleep(GATHER).await;
        }
        match weak.upgrade() {
            Some(core) if !core.is_over() => {
                spread_new(&core).await;
                write_new(&core).await;
            }
            _ => return,
        }
    }
}

/// Looks for what else lost the blocks that readers came across.
pub async fn spread_new(core: &Arc<Core>) {
    let found = core.new_damage.found.lock().take();
    let is_over = || core.is_over() || core.dsl.store.suspension().is_suspended();
    let left = error_holders::spread(core, found, is_over, |other, origin| {
        let mut damaged = core.damaged.lock();
        // A scrub may have found it whole meanwhile, or somebody cleared the list.
        if damaged.contains(&origin) && add(core, &mut damaged, other) {
            core.new_damage.comes();
        }
    });
    let left = left.await;
    core.new_damage.found.lock().extend(left);
}

/// Writes what readers came across since the list was last written.
pub async fn write_new(core: &Arc<Core>) {
    if core.dsl.read_only || !core.new_damage.is_there() || core.dsl.store.suspension().is_suspended() {
        return;
    }
    if let Err(error) = core.task(async |core, tx| Ok(write(&core, &tx).await?)).await {
        core.new_damage.is_kept();
        tracing::warn!(pool = core.name(), %error, "the list of errors could not be written");
    }
}

/// Replaces the log of the last scrub with the known errors, and drops the log of errors since.
///
/// # Errors
/// Out of space, device errors.
pub async fn write(core: &Arc<Core>, tx: &Tx) -> Result<()> {
    for name in [mos::ERRLOG_LAST, mos::ERRLOG_SCRUB] {
        if let Some(object) = core.dsl.directory.get_u64(name.as_bytes()).await?.filter(|&o| o != 0) {
            // Of either shape: the feature may have come since.
            error_heads::free_lists(core, tx, ObjectId(object)).await?;
            core.dsl.mos.free_object(tx, ObjectId(object)).await?;
            core.dsl.directory.put_u64(tx, name.as_bytes(), 0).await?;
        }
    }
    core.new_damage.is_written();
    let damaged = core.damaged.lock().clone();
    if damaged.is_empty() {
        return Ok(());
    }
    let object = mos::create_zap(&core.dsl.mos, tx, ObjectType::ERROR_LOG, core.random()).await?;
    let zap = Zap::open(&core.dsl.mos, object).await?;
    let listed = damaged.iter().copied().take(ENTRIES_MAX);
    if core.dsl.features.is_active(Feature::HeadErrlog) {
        error_heads::write(core, tx, &zap, listed).await?;
        return core.dsl.directory.put_u64(tx, mos::ERRLOG_LAST.as_bytes(), object.0).await;
    }
    for (objset, object) in listed {
        let name = format!("{:x}:{:x}:0:0", objset.0, object.0);
        let empty = ZapValue { integer_size: 1, integers: vec![0] };
        zap.put(tx, name.as_bytes(), &empty).await?;
    }
    core.dsl.directory.put_u64(tx, mos::ERRLOG_LAST.as_bytes(), object.0).await
}

/// What a pool's logs list.
#[derive(Debug, Default)]
pub struct Listed {
    /// Objects, each with its data set.
    pub damaged: BTreeSet<InDataset>,
    /// Blocks of which is to be found out yet [who has them](crate::error_holders::note).
    pub blocks: Vec<LostBlock>,
}

/// Loads both logs, `by_heads` with feature `head_errlog`. One that cannot be read is passed over: the pool is needed
/// more than its list.
pub async fn load(os: &Arc<Objset>, directory: &Zap, by_heads: bool) -> Listed {
    let mut listed = Listed::default();
    for name in [mos::ERRLOG_LAST, mos::ERRLOG_SCRUB] {
        if let Err(error) = load_one(os, directory, name, by_heads, &mut listed).await {
            tracing::warn!(%error, "the list of errors {name} cannot be read");
        }
    }
    listed
}

async fn load_one(os: &Arc<Objset>, directory: &Zap, name: &str, by_heads: bool, listed: &mut Listed) -> Result<()> {
    if let Some(object) = directory.get_u64(name.as_bytes()).await?.filter(|&object| object != 0) {
        let log = Zap::open(os, ObjectId(object)).await?;
        if by_heads {
            listed.blocks.extend(error_heads::read(os, &log, ENTRIES_MAX).await?);
            return Ok(());
        }
        for entry in log.entries(0, ENTRIES_MAX).await? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let mut numbers = name.split(':').map(|part| u64::from_str_radix(part, 16));
            if let (Some(Ok(objset)), Some(Ok(object))) = (numbers.next(), numbers.next()) {
                listed.damaged.insert((ObjectId(objset), ObjectId(object)));
            }
        }
    }
    Ok(())
}
