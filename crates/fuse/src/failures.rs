//! The log's lines for requests that fail for want of devices or of whole data.
//!
//! Invariants: each names its file system and its file; a failure costs the request nothing but a task, and few files'
//! names are looked up at one time, since that reads too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use platter_ondisk::ObjectId;
use platter_transport::Errno;
use platter_zpl::Zpl;
use tokio::runtime::Handle;

use crate::attr::errno;

/// Names that are looked up at one time; lines that come meanwhile have the object's number alone.
const LOOKUPS_MAX: usize = 4;

/// See the module text.
#[derive(Clone)]
pub(crate) struct Failures {
    about: Arc<About>,
}

struct About {
    /// The data set's name when it was mounted.
    source: String,
    runtime: Handle,
    lookups: AtomicUsize,
}

impl Failures {
    pub fn new(source: &str, runtime: Handle) -> Self {
        Self { about: Arc::new(About { source: source.to_owned(), runtime, lookups: AtomicUsize::new(0) }) }
    }

    /// The `errno` to answer with, when `what` failed with the file `object`.
    pub fn told<T>(
        &self,
        result: platter_zpl::Result<T>,
        zpl: &Arc<Zpl>,
        object: ObjectId,
        what: &'static str,
    ) -> Result<T, Errno> {
        result.map_err(|error| {
            if error.errno() == platter_zpl::error::errno::EIO {
                self.note(zpl, object, what, error.to_string());
            }
            errno(&error)
        })
    }

    #[cold]
    fn note(&self, zpl: &Arc<Zpl>, object: ObjectId, what: &'static str, error: String) {
        let about = self.about.clone();
        if about.lookups.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
            about.lookups.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(fs = about.source, object = object.0, what, "{error}");
            return;
        }
        let (zpl, runtime) = (zpl.clone(), about.runtime.clone());
        runtime.spawn(async move {
            let file = zpl.object_path(object).await;
            about.lookups.fetch_sub(1, Ordering::Relaxed);
            let file = file.unwrap_or_else(|_| "?".to_owned());
            tracing::warn!(fs = about.source, file, object = object.0, what, "{error}");
        });
    }
}
