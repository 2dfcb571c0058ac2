//! The vdev label (`include/sys/vdev_impl.h`, `module/zfs/vdev_label.c`): four copies of 256 KiB on each leaf, two at
//! the front, two at the end.
//!
//! ```text
//! 0        8K              16K                            128K                       256K
//! | blank  | boot env      | configuration (XDR nvlist)   | uberblock ring           |
//!
//! device:  | L0 | L1 | boot area 3.5M | allocatable ... | L2 | L3 |
//!          0                          4M                -512K     size, a multiple of 256K
//! ```
//!
//! Each part is checksummed on its own, seeded with its offset on the device ([`crate::embedded`]). The blank 8 KiB are
//! never written after creation: partition tables and boot blocks stand there. A new label's ring is sealed as one
//! block, with an uberblock of group 0 in its first slot; each slot gets its own trailer when it is first used.

use crate::embedded::{self, ECK_SIZE};
use crate::error::Error;
use platter_nvlist::NvList;

/// Size of one label, in bytes.
pub const VDEV_LABEL_SIZE: u64 = 256 << 10;
/// Labels on a leaf.
pub const VDEV_LABELS: usize = 4;
/// Bytes before a leaf's allocatable space: two labels and the boot area.
pub const VDEV_LABEL_START_SIZE: u64 = 4 << 20;
/// Bytes after a leaf's allocatable space: two labels.
pub const VDEV_LABEL_END_SIZE: u64 = 2 * VDEV_LABEL_SIZE;
/// Offset of the boot area on the device.
pub const VDEV_BOOT_OFFSET: u64 = 2 * VDEV_LABEL_SIZE;
/// Size of the boot area (used as scratch space while a raidz is expanded).
pub const VDEV_BOOT_SIZE: u64 = 7 << 19;

/// Size of the blank area and of the boot environment.
pub const VDEV_PAD_SIZE: u64 = 8 << 10;
/// Offset of the boot environment in a label (`vl_be`, once `pad2`).
pub const BOOT_ENV_OFFSET: u64 = VDEV_PAD_SIZE;
/// Offset of the configuration in a label (`vl_vdev_phys`).
pub const VDEV_PHYS_OFFSET: u64 = 2 * VDEV_PAD_SIZE;
/// Size of the configuration area.
pub const VDEV_PHYS_SIZE: u64 = 112 << 10;
/// Offset of the uberblock ring in a label.
pub const UBERBLOCK_RING_OFFSET: u64 = VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE;
/// Size of the uberblock ring.
pub const UBERBLOCK_RING_SIZE: u64 = 128 << 10;
/// log2 of the smallest slot of the ring.
pub const UBERBLOCK_SHIFT: u32 = 10;
/// log2 of the largest slot of the ring.
pub const MAX_UBERBLOCK_SHIFT: u32 = 13;
/// Slots at the ring's end that belong to multihost writes while multihost is on.
pub const MMP_BLOCKS_PER_LABEL: u64 = 1;

const _: () = assert!(UBERBLOCK_RING_OFFSET + UBERBLOCK_RING_SIZE == VDEV_LABEL_SIZE);
const _: () = assert!(VDEV_BOOT_OFFSET + VDEV_BOOT_SIZE == VDEV_LABEL_START_SIZE);

/// The part of a device of `size` bytes that a vdev uses: whole labels only (`vdev_open`).
pub fn usable_size(size: u64) -> u64 {
    size - size % VDEV_LABEL_SIZE
}

/// Offset of label `index` on a device whose usable size is `psize`.
///
/// # Panics
/// When `psize` is no multiple of [`VDEV_LABEL_SIZE`], has no room for the labels, or `index` is over 3.
pub fn label_offset(psize: u64, index: usize) -> u64 {
    assert!(psize.is_multiple_of(VDEV_LABEL_SIZE) && psize >= VDEV_LABELS as u64 * VDEV_LABEL_SIZE);
    assert!(index < VDEV_LABELS);
    let from_start = index as u64 * VDEV_LABEL_SIZE;
    if index < VDEV_LABELS / 2 { from_start } else { psize - VDEV_LABELS as u64 * VDEV_LABEL_SIZE + from_start }
}

/// log2 of a slot's size in the ring of a vdev with this `ashift`.
pub fn uberblock_shift(ashift: u32) -> u32 {
    ashift.clamp(UBERBLOCK_SHIFT, MAX_UBERBLOCK_SHIFT)
}

/// Size of a slot in bytes.
pub fn uberblock_slot_size(ashift: u32) -> u64 {
    1 << uberblock_shift(ashift)
}

/// Slots in the ring.
pub fn uberblock_slots(ashift: u32) -> u64 {
    UBERBLOCK_RING_SIZE >> uberblock_shift(ashift)
}

/// Offset of slot `slot` within a label.
pub fn uberblock_offset(ashift: u32, slot: u64) -> u64 {
    debug_assert!(slot < uberblock_slots(ashift));
    UBERBLOCK_RING_OFFSET + (slot << uberblock_shift(ashift))
}

/// The slot that group `txg` writes. With multihost on the last slot is left to its heartbeat.
pub fn uberblock_slot_of(ashift: u32, txg: crate::Txg, multihost: bool) -> u64 {
    txg.0 % (uberblock_slots(ashift) - if multihost { MMP_BLOCKS_PER_LABEL } else { 0 })
}

/// The configuration area with `config`, sealed for `offset`: where the area will stand on the device (the label's
/// offset plus [`VDEV_PHYS_OFFSET`]).
pub fn build_phys(config: &NvList, offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<Vec<u8>, Error> {
    let mut bytes = config.encode_xdr();
    if bytes.len() > VDEV_PHYS_SIZE as usize - ECK_SIZE {
        return Err(Error::field("label", "configuration size", bytes.len() as u64));
    }
    bytes.resize(VDEV_PHYS_SIZE as usize, 0);
    embedded::seal(&mut bytes, embedded::label_verifier(offset), hash);
    Ok(bytes)
}

/// Checks a configuration area that was read at `offset` and decodes it.
pub fn read_phys(bytes: &[u8], offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<NvList, Error> {
    Error::need("label", bytes, VDEV_PHYS_SIZE as usize)?;
    let bytes = &bytes[..VDEV_PHYS_SIZE as usize];
    embedded::verify("label", bytes, embedded::label_verifier(offset), hash)?;
    decode_phys(bytes)
}

/// Decodes a configuration area whose checksum is already known to be right (or is of no interest).
pub fn decode_phys(bytes: &[u8]) -> Result<NvList, Error> {
    Error::need("label", bytes, ECK_SIZE)?;
    Ok(NvList::decode(&bytes[..bytes.len() - ECK_SIZE])?)
}

/// What the boot environment holds (`vbe_vers_t`).
#[derive(Clone, Debug, PartialEq)]
pub enum BootEnv {
    /// Text for GRUB; empty on a new label.
    Raw(String),
    /// A list.
    List(NvList),
    /// A version that is not known here, or text that a boot loader of FreeBSD left.
    Unknown {
        /// The version.
        version: u64,
    },
}

const BOOT_ENV_TEXT: usize = VDEV_PAD_SIZE as usize - 8 - ECK_SIZE;

/// The boot environment area, sealed for `offset` on the device.
pub fn build_boot_env(env: &BootEnv, offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<Vec<u8>, Error> {
    let (version, contents) = match env {
        BootEnv::Raw(text) => (0u64, text.as_bytes().to_vec()),
        BootEnv::List(list) => (1, list.encode_xdr()),
        BootEnv::Unknown { version } => return Err(Error::field("boot environment", "vbe_version", *version)),
    };
    // One byte less than there is: the text ends with a zero.
    if contents.len() >= BOOT_ENV_TEXT {
        return Err(Error::field("boot environment", "size", contents.len() as u64));
    }
    let mut bytes = vec![0; VDEV_PAD_SIZE as usize];
    bytes[..8].copy_from_slice(&version.to_be_bytes());
    bytes[8..8 + contents.len()].copy_from_slice(&contents);
    embedded::seal(&mut bytes, embedded::label_verifier(offset), hash);
    Ok(bytes)
}

/// Checks and decodes the boot environment area read at `offset`.
pub fn read_boot_env(bytes: &[u8], offset: u64, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<BootEnv, Error> {
    Error::need("boot environment", bytes, VDEV_PAD_SIZE as usize)?;
    let bytes = &bytes[..VDEV_PAD_SIZE as usize];
    embedded::verify("boot environment", bytes, embedded::label_verifier(offset), hash)?;
    decode_boot_env(bytes)
}

/// The boot environment area read at `from`, whatever it holds, sealed for `to`.
///
/// # Errors
/// Its checksum is wrong.
pub fn moved_boot_env(
    bytes: &[u8],
    from: u64,
    to: u64,
    hash: impl Fn(&[u8]) -> [u64; 4] + Copy,
) -> Result<Vec<u8>, Error> {
    Error::need("boot environment", bytes, VDEV_PAD_SIZE as usize)?;
    let mut bytes = bytes[..VDEV_PAD_SIZE as usize].to_vec();
    embedded::verify("boot environment", &bytes, embedded::label_verifier(from), hash)?;
    embedded::seal(&mut bytes, embedded::label_verifier(to), hash);
    Ok(bytes)
}

/// Decodes a boot environment area whose checksum is already known to be right.
pub fn decode_boot_env(bytes: &[u8]) -> Result<BootEnv, Error> {
    Error::need("boot environment", bytes, VDEV_PAD_SIZE as usize)?;
    let contents = &bytes[8..8 + BOOT_ENV_TEXT];
    match u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes")) {
        0 => {
            let end = contents.iter().position(|&byte| byte == 0).unwrap_or(contents.len());
            Ok(BootEnv::Raw(String::from_utf8_lossy(&contents[..end]).into_owned()))
        }
        1 => Ok(BootEnv::List(NvList::decode(contents)?)),
        version => Ok(BootEnv::Unknown { version }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Txg;
    use crate::embedded::test_hash;

    #[test]
    fn labels_stand_at_both_ends() {
        let psize = 64 << 20;
        let offsets: Vec<_> = (0..4).map(|i| label_offset(psize, i)).collect();
        assert_eq!(offsets, [0, 256 << 10, psize - (512 << 10), psize - (256 << 10)]);
        assert_eq!(usable_size(psize + 1000), psize);
    }

    #[test]
    fn the_ring_follows_ashift() {
        assert_eq!((uberblock_slot_size(9), uberblock_slots(9)), (1024, 128));
        assert_eq!((uberblock_slot_size(12), uberblock_slots(12)), (4096, 32));
        assert_eq!((uberblock_slot_size(16), uberblock_slots(16)), (8192, 16));
        assert_eq!(uberblock_offset(12, 31), VDEV_LABEL_SIZE - 4096);
        assert_eq!(uberblock_slot_of(12, Txg(63), false), 31);
        assert_eq!(uberblock_slot_of(12, Txg(63), true), 1);
    }

    #[test]
    fn a_built_configuration_reads_back_only_at_its_place() {
        let config = NvList::from_iter([("version", 5000u64), ("txg", 4)]);
        let bytes = build_phys(&config, VDEV_PHYS_OFFSET, test_hash).unwrap();
        assert_eq!(bytes.len() as u64, VDEV_PHYS_SIZE);
        assert_eq!(read_phys(&bytes, VDEV_PHYS_OFFSET, test_hash).unwrap(), config);
        assert!(read_phys(&bytes, VDEV_PHYS_OFFSET + VDEV_LABEL_SIZE, test_hash).is_err());
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused() {
        let config = NvList::from_iter([("big", "x".repeat(VDEV_PHYS_SIZE as usize))]);
        assert!(build_phys(&config, 0, test_hash).is_err());
    }

    #[test]
    fn a_boot_environment_reads_back() {
        let list = NvList::from_iter([("version", 1u64)]);
        for env in [BootEnv::Raw(String::new()), BootEnv::Raw("a=b".into()), BootEnv::List(list)] {
            let bytes = build_boot_env(&env, BOOT_ENV_OFFSET, test_hash).unwrap();
            assert_eq!(read_boot_env(&bytes, BOOT_ENV_OFFSET, test_hash).unwrap(), env);
            let to = BOOT_ENV_OFFSET + VDEV_LABEL_SIZE;
            let moved = moved_boot_env(&bytes, BOOT_ENV_OFFSET, to, test_hash).unwrap();
            assert_eq!(read_boot_env(&moved, to, test_hash).unwrap(), env);
            assert!(moved_boot_env(&moved, BOOT_ENV_OFFSET, to, test_hash).is_err(), "it is not from there");
        }
    }
}
