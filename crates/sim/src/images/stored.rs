//! How blocks are stored: on their own, in parts behind a gang header, inside their pointer, or in an intent log.

use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_ondisk::blkptr::{BlkPtr, Dva, EMBEDDED_PAYLOAD_MAX};
use platter_ondisk::sector::{SECTOR, Sectors};
use platter_ondisk::zil::block::Layout;
use platter_ondisk::{Checksum, Compression};
use platter_ondisk::{embedded, gang};
use platter_vdev::{Extent, TopVdev};
use platter_zio::Priority;

use super::log_block as log;

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On its own; its checksum is in its pointer.
    Plain,
    /// In parts; what it holds is its contents, put together.
    Gang,
    /// The header of a gang block. Its checksum is in itself.
    GangHeader,
    /// In its pointer.
    Embedded,
    /// In an intent log: its checksum is in itself, and starts from what is in its pointer.
    Log(Layout),
}

/// Where the bits of a pointer's properties are.
const PROP: usize = 6;
/// Gang blocks inside gang blocks that are followed.
const DEPTH_MAX: u32 = 8;
/// What lies behind everything is given out in pieces of so many bytes.
const PIECE: u64 = 1 << 17;

impl Kind {
    /// How the block that `bp` leads to is stored, when it is not in a log.
    pub fn of(bp: &BlkPtr) -> Self {
        match (bp.is_embedded(), bp.is_gang()) {
            (true, _) => Self::Embedded,
            (_, true) => Self::Gang,
            _ => Self::Plain,
        }
    }
}

async fn extent(
    tops: &[TopVdev],
    bp: &BlkPtr,
    psize: u64,
    verify: &(impl Fn(&[u8]) -> bool + Send + Sync),
) -> Option<Vec<u8>> {
    let dva = bp.dva(0);
    let extent = Extent { offset: dva.offset, psize, birth: bp.physical_birth(), speculative: false, checked: true };
    let (stored, _) = tops.get(dva.vdev as usize)?.read(extent, Priority::SyncRead, verify).await.ok()?;
    Some(stored.to_vec())
}

/// The header of a gang block.
pub async fn gang_header(tops: &[TopVdev], bp: &BlkPtr) -> Option<Vec<u8>> {
    let verifier = gang::verifier(&bp.dva(0), bp.physical_birth());
    extent(tops, bp, gang::HEADER_SIZE as u64, &|bytes| gang::verify(bytes, verifier, sha256)).await
}

/// A block of an intent log.
pub async fn log_block(tops: &[TopVdev], bp: &BlkPtr, layout: Layout) -> Option<Vec<u8>> {
    extent(tops, bp, bp.psize(), &|bytes| log::is_good(layout, bytes, bp.checksum())).await
}

/// The stored bytes of a block.
async fn payload(tops: &[TopVdev], bp: &BlkPtr, depth: u32) -> Option<Vec<u8>> {
    let good = |bytes: &[u8]| platter_checksum::compute(bp.checksum_kind(), bytes) == Some(bp.checksum());
    if !bp.is_gang() {
        return extent(tops, bp, bp.psize(), &good).await;
    }
    let mut whole = Vec::new();
    for part in gang::pointers(&gang_header(tops, bp).await?).into_iter().filter(|part| !part.is_hole()) {
        (depth < DEPTH_MAX).then_some(())?;
        whole.extend(Box::pin(payload(tops, &part, depth + 1)).await?);
    }
    good(&whole).then_some(whole)
}

/// The contents of a block that is not in a log.
pub async fn read(tops: &[TopVdev], bp: &BlkPtr) -> Option<Vec<u8>> {
    let stored = if bp.is_embedded() { bp.embedded_payload() } else { payload(tops, bp, 0).await? };
    let mut data = vec![0; bp.lsize() as usize];
    if bp.is_embedded() && bp.compression() == Compression::OFF {
        data.get_mut(..stored.len())?.copy_from_slice(&stored);
    } else {
        platter_compress::decompress(bp.compression(), &stored, &mut data).ok()?;
    }
    Some(data)
}

fn compress(kind: Compression, data: &[u8]) -> Option<Vec<u8>> {
    let mut stored = vec![0; data.len()];
    let length = platter_compress::compress(kind, platter_compress::LEVEL_DEFAULT, data, &mut stored)?;
    stored.truncate(length);
    (length > 0).then_some(stored)
}

/// Writes a block where it was when it still fits there, else behind everything. Returns its pointer, if whoever points
/// to it has to know: what has its checksum in itself stays what it was.
pub async fn write(tops: &[TopVdev], kind: Kind, old: &BlkPtr, data: Vec<u8>, free: &mut u64) -> Option<BlkPtr> {
    match kind {
        Kind::GangHeader => {
            let mut data = data;
            embedded::seal(&mut data, gang::verifier(&old.dva(0), old.physical_birth()), sha256);
            put(tops, old, &data).await;
            None
        }
        Kind::Log(layout) => {
            let mut data = data;
            log::seal(layout, &mut data, old.checksum());
            put(tops, old, &data).await;
            None
        }
        Kind::Embedded => {
            if let Some(stored) = compress(old.compression(), &data).filter(|s| s.len() <= EMBEDDED_PAYLOAD_MAX) {
                let (lsize, birth) = (old.lsize(), old.birth());
                return Some(BlkPtr::embed(&stored, lsize, old.compression(), old.object_type(), old.level(), birth));
            }
            let size = (data.len() as u64).is_multiple_of(SECTOR).then_some(data.len() as u64)?;
            let (kind, level, birth) = (old.object_type(), old.level(), old.birth());
            let mut bp = BlkPtr::describe(size, size, Compression::OFF, Checksum::FLETCHER_4, kind, level, birth);
            bp.set_fill(old.fill());
            bp.set_dva(0, Dva { vdev: 0, offset: 0, asize: SECTOR, gang: false });
            plain(tops, &bp, &data, free, true).await
        }
        Kind::Gang => {
            let mut bp = *old;
            let dvas: Vec<Dva> = old.dvas().collect();
            for (index, dva) in dvas.into_iter().enumerate() {
                bp.set_dva(index, Dva { gang: false, ..dva });
            }
            plain(tops, &bp, &data, free, true).await
        }
        Kind::Plain => plain(tops, old, &data, free, false).await,
    }
}

async fn plain(tops: &[TopVdev], old: &BlkPtr, data: &[u8], free: &mut u64, moves: bool) -> Option<BlkPtr> {
    let first = old.dva(0);
    let top = tops.get(first.vdev as usize)?;
    let sector = 1usize << top.ashift();
    let (stored, kind) = match compress(old.compression(), data) {
        Some(mut stored) if stored.len().next_multiple_of(sector) < data.len() => {
            stored.resize(stored.len().next_multiple_of(sector), 0);
            (stored, old.compression())
        }
        _ => (data.to_vec(), Compression::OFF),
    };
    let mut bp = *old;
    let prop = bp.words[PROP] & !(0xffff << 16) & !(0x7f << 32);
    bp.words[PROP] = prop | (Sectors::of(stored.len() as u64).0 - 1) << 16 | u64::from(kind.number()) << 32;
    bp.set_checksum(platter_checksum::compute(old.checksum_kind(), &stored)?);
    if moves || stored.len() as u64 > old.psize() {
        let asize = top.asize_for(stored.len() as u64);
        let dva = Dva { offset: *free, asize, ..first };
        *free += asize.next_multiple_of(PIECE);
        for index in 0..old.copies() {
            bp.set_dva(index, dva);
        }
    }
    put(tops, &bp, &stored).await.then_some(bp)
}

/// Writes every copy.
async fn put(tops: &[TopVdev], bp: &BlkPtr, stored: &[u8]) -> bool {
    for dva in bp.dvas() {
        let Some(top) = tops.get(dva.vdev as usize) else { return false };
        let written = top.write(dva.offset, Buf::copy_from(stored), bp.physical_birth(), Priority::SyncWrite).await;
        if written.is_err() {
            return false;
        }
    }
    true
}
