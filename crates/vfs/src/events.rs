//! Where each operation ends: who wants to hear of it does, and what went wrong below is logged.

use std::sync::Arc;

use platter_ondisk::ObjectId;

use crate::error::Result;
use crate::event::{Event, Observer, Operation};
use crate::failures::Failures;

/// See the module text.
#[derive(Clone)]
pub(crate) struct Events {
    observer: Option<Arc<dyn Observer>>,
    failures: Failures,
}

impl Events {
    pub fn new(observer: Option<Arc<dyn Observer>>, failures: Failures) -> Self {
        Self { observer, failures }
    }

    /// An operation with `object` has ended so. Costs a look at a pointer where nobody listens and nothing failed.
    pub fn ended<T>(
        &self,
        operation: Operation,
        object: ObjectId,
        result: Result<T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        if let Some(observer) = &self.observer {
            let (bytes, outcome) = match &result {
                Ok(value) => (bytes(value), Ok(())),
                Err(error) => (0, Err(error)),
            };
            observer.ended(&Event { operation, object, bytes, outcome });
        }
        if let Err(error) = &result {
            self.failures.note(operation, object, error);
        }
        result
    }
}
