//! What a leaf does not have, by group, and what a flush adds to that which failed or came too late.

use platter_ondisk::Txg;

use crate::missing::MissingRanges;

/// Groups that may have blocks written before or after the one that is being flushed: one is open, one quiescing, one
/// syncing, and logs are written in the open one (`TXG_CONCURRENT_STATES`).
const CONCURRENT: u64 = 2;

/// What a flush is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Everything that was written up to the end of this group.
    Group(Txg),
    /// Blocks of a log that were allocated in this group.
    Log(Txg),
}

/// What a leaf does not have.
#[derive(Default)]
pub(crate) struct Lists {
    /// Groups of which it missed something.
    pub(crate) missing: MissingRanges,
    /// The part of that which was found out since the scan under way began
    /// ([`Leaf::begin_scan`](crate::Leaf::begin_scan)).
    pub(crate) noted: MissingRanges,
}

impl Lists {
    /// It missed (part of) a group's writes.
    pub(crate) fn note(&mut self, txg: Txg) {
        self.missing.note(txg);
        self.noted.note(txg);
    }

    /// A flush `failed`, or was `interrupted`: the device had been closed since the last one. Of everything that it had
    /// taken since then, a group and those that are open beside it, any part may be lost. A flush for a log says that
    /// of the log's blocks alone: the groups that are open now need not be near the one in which these were allocated.
    pub(crate) fn note_unflushed(&mut self, end: Flush, interrupted: bool, failed: bool) {
        match end {
            // Nothing that a scan under way has to know: the device was away before it, or has another opening now.
            Flush::Group(Txg(txg)) if interrupted => {
                self.missing.note_range(Txg(txg.saturating_sub(CONCURRENT)), Txg(txg.saturating_add(CONCURRENT)));
            }
            Flush::Log(txg) if interrupted => self.missing.note(txg),
            Flush::Group(txg) | Flush::Log(txg) if failed => self.note(txg),
            Flush::Group(_) | Flush::Log(_) => {}
        }
        if failed {
            // Repairs too, of whatever group.
            self.noted.note_range(Txg(0), Txg(u64::MAX));
        }
    }
}
