//! What whoever follows pointers has met on the way, held against the space that the pool has in use.
//!
//! A pool that somebody tampered with may have valid checksums and repeat itself: six indirect blocks that name the
//! same child everywhere stand for 2^60 of them, and nobody could walk, search or remember those. But what takes space
//! of its own is there once, and all of it together takes no more than the pool has in use. So whoever meets things
//! that are never shared counts what each takes at least, and stops where it becomes too much.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are believed without asking how much is in use: to ask takes a lock, and most walks are short.
const BELIEVED: u64 = 1 << 20;

/// Bytes met so far. See the module text. It may be shared by tasks that walk together.
#[derive(Debug, Default)]
pub struct SpaceMet {
    bytes: AtomicU64,
    believed: u64,
}

impl SpaceMet {
    /// Nothing met yet; every byte counts from the first.
    pub const fn exact() -> Self {
        Self { bytes: AtomicU64::new(0), believed: 0 }
    }

    /// Nothing met yet; little is believed without asking.
    pub const fn lenient() -> Self {
        Self { bytes: AtomicU64::new(0), believed: BELIEVED }
    }

    /// Goes on where another left off.
    pub fn resumed(met: u64) -> Self {
        Self { bytes: AtomicU64::new(met), believed: 0 }
    }

    /// Bytes met.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts something that takes at least `bytes`. `false` when all that was met cannot be there, as it takes more
    /// than what is `in_use`; that stays so.
    pub fn add(&self, bytes: u64, in_use: impl FnOnce() -> u64) -> bool {
        let mut before = self.bytes();
        loop {
            let after = before.saturating_add(bytes);
            match self.bytes.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return after <= self.believed || after <= in_use(),
                Err(now) => before = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use platter_buffer::Buf;
    use platter_ondisk::blkptr::BLKPTR_SIZE;
    use platter_ondisk::{BlkPtr, ObjectId, Txg};
    use platter_ondisk::{Checksum, Compression, ObjectType};
    use platter_vdev::Priority;

    use super::*;
    use crate::block_store::{BlockReader, BlockStore};
    use crate::memory::MemoryStore;
    use crate::policy::{Bookmark, WritePolicy};

    const PLACE: Bookmark = Bookmark { objset: ObjectId(1), object: ObjectId(2), level: 0, blkid: 0 };

    /// A tree of `levels` levels in which every block names one child in all of its eight places.
    async fn repeating(store: &MemoryStore, levels: u8) -> BlkPtr {
        let mut block = vec![7; 1024];
        let mut bp = BlkPtr::HOLE;
        for level in 0..levels {
            let policy = WritePolicy {
                txg: Txg(4),
                bookmark: PLACE,
                object_type: ObjectType::PLAIN_FILE_CONTENTS,
                level,
                checksum: Checksum::FLETCHER_4,
                compression: Compression::OFF,
                compression_level: 0,
                copies: 1,
                fill: 1,
                embed: false,
                hole: false,
                passing: false,
            };
            bp = store.write(Buf::copy_from(&block), policy, &BlkPtr::HOLE).await.expect("memory");
            block = vec![0; 1024];
            block.chunks_exact_mut(BLKPTR_SIZE).for_each(|place| bp.encode(place));
        }
        bp
    }

    /// Walks a tree as long as what it meets can be there. Returns how many blocks it saw, and whether it got to the
    /// end.
    fn walk<'a>(store: &'a MemoryStore, bp: BlkPtr, met: &'a SpaceMet, seen: &'a AtomicU64) -> BoxFuture<'a, bool> {
        async move {
            if !met.add(bp.psize(), || store.space_used()) {
                return false;
            }
            seen.fetch_add(1, Ordering::Relaxed);
            if bp.level() == 0 {
                return true;
            }
            let block = store.read(&bp, PLACE, Priority::SyncRead).await.expect("it is there");
            for place in block.chunks_exact(BLKPTR_SIZE) {
                if !walk(store, BlkPtr::decode(place), met, seen).await {
                    return false;
                }
            }
            true
        }
        .boxed()
    }

    #[tokio::test]
    async fn a_tree_that_repeats_itself_ends_where_the_space_does() {
        let store = MemoryStore::new();
        // Twenty blocks, and 8^19 ways through them.
        let root = repeating(&store, 20).await;
        store.claim_space_used(20 * 1024);
        let (met, seen) = (SpaceMet::exact(), AtomicU64::new(0));
        assert!(!walk(&store, root, &met, &seen).await);
        assert_eq!(seen.into_inner(), 20, "as many as there are, though these were not all of them");
        assert!(!met.add(0, || store.space_used()), "what was too much once stays too much");

        let (met, seen) = (SpaceMet::lenient(), AtomicU64::new(0));
        assert!(!walk(&store, root, &met, &seen).await);
        assert_eq!(seen.into_inner(), BELIEVED / 1024);
        store.claim_space_used(4 * BELIEVED);
        let (met, seen) = (SpaceMet::lenient(), AtomicU64::new(0));
        assert!(!walk(&store, root, &met, &seen).await);
        assert_eq!(seen.into_inner(), 4 * BELIEVED / 1024);
    }

    #[tokio::test]
    async fn a_tree_that_is_there_is_walked_to_its_end() {
        let store = MemoryStore::new();
        let root = repeating(&store, 3).await;
        store.claim_space_used((1 + 8 + 64) * 1024);
        let (met, seen) = (SpaceMet::exact(), AtomicU64::new(0));
        assert!(walk(&store, root, &met, &seen).await);
        assert_eq!((seen.into_inner(), met.bytes()), (73, 73 * 1024));
    }

    #[test]
    fn it_goes_on_where_another_left_off_and_never_overflows() {
        let met = SpaceMet::exact();
        assert!(met.add(60, || 100) && met.add(40, || 100));
        let later = SpaceMet::resumed(met.bytes());
        assert!(!later.add(1, || 100));
        assert!(!later.add(u64::MAX, || 100) && !later.add(u64::MAX, || 100));
        assert_eq!(later.bytes(), u64::MAX);
        assert!(SpaceMet::lenient().add(BELIEVED, || unreachable!("it is believed")));
    }
}
