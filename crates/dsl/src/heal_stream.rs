//! `zfs receive -c`: blocks of a snapshot that are damaged get their bytes from a stream of it (`do_corrective_recv`,
//! `module/zfs/dmu_recv.c`).
//!
//! The stream says what a block holds, which the pool may have stored in another form: it is brought into that form,
//! and written only when it has the checksum that the block's pointer names. A stream that lies heals nothing.

use std::sync::Arc;

use platter_buffer::{Buf, BufMut};
use platter_dmu::{Dnode, Objset};
use platter_ondisk::byteswap::byteswap;
use platter_ondisk::{BlkPtr, Compression, ObjectId};
use platter_stream::{Begin, Parser, Record, Spill, Write};
use platter_zio::{Bookmark, Condition};

use crate::error::{PoolError, Result};
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::receive_begin::{bad_stream, check_features};
use crate::snapshot::SnapshotBonus;
use crate::stream_ends::StreamSource;
use crate::stream_records::Records;

/// What zstd is asked for when nothing says how a block was compressed.
const ZSTD_LEVEL: i32 = 3;

/// What a stream could do for a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Blocks that were damaged and are right again.
    pub healed: u64,
    /// Blocks that are damaged still.
    pub left: u64,
}

/// What the stream holds of a block.
enum Given<'a> {
    /// What is in it.
    Contents(&'a [u8]),
    /// The same, compressed.
    Compressed(Compression, &'a [u8]),
}

/// A damaged block that comes in pieces, as those beyond 128 KiB do unless they are sent as they are.
struct Pieces {
    object: ObjectId,
    blkid: u64,
    contents: BufMut,
    /// Bytes that were there, from the first on.
    filled: usize,
}

struct Healing<'a> {
    dsl: &'a DslPool,
    os: Arc<Objset>,
    objset: ObjectId,
    /// Whether numbers in the stream's blocks are in the other byte order.
    swapped: bool,
    pieces: Option<Pieces>,
    healed: Healed,
}

/// A block of contents, compressed as the pointer says it is stored.
fn compressed(bp: &BlkPtr, level: i32, contents: &[u8]) -> Option<Buf> {
    // With as much room as when it was written: with less, zstd compresses otherwise.
    let mut room = vec![0; contents.len() - contents.len() / 8];
    let used = platter_compress::compress(bp.compression(), level, contents, &mut room)?;
    let mut out = BufMut::zeroed(bp.psize() as usize);
    out.get_mut(..used)?.copy_from_slice(&room[..used]);
    Some(out.freeze())
}

impl Healing<'_> {
    /// The bytes that a block has on disk if the stream is right about what is in it, in each form it may have.
    fn forms(&self, bp: &BlkPtr, given: &Given<'_>) -> Vec<Buf> {
        let mut forms = Vec::new();
        let mut contents = match given {
            Given::Contents(contents) => contents.to_vec(),
            Given::Compressed(kind, stored) => {
                if *kind == bp.compression() && stored.len() as u64 == bp.psize() {
                    forms.push(Buf::copy_from(stored));
                }
                let mut contents = vec![0; bp.lsize() as usize];
                if platter_compress::decompress(*kind, stored, &mut contents).is_err() {
                    return forms;
                }
                contents
            }
        };
        if contents.len() as u64 != bp.lsize() {
            return forms;
        }
        if self.swapped == bp.is_little_endian() {
            byteswap(bp.object_type(), &mut contents);
        }
        if bp.compression() == Compression::OFF {
            forms.push(Buf::copy_from(&contents));
            return forms;
        }
        let own = self.os.properties().compression_level;
        let levels = if own == ZSTD_LEVEL { vec![own] } else { vec![own, ZSTD_LEVEL] };
        forms.extend(levels.into_iter().filter_map(|level| compressed(bp, level, &contents)));
        forms
    }

    /// Heals a block if it is damaged.
    async fn heal(&mut self, bp: &BlkPtr, bookmark: Bookmark, given: Given<'_>) -> Result<()> {
        for form in self.forms(bp, &given) {
            match self.dsl.store.restore(bp, bookmark, &form).await {
                Ok(true) => {
                    self.healed.healed += 1;
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) if self.dsl.gate.suspended().is_some() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "a damaged block cannot be healed");
                    break;
                }
            }
        }
        self.healed.left += 1;
        Ok(())
    }

    /// Whether a block needs what the stream has.
    async fn is_damaged(&mut self, bp: &BlkPtr, bookmark: Bookmark) -> Result<bool> {
        match self.dsl.store.condition(bp, bookmark).await? {
            Condition::Right => Ok(false),
            Condition::Damaged => Ok(true),
            // To write it would help nobody.
            Condition::OutOfReach => {
                self.healed.left += 1;
                Ok(false)
            }
        }
    }

    /// The object, as the snapshot has it; none when its dnode is lost or is not there.
    async fn dnode(&mut self, object: ObjectId) -> Option<Arc<Dnode>> {
        match self.os.dnode(object).await {
            Ok(dnode) => Some(dnode),
            Err(error) => {
                tracing::warn!(%error, "a damaged block cannot be healed");
                self.healed.left += 1;
                None
            }
        }
    }

    async fn write(&mut self, record: &Write, payload: &[u8]) -> Result<()> {
        let is_next = |pieces: &Pieces, size: u64| {
            pieces.object == record.object && pieces.blkid * size + pieces.filled as u64 == record.offset
        };
        let Some(dnode) = self.dnode(record.object).await else { return Ok(()) };
        let size = u64::from(dnode.block_size());
        if self.pieces.as_ref().is_some_and(|pieces| is_next(pieces, size)) {
            return self.add_piece(&dnode, record, payload).await;
        }
        let blkid = record.offset / size;
        let starts = record.offset.is_multiple_of(size);
        if self.pieces.as_ref().is_some_and(|pieces| (pieces.object, pieces.blkid) == (record.object, blkid)) || !starts
        {
            // The first of its pieces was not there, or the block was right.
            return Ok(());
        }
        self.give_up_pieces();
        let bookmark = Bookmark { objset: self.objset, object: record.object, level: 0, blkid };
        let bp = match dnode.block_pointer(blkid).await {
            Ok(bp) => bp,
            Err(error) => {
                tracing::warn!(%error, "a damaged block cannot be healed");
                self.healed.left += 1;
                return Ok(());
            }
        };
        if !self.is_damaged(&bp, bookmark).await? {
            return Ok(());
        }
        if record.logical_size < size {
            let contents = BufMut::zeroed(size as usize);
            self.pieces = Some(Pieces { object: record.object, blkid, contents, filled: 0 });
            return self.add_piece(&dnode, record, payload).await;
        }
        let given = match record.is_compressed() {
            true => Given::Compressed(record.compression, payload),
            false => Given::Contents(payload),
        };
        self.heal(&bp, bookmark, given).await
    }

    /// Takes the next piece of a damaged block, and heals it when that was the last.
    async fn add_piece(&mut self, dnode: &Dnode, record: &Write, payload: &[u8]) -> Result<()> {
        let Some(pieces) = &mut self.pieces else { return Ok(()) };
        let (from, length) = (pieces.filled, record.logical_size as usize);
        let Some(place) = pieces.contents.get_mut(from..from + length) else { return Err(bad_stream()) };
        if !record.is_compressed() {
            place.copy_from_slice(payload);
        } else if platter_compress::decompress(record.compression, payload, place).is_err() {
            return Err(bad_stream());
        }
        pieces.filled += length;
        if pieces.filled < pieces.contents.len() {
            return Ok(());
        }
        let Some(Pieces { object, blkid, contents, .. }) = self.pieces.take() else { return Ok(()) };
        let bookmark = Bookmark { objset: self.objset, object, level: 0, blkid };
        let bp = dnode.block_pointer(blkid).await?;
        self.heal(&bp, bookmark, Given::Contents(&contents)).await
    }

    /// Pieces that did not come leave their block as it is.
    fn give_up_pieces(&mut self) {
        if self.pieces.take().is_some() {
            self.healed.left += 1;
        }
    }

    async fn spill(&mut self, record: &Spill, payload: &[u8]) -> Result<()> {
        let Some(dnode) = self.dnode(record.object).await else { return Ok(()) };
        let Some(bp) = dnode.phys().spill else { return Ok(()) };
        let blkid = platter_dmu::changes::SPILL_BLOCK;
        let bookmark = Bookmark { objset: self.objset, object: record.object, level: 0, blkid };
        match self.is_damaged(&bp, bookmark).await? {
            true => self.heal(&bp, bookmark, Given::Contents(payload)).await,
            false => Ok(()),
        }
    }
}

fn not_reconstructed() -> PoolError {
    PoolError::invalid("corrective receive was not able to reconstruct the data needed for healing.")
}

impl DslPool {
    /// Heals the snapshot called `full_name` with the stream that begins so, whose other records are in `source`.
    ///
    /// # Errors
    /// It does not exist or is another one; the pool cannot be written; the stream breaks off or makes no sense: what
    /// was healed until then is.
    pub async fn heal_snapshot(
        self: &Arc<Self>,
        full_name: &str,
        begin: &Begin,
        parser: Parser,
        source: &mut dyn StreamSource,
    ) -> Result<Healed> {
        let absent = || PoolError::NotFound("corrective recv must specify an existing snapshot to heal".into());
        let found = named_snapshot::find(self, full_name).await?.ok_or_else(absent)?;
        let _kept = self.in_use.keep(found.object);
        check_features(self, begin)?;
        if SnapshotBonus::load(&self.mos, found.object).await?.phys.guid != begin.to_guid {
            return Err(PoolError::invalid("local snapshot doesn't match the snapshot in the provided stream"));
        }
        if self.read_only {
            return Err(PoolError::invalid("the pool is imported read-only"));
        }
        let os = self.open_snapshot(&found.full_name).await?;
        let swapped = parser.is_swapped();
        let mut healing =
            Healing { dsl: self, os, objset: found.object, swapped, pieces: None, healed: Healed::default() };
        let mut records = Records::new(parser, source);
        let taken = async {
            while let Some((record, payload)) = records.next().await? {
                match &record {
                    Record::Write(write) => healing.write(write, &payload).await?,
                    Record::Spill(spill) => healing.spill(spill, &payload).await?,
                    _ => {}
                }
            }
            Ok(())
        };
        let taken: Result<()> = taken.await;
        healing.give_up_pieces();
        healing.healed.bytes = records.bytes();
        // What was written is on stable storage with a group.
        self.sync().await?;
        match taken {
            Err(error) => Err(error),
            Ok(()) if healing.healed.left > 0 => Err(not_reconstructed()),
            Ok(()) => Ok(healing.healed),
        }
    }
}
