//! How a block is compressed (`include/sys/zio_compress.h`). A pool may carry numbers that this version does not know:
//! they are kept as they are, and no algorithm is found for them.

/// `enum zio_compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Compression(u8);

impl Compression {
    /// Take the parent's setting (never in a block pointer).
    pub const INHERIT: Self = Self(0);
    /// The default algorithm (never in a block pointer).
    pub const ON: Self = Self(1);
    /// Stored as it is.
    pub const OFF: Self = Self(2);
    /// LZJB.
    pub const LZJB: Self = Self(3);
    /// All zeros.
    pub const EMPTY: Self = Self(4);
    /// gzip, level 1.
    pub const GZIP_1: Self = Self(5);
    /// gzip, level 2.
    pub const GZIP_2: Self = Self(6);
    /// gzip, level 3.
    pub const GZIP_3: Self = Self(7);
    /// gzip, level 4.
    pub const GZIP_4: Self = Self(8);
    /// gzip, level 5.
    pub const GZIP_5: Self = Self(9);
    /// gzip, level 6.
    pub const GZIP_6: Self = Self(10);
    /// gzip, level 7.
    pub const GZIP_7: Self = Self(11);
    /// gzip, level 8.
    pub const GZIP_8: Self = Self(12);
    /// gzip, level 9.
    pub const GZIP_9: Self = Self(13);
    /// Zero-length encoding.
    pub const ZLE: Self = Self(14);
    /// LZ4.
    pub const LZ4: Self = Self(15);
    /// Zstandard.
    pub const ZSTD: Self = Self(16);
    /// One more than the last that this version knows.
    pub const END: Self = Self(17);

    /// The one with this number, known to this version or not.
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// The number as it is stored.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The level of a gzip, 1 to 9; `None` for any other.
    pub const fn gzip_level(self) -> Option<u8> {
        match self.0 {
            number @ 5..=13 => Some(number - Self::GZIP_1.0 + 1),
            _ => None,
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
