//! The head of an object set (`objset_phys_t`, `include/sys/dmu_objset.h`): the dnode whose blocks are all other
//! dnodes, the intent log's header, and the space totals per user, group and project.
//!
//! ```text
//! 0           512          704    712     720             752          784   1024       1536       2048
//! | meta dnode | ZIL header | type | flags | portable MAC  | local MAC  | 0   | userused | groupused | project... 4096
//! ```
//!
//! Old pools have blocks of 1024 bytes (no totals) or 2048 (no project totals). The size is remembered so that a
//! snapshot's head is reproduced as it stands; new heads are 4096 bytes.

use crate::dnode::{DNODE_SIZE, DnodePhys};
use crate::error::Error;
use crate::le::{put_u64, u64_at};
use crate::objset_type::ObjsetType;
use crate::zil::{ZIL_HEADER_SIZE, ZilHeader};

/// Size of the first version's block, in bytes.
pub const OBJSET_PHYS_SIZE_V1: usize = 1024;
/// Size of the block with user and group totals.
pub const OBJSET_PHYS_SIZE_V2: usize = 2048;
/// Size of the block with project totals.
pub const OBJSET_PHYS_SIZE_V3: usize = 4096;

/// The user and group totals are complete.
pub const OBJSET_FLAG_USERACCOUNTING_COMPLETE: u64 = 1 << 0;
/// The user and group object counts are complete.
pub const OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE: u64 = 1 << 1;
/// The project totals are complete.
pub const OBJSET_FLAG_PROJECTQUOTA_COMPLETE: u64 = 1 << 2;

const ZIL_AT: usize = DNODE_SIZE;
const TYPE_AT: usize = ZIL_AT + ZIL_HEADER_SIZE;
const FLAGS_AT: usize = TYPE_AT + 8;
const PORTABLE_MAC_AT: usize = FLAGS_AT + 8;
const LOCAL_MAC_AT: usize = PORTABLE_MAC_AT + 32;
const USERUSED_AT: usize = OBJSET_PHYS_SIZE_V1;
const GROUPUSED_AT: usize = USERUSED_AT + DNODE_SIZE;
const PROJECTUSED_AT: usize = OBJSET_PHYS_SIZE_V2;

const _: () = assert!(LOCAL_MAC_AT + 32 == 784 && GROUPUSED_AT + DNODE_SIZE == OBJSET_PHYS_SIZE_V2);

/// An object set's head. See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjsetPhys {
    /// Object 0: its data blocks hold the dnodes.
    pub meta_dnode: DnodePhys,
    /// `zil_header_t` as it stands on disk; [`Self::zil`] reads it.
    pub zil_header: [u8; ZIL_HEADER_SIZE],
    /// What it holds.
    pub object_set_type: ObjsetType,
    /// `OBJSET_FLAG_*`.
    pub flags: u64,
    /// MAC over what a raw send preserves (encrypted datasets).
    pub portable_mac: [u8; 32],
    /// MAC over what it does not (encrypted datasets).
    pub local_mac: [u8; 32],
    /// Space per user (a ZAP).
    pub userused: Option<DnodePhys>,
    /// Space per group (a ZAP).
    pub groupused: Option<DnodePhys>,
    /// Space per project (a ZAP).
    pub projectused: Option<DnodePhys>,
    /// Size of the block in bytes: 1024, 2048 or 4096.
    pub size: usize,
}

impl ObjsetPhys {
    /// A new head of the current size without a log.
    pub fn new(object_set_type: ObjsetType, meta_dnode: DnodePhys) -> Self {
        Self {
            meta_dnode,
            zil_header: [0; ZIL_HEADER_SIZE],
            object_set_type,
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            userused: None,
            groupused: None,
            projectused: None,
            size: OBJSET_PHYS_SIZE_V3,
        }
    }

    /// Decodes a block of exactly 1024, 2048 or 4096 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "object set";
        let size = bytes.len();
        if ![OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3].contains(&size) {
            return Err(Error::field(WHAT, "size", size as u64));
        }
        // Each of these dnodes stands alone: it can have no second slot.
        let dnode_at = |at: usize, since: usize| {
            if size < since { Ok(None) } else { DnodePhys::decode(&bytes[at..at + DNODE_SIZE]) }
        };
        let meta_dnode = dnode_at(0, 0)?.ok_or(Error::field(WHAT, "os_meta_dnode", 0u64))?;
        Ok(Self {
            meta_dnode,
            zil_header: bytes[ZIL_AT..TYPE_AT].try_into().expect("192 bytes"),
            object_set_type: ObjsetType::from_number(u64_at(bytes, TYPE_AT)),
            flags: u64_at(bytes, FLAGS_AT),
            portable_mac: bytes[PORTABLE_MAC_AT..LOCAL_MAC_AT].try_into().expect("32 bytes"),
            local_mac: bytes[LOCAL_MAC_AT..LOCAL_MAC_AT + 32].try_into().expect("32 bytes"),
            userused: dnode_at(USERUSED_AT, OBJSET_PHYS_SIZE_V2)?,
            groupused: dnode_at(GROUPUSED_AT, OBJSET_PHYS_SIZE_V2)?,
            projectused: dnode_at(PROJECTUSED_AT, OBJSET_PHYS_SIZE_V3)?,
            size,
        })
    }

    /// The block, `size` bytes long.
    ///
    /// # Panics
    /// When `size` has no room for a dnode that is set.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; self.size];
        self.meta_dnode.encode(&mut out[..DNODE_SIZE]);
        out[ZIL_AT..TYPE_AT].copy_from_slice(&self.zil_header);
        put_u64(&mut out, TYPE_AT, self.object_set_type.number());
        put_u64(&mut out, FLAGS_AT, self.flags);
        out[PORTABLE_MAC_AT..LOCAL_MAC_AT].copy_from_slice(&self.portable_mac);
        out[LOCAL_MAC_AT..LOCAL_MAC_AT + 32].copy_from_slice(&self.local_mac);
        let totals =
            [(&self.userused, USERUSED_AT), (&self.groupused, GROUPUSED_AT), (&self.projectused, PROJECTUSED_AT)];
        for (dnode, at) in totals {
            if let Some(dnode) = dnode {
                dnode.encode(&mut out[at..at + DNODE_SIZE]);
            }
        }
        out
    }

    /// The intent log's header.
    pub fn zil(&self) -> ZilHeader {
        ZilHeader::decode(&self.zil_header).expect("the array has the header's size")
    }

    /// Replaces the intent log's header.
    pub fn set_zil(&mut self, header: &ZilHeader) {
        header.encode(&mut self.zil_header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnode::tests::any_dnode;
    use proptest::option;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_gives_back_what_encode_wrote(
            meta_dnode in any_dnode(1..=1),
            zil_header in any::<[u8; ZIL_HEADER_SIZE]>(),
            words in any::<[u64; 2]>(),
            macs in any::<[[u8; 32]; 2]>(),
            totals in (option::of(any_dnode(1..=1)), option::of(any_dnode(1..=1)), option::of(any_dnode(1..=1))),
            version in 1..=3u32,
        ) {
            let objset = ObjsetPhys {
                meta_dnode,
                zil_header,
                object_set_type: ObjsetType::from_number(words[0]),
                flags: words[1],
                portable_mac: macs[0],
                local_mac: macs[1],
                userused: totals.0.filter(|_| version >= 2),
                groupused: totals.1.filter(|_| version >= 2),
                projectused: totals.2.filter(|_| version >= 3),
                size: 512 << version,
            };
            let bytes = objset.encode();
            prop_assert_eq!(bytes.len(), objset.size);
            prop_assert_eq!(ObjsetPhys::decode(&bytes).unwrap(), objset);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 4096)) {
            let _ = ObjsetPhys::decode(&bytes);
        }
    }
}
