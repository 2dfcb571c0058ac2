//! What can go wrong with a disk, and how it is decided.
//!
//! Invariants: every decision comes from the disk's seed, in the order of its commands; what took effect is counted, by
//! kind.

use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FaultKind {
    /// A write of which only the first sectors are stored; it reports success.
    TornWrite,
    /// A write that reports success and stores nothing.
    LostWrite,
    /// A write that is stored elsewhere.
    MisdirectedWrite,
    /// A read that returns what is elsewhere.
    MisdirectedRead,
    /// An unflushed write that a power cut lost while a later one survived.
    ReorderedWrite,
    /// A flush that returns before anything is stable.
    LyingFlush,
    /// A bit that changes by itself.
    BitRot,
    /// Sectors that cannot be read until they are rewritten.
    LatentSectorError,
    /// A command that takes long.
    Slow,
    /// A drive that answers nothing for a while.
    Hang,
    /// A drive that goes away.
    Disappearance,
    /// A drive that says it is smaller than it was.
    WrongSize,
    /// A write refused because the file system below is full.
    HostFull,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::TornWrite,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::MisdirectedRead,
        Self::ReorderedWrite,
        Self::LyingFlush,
        Self::BitRot,
        Self::LatentSectorError,
        Self::Slow,
        Self::Hang,
        Self::Disappearance,
        Self::WrongSize,
        Self::HostFull,
    ];

    /// Kinds are told apart by their number, as counts are.
    const IN_ORDER: () = {
        let mut at = 0;
        while at < Self::ALL.len() {
            assert!(Self::ALL[at] as usize == at);
            at += 1;
        }
    };

    /// Whether a disk with it never tells anything wrong, and keeps what it has taken and flushed.
    pub const fn is_honest(self) -> bool {
        matches!(self, Self::Slow | Self::Hang | Self::Disappearance | Self::WrongSize | Self::HostFull)
    }

    /// What to call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TornWrite => "torn write",
            Self::LostWrite => "lost write",
            Self::MisdirectedWrite => "misdirected write",
            Self::MisdirectedRead => "misdirected read",
            Self::ReorderedWrite => "reordered write",
            Self::LyingFlush => "lying flush",
            Self::BitRot => "bit rot",
            Self::LatentSectorError => "latent sector error",
            Self::Slow => "slow command",
            Self::Hang => "hang",
            Self::Disappearance => "disappearance",
            Self::WrongSize => "wrong size",
            Self::HostFull => "full host file",
        }
    }
}

/// How often each kind of fault took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl FaultCounts {
    /// Faults of one kind.
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Counts one more.
    pub fn count(&mut self, kind: FaultKind) {
        let () = FaultKind::IN_ORDER;
        self.0[kind as usize] += 1;
    }

    /// Adds another count to this one.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    /// All kinds with their numbers.
    pub fn each(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        FaultKind::ALL.into_iter().zip(self.0)
    }
}

/// A fault that waits for a command in a range: of kind torn, lost, misdirected (write or read), slow, full host file,
/// or lying flush (whose range does not matter).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Bytes concerned: a command that touches one of them is hit.
    pub range: Range<u64>,
    /// How many commands it hits before it is spent.
    pub times: u64,
}

impl Fault {
    /// A fault that hits the next command of its kind, wherever.
    pub const fn next(kind: FaultKind) -> Self {
        Self { kind, range: 0..u64::MAX, times: 1 }
    }
}

/// Faults at random: each number says how many commands there are to one fault on average; 0: never. Bit rot and latent
/// errors strike between commands, where something is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Writes to one torn.
    pub torn_write: u32,
    /// Writes to one lost.
    pub lost_write: u32,
    /// Writes to one stored elsewhere.
    pub misdirected_write: u32,
    /// Reads to one from elsewhere.
    pub misdirected_read: u32,
    /// Flushes to one that lies.
    pub lying_flush: u32,
    /// Commands to one changed bit.
    pub bit_rot: u32,
    /// Commands to one stretch of unreadable sectors.
    pub latent_sector_error: u32,
    /// Commands to one that takes long.
    pub slow: u32,
    /// Commands to one after which the drive hangs for a while.
    pub hang: u32,
    /// Writes to one refused with "no space".
    pub host_full: u32,
}

/// What a command is, as far as faults care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Read,
    Write,
    Flush,
    Trim,
}

/// What is to happen to one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// The kind, when something is to happen.
    pub kind: Option<FaultKind>,
    /// For whatever needs a number: where a tear is, where a misdirected transfer goes.
    pub chance: u64,
}

impl FaultPlan {
    /// The same without faults of one kind.
    pub fn without(mut self, kind: FaultKind) -> Self {
        match kind {
            FaultKind::TornWrite => self.torn_write = 0,
            FaultKind::LostWrite => self.lost_write = 0,
            FaultKind::MisdirectedWrite => self.misdirected_write = 0,
            FaultKind::MisdirectedRead => self.misdirected_read = 0,
            FaultKind::LyingFlush => self.lying_flush = 0,
            FaultKind::BitRot => self.bit_rot = 0,
            FaultKind::LatentSectorError => self.latent_sector_error = 0,
            FaultKind::Slow => self.slow = 0,
            FaultKind::Hang => self.hang = 0,
            FaultKind::HostFull => self.host_full = 0,
            // These do not come by chance.
            FaultKind::ReorderedWrite | FaultKind::Disappearance | FaultKind::WrongSize => {}
        }
        self
    }

    fn rate(&self, kind: FaultKind) -> u32 {
        match kind {
            FaultKind::TornWrite => self.torn_write,
            FaultKind::LostWrite => self.lost_write,
            FaultKind::MisdirectedWrite => self.misdirected_write,
            FaultKind::MisdirectedRead => self.misdirected_read,
            FaultKind::LyingFlush => self.lying_flush,
            FaultKind::BitRot => self.bit_rot,
            FaultKind::LatentSectorError => self.latent_sector_error,
            FaultKind::Slow => self.slow,
            FaultKind::Hang => self.hang,
            FaultKind::HostFull => self.host_full,
            FaultKind::ReorderedWrite | FaultKind::Disappearance | FaultKind::WrongSize => 0,
        }
    }

    /// Whether `kind` strikes now.
    pub(super) fn strikes(&self, kind: FaultKind, random: &mut ChaCha20Rng) -> bool {
        let rate = self.rate(kind);
        rate > 0 && random.next_u32().is_multiple_of(rate)
    }
}

/// Decides about one command: faults that wait for it first, then chance. At most one thing happens to a command.
pub(super) fn decide(
    waiting: &mut Vec<Fault>,
    plan: &FaultPlan,
    random: &mut ChaCha20Rng,
    target: Target,
    range: Range<u64>,
) -> Fate {
    use FaultKind::{HostFull, LostWrite, LyingFlush, MisdirectedRead, MisdirectedWrite, Slow, TornWrite};
    let kinds: &[FaultKind] = match target {
        Target::Read => &[MisdirectedRead, Slow],
        Target::Write => &[TornWrite, LostWrite, MisdirectedWrite, HostFull, Slow],
        Target::Flush => &[LyingFlush, Slow],
        Target::Trim => &[Slow],
    };
    let hit = waiting.iter_mut().find(|fault| {
        let touches = fault.range.start < range.end && range.start < fault.range.end;
        fault.times > 0 && kinds.contains(&fault.kind) && (target == Target::Flush || touches)
    });
    let mut kind = None;
    if let Some(fault) = hit {
        kind = Some(fault.kind);
        fault.times = fault.times.saturating_sub(1);
        waiting.retain(|fault| fault.times > 0);
    } else if *plan != FaultPlan::default() {
        kind = kinds.iter().copied().find(|&kind| plan.strikes(kind, random));
    }
    debug_assert!(kind.is_none_or(|kind| kinds.contains(&kind)), "what happens is a thing that can happen to it");
    let chance = if kind.is_some() { random.next_u64() } else { 0 };
    Fate { kind, chance }
}
