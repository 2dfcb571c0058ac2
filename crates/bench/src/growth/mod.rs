//! How Platter behaves as what it holds grows: names in one directory, the part of a pool that is full, data in all,
//! file systems.
//!
//! Each step is larger than the one before. A step that would not end in time is left out, which is said.

mod chart;
mod datasets;
mod extent;
mod fill;
mod found;
mod import;
mod names;
mod saved;

use std::time::Instant;

use crate::error::{BenchError, Result, said};
use crate::interrupt;
use crate::scenario::Context;
use crate::systems::{FileSystem, Platter};
use extent::Clock;
pub use extent::Extent;
pub use found::Growth;

type Part = fn(&mut Platter, &Context, Extent, Clock, &mut Growth) -> Result<()>;
const PARTS: [(&str, Part); 4] =
    [("names", names::measure), ("fill", fill::measure), ("import", import::measure), ("datasets", datasets::measure)];

/// Measures the parts that `wants` takes (`names`, `fill`, `import`, `datasets`) on new pools below the context's
/// folder, one after the other. Returns whether nothing failed.
///
/// # Errors
/// No part is wanted, or it was interrupted: what fails otherwise is said, and left out.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    wants: impl Fn(&str) -> bool,
    found: &mut Growth,
) -> Result<bool> {
    let start = Instant::now();
    let mut complete = true;
    let parts: Vec<_> = PARTS.into_iter().filter(|(name, _)| wants(name)).collect();
    if parts.is_empty() {
        return said("growth is measured in the parts names, fill, import and datasets, of which --only leaves none");
    }
    let count = parts.len() as u32;
    for (index, (name, part)) in parts.into_iter().enumerate() {
        // A part has its share of the time and what those before it did not need.
        let clock = Clock(start + extent.time * (index as u32 + 1) / count);
        let measured = part(platter, context, extent, clock, found);
        let destroyed = platter.destroy();
        interrupt::check()?;
        match measured.and(destroyed) {
            Ok(()) => {}
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                eprintln!("Growth: {name}: FAILED: {error}");
                found.left_out.push(format!("{name}: failed"));
                complete = false;
            }
        }
    }
    Ok(complete)
}
