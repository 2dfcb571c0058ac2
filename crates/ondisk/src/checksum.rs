//! How a block is checked (`include/sys/zio.h`). A pool may carry numbers that this version does not know: they are
//! kept as they are, and no function is found for them.

/// `enum zio_checksum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Checksum(u8);

impl Checksum {
    /// Take the parent's setting (never in a block pointer).
    pub const INHERIT: Self = Self(0);
    /// The default algorithm (never in a block pointer).
    pub const ON: Self = Self(1);
    /// None.
    pub const OFF: Self = Self(2);
    /// SHA-256 inside the block, seeded by its place.
    pub const LABEL: Self = Self(3);
    /// SHA-256 inside the gang header, seeded by its pointer.
    pub const GANG_HEADER: Self = Self(4);
    /// Fletcher-2 inside a log block, old chain at the end.
    pub const ZILOG: Self = Self(5);
    /// Fletcher-2.
    pub const FLETCHER_2: Self = Self(6);
    /// Fletcher-4.
    pub const FLETCHER_4: Self = Self(7);
    /// SHA-256.
    pub const SHA256: Self = Self(8);
    /// Fletcher-4 inside a log block, chain at the start.
    pub const ZILOG2: Self = Self(9);
    /// None, and no parity either (dump devices).
    pub const NOPARITY: Self = Self(10);
    /// SHA-512/256.
    pub const SHA512: Self = Self(11);
    /// Skein, keyed with the pool's salt.
    pub const SKEIN: Self = Self(12);
    /// Edon-R, keyed with the pool's salt.
    pub const EDONR: Self = Self(13);
    /// BLAKE3, keyed with the pool's salt.
    pub const BLAKE3: Self = Self(14);
    /// One more than the last that this version knows.
    pub const END: Self = Self(15);

    /// The one with this number, known to this version or not.
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// The number as it is stored.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
