//! Names in one directory: how fast more are made, how fast one is found among them, what memory the daemon needs.

use super::extent::{Clock, Extent, steps};
use super::found::Growth;
use crate::error::Result;
use crate::meter::Meter;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Layout, Platter, Shape};
use crate::work;

/// Bytes of each of seven devices for a name, its dnode and what groups write anew before old blocks are free. Device
/// files grow to their full size, as new blocks go where most room is: with 2048, ten million names filled a disk.
const ROOM: u64 = 512;
/// The first decade.
const FIRST: u64 = 1000;
/// Made at once, between looks at the clock.
const PIECE: u64 = 10_000;
/// Looked for in each decade, at most.
const LOOKED_FOR: usize = 10_000;

/// For each power of ten: creates per second over its last tenth, attributes of names at random with no cache filled,
/// and the daemon's peak memory while both were done and all names since the power before were made.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    clock: Clock,
    found: &mut Growth,
) -> Result<()> {
    let device = (1 << 30) + extent.names * ROOM;
    platter.create(&Shape { layout: Layout::Raidz1, record: 128 << 10, device, under: context.under.clone() })?;
    let folder = platter.mountpoint();
    let decades = steps(FIRST, 10, extent.names);
    let mut made = 0;
    let name = |count| format!("{count} names in a directory");
    found.grow(decades, (clock, 10), name, |count, found| {
        let meter = Meter::start(platter.server());
        let slow = count - count / 10;
        while made < slow && !clock.is_over() {
            let next = (made + PIECE).min(slow);
            work::create_more(&folder, made..next)?;
            made = next;
        }
        if made < slow {
            return Ok(false);
        }
        let done = work::create_more(&folder, made..count)?;
        made = count;
        found.add("create, names", count, Unit::Operations, done.rate());
        platter.cold()?;
        let done = work::stat_some(&folder, count, LOOKED_FOR)?;
        found.add("lookup, names", count, Unit::Operations, done.rate());
        found.add_peak_memory("daemon's peak memory, names", count, meter.stop());
        Ok(true)
    })
}
