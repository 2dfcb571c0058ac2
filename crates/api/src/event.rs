//! One thing that happened to a pool.

use serde::{Deserialize, Serialize};

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventValue {
    /// Shown in hexadecimal.
    Number(u64),
    /// Shown in quotes.
    Text(String),
}

impl From<u64> for EventValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for EventValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for EventValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub eid: u64,
    /// Seconds and nanoseconds since the epoch.
    pub time: (u64, u32),
    /// `ereport.fs.zfs.io`, `sysevent.fs.zfs.pool_import`…
    pub class: String,
    /// The pool's name.
    pub pool: String,
    /// What else there is to tell, in order; pool and guid are among them.
    pub fields: Vec<(String, EventValue)>,
}
