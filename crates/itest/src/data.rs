//! Test data from a seed: the same seed gives the same bytes on every machine.

/// SplitMix64: a small generator that is good enough for test data and damage patterns.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same sequence for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// `len` incompressible bytes.
pub fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// `len` bytes that compress to about a quarter: words of a small vocabulary.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "pool",
        "vdev",
        "platter",
        "mirror",
        "parity",
        "block",
        "checksum",
        "scrub",
        "spindle",
        "sector",
        "copy",
        "write",
        "label",
        "uberblock",
        "dnode",
        "\n",
    ];
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        bytes.extend_from_slice(WORDS[rng.below(16) as usize].as_bytes());
        bytes.push(b' ');
    }
    bytes.truncate(len);
    bytes
}

/// `len` bytes in stretches of `stretch` bytes that are in turn random, text and zeros: some records of a file
/// compress, some do not, some become holes.
pub fn mixed(seed: u64, len: usize, stretch: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + stretch);
    let mut turn = seed;
    while bytes.len() < len {
        match turn % 3 {
            0 => bytes.extend(random(turn ^ seed.rotate_left(17), stretch)),
            1 => bytes.extend(text(turn ^ seed.rotate_left(29), stretch)),
            _ => bytes.resize(bytes.len() + stretch, 0),
        }
        turn += 1;
    }
    bytes.truncate(len);
    bytes
}

/// Lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(bytes))
}

/// Lower-case hexadecimal SHA-256 of what `reader` gives until its end.
///
/// # Errors
/// Whatever reading gives.
pub fn sha256_of(mut reader: impl std::io::Read) -> std::io::Result<String> {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as text; a byte that is not UTF-8 is written `\xNN`, as in the manifests of the reference pools.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}
