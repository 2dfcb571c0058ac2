//! What the intent log is told of each change (`module/zfs/zfs_log.c`).
//!
//! Invariant: every transaction says what becomes of it if the machine stops: it hands its record to the log, or says
//! that it needs none. One that says neither counts as a change without a record, for which commits wait for the whole
//! group: slower, and never wrong.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::zil::record::{Create, Made, NewObject, Record, RenameKind, SetAttr as SetAttrRecord, set};
use platter_zil::{DataSource, Note, SyncMode, Zil};

use crate::attr::{FileKind, RenameFlags, SetAttr, SetTime};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::phys::Phys;
use crate::znode::Znode;

/// A transaction of the file system; see the module text.
pub(crate) struct LoggedTx {
    tx: Tx,
    log: Option<Arc<Zil>>,
    settled: Cell<bool>,
}

impl LoggedTx {
    pub fn new(tx: Tx, log: Option<Arc<Zil>>) -> Self {
        Self { tx, log, settled: Cell::new(false) }
    }

    /// The change needs no record: nobody can wait for it.
    pub fn needs_no_record(&self) {
        self.settled.set(true);
    }

    /// Hands the change's record to the log.
    pub fn note(&self, note: impl FnOnce() -> Note) {
        self.settled.set(true);
        if let Some(log) = &self.log {
            log.note(&self.tx, note);
        }
    }

    /// Hands over a change of names.
    fn names(&self, record: impl FnOnce() -> Record) {
        self.note(|| Note::Namespace(record()));
    }
}

impl Deref for LoggedTx {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl Drop for LoggedTx {
    fn drop(&mut self) {
        if let Some(log) = self.log.as_ref().filter(|_| !self.settled.get()) {
            log.note_unlogged(&self.tx);
        }
    }
}

/// The record's part about a new object.
pub(crate) fn new_object(znode: &Znode) -> NewObject {
    let slots = (znode.dnode.info().dnode_size / 512) as u16;
    let state = znode.state.lock();
    let phys = &state.phys;
    NewObject {
        object: znode.object.0,
        slots,
        mode: phys.mode,
        uid: phys.uid,
        gid: phys.gid,
        generation: phys.generation,
        create_time: phys.crtime,
        rdev: phys.rdev.unwrap_or(0),
    }
}

/// Notes that `znode` was made as `name` in `parent`.
pub(crate) fn created(tx: &LoggedTx, parent: ObjectId, name: &[u8], znode: &Znode) {
    tx.names(|| {
        let new = new_object(znode);
        let made = match znode.kind() {
            FileKind::Directory => Made::Directory,
            FileKind::Symlink => Made::Symlink(znode.state.lock().phys.symlink.clone().unwrap_or_default()),
            _ => Made::File,
        };
        Record::Create(Box::new(Create {
            made,
            any_case: false,
            parent: parent.0,
            new,
            attributes: None,
            acl: None,
            domains: Vec::new(),
            name: name.to_vec(),
        }))
    });
}

/// Notes that `name` was removed from `parent`.
pub(crate) fn removed(tx: &LoggedTx, parent: ObjectId, name: &[u8], directory: bool) {
    tx.names(|| Record::Remove { any_case: false, directory, parent: parent.0, name: name.to_vec() });
}

/// Notes that `object` has the name `name` in `parent` too.
pub(crate) fn linked(tx: &LoggedTx, object: ObjectId, parent: ObjectId, name: &[u8]) {
    tx.names(|| Record::Link { any_case: false, parent: parent.0, object: object.0, name: name.to_vec() });
}

/// Notes that `moved` has another name.
pub(crate) fn renamed(
    tx: &LoggedTx,
    moved: ObjectId,
    from: (ObjectId, &[u8]),
    to: (ObjectId, &[u8]),
    how: RenameFlags,
) {
    // A file that replaces another is often written just before, and must have its data when it does.
    if let Some(log) = &tx.log {
        log.promote(moved);
    }
    tx.names(|| Record::Rename {
        any_case: false,
        kind: if how.exchange { RenameKind::Exchange } else { RenameKind::Replace },
        from: from.0.0,
        to: to.0.0,
        name: from.1.to_vec(),
        new_name: to.1.to_vec(),
    });
}

/// Whether nobody can find `phys`'s object after a crash, so that its changes need no records.
fn is_nameless(phys: &Phys) -> bool {
    phys.links == 0
}

/// Notes that `length` bytes from `offset` were written.
pub(crate) fn written(tx: &LoggedTx, znode: &Znode, offset: u64, length: u64) {
    let generation = {
        let state = znode.state.lock();
        if is_nameless(&state.phys) {
            return tx.needs_no_record();
        }
        state.phys.generation
    };
    tx.note(|| Note::Data { object: znode.object.0, generation, offset, length });
}

/// Notes that attributes were set.
pub(crate) fn attributes_set(tx: &LoggedTx, znode: &Znode, change: &SetAttr) {
    if change.flags.is_some() {
        // Left to the group: file flags are set rarely.
        return;
    }
    let mut mask = set::CTIME;
    for (given, bit) in [
        (change.mode.is_some(), set::MODE),
        (change.uid.is_some(), set::UID),
        (change.gid.is_some(), set::GID),
        (change.size.is_some(), set::SIZE),
        (change.atime.is_some(), set::ATIME),
        (change.mtime.is_some(), set::MTIME),
    ] {
        mask |= if given { bit } else { 0 };
    }
    let record = {
        let state = znode.state.lock();
        let phys = &state.phys;
        if is_nameless(phys) {
            return tx.needs_no_record();
        }
        SetAttrRecord {
            object: znode.object.0,
            mask,
            mode: phys.mode,
            uid: phys.uid,
            gid: phys.gid,
            size: phys.size,
            atime: phys.atime,
            mtime: phys.mtime,
            attributes: None,
            domains: Vec::new(),
        }
    };
    tx.note(|| Note::Object(znode.object.0, Record::SetAttr(Box::new(record))));
}

/// The change that a [`SetAttrRecord`] asks for.
pub(crate) fn change_of(record: &SetAttrRecord) -> SetAttr {
    let given = |bit: u64| record.mask & bit != 0;
    let time = |words| SetTime::At(crate::attr::Timestamp::from_words(words));
    SetAttr {
        mode: given(set::MODE).then_some((record.mode & 0o7777) as u32),
        uid: given(set::UID).then_some(record.uid as u32),
        gid: given(set::GID).then_some(record.gid as u32),
        size: given(set::SIZE).then_some(record.size),
        atime: given(set::ATIME).then(|| time(record.atime)),
        mtime: given(set::MTIME).then(|| time(record.mtime)),
        ..SetAttr::default()
    }
}

/// Reads for the log what writes wrote.
pub(crate) struct LogSource(pub Weak<Zpl>);

impl DataSource for LogSource {
    fn read(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> BoxFuture<'_, platter_zio::Result<Option<Vec<u8>>>> {
        async move {
            let Some(zpl) = self.0.upgrade() else { return Ok(None) };
            match zpl.read_for_log(object, generation, offset, length).await {
                Ok(data) => Ok(data),
                Err(ZplError::Zio(error)) => Err(error),
                Err(_) => Ok(None),
            }
        }
        .boxed()
    }
}

impl Zpl {
    /// Bytes of a file as they are now; `None` when it is gone.
    async fn read_for_log(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> Result<Option<Vec<u8>>> {
        let znode = match self.znode(object).await {
            Ok(znode) => znode,
            Err(ZplError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        let _shared = znode.lock.read().await;
        let end = offset.saturating_add(length);
        let _range = znode.ranges.lock(offset, end, false).await;
        let size = {
            let state = znode.state.lock();
            if state.freed || state.phys.generation != generation {
                return Ok(None);
            }
            state.phys.size
        };
        let mut bytes = vec![0; end.min(size).saturating_sub(offset) as usize];
        znode.dnode.read(offset, &mut bytes).await?;
        Ok(Some(bytes))
    }

    /// After every change: with `sync=always` nothing is answered before it is stable. No lock may be held.
    pub(crate) async fn settle(&self, object: ObjectId) -> Result<()> {
        match &self.log {
            Some(log) if log.mode() == SyncMode::Always && !log.needs_replay() => Ok(log.commit(Some(object)).await?),
            _ => Ok(()),
        }
    }
}
