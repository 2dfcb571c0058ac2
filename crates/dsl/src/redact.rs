//! `zfs redact`: a bookmark of a snapshot with a list of its blocks that none of some later snapshots has any more
//! (`dmu_redact_snap`, `module/zfs/dmu_redact.c`).
//!
//! ```text
//! changes of each later snapshot since ─► ranges, in order ─┐
//!                                      ─► ranges, in order ─┴► what is in all of them ─► the snapshot's blocks there
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use platter_dmu::changes::{Change, ChangeVisitor, From, changes};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_ondisk::features::Feature;
use platter_ondisk::{BlkPtr, Guid, ObjectId, ObjsetType, Txg};
use platter_zio::{BlockStore, ZioError};
use tokio::sync::mpsc;

use crate::error::{PoolError, Result};
use crate::in_use::Kept;
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::redaction_list::{self, RedactedBlocks, RedactionHead, SNAPSHOTS_MAX};
use crate::snapshot::SnapshotBonus;

/// The object that leads to a file system's others, and its entry for files that are open and have no name
/// (`MASTER_NODE_OBJ`, `ZFS_UNLINKED_SET`, `include/sys/zfs_znode.h`).
const MASTER_NODE: ObjectId = ObjectId(1);
const UNLINKED: &[u8] = b"DELETE_QUEUE";
/// Ranges that wait to be compared.
const AHEAD: usize = 256;
/// Entries of the list that are written in one task.
const AT_ONCE: usize = 32 << 10;

/// A block: its object and number.
type Place = (u64, u64);

/// Blocks from one to another, which may be of another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: Place,
    last: Place,
}

/// Says what changed in a later snapshot, as ranges.
struct Ranges {
    to: mpsc::Sender<platter_zio::Result<Range>>,
    /// Files without a name: all of them is as good as gone.
    unlinked: BTreeSet<u64>,
    /// What lies behind the end of the object that is looked at: it may have been longer.
    behind: Mutex<Option<Range>>,
}

impl Ranges {
    async fn say(&self, range: Range) -> platter_zio::Result<()> {
        let gone = |_| ZioError::Io("nobody compares them any more".into());
        self.to.send(Ok(range)).await.map_err(gone)
    }

    /// There is nothing more of the object that was looked at; `next` lies behind the next one's end.
    async fn leave(&self, next: Option<Range>) -> platter_zio::Result<()> {
        let behind = std::mem::replace(&mut *self.behind.lock(), next);
        match behind {
            Some(range) => self.say(range).await,
            None => Ok(()),
        }
    }
}

impl ChangeVisitor for Ranges {
    fn change(&self, change: Change) -> BoxFuture<'_, platter_zio::Result<()>> {
        async move {
            let whole = |object: u64| Range { first: (object, 0), last: (object, u64::MAX) };
            let range = match change {
                Change::Object(object, _) if self.unlinked.contains(&object.0) => {
                    self.leave(None).await?;
                    whole(object.0)
                }
                Change::Object(object, dnode) => {
                    let first = (object.0, dnode.max_blkid.saturating_add(1));
                    return self.leave(Some(Range { first, last: (object.0, u64::MAX) })).await;
                }
                Change::NoObjects(first, count) => {
                    self.leave(None).await?;
                    let last = first.saturating_add(count).saturating_sub(1);
                    Range { first: (first.max(1), 0), last: (last, u64::MAX) }
                }
                Change::Data { object, blkid, .. } if !self.unlinked.contains(&object.0) => {
                    Range { first: (object.0, blkid), last: (object.0, blkid) }
                }
                Change::Hole { object, first, last, .. } if !self.unlinked.contains(&object.0) => {
                    Range { first: (object.0, first), last: (object.0, last) }
                }
                _ => return Ok(()),
            };
            self.say(range).await
        }
        .boxed()
    }
}

/// Objects of files that are open and have no name.
async fn unlinked(os: &Arc<Objset>) -> Result<BTreeSet<u64>> {
    if os.kind() != ObjsetType::ZFS {
        return Ok(BTreeSet::new());
    }
    let Some(queue) = Zap::open(os, MASTER_NODE).await?.get_u64(UNLINKED).await? else { return Ok(BTreeSet::new()) };
    let entries = Zap::open(os, ObjectId(queue)).await?.all().await?;
    Ok(entries.iter().filter_map(|entry| entry.value.integers.first().copied()).collect())
}

/// Blocks that are in a range of each of several lists, in order.
struct InAll {
    lists: Vec<mpsc::Receiver<platter_zio::Result<Range>>>,
    /// The range of each that comes next; none once one of them has no more.
    fronts: Option<Vec<Range>>,
}

impl InAll {
    async fn of(mut lists: Vec<mpsc::Receiver<platter_zio::Result<Range>>>) -> Result<Self> {
        let mut fronts = Vec::new();
        for list in &mut lists {
            fronts.extend(list.recv().await.transpose()?);
        }
        let all = fronts.len() == lists.len() && !lists.is_empty();
        Ok(Self { lists, fronts: all.then_some(fronts) })
    }

    /// The next of them; none when one of the lists is at its end.
    async fn next(&mut self) -> Result<Option<Range>> {
        while let Some(fronts) = &mut self.fronts {
            let first = fronts.iter().map(|range| range.first).max().unwrap_or_default();
            let ends = fronts.iter().map(|range| range.last).enumerate();
            let Some((at, last)) = ends.min_by_key(|&(_, last)| last) else { return Ok(None) };
            // The one that ends first has nothing to say about what follows.
            match self.lists[at].recv().await.transpose()? {
                Some(next) => fronts[at] = next,
                None => self.fronts = None,
            }
            if first <= last {
                return Ok(Some(Range { first, last }));
            }
        }
        Ok(None)
    }
}

/// A snapshot that is redacted, or for whose sake that is done.
struct Held {
    object: ObjectId,
    guid: Guid,
    bp: BlkPtr,
    os: Arc<Objset>,
    _kept: Kept,
}

/// Writes a list down.
struct Writing<'a> {
    dsl: &'a Arc<DslPool>,
    list: ObjectId,
    head: RedactionHead,
    waiting: Vec<RedactedBlocks>,
}

impl Writing<'_> {
    async fn add(&mut self, mut blocks: RedactedBlocks) -> Result<()> {
        if let Some(last) = self.waiting.last_mut()
            && last.object == blocks.object
            && last.block_size == blocks.block_size
            && last.first + last.count == blocks.first
            && last.count + blocks.count <= RedactedBlocks::COUNT_MAX
        {
            last.count += blocks.count;
            return Ok(());
        }
        while blocks.count > 0 {
            let count = blocks.count.min(RedactedBlocks::COUNT_MAX);
            self.waiting.push(RedactedBlocks { count, ..blocks });
            (blocks.first, blocks.count) = (blocks.first.saturating_add(count), blocks.count - count);
        }
        if self.waiting.len() > AT_ONCE {
            // The last of them may go on.
            let last = self.waiting.split_off(self.waiting.len() - 1);
            let reached =
                self.waiting.last().map_or((0, 0), |blocks| (blocks.object.0, blocks.first + blocks.count - 1));
            self.store(reached).await?;
            self.waiting = last;
        }
        Ok(())
    }

    /// Writes what waits; all up to `reached` was looked at.
    async fn store(&mut self, reached: Place) -> Result<()> {
        let (entries, list) = (std::mem::take(&mut self.waiting), self.list);
        let mut head = RedactionHead { last: reached, ..self.head.clone() };
        let expected = self.head.clone();
        let check = async move |dsl: Arc<DslPool>| {
            crate::space::check_task(&dsl)?;
            // Somebody may have destroyed the bookmark, or begun it anew.
            match redaction_list::load(&dsl.mos, list).await {
                Ok(there) if there == expected => Ok(()),
                _ => Err(PoolError::Busy("the bookmark was changed meanwhile".into())),
            }
        };
        let store = async move |dsl: Arc<DslPool>, tx: Tx, ()| {
            redaction_list::append(&dsl, &tx, list, &mut head, &entries).await?;
            Ok(head)
        };
        self.head = self.dsl.checked_task(check, store).await?;
        Ok(())
    }
}

fn missing(name: &str) -> PoolError {
    PoolError::NotFound(format!("provided snapshot {name} does not exist"))
}

fn redacted_already() -> PoolError {
    PoolError::invalid("attempted to redact redacted dataset or with respect to redacted dataset")
}

impl DslPool {
    async fn hold_for_redaction(&self, name: &str) -> Result<Held> {
        let found = match name.contains('@') {
            true => named_snapshot::find(self, name).await?,
            false => None,
        };
        let found = found.ok_or_else(|| missing(name))?;
        let kept = self.in_use.keep(found.object);
        let phys = SnapshotBonus::load(&self.mos, found.object).await?.phys;
        if crate::redacted::snapshots_of(self, found.object).await?.is_some() {
            return Err(redacted_already());
        }
        let os = self.open_snapshot(&found.full_name).await?;
        Ok(Held { object: found.object, guid: phys.guid, bp: phys.bp, os, _kept: kept })
    }

    /// `zfs redact`: makes bookmark `name` of `snapshot`, with what none of `others`, which descend from it, has.
    ///
    /// # Errors
    /// Snapshots that do not exist, do not descend or are redacted themselves; the bookmark exists; the pool lacks the
    /// feature, is read-only or stopped; damage.
    pub async fn redact(self: &Arc<Self>, snapshot: &str, name: &str, others: &[String]) -> Result<()> {
        if !self.features.is_enabled(Feature::RedactionBookmarks) {
            return Err(PoolError::Unsupported("redaction bookmarks feature not enabled".into()));
        }
        if name.contains('#') {
            return Err(PoolError::invalid("redaction bookmark name must not contain '#'"));
        }
        if others.len() > SNAPSHOTS_MAX {
            return Err(PoolError::invalid("too many redaction snapshots specified"));
        }
        let base = self.hold_for_redaction(snapshot).await?;
        let since = SnapshotBonus::load(&self.mos, base.object).await?.phys.creation_txg;
        let mut held = Vec::new();
        for other in others {
            let found = self.hold_for_redaction(other).await?;
            if self.check_descends(other, snapshot).await.is_err() || found.object == base.object {
                return Err(PoolError::invalid("redaction snapshot must be descendent of snapshot being redacted"));
            }
            held.push(found);
        }
        let dataset = snapshot.split('@').next().unwrap_or_default();
        let full_name = format!("{dataset}#{name}");
        let head = RedactionHead { last: (0, 0), entries: 0, snaps: held.iter().map(|held| held.guid).collect() };
        let list = self.create_redaction(snapshot, &full_name, head.clone()).await.map_err(|error| match error {
            PoolError::Exists(_) => {
                PoolError::Exists(format!("specified redaction bookmark ({name}) provided already exists"))
            }
            error => error,
        })?;
        let mut writing = Writing { dsl: self, list, head, waiting: Vec::new() };
        let done = self.find_redacted(&base, since, &held, &mut writing).await;
        if done.is_err() {
            // What is not complete is of no use.
            let _ = self.destroy_bookmark(&full_name).await;
        }
        done
    }

    async fn find_redacted(
        self: &Arc<Self>,
        base: &Held,
        since: Txg,
        others: &[Held],
        writing: &mut Writing<'_>,
    ) -> Result<()> {
        let store: Arc<dyn BlockStore> = Arc::new(self.store.clone());
        let (mut lists, mut walks) = (Vec::new(), Vec::new());
        for other in others {
            let (to, list) = mpsc::channel(AHEAD);
            lists.push(list);
            let ranges = Ranges { to: to.clone(), unlinked: unlinked(&other.os).await?, behind: Mutex::default() };
            let store = &store;
            walks.push(async move {
                let walked = async {
                    changes(store, other.object, &other.bp, since, From::default(), &ranges).await?;
                    ranges.leave(None).await
                };
                if let Err(error) = walked.await {
                    // Nobody hears it who has all that is needed.
                    let _ = to.send(Err(error)).await;
                }
            });
        }
        let compare = async {
            let mut in_all = InAll::of(lists).await?;
            while let Some(range) = in_all.next().await? {
                add_blocks(&base.os, range, writing).await?;
            }
            Ok(())
        };
        let (_, compared) = tokio::join!(join_all(walks), compare);
        let compared: Result<()> = compared;
        compared?;
        writing.store((u64::MAX, u64::MAX)).await
    }
}

/// Adds the snapshot's blocks that are in a range: of files and volumes, not of what describes them.
async fn add_blocks(os: &Arc<Objset>, range: Range, writing: &mut Writing<'_>) -> Result<()> {
    let mut after = ObjectId(range.first.0.saturating_sub(1));
    while let Some(object) = os.next_object(after).await? {
        after = object;
        if object.0 > range.last.0 {
            return Ok(());
        }
        let dnode = os.dnode(object).await?;
        let info = dnode.info();
        if object.0 < range.first.0 || info.object_type.is_metadata() {
            continue;
        }
        let first = if object.0 == range.first.0 { range.first.1 } else { 0 };
        let last = if object.0 == range.last.0 { range.last.1.min(info.max_blkid) } else { info.max_blkid };
        if first > last {
            continue;
        }
        let block_size = u64::from(dnode.block_size());
        writing.add(RedactedBlocks { object, first, count: (last - first).saturating_add(1), block_size }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn merged(lists: &[&[(Place, Place)]]) -> Vec<(Place, Place)> {
        let mut receivers = Vec::new();
        for list in lists {
            let (to, receiver) = mpsc::channel(list.len().max(1));
            for &(first, last) in *list {
                to.send(Ok(Range { first, last })).await.unwrap();
            }
            receivers.push(receiver);
        }
        let mut in_all = InAll::of(receivers).await.unwrap();
        let mut found = Vec::new();
        while let Some(Range { first, last }) = in_all.next().await.unwrap() {
            found.push((first, last));
        }
        found
    }

    #[tokio::test]
    async fn what_is_in_all_lists_is_found() {
        let one = |from, to| ((1, from), (1, to));
        assert_eq!(merged(&[&[one(0, 9)]]).await, [one(0, 9)]);
        assert_eq!(merged(&[&[one(0, 9)], &[one(3, 4), one(6, 20)]]).await, [one(3, 4), one(6, 9)]);
        assert_eq!(merged(&[&[one(0, 4)], &[one(5, 20)]]).await, []);
        assert_eq!(merged(&[&[one(0, 4)], &[]]).await, []);
        let third = [one(5, 6), one(8, 30)];
        assert_eq!(merged(&[&[one(0, 20)], &[one(2, 5), one(7, 9)], &third]).await, [one(5, 5), one(8, 9)]);
        let objects = [((2, 0), (7, u64::MAX))];
        assert_eq!(merged(&[&objects, &[((1, 4), (3, 6)), ((9, 0), (9, 1))]]).await, [((2, 0), (3, 6))]);
    }
}
