//! What other threads have for one that serves a ring.
//!
//! Invariant: whatever is put in while the thread sleeps, or is about to, wakes it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use rustix::event::EventfdFlags;

/// For one thread: places of type `P` whose requests are answered, and news of type `N`.
#[derive(Debug)]
pub(crate) struct Mailbox<P, N> {
    contents: Mutex<Contents<P, N>>,
    /// Whether the thread has to be told.
    sleeps: AtomicBool,
    wake: OwnedFd,
}

/// What is in it.
#[derive(Debug)]
pub(crate) struct Contents<P, N> {
    /// Places whose requests are answered.
    pub finished: Vec<P>,
    /// Tasks that can go on.
    pub woken: Vec<usize>,
    /// What comes seldom.
    pub news: Vec<N>,
}

impl<P, N> Default for Contents<P, N> {
    fn default() -> Self {
        Self { finished: Vec::new(), woken: Vec::new(), news: Vec::new() }
    }
}

impl<P, N> Contents<P, N> {
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.woken.is_empty() && self.news.is_empty()
    }
}

impl<P, N> Mailbox<P, N> {
    /// An empty one.
    ///
    /// # Errors
    /// What the system said to another descriptor.
    pub fn new() -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { contents: Mutex::default(), sleeps: AtomicBool::new(false), wake })
    }

    /// Hands over a place with its answer.
    pub fn finish(&self, place: P) {
        self.contents.lock().finished.push(place);
        self.tell();
    }

    /// Hands over something else.
    pub fn put(&self, news: N) {
        self.contents.lock().news.push(news);
        self.tell();
    }

    /// Wakes the thread when it sleeps.
    fn tell(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It can fail only when it was told some 2^64 times already, and has not looked.
            let told = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            debug_assert_eq!(told, Ok(8), "whoever sleeps is woken");
        }
    }

    /// What is there, taken by the thread itself.
    pub fn take(&self) -> Contents<P, N> {
        std::mem::take(&mut *self.contents.lock())
    }

    /// The thread is about to sleep; it must not when this says that something is there.
    pub fn going_to_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.contents.lock().is_empty()
    }

    /// The thread is awake.
    pub fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// A descriptor that can be read, 8 bytes, when somebody has told.
    pub fn raw_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// What wakes task number `task` of the thread.
    pub fn waker(self: &Arc<Self>, task: usize) -> Waker
    where
        P: Send + 'static,
        N: Send + 'static,
    {
        Arc::new(TaskWaker { mailbox: self.clone(), task }).into()
    }
}

struct TaskWaker<P, N> {
    mailbox: Arc<Mailbox<P, N>>,
    task: usize,
}

impl<P: Send + 'static, N: Send + 'static> Wake for TaskWaker<P, N> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.contents.lock().woken.push(self.task);
        self.mailbox.tell();
    }
}
