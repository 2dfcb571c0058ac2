//! An intent log that a crash left.

use std::sync::Arc;

use platter_zil::Claim;

use crate::dataset::Dataset;

/// A data set whose log was claimed.
pub struct ClaimedLog {
    /// The data set.
    pub dataset: Arc<Dataset>,
    /// What was claimed.
    pub claim: Claim,
}
