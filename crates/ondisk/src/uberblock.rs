//! The uberblock (`include/sys/uberblock_impl.h`, `module/zfs/uberblock.c`): the root of the pool as of one transaction
//! group.
//!
//! ```text
//! 0       8        16    24         32         40                 168
//! | magic | version | txg | guid sum | timestamp | root pointer     |
//! 168               176         184         192          200              208            216
//! | software version | MMP magic | MMP delay | MMP config | checkpoint txg | raidz reflow | zeros ... trailer
//! ```
//!
//! It is written in the writer's byte order; the magic tells which. Of all valid ones in a pool the greatest by
//! [`Uberblock::compare`] is the current one.

use crate::blkptr::{BLKPTR_SIZE, BlkPtr};
use crate::embedded::{self, ByteOrder, ECK_SIZE};
use crate::error::Error;
use crate::ids::Txg;
use crate::le::{put_words, u64_at};
use crate::sector::Sectors;
use std::cmp::Ordering;

/// `UBERBLOCK_MAGIC`.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// `MMP_MAGIC`.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Bytes of the structure, without padding and trailer.
pub const UBERBLOCK_SIZE: usize = 216;

const ROOTBP_AT: usize = 40;
const TAIL_AT: usize = ROOTBP_AT + BLKPTR_SIZE;
const _: () = assert!(TAIL_AT + 6 * 8 == UBERBLOCK_SIZE);

/// An uberblock. See the module text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uberblock {
    /// On-disk version: 1 to 28, or 5000 with feature flags.
    pub version: u64,
    /// The group that wrote it.
    pub txg: Txg,
    /// Sum of the guids of all vdevs, wrapping.
    pub guid_sum: u64,
    /// Seconds since 1970, UTC.
    pub timestamp: u64,
    /// The pool's own object set (MOS).
    pub rootbp: BlkPtr,
    /// Highest version that the writer knew.
    pub software_version: u64,
    /// [`MMP_MAGIC`], or anything else in old pools.
    pub mmp_magic: u64,
    /// Nanoseconds between heartbeats; 0 when multihost is off.
    pub mmp_delay: u64,
    /// Interval, sequence and fail intervals: [`Self::mmp`] reads it.
    pub mmp_config: u64,
    /// Not 0 in a checkpoint: the group in which it was current.
    pub checkpoint_txg: Txg,
    /// How far a raidz expansion has come: [`Self::reflow`] reads it.
    pub raidz_reflow_info: u64,
}

/// The multihost fields that are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mmp {
    /// Milliseconds between writes.
    pub interval_ms: Option<u32>,
    /// Counts the writes within one second.
    pub sequence: Option<u16>,
    /// Missed intervals after which the writer suspends its pool.
    pub fail_intervals: Option<u16>,
}

/// `ub_raidz_reflow_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflow {
    /// Bytes of the raidz vdev already reflowed, logical offset.
    pub offset: u64,
    /// `raidz_reflow_scratch_state_t`; 0 when the scratch area is not in use.
    pub scratch_state: u16,
}

const MMP_INTERVAL_VALID: u64 = 0x1;
const MMP_SEQUENCE_VALID: u64 = 0x2;
const MMP_FAIL_INTERVALS_VALID: u64 = 0x4;

impl Mmp {
    /// `ub_mmp_config`.
    pub fn to_config(self) -> u64 {
        let interval = self.interval_ms.map_or(0, |ms| u64::from(ms & 0xff_ffff) << 8 | MMP_INTERVAL_VALID);
        let sequence = self.sequence.map_or(0, |sequence| u64::from(sequence) << 32 | MMP_SEQUENCE_VALID);
        let fail = self.fail_intervals.map_or(0, |n| u64::from(n) << 48 | MMP_FAIL_INTERVALS_VALID);
        interval | sequence | fail
    }

    fn from_config(config: u64) -> Self {
        Self {
            interval_ms: (config & MMP_INTERVAL_VALID != 0).then_some((config >> 8) as u32 & 0xff_ffff),
            sequence: (config & MMP_SEQUENCE_VALID != 0).then_some((config >> 32) as u16),
            fail_intervals: (config & MMP_FAIL_INTERVALS_VALID != 0).then_some((config >> 48) as u16),
        }
    }
}

impl Reflow {
    /// `ub_raidz_reflow_info`.
    pub fn to_info(self) -> u64 {
        Sectors::of(self.offset).0 & ((1 << 55) - 1) | u64::from(self.scratch_state & 0x1ff) << 55
    }
}

impl Uberblock {
    /// Decodes an uberblock in either byte order; nothing but the magic is checked.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "uberblock";
        Error::need(WHAT, bytes, UBERBLOCK_SIZE)?;
        let swap = match u64_at(bytes, 0) {
            UBERBLOCK_MAGIC => false,
            magic if magic == UBERBLOCK_MAGIC.swap_bytes() => true,
            found => return Err(Error::BadMagic { what: WHAT, found }),
        };
        let word = |at| if swap { u64_at(bytes, at).swap_bytes() } else { u64_at(bytes, at) };
        let mut rootbp = BlkPtr::decode(&bytes[ROOTBP_AT..]);
        if swap {
            rootbp.words = rootbp.words.map(u64::swap_bytes);
        }
        Ok(Self {
            version: word(8),
            txg: Txg(word(16)),
            guid_sum: word(24),
            timestamp: word(32),
            rootbp,
            software_version: word(TAIL_AT),
            mmp_magic: word(TAIL_AT + 8),
            mmp_delay: word(TAIL_AT + 16),
            mmp_config: word(TAIL_AT + 24),
            checkpoint_txg: Txg(word(TAIL_AT + 32)),
            raidz_reflow_info: word(TAIL_AT + 40),
        })
    }

    /// Checks and decodes a whole slot of the ring that was read at `offset` on the device.
    pub fn read_slot(slot: &[u8], offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<Self, Error> {
        Error::need("uberblock", slot, UBERBLOCK_SIZE + ECK_SIZE)?;
        let order = embedded::verify("uberblock", slot, embedded::label_verifier(offset), hash)?;
        let uberblock = Self::decode(slot)?;
        // The two magics must tell the same order.
        let swapped = u64_at(slot, 0) != UBERBLOCK_MAGIC;
        if swapped != (order == ByteOrder::Big) {
            return Err(Error::field("uberblock", "ub_magic", u64_at(slot, 0)));
        }
        Ok(uberblock)
    }

    /// Writes the structure over the first 216 bytes of `out`, little-endian.
    pub fn encode(&self, out: &mut [u8]) {
        put_words(out, 0, &[UBERBLOCK_MAGIC, self.version, self.txg.0, self.guid_sum, self.timestamp]);
        self.rootbp.encode(&mut out[ROOTBP_AT..]);
        put_words(
            out,
            TAIL_AT,
            &[
                self.software_version,
                self.mmp_magic,
                self.mmp_delay,
                self.mmp_config,
                self.checkpoint_txg.0,
                self.raidz_reflow_info,
            ],
        );
    }

    /// A whole slot of `slot_size` bytes, sealed for `offset` on the device.
    pub fn build_slot(&self, slot_size: u64, offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Vec<u8> {
        let mut slot = vec![0; slot_size as usize];
        self.encode(&mut slot);
        embedded::seal(&mut slot, embedded::label_verifier(offset), hash);
        slot
    }

    /// The multihost fields; `None` when the writer knew nothing of them.
    pub fn mmp(&self) -> Option<Mmp> {
        (self.mmp_magic == MMP_MAGIC).then(|| Mmp::from_config(self.mmp_config))
    }

    /// Whether the pool was written with multihost on.
    pub fn is_multihost(&self) -> bool {
        self.mmp_magic == MMP_MAGIC && self.mmp_delay != 0
    }

    /// How far a raidz expansion has come.
    pub fn reflow(&self) -> Reflow {
        Reflow {
            offset: Sectors(self.raidz_reflow_info & ((1 << 55) - 1)).bytes(),
            scratch_state: (self.raidz_reflow_info >> 55) as u16,
        }
    }

    /// Which of two is more current (`vdev_uberblock_compare`): by group, then time, then heartbeat.
    pub fn compare(&self, other: &Self) -> Ordering {
        let sequence = |ub: &Self| ub.mmp().and_then(|mmp| mmp.sequence).unwrap_or(0);
        self.txg
            .cmp(&other.txg)
            .then(self.timestamp.cmp(&other.timestamp))
            .then_with(|| sequence(self).cmp(&sequence(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnode::tests::any_blkptr;
    use crate::embedded::test_hash;
    use proptest::prelude::*;

    fn any_uberblock() -> impl Strategy<Value = Uberblock> {
        (any::<[u64; 10]>(), any_blkptr()).prop_map(|(w, rootbp)| Uberblock {
            version: w[0],
            txg: Txg(w[1]),
            guid_sum: w[2],
            timestamp: w[3],
            rootbp,
            software_version: w[4],
            mmp_magic: w[5],
            mmp_delay: w[6],
            mmp_config: w[7],
            checkpoint_txg: Txg(w[8]),
            raidz_reflow_info: w[9],
        })
    }

    proptest! {
        #[test]
        fn decode_gives_back_what_encode_wrote_in_both_byte_orders(ub in any_uberblock()) {
            let mut bytes = vec![0; UBERBLOCK_SIZE];
            ub.encode(&mut bytes);
            prop_assert_eq!(&Uberblock::decode(&bytes).unwrap(), &ub);
            bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            prop_assert_eq!(&Uberblock::decode(&bytes).unwrap(), &ub);
        }

        #[test]
        fn a_slot_reads_back_only_at_its_place(ub in any_uberblock(), shift in 10..=13u32, place in 0..1u64 << 40) {
            let slot = ub.build_slot(1 << shift, place, test_hash);
            prop_assert_eq!(slot.len(), 1 << shift);
            prop_assert_eq!(Uberblock::read_slot(&slot, place, test_hash).unwrap(), ub);
            prop_assert!(Uberblock::read_slot(&slot, place + 1024, test_hash).is_err());
        }

        #[test]
        fn multihost_and_reflow_fields_read_back(
            interval_ms in prop::option::of(0..1u32 << 24), sequence: Option<u16>, fail_intervals: Option<u16>,
            sectors in 0..1u64 << 55, scratch_state in 0..512u16,
        ) {
            let mmp = Mmp { interval_ms, sequence, fail_intervals };
            prop_assert_eq!(Mmp::from_config(mmp.to_config()), mmp);
            let reflow = Reflow { offset: sectors * 512, scratch_state };
            let mut ub = Uberblock::decode(&{
                let mut bytes = [0; UBERBLOCK_SIZE];
                put_words(&mut bytes, 0, &[UBERBLOCK_MAGIC]);
                bytes
            }).unwrap();
            ub.raidz_reflow_info = reflow.to_info();
            prop_assert_eq!(ub.reflow(), reflow);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            let _ = Uberblock::decode(&bytes);
            let _ = Uberblock::read_slot(&bytes, 0, test_hash);
        }
    }
}
