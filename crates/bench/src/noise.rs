//! Data that no compressor makes smaller, the same at every run, and random numbers to choose places.

/// Largest piece of [`Noise`] that is handed out.
pub const CHUNK: usize = 1 << 20;

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
        let mut random = Random::new(1);
        let mut bytes = vec![0; mib.max(2) * CHUNK];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        Self { bytes }
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
