//! How much of a hash counts, and a place in the order of hashes.

/// `ZAP_FLAG_HASH64`: 48 bits of the hash are used instead of 28.
pub const FLAG_HASH64: u64 = 1;
/// `ZAP_FLAG_UINT64_KEY`: names are arrays of 64-bit words.
pub const FLAG_UINT64_KEY: u64 = 2;
/// `ZAP_FLAG_PRE_HASHED_KEY`: the name's first word serves as its hash.
pub const FLAG_PRE_HASHED_KEY: u64 = 4;

/// Bits of the 64-bit hash in use under `flags` (`zap_hashbits`).
pub const fn hash_bits(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { 48 } else { 28 }
}

/// Largest collision differentiator plus one under `flags` (`zap_maxcd`).
pub const fn cd_limit(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { 0xffff } else { u32::MAX }
}

/// A place in hash order as one word: the hash in the low [`hash_bits`] bits, the collision differentiator above
/// (`zap_cursor_serialize`).
pub const fn cursor(hash: u64, cd: u32, flags: u64) -> u64 {
    let bits = hash_bits(flags);
    hash >> (64 - bits) | (cd as u64) << bits
}

/// The hash and collision differentiator of a [`cursor`].
pub const fn cursor_parts(cursor: u64, flags: u64) -> (u64, u32) {
    let bits = hash_bits(flags);
    let cd = cursor >> bits;
    (cursor << (64 - bits), if cd >= cd_limit(flags) as u64 { 0 } else { cd as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_keeps_hash_and_differentiator() {
        for flags in [0, FLAG_HASH64] {
            let hash = 0xfedc_ba98_7654_3210 & !(u64::MAX >> hash_bits(flags));
            assert_eq!(cursor_parts(cursor(hash, 5, flags), flags), (hash, 5));
        }
        assert_eq!(cursor_parts(0, 0), (0, 0));
    }
}
