//! The properties that say how blocks are written: `checksum` and `compression` with their numbers as stored, and the
//! feature that each needs (`module/zcommon/zfs_prop.c`, `zio_checksum_to_feature`, `zio_compress_to_feature`).

use platter_ondisk::features::Feature;
use platter_ondisk::types::{checksum, compression};

use crate::error::{Refused, Result};
use crate::property_kind::Kind;
use crate::stored_property::StoredProperty;

/// Bits of the compression number; a zstd level stands above them (`SPA_COMPRESSBITS`).
pub const COMPRESSION_BITS: u32 = 7;

/// Values of `checksum`.
pub const CHECKSUMS: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
]);

/// Values of `compression`. A zstd level is the number of `enum zio_zstd_levels`: the fast ones begin at 103.
pub const COMPRESSIONS: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-1", 16 | 1 << COMPRESSION_BITS),
    ("zstd-2", 16 | 2 << COMPRESSION_BITS),
    ("zstd-3", 16 | 3 << COMPRESSION_BITS),
    ("zstd-4", 16 | 4 << COMPRESSION_BITS),
    ("zstd-5", 16 | 5 << COMPRESSION_BITS),
    ("zstd-6", 16 | 6 << COMPRESSION_BITS),
    ("zstd-7", 16 | 7 << COMPRESSION_BITS),
    ("zstd-8", 16 | 8 << COMPRESSION_BITS),
    ("zstd-9", 16 | 9 << COMPRESSION_BITS),
    ("zstd-10", 16 | 10 << COMPRESSION_BITS),
    ("zstd-11", 16 | 11 << COMPRESSION_BITS),
    ("zstd-12", 16 | 12 << COMPRESSION_BITS),
    ("zstd-13", 16 | 13 << COMPRESSION_BITS),
    ("zstd-14", 16 | 14 << COMPRESSION_BITS),
    ("zstd-15", 16 | 15 << COMPRESSION_BITS),
    ("zstd-16", 16 | 16 << COMPRESSION_BITS),
    ("zstd-17", 16 | 17 << COMPRESSION_BITS),
    ("zstd-18", 16 | 18 << COMPRESSION_BITS),
    ("zstd-19", 16 | 19 << COMPRESSION_BITS),
    ("zstd-fast", 16 | 103 << COMPRESSION_BITS),
    ("zstd-fast-1", 16 | 103 << COMPRESSION_BITS),
    ("zstd-fast-2", 16 | 104 << COMPRESSION_BITS),
    ("zstd-fast-3", 16 | 105 << COMPRESSION_BITS),
    ("zstd-fast-4", 16 | 106 << COMPRESSION_BITS),
    ("zstd-fast-5", 16 | 107 << COMPRESSION_BITS),
    ("zstd-fast-6", 16 | 108 << COMPRESSION_BITS),
    ("zstd-fast-7", 16 | 109 << COMPRESSION_BITS),
    ("zstd-fast-8", 16 | 110 << COMPRESSION_BITS),
    ("zstd-fast-9", 16 | 111 << COMPRESSION_BITS),
    ("zstd-fast-10", 16 | 112 << COMPRESSION_BITS),
    ("zstd-fast-20", 16 | 113 << COMPRESSION_BITS),
    ("zstd-fast-30", 16 | 114 << COMPRESSION_BITS),
    ("zstd-fast-40", 16 | 115 << COMPRESSION_BITS),
    ("zstd-fast-50", 16 | 116 << COMPRESSION_BITS),
    ("zstd-fast-60", 16 | 117 << COMPRESSION_BITS),
    ("zstd-fast-70", 16 | 118 << COMPRESSION_BITS),
    ("zstd-fast-80", 16 | 119 << COMPRESSION_BITS),
    ("zstd-fast-90", 16 | 120 << COMPRESSION_BITS),
    ("zstd-fast-100", 16 | 121 << COMPRESSION_BITS),
    ("zstd-fast-500", 16 | 122 << COMPRESSION_BITS),
    ("zstd-fast-1000", 16 | 123 << COMPRESSION_BITS),
]);

/// The feature that a block with this checksum activates.
pub fn checksum_feature(kind: u8) -> Option<Feature> {
    match kind {
        checksum::SHA512 => Some(Feature::Sha512),
        checksum::SKEIN => Some(Feature::Skein),
        checksum::EDONR => Some(Feature::Edonr),
        checksum::BLAKE3 => Some(Feature::Blake3),
        _ => None,
    }
}

/// The feature that a block with this compression activates, beyond those that are active from the start.
pub fn compression_feature(kind: u8) -> Option<Feature> {
    (kind == compression::ZSTD).then_some(Feature::ZstdCompress)
}

/// Refuses a value whose blocks the pool's features do not allow (`zfs_check_settable`).
///
/// # Errors
/// The feature that would have to be enabled.
pub fn check_features(is_enabled: impl Fn(Feature) -> bool, property: &str, value: &StoredProperty) -> Result<()> {
    let StoredProperty::Number(number) = value else { return Ok(()) };
    let kind = (number & ((1 << COMPRESSION_BITS) - 1)) as u8;
    let needed = match property {
        "checksum" => checksum_feature(kind),
        "compression" => compression_feature(kind),
        _ => None,
    };
    match needed.filter(|&feature| !is_enabled(feature)) {
        None => Ok(()),
        Some(feature) => Err(Refused::Unsupported(format!(
            "pool and or dataset must be upgraded to set this property or value: the feature {} is not enabled",
            feature.guid()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_zstd_levels_are_those_of_the_block_header() {
        let Kind::Index(values) = COMPRESSIONS else { panic!("an enumeration") };
        for (name, number) in values {
            let Some(level) = name.strip_prefix("zstd-") else { continue };
            let asked: i32 = match level.strip_prefix("fast") {
                Some("") => -1,
                Some(fast) => format!("-{}", &fast[1..]).parse().unwrap(),
                None => level.parse().unwrap(),
            };
            assert_eq!(number & 127, u64::from(compression::ZSTD), "{name}");
            let stored = platter_compress::zstd_level_to_stored(asked).map(u64::from);
            assert_eq!(Some(number >> COMPRESSION_BITS), stored, "{name}");
        }
    }
}
