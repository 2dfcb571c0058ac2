//! How a file is named to those who keep its name for long: an NFS client, across restarts of its server.
//!
//! Invariants:
//! - the bytes of a handle never change their meaning: three numbers of eight bytes, little-endian, object set, object
//!   and generation, as `zfid_long_t` has them (`include/sys/zfs_vfsops_os.h`);
//! - a handle leads to the file that it was made of or to none: an object's number may be used again, in another
//!   transaction group, which is the generation.

use platter_ondisk::ObjectId;
use platter_zpl::Attr;

/// Objects have numbers below this (`DN_MAX_OBJECT`).
const OBJECTS_MAX: u64 = 1 << 48;

/// The number of an object set among those of its pool (`dmu_objset_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectSetId(pub u64);

/// See the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    object_set: ObjectSetId,
    object: ObjectId,
    generation: u64,
}

impl Handle {
    /// Bytes of an encoded handle. NFS 3 takes up to 64, NFS 4 up to 128, file handles of Linux up to 128.
    pub const BYTES: usize = 24;

    /// The handle of the file with these attributes in `object_set`.
    pub fn new(object_set: ObjectSetId, attr: &Attr) -> Self {
        Self { object_set, object: attr.object, generation: attr.generation }
    }

    /// The object set.
    pub fn object_set(&self) -> ObjectSetId {
        self.object_set
    }

    /// The object in it.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Tells uses of an object's number apart.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The bytes to give away.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (at, number) in [self.object_set.0, self.object.0, self.generation].into_iter().enumerate() {
            bytes[at * 8..(at + 1) * 8].copy_from_slice(&number.to_le_bytes());
        }
        debug_assert!(self.object.0 >= OBJECTS_MAX || Self::decode(&bytes) == Some(*self), "it comes back as it was");
        bytes
    }

    /// From bytes that somebody brought back; `None` when they are no handle: another length, or an object that no
    /// object set has.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let (object_set, object, generation) = (ObjectSetId(number(0)), ObjectId(number(1)), number(2));
        (1..OBJECTS_MAX).contains(&object.0).then_some(Self { object_set, object, generation })
    }
}

const _: () = assert!(Handle::BYTES == size_of::<Handle>());

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(object: u64) -> Handle {
        Handle { object_set: ObjectSetId(54), object: ObjectId(object), generation: 0x1_0000_0002 }
    }

    #[test]
    fn a_handle_has_the_same_bytes_for_ever() {
        let bytes = handle(0x0102_0304_0506).encode();
        assert_eq!(bytes[..8], [54, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(bytes[16..], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Handle::decode(&bytes), Some(handle(0x0102_0304_0506)));
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let bytes = handle(7).encode();
        assert_eq!(Handle::decode(&bytes[..23]), None);
        assert_eq!(Handle::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Handle::decode(&[]), None);
        for object in [0, OBJECTS_MAX, u64::MAX] {
            let mut bytes = bytes;
            bytes[8..16].copy_from_slice(&object.to_le_bytes());
            assert_eq!(Handle::decode(&bytes), None, "{object}");
        }
        assert!(Handle::decode(&handle(OBJECTS_MAX - 1).encode()).is_some());
    }
}
