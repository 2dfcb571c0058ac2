//! How a leaf gets its device.

use std::sync::Arc;

use async_trait::async_trait;
use platter_device::{BlockDevice, DeviceError};

use crate::spec::VdevSpec;
use crate::state::VdevAux;

/// Why a leaf has no device.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be opened.
    Device(DeviceError),
    /// It can be, and must not be used.
    Refused {
        /// Why, as the format knows it.
        aux: VdevAux,
        /// Why, in words for a person.
        detail: String,
    },
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Finds the device for a leaf's configuration.
#[async_trait]
pub trait DeviceOpener: Send + Sync {
    /// Opens the device; called for leaves that are neither offline nor faulted. What it returns belongs to the leaf:
    /// who opens a device that may be another one looks at its labels, through the handle that it returns.
    async fn open(&self, spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, OpenError>;
}
