//! Lists of block pointers: `bpobj_phys_t` (`include/sys/bpobj.h`), `dsl_deadlist_phys_t`
//! (`include/sys/dsl_deadlist.h`) and
//! `bptree_phys_t` (`include/sys/bptree.h`). Each is the bonus of an object.
//!
//! A bpobj's data is an array of pointers; from pool version 26 on it may also name further bpobjs. A deadlist's data
//! is a ZAP from birth group to bpobj. A bptree's data is an array of object sets still to be freed.

use crate::blkptr::{BLKPTR_SIZE, BlkPtr};
use crate::dsl::Bookmark;
use crate::error::Error;
use crate::ids::{ObjectId, Txg};
use crate::le::{put_words, u64_at, words_at};

/// Size of the first version: no compressed sizes.
pub const BPOBJ_SIZE_V0: usize = 16;
/// Size of the second version: no further bpobjs.
pub const BPOBJ_SIZE_V1: usize = 32;
/// Size of the third version: no freed count.
pub const BPOBJ_SIZE_V2: usize = 48;
/// Size of `bpobj_phys_t`.
pub const BPOBJ_SIZE: usize = 56;
/// Size of `dsl_deadlist_phys_t`.
pub const DEADLIST_SIZE: usize = 320;
/// Size of `bptree_phys_t`.
pub const BPTREE_SIZE: usize = 40;
/// Size of `bptree_entry_phys_t`.
pub const BPTREE_ENTRY_SIZE: usize = BLKPTR_SIZE + 40;

/// `bpobj_phys_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpobjPhys {
    /// Pointers in the object's data.
    pub num_blkptrs: u64,
    /// Space of all pointers, here and in the further bpobjs, in bytes, deflated.
    pub bytes: u64,
    /// The same after compression.
    pub comp: u64,
    /// The same before compression.
    pub uncomp: u64,
    /// Object with the numbers of further bpobjs (`DMU_OT_BPOBJ_SUBOBJ`); may be none.
    pub subobjs: ObjectId,
    /// How many of them.
    pub num_subobjs: u64,
    /// In a livelist: how many of the pointers are frees.
    pub num_freed: u64,
    /// Size of the bonus: one of the `BPOBJ_SIZE*`. Fields beyond it are zero.
    pub size: usize,
}

impl BpobjPhys {
    /// An empty list of this size.
    pub fn new(size: usize) -> Self {
        Self { num_blkptrs: 0, bytes: 0, comp: 0, uncomp: 0, subobjs: ObjectId(0), num_subobjs: 0, num_freed: 0, size }
    }

    /// Decodes a bonus; its length tells the version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let size = match bytes.len() {
            BPOBJ_SIZE_V0 | BPOBJ_SIZE_V1 | BPOBJ_SIZE_V2 => bytes.len(),
            n if n >= BPOBJ_SIZE => BPOBJ_SIZE,
            n => return Err(Error::field("bpobj", "bonus length", n as u64)),
        };
        let word = |i: usize| if i * 8 < size { u64_at(bytes, i * 8) } else { 0 };
        Ok(Self {
            num_blkptrs: word(0),
            bytes: word(1),
            comp: word(2),
            uncomp: word(3),
            subobjs: ObjectId(word(4)),
            num_subobjs: word(5),
            num_freed: word(6),
            size,
        })
    }

    /// The bonus, `size` bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; BPOBJ_SIZE];
        let words =
            [self.num_blkptrs, self.bytes, self.comp, self.uncomp, self.subobjs.0, self.num_subobjs, self.num_freed];
        put_words(&mut out, 0, &words);
        out.truncate(self.size);
        out
    }
}

/// `dsl_deadlist_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlistPhys {
    /// Space of all pointers, in bytes, deflated.
    pub used: u64,
    /// The same after compression.
    pub comp: u64,
    /// The same before compression.
    pub uncomp: u64,
}

impl DeadlistPhys {
    /// Decodes a bonus of at least 320 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("deadlist", bytes, DEADLIST_SIZE)?;
        let [used, comp, uncomp] = words_at(bytes, 0);
        Ok(Self { used, comp, uncomp })
    }

    /// The bonus, 320 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; DEADLIST_SIZE];
        put_words(&mut out, 0, &[self.used, self.comp, self.uncomp]);
        out
    }
}

/// `bptree_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BptreePhys {
    /// First entry not yet freed.
    pub begin: u64,
    /// Entries written.
    pub end: u64,
    /// Space still to be freed, in bytes, deflated.
    pub bytes: u64,
    /// The same after compression.
    pub comp: u64,
    /// The same before compression.
    pub uncomp: u64,
}

impl BptreePhys {
    /// Decodes a bonus of at least 40 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("bptree", bytes, BPTREE_SIZE)?;
        let [begin, end, used, comp, uncomp] = words_at(bytes, 0);
        if begin > end {
            return Err(Error::field("bptree", "bt_begin", begin));
        }
        Ok(Self { begin, end, bytes: used, comp, uncomp })
    }

    /// The bonus, 40 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; BPTREE_SIZE];
        put_words(&mut out, 0, &[self.begin, self.end, self.bytes, self.comp, self.uncomp]);
        out
    }
}

/// `bptree_entry_phys_t`: an object set to be freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BptreeEntryPhys {
    /// Its root.
    pub bp: BlkPtr,
    /// Only blocks born after this group are to be freed.
    pub birth_txg: Txg,
    /// Where freeing goes on.
    pub bookmark: Bookmark,
}

impl BptreeEntryPhys {
    /// Decodes one entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("bptree entry", bytes, BPTREE_ENTRY_SIZE)?;
        Ok(Self {
            bp: BlkPtr::decode(bytes),
            birth_txg: Txg(u64_at(bytes, BLKPTR_SIZE)),
            bookmark: Bookmark::from_words(words_at(bytes, BLKPTR_SIZE + 8)),
        })
    }

    /// The entry, 168 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; BPTREE_ENTRY_SIZE];
        self.bp.encode(&mut out);
        put_words(&mut out, BLKPTR_SIZE, &[self.birth_txg.0]);
        put_words(&mut out, BLKPTR_SIZE + 8, &self.bookmark.to_words());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn bpobjs_of_every_version_read_back(words: [u64; 7], version in 0..4usize) {
            let size = [BPOBJ_SIZE_V0, BPOBJ_SIZE_V1, BPOBJ_SIZE_V2, BPOBJ_SIZE][version];
            let bytes = bytes_of(&words[..size / 8]);
            let phys = BpobjPhys::decode(&bytes).unwrap();
            prop_assert_eq!(phys.num_blkptrs, words[0]);
            prop_assert_eq!(phys.encode(), bytes);
        }

        #[test]
        fn the_others_read_back(words: [u64; 5], entry: [u64; 21]) {
            let mut deadlist = bytes_of(&words[..3]);
            deadlist.resize(DEADLIST_SIZE, 0);
            prop_assert_eq!(DeadlistPhys::decode(&deadlist).unwrap().encode(), deadlist);
            let bptree = bytes_of(&words);
            match BptreePhys::decode(&bptree) {
                Ok(phys) => prop_assert_eq!(phys.encode(), bptree),
                Err(_) => prop_assert!(words[0] > words[1]),
            }
            let entry = bytes_of(&entry);
            prop_assert_eq!(BptreeEntryPhys::decode(&entry).unwrap().encode(), entry);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = BpobjPhys::decode(&bytes);
            let _ = DeadlistPhys::decode(&bytes);
            let _ = BptreePhys::decode(&bytes);
            let _ = BptreeEntryPhys::decode(&bytes);
        }
    }
}
