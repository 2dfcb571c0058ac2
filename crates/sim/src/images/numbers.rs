//! Numbers in bytes, changed at random.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

/// Writes a number at `at`, when there is room.
pub fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Changes a number somewhere in `range`, of any width, rather where there is something.
pub fn numbers_in(bytes: &mut [u8], range: std::ops::Range<usize>, random: &mut ChaCha20Rng) -> String {
    let width = [1, 1, 2, 4, 8, 8][random.next_u32() as usize % 6];
    let places: Vec<usize> = range.step_by(width).filter(|at| at + width <= bytes.len()).collect();
    if places.is_empty() {
        return "nothing".into();
    }
    let filled: Vec<usize> =
        places.iter().copied().filter(|&at| bytes[at..at + width].iter().any(|&byte| byte != 0)).collect();
    let pool = if filled.is_empty() || random.next_u32().is_multiple_of(4) { &places } else { &filled };
    let at = pool[random.next_u32() as usize % pool.len()];
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(word);
    let value = match random.next_u32() % 4 {
        0 => old.wrapping_add(u64::from(random.next_u32() % 8)).wrapping_sub(4),
        1 => old ^ 1 << (random.next_u32() as usize % (width * 8)),
        _ => interesting(random),
    };
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    format!("byte {at}: {width} bytes, {old:#x} became {value:#x}")
}

/// A number that is likely to be one of the edges.
pub fn interesting(random: &mut ChaCha20Rng) -> u64 {
    match random.next_u32() % 6 {
        0 => 0,
        1 => u64::from(random.next_u32() % 256),
        2 => u64::MAX - u64::from(random.next_u32() % 3),
        3 => (1u64 << (random.next_u32() % 64)).wrapping_sub(u64::from(random.next_u32() % 2)),
        4 => u64::from(random.next_u32()) << (random.next_u32() % 32),
        _ => random.next_u64(),
    }
}
