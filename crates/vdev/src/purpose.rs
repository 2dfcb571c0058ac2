//! What a block is written for.

use platter_ondisk::Txg;

/// What a block is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is new, in this group: who does not take it lacks it, whatever the reason.
    New {
        /// The group.
        txg: Txg,
    },
    /// A block born in this group is to hold again what it held: who is away lacks nothing more than before.
    Again {
        /// The group.
        birth: Txg,
    },
}
