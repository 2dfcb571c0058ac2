//! Virtual time, exact to the nanosecond.
//!
//! Invariants:
//! - time passes only when no task can run, and then only to the next thing that is due: an event of this clock or a
//!   timer of tokio, whichever comes first (tokio's timers live on a grid of whole milliseconds);
//! - events of one instant happen in the order in which they were asked for;
//! - nothing here reads the machine's clock or uses a thread: the same program gives the same times, always.
//!
//! tokio's paused clock alone is not enough: it has exact instants, but its sleeps round up to whole milliseconds, in
//! which a disk does a lot. So [`run`] hooks into the moment before tokio's scheduler parks. If an event is due before
//! the next whole millisecond, the clock is moved exactly there; if not, it is moved to that millisecond, so that
//! tokio's own timers fire in their turn and on their time. Without events tokio's automatic advance does its work.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Nanoseconds of virtual time since the simulation began.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;
/// One millisecond: the grid of tokio's timers.
pub const MILLISECOND: Nanos = 1_000_000;
/// What is further away than this is far.
const FAR: Nanos = 10 * MILLISECOND;
/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;

/// The time of day at which every simulation begins, in seconds since 1970: 2026-01-01 00:00 UTC.
pub const EPOCH_SECONDS: u64 = 1_767_225_600;

type Key = (Nanos, u64);

enum Event {
    Wake(Waker),
    Call(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Events {
    due: BTreeMap<Key, Event>,
    sequence: u64,
}

impl Events {
    fn key(&mut self, when: Nanos) -> Key {
        self.sequence += 1;
        (when, self.sequence)
    }
}

/// The clock of one simulation. Use it only within its [`run`].
pub struct SimClock {
    start: Instant,
    events: Mutex<Events>,
}

impl std::fmt::Debug for SimClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimClock").finish_non_exhaustive()
    }
}

/// Runs `work` to its end in virtual time, on this thread alone.
pub fn run<F: Future>(work: impl FnOnce(Arc<SimClock>) -> F) -> F::Output {
    let slot: Arc<OnceLock<Arc<SimClock>>> = Arc::default();
    let hook = slot.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || {
            if let Some(clock) = hook.get() {
                clock.nothing_can_run();
            }
        })
        .build()
        .expect("a runtime without threads or I/O needs nothing that could be missing");
    let output = runtime.block_on(async {
        let clock = Arc::new(SimClock { start: Instant::now(), events: Mutex::default() });
        slot.set(clock.clone()).expect("the slot is new");
        work(clock).await
    });
    if let Some(clock) = slot.get() {
        // Calls keep disks alive, and these the clock.
        let left = std::mem::take(&mut clock.events.lock().due);
        drop(left);
    }
    output
}

impl SimClock {
    /// Virtual time since the simulation began.
    pub fn now(&self) -> Nanos {
        Instant::now().duration_since(self.start).as_nanos() as Nanos
    }

    /// Waits until `when`; not at all when that has passed.
    pub async fn sleep_until(&self, when: Nanos) {
        let key = self.events.lock().key(when);
        if when > self.now() + 2 * MILLISECOND {
            // From afar by tokio's timer, so that a long sleep is no work.
            let near = Duration::from_millis(when / MILLISECOND - 1);
            tokio::time::sleep_until(self.start + near).await;
        }
        Sleep { clock: self, key, registered: false }.await;
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration.as_nanos() as Nanos).await;
    }

    /// Does `call` at `when` (at once, but not within this call, when that has passed). For what is near: the clock
    /// visits every millisecond up to it.
    pub fn at(&self, when: Nanos, call: impl FnOnce() + Send + 'static) {
        let mut events = self.events.lock();
        let key = events.key(when);
        events.due.insert(key, Event::Call(Box::new(call)));
    }

    /// As [`at`](Self::at), also for what is far: that is slept for until it is near.
    pub fn call_at(self: &Arc<Self>, when: Nanos, call: impl FnOnce() + Send + 'static) {
        if when <= self.now() + FAR {
            return self.at(when, call);
        }
        let clock = self.clone();
        tokio::spawn(async move {
            clock.sleep_until(when).await;
            call();
        });
    }

    /// Called by the scheduler when no task can run: moves time on and wakes what is due.
    fn nothing_can_run(&self) {
        let now = self.now();
        let due: Vec<Event> = {
            let mut events = self.events.lock();
            let grid = (now / MILLISECOND + 1) * MILLISECOND;
            let then = match events.due.first_key_value() {
                Some((&(first, _), _)) => first.max(now).min(grid),
                None if now.is_multiple_of(MILLISECOND) => return,
                // tokio advances in whole milliseconds: from the grid, so that its timers stay on it.
                None => grid,
            };
            assert!(now <= then && then <= grid, "time goes on, and past no timer of tokio's");
            advance(then - now);
            assert_eq!(self.now(), then, "time is exact");
            let later = events.due.split_off(&(then + 1, 0));
            debug_assert!(later.keys().all(|(when, _)| *when > then), "nothing happens before its time");
            std::mem::replace(&mut events.due, later).into_values().collect()
        };
        for event in due {
            match event {
                Event::Wake(waker) => waker.wake(),
                Event::Call(call) => call(),
            }
        }
    }
}

/// Moves tokio's clock. `advance` does that when it is first polled, and then asks the scheduler to come round again
/// before it parks: exactly what is wanted here, for timers that have become due.
fn advance(by: Nanos) {
    let advance = pin!(tokio::time::advance(Duration::from_nanos(by)));
    let _ = advance.poll(&mut Context::from_waker(Waker::noop()));
}

struct Sleep<'a> {
    clock: &'a SimClock,
    key: Key,
    registered: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock;
        let mut events = clock.events.lock();
        let over = match self.registered {
            true => !events.due.contains_key(&self.key),
            false => self.key.0 <= clock.now(),
        };
        if over {
            self.registered = false;
            return Poll::Ready(());
        }
        events.due.insert(self.key, Event::Wake(context.waker().clone()));
        self.registered = true;
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if self.registered {
            self.clock.events.lock().due.remove(&self.key);
        }
    }
}

impl platter_hooks::WallClock for SimClock {
    fn now(&self) -> (u64, u32) {
        let now = SimClock::now(self);
        (EPOCH_SECONDS + now / SECOND, (now % SECOND) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Trace = Arc<Mutex<Vec<(Nanos, String)>>>;

    /// Sleeps of all kinds side by side; what woke when.
    fn mixture() -> Vec<(Nanos, String)> {
        run(|clock| async move {
            let trace: Trace = Arc::default();
            let mut tasks = Vec::new();
            for (index, nanos) in
                [5_300, 1_000_000, 700, 2_499_999, 700, 0, 7_000_001, 3_600 * SECOND + 17].into_iter().enumerate()
            {
                let (clock, trace) = (clock.clone(), trace.clone());
                tasks.push(tokio::spawn(async move {
                    clock.sleep(Duration::from_nanos(nanos)).await;
                    trace.lock().push((clock.now(), format!("event {index}")));
                }));
            }
            for millis in [1, 2, 3, 7, 8, 3_600_000] {
                let (clock, trace) = (clock.clone(), trace.clone());
                tasks.push(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    trace.lock().push((clock.now(), format!("timer {millis}")));
                }));
            }
            let called = trace.clone();
            let at = clock.clone();
            clock.at(700, move || called.lock().push((at.now(), "call".into())));
            for task in tasks {
                task.await.expect("no panic");
            }
            trace.lock().clone()
        })
    }

    #[test]
    fn events_are_exact_and_timers_come_in_between() {
        let hour = 3_600 * SECOND;
        let want: Vec<(Nanos, &str)> = vec![
            (0, "event 5"),
            (700, "call"),
            (700, "event 2"),
            (700, "event 4"),
            (5_300, "event 0"),
            (1_000_000, "event 1"),
            (1_000_000, "timer 1"),
            (2_000_000, "timer 2"),
            (2_499_999, "event 3"),
            (3_000_000, "timer 3"),
            (7_000_000, "timer 7"),
            (7_000_001, "event 6"),
            (8_000_000, "timer 8"),
        ];
        let got = mixture();
        let (near, far) = got.split_at(want.len());
        assert_eq!(near.iter().map(|(t, s)| (*t, s.as_str())).collect::<Vec<_>>(), want);
        assert_eq!(far, [(hour, "timer 3600000".into()), (hour + 17, "event 7".into())]);
        assert_eq!(got, mixture());
    }

    #[test]
    fn equal_times_keep_their_order_however_they_were_asked_for() {
        let order = run(|clock| async move {
            let trace: Trace = Arc::default();
            let mut sleeps = Vec::new();
            for index in 0..50_u64 {
                let (clock, trace) = (clock.clone(), trace.clone());
                sleeps.push(async move {
                    clock.sleep_until(123_456).await;
                    trace.lock().push((clock.now(), index.to_string()));
                });
            }
            futures::future::join_all(sleeps).await;
            trace.lock().clone()
        });
        let want: Vec<_> = (0..50).map(|index| (123_456, index.to_string())).collect();
        assert_eq!(order, want);
    }

    #[test]
    fn a_sleep_that_is_dropped_leaves_nothing_behind_and_a_day_costs_nothing() {
        let end = run(|clock| async move {
            for _ in 0..100 {
                let sleep = clock.sleep(Duration::from_micros(900));
                assert!(tokio::time::timeout(Duration::ZERO, sleep).await.is_err());
            }
            assert!(clock.events.lock().due.is_empty());
            clock.sleep_until(86_400 * SECOND + 1).await;
            clock.now()
        });
        assert_eq!(end, 86_400 * SECOND + 1);
    }
}
