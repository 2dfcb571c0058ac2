//! A file system on blocks in memory, with its sync loop, as one server serves it.
#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../../../zpl/tests/suite/common/mod.rs"]
mod pool;

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_ondisk::ObjectId;
use platter_vfs::{
    Access, Attr, Caches, Caching, ControlDirectory, Credentials, Event, NewFile, Observer, Opening, Operation,
    ServeOptions, SetAttr, Timestamp, Vfs,
};
use platter_zpl::{MountOptions, Zpl};

pub use pool::TestPool;

/// All that a file holds.
pub async fn contents_of(zpl: &Zpl, object: ObjectId) -> Vec<u8> {
    pool::read_all(zpl, object).await
}

pub const READ_ONLY: Opening = Opening { reads: true, writes: false, appends: false, direct: false };
pub const WRITE_ONLY: Opening = Opening { reads: false, writes: true, appends: false, direct: false };
pub const READ_WRITE: Opening = Opening { reads: true, writes: true, appends: false, direct: false };

/// An operation that has ended: what, with which object, how many bytes, and why it failed.
pub type Seen = (Operation, ObjectId, u64, Option<String>);

/// What an observer and caches were told, in order.
#[derive(Default)]
pub struct Told {
    pub events: Mutex<Vec<Seen>>,
    pub attributes: Mutex<Vec<ObjectId>>,
    pub contents: Mutex<Vec<(ObjectId, Range<u64>)>>,
}

impl Told {
    /// The events since the last time.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.events.lock())
    }
}

/// The caches of a client that maps files which are open past them, as a kernel does.
pub struct Mapping(pub Arc<Told>);

impl Observer for Mapping {
    fn ended(&self, event: &Event<'_>) {
        let why = event.outcome.err().map(ToString::to_string);
        self.0.events.lock().push((event.operation, event.object, event.bytes, why));
    }
}

impl Caches for Mapping {
    fn can_be_passed(&self) -> bool {
        true
    }

    fn forget_attributes(&self, object: ObjectId) {
        self.0.attributes.lock().push(object);
    }

    fn forget_contents(&self, object: ObjectId, bytes: Range<u64>) {
        self.0.contents.lock().push((object, bytes));
    }
}

pub struct Served {
    pub pool: Arc<TestPool>,
    pub zpl: Arc<Zpl>,
    pub vfs: Arc<Vfs>,
    pub told: Arc<Told>,
}

/// A new file system, whose root directory anybody may change.
pub async fn served() -> Served {
    let pool = TestPool::new(pool::properties()).await;
    let zpl = pool.mount_with(MountOptions { salt_seed: 2, posix_acl: true, ..MountOptions::default() }).await;
    let anybody = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    zpl.setattr(zpl.root(), anybody).await.unwrap();
    let (vfs, told) = serve(&zpl);
    Served { pool, zpl, vfs, told }
}

/// Serves it once more.
pub fn serve(zpl: &Arc<Zpl>) -> (Arc<Vfs>, Arc<Told>) {
    let told = Arc::new(Told::default());
    let since = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let options = ServeOptions {
        name: "tank".into(),
        since,
        control: ControlDirectory::Hidden,
        observer: Some(Arc::new(Mapping(told.clone()))),
    };
    let vfs = Vfs::new(zpl.clone(), options, tokio::runtime::Handle::current());
    vfs.set_caches(Arc::new(Mapping(told.clone())));
    (vfs, told)
}

pub fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new() }
}

pub const ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new() };

/// Somebody else has checked.
pub const CHECKED: Access<'static> = Access::Checked(&ROOT);

pub fn new(who: &Credentials, mode: u32) -> NewFile {
    NewFile { mode, uid: who.uid, gid: who.gid, ..NewFile::default() }
}

impl Served {
    /// A file of `who`'s with this text, which is closed.
    pub async fn file(&self, who: &Credentials, name: &[u8], mode: u32, text: &[u8]) -> Attr {
        let (attr, how) = self.create(who, name, mode).await;
        let writing = platter_vfs::Writing::default();
        let written = self.vfs.write(CHECKED, attr.object, 0, text, writing).await.unwrap();
        assert!(written.is_settled());
        self.close(attr.object, READ_WRITE, how).await;
        self.vfs.getattr(CHECKED, attr.object).await.unwrap()
    }

    /// A new file of `who`'s, open to read and write.
    pub async fn create(&self, who: &Credentials, name: &[u8], mode: u32) -> (Attr, Caching) {
        self.vfs.create(CHECKED, self.vfs.root(), name, new(who, mode), READ_WRITE).await.unwrap()
    }

    pub async fn close(&self, object: ObjectId, opening: Opening, how: Caching) {
        let closed = self.vfs.close(object, opening, how.is_past()).unwrap();
        self.vfs.released(closed).await;
    }
}
