//! The way between a host and its disks: ports, port multipliers, buses, PCIe lanes.
//!
//! Invariant: what shares a link takes turns on it, in the order in which it asked, and none goes faster than the link.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Nanos, SECOND};

/// What a link is, and so what reaches the other end of its nominal rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A SATA port of so many megabits per second (1500, 3000, 6000): 8b/10b coding, frames of 8 KiB with 36 bytes
    /// around.
    Sata {
        /// Line rate in megabits per second.
        megabits: u64,
    },
    /// Several disks behind one SATA port; each change of disk costs.
    PortMultiplier {
        /// Line rate of the upstream port in megabits per second.
        megabits: u64,
        /// What choosing another disk costs, in nanoseconds.
        switch: Nanos,
    },
    /// A parallel PCI bus: of its peak about 80 % is data; the rest is arbitration and addresses.
    Pci {
        /// Width in bits (32 or 64).
        bits: u64,
        /// Clock in kilohertz (33_333, 66_666).
        kilohertz: u64,
    },
    /// PCI Express lanes.
    Pcie {
        /// Generation 1 to 5.
        generation: u32,
        /// How many lanes.
        lanes: u64,
        /// Largest payload of a packet in bytes (128, 256, 512); each carries 24 bytes more (framing, header, CRC).
        payload: u64,
    },
    /// Anything else: bytes per second that arrive.
    Plain {
        /// Bytes per second.
        rate: u64,
    },
}

impl LinkKind {
    /// Bytes of data per second.
    pub fn rate(self) -> u64 {
        match self {
            Self::Sata { megabits } | Self::PortMultiplier { megabits, .. } => megabits * 100_000 * 8192 / (8192 + 36),
            Self::Pci { bits, kilohertz } => bits / 8 * kilohertz * 1000 / 5 * 4,
            Self::Pcie { generation, lanes, payload } => {
                // Gigatransfers per second and coding: 8b/10b up to generation 2, 128b/130b after that.
                let lane = match generation {
                    0 | 1 => 250_000_000,
                    2 => 500_000_000,
                    3 => 984_615_384,
                    4 => 1_969_230_769,
                    _ => 3_938_461_538_u64,
                };
                lane * lanes * payload / (payload + 24)
            }
            Self::Plain { rate } => rate,
        }
    }
}

/// One link, shared by all who hold it.
#[derive(Debug)]
pub struct Link {
    kind: LinkKind,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free_at: Nanos,
    last_user: Option<u32>,
    bytes: u64,
}

impl Link {
    /// An idle link.
    pub fn new(kind: LinkKind) -> Arc<Self> {
        Arc::new(Self { kind, state: Mutex::default() })
    }

    /// Takes the link for `bytes` of disk `user`, from `now` on or as soon as it is free; when they begin to come
    /// across and when they are.
    fn reserve(&self, now: Nanos, user: u32, bytes: u64) -> (Nanos, Nanos) {
        let mut state = self.state.lock();
        let switch = match self.kind {
            LinkKind::PortMultiplier { switch, .. } if state.last_user != Some(user) => switch,
            _ => 0,
        };
        state.last_user = Some(user);
        state.bytes += bytes;
        let duration = (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(self.kind.rate().max(1))) as Nanos;
        let begin = state.free_at.max(now) + switch;
        let done = begin + duration;
        debug_assert!(state.free_at <= begin && now <= begin, "one transfer begins after the other");
        debug_assert!(
            u128::from(bytes) * u128::from(SECOND) <= u128::from(done - begin) * u128::from(self.kind.rate().max(1))
        );
        state.free_at = done;
        (begin, done)
    }

    /// Bytes that have gone over it.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

/// Sends `bytes` over all `links` of a way, which pass them on as they come: when the first is across, and the last.
pub(super) fn transfer(links: &[Arc<Link>], now: Nanos, user: u32, bytes: u64) -> (Nanos, Nanos) {
    let times = links.iter().map(|link| link.reserve(now, user, bytes));
    times.fold((now, now), |all, one| (all.0.max(one.0), all.1.max(one.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_standards() {
        // SATA 3 Gb/s carries just under 300 MB/s, a 33 MHz bus about 107 of its 133.
        assert_eq!(LinkKind::Sata { megabits: 3000 }.rate() / 1_000_000, 298);
        assert_eq!(LinkKind::Pci { bits: 32, kilohertz: 33_333 }.rate() / 1_000_000, 106);
        let pcie = |payload| LinkKind::Pcie { generation: 1, lanes: 4, payload }.rate() / 1_000_000;
        assert_eq!((pcie(128), pcie(512)), (842, 955));
    }

    #[test]
    fn transfers_take_turns_on_the_narrowest_link() {
        let bus = Link::new(LinkKind::Plain { rate: 100_000_000 });
        let ports = [Link::new(LinkKind::Sata { megabits: 3000 }), Link::new(LinkKind::Sata { megabits: 3000 })];
        let first = transfer(&[ports[0].clone(), bus.clone()], 0, 0, 1_000_000).1;
        let second = transfer(&[ports[1].clone(), bus.clone()], 0, 1, 1_000_000).1;
        assert_eq!((first, second), (10_000_000, 20_000_000));
        assert_eq!(bus.bytes(), 2_000_000);
    }
}
