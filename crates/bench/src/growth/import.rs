//! Pools that hold more and more: how long an import takes, and what memory a new daemon needs for it.
//!
//! The data costs next to no disk: large blocks of one byte, which zstd makes as small as a sector.

use std::path::PathBuf;

use super::{Clock, Extent, Growth};
use crate::error::Result;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Layout, Platter, Shape};
use crate::work;

/// GiB, times this for the next step.
const FACTOR: u64 = 4;
/// Bytes of a block.
const RECORD: u64 = 1 << 20;
/// Bytes of the sparse file.
const DEVICE: u64 = 64 << 30;

/// For each step: adds data until there is so much, then imports the pool with a new daemon.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    clock: Clock,
    found: &mut Growth,
) -> Result<()> {
    let under: PathBuf = context.under.clone();
    let shape = Shape { layout: Layout::Single, record: RECORD, device: DEVICE, under };
    platter.create_with(&shape, &["-o", "ashift=9", "-O", "compression=zstd"])?;
    let folder = platter.mountpoint();
    let steps = std::iter::successors(Some(1), |gib| Some(gib * FACTOR));
    let steps = steps.take_while(|gib| *gib <= extent.gib);
    let mut made = 0;
    let name = |step| format!("a pool with {step} GiB");
    found.grow(steps, (clock, FACTOR as u32), name, |step, found| {
        while made < step && !clock.is_over() {
            work::write_constant(&folder, made)?;
            made += 1;
        }
        if made < step {
            return Ok(false);
        }
        work::sync(&folder)?;
        let (elapsed, usage) = platter.import_anew()?;
        found.add("import, GiB", step, Unit::Seconds, elapsed.as_secs_f64());
        found.add_peak_memory("daemon's peak memory after import, GiB", step, usage);
        Ok(true)
    })
}
