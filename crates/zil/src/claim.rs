//! After a crash: which blocks a log consists of (`zil_claim`, `zil_destroy_sync`).

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt, stream};
use platter_dmu::{Result, ZioError};
use platter_ondisk::zil::record::{Record, WriteData};
use platter_ondisk::zil::{ZIL_CLAIM_LR_SEQ_VALID, ZIL_REPLAY_NEEDED, ZilHeader};
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::BlockStore;
use platter_zio::Store;

use crate::chain::{Chain, passes};

/// Blocks that are completed together.
const AT_ONCE: usize = 32;

/// What is to be done about a log that no group knows yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Blocks to be marked as allocated.
    pub blocks: Vec<BlkPtr>,
    /// The header that says so, to be stored in the same group.
    pub header: ZilHeader,
    /// Blocks to be freed in that group, of a log that is given up.
    pub unneeded: Vec<BlkPtr>,
    /// The log as far as it was read: not the block that was allocated for what would have come next, but also those of
    /// groups that are on disk.
    log: Vec<BlkPtr>,
    /// What its records lead to.
    data: Vec<BlkPtr>,
}

impl Claim {
    /// The log at `header` is given up: a device that has part of it is gone for good. What else of it was allocated
    /// before group `first` can be read is to be freed (`zil_clear_log_block`, `module/zfs/zil.c`).
    pub async fn give_up(store: &Store, header: &ZilHeader, first: Txg) -> Self {
        let (mut unneeded, mut seen) = (Vec::new(), Seen::default());
        let is_claimed = header.claim_txg.0 != 0;
        let mut chain = Chain::new(store, header);
        let mut note = |bp: &BlkPtr| {
            if (is_claimed || bp.birth() < first) && seen.is_new(bp) {
                unneeded.push(*bp);
            }
        };
        loop {
            let at = chain.at();
            match chain.next().await {
                Ok(None) => break,
                Ok(Some(link)) => {
                    note(&link.bp);
                    for (record_header, record) in link.records.into_iter().flatten() {
                        // Before it was claimed nothing that records lead to was allocated.
                        data_block(&record, header.claim_txg).filter(|_| is_claimed).into_iter().for_each(&mut note);
                        chain.count(record_header);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "an intent log ends at a block that nobody has any more");
                    note(&at);
                    break;
                }
            }
        }
        Self { header: ZilHeader::default(), unneeded, blocks: Vec::new(), log: Vec::new(), data: Vec::new() }
    }

    /// Gives every device of the blocks what it should hold. The power may have failed when only one side of a mirror
    /// had taken the last of them: from now on they count, and one bad read would make the log a damaged one.
    pub async fn complete(&self, store: &Store) {
        // Whoever replays the log meets what is lost again, and is told.
        complete(store, &self.log, &self.data).await;
    }
}

/// Gives every device what it should hold of these blocks. Returns those that cannot be read any more.
async fn complete(store: &Store, log: &[BlkPtr], data: &[BlkPtr]) -> Vec<BlkPtr> {
    let log = log.iter().map(|bp| async move { (bp, complete_log(store, bp).await) }.boxed());
    let data = data.iter().map(|bp| async move { (bp, store.complete_block(bp).await) }.boxed());
    let mut completed = stream::iter(log.chain(data).collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    let mut lost = Vec::new();
    while let Some((bp, completed)) = completed.next().await {
        if let Err(error) = completed {
            tracing::warn!(%error, "a block of an intent log could be read before, and cannot any more");
            lost.push(*bp);
        }
    }
    lost
}

/// Gives every device what it should hold of the claimed log at `header`, which waits to be replayed: devices that were
/// away when it was written lack it. Returns the blocks that cannot be had.
///
/// # Errors
/// As [`Chain::next`].
pub async fn complete_waiting(store: &Store, header: &ZilHeader) -> Result<Vec<BlkPtr>> {
    let Contents { log, data, .. } = Contents::read(store, header).await?;
    Ok(complete(store, &log, &data).await)
}

async fn complete_log(store: &Store, bp: &BlkPtr) -> Result<()> {
    store.complete_log(bp, &passes(bp)?).await
}

/// Blocks by their first address: a record may be in two blocks of a log, and lead to the same data.
#[derive(Default)]
struct Seen(BTreeSet<(u32, u64)>);

impl Seen {
    fn is_new(&mut self, bp: &BlkPtr) -> bool {
        let dva = bp.dva(0);
        self.0.insert((dva.vdev, dva.offset))
    }
}

/// The data block that a record leads to, when it was born in `first` or later.
fn data_block(record: &Record, first: Txg) -> Option<&BlkPtr> {
    match record {
        Record::Write(write) => match &write.data {
            WriteData::Block(bp) if bp.birth() >= first && !bp.is_hole() && !bp.is_embedded() => Some(bp),
            _ => None,
        },
        _ => None,
    }
}

/// What a claimed log has allocated, each block once.
#[derive(Default)]
struct Contents {
    /// The log as far as it was written.
    log: Vec<BlkPtr>,
    /// What was allocated for what would have come next.
    unwritten: Vec<BlkPtr>,
    /// What records lead to.
    data: Vec<BlkPtr>,
}

impl Contents {
    async fn read(store: &Store, header: &ZilHeader) -> Result<Self> {
        let (mut contents, mut seen) = (Self::default(), Seen::default());
        let mut chain = Chain::new(store, header);
        while let Some(link) = chain.next().await? {
            let is_new = seen.is_new(&link.bp).then_some(link.bp);
            if link.records.is_some() { &mut contents.log } else { &mut contents.unwritten }.extend(is_new);
            for (record_header, record) in link.records.into_iter().flatten() {
                contents.data.extend(data_block(&record, header.claim_txg).filter(|bp| seen.is_new(bp)));
                chain.count(record_header);
            }
        }
        Ok(contents)
    }
}

/// Looks at the log of an object set when the pool is opened; `first` is the first group to be synced. `None` when
/// there is nothing to claim: no log, or one that was claimed before.
///
/// # Errors
/// As [`Chain::next`]; cloned blocks.
pub async fn survey(store: &Store, header: &ZilHeader, first: Txg) -> Result<Option<Claim>> {
    if header.log.is_hole() || header.claim_txg.0 != 0 {
        return Ok(None);
    }
    let (mut blocks, mut log, mut data, mut seen) = (Vec::new(), Vec::new(), Vec::new(), Seen::default());
    // Each data block is read to see whether it is there: once, however many records lead to it, and no more of them
    // than the pool has room for.
    let mut checked = BTreeSet::new();
    let mut room = store.state().allocator.lock().deflated().1;
    let mut chain = Chain::new(store, header);
    'chain: while let Some(link) = chain.next().await? {
        // What is older is allocated in the space maps already.
        if link.bp.birth() >= first && seen.is_new(&link.bp) {
            blocks.push(link.bp);
        }
        log.extend(link.records.is_some().then_some(link.bp));
        for (record_header, record) in link.records.into_iter().flatten() {
            if let Record::Clone { object, .. } = record {
                // Claiming it means taking references to the blocks it names.
                return Err(ZioError::Invalid(format!(
                    "blocks were cloned into object {object}, and this version does not know block cloning; import the \
                     pool with OpenZFS once to have that replayed"
                )));
            }
            if let Some(bp) = data_block(&record, first) {
                // The log may have got to disk before the data: then nobody was told that it is stable.
                let dva = bp.dva(0);
                if checked.insert((dva.vdev, dva.offset, bp.birth(), bp.checksum())) {
                    room = room.checked_sub(store.dsize(bp)).ok_or_else(|| {
                        ZioError::corrupt("intent log", "its records lead to more blocks than the pool has room for")
                    })?;
                    if !store.has_block(bp).await? {
                        chain.stop();
                        break 'chain;
                    }
                    data.push(*bp);
                }
                if seen.is_new(bp) {
                    blocks.push(*bp);
                }
            }
            chain.count(record_header);
        }
    }
    let end = chain.end();
    let needed = end.records > 0 || end.blocks > 1;
    let header = ZilHeader {
        claim_txg: first,
        claim_blk_seq: end.block_sequence,
        claim_lr_seq: end.record_sequence,
        flags: header.flags | ZIL_CLAIM_LR_SEQ_VALID | if needed { ZIL_REPLAY_NEEDED } else { 0 },
        ..header.clone()
    };
    Ok(Some(Claim { blocks, header, unneeded: Vec::new(), log, data }))
}

/// Everything that the claimed log at `header` has allocated.
///
/// # Errors
/// As [`Chain::next`]; a log that nobody claimed, whose blocks may have become something else.
pub async fn blocks_to_free(store: &Store, header: &ZilHeader) -> Result<Vec<BlkPtr>> {
    if !header.log.is_hole() && header.claim_txg.0 == 0 {
        return Err(ZioError::Invalid(
            "its intent log could not be read when the pool was imported: export the pool and import it again".into(),
        ));
    }
    let Contents { log, unwritten, data } = Contents::read(store, header).await?;
    Ok([log, unwritten, data].concat())
}
