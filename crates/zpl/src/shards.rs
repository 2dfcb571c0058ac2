//! Tables of objects in parts, each behind a lock of its own.

use platter_ondisk::ObjectId;

/// How many parts.
pub(crate) const SHARDS: usize = 64;

/// The part that `object` is in. Numbers come in steps where dnodes are large: an object takes those of all its slots.
pub(crate) fn shard_of(object: ObjectId) -> usize {
    (object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_steps_are_in_all_parts() {
        for step in [1, 2, 4, 8, 32, 128] {
            let mut counts = [0; SHARDS];
            (0..6400).for_each(|index| counts[shard_of(ObjectId(index * step))] += 1);
            assert!(counts.iter().all(|count| (80..120).contains(count)), "{step}: {counts:?}");
        }
    }
}
