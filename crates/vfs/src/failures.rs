//! The log's lines for operations that fail for want of devices or of whole data.
//!
//! Invariants: each names its file system and its file; a failure costs the operation nothing but a task, and few
//! files' names are looked up at one time, since that reads too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use platter_ondisk::ObjectId;
use platter_zpl::Zpl;
use tokio::runtime::Handle;

use crate::error::VfsError;
use crate::event::Operation;

/// Names that are looked up at one time; lines that come meanwhile have the object's number alone.
const LOOKUPS_MAX: usize = 4;

/// See the module text.
#[derive(Clone)]
pub(crate) struct Failures {
    about: Arc<About>,
}

struct About {
    /// The data set's name when it began to be served.
    name: String,
    zpl: Arc<Zpl>,
    runtime: Handle,
    lookups: AtomicUsize,
}

impl Failures {
    pub fn new(name: String, zpl: Arc<Zpl>, runtime: Handle) -> Self {
        Self { about: Arc::new(About { name, zpl, runtime, lookups: AtomicUsize::new(0) }) }
    }

    /// An operation with `object` has failed.
    #[cold]
    pub fn note(&self, operation: Operation, object: ObjectId, error: &VfsError) {
        if !error.is_loss() {
            return;
        }
        let (about, what, error) = (self.about.clone(), operation.name(), error.to_string());
        if about.lookups.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
            about.done();
            tracing::warn!(fs = about.name, object = object.0, what, "{error}");
            return;
        }
        self.about.runtime.spawn(async move {
            let file = about.zpl.object_path(object).await;
            about.done();
            let file = file.unwrap_or_else(|_| "?".to_owned());
            tracing::warn!(fs = about.name, file, object = object.0, what, "{error}");
        });
    }
}

impl About {
    /// A look-up has ended, or does not begin.
    fn done(&self) {
        let before = self.lookups.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each look-up ends once");
    }
}
