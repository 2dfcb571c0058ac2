//! Reading a chain of log blocks from its head (`zil_parse`).

use platter_buffer::Buf;
use platter_checksum::{fletcher_2, fletcher_4};
use platter_dmu::{Result, ZioError};
use platter_ondisk::BlkPtr;
use platter_ondisk::zil::block::{self, Layout};
use platter_ondisk::zil::record::{Record, RecordHeader, records};
use platter_ondisk::zil::{ZIL_CLAIM_LR_SEQ_VALID, ZilHeader};
use platter_zio::Store;

/// Largest log block that is believed, in bytes (`SPA_MAXBLOCKSIZE`).
const SIZE_MAX: u64 = 16 << 20;

pub(crate) fn hash(layout: Layout) -> fn(&[u8]) -> [u64; 4] {
    match layout {
        Layout::Slim => fletcher_4,
        Layout::Trailing => fletcher_2,
    }
}

/// Where a chain ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainEnd {
    /// Number of the last block that was led to, whether it could be read or not.
    pub block_sequence: u64,
    /// Number of the last record.
    pub record_sequence: u64,
    /// Blocks that were led to.
    pub blocks: u64,
    /// Records.
    pub records: u64,
}

/// Walks a chain block by block.
pub struct Chain<'a> {
    store: &'a Store,
    next: BlkPtr,
    /// Highest numbers that were claimed; beyond them nothing counts.
    claimed: Option<(u64, u64)>,
    end: ChainEnd,
    done: bool,
}

/// A block of a chain: the pointer that led to it, and its records when it is there.
pub struct Link {
    /// The pointer.
    pub bp: BlkPtr,
    /// The records; `None` when the chain ends before the block.
    pub records: Option<Vec<(RecordHeader, Record)>>,
}

impl<'a> Chain<'a> {
    /// The chain that `header` leads to.
    pub fn new(store: &'a Store, header: &ZilHeader) -> Self {
        let claimed = (header.claim_txg.0 != 0).then(|| {
            let records = if header.flags & ZIL_CLAIM_LR_SEQ_VALID != 0 { header.claim_lr_seq } else { u64::MAX };
            (header.claim_blk_seq, records)
        });
        Self { store, next: header.log, claimed, end: ChainEnd::default(), done: false }
    }

    /// How far it was read.
    pub fn end(&self) -> ChainEnd {
        self.end
    }

    /// The block that comes next; a hole at the end.
    pub fn at(&self) -> BlkPtr {
        if self.done { BlkPtr::HOLE } else { self.next }
    }

    /// Nothing after the last record that was shown counts.
    pub fn stop(&mut self) {
        self.done = true;
    }

    /// Notes that a record counts.
    pub fn count(&mut self, header: RecordHeader) {
        self.end.record_sequence = header.sequence;
        self.end.records += 1;
    }

    /// The next block. Its records are to be [`count`](Self::count)ed one by one.
    ///
    /// # Errors
    /// Devices that fail, so that nobody can tell whether the block is there; a claimed block that is gone; records
    /// that make no sense in a block whose checksum is right; a log in an unknown layout.
    pub async fn next(&mut self) -> Result<Option<Link>> {
        if self.done || self.next.is_hole() {
            return Ok(None);
        }
        let bp = self.next;
        let sequence = block::sequence(&bp);
        if self.claimed.is_some_and(|(blocks, _)| sequence > blocks) {
            return Ok(None);
        }
        self.end.block_sequence = sequence;
        self.end.blocks += 1;
        if self.claimed == Some((self.end.block_sequence, self.end.record_sequence)) {
            self.done = true;
            return Ok(Some(Link { bp, records: None }));
        }
        let Some(bytes) = self.read(&bp).await? else {
            self.done = true;
            if let Some((_, records)) = self.claimed
                && records != u64::MAX
                && self.end.record_sequence < records
            {
                return Err(ZioError::corrupt("intent log", format!("claimed block {sequence} at {bp:?} is damaged")));
            }
            return Ok(Some(Link { bp, records: None }));
        };
        let layout = layout(&bp)?;
        let (next, bytes) = block::open(layout, &bytes, bp.checksum(), hash(layout))
            .map_err(|e| ZioError::corrupt("intent log", format!("block {sequence}: {e}")))?;
        let mut found = Vec::new();
        for record in records(bytes) {
            let record = record.map_err(|e| ZioError::corrupt("intent log", format!("block {sequence}: {e}")))?;
            if self.claimed.is_some_and(|(_, most)| record.0.sequence > most) {
                self.done = true;
                break;
            }
            found.push(record);
        }
        self.next = next;
        Ok(Some(Link { bp, records: Some(found) }))
    }

    async fn read(&self, bp: &BlkPtr) -> Result<Option<Buf>> {
        self.store.read_log(bp, &passes(bp)?).await
    }
}

/// Tells whether bytes are those of the log block `bp`.
pub(crate) fn passes(bp: &BlkPtr) -> Result<impl Fn(&[u8]) -> bool + Sync + use<>> {
    let layout = layout(bp)?;
    let seed = bp.checksum();
    Ok(move |bytes: &[u8]| block::open(layout, bytes, seed, hash(layout)).is_ok())
}

/// The layout of the block that `bp` leads to.
fn layout(bp: &BlkPtr) -> Result<Layout> {
    let unknown = |what: &str| ZioError::corrupt("intent log", format!("{bp:?}: {what}"));
    if !bp.is_little_endian() {
        return Err(ZioError::Invalid(
            "the intent log was written by a big-endian machine: import the pool there once to replay it".into(),
        ));
    }
    if bp.is_protected() {
        return Err(ZioError::Invalid("the intent log is encrypted, which this version cannot read".into()));
    }
    if bp.lsize() > SIZE_MAX || bp.psize() != bp.lsize() || bp.is_embedded() || bp.is_gang() {
        return Err(unknown("no log block has this form"));
    }
    Layout::of(bp).ok_or_else(|| unknown("its checksum is not a log's"))
}
