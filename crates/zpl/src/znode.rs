//! One open file or directory (`znode_t`).
//!
//! Invariants:
//! - there is at most one [`Znode`] for an object at any time (see `cache`), and its attributes in memory are
//!   the newest;
//! - a change reaches the bonus in the transaction that made it (where transactions of two groups overlap, the object
//!   below brings the older one's change into the younger group too);
//! - `freed` is final: whoever finds it set answers "stale".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_dmu::bytes::{ByteRange, RangeLock, Run, Streams};
use platter_dmu::zap::Zap;
use platter_dmu::{Dnode, DnodeInfo, Objset, Tx, ZioError};
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::znode::device_for_users;
use platter_ondisk::{ObjectId, ObjectType, Sectors, Txg};

use crate::attr::{Attr, FileKind, Timestamp};
use crate::error::{Result, ZplError};
use crate::phys::{EncodeError, Fixed, Phys, Tracked};
use crate::sa_table::SaTable;
use crate::stored;
use crate::znode_legacy;

/// What changes about an open object.
#[derive(Debug)]
pub(crate) struct State {
    pub phys: Tracked,
    /// How often it is open.
    pub opens: u64,
    /// It was made without a name and may get one.
    pub linkable: bool,
    /// The object is gone from disk.
    pub freed: bool,
    /// The file is known to have no `security.capability`.
    pub no_capability: bool,
    /// The access time in `phys` is newer than the one on disk.
    pub atime_dirty: bool,
    /// The last group it was changed in.
    pub changed: Txg,
}

impl State {
    /// Whether it takes a look at the extended attributes to know that there are no capabilities.
    pub fn may_have_capability(&self) -> bool {
        !self.no_capability && (self.phys.dxattr.is_some() || self.phys.xattr.is_some_and(|object| object != 0))
    }
}

/// An open object.
pub(crate) struct Znode {
    pub object: ObjectId,
    pub dnode: Arc<Dnode>,
    /// Directories: readers look entries up, writers change them. Files: readers read and write ranges, writers change
    /// size or block size. Everything: link counts change under it.
    pub lock: tokio::sync::RwLock<()>,
    pub ranges: RangeLock,
    pub state: Mutex<State>,
    pub streams: Mutex<Streams>,
    pub run: Mutex<Run>,
    /// Somebody was told attributes that lack what is on its way to disk.
    pub told_unsettled: AtomicBool,
}

impl Znode {
    /// As [`Self::load`] when memory has all it takes.
    pub fn load_now(os: &Objset, table: &SaTable, object: ObjectId) -> Option<Self> {
        let dnode = os.dnode_now(object)?;
        let kind = dnode.info().object_type;
        if kind != ObjectType::PLAIN_FILE_CONTENTS && kind != ObjectType::DIRECTORY_CONTENTS {
            return None;
        }
        let phys = Phys::read_now(&dnode, table)?;
        Some(Self::new(dnode, phys))
    }

    /// Reads `object`'s attributes.
    pub async fn load(os: &Arc<Objset>, table: &SaTable, object: ObjectId) -> Result<Self> {
        let dnode = os.dnode(object).await.map_err(|e| match e {
            ZioError::NotFound(_) => ZplError::Stale,
            other => ZplError::Zio(other),
        })?;
        let kind = dnode.info().object_type;
        if kind != ObjectType::PLAIN_FILE_CONTENTS && kind != ObjectType::DIRECTORY_CONTENTS {
            return Err(ZplError::Stale);
        }
        let phys = stored::read(os, &dnode, table).await?;
        Ok(Self::new(dnode, phys))
    }

    /// The object with these attributes, not stored yet when it is new.
    pub fn new(dnode: Arc<Dnode>, phys: Phys) -> Self {
        Self {
            object: dnode.object(),
            dnode,
            lock: tokio::sync::RwLock::new(()),
            ranges: RangeLock::default(),
            state: Mutex::new(State {
                phys: Tracked::new(phys),
                opens: 0,
                linkable: false,
                freed: false,
                no_capability: false,
                atime_dirty: false,
                changed: Txg(0),
            }),
            streams: Mutex::new(Streams::default()),
            run: Mutex::new(Run::default()),
            told_unsettled: AtomicBool::new(false),
        }
    }

    /// The file's bytes.
    pub fn bytes(&self) -> ByteRange<'_> {
        ByteRange { dnode: &self.dnode, streams: &self.streams }
    }

    /// The directory's entries.
    pub fn zap(&self) -> Zap {
        Zap::from_dnode(self.dnode.clone())
    }

    /// Changes the attributes and stores them in `tx`.
    pub async fn update(
        &self,
        os: &Arc<Objset>,
        table: &SaTable,
        tx: &Tx,
        change: impl FnOnce(&mut Phys),
    ) -> Result<()> {
        let external = {
            let mut state = self.state.lock();
            state.changed = state.changed.max(tx.txg());
            let phys = state.phys.change();
            change(phys);
            znode_legacy::take_replaced_acl(phys)
        };
        if let Some(object) = external {
            os.free_object(tx, object).await?;
        }
        loop {
            match self.store(table, tx) {
                Ok(()) => return Ok(()),
                Err(EncodeError::MissingLayout(attributes)) => {
                    table.add_layout(tx, &attributes).await?;
                }
                Err(EncodeError::Zio(error)) => return Err(error.into()),
            }
        }
    }

    /// Changes attributes that every object has and stores them in `tx`, where they lie: nearly every change is of
    /// these alone. `false` when they must be stored with the others ([`update`](Self::update)).
    pub fn touch(&self, table: &SaTable, tx: &Tx, change: impl FnOnce(&mut Fixed)) -> Result<bool> {
        let mut state = self.state.lock();
        change(state.phys.change_fixed());
        state.changed = state.changed.max(tx.txg());
        if state.freed || state.phys.is_changed() || table.is_legacy() {
            return Ok(false);
        }
        let words = state.phys.fixed.words();
        let is_stored = self.dnode.change_bonus(tx, |bonus| table.put_fixed(bonus, &words))?;
        debug_assert!(!is_stored || self.dnode.is_dirty(), "{:?}: a change is in no group", self.dnode);
        Ok(is_stored)
    }

    fn store(&self, table: &SaTable, tx: &Tx) -> std::result::Result<(), EncodeError> {
        let mut state = self.state.lock();
        if state.freed {
            return Ok(());
        }
        if table.is_legacy() {
            let bonus = znode_legacy::encode(&state.phys).map_err(EncodeError::Zio)?;
            return self.dnode.set_bonus(tx, ObjectType::ZNODE, &bonus).map_err(EncodeError::Zio);
        }
        let encoded = state.phys.encode(table, self.dnode.bonus_capacity(false))?;
        // The spill block's pointer lies at the end of the bonus area: it goes before the bonus grows over it, and
        // comes after the bonus has shrunk away from it.
        if encoded.spill.is_none() && self.dnode.has_spill() {
            self.dnode.set_spill(tx, None).map_err(EncodeError::Zio)?;
        }
        self.dnode.set_bonus(tx, ObjectType::SA, &encoded.bonus).map_err(EncodeError::Zio)?;
        if let Some(spill) = &encoded.spill {
            self.dnode.set_spill(tx, Some(Buf::copy_from(spill))).map_err(EncodeError::Zio)?;
        }
        debug_assert!(self.dnode.is_dirty(), "{:?}: a change is in no group", self.dnode);
        state.phys.stored();
        Ok(())
    }

    /// Notes that data changed in `txg`.
    pub fn touched(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.changed = state.changed.max(txg);
    }

    /// Fails when the object was freed.
    pub fn check(&self) -> Result<()> {
        if self.state.lock().freed { Err(ZplError::Stale) } else { Ok(()) }
    }

    /// Whether it has no name yet, rather than none any more.
    pub fn is_linkable(&self) -> bool {
        let state = self.state.lock();
        state.linkable && !state.freed && state.phys.links == 0
    }

    pub fn kind(&self) -> FileKind {
        self.state.lock().phys.kind()
    }

    /// Fails unless this is a directory that still exists.
    pub fn check_directory(&self) -> Result<()> {
        let state = self.state.lock();
        if state.freed {
            Err(ZplError::Stale)
        } else if !state.phys.is_directory() {
            Err(ZplError::NotDirectory)
        } else {
            Ok(())
        }
    }

    /// What `stat` tells.
    pub fn attr(&self) -> Attr {
        let info = self.dnode.info();
        let DnodeInfo { used, settled, block_size, dnode_size, .. } = info;
        if !settled {
            self.told_unsettled.store(true, Ordering::Relaxed);
        }
        let space = Space { used, settled, block_size, dnode_size };
        attr_of(self.object, &self.state.lock().phys, &space)
    }
}

/// What an object takes up.
struct Space {
    used: u64,
    settled: bool,
    block_size: u32,
    dnode_size: u32,
}

/// What `stat` tells of an object that nobody uses, looked up without making a [`Znode`] of it; `None` when that
/// cannot be done from memory.
pub(crate) fn attr_at_rest(os: &Objset, table: &SaTable, object: ObjectId) -> Option<Attr> {
    let dnode = os.dnode_at_rest(object)?;
    let is_file = [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS].contains(&dnode.object_type);
    if !is_file || dnode.bonus_type != ObjectType::SA || dnode.spill.is_some() {
        return None;
    }
    let phys = Phys::of_bonus(&dnode.bonus, table, object)?;
    let space = Space {
        used: dnode.used_bytes(),
        settled: true,
        block_size: dnode.data_block_size() as u32,
        dnode_size: (dnode.slots() * DNODE_SIZE) as u32,
    };
    Some(attr_of(object, &phys, &space))
}

fn attr_of(object: ObjectId, phys: &Phys, space: &Space) -> Attr {
    let kind = phys.kind();
    Attr {
        object,
        generation: phys.generation,
        kind,
        mode: (phys.mode & 0o7777) as u32,
        uid: user_id(phys.uid),
        gid: user_id(phys.gid),
        size: phys.size,
        // The dnode itself is counted too, as OpenZFS does: a file whose data is not on disk yet must not look like one
        // big hole to archivers.
        // Rounded as there (`dmu_object_size_from_db`, `module/zfs/dbuf.c`): on raidz a sector's share is no whole one.
        blocks: Sectors::nearest(space.used).0 + Sectors::of(space.dnode_size.into()).0,
        settled: space.settled,
        block_size: space.block_size,
        links: phys.links.min(u64::from(u32::MAX)) as u32,
        rdev: phys.rdev.map_or(0, device_for_users),
        atime: Timestamp::from_words(phys.atime),
        mtime: Timestamp::from_words(phys.mtime),
        ctime: Timestamp::from_words(phys.ctime),
        crtime: Timestamp::from_words(phys.crtime),
        flags: phys.flags,
        project: phys.project(),
    }
}

/// A stored owner as a 32-bit id. Owners from a Windows domain (an index into the FUID table in the upper half) have
/// none here: they become "nobody".
fn user_id(fuid: u64) -> u32 {
    u32::try_from(fuid).unwrap_or(65534)
}

/// A user-space device number as stored.
pub(crate) fn rdev_from_user(rdev: u32) -> u64 {
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00);
    u64::from(major) << 20 | u64::from(minor)
}

/// The group of a new file: its directory's when that is setgid.
pub(crate) fn group_of_new(directory: &Znode, own: u32) -> u64 {
    let state = directory.state.lock();
    if state.phys.mode & 0o2000 != 0 { state.phys.gid } else { u64::from(own) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_encodings() {
        for rdev in [0, 0x0801, 0x0103, 0xfff0_0fff, 0x1234_5678, u32::MAX] {
            assert_eq!(device_for_users(rdev_from_user(rdev)), rdev);
        }
        assert_eq!(rdev_from_user(0x0801), 8 << 20 | 1);
        assert_eq!(device_for_users(8 << 32 | 1), 0x0801);
    }
}
