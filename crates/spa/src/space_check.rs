//! A check that the space maps on disk say what the allocator says, for builds that check dear things: a map that lost
//! a free, or has it twice, is noticed only by the import after, or by OpenZFS.

use platter_ondisk::spacemap::MapType;
use platter_zio::metaslab::Ranges;
use platter_zio::{Metaslab, RangeSet};
use platter_zio::{Result, ZioError};

use crate::core::Core;
use crate::space_maps::{self, Words};

/// Pools with longer maps (bytes, all together) are not checked after each group.
const LENGTH_MAX: u64 = 32 << 10;

/// Bytes allocated for intent logs in groups that are not syncing yet: no map has them.
fn logged(metaslab: &Metaslab) -> u64 {
    metaslab.log_allocated.iter().map(RangeSet::total).sum()
}

/// How the ranges of a loaded metaslab differ from what is `allocated` on disk; `None` when they do not.
fn difference(metaslab: &Metaslab, allocated: &RangeSet) -> Option<String> {
    let expected = metaslab.allocated_ranges();
    if allocated.iter().eq(expected.iter()) {
        return None;
    }
    let other = |a: &RangeSet, b: &RangeSet| {
        a.iter().find(|&(start, length)| !b.contains(start, length)).map(|(s, l)| format!("{s:#x}+{l:#x}"))
    };
    Some(format!(
        "unflushed since group {}: {} bytes on disk, {} in memory; only on disk {:?}, only in memory {:?}",
        metaslab.unflushed_txg,
        allocated.total(),
        expected.total(),
        other(allocated, &expected),
        other(&expected, allocated)
    ))
}

/// Compares each metaslab's map on disk, and what only logs have, with its ranges or its sums in memory, after a group
/// was written and before what it freed is handed on.
///
/// # Errors
/// The first difference.
pub async fn check(core: &Core) -> Result<()> {
    let maps = space_maps::vdev_maps(core);
    let metaslabs: Vec<_> = {
        let allocator = core.dsl.store.state().allocator.lock();
        let lengths = allocator.groups().iter().flat_map(|group| group.metaslabs()).map(|m| m.map_length).sum::<u64>();
        if lengths > LENGTH_MAX {
            return Ok(());
        }
        allocator
            .groups()
            .iter()
            .flat_map(|group| {
                let ashift = maps.iter().find(|maps| maps.vdev == group.vdev).map(|maps| maps.ashift);
                group.metaslabs().iter().filter_map(move |metaslab| Some((group.vdev, ashift?, metaslab.clone())))
            })
            .filter(|(_, _, metaslab)| !matches!(metaslab.ranges, Ranges::Damaged(_)))
            .collect()
    };
    let mut words = Words::exactly(u64::MAX);
    for (vdev, ashift, metaslab) in metaslabs {
        let differs = |what: String| {
            ZioError::corrupt("space map", format!("metaslab {} of vdev {vdev}: {what}", metaslab.index))
        };
        let mut allocated = RangeSet::new();
        if metaslab.space_map.is_some() {
            let read = space_maps::for_each(&core.dsl.mos, metaslab.space_map, &mut words, |entry| {
                let (start, length) = (metaslab.start + (entry.offset << ashift), entry.run << ashift);
                let applied = match entry.kind {
                    MapType::Alloc => allocated.add(start, length),
                    MapType::Free => allocated.remove(start, length),
                };
                applied.map_err(|error| differs(format!("the map contradicts itself: {error}")))
            })
            .await;
            match read {
                // Devices that fail suspend the pool where something needs them, and a map that is lost is written anew
                // when something is added to it; this is only a look.
                Err(ZioError::Io(_) | ZioError::Checksum { .. }) => continue,
                read => read?,
            }
        }
        for (start, length) in metaslab.unflushed_allocs.iter() {
            allocated.add(start, length).map_err(|error| differs(format!("logged as allocated: {error}")))?;
        }
        for (start, length) in metaslab.unflushed_frees.iter() {
            allocated.remove(start, length).map_err(|error| differs(format!("logged as freed: {error}")))?;
        }
        let at_rest = std::iter::once(&metaslab.freed).chain(&metaslab.deferred).map(RangeSet::total).sum::<u64>();
        if allocated.total() + at_rest + logged(&metaslab) != metaslab.allocated() {
            let what =
                format!("{} bytes on disk, {at_rest} at rest, {} in the sums", allocated.total(), metaslab.allocated());
            return Err(differs(what));
        }
        if !metaslab.is_loaded() {
            continue;
        }
        if let Some(what) = difference(&metaslab, &allocated) {
            return Err(differs(what));
        }
    }
    Ok(())
}
