//! The threads that serve requests over io_uring, one set for all mounts of the process: a near and a far one for each
//! processor (see `ring`). The first mount that has rings starts them, and they stay.
//!
//! Each mount has places of its own in the queue of each processor, which the thread near that processor registers with
//! the kernel. What a place's command ends with concerns its mount only: a mount that is unmounted or torn away gives
//! up its places one after the other, and is gone with the last.
//!
//! Places may come to hold memory for their longest requests: [`Turn`]s bound how much that is for all mounts together.
//!
//! Invariant: a thread that could not be started leaves none of the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::lease::{self, Mail, News};
use crate::mailbox::Mailbox;
use crate::mount::{Gone, Mount, Serve};
use crate::ring::Ring;
use crate::seat::Seat;

/// Places of all queues of a mount together, where there are few processors.
const PLACES: usize = 64;
/// Places of one queue, whatever the number of processors; so many requests of a processor are served at once.
const PLACES_LEAST: usize = 4;
const PLACES_MOST: usize = 16;
/// Pairs of threads at most; with more processors each takes several queues.
const PAIRS_MAX: usize = 16;
/// Places of all mounts together, however much memory there is: each is two of the mappings that a process may have
/// (65 530 as the kernel comes).
const PLACES_ALL: usize = 4096;

/// The nice value of these threads, where the system allows it. A processor's requests have one thread here, and
/// several share them through `/dev/fuse`: on a busy machine, where each thread gets the same share, that one had to
/// wait for its own (a create took 1.5 to 1.9 times as long as through `/dev/fuse`, and 0.35 times with this).
const PRIORITY: i32 = -10;

/// Bytes that the places of all mounts together may come to hold.
static BYTES_MAX: AtomicUsize = AtomicUsize::new(256 << 20);
/// Places that there are, or may be.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Lets the places of all mounts together come to hold about so many bytes of requests; mounts whose places would hold
/// more are served through `/dev/fuse`.
pub fn set_ring_bytes(bytes: usize) {
    BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// The right of one mount to have rings.
#[derive(Debug)]
pub(crate) struct Turn {
    places: usize,
}

impl Turn {
    /// For a mount with places of `payload` bytes, when there is room for them.
    pub fn take(payload: usize) -> Option<Self> {
        let places = queues().iter().flatten().map(|queue| queue.depth).sum();
        let most = (BYTES_MAX.load(Ordering::Relaxed) / payload.max(1)).min(PLACES_ALL);
        let more = |taken: usize| taken.checked_add(places).filter(|&taken| taken <= most);
        TAKEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Self { places })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let before = TAKEN.fetch_sub(self.places, Ordering::SeqCst);
        debug_assert!(before >= self.places, "what is given back was taken");
    }
}

/// One more than the last number in one of the system's lists of processors, such as `0-3,8`.
fn processors(list: &str) -> u16 {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{list}")).unwrap_or_default();
    text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok()).map_or(1, |last| last + 1)
}

/// The queue of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// Its number.
    pub processor: u16,
    /// Places that each mount has there.
    depth: usize,
}

/// The queues that each pair of threads takes.
fn queues() -> Vec<Vec<Queue>> {
    let (possible, online) = (processors("possible"), processors("online"));
    let pairs = usize::from(online).clamp(1, PAIRS_MAX);
    let depth = (PLACES / usize::from(online)).clamp(PLACES_LEAST, PLACES_MOST);
    let mut queues = vec![Vec::new(); pairs];
    for processor in 0..possible {
        // What may be plugged in some day needs a place, but not more.
        let depth = if processor < online { depth } else { 1 };
        queues[usize::from(processor) % pairs].push(Queue { processor, depth });
    }
    queues
}

/// The two threads that share the places of some queues.
type Pair = lease::Pair<Mount>;

/// See the module text.
pub(crate) struct Rings {
    pairs: Vec<(Vec<Queue>, Arc<Pair>)>,
    /// Mounts so far: they take turns with whose thread looks at their `/dev/fuse`.
    mounts: AtomicUsize,
}

/// Those of this process.
static RINGS: Mutex<Option<Arc<Rings>>> = Mutex::new(None);

impl Rings {
    /// The threads of this process.
    ///
    /// # Errors
    /// What the system said to one of them.
    pub fn get() -> io::Result<Arc<Self>> {
        let mut all = RINGS.lock();
        if let Some(rings) = &*all {
            return Ok(rings.clone());
        }
        let mut pairs = Vec::new();
        let started = queues().into_iter().enumerate().try_for_each(|(index, queues)| {
            let pair = Arc::new(Pair { near: Arc::new(Mailbox::new()?), far: Arc::new(Mailbox::new()?) });
            pairs.push((queues.clone(), pair.clone()));
            start(format!("fuse-near-{index}"), pair.clone(), pair.near.clone(), queues)?;
            start(format!("fuse-far-{index}"), pair.clone(), pair.far.clone(), Vec::new())
        });
        if let Err(error) = started {
            // The kernel sends requests to each processor's queue: all of them, or none.
            pairs.iter().flat_map(|(_, pair)| [&pair.near, &pair.far]).for_each(|mailbox| mailbox.put(News::Leave));
            return Err(error);
        }
        tracing::debug!("{} threads serve mounts over io_uring", 2 * pairs.len());
        let rings = Arc::new(Self { pairs, mounts: AtomicUsize::new(0) });
        *all = Some(rings.clone());
        Ok(rings)
    }

    /// Serves a mount, whose requests have up to `payload` bytes beside their headers and `length` bytes when they come
    /// through `/dev/fuse`, until it is gone. Once it has been told that requests may come over io_uring, the kernel
    /// waits for that.
    ///
    /// # Errors
    /// What the system said.
    pub fn add(
        &self,
        connection: Arc<Connection>,
        server: Arc<dyn Serve>,
        payload: usize,
        length: usize,
        gone: Gone,
    ) -> io::Result<()> {
        connection.set_nonblocking()?;
        let watcher = &self.pairs[self.mounts.fetch_add(1, Ordering::Relaxed) % self.pairs.len()].1.near;
        let all = self.pairs.iter().flat_map(|(queues, _)| queues).map(|queue| queue.depth).sum();
        let mount = Arc::new(Mount::new(connection, server, length, watcher.clone(), all, gone));
        watcher.put(News::Watch(mount.clone()));
        for (queues, pair) in &self.pairs {
            let new = |queue: &Queue| {
                let Queue { processor, depth } = *queue;
                let mount = &mount;
                (0..depth).map(move |_| Seat::new(processor, payload, mount.clone()))
            };
            pair.near.put(News::Places(queues.iter().flat_map(new).collect()));
        }
        Ok(())
    }
}

/// Starts a thread of `pair`, the one whose mail comes to `mailbox`, and returns when it has its ring. It stays near
/// the processors of `near`, if there are any.
fn start(name: String, pair: Arc<Pair>, mailbox: Arc<Mail<Mount>>, near: Vec<Queue>) -> io::Result<()> {
    let (tell, told) = sync_channel(1);
    Builder::new().name(name).spawn(move || {
        stay_near(&near);
        set_priority(PRIORITY);
        match Ring::new(pair, mailbox) {
            Ok(ring) => {
                let _ = tell.send(Ok(()));
                ring.run();
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        }
    })?;
    told.recv().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

/// Has a thread that one of these started be like others.
pub(crate) fn leave() {
    set_priority(0);
    let all = rustix::thread::sched_getaffinity(Some(rustix::process::getpid()));
    if let Err(error) = all.and_then(|all| rustix::thread::sched_setaffinity(None, &all)) {
        tracing::debug!("letting a thread run on all processors: {error}");
    }
}

/// Gives the calling thread this nice value.
fn set_priority(nice: i32) {
    // To the kernel a thread is a process here.
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!("giving a serving thread the nice value {nice}: {error}");
    }
}

/// Binds the calling thread to the processors of these queues, as far as it may run there. Without that everything
/// works too, with more waking.
fn stay_near(queues: &[Queue]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut affinity = rustix::thread::CpuSet::new();
    let known = queues.iter().map(|queue| queue.processor.into()).filter(|&at| at < rustix::thread::CpuSet::MAX_CPU);
    known.filter(|&at| allowed.is_set(at)).for_each(|at| affinity.set(at));
    if affinity.count() > 0
        && let Err(error) = rustix::thread::sched_setaffinity(None, &affinity)
    {
        tracing::debug!("binding a serving thread to its processors: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_all_mounts_together_are_bounded() {
        let each: usize = queues().iter().flatten().map(|queue| queue.depth).sum();
        // No mount of this process has rings here.
        set_ring_bytes(each * 2 * 4096 + 4095);
        let first = Turn::take(4096).expect("room for two");
        let second = Turn::take(4096).expect("room for two");
        assert!(Turn::take(4096).is_none());
        drop(first);
        assert!(Turn::take(4096).is_some());
        drop(second);
    }
}
