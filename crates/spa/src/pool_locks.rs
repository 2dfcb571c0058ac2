//! One writer for each pool of a machine, by the pool's guid. The devices have locks of their own, but a file may have
//! two faces that share none: on an overlay and below it. Here is what a daemon offers; what a pool holds is in
//! `locked`.

use std::any::Any;
use std::collections::BTreeSet;

use platter_device::Holder;
use platter_ondisk::Guid;

/// A lock; given back when it is dropped.
pub struct PoolLock(Box<dyn Any + Send + Sync>);

impl PoolLock {
    /// One that lasts as long as `held`.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl std::fmt::Debug for PoolLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLock({:?})", (*self.0).type_id())
    }
}

/// Why a lock cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Who has it.
    Held(Holder),
    /// Who is in the way without having it, for a person.
    Obstructed(String),
}

/// Keeps the daemons of a machine apart.
pub trait PoolLocks: Send + Sync + std::fmt::Debug + 'static {
    /// Takes the lock of a pool.
    ///
    /// # Errors
    /// Who has it, or does not let it be taken.
    fn lock(&self, pool: Guid) -> std::result::Result<PoolLock, Refusal>;

    /// Who has it.
    fn holder(&self, pool: Guid) -> Option<Holder>;

    /// Tells the devices of a pool that is open here under this name, spares among them, by their guids: when it is
    /// opened, and before the first label of one that is added is written. Before that each leaf may be one of them.
    fn note_leaves(&self, pool: Guid, name: &str, leaves: BTreeSet<u64>);

    /// The name of a pool that is open here and has a device or a spare of this guid.
    fn pool_with(&self, leaf: Guid) -> Option<String>;

    /// Who has the pool open that this leaf is or may be a device of. That it is none any more is known of pools that
    /// are open here.
    fn holder_of_leaf(&self, pool: Guid, leaf: Option<Guid>) -> Option<Holder>;

    /// Whether another pool than this one, of those that are or were open here, has a device of this guid.
    fn is_listed_elsewhere(&self, leaf: Guid, pool: Guid) -> bool;
}

/// A machine on which there is nobody else.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyElse;

impl PoolLocks for NobodyElse {
    fn lock(&self, _pool: Guid) -> std::result::Result<PoolLock, Refusal> {
        Ok(PoolLock::new(()))
    }

    fn holder(&self, _pool: Guid) -> Option<Holder> {
        None
    }

    fn note_leaves(&self, _pool: Guid, _name: &str, _leaves: BTreeSet<u64>) {}

    fn pool_with(&self, _leaf: Guid) -> Option<String> {
        None
    }

    fn holder_of_leaf(&self, _pool: Guid, _leaf: Option<Guid>) -> Option<Holder> {
        None
    }

    fn is_listed_elsewhere(&self, _leaf: Guid, _pool: Guid) -> bool {
        false
    }
}
