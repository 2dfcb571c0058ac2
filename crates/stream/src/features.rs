//! What a stream asks of who receives it (`DMU_BACKUP_FEATURE_*`).

/// A set of stream features, as they stand in `drr_versioninfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFeatures(pub u64);

impl StreamFeatures {
    /// Blocks that were sent before are named instead of sent again.
    pub const DEDUP: Self = Self(1 << 0);
    /// With [`Self::DEDUP`]: checksums are given.
    pub const DEDUP_PROPERTIES: Self = Self(1 << 1);
    /// System attributes, and spill blocks.
    pub const SA_SPILL: Self = Self(1 << 2);
    /// Blocks that were in their pointers come as they were there.
    pub const EMBED_DATA: Self = Self(1 << 16);
    /// There may be blocks compressed with lz4.
    pub const LZ4: Self = Self(1 << 17);
    /// There may be blocks beyond 128 KiB.
    pub const LARGE_BLOCKS: Self = Self(1 << 19);
    /// It goes on where a receive was broken off.
    pub const RESUMING: Self = Self(1 << 20);
    /// Some blocks are left out on purpose.
    pub const REDACTED: Self = Self(1 << 21);
    /// Compressed blocks come compressed.
    pub const COMPRESSED: Self = Self(1 << 22);
    /// There may be dnodes of more than 512 bytes.
    pub const LARGE_DNODE: Self = Self(1 << 23);
    /// Encrypted blocks come encrypted.
    pub const RAW: Self = Self(1 << 24);
    /// There may be blocks compressed with zstd.
    pub const ZSTD: Self = Self(1 << 25);
    /// The list of a package has holds.
    pub const HOLDS: Self = Self(1 << 26);
    /// Who received without large blocks before may receive this with them.
    pub const SWITCH_TO_LARGE_BLOCKS: Self = Self(1 << 27);
    /// There may be names beyond 255 bytes.
    pub const LONGNAME: Self = Self(1 << 28);
    /// There may be micro ZAPs beyond 128 KiB.
    pub const LARGE_MICROZAP: Self = Self(1 << 29);

    /// What is received here.
    pub const KNOWN: Self = Self(
        Self::SA_SPILL.0
            | Self::EMBED_DATA.0
            | Self::LZ4.0
            | Self::LARGE_BLOCKS.0
            | Self::RESUMING.0
            | Self::REDACTED.0
            | Self::COMPRESSED.0
            | Self::LARGE_DNODE.0
            | Self::ZSTD.0
            | Self::HOLDS.0
            | Self::SWITCH_TO_LARGE_BLOCKS.0,
    );

    /// Whether all of `other` are in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With those of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not received here.
    pub fn unknown(self) -> Self {
        Self(self.0 & !Self::KNOWN.0)
    }

    /// Whether none is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
