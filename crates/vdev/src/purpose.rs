//! What a block is written for.

use std::sync::Arc;

use platter_ondisk::Txg;

use crate::leaf::Leaf;

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

impl Purpose {
    /// Notes for leaves that did not take the block that they lack it. A block that is written again was dealt with for
    /// each leaf by [`Leaf::write_for`].
    pub(crate) fn note_lacking<'a>(self, leaves: impl Iterator<Item = &'a Arc<Leaf>>) {
        if let Self::New { txg } = self {
            leaves.for_each(|leaf| leaf.note_missing(txg));
        }
    }
}
