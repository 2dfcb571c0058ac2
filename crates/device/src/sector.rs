//! The sector that partition tables, signatures and the kernel's `/sys` count in, whatever the disk's own sectors are.

/// Its bytes.
pub(crate) const SECTOR: u64 = 512;
