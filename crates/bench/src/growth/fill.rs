//! A pool that fills up: large files written and read in what room is left, which is in many small pieces.

use std::time::Duration;

use super::extent::{Clock, Extent};
use super::found::Growth;
use crate::error::Result;
use crate::noise::Random;
use crate::program::wait_until;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Layout, Platter, Shape};
use crate::work::{self, Version};

/// How full, percent.
const STEPS: [u64; 5] = [0, 25, 50, 75, 90];
/// The large file is such a part of the pool.
const PART: u64 = 50;
/// The small files that fill it have so many blocks at most.
const BLOCKS: u64 = 12;
const RECORD: u64 = 128 << 10;
/// Bytes of the smallest device: in a smaller pool what is held back (128 MiB at least) is more than what 90 % leave.
const SMALLEST: u64 = 512 << 20;

/// Writes small files until the pool is `percent` full, and notes them in `files`.
fn fill(platter: &Platter, files: &mut Vec<u64>, percent: u64, context: &Context, clock: Clock) -> Result<bool> {
    let folder = platter.mountpoint();
    let mut random = Random::new(files.len() as u64);
    let mut next = files.last().map_or(0, |last| last + 1);
    loop {
        let (used, size) = platter.room()?;
        let wanted = (size / 100 * percent).saturating_sub(used);
        // The last hundredth comes and goes with what is freed late.
        if wanted < size / 100 {
            return Ok(true);
        }
        let mut written = 0;
        // Half of it, then another look: what a file takes is more than its length.
        while written < (wanted / 2).max(1 << 20) {
            if clock.is_over() {
                return Ok(false);
            }
            let length = (1 + random.below(BLOCKS)) * RECORD;
            written += work::write_small(&folder, next, length, &context.noise)?;
            files.push(next);
            next += 1;
        }
        work::sync(&folder)?;
    }
}

/// Removes every second of `files`, and waits until their room can be used again.
fn thin(platter: &Platter, files: &mut Vec<u64>) -> Result<()> {
    let folder = platter.mountpoint();
    let (before, _) = platter.room()?;
    let mut is_second = false;
    let mut removed = Ok(());
    files.retain(|&file| {
        is_second = !is_second;
        if !is_second && removed.is_ok() {
            removed = work::remove_small(&folder, file);
        }
        is_second
    });
    removed?;
    work::sync(&folder)?;
    // Some transaction groups pass before what was freed is free.
    let is_free = || platter.room().is_ok_and(|(used, _)| used < before / 4 * 3);
    wait_until("the room of removed files", Duration::from_secs(60), is_free)
}

/// For each step: fills, removes every second file, fills again, then writes a large file and reads it cold.
pub fn measure(platter: &mut Platter, context: &Context, _: Extent, clock: Clock, found: &mut Growth) -> Result<()> {
    let data = Layout::Raidz1.widths().1;
    let device = (context.size * 4 / data).max(SMALLEST).next_multiple_of(1 << 20);
    platter.create(&Shape { layout: Layout::Raidz1, record: RECORD, device, under: context.under.clone() })?;
    let large = (device * data / PART).max(8 << 20);
    let folder = platter.mountpoint();
    let mut files: Vec<u64> = Vec::new();
    let name = |step| format!("a pool that is {step} % full");
    found.grow(STEPS, (clock, 2), name, |step, found| {
        let mut is_full = fill(platter, &mut files, step, context, clock)?;
        if is_full && step > 0 {
            thin(platter, &mut files)?;
            is_full = fill(platter, &mut files, step, context, clock)?;
        }
        if !is_full {
            return Ok(false);
        }
        found.add("fragmentation, % full", step, Unit::Percent, platter.fragmentation()?);
        let done = work::write_files(&folder, 1, large, &context.noise)?;
        found.add("write, % full", step, Unit::Rate, done.bandwidth());
        platter.cold()?;
        let done = work::read_files(&folder, 1, large, &context.noise, Version::First, true)?;
        found.add("cold read, % full", step, Unit::Rate, done.bandwidth());
        work::remove_files(&folder, 1)?;
        work::sync(&folder)?;
        Ok(true)
    })
}
