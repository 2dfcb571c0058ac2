//! Transaction groups from a writer's side: joining the open group, the dirty-data throttle, and waiting for a group to
//! be on stable storage (`module/zfs/txg.c`, `module/zfs/dmu_tx.c`).
//!
//! Invariants:
//! - exactly one group is open; a [`Tx`] keeps the group it joined from being quiesced until it is dropped;
//! - groups are quiesced and synced in order, one at a time; group N+1 is open while N syncs;
//! - `dirty` counts bytes that writers put into groups and that are not on disk; a new `Tx` waits while these, and what
//!   the transactions under way may add, reach the limit. So that is exceeded by one transaction at most;
//! - `written` counts bytes that are on disk but in memory until their group is finished; a new `Tx` waits while these
//!   and the others reach twice the limit;
//! - a `Tx` begins only when the most that it may need on disk fits, with all that was promised before (see
//!   [`crate::room`]): so a sync has the space for what its group holds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_ondisk::Txg;
use tokio::sync::Notify;

use crate::error::{Result, ZioError};
use crate::room::{Promises, Room, Verdict};
use crate::suspension::{FailMode, Phase, Suspension};
use platter_hooks::Watch;

#[derive(Debug)]
struct State {
    open: Txg,
    /// Holders of the open group and of the one being quiesced, by `txg & 3`.
    holders: [u64; 4],
    dirty: [u64; 4],
    /// Bytes of the syncing group that are on disk and in memory.
    written: u64,
    /// Bytes that transactions under way may make dirty.
    pledged: u64,
    sync_wanted: Txg,
    suspended: Option<String>,
    promises: Promises,
}

/// Hands out transactions and counts their dirty data. Shared by the pool's sync loop and all writers.
#[derive(Debug)]
pub struct TxgGate {
    state: std::sync::Mutex<State>,
    dirty_max: AtomicU64,
    /// Woken when dirty data fell, or the pool was suspended.
    room: Notify,
    /// Woken when a holder left.
    left: Notify,
    /// Woken when a sync was asked for or dirty data crossed the sync threshold.
    wanted: Notify,
    synced: Watch<Txg>,
    suspension: OnceLock<Arc<Suspension>>,
}

/// Membership in an open transaction group. Dropping it lets the group be quiesced.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    gate: Option<Arc<TxgGate>>,
    needs: Needs,
}

/// The most that a transaction needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes on disk.
    pub disk: u64,
    /// Bytes of data blocks that it makes dirty: of each the whole, however little of it is written.
    pub memory: u64,
}

impl Tx {
    /// The group this transaction belongs to.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// A transaction of the syncing group itself, for changes made by the sync (it holds nothing open).
    pub fn syncing(txg: Txg) -> Self {
        Self { txg, gate: None, needs: Needs::default() }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(gate) = &self.gate {
            let mut state = gate.state();
            let slot = slot(self.txg);
            state.holders[slot] -= 1;
            if state.holders[slot] == 0 {
                gate.left.notify_waiters();
            }
            if self.needs.disk > 0 {
                state.promises.release(self.needs.disk);
            }
            state.pledged -= self.needs.memory;
            if self.needs != Needs::default() {
                gate.room.notify_waiters();
            }
        }
    }
}

impl State {
    /// Whether one more transaction may add to what is in memory.
    fn has_memory(&self, dirty_max: u64) -> bool {
        let waiting = self.dirty.iter().sum::<u64>() + self.pledged;
        waiting < dirty_max && waiting + self.written < dirty_max.saturating_mul(2)
    }
}

fn slot(txg: Txg) -> usize {
    (txg.0 & 3) as usize
}

impl TxgGate {
    /// A gate whose first open group is `open` (the last one on disk is the one before), that lets writers go on while
    /// fewer than `dirty_max` bytes wait for disk.
    pub fn new(open: Txg, dirty_max: u64) -> Arc<Self> {
        Arc::new(Self {
            state: std::sync::Mutex::new(State {
                open,
                holders: [0; 4],
                dirty: [0; 4],
                written: 0,
                pledged: 0,
                sync_wanted: Txg(0),
                suspended: None,
                promises: Promises::new(),
            }),
            dirty_max: AtomicU64::new(dirty_max),
            room: Notify::new(),
            left: Notify::new(),
            wanted: Notify::new(),
            synced: Watch::new(open.previous()),
            suspension: OnceLock::new(),
        })
    }

    /// A panic elsewhere while this was held stops the pool; whoever waits here must still be told.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lets writers wait, or refuses them, while the pool's I/O is suspended. The first call counts.
    pub fn obey(&self, suspension: Arc<Suspension>) {
        let _ = self.suspension.set(suspension);
    }

    /// Waits until the pool is not suspended, when writers are to wait for that (property `failmode`).
    async fn admit(&self) -> Result<()> {
        let Some(suspension) = self.suspension.get() else { return Ok(()) };
        match suspension.phase() {
            Phase::Running => {}
            Phase::Suspended { mode: FailMode::Continue, reason } | Phase::Stopped(reason) => {
                return Err(ZioError::Suspended(self.open_txg(), reason));
            }
            Phase::Suspended { .. } => _ = suspension.resumed().await,
        }
        Ok(())
    }

    /// Over when I/O does not go on (any more).
    async fn halted(&self) {
        match self.suspension.get() {
            Some(suspension) => suspension.halted().await,
            None => std::future::pending().await,
        }
    }

    /// Tells how much may still be allocated, as the last group left it. For the sync loop only, before that group is
    /// [finished](Self::finish).
    pub fn set_room(&self, room: Room) {
        self.state().promises.set_room(room);
        self.room.notify_waiters();
    }

    /// The most that one transaction should ask for: what needs more is done in parts.
    pub fn share(&self) -> u64 {
        self.state().promises.share()
    }

    /// Promises group `txg` space for its intent logs; `false` when that could be at others' expense.
    pub fn promise_log(&self, txg: Txg, most: u64) -> bool {
        let mut state = self.state();
        let fits = state.promises.admit(most, false) == Verdict::Fits;
        if fits {
            state.promises.add(txg, most);
        }
        fits
    }

    /// Joins the open group, after waiting for room under the dirty-data limit.
    ///
    /// # Errors
    /// [`ZioError::Suspended`] once the pool stopped, or is suspended with `failmode=continue`; [`ZioError::NoSpace`]
    /// when it is full.
    pub async fn begin(self: &Arc<Self>) -> Result<Tx> {
        self.join(Needs::default(), false).await
    }

    /// As [`begin`](Self::begin), for a change that may need so much.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub async fn begin_for(self: &Arc<Self>, most: Needs) -> Result<Tx> {
        self.join(most, false).await
    }

    /// Like [`begin_for`](Self::begin_for) for a change that frees more than it writes (unlink, truncate): allowed on a
    /// full pool, out of the slop reserve.
    ///
    /// # Errors
    /// [`ZioError::Suspended`] once the pool stopped; [`ZioError::NoSpace`] when most of the reserve is gone too.
    pub async fn begin_net_free(self: &Arc<Self>, most: u64) -> Result<Tx> {
        self.join(Needs { disk: most, memory: 0 }, true).await
    }

    /// Joins the open group at once, for an intent log's own needs: it makes no data dirty, so nothing holds it back.
    ///
    /// # Errors
    /// [`ZioError::Suspended`] once the pool stopped.
    pub fn hold(self: &Arc<Self>) -> Result<Tx> {
        let mut state = self.state();
        if let Some(why) = &state.suspended {
            return Err(ZioError::Suspended(state.open, why.clone()));
        }
        let txg = state.open;
        state.holders[slot(txg)] += 1;
        Ok(Tx { txg, gate: Some(self.clone()), needs: Needs::default() })
    }

    async fn join(self: &Arc<Self>, needs: Needs, net_free: bool) -> Result<Tx> {
        loop {
            self.admit().await?;
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(why) = &state.suspended {
                    return Err(ZioError::Suspended(state.open, why.clone()));
                }
                match state.promises.admit(needs.disk, net_free) {
                    Verdict::Never => return Err(ZioError::NoSpace),
                    Verdict::Later => state.sync_wanted = state.sync_wanted.max(state.open),
                    Verdict::Fits if state.has_memory(self.dirty_max()) => {
                        let txg = state.open;
                        state.holders[slot(txg)] += 1;
                        state.promises.hold(needs.disk);
                        state.pledged += needs.memory;
                        return Ok(Tx { txg, gate: Some(self.clone()), needs });
                    }
                    Verdict::Fits => {}
                }
            }
            self.wanted.notify_one();
            // In a fixed order: tokio's own is random, and a simulation must replay.
            tokio::select! {
                biased;
                () = room => {}
                () = self.halted() => {}
            }
        }
    }

    /// Counts `bytes` of newly dirtied data in `txg`, which may need `most` bytes on disk.
    pub fn add_dirty(&self, txg: Txg, bytes: u64, most: u64) {
        let mut state = self.state();
        debug_assert!(txg <= state.open && state.open.0 - txg.0 < 3, "{txg} is none of the last three groups");
        let slot = slot(txg);
        state.promises.add(txg, most);
        state.dirty[slot] += bytes;
        // Start syncing early, so that the device works while writers fill the next group
        // (zfs_dirty_data_sync_percent is 20 in OpenZFS).
        if state.dirty[slot] >= self.dirty_max() / 5 {
            state.sync_wanted = state.sync_wanted.max(txg);
            self.wanted.notify_one();
        }
    }

    /// `bytes` of the syncing group `txg` reached the disk; they are in memory until it is finished.
    pub fn wrote(&self, txg: Txg, bytes: u64) {
        self.state().written += bytes;
        self.remove_dirty(txg, bytes);
    }

    /// Takes `bytes` that will never have to be written off `txg`'s count.
    pub fn remove_dirty(&self, txg: Txg, bytes: u64) {
        let mut state = self.state();
        let slot = slot(txg);
        state.dirty[slot] = state.dirty[slot].saturating_sub(bytes);
        self.room.notify_waiters();
    }

    /// Bytes that may wait for disk at most, about: who has begun may still add some.
    pub fn dirty_max(&self) -> u64 {
        self.dirty_max.load(Ordering::Relaxed)
    }

    /// Lets so many bytes wait for disk from now on.
    pub fn set_dirty_max(&self, bytes: u64) {
        if self.dirty_max.swap(bytes, Ordering::Relaxed) < bytes {
            self.room.notify_waiters();
        }
    }

    /// Bytes waiting for disk in all groups.
    pub fn dirty(&self) -> u64 {
        self.state().dirty.iter().sum()
    }

    /// Bytes that writers put into group `txg` and that are not on disk yet; `txg` is one of the last three.
    pub fn dirty_of(&self, txg: Txg) -> u64 {
        self.state().dirty[slot(txg)]
    }

    /// The open group.
    pub fn open_txg(&self) -> Txg {
        self.state().open
    }

    /// The last group on stable storage.
    pub fn synced_txg(&self) -> Txg {
        self.synced.get()
    }

    /// Closes the open group, opens the next, waits for the closed one's transactions to end, and returns it.
    /// For the sync loop only.
    pub async fn quiesce(&self) -> Txg {
        // Before the lock: whoever waits for a group takes it while it looks at this.
        let synced = self.synced_txg();
        let closed = {
            let mut state = self.state();
            let closed = state.open;
            assert!(closed.0 <= synced.0 + 3, "a group four back is on disk before its place is taken: {synced}");
            state.open = closed.plus(1);
            let slot = slot(state.open);
            assert_eq!(state.holders[slot], 0, "a group four back is still held");
            state.dirty[slot] = 0;
            let open = state.open;
            state.promises.clear(open);
            closed
        };
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if self.state().holders[slot(closed)] == 0 {
                return closed;
            }
            left.await;
        }
    }

    /// Declares `txg` to be on stable storage. For the sync loop only.
    pub fn finish(&self, txg: Txg) {
        assert!(txg > self.synced.get(), "groups come to an end in order");
        {
            let mut state = self.state();
            assert!(txg < state.open, "a group is closed before it is on disk");
            assert_eq!(state.holders[slot(txg)], 0, "a group is left before it is on disk");
            state.dirty[slot(txg)] = 0;
            state.written = 0;
            state.promises.clear(txg);
        }
        self.room.notify_waiters();
        self.synced.set(txg);
    }

    /// Stops the pool: every later [`begin`](Self::begin) and waiting [`wait_synced`](Self::wait_synced) fails with
    /// `why`.
    pub fn suspend(&self, why: String) {
        self.state().suspended = Some(why);
        self.room.notify_waiters();
        self.synced.set_if(|_| true);
    }

    /// Why the pool stopped, if it did.
    pub fn suspended(&self) -> Option<String> {
        self.state().suspended.clone()
    }

    /// Whether somebody asked for a group that is not yet on disk (or dirty data passed its threshold).
    pub fn sync_is_wanted(&self) -> bool {
        let state = self.state();
        state.sync_wanted >= state.open || state.dirty.iter().sum::<u64>() >= self.dirty_max()
    }

    /// Waits until a sync is wanted. For the sync loop only.
    pub async fn wanted(&self) {
        while !self.sync_is_wanted() {
            self.wanted.notified().await;
        }
    }

    /// Asks for `txg` to be synced soon.
    pub fn ask_for(&self, txg: Txg) {
        {
            let mut state = self.state();
            state.sync_wanted = state.sync_wanted.max(txg);
        }
        self.wanted.notify_one();
    }

    /// Asks for `txg` to be synced soon and waits for it to be on stable storage. A group that is not open yet is
    /// waited for too.
    ///
    /// # Errors
    /// [`ZioError::Suspended`] when the pool stopped before that.
    pub async fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.ask_for(txg);
        // Woken by `finish` and `suspend`, neither of which holds the state's lock then.
        let synced = self.synced.wait_for(|&synced| synced >= txg || self.state().suspended.is_some()).await;
        let state = self.state();
        match &state.suspended {
            Some(why) if synced < txg => Err(ZioError::Suspended(state.open, why.clone())),
            _ => Ok(()),
        }
    }
}
