//! Partition tables that are neither GPT nor DOS: Apple's, Sun's, SGI's, and the disklabels of the BSDs, which also
//! stand inside a DOS partition (the facts are in util-linux, `libblkid/src/partitions/` and `include/pt-*.h`).
//!
//! A table needs its magic and what else proves it (a checksum, a second magic). Partitions that begin where
//! the device does are not told: what they hold is found on the device itself.

use crate::sector::SECTOR;
use crate::signatures::image::Image;
use crate::signatures::partition::Partition;

/// Entries of an Apple map that are looked at.
const APPLE_MAX: u32 = 256;
const BSD_MAGIC: u32 = 0x8256_4557;
/// Where a BSD label may be, in bytes: each architecture has its own place.
const BSD_PLACES: [u64; 3] = [512, 64, 128];
const BSD_PARTITIONS_MAX: u16 = 16;
/// Types of DOS partitions that hold such a label: FreeBSD, OpenBSD, NetBSD.
pub const BSD_TYPES: [u8; 3] = [0xa5, 0xa6, 0xa9];
/// FreeBSD's, whose label may count from the beginning of the partition.
const FREEBSD: u8 = 0xa5;

/// The partitions of a disk with one of these tables, in bytes; none without.
pub fn read(image: &Image) -> Option<Vec<Partition>> {
    let mut found = sun(image).or_else(|| sgi(image)).or_else(|| apple(image)).or_else(|| bsd(image))?;
    found.retain(|part| part.start > 0 && part.size > 0);
    Some(found)
}

fn sectors(number: u32, first: u64, count: u64) -> Partition {
    Partition { number, start: first.saturating_mul(SECTOR), size: count.saturating_mul(SECTOR) }
}

fn sun(image: &Image) -> Option<Vec<Partition>> {
    if image.be16(508) != 0xDABE || (0..256).fold(0, |sum, word| sum ^ image.be16(2 * word)) != 0 {
        return None;
    }
    // Partitions begin at cylinders.
    let cylinder = u64::from(image.be16(436)) * u64::from(image.be16(438));
    let entry = |index: u32| {
        let at = 444 + 8 * u64::from(index);
        sectors(index + 1, u64::from(image.be32(at)) * cylinder, image.be32(at + 4).into())
    };
    Some((0..8).map(entry).collect())
}

fn sgi(image: &Image) -> Option<Vec<Partition>> {
    let sum = (0..128).fold(0u32, |sum, word| sum.wrapping_add(image.be32(4 * word)));
    if image.be32(0) != 0x0BE5_A941 || sum != 0 {
        return None;
    }
    let entry = |index: u32| {
        let at = 312 + 12 * u64::from(index);
        sectors(index + 1, image.be32(at + 4).into(), image.be32(at).into())
    };
    Some((0..16).map(entry).collect())
}

fn apple(image: &Image) -> Option<Vec<Partition>> {
    let block = u64::from(image.be16(2));
    // "PM", and "TS" of the oldest ones.
    let is_entry = |at: u64| matches!(image.be16(at), 0x504D | 0x5453);
    if image.be16(0) != 0x4552 || block < SECTOR || !is_entry(block) {
        return None;
    }
    let unit = block / SECTOR;
    let entries = (0..image.be32(block + 4).min(APPLE_MAX)).map(|index| (index, block * (u64::from(index) + 1)));
    let entry = |(index, at): (u32, u64)| {
        sectors(index + 1, u64::from(image.be32(at + 8)) * unit, u64::from(image.be32(at + 12)) * unit)
    };
    Some(entries.take_while(|(_, at)| is_entry(*at)).map(entry).collect())
}

/// The sectors that a label at one of the places names: first, count.
fn bsd_label(image: &Image) -> Option<Vec<(u64, u64)>> {
    let at = BSD_PLACES.into_iter().find(|at| image.le32(*at) == BSD_MAGIC && image.le32(at + 132) == BSD_MAGIC)?;
    let entries = (0..u64::from(image.le16(at + 138).min(BSD_PARTITIONS_MAX))).map(|index| at + 148 + 16 * index);
    Some(
        entries
            .map(|entry| match image.u8(entry + 12) {
                0 => (0, 0),
                _ => (u64::from(image.le32(entry + 4)), u64::from(image.le32(entry))),
            })
            .collect(),
    )
}

fn bsd(image: &Image) -> Option<Vec<Partition>> {
    let used = bsd_label(image)?.into_iter().filter(|(_, count)| *count > 0);
    Some((1..).zip(used).map(|(number, (first, count))| sectors(number, first, count)).collect())
}

/// Those of a label in the DOS partition `parent` of type `kind`, whose beginning is in `image`; `next` is the first
/// number that is free. Offsets count from the beginning of the disk, or of the partition (FreeBSD since version 10).
pub fn inside(image: &Image, parent: &Partition, kind: u8, next: u32) -> Vec<Partition> {
    let Some(label) = bsd_label(image) else { return Vec::new() };
    // The third entry stands for the whole partition.
    let is_relative = kind == FREEBSD && label.get(2).is_some_and(|(first, _)| *first == 0);
    let base = if is_relative { parent.start / SECTOR } else { 0 };
    let parts = label.into_iter().map(|(first, count)| sectors(0, first.saturating_add(base), count));
    let within = parts.filter(|part| {
        let end = part.start.saturating_add(part.size);
        part.size > 0 && part.start > parent.start && end <= parent.start.saturating_add(parent.size)
    });
    (next..).zip(within).map(|(number, part)| Partition { number, ..part }).collect()
}
