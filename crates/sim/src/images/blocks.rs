//! All blocks of a pool as a tree, and how a changed one is brought back with everything above it.
//!
//! Invariants: a block comes after the one that points to it; what is put back has the checksum that its pointer says,
//! up to the uberblock.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_device::BlockDevice;
use platter_ondisk::ObjectType;
use platter_ondisk::blkptr::{BLKPTR_SIZE, BlkPtr};
use platter_ondisk::dnode::{DNODE_CORE_SIZE, DNODE_SIZE, FLAG_SPILL_BLKPTR};
use platter_ondisk::gang;
use platter_ondisk::label::{
    VDEV_LABELS, label_offset, uberblock_offset, uberblock_slot_of, uberblock_slot_size, usable_size,
};
use platter_ondisk::uberblock::Uberblock;
use platter_ondisk::zil::block::Layout;
use platter_vdev::TopVdev;

use super::log_block;
use super::stored::{self, Kind};

/// Where a block pointer stands: a block's number, and the byte in it.
pub type Above = Option<(usize, usize)>;

/// A block as it is when nobody changed it.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where its pointer stands.
    pub above: Above,
    /// Its pointer.
    pub bp: BlkPtr,
    /// How it is stored.
    pub kind: Kind,
    /// What is in it, decompressed.
    pub data: Arc<Vec<u8>>,
}

/// The blocks of a pool. See the module text.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Those above first.
    pub all: Vec<Block>,
}

/// Offset of the pointer in a data set's bonus (`dsl_dataset_phys_t`).
const DATASET_BP: usize = 128;
/// The dnodes in an object set's block: of the objects, and of what users, groups and projects use.
const OBJSET_DNODES: [usize; 4] = [0, 1024, 1536, 2048];
/// The intent log's first pointer in an object set's block.
const OBJSET_LOG: usize = DNODE_SIZE + 16;

impl Blocks {
    /// Reads everything that can be reached from `root`. What this cannot read (encrypted blocks, salted checksums) is
    /// left out.
    pub async fn of(tops: &[TopVdev], root: BlkPtr) -> Self {
        let mut blocks = Self::default();
        blocks.add(tops, root, None).await;
        blocks
    }

    /// The numbers of the blocks that are stored in this way.
    pub fn stored_as(&self, kind: impl Fn(Kind) -> bool) -> Vec<usize> {
        (0..self.all.len()).filter(|&number| kind(self.all[number].kind)).collect()
    }

    fn add<'a>(&'a mut self, tops: &'a [TopVdev], bp: BlkPtr, above: Above) -> BoxFuture<'a, ()> {
        async move {
            if bp.is_hole() || bp.is_protected() {
                return;
            }
            let Some(data) = stored::read(tops, &bp).await else { return };
            let data = Arc::new(data);
            let own = self.push(Block { above, bp, kind: Kind::of(&bp), data: data.clone() });
            if bp.is_gang() {
                self.add_headers(tops, bp, above).await;
            }
            for at in pointers(&bp, &data) {
                self.add(tops, BlkPtr::decode(&data[at..]), Some((own, at))).await;
            }
            if bp.object_type() == ObjectType::OBJSET && bp.level() == 0 && data.len() >= OBJSET_LOG + BLKPTR_SIZE {
                self.add_log(tops, BlkPtr::decode(&data[OBJSET_LOG..]), (own, OBJSET_LOG)).await;
            }
        }
        .boxed()
    }

    /// Adds a block; its number.
    fn push(&mut self, block: Block) -> usize {
        let own = self.all.len();
        assert!(block.above.is_none_or(|(above, _)| above < own), "a block comes after the one that points to it");
        self.all.push(block);
        own
    }

    /// The header of a gang block, and those of the gang blocks in it.
    fn add_headers<'a>(&'a mut self, tops: &'a [TopVdev], bp: BlkPtr, above: Above) -> BoxFuture<'a, ()> {
        async move {
            let Some(header) = stored::gang_header(tops, &bp).await else { return };
            self.push(Block { above, bp, kind: Kind::GangHeader, data: Arc::new(header.clone()) });
            for part in gang::pointers(&header).into_iter().filter(BlkPtr::is_gang) {
                self.add_headers(tops, part, above).await;
            }
        }
        .boxed()
    }

    /// The blocks of an intent log, and what its records lead to.
    async fn add_log(&mut self, tops: &[TopVdev], first: BlkPtr, above: (usize, usize)) {
        let (mut bp, mut above) = (first, above);
        while let Some(layout) = Layout::of(&bp).filter(|_| !bp.is_hole() && !bp.is_gang() && !bp.is_embedded()) {
            let Some(data) = stored::log_block(tops, &bp, layout).await else { return };
            let data = Arc::new(data);
            let own = self.push(Block { above: Some(above), bp, kind: Kind::Log(layout), data: data.clone() });
            for at in log_block::pointers(layout, &data) {
                self.add(tops, BlkPtr::decode(&data[at..]), Some((own, at))).await;
            }
            let next = log_block::next_at(layout, data.len());
            (bp, above) = (BlkPtr::decode(&data[next..]), (own, next));
        }
    }

    /// Puts `changed` blocks (by number) back, with all above them, and writes `uberblock` with the new root to every
    /// label. `free` is an offset from which on nothing of the pool stands.
    pub async fn put_back(
        &self,
        tops: &[TopVdev],
        devices: &[Arc<dyn BlockDevice>],
        mut changed: BTreeMap<usize, Vec<u8>>,
        mut uberblock: Uberblock,
        mut free: u64,
    ) {
        while let Some((number, data)) = changed.pop_last() {
            let block = &self.all[number];
            assert!(changed.keys().all(|above| *above < number), "what is below is put back first");
            let Some(bp) = stored::write(tops, block.kind, &block.bp, data, &mut free).await else { continue };
            match block.above {
                Some((above, at)) => {
                    let bytes = changed.entry(above).or_insert_with(|| self.all[above].data.to_vec());
                    bp.encode(&mut bytes[at..at + BLKPTR_SIZE]);
                    // Where it was repeated, it still is.
                    for other in bytes.as_chunks_mut::<BLKPTR_SIZE>().0 {
                        if BlkPtr::decode(other) == block.bp {
                            bp.encode(other);
                        }
                    }
                }
                None => uberblock.rootbp = bp,
            }
        }
        let ashift = u32::from(tops[0].ashift());
        for device in devices {
            for label in 0..VDEV_LABELS {
                let slot = uberblock_slot_of(ashift, uberblock.txg, false);
                let offset = label_offset(usable_size(device.size()), label) + uberblock_offset(ashift, slot);
                let bytes = uberblock.build_slot(uberblock_slot_size(ashift), offset, sha256);
                device.write(offset, vec![Buf::copy_from(&bytes)]).await.expect("an image takes everything");
            }
        }
    }
}

/// Where block pointers stand in a block.
pub fn pointers(bp: &BlkPtr, data: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    if bp.level() > 0 {
        found.extend((0..data.len() / BLKPTR_SIZE).map(|index| index * BLKPTR_SIZE));
    } else if bp.object_type() == ObjectType::OBJSET {
        for at in OBJSET_DNODES.into_iter().filter(|at| at + DNODE_SIZE <= data.len()) {
            dnode_pointers(data, at, &mut found);
        }
    } else if bp.object_type() == ObjectType::DNODE {
        let mut at = 0;
        while at + DNODE_SIZE <= data.len() {
            dnode_pointers(data, at, &mut found);
            at += DNODE_SIZE * (1 + if data[at] == 0 { 0 } else { usize::from(data[at + 12]) });
        }
    }
    found.retain(|at| at + BLKPTR_SIZE <= data.len());
    found
}

fn dnode_pointers(data: &[u8], at: usize, found: &mut Vec<usize>) {
    if data[at] == 0 {
        return;
    }
    let pointers = usize::from(data[at + 3]).min(3);
    found.extend((0..pointers).map(|index| at + DNODE_CORE_SIZE + index * BLKPTR_SIZE));
    let bonus = at + DNODE_CORE_SIZE + pointers * BLKPTR_SIZE;
    if data[at + 4] == ObjectType::DSL_DATASET.number() {
        found.push(bonus + DATASET_BP);
    }
    if data[at + 7] & FLAG_SPILL_BLKPTR != 0 {
        found.push(at + DNODE_SIZE * (1 + usize::from(data[at + 12])) - BLKPTR_SIZE);
    }
}
