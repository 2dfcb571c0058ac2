//! What is asked of a property.

use serde::{Deserialize, Serialize};

/// What `zfs set` or `zfs inherit` makes of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// This value.
    Value(String),
    /// The parent's.
    Inherit,
    /// The one that came with a stream, else the parent's (`inherit -S`).
    Received,
}
