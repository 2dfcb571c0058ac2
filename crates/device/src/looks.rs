//! Looks at paths that may lead to somebody else's server, which answers when it likes.
//!
//! Invariant: at most one thread waits at a path, however many ask and however often.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::path_kind::PathKind;

/// What a look at a path showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the path leads to.
    pub kind: PathKind,
    /// The one path behind all names of a device; `None` when it leads nowhere.
    pub real: Option<PathBuf>,
    /// Tells it from what may be there at another time; `None` when nothing is there.
    pub stamp: Option<Stamp>,
}

/// What tells the things that are at a path one after the other apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// File system, inode, and device number.
    identity: [u64; 3],
    /// When a file was last written, seconds and nanoseconds: its contents may have been exchanged.
    written: [i64; 2],
}

impl Stamp {
    /// Of a file or device.
    pub fn of(data: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let written = if data.is_file() { [data.mtime(), data.mtime_nsec()] } else { [0; 2] };
        Self { identity: [data.dev(), data.ino(), data.rdev()], written }
    }

    /// Of something that has a number of its own.
    pub fn of_number(number: u64) -> Self {
        Self { identity: [0, number, 0], written: [0; 2] }
    }
}

/// The looks that are under way, each with the place where its end is told.
type Pending = Arc<Mutex<BTreeMap<PathBuf, watch::Receiver<Option<Seen>>>>>;

/// Looks that share their threads; see the module's text.
#[derive(Clone, Debug, Default)]
pub struct Looks(Pending);

impl Looks {
    /// Looks at a path from a thread that may wait. Who does not want to wait for ever gives up waiting.
    pub async fn at(&self, path: &Path, look: fn(&Path) -> Seen) -> Seen {
        loop {
            let earlier = self.0.lock().get(path).cloned();
            // What a look found that began earlier may be different by now: it is only waited for.
            if let Some(mut earlier) = earlier {
                if earlier.wait_for(Option::is_some).await.is_err() {
                    self.0.lock().remove(path);
                }
                continue;
            }
            let Some(mut own) = self.begin(path, look) else { continue };
            return match own.wait_for(Option::is_some).await {
                Ok(seen) => seen.clone().expect("it was waited for"),
                // The program ends.
                Err(_) => Seen { kind: PathKind::Missing("nobody looked".into()), real: None, stamp: None },
            };
        }
    }

    /// Begins a look, unless somebody else just has.
    fn begin(&self, path: &Path, look: fn(&Path) -> Seen) -> Option<watch::Receiver<Option<Seen>>> {
        let (tell, told) = watch::channel(None);
        {
            let mut pending = self.0.lock();
            if pending.contains_key(path) {
                return None;
            }
            pending.insert(path.to_owned(), told.clone());
        }
        let (pending, path) = (self.0.clone(), path.to_owned());
        tokio::task::spawn_blocking(move || {
            let seen = look(&path);
            let is_known = pending.lock().remove(&path).is_some();
            debug_assert!(is_known, "one look at a time");
            tell.send_replace(Some(seen));
        });
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static ANSWERS: AtomicUsize = AtomicUsize::new(0);

    fn slow(path: &Path) -> Seen {
        WAITING.fetch_add(1, Ordering::SeqCst);
        while ANSWERS.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        WAITING.fetch_sub(1, Ordering::SeqCst);
        Seen { kind: PathKind::Folder, real: Some(path.to_owned()), stamp: None }
    }

    #[tokio::test]
    async fn one_thread_waits_at_a_path_however_many_ask() {
        let looks = Looks::default();
        let path = Path::new("/away");
        for _ in 0..20 {
            let asked = tokio::time::timeout(Duration::from_millis(10), looks.at(path, slow)).await;
            assert!(asked.is_err(), "it does not answer");
        }
        assert_eq!(WAITING.load(Ordering::SeqCst), 1);
        ANSWERS.store(1, Ordering::SeqCst);
        assert_eq!(looks.at(path, slow).await.real.as_deref(), Some(path));
        assert!(looks.0.lock().is_empty());
    }
}
