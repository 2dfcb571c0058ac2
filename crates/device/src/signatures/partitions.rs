//! Where the partitions of a disk are: tables of GPT and of DOS, with its chain of extended partitions, and those of
//! `disklabels`.
//!
//! A partition that lies beyond the device is not told, and a table that leads in circles ends: a disk may hold
//! anything.

use crate::block_device::BlockDevice;
use crate::signatures::disklabels::{self, BSD_TYPES, inside};
use crate::signatures::image::Image;
use crate::signatures::partition::Partition;

/// So many partitions are looked at.
const PARTITIONS_MAX: usize = 256;
/// Bytes in which a BSD label is.
const BSD_LABEL: usize = 4096;
const GPT: &[u8] = b"EFI PART";
/// Types of DOS partitions that hold others.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Type of the DOS partition that stands for a GPT.
const PROTECTIVE: u8 = 0xee;

/// A partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The partitions, by number.
    pub partitions: Vec<Partition>,
}

impl Table {
    /// Reads the table of a device whose beginning and end are in `image`; none when it has none.
    pub async fn read(device: &dyn BlockDevice, image: &Image) -> Option<Self> {
        let mut partitions = match disklabels::read(image) {
            Some(partitions) => partitions,
            None if image.le16(0x1fe) == 0xAA55 => Self::of_personal_computers(device, image).await,
            None => return None,
        };
        partitions
            .retain(|part| part.size > 0 && part.start.checked_add(part.size).is_some_and(|end| end <= image.size()));
        Some(Self { partitions })
    }

    async fn of_personal_computers(device: &dyn BlockDevice, image: &Image) -> Vec<Partition> {
        let sector = u64::from(device.geometry().logical_block.max(512));
        let table = if (0..4).any(|entry| image.u8(dos_entry(entry) + 4) == PROTECTIVE) {
            let sizes = [sector, 512, 4096].into_iter();
            sizes.filter_map(|sector| gpt_header(image, sector).map(|header| (sector, header))).next()
        } else {
            None
        };
        match table {
            Some((sector, header)) => gpt(device, sector, header).await,
            None => dos(device, image, sector).await,
        }
    }
}

/// Where the list of a GPT is: offset, entries, bytes of each.
type List = (u64, u32, u32);

/// The header at the beginning or, when it is gone, at the end.
fn gpt_header(image: &Image, sector: u64) -> Option<List> {
    let last = (image.size() / sector).checked_sub(1)? * sector;
    [sector, last]
        .into_iter()
        .find(|&at| image.has(at, GPT))
        .map(|at| (image.le64(at + 72).saturating_mul(sector), image.le32(at + 80), image.le32(at + 84)))
}

async fn gpt(device: &dyn BlockDevice, sector: u64, (at, entries, size): List) -> Vec<Partition> {
    let (entries, size) = (entries.min(PARTITIONS_MAX as u32), size.clamp(128, 4096) as usize);
    let length = (entries as usize * size).next_multiple_of(sector as usize);
    let Ok(list) = device.read(at, length).await else { return Vec::new() };
    let number = |entry: &[u8], at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
    let mut found = Vec::new();
    for (index, entry) in list.chunks_exact(size).take(entries as usize).enumerate() {
        let (first, last) = (number(entry, 32), number(entry, 40));
        if entry[..16] != [0; 16] && first <= last {
            let (start, size) = (first.saturating_mul(sector), (last - first).saturating_add(1).saturating_mul(sector));
            found.push(Partition { number: index as u32 + 1, start, size });
        }
    }
    found
}

fn dos_entry(index: u64) -> u64 {
    0x1be + index * 16
}

/// Type, first sector and sectors of an entry.
fn dos_fields(image: &Image, index: u64) -> (u8, u64, u64) {
    let at = dos_entry(index);
    (image.u8(at + 4), u64::from(image.le32(at + 8)), u64::from(image.le32(at + 12)))
}

async fn dos(device: &dyn BlockDevice, image: &Image, sector: u64) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut extended = None;
    for index in 0..4 {
        let (kind, first, count) = dos_fields(image, index);
        // What is no flag of an entry is no table: a boot sector of FAT ends in the same two bytes.
        if image.u8(dos_entry(index)) & 0x7f != 0 {
            return Vec::new();
        }
        if EXTENDED.contains(&kind) {
            extended = extended.or(Some(first));
        } else if kind != 0 && count > 0 {
            found.push(Partition { number: index as u32 + 1, start: first * sector, size: count * sector });
        }
    }
    let primary = found.clone();
    let mut number = match extended {
        Some(begin) => logical(device, begin, sector, &mut found).await,
        None => 5,
    };
    for part in primary {
        let kind = dos_fields(image, u64::from(part.number) - 1).0;
        if BSD_TYPES.contains(&kind)
            && let Ok(bytes) = device.read(part.start, BSD_LABEL).await
        {
            let label = Image::new(BSD_LABEL as u64, vec![(0, bytes.to_vec())]);
            let parts = inside(&label, &part, kind, number);
            number += parts.len() as u32;
            found.extend(parts);
        }
    }
    found
}

/// Follows the chain of an extended partition at sector `begin`; returns the next number that is free.
async fn logical(device: &dyn BlockDevice, begin: u64, sector: u64, found: &mut Vec<Partition>) -> u32 {
    let (mut at, mut number) = (begin, 5);
    while found.len() < PARTITIONS_MAX && number < 5 + PARTITIONS_MAX as u32 {
        let Ok(bytes) = device.read(at * sector, sector as usize).await else { break };
        let link = Image::new(sector, vec![(0, bytes.to_vec())]);
        if link.le16(0x1fe) != 0xAA55 {
            break;
        }
        let (kind, first, count) = dos_fields(&link, 0);
        if kind != 0 && count > 0 {
            found.push(Partition { number, start: (at + first) * sector, size: count * sector });
        }
        number += 1;
        match dos_fields(&link, 1) {
            (kind, next, _) if EXTENDED.contains(&kind) && next > 0 => at = begin + next,
            _ => break,
        }
    }
    number
}
