//! Volumes (`include/sys/zvol.h`, `include/sys/zvol_impl.h`).

/// The object that has a volume's bytes (`ZVOL_OBJ`).
pub const DATA_OBJECT: u64 = 1;
/// The ZAP with its properties (`ZVOL_ZAP_OBJ`).
pub const PROPERTIES_OBJECT: u64 = 2;
/// The size in bytes, in that ZAP.
pub const SIZE: &str = "size";
/// Block size when none is asked for, in bytes (`ZVOL_DEFAULT_BLOCKSIZE`).
pub const BLOCK_SIZE_DEFAULT: u64 = 16 << 10;
