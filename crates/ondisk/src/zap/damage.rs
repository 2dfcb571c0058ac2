//! What is said of a block that makes no sense.

/// A ZAP block that does not make sense: what, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {what}: {detail}")]
pub struct ZapDamage {
    /// The structure's name.
    pub what: &'static str,
    /// What was found.
    pub detail: String,
}

impl ZapDamage {
    pub(crate) fn new(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, detail: detail.into() }
    }
}
