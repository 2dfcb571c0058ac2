//! Whole pool images that somebody has tampered with: valid checksums all the way up, and anything at all below them.
//!
//! An image comes from one of a few pools that this engine made ([`template`]). A block of it, or a label, or an
//! uberblock, is changed where its structure is (`mutate`), and the checksums of everything above it are mended
//! ([`blocks`]), as an attacker would. Then the pool is opened and used ([`visit`]).
//!
//! What must hold: no panic; an end, soon; little memory; and an import that is refused has written nothing. The first
//! and the last are seen here; whoever runs this in a process of its own sees the others too.

pub mod blocks;
mod device;
mod lists;
mod log_block;
pub mod mutate;
mod numbers;
pub mod stored;
pub mod template;
pub mod visit;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

pub use template::{Template, templates};
pub use visit::Verdict;

/// Tampers with a pool as `seed` has it, and opens and uses it.
pub fn fuzz(templates: &[Template], seed: u64) -> Verdict {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let template = &templates[seed as usize % templates.len()];
    let (disks, what) = mutate::tamper(template, &mut random);
    let mut verdict = visit::visit(template, disks, seed);
    verdict.what = format!("{}: {what}", template.name);
    verdict
}
