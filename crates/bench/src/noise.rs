//! Data that no compressor makes smaller, the same at every run, and random numbers to choose places.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Largest piece of [`Noise`] that is handed out.
pub const CHUNK: usize = 1 << 20;

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Incompressible bytes, repeated only after a distance that no compressor looks back.
#[derive(Debug)]
pub struct Noise {
    bytes: Vec<u8>,
}

impl Noise {
    /// So many MiB.
    pub fn new(mib: usize) -> Self {
        Self { bytes: Random::new(1).bytes(mib.max(2) * CHUNK) }
    }

    /// The bytes that belong at `place`: its own for each place. At most [`CHUNK`] of them.
    pub fn at(&self, place: u64, length: usize) -> &[u8] {
        let start = (place % (self.bytes.len() - CHUNK) as u64) as usize;
        &self.bytes[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_its_bytes() {
        let noise = Noise::new(3);
        assert_eq!(noise.at(0, 4), noise.at(2 << 20, 4));
        assert_ne!(noise.at(0, 16), noise.at(4096, 16));
        assert_eq!(noise.at(u64::MAX, CHUNK).len(), CHUNK);
    }
}
