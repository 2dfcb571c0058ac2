//! The requests that a thread is busy with.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::lease::Mail;
use crate::mount::{Mount, Task};

/// Those of one thread, by numbers that are used again. A number that is woken though its task has ended does no harm.
pub(crate) struct Tasks {
    mailbox: Arc<Mail<Mount>>,
    /// Each with the runtime that it belongs to.
    slots: Vec<(Option<(Task, Handle)>, Waker)>,
    free: Vec<usize>,
}

impl Tasks {
    /// None yet; they are woken through `mailbox`.
    pub fn new(mailbox: Arc<Mail<Mount>>) -> Self {
        Self { mailbox, slots: Vec::new(), free: Vec::new() }
    }

    /// Whether all have ended.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Takes the first steps of `task`, in the context of `runtime`: most need no more.
    pub fn start(&mut self, task: Task, runtime: &Handle) {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.slots.len();
            self.slots.push((None, self.mailbox.waker(number)));
            number
        });
        self.slots[number].0 = Some((task, runtime.clone()));
        self.go_on(number);
    }

    /// Goes on with a task that was woken.
    pub fn go_on(&mut self, number: usize) {
        let Some((slot, waker)) = self.slots.get_mut(number) else { return };
        let Some((task, runtime)) = slot else { return };
        let runtime = runtime.clone();
        let _entered = runtime.enter();
        let mut context = Context::from_waker(waker);
        // A panic would take the thread along, and with it all requests of a processor.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
        if polled.is_err() {
            tracing::error!("a request panicked; this is a bug");
        }
        if !matches!(polled, Ok(Poll::Pending)) {
            *slot = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::mailbox::Mailbox;

    #[test]
    fn tasks_go_on_when_woken_and_a_panic_is_the_end_of_one_only() {
        let mailbox = Arc::new(Mailbox::new().expect("a descriptor"));
        let mut tasks = Tasks::new(mailbox.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let done = Arc::new(AtomicUsize::new(0));
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let count = done.clone();
        let first = Box::pin(async move {
            told.await.expect("told");
            count.fetch_add(1, Ordering::SeqCst);
            assert!(Handle::try_current().is_ok(), "in no runtime's context");
        });
        tasks.start(first, runtime.handle());
        tasks.start(Box::pin(async { panic!("as the test wants") }), runtime.handle());
        assert!(Handle::try_current().is_err() && !tasks.is_empty() && !mailbox.going_to_sleep());
        tell.send(()).expect("somebody waits");
        assert!(mailbox.going_to_sleep());
        for number in mailbox.take().woken {
            tasks.go_on(number);
        }
        assert!(tasks.is_empty());
        assert_eq!(done.load(Ordering::SeqCst), 1);
        // A late wake is of no consequence.
        tasks.go_on(0);
        tasks.go_on(9);
    }
}
