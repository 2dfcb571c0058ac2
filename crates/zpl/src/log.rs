//! What the intent log is told of each change (`module/zfs/zfs_log.c`).
//!
//! Every transaction says what becomes of it if the machine stops: it hands its record to the log, or says that it
//! needs none. One that says neither counts as a change without a record, for which commits wait for the whole group:
//! slower, and never wrong.
//!
//! Invariant: nothing is added to a change whose records were handed over: it would be in no record.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::zil::attributes::{Attributes, MASK_WORDS, bits};
use platter_ondisk::zil::record::{
    Create, Made, NewObject, Record, RenameKind, SetAttr as SetAttrRecord, Write, WriteData, set,
};
use platter_ondisk::znode::flags;
use platter_zil::{Note, Zil};

use crate::attr::{FileKind, RenameFlags, SetAttr, SetTime};
use crate::phys::Phys;
use crate::znode::Znode;

/// A transaction of the file system; see the module text.
pub(crate) struct LoggedTx {
    tx: Tx,
    log: Option<Arc<Zil>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// It was said what becomes of the change.
    settled: bool,
    /// Its records were handed over.
    told: bool,
    /// A part of the change has no record, so that the others would be of no use.
    incomplete: bool,
    /// What happened to extended attributes, in this order.
    xattrs: Vec<Note>,
    /// Objects that lost their last names.
    gone: Vec<ObjectId>,
}

impl State {
    fn assert_untold(&self) {
        assert!(!self.told, "the records of this change were handed over already");
    }
}

impl LoggedTx {
    pub fn new(tx: Tx, log: Option<Arc<Zil>>) -> Self {
        Self { tx, log, state: Mutex::default() }
    }

    /// The change needs no record: nobody can wait for it.
    pub fn needs_no_record(&self) {
        self.state.lock().settled = true;
    }

    /// A part of the change cannot be told in a record: commits wait for the group.
    pub fn has_no_record(&self) {
        self.state.lock().incomplete = true;
    }

    /// An extended attribute in the file's own list was set, or (`None`) removed; whoever made the transaction still
    /// has to hand over the records.
    pub fn xattr_changed(&self, object: ObjectId, name: &[u8], value: Option<&[u8]>) {
        let mut state = self.state.lock();
        state.assert_untold();
        // Without a value means removed, so that setting an empty one cannot be told.
        let told = self.log.as_ref().is_some_and(|log| log.takes_xattrs()) && value.is_none_or(|v| !v.is_empty());
        if told {
            let (name, value) = (name.to_vec(), value.unwrap_or_default().to_vec());
            state.xattrs.push(Note::Object(object.0, Record::SetXattr { object: object.0, name, value }));
        } else {
            state.incomplete = true;
        }
    }

    /// An extended attribute in a file of its own changed: a part of that. Whoever made the transaction still has to
    /// hand over the records.
    pub fn hidden_changed(&self, record: Record) {
        let mut state = self.state.lock();
        state.assert_untold();
        state.xattrs.push(Note::Namespace(record));
    }

    /// `object` lost its last name: what is remembered of it alone is forgotten once the record of that is handed over.
    pub fn is_gone(&self, object: ObjectId) {
        self.state.lock().gone.push(object);
    }

    /// Hands the change's records to the log: `first` and those of extended attributes.
    fn note(&self, first: Option<Note>) {
        let mut state = self.state.lock();
        if state.incomplete {
            return;
        }
        state.assert_untold();
        (state.settled, state.told) = (true, true);
        let of_names = matches!(first, Some(Note::Namespace(_)));
        let xattrs = std::mem::take(&mut state.xattrs).into_iter().map(|note| match note {
            Note::Object(_, record) if of_names => Note::Namespace(record),
            note => note,
        });
        let gone = std::mem::take(&mut state.gone);
        if let Some(log) = &self.log {
            log.note(&self.tx, first.into_iter().chain(xattrs), &gone);
        }
    }

    /// Hands over a change of names.
    fn names(&self, record: Record) {
        self.note(Some(Note::Namespace(record)));
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
        let state = self.state.get_mut();
        let Some(log) = &self.log else { return };
        if !state.settled {
            log.note_unlogged(&self.tx, &state.gone);
        } else if !state.gone.is_empty() {
            log.note(&self.tx, None, &state.gone);
        }
    }
}

/// The record's part about a new object.
pub(crate) fn new_object(znode: &Znode) -> NewObject {
    let slots = (znode.dnode.info().dnode_size / DNODE_SIZE as u32) as u16;
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
    let made = match znode.kind() {
        FileKind::Directory => Made::Directory,
        FileKind::Symlink => Made::Symlink(znode.state.lock().phys.symlink.clone().unwrap_or_default()),
        _ => Made::File,
    };
    tx.names(creation(made, parent, name, znode));
}

fn creation(made: Made, parent: ObjectId, name: &[u8], znode: &Znode) -> Record {
    Record::Create(Box::new(Create {
        made,
        any_case: false,
        parent: parent.0,
        new: new_object(znode),
        attributes: None,
        acl: None,
        domains: Vec::new(),
        name: name.to_vec(),
    }))
}

/// Notes that `owner` got `directory` for its extended attributes.
pub(crate) fn hidden_directory_made(tx: &LoggedTx, owner: ObjectId, directory: &Znode) {
    tx.hidden_changed(creation(Made::XattrDirectory, owner, b"", directory));
}

/// Notes that the extended attribute `name` got a file of its own in the hidden `directory`.
pub(crate) fn hidden_file_made(tx: &LoggedTx, directory: ObjectId, name: &[u8], file: &Znode) {
    tx.hidden_changed(creation(Made::File, directory, name, file));
}

/// Notes that the extended attribute in `file` lost its value, to get another one.
pub(crate) fn hidden_file_emptied(tx: &LoggedTx, file: ObjectId) {
    tx.hidden_changed(Record::Truncate { object: file.0, offset: 0, length: 0 });
}

/// Notes that the extended attribute in `file` got a value. It is in the record, and that with the changes of names:
/// nobody shall find the attribute without it.
pub(crate) fn hidden_file_written(tx: &LoggedTx, file: ObjectId, value: &[u8]) {
    if !value.is_empty() {
        let (length, data) = (value.len() as u64, WriteData::Inline(value.to_vec()));
        tx.hidden_changed(Record::Write(Write { object: file.0, offset: 0, length, data }));
    }
}

/// Notes that the extended attribute `name` was removed from the hidden `directory`.
pub(crate) fn hidden_file_removed(tx: &LoggedTx, directory: ObjectId, name: &[u8]) {
    let name = name.to_vec();
    tx.hidden_changed(Record::Remove { any_case: false, directory: false, parent: directory.0, name });
}

/// Notes that `name` was removed from `parent`.
pub(crate) fn removed(tx: &LoggedTx, parent: ObjectId, name: &[u8], directory: bool) {
    tx.names(Record::Remove { any_case: false, directory, parent: parent.0, name: name.to_vec() });
}

/// Notes that `object` has the name `name` in `parent` too.
pub(crate) fn linked(tx: &LoggedTx, object: ObjectId, parent: ObjectId, name: &[u8]) {
    tx.names(Record::Link { any_case: false, parent: parent.0, object: object.0, name: name.to_vec() });
}

/// Notes that `moved` has another name, and that `whiteout` has the old one.
pub(crate) fn renamed(
    tx: &LoggedTx,
    moved: ObjectId,
    from: (ObjectId, &[u8]),
    to: (ObjectId, &[u8]),
    how: RenameFlags,
    whiteout: Option<&Znode>,
) {
    // A file that replaces another is often written just before, and must have its data when it does.
    if let Some(log) = &tx.log {
        log.promote(moved);
    }
    let kind = match whiteout {
        Some(whiteout) => RenameKind::Whiteout(new_object(whiteout)),
        None if how.exchange => RenameKind::Exchange,
        None => RenameKind::Replace,
    };
    tx.names(Record::Rename {
        any_case: false,
        kind,
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
    tx.note(Some(Note::Data { object: znode.object.0, generation, offset, length }));
}

/// Notes that `length` bytes from `offset` became zeros, and that the file ends behind them at least.
pub(crate) fn zeroed(tx: &LoggedTx, znode: &Znode, offset: u64, length: u64) {
    if is_nameless(&znode.state.lock().phys) {
        return tx.needs_no_record();
    }
    tx.note(Some(Note::Object(znode.object.0, Record::Truncate { object: znode.object.0, offset, length })));
}

/// Notes that attributes were set.
pub(crate) fn attributes_set(tx: &LoggedTx, znode: &Znode, change: &SetAttr) {
    let is_solaris = tx.log.as_ref().is_some_and(|log| log.is_solaris());
    let has_flags = change.flags.is_some() || change.project.is_some();
    if has_flags && is_solaris {
        // Left to the group: nobody can tell how systems of that time would read it.
        return tx.has_no_record();
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
            mask: if is_solaris { set::to_solaris(mask) } else { mask },
            mode: phys.mode,
            uid: phys.uid,
            gid: phys.gid,
            size: phys.size,
            atime: phys.atime,
            mtime: phys.mtime,
            attributes: has_flags.then(|| flags_of(phys, change)),
            domains: Vec::new(),
        }
    };
    tx.note(Some(Note::Object(znode.object.0, Record::SetAttr(Box::new(record)))));
}

/// The file flags of `phys` that can be changed, and what else of `change` has its place beside them.
fn flags_of(phys: &Phys, change: &SetAttr) -> Attributes {
    let (mut mask, mut values) = (0, 0);
    // Where files have no projects, no system has the flag.
    let has_project = phys.flags & flags::PROJID != 0;
    for (bit, flag) in CHANGEABLE.into_iter().filter(|_| change.flags.is_some()) {
        if flag == flags::PROJINHERIT && !has_project {
            continue;
        }
        mask |= bit;
        values |= if phys.flags & flag != 0 { bit } else { 0 };
    }
    let mut stamp = [0; 32];
    if change.project.is_some() && has_project {
        mask |= bits::PROJID;
        stamp[..8].copy_from_slice(&phys.project().to_le_bytes());
    }
    let mut words = vec![0; MASK_WORDS];
    words[0] = mask as u32;
    Attributes { mask: words, values, create_time: [0; 2], stamp }
}

/// The flags that can be changed from outside, as log records have them and as files do.
const CHANGEABLE: [(u64, u64); 4] = [
    (bits::IMMUTABLE, flags::IMMUTABLE),
    (bits::APPENDONLY, flags::APPENDONLY),
    (bits::NODUMP, flags::NODUMP),
    (bits::PROJINHERIT, flags::PROJINHERIT),
];

/// Notes that nothing but extended attributes, and the time of change, changed.
pub(crate) fn xattrs_changed(tx: &LoggedTx, znode: &Znode) {
    if is_nameless(&znode.state.lock().phys) {
        return tx.needs_no_record();
    }
    tx.note(None);
}

/// The change that a [`SetAttrRecord`] asks for, in a pool that only systems other than Linux wrote (`solaris`), or in
/// any.
pub(crate) fn change_of(record: &SetAttrRecord, solaris: bool) -> SetAttr {
    let mask = if solaris { set::from_solaris(record.mask) } else { set::guess(record.mask, record.size) };
    let given = |bit: u64| mask & bit != 0;
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
