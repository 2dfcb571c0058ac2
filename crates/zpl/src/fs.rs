//! A mounted file system: mounting, unmounting, and what all operations share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use platter_dmu::bytes::{Room, SpaceInfo};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::zap::name::{TO_UPPER, normalize};
use platter_ondisk::znode::{MASTER_NODE_OBJECT, ZPL_VERSION, master};
use platter_ondisk::{ObjectId, Txg};
use platter_zil::Zil;
use platter_zio::ZioError;

use crate::attr::{Attr, FileKind, StatFs, Timestamp};
use crate::cache::Cache;
use crate::error::{Result, ZplError};
use crate::known::Known;
use crate::log::LoggedTx;
use crate::options::{AtimeMode, MountOptions, XattrMode};
use crate::phys::{Fixed, Phys};
use crate::quotas::Quotas;
use crate::sa_table::SaTable;
use crate::salt::Salts;
use crate::znode::{self, Znode};
use crate::znode_legacy;
use platter_hooks::WallClock;

/// Files kept in memory when the mount does not say: each costs 2.3 KiB. The kernel keeps the attributes of all that it
/// knows itself, and to open one anew costs a fraction of a request.
const ZNODES_DEFAULT: usize = 16 << 10;
/// Access times that may wait in memory for a reason to be written.
const ATIMES_MAX: u64 = 4096;

/// How many groups after it changed a file is asked about again: those that wait, and those of the last second.
const LATELY: u64 = 4;

/// A mounted file system.
pub struct Zpl {
    pub(crate) os: Arc<Objset>,
    pub(crate) table: SaTable,
    pub(crate) cache: Cache,
    pub(crate) clock: Arc<dyn WallClock>,
    pub(crate) space: Arc<dyn SpaceInfo>,
    pub(crate) salts: Salts,
    pub(crate) names: NameRules,
    /// The intent log of a writable file system.
    pub(crate) log: Option<Arc<Zil>>,
    /// Quotas of users and groups.
    pub(crate) quotas: RwLock<Quotas>,
    root: ObjectId,
    pub(crate) known: Known,
    /// The unlinked set.
    pub(crate) unlinked: Option<ObjectId>,
    /// Held while a directory changes its parent.
    pub(crate) rename: tokio::sync::Mutex<()>,
    /// Why changes are refused; set once the log was replayed.
    read_only: OnceLock<String>,
    atime: AtomicU8,
    xattr: AtomicU8,
    /// Whether files have POSIX access control lists.
    pub(crate) posix_acl: bool,
    /// Znodes whose access time is only in memory.
    atimes: AtomicU64,
    /// The last group anything was changed in.
    changed: AtomicU64,
    /// Whether the intent log is being replayed.
    pub(crate) replaying: AtomicBool,
}

/// Which names the file system takes and how it compares them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameRules {
    pub utf8_only: bool,
    /// Flags of new directories' ZAPs (`z_norm`): a normal form, and upper case unless case makes a difference.
    pub normalization: u64,
    /// Names that differ in case are different all the same (`casesensitivity=mixed`: Linux never asks otherwise).
    pub match_case: bool,
}

impl NameRules {
    /// From the properties as stored.
    pub fn new(utf8_only: bool, normalization: u64, case_sensitivity: u64) -> Self {
        let fold = if case_sensitivity == 0 { 0 } else { TO_UPPER };
        Self { utf8_only, normalization: normalization | fold, match_case: case_sensitivity == MIXED }
    }

    /// Whether these are the same name but for case, where case makes no difference.
    pub fn differ_in_case_only(&self, a: &[u8], b: &[u8]) -> bool {
        let form = |name, flags| normalize(name, flags).map(std::borrow::Cow::into_owned);
        let same = |flags| form(a, flags).is_some_and(|a| form(b, flags).as_ref() == Some(&a));
        self.normalization & TO_UPPER != 0
            && !self.match_case
            && same(self.normalization)
            && !same(self.normalization & !TO_UPPER)
    }
}

/// `ZFS_CASE_MIXED`.
const MIXED: u64 = 2;

/// What the master node says.
pub(crate) struct Master {
    pub version: u64,
    pub root: ObjectId,
    pub unlinked: Option<ObjectId>,
    pub sa: ObjectId,
    utf8_only: bool,
    normalization: u64,
    case_sensitivity: u64,
}

impl Master {
    pub async fn read(os: &Arc<Objset>) -> platter_zio::Result<Self> {
        let zap = Zap::open(os, ObjectId(MASTER_NODE_OBJECT)).await?;
        let need = |name: &'static str, value: Option<u64>| {
            value.ok_or_else(|| ZioError::corrupt("master node", format!("it has no {name}")))
        };
        let version = need(master::VERSION, zap.get_u64(master::VERSION.as_bytes()).await?)?;
        let root = need(master::ROOT, zap.get_u64(master::ROOT.as_bytes()).await?)?;
        Ok(Self {
            version,
            root: ObjectId(root),
            unlinked: zap.get_u64(master::DELETE_QUEUE.as_bytes()).await?.map(ObjectId),
            sa: ObjectId(zap.get_u64(master::SA_ATTRS.as_bytes()).await?.unwrap_or(0)),
            utf8_only: zap.get_u64(master::UTF8ONLY.as_bytes()).await?.unwrap_or(0) != 0,
            normalization: zap.get_u64(master::NORMALIZATION.as_bytes()).await?.unwrap_or(0),
            case_sensitivity: zap.get_u64(master::CASE_SENSITIVITY.as_bytes()).await?.unwrap_or(0),
        })
    }

    /// Why this version of the format cannot be written.
    fn read_only_reason(&self) -> Option<String> {
        if self.version < znode_legacy::WRITTEN_OLDEST {
            Some(format!(
                "its files have the layout of version {}, which can be read but not written; \
                 copy the files to a new file system to change them",
                self.version
            ))
        } else {
            None
        }
    }
}

impl Zpl {
    /// Mounts the file system in `os`. A writable one first frees what was unlinked but open at the last crash.
    ///
    /// # Errors
    /// A version newer than this program, damage, unreadable blocks.
    pub async fn mount(
        os: Arc<Objset>,
        options: MountOptions,
        clock: Arc<dyn WallClock>,
        space: Arc<dyn SpaceInfo>,
    ) -> Result<Arc<Self>> {
        let master = Master::read(&os).await?;
        if master.version > ZPL_VERSION {
            return Err(ZplError::Zio(ZioError::Invalid(format!(
                "the file system has version {}, this program knows up to {ZPL_VERSION}",
                master.version
            ))));
        }
        let read_only = if options.read_only {
            Some("mounted read-only".into())
        } else if os.params().read_only {
            Some("the data set is read-only".into())
        } else {
            master.read_only_reason()
        };
        let salts = Salts::new(options.salt_seed);
        if master.version >= znode_legacy::SA_VERSION && !master.sa.is_some() {
            return Err(ZioError::corrupt("master node", "it has no attribute tables").into());
        }
        let mut table = SaTable::load(&os, master.sa).await?;
        let mut changed = Txg(0);
        if read_only.is_none() && !table.is_complete() {
            let tx = os.begin().await?;
            table.complete(&os, &tx, &salts).await?;
            changed = tx.txg();
        }
        let znodes_max = if options.znodes_max == 0 { ZNODES_DEFAULT } else { options.znodes_max };
        let zpl = Arc::new(Self {
            table,
            cache: Cache::new(znodes_max),
            clock,
            space,
            salts,
            names: NameRules::new(master.utf8_only, master.normalization, master.case_sensitivity),
            log: options.log.filter(|_| master.read_only_reason().is_none() && !os.params().read_only),
            quotas: RwLock::new(Quotas::load(&os).await?),
            root: master.root,
            known: Known::default(),
            unlinked: master.unlinked,
            rename: tokio::sync::Mutex::new(()),
            read_only: OnceLock::new(),
            atime: AtomicU8::new(options.atime as u8),
            xattr: AtomicU8::new(options.xattr as u8),
            posix_acl: options.posix_acl,
            atimes: AtomicU64::new(0),
            changed: AtomicU64::new(changed.0),
            replaying: AtomicBool::new(false),
            os,
        });
        zpl.znode(zpl.root).await?.check_directory()?;
        if read_only.is_none() {
            zpl.drain_unlinked().await?;
        }
        zpl.replay_log().await?;
        if let Some(why) = read_only {
            let _ = zpl.read_only.set(why);
        }
        if let Some(log) = &zpl.log {
            let source: Weak<Self> = Arc::downgrade(&zpl);
            log.set_source(source);
        }
        Ok(zpl)
    }

    /// Writes what is still only in memory (access times) and waits until everything is on stable storage.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn unmount(&self) -> Result<()> {
        self.sync().await
    }

    /// Waits until everything done so far is on stable storage.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn sync(&self) -> Result<()> {
        if self.read_only.get().is_none() {
            self.flush_atimes().await?;
        }
        self.wait(Txg(self.changed.load(Ordering::SeqCst))).await
    }

    /// Waits until everything done to `object` so far is on stable storage: in the intent log, or with its group.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn fsync(&self, object: ObjectId) -> Result<()> {
        if let Some(log) = &self.log {
            return Ok(log.commit(Some(object)).await?);
        }
        let changed = match self.cache.peek(object) {
            Some(znode) => znode.state.lock().changed,
            // What is not in memory has been on stable storage since it left.
            None => return Ok(()),
        };
        self.wait(changed).await
    }

    /// Waits until everything done so far is on stable storage, as [`Self::fsync`] does for one object.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn sync_all(&self) -> Result<()> {
        match &self.log {
            Some(log) => Ok(log.commit(None).await?),
            None => self.wait(Txg(self.changed.load(Ordering::SeqCst))).await,
        }
    }

    async fn wait(&self, txg: Txg) -> Result<()> {
        let gate = &self.os.params().gate;
        if txg > gate.synced_txg() {
            gate.wait_synced(txg).await?;
        }
        Ok(())
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.os
    }

    /// Files whose attributes are in memory.
    pub fn in_memory(&self) -> usize {
        self.cache.count()
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// Why changes are refused; `None` when they are not.
    pub fn read_only_reason(&self) -> Option<String> {
        self.read_only.get().cloned()
    }

    /// Changes how access times are kept (`zfs set atime=`).
    pub fn set_atime(&self, mode: AtimeMode) {
        self.atime.store(mode as u8, Ordering::Relaxed);
    }

    /// Whether each read moves an access time, so that whoever keeps contents must let all of them reach us.
    pub fn notes_every_read(&self) -> bool {
        self.atime.load(Ordering::Relaxed) == AtimeMode::Always as u8 && self.read_only.get().is_none()
    }

    /// Whether a read now of what has these attributes moves its access time.
    pub fn read_moves_atime(&self, attr: &Attr) -> bool {
        self.read_only.get().is_none() && self.is_due(attr.atime, attr.mtime.max(attr.ctime), self.now())
    }

    /// Whether a read `now` moves the access time `atime` of what was changed last at `changed`
    /// (`zfs_relatime_need_update`, `module/os/linux/zfs/zfs_vfsops.c`).
    fn is_due(&self, atime: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
        const OFF: u8 = AtimeMode::Off as u8;
        const ALWAYS: u8 = AtimeMode::Always as u8;
        match self.atime.load(Ordering::Relaxed) {
            OFF => false,
            ALWAYS => true,
            _ => atime <= changed || now.seconds.saturating_sub(atime.seconds) >= 24 * 60 * 60,
        }
    }

    /// Changes where new extended attributes go (`zfs set xattr=`).
    pub fn set_xattr_mode(&self, mode: XattrMode) {
        self.xattr.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn xattr_mode(&self) -> XattrMode {
        const OFF: u8 = XattrMode::Off as u8;
        const DIR: u8 = XattrMode::Dir as u8;
        match self.xattr.load(Ordering::Relaxed) {
            OFF => XattrMode::Off,
            DIR => XattrMode::Dir,
            _ => XattrMode::Sa,
        }
    }

    /// Whether files have POSIX access control lists.
    pub fn has_posix_acl(&self) -> bool {
        self.posix_acl
    }

    /// Sizes for `df`.
    pub fn statfs(&self) -> StatFs {
        let (available, referenced) = (self.space.available(), self.space.referenced());
        // What programs multiply with a size, they multiply with either of the two: they are the same, as in OpenZFS
        // (`zfs_statvfs`, `module/os/linux/zfs/zfs_vfsops.c`). A file system never uses no block.
        let unit = u64::from(self.os.properties().record_size);
        let (files_free, files_used) = (available / DNODE_SIZE as u64, self.os.object_count());
        StatFs {
            block_size: unit as u32,
            // What is referenced may be anything where somebody tampered with the pool.
            blocks: referenced.div_ceil(unit).saturating_add(available / unit),
            available: available / unit,
            files: files_free.saturating_add(files_used),
            files_free,
            name_max: crate::attr::NAME_MAX as u32,
            fsid: self.os.params().id.0,
        }
    }

    /// Attributes.
    ///
    /// # Errors
    /// [`ZplError::Stale`] when the object is gone; damage.
    pub async fn getattr(&self, object: ObjectId) -> Result<Attr> {
        let znode = match self.cache.peek(object) {
            Some(znode) => znode,
            // Nobody uses it. Whoever asks keeps its attributes himself, so it is not worth a place in memory.
            None => match znode::attr_at_rest(&self.os, &self.table, object) {
                Some(attr) => return Ok(self.shown(attr)),
                None => self.znode(object).await?,
            },
        };
        znode.check()?;
        Ok(self.shown(znode.attr()))
    }

    /// Attributes as they are told. What has no block size of its own yet will get blocks of the record size, or is
    /// written in parts of it (`zfs_getattr_fast`, `module/os/linux/zfs/zfs_vnops_os.c`).
    pub(crate) fn shown(&self, attr: Attr) -> Attr {
        if attr.kind == FileKind::Regular && attr.size == 0 {
            return Attr { block_size: attr.block_size.max(self.os.properties().record_size), ..attr };
        }
        attr
    }

    /// Those in memory of which somebody was told before it was known what space they take, and those that changed in
    /// the last groups, on disk already or not: it has become known just now, or will be.
    pub fn changed_lately(&self) -> Vec<ObjectId> {
        let synced = self.os.params().gate.synced_txg();
        let is_late = |znode: &Arc<Znode>| {
            let told = znode.told_unsettled.swap(false, Ordering::Relaxed);
            told || znode.state.lock().changed.0.saturating_add(LATELY) > synced.0
        };
        self.cache.all().into_iter().filter(is_late).map(|znode| znode.object).collect()
    }

    /// Counts `object` as open once more: while it is, unlinking its last name does not free it.
    ///
    /// # Errors
    /// [`ZplError::Stale`] when the object is gone; damage.
    pub async fn open(&self, object: ObjectId) -> Result<Attr> {
        let znode = self.znode(object).await?;
        {
            let mut state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            state.opens += 1;
        }
        Ok(self.shown(znode.attr()))
    }

    /// The znode of `object`.
    pub(crate) async fn znode(&self, object: ObjectId) -> Result<Arc<Znode>> {
        if let Some(znode) = self.cache.peek(object) {
            return Ok(znode);
        }
        let synced = self.os.params().gate.synced_txg();
        let load_now = || Znode::load_now(&self.os, &self.table, object);
        if let Some(znode) = self.cache.get_now(object, synced, load_now) {
            return Ok(znode);
        }
        // In a place of its own: what loading takes would be part of every request otherwise, and is moved with it.
        Box::pin(self.cache.get(object, synced, Znode::load(&self.os, &self.table, object))).await
    }

    /// Whether the changes that are made now are those of the intent log.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    /// Fails when `all`, a file's flags, have one of the `forbidding`. What is replayed was allowed once, and the flags
    /// may be older or younger than it: they are in the log with their file, names in the order of all of them.
    pub(crate) fn check_flags(&self, all: u64, forbidding: u64) -> Result<()> {
        if all & forbidding != 0 && !self.is_replaying() { Err(ZplError::NotPermitted) } else { Ok(()) }
    }

    /// Fails on a read-only file system.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.read_only.get() {
            Some(why) => Err(ZplError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let (seconds, nanoseconds) = self.clock.now();
        Timestamp { seconds: seconds as i64, nanoseconds }
    }

    /// Makes sure that `bytes` more fit, together with what waits to be written already. Near the limit it waits for
    /// that to be on disk, since only then its true size is known.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<()> {
        if self.is_replaying() {
            return Ok(());
        }
        Ok(Room { space: &*self.space, gate: &self.os.params().gate }.reserve(bytes).await?)
    }

    /// Joins the open group. Every lock the operation needs is held already.
    pub(crate) async fn begin(&self) -> Result<LoggedTx> {
        self.begin_writing(0..0, 0).await
    }

    /// As [`Self::begin`], to write these bytes of a file in blocks of `block_size` too.
    pub(crate) async fn begin_writing(&self, bytes: Range<u64>, block_size: u32) -> Result<LoggedTx> {
        // What is replayed had its room before the crash, and must not fail for want of it.
        let tx = match self.is_replaying() {
            true => self.os.begin_net_free().await?,
            false => self.os.begin_writing(bytes, block_size).await?,
        };
        self.changed.fetch_max(tx.txg().0, Ordering::SeqCst);
        Ok(LoggedTx::new(tx, self.log.clone()))
    }

    /// Joins the open group for a change that frees at least what it writes: works on a full pool.
    pub(crate) async fn begin_net_free(&self) -> Result<LoggedTx> {
        let tx = self.os.begin_net_free().await?;
        self.changed.fetch_max(tx.txg().0, Ordering::SeqCst);
        Ok(LoggedTx::new(tx, self.log.clone()))
    }

    /// Changes `znode`'s attributes within `tx`.
    pub(crate) async fn update(&self, znode: &Znode, tx: &Tx, change: impl FnOnce(&mut Phys)) -> Result<()> {
        self.forget_atime(znode);
        znode.update(&self.os, &self.table, tx, change).await
    }

    /// Changes attributes of `znode` that every object has within `tx`.
    pub(crate) async fn touch(&self, znode: &Znode, tx: &Tx, change: impl FnOnce(&mut Fixed)) -> Result<()> {
        self.forget_atime(znode);
        if znode.touch(&self.table, tx, change)? {
            return Ok(());
        }
        znode.update(&self.os, &self.table, tx, |_| {}).await
    }

    /// The access time of `znode` no longer waits to be written.
    pub(crate) fn forget_atime(&self, znode: &Znode) {
        if std::mem::take(&mut znode.state.lock().atime_dirty) {
            self.atimes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that `znode` was read. The new time stays in memory until something else is written, too many wait, or
    /// the file system is synced.
    pub(crate) async fn accessed(&self, znode: &Znode) {
        if self.read_only.get().is_some() || self.atime.load(Ordering::Relaxed) == AtimeMode::Off as u8 {
            return;
        }
        let now = self.now();
        {
            let mut state = znode.state.lock();
            let atime = Timestamp::from_words(state.phys.atime);
            let changed = Timestamp::from_words(state.phys.mtime).max(Timestamp::from_words(state.phys.ctime));
            if state.freed || !self.is_due(atime, changed, now) {
                return;
            }
            state.phys.change_fixed().atime = now.to_words();
            if std::mem::replace(&mut state.atime_dirty, true) {
                return;
            }
        }
        if self.atimes.fetch_add(1, Ordering::Relaxed) >= ATIMES_MAX
            && let Err(error) = self.flush_atimes().await
        {
            tracing::debug!(%error, "access times were not written");
        }
    }

    async fn flush_atimes(&self) -> Result<()> {
        if self.atimes.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let waiting: Vec<_> = self.cache.all().into_iter().filter(|z| z.state.lock().atime_dirty).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let tx = self.begin_net_free().await?;
        // Access times may be lost.
        tx.needs_no_record();
        for znode in waiting {
            self.touch(&znode, &tx, |_| {}).await?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Zpl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zpl").field("objset", &self.os.params().id).field("root", &self.root).finish_non_exhaustive()
    }
}
