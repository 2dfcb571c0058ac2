//! The properties that say how blocks are written: `checksum` and `compression` with their numbers as stored, and the
//! feature that each needs (`module/zcommon/zfs_prop.c`, `zio_checksum_to_feature`, `zio_compress_to_feature`).

use platter_ondisk::features::Feature;
use platter_ondisk::{Checksum, Compression};

use crate::error::{Refused, Result};
use crate::property_kind::Kind;
use crate::stored_property::StoredProperty;

/// Bits of the compression number; a zstd level stands above them (`SPA_COMPRESSBITS`).
const COMPRESSION_BITS: u32 = 7;

/// What a value of `compression` says: the algorithm, and the level of a zstd, 0 where it has none
/// (`ZIO_COMPRESS_ALGO`, `ZIO_COMPRESS_LEVEL`, `include/sys/zio.h`).
pub const fn compression_and_level(value: u64) -> (Compression, u64) {
    let number = value & ((1 << COMPRESSION_BITS) - 1);
    (Compression::from_number(number as u8), value >> COMPRESSION_BITS)
}

const fn sum(checksum: Checksum) -> u64 {
    checksum.number() as u64
}

const fn plain(compression: Compression) -> u64 {
    compression.number() as u64
}

const fn zstd(level: u64) -> u64 {
    plain(Compression::ZSTD) | level << COMPRESSION_BITS
}

/// Values of `checksum`.
pub const CHECKSUMS: Kind = Kind::Index(&[
    ("on", sum(Checksum::ON)),
    ("off", sum(Checksum::OFF)),
    ("fletcher2", sum(Checksum::FLETCHER_2)),
    ("fletcher4", sum(Checksum::FLETCHER_4)),
    ("sha256", sum(Checksum::SHA256)),
    ("noparity", sum(Checksum::NOPARITY)),
    ("sha512", sum(Checksum::SHA512)),
    ("skein", sum(Checksum::SKEIN)),
    ("edonr", sum(Checksum::EDONR)),
    ("blake3", sum(Checksum::BLAKE3)),
]);

/// Values of `compression`. A zstd level is the number of `enum zio_zstd_levels`: the fast ones begin at 103.
pub const COMPRESSIONS: Kind = Kind::Index(&[
    ("on", plain(Compression::ON)),
    ("off", plain(Compression::OFF)),
    ("lzjb", plain(Compression::LZJB)),
    ("gzip", plain(Compression::GZIP_6)),
    ("gzip-1", plain(Compression::GZIP_1)),
    ("gzip-2", plain(Compression::GZIP_2)),
    ("gzip-3", plain(Compression::GZIP_3)),
    ("gzip-4", plain(Compression::GZIP_4)),
    ("gzip-5", plain(Compression::GZIP_5)),
    ("gzip-6", plain(Compression::GZIP_6)),
    ("gzip-7", plain(Compression::GZIP_7)),
    ("gzip-8", plain(Compression::GZIP_8)),
    ("gzip-9", plain(Compression::GZIP_9)),
    ("zle", plain(Compression::ZLE)),
    ("lz4", plain(Compression::LZ4)),
    ("zstd", plain(Compression::ZSTD)),
    ("zstd-1", zstd(1)),
    ("zstd-2", zstd(2)),
    ("zstd-3", zstd(3)),
    ("zstd-4", zstd(4)),
    ("zstd-5", zstd(5)),
    ("zstd-6", zstd(6)),
    ("zstd-7", zstd(7)),
    ("zstd-8", zstd(8)),
    ("zstd-9", zstd(9)),
    ("zstd-10", zstd(10)),
    ("zstd-11", zstd(11)),
    ("zstd-12", zstd(12)),
    ("zstd-13", zstd(13)),
    ("zstd-14", zstd(14)),
    ("zstd-15", zstd(15)),
    ("zstd-16", zstd(16)),
    ("zstd-17", zstd(17)),
    ("zstd-18", zstd(18)),
    ("zstd-19", zstd(19)),
    ("zstd-fast", zstd(103)),
    ("zstd-fast-1", zstd(103)),
    ("zstd-fast-2", zstd(104)),
    ("zstd-fast-3", zstd(105)),
    ("zstd-fast-4", zstd(106)),
    ("zstd-fast-5", zstd(107)),
    ("zstd-fast-6", zstd(108)),
    ("zstd-fast-7", zstd(109)),
    ("zstd-fast-8", zstd(110)),
    ("zstd-fast-9", zstd(111)),
    ("zstd-fast-10", zstd(112)),
    ("zstd-fast-20", zstd(113)),
    ("zstd-fast-30", zstd(114)),
    ("zstd-fast-40", zstd(115)),
    ("zstd-fast-50", zstd(116)),
    ("zstd-fast-60", zstd(117)),
    ("zstd-fast-70", zstd(118)),
    ("zstd-fast-80", zstd(119)),
    ("zstd-fast-90", zstd(120)),
    ("zstd-fast-100", zstd(121)),
    ("zstd-fast-500", zstd(122)),
    ("zstd-fast-1000", zstd(123)),
]);

/// The feature that a block with this checksum activates.
pub fn checksum_feature(kind: Checksum) -> Option<Feature> {
    match kind {
        Checksum::SHA512 => Some(Feature::Sha512),
        Checksum::SKEIN => Some(Feature::Skein),
        Checksum::EDONR => Some(Feature::Edonr),
        Checksum::BLAKE3 => Some(Feature::Blake3),
        _ => None,
    }
}

/// The feature that a block with this compression activates, beyond those that are active from the start.
pub fn compression_feature(kind: Compression) -> Option<Feature> {
    (kind == Compression::ZSTD).then_some(Feature::ZstdCompress)
}

/// Refuses a value whose blocks the pool's features do not allow (`zfs_check_settable`).
///
/// # Errors
/// The feature that would have to be enabled.
pub fn check_features(is_enabled: impl Fn(Feature) -> bool, property: &str, value: &StoredProperty) -> Result<()> {
    let StoredProperty::Number(number) = value else { return Ok(()) };
    let needed = match property {
        "checksum" => checksum_feature(Checksum::from_number(*number as u8)),
        "compression" => compression_feature(compression_and_level(*number).0),
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
            let (kind, set) = compression_and_level(*number);
            assert_eq!(kind, Compression::ZSTD, "{name}");
            let stored = platter_compress::zstd_level_to_stored(asked).map(u64::from);
            assert_eq!(Some(set), stored, "{name}");
        }
    }
}
