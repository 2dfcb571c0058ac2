//! Pools with more and more file systems, all of them mounted: how long it takes to make, list, change, export and
//! import them, and what memory the daemon has for them.

use std::time::Instant;

use super::extent::{Clock, Extent, make_up_to, sparse_pool, steps};
use super::found::Growth;
use crate::error::{Result, said};
use crate::meter::Meter;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Platter};

/// File systems of the first step.
const FIRST: u64 = 100;
/// Times this for the next step.
const FACTOR: u32 = 10;
/// Bytes of a block.
const RECORD: u64 = 128 << 10;

/// For each step: makes file systems until there are so many, and looks at all of them.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    clock: Clock,
    found: &mut Growth,
) -> Result<()> {
    sparse_pool(platter, context, RECORD, &[])?;
    let mut made = 0;
    let name = |step| format!("a pool with {step} data sets");
    found.grow(steps(FIRST, FACTOR, extent.datasets), (clock, FACTOR), name, |step, found| {
        let (before, start) = (made, Instant::now());
        let meter = Meter::start(platter.server());
        if !make_up_to(step, &mut made, clock, |number| platter.create_dataset(number))? {
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
