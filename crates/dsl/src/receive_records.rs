//! Records of a stream become objects (`receive_object`, `receive_freeobjects`, `flush_write_batch_impl`,
//! `module/zfs/dmu_recv.c`). They were checked one by one; whether they fit what is there is seen here, and what does
//! not ends the receive.

use std::sync::Arc;

use platter_buffer::{Buf, BufMut};
use platter_dmu::{Dnode, NewDnode, Objset, Tx};
use platter_ondisk::dnode::{DNODE_SIZE, MAX_INDIRECT_SHIFT, bonus_capacity};
use platter_ondisk::znode::ZnodePhys;
use platter_ondisk::{Compression, ObjectId, ObjectType, byteswap};
use platter_stream::{
    Begin, Embedded, Free, FreeObjects, OBJECT_END, ObjectRecord, Record, Spill, Write, begin_flags, object_flags,
    spill_flags,
};
use platter_zio::ZioError;

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::filesystem_space::FilesystemSpace;
use crate::noted::ResumePoint;
use crate::pool::DslPool;

/// The refusal of what does not fit.
fn bad_stream() -> PoolError {
    PoolError::invalid("invalid backup stream")
}

/// What the object layer refuses of a stream is the stream's fault; what it cannot do is not.
fn judged(error: ZioError) -> PoolError {
    match error {
        ZioError::Invalid(_) | ZioError::NotFound(_) | ZioError::Exists(_) => {
            tracing::debug!(%error, "a stream does not fit");
            bad_stream()
        }
        ZioError::NoSpace => PoolError::Invalid("out of space".into()),
        error => error.into(),
    }
}

/// Fills an object set with what a stream holds.
pub struct Filling {
    dsl: Arc<DslPool>,
    dataset: Arc<Dataset>,
    os: Arc<Objset>,
    space: FilesystemSpace,
    /// Whether numbers in blocks are in the other byte order.
    swapped: bool,
    has_spill_flags: bool,
    is_full: bool,
    is_resumable: bool,
    /// The block that was written last: they come in order.
    last: (ObjectId, u64),
}

impl Filling {
    /// Of the open object set of `dataset`, with a stream that begins like this.
    pub fn new(
        dsl: &Arc<DslPool>,
        dataset: &Arc<Dataset>,
        os: Arc<Objset>,
        begin: &Begin,
        swapped: bool,
        is_resumable: bool,
    ) -> Self {
        Self {
            dsl: dsl.clone(),
            dataset: dataset.clone(),
            os,
            space: FilesystemSpace::new(dsl.clone(), dataset.clone()),
            swapped,
            has_spill_flags: begin.flags & begin_flags::SPILL_BLOCK != 0,
            is_full: begin.from_guid.0 == 0,
            is_resumable,
            last: (ObjectId(0), 0),
        }
    }

    /// Applies a record with its payload; `bytes` of the stream end with it.
    ///
    /// # Errors
    /// It does not fit what is there; no space; the pool stopped; damage.
    pub async fn apply(&mut self, record: &Record, payload: Vec<u8>, bytes: u64) -> Result<()> {
        match record {
            Record::Object(object) => self.object(object, payload, bytes).await,
            Record::FreeObjects(free) => self.free_objects(free).await,
            Record::Free(free) => self.free(free).await,
            // What is left out is a hole, as OpenZFS makes it.
            Record::Redact(redacted) => self.free(redacted).await,
            Record::Write(write) => self.write(write, &payload, bytes).await,
            Record::WriteEmbedded(embedded) => self.embedded(embedded, &payload, bytes).await,
            Record::Spill(spill) => self.spill(spill, payload).await,
            Record::Begin(_) | Record::End(_) => Err(bad_stream()),
        }
    }

    fn note(&self, tx: &Tx, object: ObjectId, offset: u64, bytes: u64) {
        if self.is_resumable {
            self.dataset.noted.lock().insert(tx.txg(), ResumePoint { object, offset, bytes });
        }
    }

    /// The object, unless its number is free.
    async fn found(&self, object: ObjectId) -> Result<Option<Arc<Dnode>>> {
        match self.os.dnode(object).await {
            Ok(dnode) => Ok(Some(dnode)),
            Err(ZioError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn there(&self, object: ObjectId) -> Result<Arc<Dnode>> {
        self.found(object).await?.ok_or_else(bad_stream)
    }

    /// Waits until there is room for `bytes` more.
    async fn wait_for_room(&self, bytes: u64) -> Result<()> {
        loop {
            match self.space.admit(bytes) {
                Ok(true) => return Ok(()),
                Ok(false) => self.dsl.sync().await?,
                Err(ZioError::Quota) => return Err(PoolError::invalid("space quota exceeded.")),
                Err(error) => return Err(judged(error)),
            }
        }
    }

    async fn object(&mut self, record: &ObjectRecord, mut bonus: Vec<u8>, bytes: u64) -> Result<()> {
        if self.swapped {
            byteswap::byteswap(record.bonus_type, &mut bonus);
        }
        bonus.truncate(record.bonus_length as usize);
        self.wait_for_room(0).await?;
        self.make_way(record, &bonus).await?;
        let tx = self.os.begin().await.map_err(judged)?;
        let dnode = match self.found(record.object).await? {
            Some(dnode) => dnode,
            None => self.os.claim(&tx, record.object, new_dnode(record)).await.map_err(judged)?,
        };
        if self.has_spill_flags && record.flags & object_flags::SPILL == 0 && dnode.has_spill() {
            dnode.set_spill(&tx, None).map_err(judged)?;
        }
        if dnode.info().object_type != record.object_type {
            dnode.set_object_type(&tx, record.object_type).map_err(judged)?;
        }
        dnode.set_bonus(&tx, record.bonus_type, &bonus).map_err(judged)?;
        self.note(&tx, record.object, 0, bytes);
        Ok(())
    }

    /// What has the number of an object that comes, or a slot that it needs, is made to fit or removed.
    async fn make_way(&self, record: &ObjectRecord, bonus: &[u8]) -> Result<()> {
        let slots = record.dnode_slots();
        let mut removed = false;
        for slot in 1..slots as u64 {
            if self.found(ObjectId(record.object.0 + slot)).await?.is_some() {
                self.remove(ObjectId(record.object.0 + slot)).await?;
                removed = true;
            }
        }
        if let Some(dnode) = self.found(record.object).await? {
            let pointers = pointers_of(record.bonus_type, record.bonus_length as usize, slots);
            let has = dnode.phys();
            if has.slots() != slots || has.blkptrs.len() != pointers {
                self.remove(record.object).await?;
                removed = true;
            } else if dnode.block_size() != record.block_size && !self.keeps_block_size(&dnode, record, bonus)? {
                self.empty(&dnode, record).await?;
            }
        }
        if removed {
            // A number can be used again when what had it is gone from the disk.
            self.dsl.sync().await?;
        }
        Ok(())
    }

    async fn remove(&self, object: ObjectId) -> Result<()> {
        let tx = self.os.begin_net_free().await.map_err(judged)?;
        self.os.free_object(&tx, object).await.map_err(judged)
    }

    /// Whether a file keeps the size of its blocks although the stream has larger ones: it was sent in pieces before
    /// and is the same file still, of which not all comes again (`receive_object_is_same_generation`).
    fn keeps_block_size(&self, dnode: &Dnode, record: &ObjectRecord, bonus: &[u8]) -> Result<bool> {
        let info = dnode.info();
        let is_file = |object_type| object_type == ObjectType::PLAIN_FILE_CONTENTS;
        if self.is_full || !is_file(info.object_type) || !is_file(record.object_type) || info.max_blkid == 0 {
            return Ok(false);
        }
        let same = match (generation(info.bonus_type, &dnode.bonus()), generation(record.bonus_type, bonus)) {
            (Some(before), Some(now)) => before == now,
            _ => return Err(bad_stream()),
        };
        match same && record.block_size < info.block_size {
            true => Err(bad_stream()),
            false => Ok(same),
        }
    }

    /// Takes all that an object holds, as another comes under its number.
    async fn empty(&self, dnode: &Arc<Dnode>, record: &ObjectRecord) -> Result<()> {
        let tx = self.os.begin_net_free().await.map_err(judged)?;
        dnode.free_range(&tx, 0, u64::MAX).await.map_err(judged)?;
        dnode.set_block_size(&tx, record.block_size).await.map_err(judged)
    }

    async fn free_objects(&self, record: &FreeObjects) -> Result<()> {
        let end = record.first.saturating_add(record.count);
        let mut after = ObjectId(record.first.saturating_sub(1));
        while let Some(object) = self.os.next_object(after).await? {
            if object.0 >= end {
                return Ok(());
            }
            self.remove(object).await?;
            after = object;
        }
        Ok(())
    }

    async fn free(&self, record: &Free) -> Result<()> {
        let dnode = self.there(record.object).await?;
        let size = u64::from(dnode.block_size());
        let (end, info) = (record.offset.saturating_add(record.length), dnode.info());
        // Nothing is there, as in all that is new.
        if info.max_blkid == 0 && record.offset >= size || record.length == 0 {
            return Ok(());
        }
        let length = if record.length == OBJECT_END { u64::MAX } else { end - record.offset };
        let tx = self.os.begin_net_free().await.map_err(judged)?;
        dnode.free_range(&tx, record.offset, length).await.map_err(judged)
    }

    async fn write(&mut self, record: &Write, payload: &[u8], bytes: u64) -> Result<()> {
        let contents = if record.is_compressed() {
            expanded(record.compression, payload, record.logical_size as usize)?.freeze()
        } else {
            let mut contents = Buf::copy_from(payload);
            if self.swapped {
                byteswap::byteswap(record.object_type, contents.make_mut());
            }
            contents
        };
        self.put(record.object, record.offset, contents, bytes).await
    }

    async fn embedded(&mut self, record: &Embedded, payload: &[u8], bytes: u64) -> Result<()> {
        let payload = payload.get(..record.payload_size as usize).ok_or_else(bad_stream)?;
        let there = expanded(record.compression, payload, record.logical_size as usize)?;
        let mut block = BufMut::zeroed(record.length as usize);
        block[..there.len()].copy_from_slice(&there);
        let dnode = self.there(record.object).await?;
        if self.swapped {
            byteswap::byteswap(dnode.info().object_type, &mut block);
        }
        self.put(record.object, record.offset, block.freeze(), bytes).await
    }

    /// Writes a block, or a part of one.
    async fn put(&mut self, object: ObjectId, offset: u64, contents: Buf, bytes: u64) -> Result<()> {
        if (object, offset) < self.last {
            return Err(bad_stream());
        }
        self.last = (object, offset);
        let dnode = self.there(object).await?;
        let (size, length) = (dnode.block_size(), contents.len() as u64);
        self.wait_for_room(length).await?;
        let tx = self.os.begin_writing(offset..offset + length, size).await.map_err(judged)?;
        if length == u64::from(size) && offset.is_multiple_of(length) {
            dnode.write_passing_block(&tx, offset / length, contents).await.map_err(judged)?;
        } else {
            dnode.write(&tx, offset, &contents).await.map_err(judged)?;
        }
        self.note(&tx, object, offset, bytes);
        Ok(())
    }

    async fn spill(&self, record: &Spill, mut payload: Vec<u8>) -> Result<()> {
        if self.has_spill_flags && record.flags & spill_flags::UNMODIFIED != 0 {
            return Ok(());
        }
        if self.swapped {
            byteswap::byteswap(ObjectType::SA, &mut payload);
        }
        let dnode = self.there(record.object).await?;
        let tx = self.os.begin().await.map_err(judged)?;
        dnode.set_spill(&tx, Some(Buf::copy_from(&payload))).map_err(judged)
    }
}

/// A block of `size` bytes from what was compressed.
fn expanded(kind: Compression, stored: &[u8], size: usize) -> Result<BufMut> {
    let mut out = BufMut::zeroed(size);
    platter_compress::decompress(kind, stored, &mut out).map_err(|_| bad_stream())?;
    Ok(out)
}

fn new_dnode(record: &ObjectRecord) -> NewDnode {
    NewDnode {
        object_type: record.object_type,
        block_size: record.block_size,
        indirect_shift: MAX_INDIRECT_SHIFT,
        bonus_type: record.bonus_type,
        bonus_length: record.bonus_length as u16,
        dnode_size: (record.dnode_slots() * DNODE_SIZE) as u32,
    }
}

/// How many pointers a dnode of such a bonus has (`deduce_nblkptr`).
fn pointers_of(bonus_type: ObjectType, bonus_length: usize, slots: usize) -> usize {
    if bonus_type == ObjectType::SA {
        return 1;
    }
    let room = bonus_capacity(slots, 1, false).saturating_sub(bonus_length);
    (1 + room / platter_ondisk::blkptr::BLKPTR_SIZE).min(platter_ondisk::dnode::MAX_BLKPTRS)
}

/// The generation that a file's bonus names (`zpl_get_file_info`): with its number it tells one file from another.
fn generation(bonus_type: ObjectType, bonus: &[u8]) -> Option<u64> {
    match bonus_type {
        ObjectType::ZNODE => ZnodePhys::decode(bonus).ok().map(|znode| znode.generation),
        ObjectType::SA => {
            let header = platter_ondisk::sa::SaHeader::of(bonus)?;
            // SA_GEN_OFFSET.
            let at = header.size + 16;
            let word = u64::from_le_bytes(bonus.get(at..at + 8)?.try_into().ok()?);
            Some(if header.turned { word.swap_bytes() } else { word })
        }
        _ => None,
    }
}
