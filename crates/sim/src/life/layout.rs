//! What a machine is made of, as its seed says: how its disks are arranged, and what they are.

use std::ops::Range;

use platter_model::disk::Parameters;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

/// Bytes of each disk, until it grows.
pub const DISK_SIZE: u64 = 96 << 20;
/// Bytes of a disk that has grown.
pub(super) const GROWN_SIZE: u64 = DISK_SIZE + (64 << 20);

/// A top-level vdev: its disks, and how many of them may fail.
#[derive(Clone, Debug)]
pub struct Group {
    /// Numbers of its disks.
    pub disks: Vec<usize>,
    /// How many may fail.
    pub spare: usize,
    /// 0: a mirror; else parity.
    pub(super) parity: u8,
    /// Bytes of the vdev when it was made, as the pool said; 0 until then.
    pub(super) size: u64,
    /// Whether it was seen to be larger since.
    pub(super) has_grown: bool,
}

/// A top-level vdev of these disks: a mirror, or with so much parity.
pub(super) fn group(disks: Range<usize>, parity: u8) -> Group {
    let spare = if parity == 0 { disks.len() - 1 } else { parity.into() };
    Group { disks: disks.collect(), spare, parity, size: 0, has_grown: false }
}

/// How disks are arranged.
pub(super) fn groups(random: &mut ChaCha20Rng) -> Vec<Group> {
    let raidz = |parity: u8, count: usize| vec![group(0..count, parity)];
    let mirror = |first: usize, count: usize| group(first..first + count, 0);
    match random.next_u32() % 8 {
        0 | 1 => raidz(1, 3 + random.next_u32() as usize % 3),
        2 | 3 => raidz(2, 5 + random.next_u32() as usize % 2),
        4 => raidz(3, 7),
        5 => vec![mirror(0, 2)],
        6 => vec![mirror(0, 3)],
        _ => vec![mirror(0, 2), mirror(2, 2)],
    }
}

/// What they are.
pub(super) fn parameters(random: &mut ChaCha20Rng, kind: Disks) -> Parameters {
    let size = if kind == Disks::Growing { GROWN_SIZE } else { DISK_SIZE };
    if kind == Disks::Turning {
        return Parameters::published_curve().sized(size).write_cache(8 << 20);
    }
    match random.next_u32() % 10 {
        0..6 => Parameters::instant(size),
        6 | 7 => Parameters::published_curve().sized(size).write_cache(8 << 20),
        8 => Parameters::green_4k().sized(size),
        _ => Parameters::sata_ssd(size),
    }
}

/// What the disks of a life are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disks {
    /// What the seed says.
    Any,
    /// The same, and they may grow.
    Growing,
    /// They turn in any case.
    Turning,
}
