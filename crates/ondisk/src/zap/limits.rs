//! How long names, values and blocks may be.

/// Longest name in bytes that every OpenZFS reads (`ZAP_MAXNAMELEN` less the terminating zero).
pub const NAME_LEN_MAX: usize = 255;
/// Longest value in bytes (`ZAP_MAXVALUELEN`).
pub const VALUE_LEN_MAX: usize = 8192;
/// log2 of the block size of the fat ZAPs we make (`fzap_default_block_shift`).
pub const FAT_BLOCK_SHIFT: u32 = 14;
/// Size in bytes beyond which a micro ZAP becomes a fat one (`zap_micro_max_size`, `SPA_OLD_MAXBLOCKSIZE`).
pub const MICRO_SIZE_MAX: usize = 128 << 10;
/// Size in bytes of the largest micro ZAP that any OpenZFS writes (`MZAP_MAX_SIZE`, feature `large_microzap`).
pub const MICRO_SIZE_LIMIT: usize = 1 << 20;
