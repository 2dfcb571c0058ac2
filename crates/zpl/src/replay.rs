//! Doing again what a crash left in the intent log (`module/zfs/zfs_replay.c`, `zil_replay`).
//!
//! Invariants:
//! - each record is done exactly once: the number of the last one done is stored in the group of its effect;
//! - objects get the numbers they had, since later records name them by number;
//! - a record that cannot be done keeps the file system from being mounted for writing. Nothing of the log is thrown
//!   away then.

use std::sync::atomic::Ordering;

use platter_hooks::Canary;
use platter_ondisk::ObjectId;
use platter_ondisk::zil::attributes::Attributes;
use platter_ondisk::zil::record::{Create, LoggedAcl, Made, Record, RecordHeader, RenameKind, Write, WriteData};
use platter_zil::Zil;
use platter_zio::ZioError;

use crate::acl::Acl;
use crate::attr::{Fallocate, FileKind, NewFile, RenameFlags, SetAttr};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log::change_of;
use crate::new_object::{New, Replayed, flags_with};

/// A record that this version cannot do.
fn unsupported(what: &str) -> ZplError {
    ZplError::Zio(ZioError::Invalid(format!("{what}, which this version cannot replay")))
}

impl Zpl {
    /// Replays the claimed log, if there is one, and destroys it.
    ///
    /// # Errors
    /// A record that cannot be done, damage, unreadable blocks.
    pub(crate) async fn replay_log(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        if log.needs_replay() {
            let gate = &self.os.params().gate;
            // What the unlinked set held must be gone before its numbers can be used again.
            gate.wait_synced(gate.open_txg()).await?;
            self.replaying.store(true, Ordering::Relaxed);
            if Canary::ReplayedTwice.sings() {
                self.replay_chain(log).await?;
            }
            let done = self.replay_chain(log).await;
            self.replaying.store(false, Ordering::Relaxed);
            log.set_replaying(0);
            let records = done?;
            tracing::info!(objset = %self.os.params().id, records, "intent log replayed");
        }
        Ok(log.destroy_claimed().await?)
    }

    async fn replay_chain(&self, log: &Zil) -> Result<u64> {
        let (mut records, mut done) = (log.replay(), 0);
        while let Some((of, record)) = records.next().await? {
            assert!(self.replaying.load(Ordering::Relaxed), "a record that is done again would be logged again");
            self.replay_record(log, of, &record).await?;
            done += 1;
        }
        Ok(done)
    }

    async fn replay_record(&self, log: &Zil, of: RecordHeader, record: &Record) -> Result<()> {
        if self.apply(log, record).await.is_ok() {
            return Ok(());
        }
        // A number that was freed by an earlier record is free only when that is on disk.
        let gate = &self.os.params().gate;
        gate.wait_synced(gate.open_txg()).await?;
        self.apply(log, record).await.map_err(|error| {
            ZplError::Zio(ZioError::Invalid(format!(
                "record {} ({}) of its intent log: {error}\nImport the pool with \"-o readonly=on\" to read the state \
                 before the log, or on an OpenZFS system to have it replayed there",
                of.sequence,
                record.type_name()
            )))
        })
    }

    async fn apply(&self, log: &Zil, record: &Record) -> Result<()> {
        match record {
            Record::Create(create) => self.replay_create(create).await,
            Record::Remove { directory: true, parent, name, .. } => self.rmdir(ObjectId(*parent), name).await,
            Record::Remove { directory: false, parent, name, .. } => self.unlink(ObjectId(*parent), name).await,
            Record::Link { parent, object, name, .. } => {
                self.link(ObjectId(*object), ObjectId(*parent), name).await.map(|_| ())
            }
            Record::Rename { kind, from, to, name, new_name, .. } => {
                let (flags, whiteout) = match kind {
                    RenameKind::Replace => (RenameFlags::default(), None),
                    RenameKind::Exchange => (RenameFlags { exchange: true, ..RenameFlags::default() }, None),
                    RenameKind::Whiteout(new) => (RenameFlags { whiteout: true, ..RenameFlags::default() }, Some(new)),
                };
                self.move_entry(ObjectId(*from), name, ObjectId(*to), new_name, flags, whiteout).await
            }
            // These may come after the removal of their object: then they concern nobody.
            Record::Write(write) => gone_is_fine(self.replay_write(log, write).await),
            Record::Grow { object, offset, length } => {
                gone_is_fine(self.replay_grow(ObjectId(*object), offset.saturating_add(*length)).await)
            }
            Record::Truncate { object, offset, length } => {
                gone_is_fine(self.replay_truncate(ObjectId(*object), *offset, *length).await)
            }
            Record::SetAttr(change) => {
                let object = ObjectId(change.object);
                if !change.domains.is_empty() {
                    return Err(unsupported("an owner comes from a Windows domain"));
                }
                let flags = match &change.attributes {
                    Some(given) => self.getattr(object).await.map(|attr| Some(flags_with(attr.flags, given))),
                    None => Ok(None),
                };
                let project = change.attributes.as_ref().and_then(Attributes::project);
                let change = match flags {
                    Ok(flags) => SetAttr { flags, project, ..change_of(change, log.is_solaris()) },
                    Err(error) => return gone_is_fine(Err(error)),
                };
                gone_is_fine(self.setattr(object, change).await.map(|_| ()))
            }
            Record::OldAcl { object, entries } => {
                let acl = Acl::from_old_entries(entries, usize::MAX);
                gone_is_fine(self.replay_acl(ObjectId(*object), acl, 0).await)
            }
            Record::Acl { object, acl } => {
                let list = logged_acl(acl)?;
                gone_is_fine(self.replay_acl(ObjectId(*object), list, acl.flags).await)
            }
            Record::SetXattr { object, name, value } => {
                let value = Some(&value[..]).filter(|value| !value.is_empty());
                gone_is_fine(self.replay_xattr(ObjectId(*object), name, value).await)
            }
            Record::Clone { .. } => Err(unsupported("blocks were cloned")),
        }
    }

    async fn replay_create(&self, create: &Create) -> Result<()> {
        let acl = create.acl.as_ref().map(|acl| Ok::<_, ZplError>((logged_acl(acl)?, acl.flags))).transpose()?;
        if !create.domains.is_empty() {
            return Err(unsupported("an owner comes from a Windows domain"));
        }
        let new = &create.new;
        let (kind, target) = match &create.made {
            Made::Directory => (FileKind::Directory, None),
            Made::Symlink(target) => (FileKind::Symlink, Some(&target[..])),
            Made::File => {
                let kind = FileKind::from_mode(new.mode).filter(|kind| *kind != FileKind::Directory);
                (kind.ok_or(ZplError::Invalid("no file has this mode"))?, None)
            }
            Made::XattrDirectory => return self.replay_xattr_directory(ObjectId(create.parent), new).await,
        };
        let file = NewFile {
            mode: (new.mode & 0o7777) as u32,
            uid: new.uid as u32,
            gid: new.gid as u32,
            ..NewFile::default()
        };
        // All in one transaction, so that it happened wholly or not at all.
        let replayed = Replayed { object: new, flags: create.attributes.as_ref(), acl };
        let what = New { kind, rdev: 0, target, replayed: Some(replayed) };
        let made = self.make_entry(ObjectId(create.parent), &create.name, file, what).await?;
        assert_eq!(made.object.0, new.object, "later records would change another file");
        Ok(())
    }

    async fn replay_write(&self, log: &Zil, write: &Write) -> Result<()> {
        let object = ObjectId(write.object);
        match &write.data {
            WriteData::Inline(data) => {
                let written = self.write(object, write.offset, data, false).await?;
                if written == data.len() { Ok(()) } else { Err(ZplError::Zio(ZioError::NoSpace)) }
            }
            WriteData::Block(bp) => {
                let (offset, data) = log.written_block(write, bp).await?;
                self.replay_block(object, offset, &data, write.offset.saturating_add(write.length)).await
            }
        }
    }

    async fn replay_acl(&self, object: ObjectId, acl: Acl, wide: u64) -> Result<()> {
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        let tx = self.begin().await?;
        let now = self.now().to_words();
        self.update(&znode, &tx, |phys| {
            phys.set_acl(acl, wide);
            phys.ctime = now;
        })
        .await
    }

    async fn replay_grow(&self, object: ObjectId, end: u64) -> Result<()> {
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        let tx = self.begin().await?;
        self.touch(&znode, &tx, |phys| phys.size = phys.size.max(end)).await
    }

    async fn replay_truncate(&self, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        let size = self.getattr(object).await?.size;
        let end = offset.saturating_add(length);
        if length == 0 || offset > size {
            let size = if length == 0 { offset } else { end };
            return self.setattr(object, SetAttr { size: Some(size), ..SetAttr::default() }).await.map(|_| ());
        }
        self.fallocate(object, Fallocate::ZeroRange { keep_size: false }, offset, length).await
    }
}

/// A list as it is stored.
fn logged_acl(acl: &LoggedAcl) -> Result<Acl> {
    if !acl.owners.is_empty() || !acl.domains.is_empty() {
        return Err(unsupported("an access control list names owners from a Windows domain"));
    }
    let count = usize::try_from(acl.count).unwrap_or(usize::MAX);
    Ok(Acl::from_old_entries(&acl.entries, count))
}

fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(ZplError::Stale) => Ok(()),
        other => other,
    }
}
