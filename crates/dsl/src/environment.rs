//! What data sets are given instead of taking it from the machine: time of day, randomness, and how file
//! systems begin.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_api::delegation::Creator;
use platter_dmu::{Objset, Tx};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Fills a new file system's object set; the layer above (`zpl`) knows how.
pub trait FilesystemMaker: Send + Sync + 'static {
    /// Writes master node, unlinked set and root directory within `tx` (`zfs_create_fs`).
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>>;
}

/// What a file system is made with and keeps for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemOptions {
    /// ZPL version.
    pub version: u64,
    /// Names must be UTF-8 (`utf8only`).
    pub utf8_only: bool,
    /// `normalization` as stored (`u8_textprep` flags; 0: none).
    pub normalization: u64,
    /// `casesensitivity` as stored (0: sensitive, 1: insensitive, 2: mixed).
    pub case_sensitivity: u64,
    /// Whose its root directory is; whoever runs this when nobody is named.
    pub owner: Option<Creator>,
}

impl Default for FilesystemOptions {
    fn default() -> Self {
        Self { version: 5, utf8_only: false, normalization: 0, case_sensitivity: 0, owner: None }
    }
}

/// A source of guids and salts; the same seed gives the same.
#[derive(Clone)]
pub struct Randomness(Arc<Mutex<ChaCha20Rng>>);

impl Randomness {
    /// A source from a seed.
    pub fn seeded(seed: [u8; 32]) -> Self {
        Self(Arc::new(Mutex::new(ChaCha20Rng::from_seed(seed))))
    }

    /// A random nonzero number, for guids and salts.
    pub fn number(&self) -> u64 {
        loop {
            let n = self.0.lock().next_u64();
            if n != 0 {
                return n;
            }
        }
    }
}
