//! The partition table that a whole disk gets when it joins a pool, and how it is found again (UEFI specification,
//! chapter 5; OpenZFS: `lib/libefi/rdwr_efi.c`, `lib/libzfs/os/linux/libzfs_pool_os.c`).
//!
//! Invariants:
//! - sector 0 is a protective MBR, sector 1 the header, then 128 entries of 128 bytes; the last sectors mirror both;
//! - partition 1 begins at 1 MiB, ends on a 1 MiB boundary relative to its start, and holds the pool; partition 9 is
//!   the 8 MiB reserve directly behind it;
//! - a table is believed only when its header's and its entries' CRC32 agree; the backup serves when the primary does
//!   not.

use platter_buffer::{Buf, BufMut};

use crate::block_device::BlockDevice;
use crate::error::{DeviceError, Result};
use crate::partition::Partition;

/// Where a new pool partition begins, in bytes (`NEW_START_BLOCK` of 2048 sectors).
pub const DATA_START: u64 = 1 << 20;
/// Size of the reserved partition in bytes (`EFI_MIN_RESV_SIZE` of 16384 sectors).
pub const RESERVED_SIZE: u64 = 8 << 20;
/// Sectors to which the pool partition's size is rounded down (`PARTITION_END_ALIGNMENT`).
const SIZE_ALIGNMENT_SECTORS: u64 = 2048;
/// Least size of a pool's device, in bytes (`SPA_MINDEVSIZE`).
const DATA_SIZE_MIN: u64 = 64 << 20;

const SIGNATURE: [u8; 8] = *b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_SIZE: usize = 92;
const ENTRIES: usize = 128;
const ENTRY_SIZE: usize = 128;
/// Bounds what a table read from a disk may claim.
const ENTRIES_MAX: usize = 4096;
const DATA_INDEX: usize = 0;
const RESERVED_INDEX: usize = 8;

/// "Solaris /usr & Apple ZFS", 6A898CC3-1DD2-11B2-99A6-080020736631, as it stands on disk.
pub const TYPE_ZFS: [u8; 16] =
    [0xc3, 0x8c, 0x89, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];
/// "Solaris reserved 1", 6A945A3B-1DD2-11B2-99A6-080020736631.
pub const TYPE_RESERVED: [u8; 16] =
    [0x3b, 0x5a, 0x94, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31];
/// "FreeBSD ZFS", 516E7CBA-6ECF-11D6-8FF8-00022D09712B: what FreeBSD's installer makes.
pub const TYPE_FREEBSD_ZFS: [u8; 16] =
    [0xba, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b];

/// The random numbers of a new table; handed in so that the table is reproducible.
#[derive(Clone, Copy, Debug)]
pub struct GptIds {
    /// Identity of the disk.
    pub disk: [u8; 16],
    /// Identity of the pool's partition.
    pub data: [u8; 16],
    /// Identity of the reserved partition.
    pub reserved: [u8; 16],
    /// Goes into the partition's name `zfs-<16 hex digits>`, which must be unique on a machine.
    pub label: u64,
}

impl GptIds {
    /// Identities made of 56 random bytes (version-4 UUIDs).
    pub fn from_random(bytes: &[u8; 56]) -> Self {
        let uuid = |at: usize| {
            let mut id: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes");
            id[7] = id[7] & 0x0f | 0x40;
            id[8] = id[8] & 0x3f | 0x80;
            id
        };
        let label = u64::from_le_bytes(bytes[48..].try_into().expect("eight bytes"));
        Self { disk: uuid(0), data: uuid(16), reserved: uuid(32), label }
    }
}

/// The pieces of a new table: what to write where, and what partition 1 will be.
#[derive(Debug)]
pub struct Layout {
    /// Byte offset and contents, in the order in which they are to be written.
    pub writes: Vec<(u64, Buf)>,
    /// The pool's partition.
    pub data: Partition,
    /// The reserved partition.
    pub reserved: Partition,
}

struct Header {
    own: u64,
    other: u64,
    first_usable: u64,
    last_usable: u64,
    entries_at: u64,
    disk: [u8; 16],
    entries_crc: u32,
}

impl Header {
    fn encode(&self, sector: usize) -> Buf {
        let mut out = BufMut::zeroed(sector);
        out[..8].copy_from_slice(&SIGNATURE);
        out[8..12].copy_from_slice(&REVISION.to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_SIZE as u32).to_le_bytes());
        let words = [self.own, self.other, self.first_usable, self.last_usable];
        for (index, word) in words.into_iter().enumerate() {
            out[24 + 8 * index..32 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        out[56..72].copy_from_slice(&self.disk);
        out[72..80].copy_from_slice(&self.entries_at.to_le_bytes());
        out[80..84].copy_from_slice(&(ENTRIES as u32).to_le_bytes());
        out[84..88].copy_from_slice(&(ENTRY_SIZE as u32).to_le_bytes());
        out[88..92].copy_from_slice(&self.entries_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..HEADER_SIZE]);
        out[16..20].copy_from_slice(&crc.to_le_bytes());
        out.freeze()
    }
}

/// Computes the table for a disk of `size` bytes with `sector`-byte logical sectors.
///
/// # Errors
/// [`DeviceError::TooSmall`] when less than 64 MiB would be left for the pool.
pub fn layout(device: &str, size: u64, sector: u32, ids: &GptIds) -> Result<Layout> {
    let sector = u64::from(sector.max(512));
    let too_small = || {
        let least = DATA_START + DATA_SIZE_MIN + RESERVED_SIZE + (2 << 20);
        DeviceError::TooSmall { device: device.to_owned(), size, least }
    };
    let table_sectors = ((ENTRIES * ENTRY_SIZE) as u64).div_ceil(sector);
    let last = (size / sector).checked_sub(1).ok_or_else(too_small)?;
    let first_usable = 1 + 1 + table_sectors;
    let last_usable = last.checked_sub(table_sectors + 1).ok_or_else(too_small)?;
    let start = DATA_START / sector;
    let reserve = RESERVED_SIZE / sector;
    let room = (last_usable + 1).checked_sub(reserve + start).ok_or_else(too_small)?;
    let data_sectors = room / SIZE_ALIGNMENT_SECTORS * SIZE_ALIGNMENT_SECTORS;
    if data_sectors * sector < DATA_SIZE_MIN {
        return Err(too_small());
    }
    let name = format!("zfs-{:016x}", ids.label);
    let mut entries = BufMut::zeroed((table_sectors * sector) as usize);
    encode_entry(&mut entries, DATA_INDEX, &TYPE_ZFS, &ids.data, start, data_sectors, &name);
    encode_entry(&mut entries, RESERVED_INDEX, &TYPE_RESERVED, &ids.reserved, start + data_sectors, reserve, "");
    let entries_crc = crc32fast::hash(&entries[..ENTRIES * ENTRY_SIZE]);
    let entries = entries.freeze();
    let header = |own, other, entries_at| {
        Header { own, other, first_usable, last_usable, entries_at, disk: ids.disk, entries_crc }
            .encode(sector as usize)
    };
    let partition = |index: usize, kind, start: u64, sectors: u64, name: &str| Partition {
        number: index as u32 + 1,
        kind,
        start: start * sector,
        size: sectors * sector,
        name: name.to_owned(),
    };
    let layout = Layout {
        writes: vec![
            (2 * sector, entries.clone()),
            (sector, header(1, last, 2)),
            ((last_usable + 1) * sector, entries),
            (last * sector, header(last, 1, last_usable + 1)),
            (0, protective_mbr(last, sector as usize)),
        ],
        data: partition(DATA_INDEX, TYPE_ZFS, start, data_sectors, &name),
        reserved: partition(RESERVED_INDEX, TYPE_RESERVED, start + data_sectors, reserve, ""),
    };
    layout.assert_internally_consistent(first_usable * sector, (last_usable + 1) * sector, size);
    Ok(layout)
}

impl Layout {
    /// The partitions lie behind each other in what is `usable`, and the tables before and behind that, on a disk of
    /// `size` bytes.
    fn assert_internally_consistent(&self, usable: u64, usable_end: u64, size: u64) {
        let Self { writes, data, reserved } = self;
        assert!(usable <= data.start && data.size >= DATA_SIZE_MIN, "the pool's partition begins behind the table");
        assert!(data.size.is_multiple_of(1 << 20), "the pool's partition ends on a boundary");
        assert_eq!(data.start + data.size, reserved.start, "the reserve is directly behind the pool's partition");
        assert!(reserved.start + reserved.size <= usable_end, "the partitions end before the backup");
        for (at, bytes) in writes {
            let end = at + bytes.len() as u64;
            assert!(end <= usable || (usable_end <= *at && end <= size), "a table at {at} is beside the partitions");
        }
    }
}

fn encode_entry(table: &mut [u8], index: usize, kind: &[u8; 16], id: &[u8; 16], start: u64, sectors: u64, name: &str) {
    let entry = &mut table[index * ENTRY_SIZE..(index + 1) * ENTRY_SIZE];
    entry[..16].copy_from_slice(kind);
    entry[16..32].copy_from_slice(id);
    entry[32..40].copy_from_slice(&start.to_le_bytes());
    entry[40..48].copy_from_slice(&(start + sectors - 1).to_le_bytes());
    for (unit, out) in name.encode_utf16().zip(entry[56..].chunks_exact_mut(2)) {
        out.copy_from_slice(&unit.to_le_bytes());
    }
}

/// One partition of type 0xEE over the whole disk, so that tools without GPT see it as taken.
fn protective_mbr(last: u64, sector: usize) -> Buf {
    let mut out = BufMut::zeroed(sector);
    let entry = &mut out[446..462];
    entry[1..4].fill(0xff);
    entry[4] = 0xee;
    entry[5..8].fill(0xff);
    entry[8..12].copy_from_slice(&1u32.to_le_bytes());
    entry[12..16].copy_from_slice(&u32::try_from(last).unwrap_or(u32::MAX).to_le_bytes());
    out[510..512].copy_from_slice(&[0x55, 0xaa]);
    out.freeze()
}

/// Writes the table to a whole disk and flushes it. Everything on the disk is lost. Old labels in the first MiB and in
/// the partitions' place are left alone; the caller clears those.
///
/// # Errors
/// [`DeviceError::TooSmall`], or what the device answers.
pub async fn write(device: &dyn BlockDevice, ids: &GptIds) -> Result<Layout> {
    let layout = layout(&device.name(), device.size(), device.geometry().logical_block, ids)?;
    for (offset, bytes) in &layout.writes {
        device.write(*offset, vec![bytes.clone()]).await?;
    }
    device.flush().await?;
    Ok(layout)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads the table whose header is at sector `at`; `None` when there is no intact one.
async fn read_at(device: &dyn BlockDevice, at: u64, sector: u64) -> Result<Option<Vec<Partition>>> {
    let header = device.read(at * sector, sector as usize).await?;
    let header_size = word32(&header, 12) as usize;
    if header[..8] != SIGNATURE || header_size < HEADER_SIZE || header_size > header.len() || word64(&header, 24) != at
    {
        return Ok(None);
    }
    let mut covered = header[..header_size].to_vec();
    covered[16..20].fill(0);
    if crc32fast::hash(&covered) != word32(&header, 16) {
        return Ok(None);
    }
    let (entries_at, count, entry_size) =
        (word64(&header, 72), word32(&header, 80) as usize, word32(&header, 84) as usize);
    if !(1..=ENTRIES_MAX).contains(&count) || !entry_size.is_multiple_of(128) || !(128..=1024).contains(&entry_size) {
        return Ok(None);
    }
    let Some(offset) = entries_at.checked_mul(sector) else { return Ok(None) };
    let length = (count * entry_size).next_multiple_of(sector as usize);
    if offset.checked_add(length as u64).is_none_or(|end| end > device.size()) {
        return Ok(None);
    }
    let table = device.read(offset, length).await?;
    let table = &table[..count * entry_size];
    if crc32fast::hash(table) != word32(&header, 88) {
        return Ok(None);
    }
    let mut partitions = Vec::new();
    for (index, entry) in table.chunks_exact(entry_size).enumerate() {
        let (first, last) = (word64(entry, 32), word64(entry, 40));
        let end = last.checked_add(1).and_then(|end| end.checked_mul(sector));
        if entry[..16] == [0; 16] || first > last || end.is_none_or(|end| end > device.size()) {
            continue;
        }
        let units: Vec<u16> =
            entry[56..128].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let units = units.split(|&unit| unit == 0).next().unwrap_or_default();
        partitions.push(Partition {
            number: index as u32 + 1,
            kind: entry[..16].try_into().expect("sixteen bytes"),
            start: first * sector,
            size: (last - first + 1) * sector,
            name: String::from_utf16_lossy(units),
        });
    }
    Ok(Some(partitions))
}

/// The partitions of a disk, by number; `None` when it has no intact table. Entries that leave the disk are skipped.
///
/// # Errors
/// What the device answers.
pub async fn read(device: &dyn BlockDevice) -> Result<Option<Vec<Partition>>> {
    let sector = u64::from(device.geometry().logical_block.max(512));
    let sectors = device.size() / sector;
    if sectors < 3 {
        return Ok(None);
    }
    match read_at(device, 1, sector).await {
        Ok(None) | Err(DeviceError::Io { .. }) => read_at(device, sectors - 1, sector).await,
        answer => answer,
    }
}

/// The partition that holds (or would hold) a pool: the first of a ZFS type.
///
/// # Errors
/// What the device answers.
pub async fn zfs_partition(device: &dyn BlockDevice) -> Result<Option<Partition>> {
    let partitions = read(device).await?.unwrap_or_default();
    Ok(partitions.into_iter().find(|p| p.kind == TYPE_ZFS || p.kind == TYPE_FREEBSD_ZFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Geometry, MemDevice};

    fn ids() -> GptIds {
        GptIds::from_random(&std::array::from_fn(|index| (index as u8).wrapping_mul(7) + 1))
    }

    #[tokio::test]
    async fn a_written_table_is_read_back_from_either_copy() {
        for sector in [512u32, 4096] {
            let geometry = Geometry { logical_block: sector, physical_block: sector };
            let device = MemDevice::with_geometry("disk", (300 << 20) + 8192, geometry);
            let layout = write(&device, &ids()).await.expect("write");
            assert_eq!(layout.data.start, 1 << 20);
            assert_eq!(layout.data.size % (2048 * u64::from(sector)), 0);
            assert_eq!(layout.reserved.start, layout.data.start + layout.data.size);
            assert_eq!(layout.reserved.size, 8 << 20);
            assert_eq!(layout.data.name, format!("zfs-{:016x}", ids().label));
            let wanted = vec![layout.data.clone(), layout.reserved.clone()];
            assert_eq!(read(&device).await.expect("read"), Some(wanted.clone()));
            assert_eq!(zfs_partition(&device).await.expect("read"), Some(layout.data));
            device.poke(u64::from(sector) + 40, &[0xff]);
            assert_eq!(read(&device).await.expect("backup"), Some(wanted));
            device.poke(device.size() - u64::from(sector), &[0; 512]);
            assert_eq!(read(&device).await.expect("none"), None);
        }
    }

    #[test]
    fn facts_of_the_layout_for_512_byte_sectors() {
        // 1 GiB: header 1, entries 2..=33, first usable 34; last sector 2097151; data from 2048.
        let layout = layout("disk", 1 << 30, 512, &ids()).expect("layout");
        let header = &layout.writes[1].1;
        assert_eq!((word64(header, 24), word64(header, 32)), (1, 2_097_151));
        assert_eq!((word64(header, 40), word64(header, 48)), (34, 2_097_151 - 33));
        assert_eq!(layout.data.start / 512, 2048);
        assert_eq!(layout.data.size / 512, (2_097_152 - 33 - 16384 - 2048) / 2048 * 2048);
        let mbr = &layout.writes[4].1;
        assert_eq!((mbr[450], mbr[510], mbr[511]), (0xee, 0x55, 0xaa));
    }

    #[test]
    fn a_small_disk_is_refused() {
        for size in [0, 512, 1 << 20, 72 << 20] {
            assert!(matches!(layout("disk", size, 512, &ids()), Err(DeviceError::TooSmall { .. })));
        }
        layout("disk", 80 << 20, 512, &ids()).expect("large enough");
    }

    proptest::proptest! {
        /// Tables whose checksums agree but whose contents are arbitrary give partitions within the disk, or none.
        #[test]
        fn hostile_tables_do_no_harm(
            fields in proptest::collection::vec((8usize..92, proptest::prelude::any::<u8>()), 0..12),
            entries in proptest::collection::vec((0usize..16384, proptest::prelude::any::<u8>()), 0..40),
        ) {
            let size = 128u64 << 20;
            let layout = layout("disk", size, 512, &ids()).expect("layout");
            let (mut table, mut header) = (layout.writes[0].1.to_vec(), layout.writes[1].1.to_vec());
            for (at, value) in entries {
                table[at] = value;
            }
            header[88..92].copy_from_slice(&crc32fast::hash(&table).to_le_bytes());
            for (at, value) in fields {
                header[at] = value;
            }
            header[16..20].fill(0);
            let covered = (word32(&header, 12) as usize).min(512);
            let crc = crc32fast::hash(&header[..covered]);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            let device = MemDevice::new("disk", size);
            device.poke(512, &header);
            device.poke(1024, &table);
            let found = futures::executor::block_on(read(&device)).expect("memory does not fail");
            for partition in found.unwrap_or_default() {
                assert!(partition.start + partition.size <= size);
            }
        }
    }

    #[tokio::test]
    async fn garbage_is_no_table() {
        let device = MemDevice::new("disk", 64 << 20);
        assert_eq!(read(&device).await.expect("zeros"), None);
        let noise: Vec<u8> = (0..65536u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        device.poke(0, &noise);
        device.poke(512, &SIGNATURE);
        assert_eq!(read(&device).await.expect("noise"), None);
    }
}
