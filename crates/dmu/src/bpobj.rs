//! A list of block pointers in an object (`module/zfs/bpobj.c`): deferred frees, deadlists.
//!
//! ```text
//! contents:  128-byte pointers, densely, from offset 0
//! bonus:     pointers u64 | used u64 | compressed u64, uncompressed u64 | sub-list array u64, sub-lists u64 | freed
//! ```
//!
//! The bars mark where the header of older pools ends (16, 32, 48 bytes). The sub-list array is an object of 64-bit
//! object numbers, each a list of this kind.
//!
//! Invariants:
//! - the header's totals are those of all pointers here and in the sub-lists;
//! - stored pointers are stripped of what nobody needs to free them (payload, checksum, fill), so that they compress
//!   well; bit 0 of the fill says that a pointer counts negatively (livelists);
//! - one writer at a time: lists change in sync context only.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::dnode::MAX_INDIRECT_SHIFT;
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Sectors};
use platter_zio::{Priority, Result, SpaceMet, Tx, ZioError};

use crate::core::Dnode;
use crate::new_dnode::NewDnode;
use crate::objset::Objset;

mod live;

/// Bytes of the header without and with totals after compression, with sub-lists, with the count of negative pointers.
const HEADER_V0: usize = 16;
const HEADER_V1: usize = 32;
const HEADER_V2: usize = 48;
const HEADER_V3: usize = 56;
/// Block size of a sub-list array in bytes (`SPA_OLD_MAXBLOCKSIZE`).
const ARRAY_BLOCK: u32 = 128 << 10;
/// Pointers without space of their own that are believed in the smallest pool.
const OTHERS_BELIEVED: u64 = 1 << 17;
/// Word of a pointer that holds the fill.
const FILL: usize = 11;
/// Words of a pointer that hold its properties and its birth.
const PROPERTIES: usize = 6;
const BIRTH: usize = 10;

/// Totals of a list: bytes used, compressed, uncompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpobjSpace {
    /// Deflated bytes.
    pub used: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes.
    pub uncompressed: u64,
    /// Pointers, those of sub-lists included where known.
    pub count: u64,
}

/// The header in the bonus (`bpobj_phys_t`), with its length, which tells its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    length: usize,
    pointers: u64,
    used: u64,
    compressed: u64,
    uncompressed: u64,
    array: ObjectId,
    lists: u64,
    freed: u64,
}

impl Header {
    fn decode(object: ObjectId, bonus: &[u8]) -> Result<Self> {
        let length = bonus.len();
        if !matches!(length, HEADER_V0 | HEADER_V1 | HEADER_V2 | HEADER_V3) {
            return Err(ZioError::corrupt("bpobj", format!("object {object}: a header of {length} bytes")));
        }
        let word = |index: usize| {
            bonus.get(index * 8..index * 8 + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
        };
        Ok(Self {
            length,
            pointers: word(0),
            used: word(1),
            compressed: word(2),
            uncompressed: word(3),
            array: ObjectId(word(4)),
            lists: word(5),
            freed: word(6),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let words =
            [self.pointers, self.used, self.compressed, self.uncompressed, self.array.0, self.lists, self.freed];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.length);
        bytes
    }

    fn subtract(&mut self, space: &BpobjSpace) {
        self.used = self.used.saturating_sub(space.used);
        self.compressed = self.compressed.saturating_sub(space.compressed);
        self.uncompressed = self.uncompressed.saturating_sub(space.uncompressed);
    }

    fn has_totals(&self) -> bool {
        self.length > HEADER_V0
    }

    fn has_lists(&self) -> bool {
        self.length > HEADER_V1
    }

    fn has_frees(&self) -> bool {
        self.length > HEADER_V2
    }

    fn add(&mut self, space: &BpobjSpace) {
        self.used = self.used.wrapping_add(space.used);
        if self.has_totals() {
            self.compressed = self.compressed.wrapping_add(space.compressed);
            self.uncompressed = self.uncompressed.wrapping_add(space.uncompressed);
        }
    }
}

/// Whether what is appended was born, or died.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Born,
    Died,
}

/// What is stored of `bp`.
fn stored(bp: &BlkPtr, event: Event) -> BlkPtr {
    let mut stored = *bp;
    if bp.is_embedded() {
        stored = BlkPtr::HOLE;
        stored.words[PROPERTIES] = bp.words[PROPERTIES];
        stored.words[BIRTH] = bp.words[BIRTH];
    } else if !bp.is_dedup() {
        stored.set_checksum([0; 4]);
    }
    stored.words[FILL] = u64::from(event == Event::Died);
    stored
}

/// Physical and logical size in bytes as totals count them: metadata counts its physical size for both, payload within
/// the pointer no physical bytes (`BP_GET_PSIZE`, `BP_GET_UCSIZE`).
pub fn sizes(bp: &BlkPtr) -> (u64, u64) {
    let physical = if bp.is_embedded() { 0 } else { bp.psize() };
    let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
    let logical = match bp.is_embedded() && bp.embedded_kind() != 0 {
        _ if is_metadata => physical,
        true => 0,
        false => bp.lsize(),
    };
    (physical, logical)
}

/// What was gathered of a family of lists. An object may repeat an indirect block, and so one block of pointers for
/// ever; but what is on a list is still allocated, and is on it once.
struct Gathered {
    pointers: Vec<BlkPtr>,
    in_use: u64,
    /// Deflated bytes of blocks.
    space: SpaceMet,
    /// Pointers to what has no space of its own: deduplicated blocks, payload within them.
    others: SpaceMet,
}

impl Gathered {
    /// Whether there can be another pointer, to a block of `dsize` bytes; it is kept then.
    fn take(&mut self, bp: BlkPtr, dsize: u64) -> bool {
        let can_be = match bp.is_embedded() || bp.is_dedup() || dsize == 0 {
            true => self.others.add(1, || OTHERS_BELIEVED.saturating_add(Sectors::within(self.in_use).0)),
            false => self.space.add(dsize, || self.in_use),
        };
        if can_be {
            self.pointers.push(bp);
        }
        can_be
    }
}

/// An open list.
pub struct Bpobj {
    os: Arc<Objset>,
    dnode: Arc<Dnode>,
    changing: tokio::sync::Mutex<()>,
}

impl Bpobj {
    /// Allocates an empty list object (`block_size` bytes a block; 128 KiB in OpenZFS's use) and returns its number.
    ///
    /// # Errors
    /// Those of allocating an object.
    pub async fn create(mos: &Arc<Objset>, tx: &Tx, block_size: u32) -> Result<ObjectId> {
        Self::create_sized(mos, tx, block_size, HEADER_V2).await
    }

    /// Allocates an empty list of the kind that pools before version 26 have: it cannot have sub-lists.
    ///
    /// # Errors
    /// Those of allocating an object.
    pub async fn create_plain(mos: &Arc<Objset>, tx: &Tx, block_size: u32) -> Result<ObjectId> {
        Self::create_sized(mos, tx, block_size, HEADER_V1).await
    }

    async fn create_sized(mos: &Arc<Objset>, tx: &Tx, block_size: u32, header: usize) -> Result<ObjectId> {
        let new = NewDnode {
            object_type: ObjectType::BPOBJ,
            block_size,
            indirect_shift: MAX_INDIRECT_SHIFT,
            bonus_type: ObjectType::BPOBJ_HDR,
            bonus_length: header as u16,
            dnode_size: 0,
        };
        let dnode = mos.allocate(tx, new).await?;
        dnode.set_bonus(tx, ObjectType::BPOBJ_HDR, &vec![0; header])?;
        Ok(dnode.object())
    }

    /// Opens list `object`.
    ///
    /// # Errors
    /// No such object, or no list.
    pub async fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let dnode = mos.dnode(object).await?;
        let (kind, bonus) = (dnode.info().object_type, dnode.info().bonus_type);
        if (kind, bonus) != (ObjectType::BPOBJ, ObjectType::BPOBJ_HDR) {
            return Err(ZioError::corrupt("bpobj", format!("object {object} has type {kind} and bonus type {bonus}")));
        }
        Header::decode(object, &dnode.bonus())?;
        Ok(Self { os: mos.clone(), dnode, changing: tokio::sync::Mutex::new(()) })
    }

    fn header(&self) -> Result<Header> {
        Header::decode(self.dnode.object(), &self.dnode.bonus())
    }

    fn set_header(&self, tx: &Tx, header: &Header) -> Result<()> {
        self.dnode.set_bonus(tx, ObjectType::BPOBJ_HDR, &header.encode())
    }

    /// Whether there is neither a pointer nor a sub-list.
    ///
    /// # Errors
    /// A damaged header.
    pub fn is_empty(&self) -> Result<bool> {
        let header = self.header()?;
        Ok(header.pointers == 0 && header.lists == 0)
    }

    /// Appends `bps`, none of which may be a hole.
    ///
    /// # Errors
    /// Those of writing.
    pub async fn append(&self, tx: &Tx, bps: &[BlkPtr]) -> Result<()> {
        self.append_as(tx, bps, Event::Born).await
    }

    async fn append_as(&self, tx: &Tx, bps: &[BlkPtr], event: Event) -> Result<()> {
        if bps.is_empty() {
            return Ok(());
        }
        let _guard = self.changing.lock().await;
        let mut header = self.header()?;
        if event == Event::Died && !header.has_frees() {
            return Err(self.corrupt("it has no place for what dies".to_owned()));
        }
        self.check_length(&self.dnode, header.pointers, BLKPTR_SIZE as u64)?;
        let mut bytes = vec![0; bps.len() * BLKPTR_SIZE];
        let mut space = BpobjSpace::default();
        for (bp, out) in bps.iter().zip(bytes.chunks_exact_mut(BLKPTR_SIZE)) {
            debug_assert!(!bp.is_hole(), "a hole has nothing to free");
            stored(bp, event).encode(out);
            self.count(bp, &mut space);
        }
        self.dnode.write(tx, header.pointers * BLKPTR_SIZE as u64, &bytes).await?;
        header.pointers += bps.len() as u64;
        match event {
            Event::Born => header.add(&space),
            Event::Died => {
                header.freed += bps.len() as u64;
                header.subtract(&space);
            }
        }
        self.set_header(tx, &header)
    }

    /// Makes list `other` part of this one. Of a short list, or an empty one, what it has is taken over and its object
    /// freed, so that lists that are joined again and again stay flat (`bpobj_enqueue_subobj`); any other becomes a
    /// sub-list.
    ///
    /// # Errors
    /// No such list, those of writing, or a list of an old pool that cannot have sub-lists.
    pub async fn append_list(&self, tx: &Tx, other: ObjectId) -> Result<()> {
        let _guard = self.changing.lock().await;
        let sub = Self::open(&self.os, other).await?;
        if sub.is_empty()? {
            return Self::free(&self.os, tx, other).await;
        }
        let mut header = self.header()?;
        if !header.has_lists() {
            return Err(ZioError::Invalid(format!("list {} is too old to have sub-lists", self.dnode.object())));
        }
        // What is damaged is known of before anything is changed.
        if header.array.is_some() {
            self.check_length(&*self.os.dnode(header.array).await?, header.lists, 8)?;
        }
        let space = sub.totals().await?;
        let theirs = sub.header()?;
        if sub.is_short(&theirs).await? {
            let lists = sub.sub_lists(&theirs).await?;
            self.add_lists(tx, &mut header, &lists).await?;
            self.copy_pointers(tx, &mut header, &sub, &theirs).await?;
            if theirs.array.is_some() {
                self.os.free_object(tx, theirs.array).await?;
            }
            self.os.free_object(tx, other).await?;
        } else {
            self.add_lists(tx, &mut header, &[other]).await?;
        }
        header.add(&space);
        self.set_header(tx, &header)
    }

    /// Whether its pointers and its sub-lists are in one block each.
    async fn is_short(&self, header: &Header) -> Result<bool> {
        let array_is_short = match header.array.is_some() {
            true => self.os.dnode(header.array).await?.info().max_blkid == 0,
            false => true,
        };
        Ok(array_is_short && self.dnode.info().max_blkid == 0)
    }

    /// Puts `lists` behind the sub-lists that it has.
    async fn add_lists(&self, tx: &Tx, header: &mut Header, lists: &[ObjectId]) -> Result<()> {
        if lists.is_empty() {
            return Ok(());
        }
        let array = if header.array.is_some() {
            let array = self.os.dnode(header.array).await?;
            self.check_length(&array, header.lists, 8)?;
            array
        } else {
            let new = NewDnode {
                object_type: ObjectType::BPOBJ_SUBOBJ,
                block_size: ARRAY_BLOCK,
                indirect_shift: MAX_INDIRECT_SHIFT,
                bonus_type: ObjectType::NONE,
                bonus_length: 0,
                dnode_size: 0,
            };
            self.os.allocate(tx, new).await?
        };
        let bytes: Vec<u8> = lists.iter().flat_map(|list| list.0.to_le_bytes()).collect();
        array.write(tx, header.lists * 8, &bytes).await?;
        header.array = array.object();
        header.lists += lists.len() as u64;
        Ok(())
    }

    /// Puts the pointers of the short list `sub` behind those that it has.
    async fn copy_pointers(&self, tx: &Tx, header: &mut Header, sub: &Self, theirs: &Header) -> Result<()> {
        if theirs.pointers == 0 {
            return Ok(());
        }
        self.check_length(&self.dnode, header.pointers, BLKPTR_SIZE as u64)?;
        sub.check_length(&sub.dnode, theirs.pointers, BLKPTR_SIZE as u64)?;
        let mut bytes = vec![0; theirs.pointers as usize * BLKPTR_SIZE];
        sub.dnode.read(0, &mut bytes).await?;
        self.dnode.write(tx, header.pointers * BLKPTR_SIZE as u64, &bytes).await?;
        header.pointers += theirs.pointers;
        Ok(())
    }

    fn count(&self, bp: &BlkPtr, space: &mut BpobjSpace) {
        let (physical, logical) = sizes(bp);
        space.used += self.os.params().store.dsize(bp);
        space.compressed += physical;
        space.uncompressed += logical;
        space.count += 1;
    }

    fn corrupt(&self, detail: String) -> ZioError {
        ZioError::corrupt("bpobj", format!("object {}: {detail}", self.dnode.object()))
    }

    /// Fails when `dnode` is too short for `items` items of `size` bytes.
    fn check_length(&self, dnode: &Dnode, items: u64, size: u64) -> Result<()> {
        let info = dnode.info();
        let capacity = info.max_blkid.saturating_add(1).saturating_mul(u64::from(info.block_size)) / size;
        if items > capacity {
            return Err(self.corrupt(format!("{items} items where {capacity} fit")));
        }
        Ok(())
    }

    async fn sub_lists(&self, header: &Header) -> Result<Vec<ObjectId>> {
        if !header.array.is_some() || header.lists == 0 {
            return Ok(Vec::new());
        }
        let array = self.os.dnode(header.array).await?;
        self.check_length(&array, header.lists, 8)?;
        // In parts: an array may claim any length, with nothing or the same again behind what there is of it.
        let (mut lists, mut seen) = (Vec::new(), BTreeSet::new());
        let mut bytes = vec![0; ARRAY_BLOCK as usize];
        let (mut at, end) = (0, header.lists * 8);
        while at < end {
            let length = (end - at).min(bytes.len() as u64) as usize;
            array.read(at, &mut bytes[..length]).await?;
            for chunk in bytes[..length].chunks_exact(8) {
                let object = ObjectId(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
                if !object.is_some() || !seen.insert(object) {
                    return Err(self.corrupt(format!("list {object} is a sub-list, or is one twice")));
                }
                lists.push(object);
            }
            at += length as u64;
        }
        Ok(lists)
    }

    /// This list and all below it, parents first.
    async fn family(&self) -> Result<Vec<(Self, Header)>> {
        let mut seen = BTreeSet::from([self.dnode.object()]);
        let me = Self { os: self.os.clone(), dnode: self.dnode.clone(), changing: tokio::sync::Mutex::new(()) };
        let mut family = vec![(me, self.header()?)];
        let mut next = 0;
        while next < family.len() {
            let (list, header) = &family[next];
            for object in list.sub_lists(header).await? {
                if !seen.insert(object) {
                    return Err(self.corrupt(format!("list {object} is a sub-list twice")));
                }
                let sub = Self::open(&self.os, object).await?;
                let header = sub.header()?;
                family.push((sub, header));
            }
            next += 1;
        }
        Ok(family)
    }

    /// The pointers in this list itself, oldest first.
    async fn own_pointers(&self, header: &Header, gathered: &mut Gathered) -> Result<()> {
        self.check_length(&self.dnode, header.pointers, BLKPTR_SIZE as u64)?;
        let per_block = u64::from(self.dnode.block_size()) / BLKPTR_SIZE as u64;
        let mut left = header.pointers;
        self.dnode.prefetch(0, header.pointers.div_ceil(per_block.max(1)).min(64));
        for block in 0.. {
            if left == 0 {
                break;
            }
            let buf = self.dnode.read_block(block, Priority::SyncRead).await?;
            let here = left.min(per_block);
            for bytes in buf.chunks_exact(BLKPTR_SIZE).take(here as usize) {
                // Nobody puts a hole on a list; a list that claims to go on for ever has nothing else behind its end.
                if bytes.iter().all(|&byte| byte == 0) {
                    return Err(self.corrupt(format!("nothing is stored in block {block}")));
                }
                let bp = BlkPtr::decode(bytes);
                if !gathered.take(bp, self.os.params().store.dsize(&bp)) {
                    return Err(self.corrupt("its blocks take more space than the pool has in use".to_owned()));
                }
            }
            left -= here;
        }
        Ok(())
    }

    /// Every pointer, sub-lists included: this list's first, each list's oldest first. Checksums and payloads are not
    /// kept in a list.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn pointers(&self) -> Result<Vec<BlkPtr>> {
        let mut gathered = Gathered {
            pointers: Vec::new(),
            in_use: self.os.params().store.space_used(),
            space: SpaceMet::exact(),
            others: SpaceMet::exact(),
        };
        for (list, header) in self.family().await? {
            list.own_pointers(&header, &mut gathered).await?;
        }
        Ok(gathered.pointers)
    }

    /// Takes up to `most` pointers off the end, none when the list is empty: first its own, then those of its last
    /// sub-list, whose object goes when it is empty (`bpobj_iterate`).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn take_last(&self, tx: &Tx, most: u64) -> Result<Vec<BlkPtr>> {
        let _guard = self.changing.lock().await;
        // Down the last sub-lists to one with pointers of its own.
        let mut seen = BTreeSet::from([self.dnode.object()]);
        let mut chain = vec![Self::open(&self.os, self.dnode.object()).await?];
        loop {
            let list = &chain[chain.len() - 1];
            let header = list.header()?;
            if header.pointers > 0 {
                break;
            }
            let Some(&last) = list.sub_lists(&header).await?.last() else { break };
            if !seen.insert(last) {
                return Err(self.corrupt(format!("list {last} is a sub-list twice")));
            }
            chain.push(Self::open(&self.os, last).await?);
        }
        let list = &chain[chain.len() - 1];
        let mut header = list.header()?;
        list.check_length(&list.dnode, header.pointers, BLKPTR_SIZE as u64)?;
        let count = header.pointers.min(most);
        let start = (header.pointers - count) * BLKPTR_SIZE as u64;
        let mut bytes = vec![0; count as usize * BLKPTR_SIZE];
        list.dnode.read(start, &mut bytes).await?;
        let taken: Vec<BlkPtr> = bytes.chunks_exact(BLKPTR_SIZE).map(BlkPtr::decode).collect();
        let mut space = BpobjSpace::default();
        taken.iter().for_each(|bp| self.count(bp, &mut space));
        header.pointers -= count;
        list.dnode.free_range(tx, start, u64::MAX).await?;
        header.subtract(&space);
        list.set_header(tx, &header)?;
        // Those above count what is below them, too, and let go of what is empty.
        let mut empty = header.pointers == 0 && header.lists == 0;
        while let Some(below) = chain.pop() {
            let Some(above) = chain.last() else { break };
            let mut header = above.header()?;
            header.subtract(&space);
            if empty {
                Self::free(&self.os, tx, below.dnode.object()).await?;
                header.lists -= 1;
                if header.lists == 0 {
                    self.os.free_object(tx, header.array).await?;
                    header.array = ObjectId::NONE;
                }
            }
            empty = empty && header.pointers == 0 && header.lists == 0;
            above.set_header(tx, &header)?;
        }
        Ok(taken)
    }

    /// Empties the list (and frees sub-lists' objects).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn clear(&self, tx: &Tx) -> Result<()> {
        let _guard = self.changing.lock().await;
        for (list, header) in self.family().await? {
            if header.array.is_some() {
                self.os.free_object(tx, header.array).await?;
            }
            if list.dnode.object() != self.dnode.object() {
                self.os.free_object(tx, list.dnode.object()).await?;
            }
        }
        let length = self.header()?.length;
        self.dnode.free_range(tx, 0, u64::MAX).await?;
        self.set_header(tx, &Header::decode(self.dnode.object(), &vec![0; length])?)
    }

    /// Totals as the header has them, without looking at sub-lists: `count` is 0. The oldest kind of list has none and
    /// is read.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn totals(&self) -> Result<BpobjSpace> {
        let header = self.header()?;
        if header.has_totals() {
            let Header { used, compressed, uncompressed, .. } = header;
            return Ok(BpobjSpace { used, compressed, uncompressed, count: 0 });
        }
        Ok(BpobjSpace { count: 0, ..self.space().await? })
    }

    /// Totals, with the number of pointers.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn space(&self) -> Result<BpobjSpace> {
        let header = self.header()?;
        let family = self.family().await?;
        let count = family.iter().fold(0u64, |sum, (_, header)| sum.saturating_add(header.pointers));
        if header.has_totals() {
            let Header { used, compressed, uncompressed, .. } = header;
            return Ok(BpobjSpace { used, compressed, uncompressed, count });
        }
        let mut space = BpobjSpace::default();
        self.pointers().await?.iter().for_each(|bp| self.count(bp, &mut space));
        Ok(space)
    }

    /// Frees the list's object (it must be empty or its pointers already dealt with), sub-lists included.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn free(mos: &Arc<Objset>, tx: &Tx, object: ObjectId) -> Result<()> {
        for (list, header) in Self::open(mos, object).await?.family().await? {
            if header.array.is_some() {
                mos.free_object(tx, header.array).await?;
            }
            mos.free_object(tx, list.dnode.object()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::{Dva, Txg};
    use platter_zio::memory::{FreeAtOnce, MemoryStore};
    use platter_zio::{BlockStore, TxgGate};

    use super::*;
    use crate::properties::{ObjsetParams, WriteProperties};
    use platter_ondisk::{Checksum, Compression, ObjsetType};

    fn params() -> ObjsetParams {
        params_on(Arc::new(MemoryStore::new()))
    }

    pub(super) fn params_on(store: Arc<dyn BlockStore>) -> ObjsetParams {
        let properties = WriteProperties {
            checksum: Checksum::FLETCHER_4,
            compression: Compression::OFF,
            compression_level: 0,
            copies: 1,
            record_size: 128 << 10,
            is_mos: true,
            embedded_data: false,
            dnode_size: 512,
            redundant_metadata: crate::RedundantMetadata::All,
            format: crate::Format::default(),
            accounting: crate::UserAccounting::default(),
        };
        ObjsetParams {
            accounting: Arc::new(FreeAtOnce(store.clone())),
            store,
            gate: TxgGate::new(Txg(4), u64::MAX / 2),
            id: ObjectId(0),
            properties,
            read_only: false,
        }
    }

    pub(super) fn pointer(number: u64) -> BlkPtr {
        let mut bp = BlkPtr::describe(
            8192,
            4096,
            Compression::LZ4,
            Checksum::FLETCHER_4,
            ObjectType::PLAIN_FILE_CONTENTS,
            0,
            Txg(9),
        );
        bp.set_dva(0, Dva { vdev: 0, offset: (number + 1) << 20, asize: 6144, gang: false });
        bp.set_checksum([1, 2, 3, number]);
        bp.set_fill(1);
        bp
    }

    async fn filled(os: &Arc<Objset>, tx: &Tx, numbers: std::ops::Range<u64>) -> Bpobj {
        let object = Bpobj::create(os, tx, 4096).await.unwrap();
        let list = Bpobj::open(os, object).await.unwrap();
        let pointers: Vec<_> = numbers.map(pointer).collect();
        for part in pointers.chunks(7) {
            list.append(tx, part).await.unwrap();
        }
        list
    }

    #[tokio::test]
    async fn a_list_keeps_pointers_and_totals_over_a_sync() {
        let (params, tx) = (params(), Tx::syncing(Txg(4)));
        let os = Objset::create(params.clone(), ObjsetType::META, &tx);
        let list = filled(&os, &tx, 0..100).await;
        let sub = filled(&os, &tx, 100..140).await;
        list.append_list(&tx, sub.dnode.object()).await.unwrap();
        let embedded = BlkPtr::embed(b"data", 700, Compression::OFF, ObjectType::PLAIN_FILE_CONTENTS, 0, Txg(9));
        list.append(&tx, &[embedded]).await.unwrap();

        let object = list.dnode.object();
        drop((list, sub));
        let root = os.sync(Txg(4), 1).await.unwrap();
        let os = Objset::open(params, root).await.unwrap();
        let list = Bpobj::open(&os, object).await.unwrap();
        let pointers = list.pointers().await.unwrap();
        assert_eq!(pointers.len(), 141);
        assert!(pointers[..100].iter().zip(0..).all(|(bp, i)| bp.dva(0) == pointer(i).dva(0)));
        assert!(pointers.iter().all(|bp| bp.words[FILL] == 0 && bp.checksum() == [0; 4]));
        assert_eq!(pointers[100].lsize(), 700);
        let space = list.space().await.unwrap();
        let expected =
            BpobjSpace { used: 140 * 6144, compressed: 140 * 4096, uncompressed: 140 * 8192 + 700, count: 141 };
        assert_eq!(space, expected);

        let tx = Tx::syncing(Txg(5));
        list.clear(&tx).await.unwrap();
        assert!(list.is_empty().unwrap());
        assert_eq!(list.space().await.unwrap(), BpobjSpace::default());
        assert!(list.pointers().await.unwrap().is_empty());
        Bpobj::free(&os, &tx, object).await.unwrap();
        assert!(Bpobj::open(&os, object).await.is_err());
    }

    #[tokio::test]
    async fn pointers_are_taken_off_the_end_until_nothing_is_left() {
        let (params, tx) = (params(), Tx::syncing(Txg(4)));
        let os = Objset::create(params, ObjsetType::META, &tx);
        let list = filled(&os, &tx, 0..100).await;
        let sub = filled(&os, &tx, 100..140).await;
        let deepest = filled(&os, &tx, 140..150).await;
        sub.append_list(&tx, deepest.dnode.object()).await.unwrap();
        list.append_list(&tx, sub.dnode.object()).await.unwrap();
        let other = filled(&os, &tx, 150..151).await;
        list.append_list(&tx, other.dnode.object()).await.unwrap();
        let mut taken = Vec::new();
        loop {
            let count = list.pointers().await.unwrap().len();
            assert_eq!(count + taken.len(), 151);
            let expected = BpobjSpace {
                used: count as u64 * 6144,
                compressed: count as u64 * 4096,
                uncompressed: count as u64 * 8192,
                count: count as u64,
            };
            assert_eq!(list.space().await.unwrap(), expected);
            let part = list.take_last(&tx, 33).await.unwrap();
            if part.is_empty() {
                break;
            }
            taken.extend(part);
        }
        let mut offsets: Vec<u64> = taken.iter().map(|bp| bp.dva(0).offset >> 20).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (1..=151).collect::<Vec<u64>>());
        assert!(list.is_empty().unwrap());
        for gone in [&sub, &deepest, &other] {
            assert!(Bpobj::open(&os, gone.dnode.object()).await.is_err());
        }
    }

    // An indirect block that repeats one block of pointers makes a list of any length out of 4 KiB, and all of it was
    // gathered in memory; likewise two lists of a family that name the same blocks.
    #[tokio::test]
    async fn a_list_of_more_than_the_pool_has_in_use_is_damage() {
        let tx = Tx::syncing(Txg(4));
        let store = Arc::new(MemoryStore::new());
        let os = Objset::create(params_on(store.clone()), ObjsetType::META, &tx);
        let list = filled(&os, &tx, 0..32).await;
        store.claim_space_used(32 * 6144);
        assert_eq!(list.pointers().await.unwrap().len(), 32);
        let again = filled(&os, &tx, 0..1).await;
        list.append_list(&tx, again.dnode.object()).await.unwrap();
        assert!(list.pointers().await.is_err());
    }

    // A tree may repeat its indirect blocks: what is freed below a few of them had no end, in the sync.
    #[tokio::test]
    async fn a_tree_of_more_than_the_pool_has_in_use_is_not_freed() {
        // One indirect block of 128 KiB, in three copies.
        for (space, goes) in [(384 << 10, true), (383 << 10, false)] {
            let tx = Tx::syncing(Txg(4));
            let store = Arc::new(MemoryStore::new());
            let params = params_on(store.clone());
            let os = Objset::create(params.clone(), ObjsetType::META, &tx);
            let object = filled(&os, &tx, 0..200).await.dnode.object();
            let os = Objset::open(params, os.sync(Txg(4), 1).await.unwrap()).await.unwrap();
            assert_eq!(os.dnode(object).await.unwrap().info().levels, 2);
            store.claim_space_used(space);
            Bpobj::free(&os, &Tx::syncing(Txg(5)), object).await.unwrap();
            assert_eq!(os.sync(Txg(5), 1).await.is_ok(), goes);
        }
    }

    // A length beyond the object was added to, and multiplied, before anybody looked at it.
    #[tokio::test]
    async fn nothing_is_appended_behind_a_length_that_is_damaged() {
        let tx = Tx::syncing(Txg(4));
        let os = Objset::create(params(), ObjsetType::META, &tx);
        let (list, sub) = (filled(&os, &tx, 0..3).await, filled(&os, &tx, 3..5).await);
        let header = list.header().unwrap();
        for pointers in [33, u64::MAX] {
            list.set_header(&tx, &Header { pointers, ..header }).unwrap();
            assert!(list.append(&tx, &[pointer(9)]).await.is_err());
        }
        let array = sub.dnode.object();
        list.set_header(&tx, &Header { array, lists: u64::MAX, ..header }).unwrap();
        assert!(list.append_list(&tx, filled(&os, &tx, 5..6).await.dnode.object()).await.is_err());
    }

    #[tokio::test]
    async fn an_impossible_header_is_damage() {
        let tx = Tx::syncing(Txg(4));
        let os = Objset::create(params(), ObjsetType::META, &tx);
        let list = filled(&os, &tx, 0..3).await;
        let mut header = list.header().unwrap();
        header.pointers = u64::MAX / 2;
        list.set_header(&tx, &header).unwrap();
        assert!(list.pointers().await.is_err());
        // As many as there is room for, but nothing in it: such a list was gathered hole by hole.
        header.pointers = 4;
        list.set_header(&tx, &header).unwrap();
        assert!(list.pointers().await.is_err());
        header.pointers = 3;
        header.array = list.dnode.object();
        header.lists = 1;
        list.set_header(&tx, &header).unwrap();
        assert!(list.pointers().await.is_err());
    }
}
