//! What becomes of a pool's I/O when no device can do it: property `failmode` (`zio_suspend` and `zio_resume`,
//! `module/zfs/zio.c`).
//!
//! Invariants:
//! - I/O that is held fails only when the pool is stopped for good; else it is tried again after
//!   [`resume`](Suspension::resume);
//! - a stopped pool stays stopped;
//! - I/O that failed before a resumption does not suspend the pool again: it is tried first.

use std::sync::Mutex;

use platter_hooks::{Follower, Watch};

/// Property `failmode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// Everything waits.
    #[default]
    Wait,
    /// Writers are refused; reads are answered by what devices are left; what was accepted before waits.
    Continue,
    /// The pool stops for good, as the machine would in OpenZFS.
    Panic,
}

impl FailMode {
    /// From the property's word.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "wait" => Some(Self::Wait),
            "continue" => Some(Self::Continue),
            "panic" => Some(Self::Panic),
            _ => None,
        }
    }
}

/// Whether I/O goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does.
    Running,
    /// It waits until someone resumes it.
    Suspended {
        /// The property when it happened.
        mode: FailMode,
        /// What failed.
        reason: String,
    },
    /// Nothing more is tried.
    Stopped(String),
}

#[derive(Debug, Default)]
struct Inner {
    /// `None` until the pool is open: then a failure is a failure.
    mode: Option<FailMode>,
    resumptions: u64,
}

/// Shared by everything that does a pool's I/O.
#[derive(Debug)]
pub struct Suspension {
    inner: Mutex<Inner>,
    phase: Watch<Phase>,
}

impl Default for Suspension {
    fn default() -> Self {
        Self { inner: Mutex::default(), phase: Watch::new(Phase::Running) }
    }
}

impl Suspension {
    /// Follows property `failmode`. Before the first call nothing is ever held.
    pub fn set_mode(&self, mode: FailMode) {
        self.inner.lock().expect("suspension").mode = Some(mode);
    }

    /// The property, once the pool is open.
    pub fn mode(&self) -> Option<FailMode> {
        self.inner.lock().expect("suspension").mode
    }

    /// How often the pool was resumed; to be asked before each attempt that may be held.
    pub fn resumptions(&self) -> u64 {
        self.inner.lock().expect("suspension").resumptions
    }

    /// What holds now.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// To wait for changes.
    pub fn follow(&self) -> Follower<Phase> {
        self.phase.follow()
    }

    /// Whether I/O waits.
    pub fn is_suspended(&self) -> bool {
        self.phase.with(|phase| matches!(phase, Phase::Suspended { .. }))
    }

    /// An attempt that began after `resumptions` resumptions failed on every device that could do it. Suspends the pool
    /// and waits; `true` when it shall be tried again, `false` when it has failed for good.
    pub async fn hold(&self, resumptions: u64, reason: &str) -> bool {
        {
            let inner = self.inner.lock().expect("suspension");
            let Some(mode) = inner.mode else { return false };
            debug_assert!(resumptions <= inner.resumptions, "what is held was tried before now");
            if inner.resumptions != resumptions {
                return self.phase.with(|phase| !matches!(phase, Phase::Stopped(_)));
            }
            self.turn(|phase| match (phase, mode) {
                (Phase::Running, FailMode::Panic) => Some(Phase::Stopped(reason.to_owned())),
                (Phase::Running, mode) => Some(Phase::Suspended { mode, reason: reason.to_owned() }),
                _ => None,
            });
        }
        self.resumed().await == Phase::Running
    }

    /// Lets everything that waits be tried again (`zpool clear`). Returns whether the pool was suspended.
    pub fn resume(&self) -> bool {
        let mut inner = self.inner.lock().expect("suspension");
        let resumed = self.turn(|phase| matches!(phase, Phase::Suspended { .. }).then_some(Phase::Running));
        inner.resumptions += u64::from(resumed);
        resumed
    }

    /// Everything that waits fails, and nothing is held from now on.
    pub fn stop(&self, reason: &str) {
        self.turn(|phase| (!matches!(phase, Phase::Stopped(_))).then(|| Phase::Stopped(reason.to_owned())));
    }

    /// Changes the phase to what `next` says, if it says something; returns whether it did.
    fn turn(&self, next: impl FnOnce(&Phase) -> Option<Phase>) -> bool {
        self.phase.set_if(|phase| {
            let Some(next) = next(phase) else { return false };
            assert!(!matches!(phase, Phase::Stopped(_)), "a stopped pool stays stopped");
            *phase = next;
            true
        })
    }

    /// Waits until I/O does not go on (any more).
    pub async fn halted(&self) {
        self.phase.wait_for(|phase| *phase != Phase::Running).await;
    }

    /// Waits until the pool is suspended.
    pub async fn suspended(&self) {
        self.phase.wait_for(|phase| matches!(phase, Phase::Suspended { .. })).await;
    }

    /// Waits until the pool is not suspended (any more), and tells what holds then.
    pub async fn resumed(&self) -> Phase {
        self.phase.wait_for(|phase| !matches!(phase, Phase::Suspended { .. })).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn armed(mode: FailMode) -> Arc<Suspension> {
        let suspension = Arc::new(Suspension::default());
        suspension.set_mode(mode);
        suspension
    }

    #[tokio::test]
    async fn nothing_is_held_before_the_pool_is_open() {
        let suspension = Suspension::default();
        assert!(!suspension.hold(0, "no device").await);
        assert_eq!(suspension.phase(), Phase::Running);
    }

    #[tokio::test]
    async fn held_io_is_tried_again_after_a_resumption_and_fails_after_a_stop() {
        for (stopped, outcome) in [(false, true), (true, false)] {
            let suspension = armed(FailMode::Wait);
            let held = tokio::spawn({
                let suspension = suspension.clone();
                async move { suspension.hold(0, "no device").await }
            });
            suspension.halted().await;
            assert!(suspension.is_suspended());
            if stopped {
                suspension.stop("exported");
                assert!(!suspension.resume(), "a stopped pool stays stopped");
            } else {
                assert!(suspension.resume());
            }
            assert_eq!(held.await.unwrap(), outcome);
        }
    }

    #[tokio::test]
    async fn a_failure_of_before_a_resumption_does_not_suspend_again() {
        let suspension = armed(FailMode::Continue);
        let held = tokio::spawn({
            let suspension = suspension.clone();
            async move { suspension.hold(0, "no device").await }
        });
        suspension.halted().await;
        suspension.resume();
        assert!(held.await.unwrap());
        assert!(suspension.hold(0, "an attempt of before").await);
        assert_eq!(suspension.phase(), Phase::Running);
    }

    #[tokio::test]
    async fn panic_stops_at_once() {
        let suspension = armed(FailMode::Panic);
        assert!(!suspension.hold(0, "no device").await);
        assert_eq!(suspension.phase(), Phase::Stopped("no device".into()));
    }
}
