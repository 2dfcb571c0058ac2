//! Why a block cannot be had.

use platter_vdev::VdevError;

/// Why a block cannot be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    /// What was wrong with each copy.
    pub(crate) reason: String,
    /// Whether a device failed or is missing: the block may be there when the device is back.
    pub(crate) by_device: bool,
    /// Whether nothing but a checksum, which it does not have, could tell that it is there.
    pub(crate) doubtful: bool,
}

impl Lost {
    /// Says which part of a block it is.
    pub(crate) fn of(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), ..self }
    }

    /// Adds what is wrong with another copy or part.
    pub(crate) fn and(&mut self, other: Self) {
        if !self.reason.is_empty() {
            self.reason.push_str("; ");
        }
        self.reason.push_str(&other.reason);
        self.by_device |= other.by_device;
        self.doubtful |= other.doubtful;
    }

    /// Of a block of which no copy was right; without a copy there is no reason yet.
    pub(crate) fn or_no_address(self) -> Self {
        if self.reason.is_empty() { Self::from("it has no address".to_owned()) } else { self }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<String> for Lost {
    fn from(reason: String) -> Self {
        Self { reason, ..Self::default() }
    }
}

impl From<VdevError> for Lost {
    fn from(error: VdevError) -> Self {
        use VdevError::{Checksum, Doubtful, OutOfRange};
        let damage = matches!(error, Checksum { .. } | Doubtful { .. } | OutOfRange { .. });
        Self { reason: error.to_string(), by_device: !damage, doubtful: matches!(error, Doubtful { .. }) }
    }
}
