//! Gang blocks: when no free run is long enough for a block, it is written in up to three parts behind a header
//! (`zio_write_gang_block`, `module/zfs/zio.c`).
//!
//! Invariants:
//! - a gang block is complete or not there: when a part cannot be placed or written, everything allocated for it is
//!   given back;
//! - the header has one copy more than the block; each part has as many copies as the block would have had;
//! - the allocated size in the block's addresses is that of the header and of all parts, while freeing the header
//!   itself gives back only the header's size.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::types::{checksum, compression, object_type};
use platter_ondisk::{BlkPtr, Dva, gang};
use platter_zio::{Result, WritePolicy, ZioError};

use crate::store::Store;
use crate::write::write_copies;

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
    written
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
    fn allocate(&mut self, size: u64, copies: u8) -> Result<Vec<Dva>> {
        let dvas = self.store.state().allocator.lock().allocate(size, copies)?;
        self.placed.extend(&dvas);
        Ok(dvas)
    }

    /// Header and parts of one gang block.
    fn block(&mut self, bp: BlkPtr, payload: Buf, depth: u32) -> BoxFuture<'_, Result<BlkPtr>> {
        async move {
            if depth > DEPTH_MAX || payload.len() as u64 <= self.unit {
                return Err(ZioError::NoSpace);
            }
            let headers = self.allocate(gang::HEADER_SIZE as u64, (self.policy.copies + 1).min(3))?;
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

    async fn part(&mut self, bytes: Buf, depth: u32) -> Result<BlkPtr> {
        let (size, policy) = (bytes.len() as u64, self.policy);
        let mut bp = BlkPtr::describe(size, size, compression::OFF, policy.checksum, object_type::NONE, 0, policy.txg);
        if policy.checksum != checksum::OFF {
            let words = self
                .store
                .checksum(policy.checksum, &bytes)
                .ok_or_else(|| ZioError::Invalid(format!("checksum number {} cannot be written", policy.checksum)))?;
            bp.set_checksum(words);
        }
        match self.allocate(size, policy.copies) {
            Ok(dvas) => {
                for (index, dva) in dvas.iter().enumerate() {
                    bp.set_dva(index, *dva);
                }
                self.copies(&dvas, &bytes).await?;
                Ok(bp)
            }
            Err(ZioError::NoSpace) => self.block(bp, bytes, depth + 1).await,
            Err(error) => Err(error),
        }
    }

    async fn header(&mut self, mut bp: BlkPtr, headers: &[Dva], parts: &[BlkPtr]) -> Result<BlkPtr> {
        for (index, header) in headers.iter().enumerate() {
            // Each address of the block accounts for its header and for the parts' copies of the same number.
            let below: u64 = parts.iter().map(|part| part.dvas().nth(index).map_or(0, |dva| dva.asize)).sum();
            bp.set_dva(index, Dva { asize: header.asize + below, gang: true, ..*header });
        }
        let verifier = gang::verifier(&bp.dva(0), bp.physical_birth());
        let bytes = Buf::copy_from(&gang::build(gang::HEADER_SIZE, parts, verifier, platter_checksum::sha256));
        self.copies(headers, &bytes).await?;
        Ok(bp)
    }

    /// Writes every copy; one that succeeds is enough.
    async fn copies(&self, dvas: &[Dva], bytes: &Buf) -> Result<()> {
        write_copies(self.store, dvas, bytes, self.policy).await
    }
}
