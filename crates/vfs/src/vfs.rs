//! A file system while it is served, and what all operations share.
//!
//! Invariants:
//! - every operation passes [`Vfs::admit`] before it does anything, and [`Vfs::ended`] when it is done, whatever came
//!   of it;
//! - once [`Vfs::give_back`] has begun no operation begins, so that nothing is opened that nobody would close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use platter_ondisk::ObjectId;
use platter_zpl::{Attr, FileKind, PosixAcl, Timestamp, Zpl, ZplError, posix_acl};
use tokio::runtime::Handle as Runtime;

use crate::access::{Access, Credentials, Rights, allows};
use crate::caches::Caches;
use crate::control::{Control, ControlDirectory, is_control};
use crate::error::{Result, VfsError};
use crate::event::{Observer, Operation};
use crate::events::Events;
use crate::failures::Failures;
use crate::handle::{Handle, ObjectSetId};
use crate::opens::Opens;
use crate::reaper::Reaper;

/// How a file system is served.
pub struct ServeOptions {
    /// What the log calls it: the data set's name.
    pub name: String,
    /// The time since when it is served: that of its control directory.
    pub since: Timestamp,
    /// Who finds its control directory; snapshots have none.
    pub control: ControlDirectory,
    /// Who hears of each operation.
    pub observer: Option<Arc<dyn Observer>>,
}

/// A file system that one server serves: what is open, and all that can be done with it. Its methods are the
/// operations; those with objects take numbers that the server knows because it was told them, and
/// [remembers](Self::remember) for as long as it may use them, or that came of a [`Handle`].
pub struct Vfs {
    pub(crate) zpl: Arc<Zpl>,
    pub(crate) control: Control,
    pub(crate) opens: Opens,
    events: Events,
    reaper: Reaper,
    object_set: ObjectSetId,
    caches: OnceLock<Arc<dyn Caches>>,
    runtime: Runtime,
    /// Whether it is not served any more.
    over: AtomicBool,
}

impl Vfs {
    /// Serves `zpl`. What nobody waits for goes on on `runtime`.
    pub fn new(zpl: Arc<Zpl>, options: ServeOptions, runtime: Runtime) -> Arc<Self> {
        let failures = Failures::new(options.name, zpl.clone(), runtime.clone());
        let events = Events::new(options.observer, failures);
        let reaper = Reaper::new(zpl.clone(), events.clone());
        let control = Control::new(zpl.root(), options.since, options.control);
        let object_set = ObjectSetId(zpl.objset().params().id.0);
        let (opens, caches, over) = (Opens::default(), OnceLock::new(), AtomicBool::new(false));
        Arc::new(Self { zpl, control, opens, events, reaper, object_set, caches, runtime, over })
    }

    /// Shows its control directory so from now on.
    pub fn show_control(&self, shown: ControlDirectory) {
        self.control.show(shown);
    }

    /// Whether `name` in `parent` is the control directory's, found or not.
    pub fn is_controls_name(&self, parent: ObjectId, name: &[u8]) -> bool {
        self.control.has(parent, name)
    }

    /// The caches of the server's clients, which are told from now on of what they must forget. The first ones stay.
    pub fn set_caches(&self, caches: Arc<dyn Caches>) {
        let _ = self.caches.set(caches);
    }

    pub(crate) fn caches(&self) -> Option<&Arc<dyn Caches>> {
        self.caches.get()
    }

    /// The file system's root directory.
    pub fn root(&self) -> ObjectId {
        self.zpl.root()
    }

    /// Whether files have POSIX access lists.
    pub fn has_posix_acl(&self) -> bool {
        self.zpl.has_posix_acl()
    }

    /// Whether each read moves an access time, so that clients who keep contents must let all of them reach us.
    pub fn notes_every_read(&self) -> bool {
        self.zpl.notes_every_read()
    }

    /// The handle of the file with these attributes.
    pub fn handle(&self, attr: &Attr) -> Handle {
        Handle::new(self.object_set, attr)
    }

    /// Somebody outside knows `object` by its number from now on: until he has [forgotten](Self::forget) it as often,
    /// the object stays, with or without a name.
    pub fn remember(&self, object: ObjectId) {
        self.zpl.remember(object);
    }

    /// Takes back so many calls of [`remember`](Self::remember) for each of these. Nobody waits for what was removed
    /// and is freed by that.
    pub fn forget(&self, objects: impl Iterator<Item = (ObjectId, u64)>) {
        let orphans = objects.filter_map(|(object, times)| self.zpl.forget(object, times).then_some(object));
        self.reaper.add(orphans, &self.runtime);
    }

    /// Has clients ask anew for attributes that have become others by themselves: space that is known now that it is
    /// on disk.
    pub fn forget_settled_attributes(&self) {
        let Some(caches) = self.caches() else { return };
        for object in self.zpl.changed_lately() {
            caches.forget_attributes(object);
        }
    }

    /// Gives back all that the server, which is gone, had open or knew. Operations that come later are refused.
    pub async fn give_back(&self) {
        self.over.store(true, Ordering::SeqCst);
        // They are orphans all the same, and freed with the others.
        self.reaper.clear();
        for (object, times) in self.opens.close_all() {
            for _ in 0..times {
                let _ =
                    self.ended(Operation::GiveBack, object, self.zpl.release(object).await.map_err(Into::into), |()| 0);
            }
        }
        let _ = self.ended(Operation::GiveBack, self.root(), self.zpl.forget_all().await.map_err(Into::into), |()| 0);
        assert!(self.opens.close_all().is_empty(), "nothing is opened after the end");
    }

    /// An operation begins: fails unless the caller has the rights to `object`, or somebody has looked already.
    pub(crate) async fn admit(&self, access: Access<'_>, object: ObjectId, wanted: Rights) -> Result<()> {
        if self.over.load(Ordering::Relaxed) {
            return Err(VfsError::Over);
        }
        match access {
            Access::Checked(_) => Ok(()),
            // In a place of its own: it would be part of every operation otherwise.
            Access::Of(who) => Box::pin(self.check(who, object, wanted)).await.map(drop),
        }
    }

    /// Fails unless `who` has the rights to `object`; its attributes.
    pub(crate) async fn check(&self, who: &Credentials, object: ObjectId, wanted: Rights) -> Result<Attr> {
        let attr = self.attr_of(object).await?;
        let list = self.access_list(&attr).await?;
        if allows(who, &attr, list.as_ref(), wanted) { Ok(attr) } else { Err(VfsError::Denied) }
    }

    /// The list that decides access to the file with these attributes, where it has more to say than the mode.
    async fn access_list(&self, attr: &Attr) -> Result<Option<PosixAcl>> {
        let may_have_one = attr.kind != FileKind::Symlink && !is_control(attr.object);
        if !(may_have_one && self.zpl.has_posix_acl()) {
            return Ok(None);
        }
        match self.zpl.getxattr(attr.object, posix_acl::ACCESS).await {
            // One that nobody understands allows nothing.
            Ok(list) => PosixAcl::decode(&list).map(Some).ok_or(VfsError::Denied),
            Err(ZplError::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Attributes of an object or of what is the control directory's.
    pub(crate) async fn attr_of(&self, object: ObjectId) -> Result<Attr> {
        match self.control.attr(object) {
            Some(attr) => Ok(attr),
            None => Ok(self.zpl.getattr(object).await?),
        }
    }

    /// An operation with `object` has ended so; `bytes` says how much was transferred.
    pub(crate) fn ended<T>(
        &self,
        operation: Operation,
        object: ObjectId,
        result: Result<T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        self.events.ended(operation, object, result, bytes)
    }
}

impl std::fmt::Debug for Vfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs").field("zpl", &self.zpl).field("over", &self.over).finish_non_exhaustive()
    }
}
