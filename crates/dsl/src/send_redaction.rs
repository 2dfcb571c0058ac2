//! What a stream leaves out on purpose, and what it has although it did not change since: the changes of a snapshot are
//! put together with lists of blocks (`send_merge_thread`, `find_next_range`, `module/zfs/dmu_send.c`).
//!
//! ```text
//! changes since ─────────────────┐
//! blocks that are left out now ──┼─► in the order of their objects: a block, or that it is left out
//! blocks that were left out then ┘   (now and then: nothing; then alone: the block, changed or not)
//! ```

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::changes::{Change, ChangeVisitor};
use platter_dmu::{Dnode, Objset};
use platter_ondisk::ObjectId;
use platter_zio::{Result, ZioError};
use tokio::sync::{Mutex, mpsc};

use crate::redaction_list::{Entries, RedactedBlocks};

/// What goes into a stream.
pub(crate) enum Item {
    /// Something that is there.
    Change(Change),
    /// Bytes of an object that are left out: the object, the first, how many.
    Redacted(ObjectId, u64, u64),
}

/// Blocks that are left out, or were.
#[derive(Default)]
pub(crate) struct Lists {
    /// Of what is sent.
    pub(crate) now: Option<Entries>,
    /// Of what the other side has.
    pub(crate) then: Option<Entries>,
}

/// Puts changes together with lists, and hands on what comes of it.
pub(crate) struct Merge {
    to: mpsc::Sender<Item>,
    os: Arc<Objset>,
    lists: Mutex<Lists>,
}

/// The next blocks of a list.
fn front(list: Option<&Entries>) -> Option<RedactedBlocks> {
    list.and_then(Entries::peek)
}

/// Whether block `blkid` of `object` is the next in a list.
fn is_next(list: Option<&Entries>, object: u64, blkid: u64) -> bool {
    front(list).is_some_and(|front| front.object.0 == object && front.first == blkid)
}

impl Lists {
    /// Passes over all in front of block `blkid` of `object`, in both.
    async fn skip_to(&mut self, object: u64, blkid: u64) -> Result<()> {
        for list in [&mut self.now, &mut self.then].into_iter().flatten() {
            list.skip_to(object, blkid).await?;
        }
        Ok(())
    }
}

impl Merge {
    /// Of a snapshot whose object set is `os`; what lies in front of block `blkid` of `object` was sent before.
    pub(crate) async fn new(
        to: mpsc::Sender<Item>,
        os: Arc<Objset>,
        mut lists: Lists,
        (object, blkid): (u64, u64),
    ) -> Result<Self> {
        lists.skip_to(object, blkid).await?;
        Ok(Self { to, os, lists: Mutex::new(lists) })
    }

    async fn hand(&self, item: Item) -> Result<()> {
        let gone = |_| ZioError::Io("nobody takes the stream any more".into());
        self.to.send(item).await.map_err(gone)
    }

    /// Hands on what the lists have in front of block `blkid` of `object`.
    async fn up_to(&self, lists: &mut Lists, object: u64, blkid: u64) -> Result<()> {
        loop {
            let (now, then) = (front(lists.now.as_ref()), front(lists.then.as_ref()));
            let at = |blocks: Option<RedactedBlocks>| blocks.map(|blocks| (blocks.object.0, blocks.first));
            let places = [at(now), at(then)];
            let Some(first) = places.into_iter().flatten().min() else { return Ok(()) };
            if first >= (object, blkid) {
                return Ok(());
            }
            // As far as it is the same in both.
            let mut end = if first.0 == object { blkid } else { u64::MAX };
            for blocks in [now, then].into_iter().flatten().filter(|blocks| blocks.object.0 == first.0) {
                let behind = blocks.first.saturating_add(blocks.count);
                end = end.min(if blocks.first > first.1 { blocks.first } else { behind });
            }
            let count = end - first.1;
            match (places[0] == Some(first), places[1] == Some(first)) {
                (true, false) => self.redacted(first, count, now).await?,
                (false, true) => self.again(first, count).await?,
                _ => {}
            }
            lists.skip_to(first.0, end).await?;
        }
    }

    async fn redacted(&self, (object, first): (u64, u64), count: u64, of: Option<RedactedBlocks>) -> Result<()> {
        let size = of.map_or(0, |blocks| blocks.block_size);
        self.hand(Item::Redacted(ObjectId(object), first.saturating_mul(size), count.saturating_mul(size))).await
    }

    /// Blocks that were left out then and are not now, though they may be as they were.
    async fn again(&self, (object, first): (u64, u64), count: u64) -> Result<()> {
        let dnode = match self.os.dnode(ObjectId(object)).await {
            Ok(dnode) => dnode,
            // What is gone is told of by the walk.
            Err(ZioError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let size = u64::from(dnode.block_size());
        let end = first.saturating_add(count).min(dnode.info().max_blkid.saturating_add(1));
        let mut at = first;
        while at < end {
            let data = dnode.seek(at.saturating_mul(size), false).await?;
            let next = data.map_or(end, |offset| (offset / size).clamp(at, end));
            if next > at {
                self.hole(&dnode, at, next - 1).await?;
            }
            if next < end {
                let bp = dnode.block_pointer(next).await?;
                let object = dnode.object();
                self.hand(Item::Change(Change::Data { object, dnode: dnode.phys(), blkid: next, bp })).await?;
            }
            at = next.saturating_add(1);
        }
        Ok(())
    }

    async fn hole(&self, dnode: &Dnode, first: u64, last: u64) -> Result<()> {
        self.hand(Item::Change(Change::Hole { object: dnode.object(), dnode: dnode.phys(), first, last })).await
    }

    /// What the lists have behind the last change.
    ///
    /// # Errors
    /// Damaged blocks; nobody takes the stream any more.
    pub(crate) async fn finish(self) -> Result<()> {
        let mut lists = self.lists.lock().await;
        self.up_to(&mut lists, u64::MAX, u64::MAX).await
    }

    async fn merge(&self, change: Change) -> Result<()> {
        let mut lists = self.lists.lock().await;
        let lists = &mut *lists;
        match &change {
            Change::Object(object, _) => self.up_to(lists, object.0, 0).await?,
            Change::Spill(object, _) => self.up_to(lists, object.0, u64::MAX).await?,
            Change::NoObjects(first, count) => {
                self.up_to(lists, *first, 0).await?;
                lists.skip_to(first.saturating_add(*count), 0).await?;
            }
            // To leave out what is not there is the same.
            Change::Hole { object, first, last, .. } => {
                self.up_to(lists, object.0, *first).await?;
                lists.skip_to(object.0, last.saturating_add(1)).await?;
            }
            Change::Data { object, blkid, dnode, .. } => {
                self.up_to(lists, object.0, *blkid).await?;
                let (now, then) =
                    (is_next(lists.now.as_ref(), object.0, *blkid), is_next(lists.then.as_ref(), object.0, *blkid));
                lists.skip_to(object.0, blkid.saturating_add(1)).await?;
                let size = dnode.data_block_size();
                match (now, then) {
                    (true, true) => return Ok(()),
                    (true, false) => {
                        return self.hand(Item::Redacted(*object, blkid.saturating_mul(size), size)).await;
                    }
                    (false, _) => {}
                }
            }
        }
        self.hand(Item::Change(change)).await
    }
}

impl ChangeVisitor for Merge {
    fn change(&self, change: Change) -> BoxFuture<'_, Result<()>> {
        self.merge(change).boxed()
    }
}
