//! Pools that hold more and more: how long an import takes, and what memory a new daemon needs for it.
//!
//! The data costs next to no disk: large blocks of one byte, which zstd makes as small as a sector.

use super::extent::{Clock, Extent, make_up_to, sparse_pool, steps};
use super::found::Growth;
use crate::error::Result;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Platter};
use crate::work;

/// GiB, times this for the next step.
const FACTOR: u32 = 4;
/// Bytes of a block.
const RECORD: u64 = 1 << 20;

/// For each step: adds data until there is so much, then imports the pool with a new daemon.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    clock: Clock,
    found: &mut Growth,
) -> Result<()> {
    sparse_pool(platter, context, RECORD, &["-o", "ashift=9", "-O", "compression=zstd"])?;
    let folder = platter.mountpoint();
    let mut made = 0;
    let name = |step| format!("a pool with {step} GiB");
    found.grow(steps(1, FACTOR, extent.gib), (clock, FACTOR), name, |step, found| {
        if !make_up_to(step, &mut made, clock, |number| work::write_constant(&folder, number))? {
            return Ok(false);
        }
        work::sync(&folder)?;
        let (elapsed, usage) = platter.import_anew()?;
        found.add("import, GiB", step, Unit::Seconds, elapsed.as_secs_f64());
        found.add_peak_memory("daemon's peak memory after import, GiB", step, usage);
        Ok(true)
    })
}
