//! New objects before they have a name (`zfs_mknode`, `module/os/linux/zfs/zfs_znode_os.c`).

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Dnode, NewDnode, Tx};
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::zil::attributes::{Attributes, bits};
use platter_ondisk::zil::record::NewObject;
use platter_ondisk::znode::flags;
use platter_ondisk::{ObjectId, ObjectType};

use crate::acl::Acl;
use crate::attr::{FileKind, NewFile};
use crate::error::Result;
use crate::fs::Zpl;
use crate::phys::Phys;
use crate::sa_table::directory_zap;
use crate::znode::{Znode, group_of_new, rdev_from_user};
use crate::znode_legacy;

/// Data block size of a new file, in bytes; it grows with the first writes.
const FIRST_BLOCK_SIZE: u32 = SECTOR as u32;
const INDIRECT_SHIFT: u8 = 17;

/// What is to be made.
pub(crate) struct New<'a> {
    pub kind: FileKind,
    pub rdev: u32,
    pub target: Option<&'a [u8]>,
    /// The object as it was made before a crash.
    pub replayed: Option<Replayed<'a>>,
}

/// What the log says of an object that was made before a crash.
pub(crate) struct Replayed<'a> {
    pub object: &'a NewObject,
    /// File flags it had from the beginning.
    pub flags: Option<&'a Attributes>,
    /// Its access control list with the flags of the list as a whole.
    pub acl: Option<(Acl, u64)>,
}

impl Zpl {
    /// Makes an object for something new in `directory`, which does not name it yet.
    pub(crate) async fn make_object(&self, directory: &Znode, tx: &Tx, new: NewFile, what: &New<'_>) -> Result<Znode> {
        let project = self.project_of_new(directory);
        let mut phys = Phys::new(what.kind, u64::from(new.mode), tx.txg().0, self.now(), project, &self.table);
        phys.uid = u64::from(new.uid);
        phys.gid = group_of_new(directory, new.gid);
        {
            let state = directory.state.lock();
            if state.phys.mode & 0o2000 != 0 && what.kind == FileKind::Directory {
                phys.mode |= 0o2000;
            }
            phys.flags |= state.phys.flags & flags::XATTR;
            if project.is_some() && matches!(what.kind, FileKind::Regular | FileKind::Directory) {
                phys.flags |= state.phys.flags & flags::PROJINHERIT;
            }
        }
        if matches!(what.kind, FileKind::BlockDevice | FileKind::CharDevice) {
            phys.rdev = Some(rdev_from_user(what.rdev));
        }
        if let Some(target) = what.target {
            phys.symlink = Some(target.to_vec());
            phys.size = target.len() as u64;
        }
        if let Some(replayed) = &what.replayed {
            let old = replayed.object;
            (phys.uid, phys.gid, phys.generation) = (old.uid, old.gid, old.generation);
            phys.mode = what.kind.mode_bits() | old.mode & 0o7777;
            (phys.atime, phys.mtime) = (old.create_time, old.create_time);
            (phys.ctime, phys.crtime) = (old.create_time, old.create_time);
            phys.rdev = phys.rdev.map(|_| old.rdev);
            if let Some(given) = replayed.flags {
                phys.flags = flags_with(phys.flags, given);
                if let Some(project) = given.project().filter(|_| phys.projid.is_some()) {
                    phys.projid = Some(project);
                }
            }
            if let Some((acl, wide)) = &replayed.acl {
                phys.set_acl(acl.clone(), *wide);
            }
        }
        let object = what.replayed.as_ref().map(|replayed| replayed.object);
        let dnode = self.allocate(tx, what.kind, what.target, object).await?;
        Ok(Znode::new(dnode, phys))
    }

    /// A new object for a file of this kind: a symbolic link to `target`, the one `replayed` was before a crash.
    pub(crate) async fn allocate(
        &self,
        tx: &Tx,
        kind: FileKind,
        target: Option<&[u8]>,
        replayed: Option<&NewObject>,
    ) -> Result<Arc<Dnode>> {
        let number = replayed.map(|old| ObjectId(old.object));
        // Only files and directories follow `dnodesize` (`zfs_mknode`).
        let dnode_size = match replayed {
            Some(old) => u32::from(old.slots) * DNODE_SIZE as u32,
            None => self.os.properties().dnode_size,
        };
        if kind == FileKind::Directory {
            let zap = NewZap { dnode_size, ..directory_zap(&self.salts, &self.table, self.names.normalization) };
            return Ok(Zap::create(&self.os, tx, number, zap).await?.dnode().clone());
        }
        let (bonus_type, bonus_length) = self.table.new_bonus();
        // A target that does not fit a znode is the object's data.
        let data = target.filter(|t| self.table.is_legacy() && !znode_legacy::target_fits(t.len()));
        let dnode = NewDnode {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            block_size: data.map_or(FIRST_BLOCK_SIZE, |data| data.len() as u32),
            indirect_shift: INDIRECT_SHIFT,
            bonus_type,
            bonus_length,
            dnode_size,
        };
        let dnode = match number {
            Some(number) => self.os.claim(tx, number, dnode).await?,
            None => self.os.allocate(tx, dnode).await?,
        };
        if let Some(data) = data {
            dnode.write(tx, 0, data).await?;
        }
        Ok(dnode)
    }

    /// A whiteout that belongs to whom `directory` belongs to; the caller enters it.
    pub(crate) async fn make_whiteout(
        &self,
        directory: &Znode,
        tx: &Tx,
        replayed: Option<&NewObject>,
    ) -> Result<Arc<Znode>> {
        let (uid, gid) = {
            let state = directory.state.lock();
            (state.phys.uid as u32, state.phys.gid as u32)
        };
        let new = NewFile { uid, gid, ..NewFile::default() };
        let replayed = replayed.map(|object| Replayed { object, flags: None, acl: None });
        let what = New { kind: FileKind::CharDevice, rdev: 0, target: None, replayed };
        let znode = Arc::new(self.make_object(directory, tx, new, &what).await?);
        self.update(&znode, tx, |phys| phys.parent = directory.object.0).await?;
        self.cache.insert(znode.clone(), self.os.params().gate.synced_txg());
        Ok(znode)
    }
}

/// The file flags `all` with what `given` says.
pub(crate) fn flags_with(mut all: u64, given: &Attributes) -> u64 {
    for (bit, flag) in [
        (bits::ARCHIVE, flags::ARCHIVE),
        (bits::SYSTEM, flags::SYSTEM),
        (bits::READONLY, flags::READONLY),
        (bits::HIDDEN, flags::HIDDEN),
        (bits::NOUNLINK, flags::NOUNLINK),
        (bits::IMMUTABLE, flags::IMMUTABLE),
        (bits::APPENDONLY, flags::APPENDONLY),
        (bits::NODUMP, flags::NODUMP),
        (bits::OPAQUE, flags::OPAQUE),
        (bits::REPARSE, flags::REPARSE),
        (bits::OFFLINE, flags::OFFLINE),
        (bits::SPARSE, flags::SPARSE),
        (bits::PROJINHERIT, flags::PROJINHERIT),
    ] {
        match given.value(bit) {
            Some(true) => all |= flag,
            Some(false) => all &= !flag,
            None => {}
        }
    }
    all
}
