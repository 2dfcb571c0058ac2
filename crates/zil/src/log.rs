//! One object set's log while it is open for writing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_hooks::Canary;
use platter_ondisk::zil::block::{self, BLOCK_SIZE_MIN, Layout, next_seed};
use platter_ondisk::zil::record::{Record, Write, WriteData};
use platter_ondisk::zil::{ZIL_REPLAY_NEEDED, ZilHeader};
use platter_ondisk::{BlkPtr, Compression, ObjectId, ObjectType, Txg};
use platter_zio::{BlockReader, BlockStore, LogBias, Store};

use crate::COMMIT_MAX;
use crate::chain::{Chain, hash};
use crate::claim::blocks_to_free;
use crate::itx::{Itxs, Note, SLOTS};
use crate::plan::{Planned, Sizes, plan};

/// Pieces in which a write's data is read, in bytes: bounds what one commit holds twice.
const READ_PIECE: u64 = 1 << 20;

/// Property `sync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Stable when asked for.
    #[default]
    Standard,
    /// Every change is stable before it is answered.
    Always,
    /// Nothing is stable before its group is, whatever is asked for.
    Disabled,
}

impl SyncMode {
    /// From the number stored for the property.
    pub fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Always,
            2 => Self::Disabled,
            _ => Self::Standard,
        }
    }
}

/// How logs of a pool differ from those of present pools.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// Log blocks begin with their link: pools of version 23 and later.
    pub slim: bool,
    /// Numbers in records are Solaris's: pools before version 28, which ZFS for Linux never wrote.
    pub solaris: bool,
}

/// Where data of write records is read when they are written.
pub trait DataSource: Send + Sync {
    /// Bytes of `object`, fewer at its end; `None` when it is gone (or another one has its number), so that the record
    /// concerns nobody. Never called while a group is held open.
    fn read(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> BoxFuture<'_, Result<Option<Vec<u8>>>>;
}

/// A block of the chain in memory.
#[derive(Clone, Debug)]
struct Block {
    bp: BlkPtr,
    alloc_txg: Txg,
    max_txg: Txg,
    /// Everything in it is stable, or of no use any more.
    done: bool,
}

/// A claimed chain on disk.
struct Claimed {
    /// Set when it is destroyed: the group, and what is freed in it.
    destroy: Option<(Txg, Vec<BlkPtr>)>,
    /// The record being replayed.
    replaying: u64,
}

#[derive(Default)]
struct State {
    itxs: Itxs,
    /// The last group with a change that has no record.
    unlogged: Txg,
    /// Commits asked for.
    requested: u64,
    chain: VecDeque<Block>,
    /// The chain cannot be written any more; it waits to be freed.
    broken: bool,
    /// The object set is being closed: no new chain.
    retired: bool,
    claimed: Option<Claimed>,
    /// Highest record replayed in each group.
    replayed: [u64; SLOTS],
}

impl State {
    /// A block was allocated behind the chain's last one.
    fn append(&mut self, block: Block) {
        let is_later = self.chain.back().is_none_or(|last| last.bp.birth() <= block.bp.birth());
        assert!(is_later, "births never decrease along the chain");
        self.chain.push_back(block);
    }
}

/// What only the commit that writes may touch.
#[derive(Default)]
struct Writer {
    /// Commits that are stable.
    durable: u64,
    /// The last record's number.
    sequence: u64,
    sizes: Sizes,
}

/// See the crate's text.
pub struct Zil {
    os: Arc<Objset>,
    store: Store,
    layout: Layout,
    solaris: bool,
    random: Box<dyn Fn() -> u64 + Send + Sync>,
    mode: AtomicU8,
    is_for_throughput: AtomicBool,
    takes_xattrs: AtomicBool,
    source: OnceLock<Weak<dyn DataSource>>,
    state: Mutex<State>,
    writer: tokio::sync::Mutex<Writer>,
}

impl Zil {
    /// The log of `os`. `random` draws the numbers that tell chains apart; `dialect` is the pool's.
    pub fn new(
        os: Arc<Objset>,
        store: Store,
        dialect: Dialect,
        mode: SyncMode,
        random: Box<dyn Fn() -> u64 + Send + Sync>,
    ) -> Arc<Self> {
        let header = os.zil_header();
        let claimed = (!header.log.is_hole()).then_some(Claimed { destroy: None, replaying: 0 });
        Arc::new(Self {
            os,
            store,
            layout: if dialect.slim { Layout::Slim } else { Layout::Trailing },
            solaris: dialect.solaris,
            random,
            mode: AtomicU8::new(mode as u8),
            is_for_throughput: AtomicBool::new(false),
            takes_xattrs: AtomicBool::new(false),
            source: OnceLock::new(),
            state: Mutex::new(State { claimed, ..State::default() }),
            writer: tokio::sync::Mutex::default(),
        })
    }

    /// Whether only systems with Solaris's numbers know pools like this one.
    pub fn is_solaris(&self) -> bool {
        self.solaris
    }

    /// Sets where data is read; once, by whoever mounts the file system.
    pub fn set_source(&self, source: Weak<dyn DataSource>) {
        let _ = self.source.set(source);
    }

    /// Property `sync` as it is.
    pub fn mode(&self) -> SyncMode {
        match self.mode.load(Ordering::Relaxed) {
            m if m == SyncMode::Always as u8 => SyncMode::Always,
            m if m == SyncMode::Disabled as u8 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }

    /// Follows a change of property `sync`.
    pub fn set_mode(&self, mode: SyncMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Property `logbias` as it is.
    fn bias(&self) -> LogBias {
        match self.is_for_throughput.load(Ordering::Relaxed) {
            true => LogBias::Throughput,
            false => LogBias::Latency,
        }
    }

    /// Follows property `logbias`. The block that is next in the chain stays where it is.
    pub fn set_bias(&self, bias: LogBias) {
        self.is_for_throughput.store(bias == LogBias::Throughput, Ordering::Relaxed);
    }

    /// Remembers what was changed in `tx`, in this order. What is remembered of the objects in `gone` alone, which lost
    /// their last names by it, concerns nobody any more.
    pub fn note(&self, tx: &Tx, notes: impl IntoIterator<Item = Note>, gone: &[ObjectId]) {
        let mut state = self.state.lock();
        if !self.skip(&mut state, tx) {
            notes.into_iter().for_each(|note| state.itxs.add(tx.txg(), note));
        }
        gone.iter().for_each(|object| state.itxs.forget(object.0));
    }

    /// A change in `tx` has no record: commits wait for its group. `gone` as for [`note`](Self::note).
    pub fn note_unlogged(&self, tx: &Tx, gone: &[ObjectId]) {
        let mut state = self.state.lock();
        if !self.skip(&mut state, tx) {
            state.unlogged = state.unlogged.max(tx.txg());
        }
        gone.iter().for_each(|object| state.itxs.forget(object.0));
    }

    /// Whether changes of extended attributes can have records: the data set says that its log may hold such
    /// (feature `zilsaxattr`).
    pub fn takes_xattrs(&self) -> bool {
        self.takes_xattrs.load(Ordering::Relaxed)
    }

    /// The data set says, on disk, that its log may hold records of extended attributes, or says so no more.
    pub fn set_takes_xattrs(&self, takes: bool) {
        self.takes_xattrs.store(takes, Ordering::Relaxed);
    }

    /// Whether there is a chain, of its own or claimed.
    pub fn has_chain(&self) -> bool {
        let state = self.state.lock();
        !state.chain.is_empty() || state.claimed.is_some()
    }

    /// Whether a crash left a chain that is not freed yet.
    pub fn is_claimed(&self) -> bool {
        self.state.lock().claimed.is_some()
    }

    /// What was noted of `object` so far becomes part of the next commit, whatever is committed then: before a rename,
    /// so that a file that takes another's place has its data.
    pub fn promote(&self, object: ObjectId) {
        self.state.lock().itxs.promote(Some(object.0));
    }

    /// While nothing is to be stable early, changes need no records (one that comes after the property was changed
    /// back finds that they have none). While a log is replayed, the record's number is noted instead.
    fn skip(&self, state: &mut State, tx: &Tx) -> bool {
        if let Some(claimed) = state.claimed.as_ref().filter(|claimed| claimed.replaying > 0) {
            let sequence = claimed.replaying;
            state.replayed[(tx.txg().0 as usize) % SLOTS] = sequence;
            return true;
        }
        if self.mode() == SyncMode::Disabled {
            state.unlogged = state.unlogged.max(tx.txg());
            return true;
        }
        false
    }

    /// Makes all changes of `object` (without one: all there are) stable, with everything they build on.
    ///
    /// # Errors
    /// When neither log nor group could be written: the pool is suspended.
    pub async fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        if self.mode() == SyncMode::Disabled {
            return Ok(());
        }
        let ticket = {
            let mut state = self.state.lock();
            state.itxs.promote(object.map(|object| object.0));
            state.requested += 1;
            state.requested
        };
        let mut writer = self.writer.lock().await;
        if writer.durable >= ticket {
            return Ok(());
        }
        let (upto, batch, unlogged) = {
            let mut state = self.state.lock();
            (state.requested, state.itxs.take(self.synced()), state.unlogged)
        };
        let last = batch.iter().map(|(txg, _)| *txg).max().unwrap_or(Txg(0)).max(unlogged);
        if let Err(error) = self.make_stable(&mut writer, batch, unlogged).await {
            // What was taken must not count as stable for whoever comes next.
            let mut state = self.state.lock();
            state.unlogged = state.unlogged.max(last);
            return Err(error);
        }
        writer.durable = upto;
        Ok(())
    }

    fn synced(&self) -> Txg {
        self.os.params().gate.synced_txg()
    }

    async fn wait_synced(&self, txg: Txg) -> Result<()> {
        if txg > self.synced() { self.os.params().gate.wait_synced(txg).await } else { Ok(()) }
    }

    async fn make_stable(&self, writer: &mut Writer, mut batch: Vec<(Txg, Note)>, unlogged: Txg) -> Result<()> {
        self.wait_synced(unlogged).await?;
        let synced = self.synced();
        batch.retain(|(txg, _)| *txg > synced);
        let Some(last) = batch.iter().map(|(txg, _)| *txg).max() else { return Ok(()) };
        let bytes: u64 = batch.iter().map(|(_, note)| note.data_bytes()).sum();
        let ready = {
            let state = self.state.lock();
            !state.broken && !state.retired && state.claimed.is_none() && bytes <= COMMIT_MAX
        };
        if !ready {
            return self.wait_synced(last).await;
        }
        if self.state.lock().chain.is_empty() {
            return match self.begin_chain().await {
                // The group that makes the chain known contains everything there is to commit.
                Ok(txg) => self.wait_synced(txg.max(last)).await,
                Err(_) => self.wait_synced(last).await,
            };
        }
        match self.write_batch(writer, batch).await {
            Ok(true) => Ok(()),
            Ok(false) => self.wait_synced(last).await,
            Err(error) => {
                let objset = self.os.params().id;
                tracing::warn!(%objset, %error, "the intent log cannot be written; waiting for a group");
                self.wait_synced(last).await
            }
        }
    }

    /// Allocates the first block of a chain; returns the group that makes it known.
    async fn begin_chain(&self) -> Result<Txg> {
        let tx = self.os.params().gate.hold()?;
        let seed = [(self.random)(), (self.random)(), self.os.params().id.0, 1];
        let block = self.allocate(BLOCK_SIZE_MIN, seed, &tx).await?;
        self.os.touch_head(&tx)?;
        self.state.lock().append(block);
        Ok(tx.txg())
    }

    async fn allocate(&self, size: usize, seed: [u64; 4], tx: &Tx) -> Result<Block> {
        let size = size as u64;
        // What the open groups hold must fit; a log that has no room waits for its group instead.
        if !self.os.promise_log(tx.txg(), size) {
            return Err(ZioError::NoSpace);
        }
        let dva = self.store.allocate_log(size, tx.txg(), self.bias()).await?;
        let kind = self.layout.checksum_kind();
        let mut bp = BlkPtr::describe(size, size, Compression::OFF, kind, ObjectType::INTENT_LOG, 0, tx.txg());
        bp.set_dva(0, dva);
        bp.set_checksum(seed);
        Ok(Block { bp, alloc_txg: tx.txg(), max_txg: Txg(0), done: false })
    }

    /// Writes the batch to the chain and flushes; `false` when only the group can make it stable.
    async fn write_batch(&self, writer: &mut Writer, batch: Vec<(Txg, Note)>) -> Result<bool> {
        let Some(records) = self.materialize(batch).await? else { return Ok(false) };
        if records.is_empty() {
            return Ok(true);
        }
        let tail = self.state.lock().chain.back().expect("a chain was begun").bp;
        let mut sequence = writer.sequence;
        let planned = plan(tail.lsize() as usize, records, &mut sequence)
            .ok_or_else(|| ZioError::Invalid("a change is too large for the log".into()))?;
        writer.sequence = sequence;
        writer.sizes.note(planned.iter().map(|block| block.records.len()).sum());

        // Held until everything is stable, or given up; see the invariants.
        let tx = self.os.params().gate.hold()?;
        self.os.touch_head(&tx)?;
        let written = self.extend_chain(tail, planned, writer.sizes.next(), &tx).await;
        if written.is_err() {
            self.give_up();
        }
        drop(tx);
        written.map(|()| true)
    }

    /// Writes `planned` from the chain's last block on, and leaves a new last one of `spare` bytes.
    async fn extend_chain(&self, tail: BlkPtr, planned: Vec<Planned>, spare: usize, tx: &Tx) -> Result<()> {
        let mut next_sizes: Vec<usize> = planned.iter().skip(1).map(|block| block.size).collect();
        next_sizes.push(spare);
        let mut pointers = vec![tail];
        for size in next_sizes {
            let seed = next_seed(pointers.last().expect("not empty").checksum());
            let block = self.allocate(size, seed, tx).await?;
            pointers.push(block.bp);
            self.state.lock().append(block);
        }
        let first = {
            let mut state = self.state.lock();
            let first = state.chain.len() - pointers.len();
            for (block, plan) in state.chain.iter_mut().skip(first).zip(&planned) {
                block.max_txg = plan.max_txg;
            }
            block::sequence(&state.chain[first].bp)
        };
        self.write_blocks(&pointers, planned).await?;
        let mut state = self.state.lock();
        let last = first + pointers.len() as u64 - 1;
        for block in state.chain.iter_mut().filter(|block| (first..last).contains(&block::sequence(&block.bp))) {
            block.done = true;
        }
        Ok(())
    }

    async fn write_blocks(&self, pointers: &[BlkPtr], planned: Vec<Planned>) -> Result<()> {
        let writes = pointers.windows(2).zip(planned).map(|(pair, plan)| {
            let (bp, next) = (pair[0], pair[1]);
            let bytes = block::build(self.layout, plan.size, &next, &plan.records, bp.checksum(), hash(self.layout));
            async move { self.store.write_log(&bp, Buf::copy_from(&bytes)).await }
        });
        for written in join_all(writes).await {
            written?;
        }
        if Canary::LogWithoutFlush.sings() {
            return Ok(());
        }
        let written = &pointers[..pointers.len() - 1];
        let places = written.iter().flat_map(|bp| bp.dvas().map(|dva| (dva.vdev, bp.birth())).collect::<Vec<_>>());
        self.store.flush_vdevs(&places.collect()).await
    }

    /// Reads the data of writes. `None` when some is gone by a change that came after the batch: after a crash the
    /// change may never have happened, and what was written must be there.
    async fn materialize(&self, batch: Vec<(Txg, Note)>) -> Result<Option<Vec<(Txg, Record)>>> {
        let source = self.source.get().and_then(Weak::upgrade);
        let mut records = Vec::with_capacity(batch.len());
        let shortened: BTreeMap<u64, usize> =
            batch.iter().enumerate().filter_map(|(at, (_, note))| Some((note.sets_size_of()?, at))).collect();
        for (index, (txg, note)) in batch.into_iter().enumerate() {
            match note {
                Note::Namespace(record) | Note::Object(_, record) => records.push((txg, record)),
                Note::Data { object, generation, offset, length } => {
                    let source =
                        source.as_ref().ok_or_else(|| ZioError::Invalid("the file system is not mounted".into()))?;
                    let (mut at, end) = (offset, offset.saturating_add(length));
                    while at < end {
                        let piece = (end - at).min(READ_PIECE);
                        let data = source.read(ObjectId(object), generation, at, piece).await?;
                        let Some(data) = data else { return Ok(None) };
                        let length = data.len() as u64;
                        if length < piece && shortened.get(&object).is_none_or(|&after| after < index) {
                            return Ok(None);
                        }
                        if length == 0 {
                            break;
                        }
                        let data = WriteData::Inline(data);
                        records.push((txg, Record::Write(Write { object, offset: at, length, data })));
                        at += length;
                    }
                }
            }
        }
        Ok(Some(records))
    }

    /// Nothing is written to the chain any more. It is freed with the group that the caller holds, which contains all
    /// its records.
    fn give_up(&self) {
        let mut state = self.state.lock();
        state.broken = !state.chain.is_empty();
        state.chain.iter_mut().for_each(|block| block.done = true);
    }

    /// The chain is freed with the group that is open now, and the next commit begins another: on other devices, where
    /// this one's are to be removed (`zil_reset`, `module/zfs/zil.c`).
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn begin_anew(&self) -> Result<()> {
        let _writer = self.writer.lock().await;
        let tx = self.os.params().gate.hold()?;
        self.give_up();
        if self.has_chain() { self.os.touch_head(&tx) } else { Ok(()) }
    }

    /// The object set is about to be closed: the chain is freed with the group that is open now.
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn retire(&self) -> Result<()> {
        let _writer = self.writer.lock().await;
        let tx = self.os.params().gate.hold()?;
        let mut state = self.state.lock();
        state.retired = true;
        if !state.chain.is_empty() {
            state.chain.iter_mut().for_each(|block| block.done = true);
            self.os.touch_head(&tx)?;
        }
        Ok(())
    }

    /// Takes [`retire`](Self::retire) back: the object set stays open.
    pub fn revive(&self) {
        self.state.lock().retired = false;
    }

    /// First pass of syncing `tx`'s group: frees what it makes obsolete and brings the head up to date.
    ///
    /// # Errors
    /// Those of changing the head.
    pub fn sync(&self, tx: &Tx) -> Result<()> {
        let txg = tx.txg();
        let old = self.os.zil_header();
        let mut header = old.clone();
        let mut freed = Vec::new();
        {
            let mut state = self.state.lock();
            let replayed = std::mem::take(&mut state.replayed[(txg.0 as usize) % SLOTS]);
            if state.claimed.is_some() {
                header.replay_seq = header.replay_seq.max(replayed);
            }
            if let Some((_, blocks)) = state
                .claimed
                .as_mut()
                .and_then(|claimed| claimed.destroy.take_if(|(destroyed_in, _)| *destroyed_in <= txg))
            {
                freed = blocks;
                state.claimed = None;
                header = ZilHeader::default();
            }
            while let Some(block) = state.chain.front() {
                if !block.done || block.alloc_txg > txg || block.max_txg > txg {
                    break;
                }
                freed.push(block.bp);
                state.chain.pop_front();
            }
            if state.chain.is_empty() {
                state.broken = false;
            }
            if state.claimed.is_none() {
                header.log = state.chain.front().map_or(BlkPtr::HOLE, |block| block.bp);
            }
        }
        for bp in &freed {
            self.store.free(txg, bp);
        }
        if header != old { self.os.set_zil_header(tx, &header) } else { Ok(()) }
    }

    /// Group `txg` is on disk.
    pub fn clean(&self, txg: Txg) {
        self.state.lock().itxs.clean(txg);
    }

    /// Whether a crash left records to be replayed.
    pub fn needs_replay(&self) -> bool {
        self.state.lock().claimed.is_some() && self.os.zil_header().flags & ZIL_REPLAY_NEEDED != 0
    }

    /// The claimed chain, and the number of the last record that was replayed before.
    pub fn claimed_chain(&self) -> (Chain<'_>, ZilHeader) {
        let header = self.os.zil_header();
        (Chain::new(&self.store, &header), header)
    }

    /// Where its blocks are.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Record number `sequence` is being replayed: what is changed from now on is its effect (0: nothing is).
    pub fn set_replaying(&self, sequence: u64) {
        if let Some(claimed) = &mut self.state.lock().claimed {
            claimed.replaying = sequence;
        }
    }

    /// Frees the claimed chain, if there is one, and waits until that is on disk. Its records have been replayed.
    ///
    /// # Errors
    /// As [`Chain::next`]; the pool stopped.
    pub async fn destroy_claimed(&self) -> Result<()> {
        if self.state.lock().claimed.is_none() {
            return Ok(());
        }
        let blocks = blocks_to_free(&self.store, &self.os.zil_header()).await?;
        let txg = {
            let tx = self.os.params().gate.hold()?;
            self.os.touch_head(&tx)?;
            if let Some(claimed) = &mut self.state.lock().claimed {
                claimed.replaying = 0;
                claimed.destroy = Some((tx.txg(), blocks));
            }
            tx.txg()
        };
        self.wait_synced(txg).await
    }

    /// The contents of a data block that a record leads to.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn read_data(&self, object: u64, bp: &BlkPtr) -> Result<Vec<u8>> {
        if bp.is_hole() {
            return Ok(vec![0; bp.lsize() as usize]);
        }
        let bookmark =
            platter_dmu::Bookmark { objset: self.os.params().id, object: ObjectId(object), level: -2, blkid: 0 };
        Ok(self.store.read(bp, bookmark, platter_zio::Priority::SyncRead).await?.to_vec())
    }
}
