//! Properties of leaf blocks.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::leaf::{CHUNK_SIZE, HASH_AT};
use super::leaf_edit::NewEntry;
use super::{Leaf, LeafMut, Outcome, ZapDamage};

const SIZE: usize = 4096;

fn entry<'a>(hash: u64, name: &'a [u8], value: &'a [u8]) -> NewEntry<'a> {
    NewEntry { hash, cd: None, name, name_integer_size: 1, value_integer_size: 1, value }
}

/// Few distinct hashes, so that chains and collisions are common.
fn hash_of(name: &[u8]) -> u64 {
    u64::from(name[0] & 15) << 60 | u64::from(name.len() as u8 & 3) << 40
}

/// Walks everything and compares counts with the header.
fn check(leaf: &Leaf<'_>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ZapDamage> {
    let mut chunks = 0;
    let mut map = BTreeMap::new();
    let mut places = Vec::new();
    for entry in leaf.entries_from(0, 0)? {
        let (name, value) = (leaf.name(&entry, 1)?, leaf.value(&entry)?);
        chunks += 1 + name.len().div_ceil(21) + value.len().div_ceil(21);
        places.push((entry.hash, entry.cd));
        assert!(map.insert(name, value).is_none());
    }
    assert_eq!(usize::from(leaf.entry_count()), map.len());
    assert_eq!(usize::from(leaf.layout().chunks - leaf.free_chunks()), chunks);
    let sorted = places.clone();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places, sorted, "differentiators are not unique");
    Ok(map)
}

proptest! {
    #[test]
    fn a_leaf_behaves_like_a_map(
        steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..50), 0..90usize, 0..4u8), 1..150),
    ) {
        let mut bytes = vec![0; SIZE];
        let mut model = BTreeMap::new();
        let mut leaf = LeafMut::format(&mut bytes, 0, 0, false).unwrap();
        for (name, length, action) in steps {
            let hash = hash_of(&name);
            let value = vec![length as u8; length];
            let found = leaf.view().lookup(hash, &name, 1).unwrap();
            prop_assert_eq!(found.is_some(), model.contains_key(&name));
            match (found, action) {
                (Some(found), 0) => {
                    leaf.remove(&found).unwrap();
                    model.remove(&name);
                }
                (Some(found), _) => {
                    if leaf.update(&found, 1, &value).unwrap() == Outcome::Done {
                        model.insert(name, value);
                    }
                }
                (None, _) => {
                    if leaf.insert(&entry(hash, &name, &value)).unwrap() == Outcome::Done {
                        model.insert(name, value);
                    }
                }
            }
            prop_assert_eq!(&check(&leaf.view()).unwrap(), &model);
        }
        let mut other = vec![0; SIZE];
        let high = leaf.split(&mut other, false, 1).unwrap();
        let mut both = check(&high.view()).unwrap();
        for name in both.keys() {
            prop_assert!(high.view().covers(hash_of(name)));
        }
        let low = LeafMut::open(&mut bytes).unwrap();
        for (name, value) in check(&low.view()).unwrap() {
            prop_assert!(low.view().covers(hash_of(&name)));
            both.insert(name, value);
        }
        prop_assert_eq!(both, model);
    }

    #[test]
    fn garbage_is_damage_and_never_a_panic(
        noise in prop::collection::vec((0..SIZE, any::<u8>()), 1..40),
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20),
    ) {
        let mut bytes = vec![0; SIZE];
        let mut leaf = LeafMut::format(&mut bytes, 0, 0, false).unwrap();
        for name in &names {
            leaf.insert(&entry(hash_of(name), name, name)).unwrap();
        }
        for (at, byte) in noise {
            bytes[at] = byte;
        }
        let _ = Leaf::open(&bytes).and_then(|leaf| {
            for entry in leaf.entries_from(0, 0)? {
                let _ = (leaf.name(&entry, 1), leaf.value(&entry));
            }
            Ok(())
        });
        for name in &names {
            let mut copy = bytes.clone();
            let outcome = LeafMut::open(&mut copy).and_then(|mut leaf| {
                let found = leaf.view().lookup(hash_of(name), name, 1)?;
                match found {
                    Some(entry) if name.len() % 2 == 0 => leaf.remove(&entry).map(|()| Outcome::Done),
                    Some(entry) => leaf.update(&entry, 1, &[7; 100]),
                    None => leaf.insert(&entry(hash_of(name), name, name)),
                }
            });
            if outcome.ok() != Some(Outcome::Done) {
                prop_assert_eq!(&copy, &bytes, "what failed has changed something");
            }
            let (mut copy, mut other) = (bytes.clone(), vec![0; SIZE]);
            let _ = LeafMut::open(&mut copy).and_then(|mut leaf| leaf.split(&mut other, false, 1).map(|_| ()));
        }
    }
}

#[test]
fn a_ring_of_entries_is_damage() {
    let mut bytes = vec![0; SIZE];
    let mut leaf = LeafMut::format(&mut bytes, 0, 0, false).unwrap();
    leaf.insert(&entry(0, b"a\0", b"1")).unwrap();
    let found = leaf.view().lookup(0, b"a\0", 1).unwrap().unwrap();
    let at = leaf.view().layout().chunk_at(found.chunk);
    bytes[at + 2..at + 4].copy_from_slice(&found.chunk.to_le_bytes());
    let leaf = Leaf::open(&bytes).unwrap();
    assert!(leaf.lookup(0, b"b\0", 1).is_err());
    assert!(leaf.entries_from(0, 0).is_err());
}

#[test]
fn a_leaf_of_16_kib_has_the_sizes_openzfs_gives_it() {
    let mut bytes = vec![0; 1 << 14];
    let leaf = LeafMut::format(&mut bytes, 0, 0, false).unwrap();
    let layout = leaf.view().layout();
    assert_eq!((layout.buckets(), layout.chunks, layout.chunks_at), (512, 638, HASH_AT + 1024));
    assert_eq!(layout.chunk_at(layout.chunks), 1 << 14);
    assert_eq!(CHUNK_SIZE, 24);
}

// Each entry of a leaf may be in all buckets, and each may name the same chunks: a leaf of 128 KiB listed gigabytes.
#[test]
fn entries_that_share_chunks_are_damage_before_memory_is_taken_for_them() {
    let mut bytes = vec![0; SIZE];
    let mut leaf = LeafMut::format(&mut bytes, 0, 0, false).unwrap();
    for number in 0..20u8 {
        leaf.insert(&entry(u64::from(number) << 56, &[b'a' + number, 0], &[number; 40])).unwrap();
    }
    let entries = leaf.view().entries_from(0, 0).unwrap();
    let layout = leaf.view().layout();
    let mut shared = bytes.clone();
    for entry in &entries {
        // The longest value that the block could hold, from the first one's chunk, which now follows itself.
        let at = layout.chunk_at(entry.chunk);
        shared[at + 8..at + 10].copy_from_slice(&entries[0].value_chunk.to_le_bytes());
        shared[at + 10..at + 12].copy_from_slice(&(SIZE as u16 / 2).to_le_bytes());
    }
    let value = layout.chunk_at(entries[0].value_chunk);
    shared[value + CHUNK_SIZE - 2..value + CHUNK_SIZE].copy_from_slice(&entries[0].value_chunk.to_le_bytes());
    assert!(Leaf::open(&shared).unwrap().entries_from(0, 0).is_err());
    // One chain of entries, all before where the listing goes on, in every bucket.
    let mut everywhere = bytes;
    for (entry, next) in entries.iter().zip(&entries[1..]) {
        let at = layout.chunk_at(entry.chunk);
        everywhere[at + 2..at + 4].copy_from_slice(&next.chunk.to_le_bytes());
    }
    for bucket in 0..layout.buckets() {
        everywhere[HASH_AT + 2 * bucket..HASH_AT + 2 * bucket + 2].copy_from_slice(&entries[0].chunk.to_le_bytes());
    }
    assert!(Leaf::open(&everywhere).unwrap().entries_from(1, 0).is_err());
}
