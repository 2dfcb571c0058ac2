//! Making a stream: the changes of an object set become records, in their order, and what they hold is read ahead of
//! whoever takes them (`do_dump`, `send_reader_thread`, `module/zfs/dmu_send.c`).

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_dmu::changes::{Change, ChangeVisitor, SPILL_BLOCK, changes};
use platter_ondisk::{BlkPtr, Checksum, Compression, DnodePhys, Guid, ObjectId, Sectors};
use platter_stream::{
    Embedded, Framer, Free, FreeObjects, OBJECT_END, ObjectRecord, Record, Spill, StreamFeatures, Write, object_flags,
    spill_flags,
};
use platter_zio::{BlockReader, BlockStore, Bookmark, Priority, ZioError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::redaction_list::Entries;
use crate::send::Sending;
use crate::send_redaction::{Item, Lists, Merge};
use crate::stream_ends::StreamSink;

/// Bytes handed on at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of blocks read ahead.
const AHEAD_BYTES: u64 = 16 << 20;
/// Changes that wait to be sent.
const AHEAD_CHANGES: usize = 256;
/// Larger blocks are sent in pieces unless the stream has large blocks (`SPA_OLD_MAXBLOCKSIZE`).
const OLD_BLOCK_MAX: usize = 128 << 10;

/// Hands changes to the one who makes records of them.
struct Hand(mpsc::Sender<Item>);

impl ChangeVisitor for Hand {
    fn change(&self, change: Change) -> BoxFuture<'_, platter_zio::Result<()>> {
        async move {
            let gone = |_| ZioError::Io("nobody takes the stream any more".into());
            self.0.send(Item::Change(change)).await.map_err(gone)
        }
        .boxed()
    }
}

/// A block's bytes as they are sent.
struct Contents {
    bytes: Buf,
    /// Whether they are as they are stored.
    as_stored: bool,
}

/// A change on its way, with the block that is read for it.
struct Waiting {
    item: Item,
    read: Option<Reading>,
    bytes: u64,
}

/// A read that ends when nobody waits for it.
struct Reading(JoinHandle<platter_zio::Result<Contents>>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reading {
    async fn take(mut self) -> Result<Contents> {
        match (&mut self.0).await {
            Ok(read) => Ok(read?),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => Err(PoolError::Engine(ZioError::Io(format!("a read was cancelled: {failed}")))),
        }
    }
}

/// What waits to be written as one record, as long as it goes on.
#[derive(Clone, Copy, PartialEq)]
enum Pending {
    Nothing,
    Free(Free),
    Redact(Free),
    Objects(FreeObjects),
}

/// Makes the records of one stream.
struct Sender<'a> {
    dsl: &'a Arc<DslPool>,
    sending: &'a Sending,
    sink: &'a mut dyn StreamSink,
    framer: Framer,
    out: Vec<u8>,
    pending: Pending,
}

impl DslPool {
    /// Makes the stream and hands it to `sink`; how many bytes it had.
    ///
    /// # Errors
    /// Damaged blocks; what the sink says.
    pub async fn send(self: &Arc<Self>, sending: &Sending, sink: &mut dyn StreamSink) -> Result<u64> {
        let (hand, changed) = mpsc::channel(AHEAD_CHANGES);
        let walk = self.walk(sending, hand);
        let mut sender = Sender {
            dsl: self,
            sending,
            sink,
            framer: Framer::new(sending.begin.to_guid),
            out: Vec::with_capacity(CHUNK + OLD_BLOCK_MAX),
            pending: Pending::Nothing,
        };
        let records = async {
            sender.record(&Record::Begin(sending.begin.clone()), &sending.list).await?;
            sender.take_all(changed).await?;
            sender.flush().await
        };
        let (walked, sent) = tokio::join!(walk, records);
        sent?;
        walked?;
        if !sending.is_partial {
            let end = sender.framer.end();
            sender.out.extend_from_slice(&end);
        }
        let last = std::mem::take(&mut sender.out);
        sender.sink.put(last).await?;
        Ok(sender.framer.bytes())
    }
}

impl DslPool {
    /// Finds what is to be sent.
    async fn walk(&self, sending: &Sending, to: mpsc::Sender<Item>) -> Result<()> {
        let store: Arc<dyn BlockStore> = Arc::new(self.store.clone());
        let (objset, root, since, from) = (sending.objset, &sending.phys.bp, sending.since, sending.from);
        let [now, then] = sending.redaction;
        if now.is_none() && then.is_none() {
            return Ok(changes(&store, objset, root, since, from, &Hand(to)).await?);
        }
        let entries = async |list: Option<ObjectId>| match list {
            Some(list) => Entries::of(&self.mos, list).await.map(Some),
            None => Ok(None),
        };
        let lists = Lists { now: entries(now).await?, then: entries(then).await? };
        let first = match sending.os.dnode(from.object).await {
            Ok(dnode) => from.offset / u64::from(dnode.block_size()),
            Err(_) => 0,
        };
        let merge = Merge::new(to, sending.os.clone(), lists, (from.object.0, first)).await?;
        changes(&store, objset, root, since, from, &merge).await?;
        Ok(merge.finish().await?)
    }
}

impl Sender<'_> {
    fn has(&self, feature: StreamFeatures) -> bool {
        self.sending.begin.features.has(feature)
    }

    fn to_guid(&self) -> Guid {
        self.sending.begin.to_guid
    }

    /// Sends what comes, and has it read meanwhile.
    async fn take_all(&mut self, mut changed: mpsc::Receiver<Item>) -> Result<()> {
        let (mut waiting, mut bytes): (VecDeque<Waiting>, u64) = (VecDeque::new(), 0);
        loop {
            while bytes < AHEAD_BYTES && waiting.len() < AHEAD_CHANGES {
                let Ok(item) = changed.try_recv() else { break };
                let next = self.begin_reading(item);
                bytes += next.bytes;
                waiting.push_back(next);
            }
            let next = match waiting.pop_front() {
                Some(next) => {
                    bytes -= next.bytes;
                    next
                }
                None => match changed.recv().await {
                    Some(item) => self.begin_reading(item),
                    None => return Ok(()),
                },
            };
            self.send_change(next).await?;
        }
    }

    /// Whether a block's stored bytes are sent (`issue_data_read`).
    fn is_sent_as_stored(&self, bp: &BlkPtr) -> bool {
        let is_split = bp.lsize() as usize > OLD_BLOCK_MAX && !self.has(StreamFeatures::LARGE_BLOCKS);
        self.has(StreamFeatures::COMPRESSED)
            && !is_split
            && bp.is_little_endian()
            && !bp.is_embedded()
            && !bp.object_type().is_metadata()
            && bp.compression() != Compression::OFF
    }

    /// Whether what is in the pointer is sent as it is there (`send_do_embed`).
    fn is_sent_embedded(&self, bp: &BlkPtr) -> bool {
        let kind = bp.compression();
        bp.is_embedded()
            && bp.embedded_kind() == 0
            && self.has(StreamFeatures::EMBED_DATA)
            && (kind.number() < Compression::LZ4.number() || self.has(StreamFeatures::LZ4))
            && (kind != Compression::ZSTD || self.has(StreamFeatures::ZSTD))
    }

    fn begin_reading(&self, item: Item) -> Waiting {
        let (object, blkid, bp) = match &item {
            Item::Change(Change::Data { object, blkid, bp, .. }) if !self.is_sent_embedded(bp) => {
                (*object, *blkid, *bp)
            }
            Item::Change(Change::Spill(object, bp)) => (*object, SPILL_BLOCK, *bp),
            _ => return Waiting { item, read: None, bytes: 0 },
        };
        let read = self.read(object, blkid, bp);
        Waiting { item, read: Some(read), bytes: bp.lsize() }
    }

    fn read(&self, object: ObjectId, blkid: u64, bp: BlkPtr) -> Reading {
        let as_stored = self.is_sent_as_stored(&bp);
        let bookmark = Bookmark { objset: self.sending.objset, object, level: 0, blkid };
        let store = self.dsl.store.clone();
        Reading(tokio::spawn(async move {
            let bytes = match as_stored {
                true => store.read_stored(&bp, bookmark, Priority::AsyncRead).await?,
                false => store.read(&bp, bookmark, Priority::AsyncRead).await?,
            };
            Ok(Contents { bytes, as_stored })
        }))
    }

    async fn send_change(&mut self, next: Waiting) -> Result<()> {
        let change = match next.item {
            Item::Change(change) => change,
            Item::Redacted(object, offset, length) => return self.redacted(object, offset, length).await,
        };
        match (change, next.read) {
            (Change::Object(object, dnode), _) => self.object(object, &dnode).await,
            (Change::NoObjects(first, count), _) => self.no_objects(first, count).await,
            (Change::Data { object, dnode, blkid, bp }, Some(read)) => {
                let contents = read.take().await?;
                self.data(object, &dnode, blkid, &bp, &contents).await
            }
            (Change::Data { object, dnode, blkid, bp }, None) => self.embedded(object, &dnode, blkid, &bp).await,
            (Change::Hole { object, dnode, first, last }, _) => {
                let size = dnode.data_block_size();
                // Beyond what can be addressed nothing ever was.
                let Some(offset) = first.checked_mul(size) else { return Ok(()) };
                let end = last.checked_add(1).and_then(|end| end.checked_mul(size)).unwrap_or(u64::MAX);
                self.free(object, offset, end - offset).await
            }
            (Change::Spill(object, bp), Some(read)) => {
                let contents = read.take().await?;
                self.spill(object, &bp, &contents.bytes).await
            }
            (Change::Spill(..), None) => Ok(()),
        }
    }

    async fn record(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        let header = self.framer.frame(record, payload);
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(payload);
        if self.out.len() >= CHUNK {
            let full = std::mem::replace(&mut self.out, Vec::with_capacity(CHUNK + OLD_BLOCK_MAX));
            self.sink.put(full).await?;
        }
        Ok(())
    }

    /// Writes what waits.
    async fn flush(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => Ok(()),
            Pending::Free(free) => self.record(&Record::Free(free), &[]).await,
            Pending::Redact(free) => self.record(&Record::Redact(free), &[]).await,
            Pending::Objects(free) => self.record(&Record::FreeObjects(free), &[]).await,
        }
    }

    async fn free(&mut self, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        if let Pending::Free(free) = &mut self.pending
            && free.object == object
            && free.offset.checked_add(free.length) == Some(offset)
        {
            free.length = free.length.saturating_add(length);
            return Ok(());
        }
        self.flush().await?;
        let free = Free { object, offset, length, to_guid: self.to_guid() };
        if length == OBJECT_END {
            return self.record(&Record::Free(free), &[]).await;
        }
        self.pending = Pending::Free(free);
        Ok(())
    }

    async fn redacted(&mut self, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        if let Pending::Redact(free) = &mut self.pending
            && free.object == object
            && free.offset.checked_add(free.length) == Some(offset)
        {
            free.length = free.length.saturating_add(length);
            return Ok(());
        }
        self.flush().await?;
        self.pending = Pending::Redact(Free { object, offset, length, to_guid: self.to_guid() });
        Ok(())
    }

    async fn no_objects(&mut self, first: u64, count: u64) -> Result<()> {
        if let Pending::Objects(free) = &mut self.pending
            && free.first + free.count == first
        {
            free.count += count;
            return Ok(());
        }
        self.flush().await?;
        self.pending = Pending::Objects(FreeObjects { first, count, to_guid: self.to_guid() });
        Ok(())
    }

    async fn object(&mut self, object: ObjectId, dnode: &DnodePhys) -> Result<()> {
        self.flush().await?;
        let mut block_size = dnode.data_block_size();
        if !self.has(StreamFeatures::LARGE_BLOCKS) {
            block_size = block_size.min(OLD_BLOCK_MAX as u64);
        }
        let spill = dnode.spill.filter(|bp| !bp.is_hole());
        let record = ObjectRecord {
            object,
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            block_size: block_size as u32,
            bonus_length: u32::from(dnode.bonus_length),
            checksum: dnode.checksum,
            compression: dnode.compression,
            slots: dnode.slots() as u8,
            flags: if spill.is_some() { object_flags::SPILL } else { 0 },
            to_guid: self.to_guid(),
        };
        let mut bonus = dnode.bonus.clone();
        bonus.resize(usize::from(dnode.bonus_length).next_multiple_of(8), 0);
        self.record(&Record::Object(record), &bonus).await?;
        // What was behind its end.
        let end = dnode.max_blkid.saturating_add(1).saturating_mul(dnode.data_block_size());
        self.free(object, end, OBJECT_END).await?;
        match spill.filter(|bp| bp.birth() <= self.sending.since) {
            Some(bp) => {
                let contents = self.read(object, SPILL_BLOCK, bp).take().await?;
                self.spill(object, &bp, &contents.bytes).await
            }
            None => Ok(()),
        }
    }

    async fn spill(&mut self, object: ObjectId, bp: &BlkPtr, bytes: &[u8]) -> Result<()> {
        self.flush().await?;
        let flags = if bp.birth() <= self.sending.since { spill_flags::UNMODIFIED } else { 0 };
        let record = Spill { object, length: bytes.len() as u64, to_guid: self.to_guid(), flags };
        self.record(&Record::Spill(record), bytes).await
    }

    async fn embedded(&mut self, object: ObjectId, dnode: &DnodePhys, blkid: u64, bp: &BlkPtr) -> Result<()> {
        self.flush().await?;
        let length = dnode.data_block_size();
        let mut payload = bp.embedded_payload();
        let record = Embedded {
            object,
            offset: blkid.saturating_mul(length),
            length,
            to_guid: self.to_guid(),
            compression: bp.compression(),
            kind: bp.embedded_kind(),
            logical_size: bp.lsize() as u32,
            payload_size: payload.len() as u32,
        };
        payload.resize(payload.len().next_multiple_of(8), 0);
        self.record(&Record::WriteEmbedded(record), &payload).await
    }

    async fn data(
        &mut self,
        object: ObjectId,
        dnode: &DnodePhys,
        blkid: u64,
        bp: &BlkPtr,
        contents: &Contents,
    ) -> Result<()> {
        self.flush().await?;
        let whole = bp.lsize();
        let plain = Write {
            object,
            object_type: dnode.object_type,
            offset: blkid.saturating_mul(whole),
            logical_size: whole,
            to_guid: self.to_guid(),
            checksum_type: Checksum::OFF,
            flags: 0,
            compression: Compression::INHERIT,
            key: ([0; 4], 0),
            compressed_size: 0,
        };
        if whole as usize > OLD_BLOCK_MAX && !self.has(StreamFeatures::LARGE_BLOCKS) {
            for (piece, at) in contents.bytes.chunks(OLD_BLOCK_MAX).zip((0u64..).step_by(OLD_BLOCK_MAX)) {
                let write = Write { offset: plain.offset + at, logical_size: piece.len() as u64, ..plain };
                self.record(&Record::Write(write), piece).await?;
            }
            return Ok(());
        }
        let mut write = if bp.is_embedded() { plain } else { keyed(plain, bp) };
        if contents.as_stored {
            write.compression = bp.compression();
            write.compressed_size = contents.bytes.len() as u64;
        }
        self.record(&Record::Write(write), &contents.bytes).await
    }
}

/// With the checksum that the pool has of the block (`DRR_CHECKSUM_DEDUP`, `ddk_prop`).
fn keyed(plain: Write, bp: &BlkPtr) -> Write {
    let kind = bp.checksum_kind();
    let identifies = [Checksum::SHA256, Checksum::SHA512, Checksum::SKEIN, Checksum::BLAKE3].contains(&kind);
    let sectors = |bytes: u64| Sectors::of(bytes).0 - 1;
    let properties = sectors(bp.lsize()) | sectors(bp.psize()) << 16 | u64::from(bp.compression().number()) << 32;
    Write { checksum_type: kind, flags: u8::from(identifies), key: (bp.checksum(), properties), ..plain }
}
