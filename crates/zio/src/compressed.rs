//! What blocks compress to, and what those did that are written again as they are.
//!
//! Invariants: what was kept is what the same bytes compress to in the same way: a buffer that somebody may change is
//! another one.

use std::cell::RefCell;
use std::collections::VecDeque;

use parking_lot::Mutex;
use platter_buffer::{Buf, BufMut, WeakBuf};
use platter_ondisk::Compression;
use platter_ondisk::blkptr::EMBEDDED_PAYLOAD_MAX;

use crate::policy::WritePolicy;

/// A worker keeps what it compressed to when that is at most one part in so many of what buffers may be kept.
const SCRATCH_PART: usize = 4;

/// Blocks whose compressed form is kept, each at most 112 KiB.
const KEPT_MAX: usize = 48;
/// Larger ones are not kept, in bytes.
const KEPT_SIZE_MAX: usize = 128 << 10;

thread_local! {
    /// Where a worker compresses to; what a block then keeps is only as long as the result.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The compressed form of a block, or the block itself.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) bytes: Buf,
    pub(crate) compression: Compression,
    /// Bytes before padding.
    pub(crate) used: usize,
}

impl Payload {
    /// The block itself.
    pub(crate) fn plain(data: &Buf) -> Self {
        Self { bytes: data.clone(), compression: Compression::OFF, used: data.len() }
    }
}

/// A block compressed as the policy says; the block itself when that saves too little. `unit` is the allocation unit,
/// in bytes.
pub(crate) fn compressed(data: &Buf, policy: &WritePolicy, unit: u64) -> Payload {
    // At least an eighth must be saved (zio_compress_data).
    let limit = data.len() - data.len() / 8;
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < limit {
            scratch.resize(limit, 0);
        }
        let out = &mut scratch[..limit];
        let used = platter_compress::compress(policy.compression, policy.compression_level, data, out);
        let fits = used.map(|used| (used, (used as u64).next_multiple_of(unit) as usize));
        let payload = match fits.filter(|&(used, padded)| padded < data.len() || used <= EMBEDDED_PAYLOAD_MAX) {
            None => Payload::plain(data),
            Some((used, padded)) => {
                let mut bytes = BufMut::zeroed(padded);
                bytes[..used].copy_from_slice(&out[..used]);
                Payload { bytes: bytes.freeze(), compression: policy.compression, used }
            }
        };
        if scratch.len() > platter_buffer::idle_max() / SCRATCH_PART {
            *scratch = Vec::new();
        }
        payload
    })
}

/// How a block was compressed: the algorithm, its level and the allocation unit.
type How = (Compression, i32, u64);

fn how(policy: &WritePolicy, unit: u64) -> How {
    (policy.compression, policy.compression_level, unit)
}

struct Kept {
    of: WeakBuf,
    how: How,
    payload: Payload,
}

/// What the latest blocks compressed to that are likely to be written again elsewhere, for as long as somebody has
/// them.
#[derive(Default)]
pub(crate) struct CompressedBefore(Mutex<VecDeque<Kept>>);

impl CompressedBefore {
    /// What `data` compressed to when it was written so the last time.
    pub(crate) fn get(&self, data: &Buf, policy: &WritePolicy, unit: u64) -> Option<Payload> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|kept| kept.of.is(data) && kept.how == how(policy, unit))?;
        // It was wanted, and is kept for longer.
        let same = kept.remove(at)?;
        let payload = same.payload.clone();
        debug_assert_eq!(payload.bytes, compressed(data, policy, unit).bytes, "what the same bytes compress to");
        kept.push_front(same);
        Some(payload)
    }

    /// Keeps what `data` compressed to, when it became smaller.
    pub(crate) fn keep(&self, data: &Buf, policy: &WritePolicy, unit: u64, payload: &Payload) {
        if payload.compression == Compression::OFF || data.len() > KEPT_SIZE_MAX {
            return;
        }
        let new = Kept { of: data.downgrade(), how: how(policy, unit), payload: payload.clone() };
        let mut kept = self.0.lock();
        kept.retain(|kept| kept.of.is_held());
        kept.truncate(KEPT_MAX - 1);
        kept.push_front(new);
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::{ObjectId, ObjectType, Txg};

    use super::*;
    use crate::Bookmark;

    fn policy(compression: Compression) -> WritePolicy {
        WritePolicy {
            txg: Txg(5),
            bookmark: Bookmark { objset: ObjectId(0), object: ObjectId(1), level: 0, blkid: 0 },
            object_type: ObjectType::DEADLIST,
            level: 0,
            checksum: platter_ondisk::Checksum::FLETCHER_4,
            compression,
            compression_level: 0,
            copies: 1,
            fill: 1,
            embed: false,
            hole: false,
            passing: false,
        }
    }

    #[test]
    fn only_the_same_bytes_compressed_in_the_same_way_are_found() {
        let (before, lz4) = (CompressedBefore::default(), policy(Compression::LZ4));
        let mut data = Buf::copy_from(&[7; 8192]);
        before.keep(&data, &lz4, 512, &compressed(&data, &lz4, 512));
        let found = |data: &Buf, policy: &WritePolicy, unit| before.get(data, policy, unit).is_some();
        assert!(found(&data.clone(), &lz4, 512));
        assert!(!found(&data, &policy(Compression::ZLE), 512));
        assert!(!found(&data, &lz4, 4096));
        assert!(!found(&data.slice(..4096), &lz4, 512));
        assert!(!found(&Buf::copy_from(&data), &lz4, 512), "equal bytes in another place are not looked for");
        data.make_mut()[0] = 1;
        assert!(!found(&data, &lz4, 512));
    }

    #[test]
    fn little_is_kept_and_only_while_the_block_is() {
        let (before, lz4) = (CompressedBefore::default(), policy(Compression::LZ4));
        let blocks: Vec<Buf> = (0..100).map(|byte| Buf::copy_from(&[byte; 4096])).collect();
        let keep = |data: &Buf| before.keep(data, &lz4, 512, &compressed(data, &lz4, 512));
        blocks.iter().for_each(keep);
        assert_eq!(before.0.lock().len(), KEPT_MAX);
        assert!(before.get(&blocks[99], &lz4, 512).is_some() && before.get(&blocks[0], &lz4, 512).is_none());
        let was_wanted = 100 - KEPT_MAX;
        assert!(before.get(&blocks[was_wanted], &lz4, 512).is_some());
        keep(&Buf::copy_from(&[1; 4096]));
        keep(&blocks[0]);
        keep(&blocks[1]);
        assert!(before.get(&blocks[was_wanted], &lz4, 512).is_some(), "what was wanted is kept for longer");
        assert!(before.get(&blocks[was_wanted + 1], &lz4, 512).is_none());
        drop(blocks);
        let last = Buf::copy_from(&[1; 4096]);
        keep(&last);
        assert_eq!(before.0.lock().len(), 1);
        keep(&Buf::zeroed(KEPT_SIZE_MAX + 4096));
        assert_eq!(before.0.lock().len(), 1, "a large one");
    }
}
