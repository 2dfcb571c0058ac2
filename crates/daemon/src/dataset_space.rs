//! Space of a data set as its pool tells it.

use platter_dsl::FilesystemSpace;
use platter_zpl::SpaceInfo;

/// See the module text.
pub struct DatasetSpace(pub FilesystemSpace);

impl SpaceInfo for DatasetSpace {
    fn available(&self) -> u64 {
        self.0.available()
    }

    fn referenced(&self) -> u64 {
        self.0.referenced()
    }

    fn check(&self, bytes: u64) -> platter_zio::Result<()> {
        self.0.check(bytes)
    }

    fn admit(&self, bytes: u64, _waiting: u64) -> platter_zio::Result<bool> {
        self.0.admit(bytes)
    }
}
