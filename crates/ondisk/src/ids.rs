//! The kinds of numbers that appear everywhere in a pool; mixing them must not compile.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A transaction group number. Zero means "never" (holes) and is no group of its own.
    Txg
);
number!(
    /// An object's number within its object set (`DMU_META_DNODE_OBJECT` is 0).
    ObjectId
);
number!(
    /// A pool's or vdev's 64-bit identity. Zero means "none".
    Guid
);

impl Txg {
    /// The group `n` after this one.
    pub fn plus(self, n: u64) -> Self {
        Self(self.0 + n)
    }

    /// The group before this one (zero stays zero).
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl ObjectId {
    /// "No object".
    pub const NONE: Self = Self(0);

    /// Whether this names an object at all.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}
