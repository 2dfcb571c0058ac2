//! One published curve: a 60 MB/s disk with its write cache off, written in order with one I/O at a time, by I/O size;
//! and the same disk under a transaction group.
//!
//! The model knows the disk's data sheet ([`Parameters::published_curve`]) and nothing of the curve.

use std::sync::Arc;

use futures::StreamExt;
use platter_buffer::Buf;
use platter_device::BlockDevice;

use crate::clock::{self, SECOND, SimClock};
use crate::disk::{DiskId, Link, LinkKind, Parameters, SimDisk, Surroundings};

/// Size of an I/O in KiB, and MB/s as published.
pub const PUBLISHED: [(u64, u64); 10] =
    [(16, 2), (32, 4), (64, 8), (128, 15), (256, 25), (512, 36), (1024, 46), (2048, 54), (4096, 58), (8192, 59)];

/// Size of an I/O in KiB, how many are outstanding, and MB/s as published, for a transaction group on its way to disk.
pub const TRANSACTION_GROUP: (u64, usize, u64) = (128, 35, 60);

/// How far the model may be off, in percent.
pub const TOLERANCE_PERCENT: f64 = 15.0;

/// What the host needs between one I/O's end and the next one's begin: an interrupt, a system call.
const HOST_MICROSECONDS: u64 = 60;

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was written how.
    pub load: String,
    /// MB/s as published.
    pub published: f64,
    /// MB/s as the model says.
    pub modelled: f64,
}

impl Row {
    /// How far off the model is, in percent of what was published.
    pub fn error_percent(&self) -> f64 {
        (self.modelled / self.published - 1.0) * 100.0
    }

    /// Whether that is tolerable.
    pub fn holds(&self) -> bool {
        self.error_percent().abs() <= TOLERANCE_PERCENT
    }
}

/// Runs the model at every size.
pub fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    for (size, published) in PUBLISHED {
        let modelled = rate(size << 10, 1);
        rows.push(Row { load: format!("{size} KiB, one at a time"), published: published as f64, modelled });
    }
    let (size, outstanding, published) = TRANSACTION_GROUP;
    let modelled = rate(size << 10, outstanding);
    rows.push(Row { load: format!("{size} KiB, {outstanding} outstanding"), published: published as f64, modelled });
    rows
}

/// MB/s of writing in order with I/Os of `size` bytes, `outstanding` at a time.
fn rate(size: u64, outstanding: usize) -> f64 {
    let total = (size * 200).max(64 << 20) / size * size;
    let nanos = clock::run(|clock| async move {
        let links = vec![Link::new(LinkKind::Sata { megabits: 3000 })];
        let surroundings = Surroundings { links, ..Surroundings::default() };
        let disk = SimDisk::within(&clock, 0, DiskId(0), Parameters::published_curve(), surroundings);
        let data = Buf::zeroed(size as usize);
        let begin = clock.now();
        futures::stream::iter((0..total).step_by(size as usize))
            .for_each_concurrent(outstanding, |offset| write(clock.clone(), disk.clone(), offset, data.clone()))
            .await;
        clock.now() - begin
    });
    total as f64 / 1e6 / (nanos as f64 / SECOND as f64)
}

async fn write(clock: Arc<SimClock>, disk: SimDisk, offset: u64, data: Buf) {
    clock.sleep(std::time::Duration::from_micros(HOST_MICROSECONDS)).await;
    disk.write(offset, vec![data]).await.expect("the disk has no faults");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_curve_is_met_at_every_size() {
        for row in table() {
            assert!(row.holds(), "{row:?}: {:+.1} %", row.error_percent());
        }
    }
}
