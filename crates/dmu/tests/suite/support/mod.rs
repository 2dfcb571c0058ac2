//! A pool's blocks in memory that behaves like the real one where it matters to object sets, and an auditor that
//! reads a synced object set from its root pointer alone and checks what `zdb -bcc` would.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_dmu::{NewDnode, Objset, ObjsetParams, WriteProperties};
use platter_ondisk::dnode::{DNODE_SIZE, dnodes_in_block};
use platter_ondisk::{BlkPtr, Checksum, Compression, DnodePhys, Dva, ObjectId, ObjectType, ObjsetPhys, Txg};
use platter_zio::{BlockCache, BlockReader, BlockStore, Bookmark, Priority, Result, SpaceAccounting, TxgGate};
use platter_zio::{WritePolicy, ZioError};

/// Blocks by offset. Freed space keeps its bytes until it is reused, two groups later; a block born in the same group
/// is rewritten in place when its size stays (as in later sync passes); small blocks are embedded; tasks yield at odd
/// points.
pub struct TestStore {
    inner: Mutex<Inner>,
    noise: AtomicU64,
    reads: AtomicU64,
    no_cache: AtomicBool,
    /// What was written and not freed, and nothing.
    cache: BlockCache,
    empty: BlockCache,
}

impl Default for TestStore {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            noise: AtomicU64::default(),
            reads: AtomicU64::default(),
            no_cache: AtomicBool::default(),
            cache: BlockCache::new(64 << 20),
            empty: BlockCache::new(0),
        }
    }
}

#[derive(Default)]
struct Inner {
    next: u64,
    blocks: BTreeMap<u64, Buf>,
    freed: BTreeMap<u64, Txg>,
}

impl TestStore {
    pub fn live_blocks(&self) -> usize {
        self.offsets().len()
    }

    pub fn offsets(&self) -> Vec<u64> {
        let inner = self.inner.lock().unwrap();
        let mut offsets: Vec<u64> =
            inner.blocks.keys().filter(|offset| !inner.freed.contains_key(offset)).copied().collect();
        offsets.sort_unstable();
        offsets
    }

    /// Whether nothing is cached from now on.
    pub fn forget_cache(&self, forget: bool) {
        self.no_cache.store(forget, Ordering::Relaxed);
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Makes a block unreadable.
    pub fn lose(&self, bp: &BlkPtr) {
        self.cache.remove(bp);
        self.inner.lock().unwrap().blocks.insert(bp.dva(0).offset, Buf::copy_from(b"noise"));
    }

    async fn noise(&self) {
        let n = self.noise.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
    }

    fn checksum(data: &[u8]) -> [u64; 4] {
        let mut sums = [data.len() as u64, 0, 0, 1];
        for word in data.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            sums[1] = sums[1].wrapping_add(word).wrapping_mul(0x100_0000_01b3);
            sums[2] ^= sums[1] >> 29;
        }
        sums
    }
}

impl BlockReader for TestStore {
    /// One that often has nothing, so that both ways of finding a block are taken.
    fn cache(&self) -> &BlockCache {
        let is_empty =
            self.no_cache.load(Ordering::Relaxed) || self.noise.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
        if is_empty { &self.empty } else { &self.cache }
    }

    fn read<'a>(&'a self, bp: &'a BlkPtr, bookmark: Bookmark, _priority: Priority) -> BoxFuture<'a, Result<Buf>> {
        async move {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.noise().await;
            if self.no_cache.load(Ordering::Relaxed) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            assert!(!bp.is_hole(), "{bookmark}: a hole was read");
            if bp.is_embedded() {
                let mut bytes = bp.embedded_payload();
                bytes.resize(bp.lsize() as usize, 0);
                return Ok(Buf::copy_from(&bytes));
            }
            let inner = self.inner.lock().unwrap();
            let found = inner.blocks.get(&bp.dva(0).offset).cloned();
            match found {
                Some(block) if Self::checksum(&block) == bp.checksum() => Ok(block),
                _ => Err(ZioError::Checksum { bookmark, detail: format!("{bp:?}") }),
            }
        }
        .boxed()
    }
}

impl BlockStore for TestStore {
    fn write<'a>(&'a self, data: Buf, policy: WritePolicy, previous: &'a BlkPtr) -> BoxFuture<'a, Result<BlkPtr>> {
        async move {
            self.noise().await;
            if policy.hole && policy.level == 0 && data.iter().all(|&b| b == 0) {
                return Ok(BlkPtr::hole_born(policy.txg, policy.object_type, 0, data.len() as u64));
            }
            let tail = data.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
            if policy.embed && (1..=112).contains(&tail) && data.len() > 512 {
                let size = data.len() as u64;
                return Ok(BlkPtr::embed(
                    &data[..tail],
                    size,
                    Compression::LZ4,
                    policy.object_type,
                    policy.level,
                    policy.txg,
                ));
            }
            let size = data.len() as u64;
            let mut inner = self.inner.lock().unwrap();
            let mut bp = BlkPtr::describe(
                size,
                size,
                Compression::OFF,
                policy.checksum,
                policy.object_type,
                policy.level,
                policy.txg,
            );
            bp.set_fill(policy.fill);
            bp.set_checksum(Self::checksum(&data));
            let in_place = !previous.is_hole()
                && !previous.is_embedded()
                && previous.birth() == policy.txg
                && previous.psize() == size;
            let offset = if in_place {
                previous.dva(0).offset
            } else {
                let reusable = inner.freed.iter().find(|(_, freed)| freed.plus(2) <= policy.txg);
                match reusable.map(|(&offset, _)| offset) {
                    Some(offset) => {
                        inner.freed.remove(&offset);
                        inner.blocks.remove(&offset);
                        offset
                    }
                    None => {
                        inner.next += 16 << 20;
                        inner.next
                    }
                }
            };
            for copy in 0..policy.copies {
                bp.set_dva(usize::from(copy), Dva { vdev: u32::from(copy), offset, asize: size, gang: false });
            }
            self.cache.insert(policy.bookmark.objset, &bp, data.clone());
            let old = inner.blocks.insert(offset, data);
            assert_eq!(old.is_some(), in_place, "allocated twice");
            Ok(bp)
        }
        .boxed()
    }

    fn free(&self, txg: Txg, bp: &BlkPtr) {
        if bp.is_hole() || bp.is_embedded() {
            return;
        }
        self.cache.remove(bp);
        let mut inner = self.inner.lock().unwrap();
        let offset = bp.dva(0).offset;
        assert!(inner.blocks.contains_key(&offset), "freed and never written: {bp:?}");
        assert!(inner.freed.insert(offset, txg).is_none(), "freed twice: {bp:?}");
    }

    fn dsize(&self, bp: &BlkPtr) -> u64 {
        bp.asize()
    }
}

/// Births and deaths; what is alive must be what the tree references.
pub struct Ledger {
    store: Arc<TestStore>,
    live: Mutex<BTreeMap<u64, u64>>,
}

impl Ledger {
    pub fn live(&self) -> BTreeMap<u64, u64> {
        self.live.lock().unwrap().clone()
    }
}

impl SpaceAccounting for Ledger {
    fn born(&self, txg: Txg, bp: &BlkPtr) {
        assert!(!bp.is_hole() && bp.birth() == txg, "born in {txg}: {bp:?}");
        if !bp.is_embedded() {
            let old = self.live.lock().unwrap().insert(bp.dva(0).offset, bp.asize());
            assert!(old.is_none(), "born twice: {bp:?}");
        }
    }

    fn kill(&self, txg: Txg, bp: &BlkPtr) {
        assert!(bp.birth() <= txg);
        if !bp.is_hole() && !bp.is_embedded() {
            let old = self.live.lock().unwrap().remove(&bp.dva(0).offset);
            assert_eq!(old, Some(bp.asize()), "killed and not alive: {bp:?}");
            self.store.free(txg, bp);
        }
    }
}

/// An object set on a [`TestStore`].
pub struct World {
    pub store: Arc<TestStore>,
    pub ledger: Arc<Ledger>,
    pub gate: Arc<TxgGate>,
    pub is_mos: bool,
    pub dnode_size: u32,
}

impl World {
    pub fn new(is_mos: bool) -> Self {
        let store = Arc::new(TestStore::default());
        let ledger = Arc::new(Ledger { store: store.clone(), live: Mutex::default() });
        Self { store, ledger, gate: TxgGate::new(Txg(4), 1 << 40), is_mos, dnode_size: 512 }
    }

    pub fn params(&self) -> ObjsetParams {
        ObjsetParams {
            store: self.store.clone(),
            accounting: self.ledger.clone(),
            gate: self.gate.clone(),
            id: ObjectId(if self.is_mos { 0 } else { 54 }),
            properties: WriteProperties {
                checksum: Checksum::FLETCHER_4,
                compression: Compression::LZ4,
                compression_level: 0,
                copies: 1,
                record_size: 131_072,
                is_mos: self.is_mos,
                embedded_data: true,
                dnode_size: self.dnode_size,
                redundant_metadata: platter_dmu::RedundantMetadata::All,
                format: platter_dmu::Format::default(),
                accounting: platter_dmu::UserAccounting::default(),
            },
            read_only: false,
        }
    }

    /// Closes the open group and syncs it.
    pub async fn sync(&self, os: &Arc<Objset>) -> BlkPtr {
        let txg = self.gate.quiesce().await;
        let root = os.sync(txg, 1).await.unwrap();
        self.gate.finish(txg);
        root
    }

    /// Audits the synced object set; everything alive must be referenced, and nothing else.
    pub async fn audit(&self, root: &BlkPtr) -> Audit {
        let audit = Audit::run(self.store.as_ref(), root).await;
        let live = self.ledger.live();
        assert_eq!(audit.referenced, live, "referenced and alive differ");
        let offsets: Vec<u64> = live.keys().copied().collect();
        assert_eq!(self.store.offsets(), offsets, "stored and alive differ");
        audit
    }
}

pub fn file(block_size: u32) -> NewDnode {
    NewDnode {
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        block_size,
        indirect_shift: 17,
        bonus_type: ObjectType::SA,
        bonus_length: 168,
        dnode_size: 0,
    }
}

/// What the auditor found.
#[derive(Default)]
pub struct Audit {
    pub referenced: BTreeMap<u64, u64>,
    pub objects: BTreeMap<u64, DnodePhys>,
}

impl Audit {
    async fn run(store: &TestStore, root: &BlkPtr) -> Self {
        let mut audit = Self::default();
        let bookmark = Bookmark::default();
        audit.reference(root);
        let head = ObjsetPhys::decode(&store.read(root, bookmark, Priority::Scrub).await.unwrap()).unwrap();
        assert_eq!((root.object_type(), root.level()), (ObjectType::OBJSET, 0));
        assert_eq!(head.size, 4096);
        let mut blocks = BTreeMap::new();
        audit.dnode(store, root.birth(), &head.meta_dnode, &mut blocks).await;
        for (blkid, block) in blocks {
            for (slot, dnode) in dnodes_in_block(&block) {
                audit.objects.insert(blkid * 32 + slot as u64, dnode.unwrap());
            }
            assert_eq!(block.len(), 32 * DNODE_SIZE);
        }
        assert_eq!(root.fill(), audit.objects.len() as u64, "objects counted in the root");
        for dnode in audit.objects.clone().values() {
            audit.dnode(store, root.birth(), dnode, &mut BTreeMap::new()).await;
        }
        audit
    }

    fn reference(&mut self, bp: &BlkPtr) -> u64 {
        if bp.is_hole() || bp.is_embedded() {
            return 0;
        }
        let old = self.referenced.insert(bp.dva(0).offset, bp.asize());
        assert!(old.is_none(), "referenced twice: {bp:?}");
        bp.asize()
    }

    async fn dnode(&mut self, store: &TestStore, birth: Txg, dnode: &DnodePhys, data: &mut BTreeMap<u64, Buf>) {
        let mut used = 0;
        for (index, bp) in dnode.blkptrs.iter().enumerate() {
            used += self.tree(store, birth, dnode, dnode.levels - 1, index as u64, bp, data).await;
        }
        if let Some(spill) = &dnode.spill {
            assert_eq!((spill.level(), spill.object_type()), (0, dnode.bonus_type));
            used += self.reference(spill);
            store.read(spill, Bookmark::default(), Priority::Scrub).await.unwrap();
        }
        assert_eq!(dnode.used_bytes(), used, "space used by {dnode:?}");
        if let Some((&last, _)) = data.last_key_value() {
            assert!(last <= dnode.max_blkid, "block {last} beyond {}", dnode.max_blkid);
        }
    }

    fn tree<'a>(
        &'a mut self,
        store: &'a TestStore,
        parent: Txg,
        dnode: &'a DnodePhys,
        level: u8,
        index: u64,
        bp: &'a BlkPtr,
        data: &'a mut BTreeMap<u64, Buf>,
    ) -> BoxFuture<'a, u64> {
        async move {
            assert!(bp.birth() <= parent, "younger than its parent: {bp:?}");
            if bp.is_hole() {
                return 0;
            }
            assert_eq!((bp.level(), bp.object_type()), (level, dnode.object_type));
            let mut used = self.reference(bp);
            let size = if level == 0 { dnode.data_block_size() } else { 1 << dnode.indirect_shift };
            assert_eq!(bp.lsize(), size, "{bp:?}");
            let block = store.read(bp, Bookmark::default(), Priority::Scrub).await.unwrap();
            if level == 0 {
                let fill =
                    if dnode.object_type == ObjectType::DNODE { dnodes_in_block(&block).count() as u64 } else { 1 };
                assert_eq!(bp.fill(), fill);
                data.insert(index, block);
                return used;
            }
            let mut fill = 0;
            for (at, bytes) in block.chunks_exact(128).enumerate() {
                let child = BlkPtr::decode(bytes);
                let shift = dnode.pointers_per_indirect_shift();
                let child_index = (index << shift) + at as u64;
                used += self.tree(store, bp.birth(), dnode, level - 1, child_index, &child, data).await;
                fill += if child.is_hole() { 0 } else { child.fill() };
            }
            assert_eq!(bp.fill(), fill, "{bp:?}");
            assert!(fill > 0, "an indirect block of holes: {bp:?}");
            used
        }
        .boxed()
    }
}
