//! Gang blocks: when no free run is long enough for a block, it is written in up to three parts behind a header
//! (`zio_write_gang_block`, `module/zfs/zio.c`).
//!
//! Invariants:
//! - a gang block is complete or not there: when a part cannot be placed or written, everything allocated for it is
//!   given back;
//! - the header has one copy more than the block, and each part as many copies as the block would have had, as far as
//!   there is room for them;
//! - the allocated size in the block's addresses is that of the header and of all parts, copies and all, while freeing
//!   the header itself gives back only the header's size;
//! - one that is written again in a later pass of its group keeps its header's and its parts' places: otherwise each
//!   pass would allocate and free, which dirties space maps, which are written as gang blocks again, without end
//!   (`zio_rewrite_gang`).

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, Dva, gang};
use platter_ondisk::{Checksum, Compression, ObjectType};

use crate::copies::write_copies;
use crate::error::{Result, ZioError};
use crate::gang_tree::{self, GangPart, GangTree};
use crate::policy::WritePolicy;
use crate::store::Store;

/// Nesting beyond this means that there is no space worth the name.
const DEPTH_MAX: u32 = 6;
/// Parts behind one header.
const PARTS: usize = 3;

/// Writes `payload` as a gang block. `bp` describes it, checksum included; its addresses are filled in. `unit` is the
/// least size of a part in bytes.
///
/// # Errors
/// [`ZioError::NoSpace`]; device errors. Nothing stays allocated then.
pub(crate) async fn write(store: &Store, bp: BlkPtr, payload: Buf, policy: &WritePolicy, unit: u64) -> Result<BlkPtr> {
    let mut gang = Gang { store, policy, unit, placed: Vec::new() };
    let written = gang.block(bp, payload, 0).await;
    if written.is_err() {
        let mut allocator = store.state().allocator.lock();
        for dva in &gang.placed {
            allocator.unallocate(dva);
        }
    }
    if let Ok(bp) = &written {
        let in_all = |dvas: &mut dyn Iterator<Item = Dva>| dvas.map(|dva| dva.asize).sum::<u64>();
        let (taken, told) = (in_all(&mut gang.placed.iter().copied()), in_all(&mut bp.dvas()));
        assert_eq!(taken, told, "a gang block's addresses account for all that was allocated for it");
    }
    written
}

/// Writes `payload` where the gang block `previous` of the same group and length is. `None`, and nothing is written,
/// when the headers of `previous` cannot be read, so that nobody knows where its parts are.
///
/// # Errors
/// Device errors.
pub(crate) async fn rewrite(
    store: &Store,
    bp: BlkPtr,
    payload: &Buf,
    policy: &WritePolicy,
    previous: &BlkPtr,
) -> Result<Option<BlkPtr>> {
    let Ok(tree) = gang_tree::tree(store, previous, 0).await else { return Ok(None) };
    if payload.len() as u64 != previous.psize() || !tree.is_whole() {
        return Ok(None);
    }
    let gang = Gang { store, policy, unit: 0, placed: Vec::new() };
    gang.again(bp, &tree, payload.clone()).await.map(Some)
}

/// A gang block in the making.
struct Gang<'a> {
    store: &'a Store,
    policy: &'a WritePolicy,
    unit: u64,
    /// Everything allocated so far, with its own size each.
    placed: Vec<Dva>,
}

impl Gang<'_> {
    async fn allocate(&mut self, size: u64, copies: u8) -> Result<Vec<Dva>> {
        let dvas = self.store.allocate(size, copies).await?;
        self.placed.extend(&dvas);
        Ok(dvas)
    }

    /// Header and parts of one gang block.
    fn block(&mut self, bp: BlkPtr, payload: Buf, depth: u32) -> BoxFuture<'_, Result<BlkPtr>> {
        async move {
            if depth > DEPTH_MAX || payload.len() as u64 <= self.unit {
                return Err(ZioError::NoSpace);
            }
            let headers = self.allocate(gang::HEADER_SIZE as u64, (self.policy.copies + 1).min(3)).await?;
            let length = (payload.len() as u64).div_ceil(PARTS as u64).next_multiple_of(self.unit) as usize;
            let mut parts = Vec::with_capacity(PARTS);
            let mut at = 0;
            while at < payload.len() {
                let end = (at + length).min(payload.len());
                parts.push(self.part(payload.slice(at..end), depth).await?);
                at = end;
            }
            self.header(bp, &headers, &parts).await
        }
        .boxed()
    }

    /// What `block` wrote, with other bytes at the same places.
    fn again<'a>(&'a self, bp: BlkPtr, tree: &'a GangTree, payload: Buf) -> BoxFuture<'a, Result<BlkPtr>> {
        async move {
            let mut parts = Vec::with_capacity(PARTS);
            let mut at = 0;
            for part in &tree.parts {
                let end = at + part.bp().psize() as usize;
                let bytes = payload.slice(at..end);
                let bp = self.describe_part(&bytes)?;
                parts.push(match part {
                    GangPart::Gang(tree) => self.again(bp, tree, bytes).await?,
                    GangPart::Block(old) => self.written(bp, &old.dvas().collect::<Vec<_>>(), &bytes).await?,
                });
                at = end;
            }
            assert_eq!(at, payload.len(), "all of a block is written again");
            let places: Vec<Dva> = tree.bp.dvas().collect();
            self.seal(bp, &places, &parts).await
        }
        .boxed()
    }

    fn describe_part(&self, bytes: &Buf) -> Result<BlkPtr> {
        let (size, policy) = (bytes.len() as u64, self.policy);
        let mut bp = BlkPtr::describe(size, size, Compression::OFF, policy.checksum, ObjectType::NONE, 0, policy.txg);
        if policy.checksum != Checksum::OFF {
            let words = self
                .store
                .checksum(policy.checksum, bytes)
                .ok_or_else(|| ZioError::Invalid(format!("checksum number {} cannot be written", policy.checksum)))?;
            bp.set_checksum(words);
        }
        Ok(bp)
    }

    async fn part(&mut self, bytes: Buf, depth: u32) -> Result<BlkPtr> {
        let bp = self.describe_part(&bytes)?;
        match self.allocate(bytes.len() as u64, self.policy.copies).await {
            Ok(dvas) => self.written(bp, &dvas, &bytes).await,
            Err(ZioError::NoSpace) => self.block(bp, bytes, depth + 1).await,
            Err(error) => Err(error),
        }
    }

    async fn header(&self, bp: BlkPtr, headers: &[Dva], parts: &[BlkPtr]) -> Result<BlkPtr> {
        // Each address of the block accounts for its header and for the parts' copies of the same number, the last one
        // for all further copies: there may be room again that there was not when the header was placed.
        let further = |index| if index + 1 == headers.len() { usize::MAX } else { 1 };
        let copies =
            |part: &BlkPtr, index| part.dvas().skip(index).take(further(index)).map(|dva| dva.asize).sum::<u64>();
        let below = |index| parts.iter().map(|part| copies(part, index)).sum::<u64>();
        let whole = |(index, header): (usize, &Dva)| Dva { asize: header.asize + below(index), gang: true, ..*header };
        let places: Vec<Dva> = headers.iter().enumerate().map(whole).collect();
        self.seal(bp, &places, parts).await
    }

    /// Writes the header at `places`, which become the block's addresses.
    async fn seal(&self, bp: BlkPtr, places: &[Dva], parts: &[BlkPtr]) -> Result<BlkPtr> {
        let verifier = gang::verifier(&places[0], bp.physical_birth());
        let bytes = Buf::copy_from(&gang::build(gang::HEADER_SIZE, parts, verifier, platter_checksum::sha256));
        self.written(bp, places, &bytes).await
    }

    /// Writes `bytes` at `places`, which become the addresses of `bp`; one copy that succeeds is enough.
    async fn written(&self, mut bp: BlkPtr, places: &[Dva], bytes: &Buf) -> Result<BlkPtr> {
        places.iter().enumerate().for_each(|(index, place)| bp.set_dva(index, *place));
        write_copies(self.store, places, bytes, self.policy).await?;
        Ok(bp)
    }
}
