//! An open volume: its size, and what all operations share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use platter_dmu::bytes::{ByteRange, RangeLock, Room, Run, SpaceInfo, Streams};
use platter_dmu::zap::Zap;
use platter_dmu::{Dnode, Objset, Tx};
use platter_ondisk::zvol::{DATA_OBJECT, PROPERTIES_OBJECT, SIZE};
use platter_ondisk::{ObjectId, ObjectType, ObjsetType, Txg};
use platter_zil::{SyncMode, Zil};
use platter_zio::ZioError;

use crate::error::{Result, VolumeError};

/// The object that has a volume's bytes.
pub(crate) const DATA: ObjectId = ObjectId(DATA_OBJECT);

/// What to look for with [`Volume::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// A block that is there.
    Data,
    /// A block that is not.
    Hole,
}

/// How a volume is opened.
pub struct OpenOptions {
    /// Changes are refused.
    pub read_only: bool,
    /// The intent log; without one `fsync` waits for a transaction group.
    pub log: Option<Arc<Zil>>,
    /// What room there is.
    pub space: Arc<dyn SpaceInfo>,
}

/// See the module text.
pub struct Volume {
    pub(crate) os: Arc<Objset>,
    pub(crate) dnode: Arc<Dnode>,
    pub(crate) log: Option<Arc<Zil>>,
    space: Arc<dyn SpaceInfo>,
    /// Bytes.
    size: AtomicU64,
    pub(crate) ranges: RangeLock,
    streams: Mutex<Streams>,
    pub(crate) run: Mutex<Run>,
    read_only: AtomicBool,
    /// The last group anything was changed in.
    changed: AtomicU64,
    /// Whether the intent log is being replayed.
    pub(crate) replaying: AtomicBool,
}

impl Volume {
    /// Opens the volume that is in `os`, and does again what a crash left in its log.
    ///
    /// # Errors
    /// It is no volume; damage, unreadable blocks; a record that cannot be done again.
    pub async fn open(os: Arc<Objset>, options: OpenOptions) -> Result<Arc<Self>> {
        let wrong = |what: String| VolumeError::Zio(ZioError::corrupt("volume", what));
        if os.kind() != ObjsetType::ZVOL {
            return Err(wrong(format!("object set {} is something else", os.params().id)));
        }
        let properties = Zap::open(&os, ObjectId(PROPERTIES_OBJECT)).await?;
        let size = properties.get_u64(SIZE.as_bytes()).await?.ok_or_else(|| wrong("it has no size".into()))?;
        let dnode = os.dnode(DATA).await?;
        if dnode.info().object_type != ObjectType::ZVOL {
            return Err(wrong(format!("object {DATA} is something else")));
        }
        let is_fixed = os.params().read_only;
        let volume = Arc::new(Self {
            dnode,
            log: options.log.filter(|_| !is_fixed),
            space: options.space,
            size: AtomicU64::new(size),
            ranges: RangeLock::default(),
            streams: Mutex::default(),
            run: Mutex::default(),
            read_only: AtomicBool::new(options.read_only || is_fixed),
            changed: AtomicU64::new(0),
            replaying: AtomicBool::new(false),
            os,
        });
        volume.replay_log().await?;
        if let Some(log) = &volume.log {
            let source: Weak<Self> = Arc::downgrade(&volume);
            log.set_source(source);
        }
        Ok(volume)
    }

    /// Bytes that it has.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.dnode.block_size()
    }

    /// Bytes that its contents take on disk.
    pub fn used_bytes(&self) -> u64 {
        self.dnode.info().used
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Follows property `readonly`; a snapshot stays as it is.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only || self.os.params().read_only, Ordering::Relaxed);
    }

    /// It has so many bytes from now on. What was being read or written behind that is over when this returns; what is
    /// there is freed by whoever changes the size.
    pub async fn set_size(&self, size: u64) {
        let before = self.size.swap(size, Ordering::SeqCst);
        if size < before {
            drop(self.ranges.lock(size, u64::MAX, true).await);
        }
    }

    /// Makes everything that was written so far stable: in the intent log, or with its group.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn fsync(&self) -> Result<()> {
        if let Some(log) = &self.log {
            return Ok(log.commit(Some(DATA)).await?);
        }
        let (gate, changed) = (&self.os.params().gate, Txg(self.changed.load(Ordering::SeqCst)));
        if changed > gate.synced_txg() {
            gate.wait_synced(changed).await?;
        }
        Ok(())
    }

    /// Whether nothing may be answered before it is stable (`sync=always`): whoever changed something asks for that
    /// with [`fsync`](Self::fsync).
    pub fn must_settle(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.mode() == SyncMode::Always)
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        // What is in the log was allowed once.
        if self.is_read_only() && !self.is_replaying() { Err(VolumeError::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn bytes(&self) -> ByteRange<'_> {
        ByteRange { dnode: &self.dnode, streams: &self.streams }
    }

    /// Makes sure that `bytes` more fit.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<()> {
        // What is replayed had its room before the crash.
        if self.is_replaying() {
            return Ok(());
        }
        Ok(Room { space: &*self.space, gate: &self.os.params().gate }.reserve(bytes).await?)
    }

    /// Joins the open group to write these bytes. Every lock that is needed is held already.
    pub(crate) async fn begin(&self, bytes: Range<u64>) -> Result<Tx> {
        let tx = match self.is_replaying() || bytes.is_empty() {
            true => self.os.begin_net_free().await?,
            false => self.os.begin_writing(bytes, self.block_size()).await?,
        };
        self.changed.fetch_max(tx.txg().0, Ordering::SeqCst);
        Ok(tx)
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("objset", &self.os.params().id).field("size", &self.size).finish_non_exhaustive()
    }
}
