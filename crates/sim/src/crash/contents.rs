//! Bytes that workloads write, and the pieces in which a crash may lose them.

use super::model::Step;

/// The record size of the file system, and the volume's block size, in bytes: small, so that a write of some kilobytes
/// touches more than one block.
pub const RECORD: usize = 8192;

/// Bytes that tell where they belong and who wrote them; they do not compress to nothing.
pub fn bytes(salt: u64, offset: usize, length: usize) -> Vec<u8> {
    let at = |index: usize| {
        let mixed = (index as u64 / 8 + 1).wrapping_mul(salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        mixed.rotate_left(23).to_le_bytes()[index % 8]
    };
    (offset..offset + length).map(at).collect()
}

/// The smallest pieces of a write that can be lost one by one: those within one block.
pub fn pieces(step: impl Fn(usize, Vec<u8>) -> Step, offset: usize, data: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = (RECORD - (offset + at) % RECORD).min(data.len() - at);
        steps.push(step(offset + at, data[at..at + length].to_vec()));
        at += length;
    }
    debug_assert_eq!(at, data.len(), "the pieces are the whole");
    steps
}
