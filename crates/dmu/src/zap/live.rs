//! An open ZAP: each operation finds out which shape the object has and does what it takes there.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::zap::micro::{MicroHeader, entries as micro_entries, fits, slots};
use platter_ondisk::zap::{BlockKind, FAT_BLOCK_SHIFT};
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::{Result, Tx, ZioError};

use crate::core::Dnode;
use crate::new_dnode::NewDnode;
use crate::objset::Objset;
use crate::zap::fat::{Fat, IfPresent};
use crate::zap_entries::index::{Index, Room};
use crate::zap_entries::key::{Naming, damaged, value_bytes};
use crate::zap_entries::shared::Shared;
use crate::zap_entries::value::{ZapEntry, ZapValue};

/// Smallest micro ZAP, bytes.
const MICRO_SIZE_NEW: u32 = SECTOR as u32;
/// log2 of the indirect block size, bytes.
const INDIRECT_SHIFT: u8 = 17;

/// Memory that entries asked for at once may take, in bytes: some two million small ones. Leaves compress very well, so
/// that the space that a ZAP takes on disk says little about it.
pub(super) const MEMORY_MAX: usize = 256 << 20;

/// How to make a ZAP.
#[derive(Clone, Debug)]
pub struct NewZap {
    /// `dmu_object_type_t` (a ZAP type).
    pub object_type: ObjectType,
    /// `u8_textprep` normalisation flags; 0 for none.
    pub normalization: u32,
    /// `zap_flags_t` (ZAP_FLAG_HASH64 1, UINT64_KEY 2, PRE_HASHED_KEY 4); nonzero makes a fat ZAP at once.
    pub flags: u64,
    /// Bonus type and length to allocate with.
    pub bonus_type: ObjectType,
    /// Bonus length in bytes.
    pub bonus_length: u16,
    /// Dnode size in bytes; 0 is the smallest.
    pub dnode_size: u32,
    /// Salt for the hash; take it from the pool's random generator.
    pub salt: u64,
}

/// An open ZAP. Cheap to clone; operations on one ZAP are serialised inside (readers in parallel).
#[derive(Clone)]
pub struct Zap {
    dnode: Arc<Dnode>,
}

impl Zap {
    /// Makes an empty ZAP in a new object (or with number `object` when given).
    ///
    /// # Errors
    /// Those of allocating and writing.
    pub async fn create(os: &Arc<Objset>, tx: &Tx, object: Option<ObjectId>, new: NewZap) -> Result<Self> {
        let dnode = NewDnode {
            object_type: new.object_type,
            block_size: if new.flags == 0 { MICRO_SIZE_NEW } else { 1 << FAT_BLOCK_SHIFT },
            indirect_shift: INDIRECT_SHIFT,
            bonus_type: new.bonus_type,
            bonus_length: new.bonus_length,
            dnode_size: new.dnode_size,
        };
        let dnode = match object {
            Some(object) => os.claim(tx, object, dnode).await?,
            None => os.allocate(tx, dnode).await?,
        };
        let zap = Self { dnode };
        // A salt of 0 would stand for "no salt".
        let naming = Naming { salt: new.salt | 1, normalization: u64::from(new.normalization), flags: new.flags };
        let guard = zap.shared().lock.write().await;
        zap.shared().forget();
        if new.flags == 0 {
            let mut block = Buf::zeroed(zap.dnode.block_size() as usize);
            MicroHeader { salt: naming.salt, normalization: naming.normalization }.encode(block.make_mut());
            zap.dnode.write_block(tx, 0, block).await?;
        } else {
            Fat::format(&zap.dnode, tx, naming).await?;
        }
        drop(guard);
        Ok(zap)
    }

    /// Turns an object that so far only used its bonus into one that also holds an (empty, micro) ZAP
    /// (`dmu_object_zapify`).
    ///
    /// # Errors
    /// Those of writing.
    pub async fn zapify(dnode: &Arc<Dnode>, tx: &Tx, object_type: ObjectType, salt: u64) -> Result<Self> {
        let zap = Self { dnode: dnode.clone() };
        let guard = zap.shared().lock.write().await;
        zap.shared().forget();
        let mut block = Buf::zeroed(dnode.block_size() as usize);
        MicroHeader { salt: salt | 1, normalization: 0 }.encode(block.make_mut());
        dnode.write_block(tx, 0, block).await?;
        dnode.set_object_type(tx, object_type)?;
        drop(guard);
        Ok(zap)
    }

    /// Opens ZAP `object`.
    ///
    /// # Errors
    /// No such object.
    pub async fn open(os: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        Ok(Self { dnode: os.dnode(object).await? })
    }

    /// Wraps an object already open.
    pub fn from_dnode(dnode: Arc<Dnode>) -> Self {
        Self { dnode }
    }

    /// The object.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.dnode.zap
    }

    async fn block_0(&self) -> Result<(BlockKind, Buf)> {
        let block = self.dnode.read_metadata(0).await?;
        Ok((BlockKind::of(&block).map_err(damaged(self.dnode.object()))?, block))
    }

    /// Runs `query` on the index of micro ZAP `block`. Call with the lock held, for reading at least.
    fn with_index<T>(&self, block: &[u8], query: impl FnOnce(&Index) -> T) -> Result<T> {
        if let Some(index) = &*self.shared().index.read() {
            return Ok(query(index));
        }
        let index = Index::build(block, self.dnode.object())?;
        let answer = query(&index);
        *self.shared().index.write() = Some(index);
        Ok(answer)
    }

    /// The value of `name`, or `None`. Names compare byte by byte, whatever the normalisation flags.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn get(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        match self.get_now(name) {
            Some(found) => Ok(found),
            None => Box::pin(self.get_from_disk(name)).await,
        }
    }

    /// As [`Self::get`] when memory has what it takes, and nobody changes it just now.
    fn get_now(&self, name: &[u8]) -> Option<Option<ZapValue>> {
        let _guard = self.shared().lock.try_read().ok()?;
        let block = self.dnode.read_block_now(0)?;
        match BlockKind::of(&block).ok()? {
            BlockKind::Micro => self
                .with_index(&block, |index| {
                    index.find(&block, name, |other| other == name).map(|(_, entry)| ZapValue::from_u64(entry.value))
                })
                .ok(),
            BlockKind::Header => {
                let fat = Fat::open(&self.dnode, &block).ok()?;
                match fat.naming().key(name) {
                    Some(key) => fat.get_now(&key),
                    None => Some(None),
                }
            }
        }
    }

    async fn get_from_disk(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let _guard = self.shared().lock.read().await;
        match self.block_0().await? {
            (BlockKind::Micro, block) => self.with_index(&block, |index| {
                index.find(&block, name, |other| other == name).map(|(_, entry)| ZapValue::from_u64(entry.value))
            }),
            (BlockKind::Header, block) => {
                let fat = Fat::open(&self.dnode, &block)?;
                drop(block);
                match fat.naming().key(name) {
                    Some(key) => fat.get(&key).await,
                    None => Ok(None),
                }
            }
        }
    }

    /// Like [`get`](Self::get), but names compare as the ZAP's normalisation flags say, with `match_case` less the
    /// folding of case; the name found is returned. Of several names that are the same, one that equals byte by byte
    /// comes first, else the oldest (`MT_NORMALIZE` and `MT_MATCH_CASE`, `include/sys/zap.h`).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn get_normalized(&self, name: &[u8], match_case: bool) -> Result<Option<(Vec<u8>, ZapValue)>> {
        if let Some(value) = self.get(name).await? {
            return Ok(Some((name.to_vec(), value)));
        }
        let _guard = self.shared().lock.read().await;
        match self.block_0().await? {
            (BlockKind::Micro, block) => self.with_index(&block, |index| {
                let same = index.naming().same(name, match_case);
                let (_, entry) = index.find(&block, name, same)?;
                Some((entry.name.to_vec(), ZapValue::from_u64(entry.value)))
            }),
            (BlockKind::Header, block) => {
                let fat = Fat::open(&self.dnode, &block)?;
                let Some(key) = fat.naming().key(name) else { return Ok(None) };
                let same = fat.naming().same(name, match_case);
                Ok(fat.get_matching(&key, same).await?.map(|entry| (entry.name, entry.value)))
            }
        }
    }

    /// The value of `name` as one 8-byte integer, or `None` when absent (another shape is damage).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn get_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        match self.get(name).await? {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                let (name, object) = (String::from_utf8_lossy(name), self.dnode.object());
                ZioError::corrupt(
                    "ZAP value",
                    format!(
                        "object {object}: \"{name}\" has {} integers of {} bytes instead of one of 8",
                        value.integers.len(),
                        value.integer_size
                    ),
                )
            }),
        }
    }

    /// Adds `name`; an error when it exists.
    ///
    /// # Errors
    /// [`ZioError::Exists`], [`ZioError::Invalid`] for impossible names and values, damage, unreadable blocks.
    pub async fn add(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.set(tx, name, value, IfPresent::Fail).await
    }

    /// Adds or replaces `name`.
    ///
    /// # Errors
    /// [`ZioError::Invalid`] for impossible names and values, damage, unreadable blocks.
    pub async fn put(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        self.set(tx, name, value, IfPresent::Replace).await
    }

    /// Adds `name` with one 8-byte integer; an error when it exists.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub async fn add_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.add(tx, name, &ZapValue::from_u64(value)).await
    }

    /// Adds or replaces `name` with one 8-byte integer.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.put(tx, name, &ZapValue::from_u64(value)).await
    }

    async fn set(&self, tx: &Tx, name: &[u8], value: &ZapValue, present: IfPresent) -> Result<()> {
        let _guard = self.shared().lock.write().await;
        *self.shared().numbers.lock() = None;
        self.set_locked(tx, name, value, present).await
    }

    /// As [`Self::set`], with the lock held for writing, by who sees to what is known of the ZAP's numbers.
    pub(super) async fn set_locked(&self, tx: &Tx, name: &[u8], value: &ZapValue, present: IfPresent) -> Result<()> {
        value_bytes(value)?;
        let (kind, block) = self.block_0().await?;
        let mut fat = match kind {
            BlockKind::Header => {
                let fat = Fat::open(&self.dnode, &block)?;
                drop(block);
                fat
            }
            BlockKind::Micro => {
                if self.set_micro(tx, block, name, value, present).await? {
                    return Ok(());
                }
                Box::pin(self.upgrade(tx)).await?
            }
        };
        let (key, hash) = fat.naming().key_for_writing(name)?;
        fat.set(tx, &key, hash, None, value, present).await
    }

    /// Sets the entry if a micro ZAP can hold it; whether it could. Call with the lock held for writing.
    async fn set_micro(&self, tx: &Tx, block: Buf, name: &[u8], value: &ZapValue, present: IfPresent) -> Result<bool> {
        let (naming, found) = self.with_index(&block, |index| {
            (index.naming(), index.find(&block, name, |other| other == name).map(|(slot, _)| slot))
        })?;
        let (_, hash) = naming.key_for_writing(name)?;
        if found.is_some() && present == IfPresent::Fail {
            return Err(ZioError::Exists(format!("\"{}\"", String::from_utf8_lossy(name))));
        }
        let (Some(value), true) = (value.as_u64(), fits(name)) else { return Ok(false) };
        // Taken out while the object is written to: if that fails, the index is made anew from what is there.
        let mut index = self.shared().index.write().take().expect("made above");
        let (room, slots) = (index.room(&block, hash), slots(block.len()));
        // The object changes its block in place when nobody else looks at it.
        drop(block);
        match (found, room) {
            (Some(slot), _) => index.replace(&self.dnode, tx, slot, value).await?,
            (None, Room::Slot(slot)) => index.insert(&self.dnode, tx, slot, hash, name, value).await?,
            (None, Room::Grow(size)) => {
                self.dnode.set_block_size(tx, size).await?;
                index.insert(&self.dnode, tx, slots, hash, name, value).await?;
            }
            (None, Room::Fat) => return Ok(false),
        }
        *self.shared().index.write() = Some(index);
        Ok(true)
    }

    /// Turns a micro ZAP into a fat one. Call with the lock held for writing.
    async fn upgrade(&self, tx: &Tx) -> Result<Fat<'_>> {
        let object = self.dnode.object();
        let (_, block) = self.block_0().await?;
        let header = MicroHeader::decode(&block).map_err(damaged(object))?;
        let naming = Naming { salt: header.salt, normalization: header.normalization, flags: 0 };
        let mut entries = Vec::new();
        for entry in micro_entries(&block) {
            let (_, entry) = entry.map_err(damaged(object))?;
            // Fails before anything is changed when a name's hash is beyond us.
            let (key, hash) = naming.key_for_writing(entry.name)?;
            entries.push((key, hash, entry.cd, ZapValue::from_u64(entry.value)));
        }
        drop(block);
        *self.shared().index.write() = None;
        self.dnode.set_block_size(tx, 1 << FAT_BLOCK_SHIFT).await?;
        let mut fat = Fat::format(&self.dnode, tx, naming).await?;
        for (key, hash, cd, value) in &entries {
            fat.set(tx, key, *hash, Some(*cd), value, IfPresent::Fail).await?;
        }
        Ok(fat)
    }

    /// Removes `name`; `false` when it was absent.
    ///
    /// # Errors
    /// Damage, unreadable blocks, a name that cannot be hashed without Unicode tables.
    pub async fn remove(&self, tx: &Tx, name: &[u8]) -> Result<bool> {
        let _guard = self.shared().lock.write().await;
        *self.shared().numbers.lock() = None;
        self.remove_locked(tx, name).await
    }

    /// As [`Self::remove`], with the lock held for writing, by who sees to what is known of the ZAP's numbers.
    pub(super) async fn remove_locked(&self, tx: &Tx, name: &[u8]) -> Result<bool> {
        match self.block_0().await? {
            (BlockKind::Micro, block) => {
                let found = self.with_index(&block, |index| {
                    let (slot, entry) = index.find(&block, name, |other| other == name)?;
                    Some((slot, index.naming().hash_or_any(name), entry.cd))
                })?;
                let Some((slot, hash, cd)) = found else { return Ok(false) };
                drop(block);
                let mut index = self.shared().index.write().take().expect("made above");
                index.remove(&self.dnode, tx, slot, hash, cd).await?;
                *self.shared().index.write() = Some(index);
                Ok(true)
            }
            (BlockKind::Header, block) => {
                let mut fat = Fat::open(&self.dnode, &block)?;
                drop(block);
                let naming = fat.naming();
                match naming.key(name) {
                    Some(_) => {
                        let (key, hash) = naming.key_for_writing(name)?;
                        fat.remove(tx, &key, hash).await
                    }
                    None => Ok(false),
                }
            }
        }
    }

    /// Up to `limit` entries after `cursor` (0 starts), in hash order.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn entries(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>> {
        let _guard = self.shared().lock.read().await;
        self.entries_locked(cursor, limit).await
    }

    /// As [`Self::entries`], with the lock held.
    pub(super) async fn entries_locked(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>> {
        match self.block_0().await? {
            _ if cursor == u64::MAX => Ok(Vec::new()),
            (BlockKind::Micro, block) => self.with_index(&block, |index| index.entries(&block, cursor, limit)),
            (BlockKind::Header, block) => {
                let fat = Fat::open(&self.dnode, &block)?;
                drop(block);
                let ahead = fat.blocks_to_prefetch();
                if cursor == 0 && ahead > 0 {
                    self.dnode.prefetch(1, ahead - 1);
                }
                fat.entries(cursor, limit, MEMORY_MAX).await
            }
        }
    }

    /// All entries. Who may meet very many asks for [`entries`](Self::entries) part by part.
    ///
    /// # Errors
    /// Damage, unreadable blocks; more entries than fit in 256 MiB.
    pub async fn all(&self) -> Result<Vec<ZapEntry>> {
        self.entries(0, usize::MAX).await
    }

    /// Number of entries.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn count(&self) -> Result<u64> {
        let _guard = self.shared().lock.read().await;
        match self.block_0().await? {
            (BlockKind::Micro, block) => self.with_index(&block, |index| index.len() as u64),
            (BlockKind::Header, block) => Ok(Fat::open(&self.dnode, &block)?.count()),
        }
    }
}
