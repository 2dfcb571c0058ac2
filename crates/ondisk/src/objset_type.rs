//! What an object set holds (`include/sys/fs/zfs.h`). A number that this version does not know is kept as it is.

/// `dmu_objset_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjsetType(u64);

impl ObjsetType {
    /// Nothing yet.
    pub const NONE: Self = Self(0);
    /// The pool's own objects (MOS).
    pub const META: Self = Self(1);
    /// A file system.
    pub const ZFS: Self = Self(2);
    /// A volume.
    pub const ZVOL: Self = Self(3);
    /// For OpenZFS's own tests.
    pub const OTHER: Self = Self(4);

    /// The one with this number, known to this version or not.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number as it is stored.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for ObjsetType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
