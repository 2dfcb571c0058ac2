//! Pools with more and more file systems, all of them mounted: how long it takes to make, list, change, export and
//! import them, and what memory the daemon has for them.

use std::path::PathBuf;
use std::time::Instant;

use super::{Clock, Extent, Growth};
use crate::error::{Result, said};
use crate::meter::Meter;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Layout, Platter, Shape};

/// File systems of the first step.
const FIRST: u64 = 100;
/// Times this for the next step.
const FACTOR: u64 = 10;
/// Bytes of a block.
const RECORD: u64 = 128 << 10;
/// Bytes of the sparse file.
const DEVICE: u64 = 64 << 30;

/// For each step: makes file systems until there are so many, and looks at all of them.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    clock: Clock,
    found: &mut Growth,
) -> Result<()> {
    let under: PathBuf = context.under.clone();
    platter.create_with(&Shape { layout: Layout::Single, record: RECORD, device: DEVICE, under }, &[])?;
    let steps = std::iter::successors(Some(FIRST), |count| Some(count * FACTOR));
    let steps = steps.take_while(|count| *count <= extent.datasets);
    let mut made = 0;
    let name = |step| format!("a pool with {step} data sets");
    found.grow(steps, (clock, FACTOR as u32), name, |step, found| {
        let (before, start) = (made, Instant::now());
        let meter = Meter::start(platter.server());
        while made < step && !clock.is_over() {
            platter.create_dataset(made)?;
            made += 1;
        }
        if made < step {
            return Ok(false);
        }
        let rate = (made - before) as f64 / start.elapsed().as_secs_f64();
        found.add("create, data sets", step, Unit::Operations, rate);
        found.add_peak_memory("daemon's peak memory with all mounted, data sets", step, meter.stop());
        let (count, elapsed) = platter.list_datasets()?;
        if count != step + 1 {
            return said(format!("{count} data sets are listed, not {} and the pool's own", step));
        }
        found.add("list, data sets", step, Unit::Seconds, elapsed.as_secs_f64());
        for setting in ["setuid=off", "setuid=on"] {
            let elapsed = platter.set_of_all(setting)?;
            if setting == "setuid=off" {
                found.add("set setuid of all, data sets", step, Unit::Seconds, elapsed.as_secs_f64());
            }
        }
        found.add("export, data sets", step, Unit::Seconds, platter.export()?.as_secs_f64());
        let (elapsed, usage) = platter.import_exported()?;
        found.add("import and mount, data sets", step, Unit::Seconds, elapsed.as_secs_f64());
        found.add_peak_memory("daemon's peak memory after import, data sets", step, usage);
        Ok(true)
    })
}
