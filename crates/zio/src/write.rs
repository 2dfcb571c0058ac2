//! Writing one block, in the stages of [`write`]: a hole if it can be, compress, embed if it can be, checksum, place,
//! issue (`zio_write_compress`, `zio_dva_allocate`, `module/zfs/zio.c`). What comes between them one day (encryption,
//! deduplication) is a stage as these are.

use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_hooks::CpuWork;
use platter_ondisk::blkptr::EMBEDDED_PAYLOAD_MAX;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{BlkPtr, Checksum, Compression, Dva, ObjectType, Txg};

use crate::block_store::BlockStore;
use crate::compressed::{Payload, compressed};
use crate::copies::write_copies;
use crate::error::{Result, ZioError};
use crate::l2arc::Origin;
use crate::policy::WritePolicy;
use crate::store::Store;
use crate::{free, gang_write};

/// From this pass on nothing is compressed any more, so that sizes stop changing (`zfs_sync_pass_dont_compress`).
const PASS_WITHOUT_COMPRESSION: u32 = 8;

impl BlockStore for Store {
    fn write<'a>(&'a self, data: Buf, policy: WritePolicy, previous: &'a BlkPtr) -> BoxFuture<'a, Result<BlkPtr>> {
        async move {
            let _memory = self.state().large.write(&self.state().cache, data.len() as u64, &policy).await;
            let _permit = self.state().write_slots.acquire().await.expect("never closed");
            write(self, data, &policy, previous).await
        }
        .boxed()
    }

    fn free(&self, _txg: Txg, bp: &BlkPtr) {
        free::free(self, bp);
    }

    fn dsize(&self, bp: &BlkPtr) -> u64 {
        let allocator = self.state().allocator.lock();
        bp.dvas().map(|dva| allocator.dsize(&dva)).sum()
    }

    fn space_used(&self) -> u64 {
        self.state().allocator.lock().deflated().0
    }

    fn most_space(&self, size: u64) -> u64 {
        self.state().vdevs.most_space(size)
    }
}

async fn write(store: &Store, data: Buf, policy: &WritePolicy, previous: &BlkPtr) -> Result<BlkPtr> {
    let mut zio = WriteZio::new(store, data, policy, previous)?;
    if let Some(hole) = zio.hole() {
        return Ok(hole);
    }
    zio.compress().await;
    if let Some(embedded) = zio.embed() {
        return Ok(embedded);
    }
    zio.checksum().await?;
    let placed = zio.place().await?;
    zio.issue(placed).await?;
    zio.done().await
}

/// A block on its way to the devices: what it was given, and what the stages so far made of it.
struct WriteZio<'a> {
    store: &'a Store,
    policy: &'a WritePolicy,
    /// What the block's pointer will replace.
    previous: &'a BlkPtr,
    /// The contents.
    data: Buf,
    /// The allocation unit in bytes: stored sizes are multiples of it.
    unit: u64,
    /// What will be stored: the contents, until they are compressed.
    payload: Payload,
    /// The pointer, as far as it is known.
    bp: BlkPtr,
    /// How often the pool had been resumed when its place was looked for.
    resumptions: u64,
}

impl<'a> WriteZio<'a> {
    fn new(store: &'a Store, data: Buf, policy: &'a WritePolicy, previous: &'a BlkPtr) -> Result<Self> {
        let lsize = data.len() as u64;
        if lsize == 0 || !lsize.is_multiple_of(SECTOR) {
            return Err(ZioError::Invalid(format!(
                "block {} of {lsize} bytes is not a whole number of sectors",
                policy.bookmark
            )));
        }
        let unit = SECTOR.max(1 << store.state().min_ashift);
        let payload = Payload::plain(&data);
        Ok(Self { store, policy, previous, data, unit, payload, bp: BlkPtr::default(), resumptions: 0 })
    }

    /// Data of zeros is no block at all, where the policy allows that.
    fn hole(&self) -> Option<BlkPtr> {
        let policy = self.policy;
        let may_be = policy.hole && policy.level == 0 && policy.compression != Compression::OFF;
        (may_be && platter_compress::is_zero(&self.data))
            .then(|| BlkPtr::hole_born(policy.txg, policy.object_type, 0, self.data.len() as u64))
    }

    async fn compress(&mut self) {
        let pass = self.store.state().pass.load(Ordering::Relaxed);
        let kind = self.policy.compression;
        if kind == Compression::OFF || pass >= PASS_WITHOUT_COMPRESSION {
            return;
        }
        // Of a data set's deadlist each snapshot has a copy.
        let is_copied = self.policy.object_type == ObjectType::DEADLIST && self.policy.level == 0;
        let before = is_copied.then(|| &self.store.state().compressed_before);
        if let Some(payload) = before.and_then(|before| before.get(&self.data, self.policy, self.unit)) {
            self.payload = payload;
            return;
        }
        self.payload = compressed(&self.data, self.policy, self.unit);
        if let Some(before) = before {
            before.keep(&self.data, self.policy, self.unit, &self.payload);
        }
        self.store.cpu().charge(CpuWork::Compress(kind.number()), self.data.len()).await;
    }

    /// What was compressed to a few bytes goes into the pointer, where the policy allows that; what was not compressed
    /// to fewer units is stored as it is.
    fn embed(&mut self) -> Option<BlkPtr> {
        let (policy, lsize) = (self.policy, self.data.len() as u64);
        let payload = &self.payload;
        let embeddable = policy.embed
            && policy.level == 0
            && payload.compression != Compression::OFF
            && payload.used <= EMBEDDED_PAYLOAD_MAX
            && !matches!(policy.object_type, ObjectType::DNODE | ObjectType::OBJSET);
        if embeddable {
            let bytes = &payload.bytes[..payload.used];
            let (kind, level) = (policy.object_type, policy.level);
            return Some(BlkPtr::embed(bytes, lsize, payload.compression, kind, level, policy.txg));
        }
        if payload.bytes.len() as u64 >= lsize {
            self.payload = Payload::plain(&self.data);
        }
        None
    }

    /// The pointer of a block that has no place yet.
    async fn checksum(&mut self) -> Result<()> {
        let &WritePolicy { checksum: kind, object_type, level, txg, .. } = self.policy;
        let (lsize, psize) = (self.data.len() as u64, self.payload.bytes.len() as u64);
        self.bp = BlkPtr::describe(lsize, psize, self.payload.compression, kind, object_type, level, txg);
        self.bp.set_fill(self.policy.fill);
        if kind != Checksum::OFF {
            let words = self
                .store
                .checksum(kind, &self.payload.bytes)
                .ok_or_else(|| ZioError::Invalid(format!("checksum number {kind} cannot be written")))?;
            self.bp.set_checksum(words);
            self.store.cpu().charge(CpuWork::Checksum(kind.number()), self.payload.bytes.len()).await;
        }
        Ok(())
    }

    /// Finds a place. A block born in this very group is rewritten in place once its size has settled, so that the last
    /// passes of a sync stop allocating (`zfs_sync_pass_rewrite`).
    async fn place(&mut self) -> Result<Placed> {
        let &mut Self { store, policy, previous, unit, bp, ref payload, .. } = self;
        self.resumptions = store.state().suspension.resumptions();
        let in_place = store.state().pass.load(Ordering::Relaxed) >= 2
            && !previous.is_hole()
            && !previous.is_embedded()
            && previous.birth() == policy.txg
            && previous.psize() == payload.bytes.len() as u64;
        match (in_place, previous.is_gang()) {
            (true, false) => Ok(Placed::Again(previous.dvas().collect())),
            (true, true) => match gang_write::rewrite(store, bp, &payload.bytes, policy, previous).await? {
                Some(bp) => Ok(Placed::Gang(bp)),
                None => find_space(store, &bp, &payload.bytes, policy, unit).await,
            },
            (false, _) => find_space(store, &bp, &payload.bytes, policy, unit).await,
        }
    }

    /// Writes the block to its place, unless it was written in parts while one was looked for.
    async fn issue(&mut self, placed: Placed) -> Result<()> {
        let (dvas, is_new) = match placed {
            Placed::At(dvas) => (dvas, true),
            Placed::Again(dvas) => (dvas, false),
            Placed::Gang(bp) => {
                self.bp = bp;
                return Ok(());
            }
        };
        for (index, dva) in dvas.iter().enumerate() {
            self.bp.set_dva(index, *dva);
        }
        let written = write_copies(self.store, &dvas, &self.payload.bytes, self.policy).await;
        if written.is_err() {
            for dva in dvas.iter().filter(|_| is_new) {
                self.store.state().allocator.lock().unallocate(dva);
            }
        }
        written
    }

    /// The block is written: it is remembered until its group is durable, and cached.
    async fn done(self) -> Result<BlkPtr> {
        self.store.note_born(&self.bp, self.resumptions).await?;
        if !self.policy.passing {
            let (state, objset) = (self.store.state(), self.policy.bookmark.objset);
            if self.store.can_tell(&self.bp) {
                state.l2arc.offer(&state.cache, objset, &self.bp, &self.payload.bytes, Origin::Written);
            }
            state.cache.insert(objset, &self.bp, self.data);
        }
        Ok(self.bp)
    }
}

/// What became of the search for space.
enum Placed {
    /// The block is to be written there.
    At(Vec<Dva>),
    /// As this, where the group has it already.
    Again(Vec<Dva>),
    /// It has been written in parts: there was no long enough run.
    Gang(BlkPtr),
}

/// Finds space for a block, in parts if need be. Space on devices that are not there is no space, but the pool is not
/// full for that: it is suspended until they are back.
async fn find_space(store: &Store, bp: &BlkPtr, bytes: &Buf, policy: &WritePolicy, unit: u64) -> Result<Placed> {
    let state = store.state();
    let psize = bytes.len() as u64;
    loop {
        let resumptions = state.suspension.resumptions();
        let forced = psize > state.force_ganging.load(Ordering::Relaxed) && psize > unit;
        let placed = if forced { Err(ZioError::NoSpace) } else { store.allocate(psize, policy.copies).await };
        match placed {
            Ok(dvas) => return Ok(Placed::At(dvas)),
            Err(ZioError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        match gang_write::write(store, *bp, bytes.clone(), policy, unit).await {
            Ok(bp) => return Ok(Placed::Gang(bp)),
            Err(ZioError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        let gone = state.vdevs.ordinary().find(|vdev| !vdev.condition().is_usable());
        let Some(gone) = gone else { return Err(ZioError::NoSpace) };
        if !state.suspension.hold(resumptions, &format!("{} cannot be written", gone.name())).await {
            return Err(ZioError::Io(format!("{} cannot be written", gone.name())));
        }
        state.allocator.lock().try_again();
    }
}
