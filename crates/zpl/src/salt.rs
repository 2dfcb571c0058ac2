//! Hash salts for new ZAPs, drawn from one random number handed in (the engine itself never asks the machine for
//! randomness).

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of well mixed numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Salts(AtomicU64);

impl Salts {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // OpenZFS never uses an even salt.
        (z ^ (z >> 31)) | 1
    }
}
