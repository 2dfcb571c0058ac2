//! Properties of live ZAPs, against a model, with the object set synced and opened anew in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_ondisk::zap::{FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY, FatHeader, PointerTable};
use platter_ondisk::{Checksum, Compression, ObjectId, ObjectType, ObjsetType, Txg};
use platter_zio::memory::{FreeAtOnce, MemoryStore};
use platter_zio::{BlockStore, Priority, Tx, TxgGate, ZioError};
use proptest::prelude::*;

use super::fat::Fat;
use super::{NewZap, Zap, ZapEntry, ZapValue};
use crate::objset::Objset;
use crate::properties::{ObjsetParams, WriteProperties};

// A pointer table may claim to be of 2^33 blocks, with one block repeated: a split rewrote half of it.
#[test]
fn a_pointer_table_that_the_pool_has_no_use_for_is_damage() {
    run(async {
        let store = Arc::new(MemoryStore::new());
        let fixture = Fixture::on(store.clone());
        let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(FLAG_HASH64)).await.unwrap();
        let block = zap.dnode().read_block(0, Priority::SyncRead).await.unwrap();
        let mut header = FatHeader::decode(&block).unwrap();
        let shift = header.table.shift;
        for (blocks_shift, fits) in [(10, true), (11, false), (30, false)] {
            let blocks = 1 << blocks_shift;
            header.table = PointerTable { block: 2, blocks, shift: shift + 1 + blocks_shift, ..header.table };
            header.free_block = 2 + blocks;
            zap.dnode().write(&fixture.tx(), 0, &header.encode()).await.unwrap();
            store.claim_space_used(64 << 20 >> 2);
            assert_eq!(zap.count().await.is_ok(), fits, "{blocks} blocks");
            store.claim_space_used(1 << 50);
            assert!(zap.count().await.is_ok());
        }
    });
}

// A deadlist has a key for each snapshot: it is copied for the next one, whatever its form.
#[test]
fn a_copy_has_all_keys_and_one_value() {
    run(async {
        let fixture = Fixture::new();
        for (count, block_size) in [(0, 512), (40, 3072), (2500, 128 << 10), (9000, 128 << 10)] {
            let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
            for key in 0..count {
                zap.put_int(&fixture.tx(), key * 7919, key % 3).await.unwrap();
            }
            let copy = Zap::create_with_keys_of(&fixture.os, &fixture.tx(), &zap, new_zap(0), 2).await.unwrap();
            // Of a copy, in which some keys have values of their own by now.
            for key in [0, 7919 * 5, 1_000_003] {
                copy.put_int(&fixture.tx(), key, 1 << 40).await.unwrap();
            }
            let again = Zap::create_with_keys_of(&fixture.os, &fixture.tx(), &copy, new_zap(0), 5).await.unwrap();
            let mut expected: BTreeMap<u64, u64> = (0..count).map(|key| (key * 7919, 2)).collect();
            expected.extend([0, 7919 * 5, 1_000_003].map(|key| (key, 1 << 40)));
            assert_eq!(copy.ints().await.unwrap(), expected.clone().into_iter().collect::<Vec<_>>(), "{count}");
            let keys = expected.into_keys().map(|key| (key, 5));
            assert_eq!(again.ints().await.unwrap(), keys.collect::<Vec<_>>(), "{count}");
            assert!(
                again.dnode().block_size() >= block_size,
                "{count} keys in blocks of {}",
                again.dnode().block_size()
            );
            // What memory knows is what is there.
            for zap in [&zap, &copy, &again] {
                zap.put_int(&fixture.tx(), 7919, 77).await.unwrap();
                assert!(zap.remove_int(&fixture.tx(), 7919).await.unwrap());
                assert!(!zap.remove_int(&fixture.tx(), 7919).await.unwrap());
                let known = zap.ints().await.unwrap();
                zap.shared().forget();
                assert_eq!(zap.ints().await.unwrap(), known, "{count}");
            }
            again.put_int(&fixture.tx(), 11, 12).await.unwrap();
            assert_eq!((again.get_int(11).await.unwrap(), copy.get_int(11).await.unwrap()), (Some(12), None));
        }
    });
}

// Leaves of names and values that say the same compress to next to nothing, and all of them were gathered at once.
#[test]
fn entries_that_take_more_memory_than_there_is_are_damage() {
    run(async {
        let fixture = Fixture::new();
        let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(FLAG_HASH64)).await.unwrap();
        let value = ZapValue { integer_size: 1, integers: vec![7; 4000] };
        for name in 0..10u8 {
            zap.put(&fixture.tx(), &[b'a' + name; 30], &value).await.unwrap();
        }
        let block = zap.dnode().read_block(0, Priority::SyncRead).await.unwrap();
        let fat = Fat::open(zap.dnode(), &block).unwrap();
        // A byte of a value takes eight in memory.
        let each = size_of::<ZapEntry>() + 30 + 8 * 4000;
        for (limit, memory, count) in [(100, 10 * each, Some(10)), (100, 10 * each - 1, None), (2, 2 * each, Some(2))] {
            let entries = fat.entries(0, limit, memory).await;
            assert_eq!(entries.ok().map(|entries| entries.len()), count, "{limit}, {memory}");
        }
        assert_eq!(zap.all().await.unwrap().len(), 10);
    });
}

// Names that differ in case only have one hash: a few hundred made a table that could not be read any more.
#[test]
fn the_longest_table_of_short_hashes_is_believed_in_a_small_pool() {
    run(async {
        let store = Arc::new(MemoryStore::new());
        let fixture = Fixture::on(store.clone());
        store.claim_space_used(1 << 20);
        let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
        zap.add(&fixture.tx(), &[b'n'; 100], &ZapValue::from_u64(7)).await.unwrap();
        let block = zap.dnode().read_block(0, Priority::SyncRead).await.unwrap();
        let header = FatHeader::decode(&block).unwrap();
        for (shift, fits) in [(26, true), (27, false)] {
            let blocks = 1 << (shift - header.table.shift - 1);
            let table = PointerTable { block: 2, blocks, shift, ..header.table };
            let claimed = FatHeader { table, free_block: 2 + blocks, ..header };
            zap.dnode().write(&fixture.tx(), 0, &claimed.encode()).await.unwrap();
            assert_eq!(zap.count().await.is_ok(), fits, "2^{shift} pointers");
        }
    });
}

type Model = BTreeMap<Vec<u8>, ZapValue>;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn new_zap(flags: u64) -> NewZap {
    NewZap {
        object_type: ObjectType::OBJECT_DIRECTORY,
        normalization: 0,
        flags,
        bonus_type: ObjectType::NONE,
        bonus_length: 0,
        dnode_size: 0,
        salt: 0x5eed,
    }
}

/// An object set on memory, and its current group.
struct Fixture {
    params: ObjsetParams,
    os: Arc<Objset>,
    txg: Txg,
}

impl Fixture {
    fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new()))
    }

    fn on(store: Arc<dyn BlockStore>) -> Self {
        let properties = WriteProperties {
            checksum: Checksum::FLETCHER_4,
            compression: Compression::OFF,
            compression_level: 0,
            copies: 1,
            record_size: 128 << 10,
            is_mos: true,
            embedded_data: false,
            dnode_size: 512,
            redundant_metadata: crate::RedundantMetadata::All,
            format: crate::Format::default(),
            accounting: crate::UserAccounting::default(),
        };
        let params = ObjsetParams {
            accounting: Arc::new(FreeAtOnce(store.clone())),
            store,
            gate: TxgGate::new(Txg(4), u64::MAX / 2),
            id: ObjectId(0),
            properties,
            read_only: false,
        };
        let os = Objset::create(params.clone(), ObjsetType::META, &Tx::syncing(Txg(4)));
        Self { params, os, txg: Txg(4) }
    }

    fn tx(&self) -> Tx {
        Tx::syncing(self.txg)
    }

    /// Writes everything, forgets it and opens it again from the blocks.
    async fn reopen(&mut self) {
        let root = self.os.sync(self.txg, 1).await.unwrap();
        self.os = Objset::open(self.params.clone(), root).await.unwrap();
        self.txg = self.txg.plus(1);
    }
}

async fn check(zap: &Zap, model: &Model) {
    assert_eq!(zap.count().await.unwrap(), model.len() as u64);
    let entries = zap.all().await.unwrap();
    assert_eq!(entries.len(), model.len());
    for entry in &entries {
        assert_eq!(model.get(&entry.name), Some(&entry.value), "{}", String::from_utf8_lossy(&entry.name));
    }
    let mut paged = Vec::new();
    let mut cursor = 0;
    loop {
        let page = zap.entries(cursor, 37).await.unwrap();
        let Some(last) = page.last() else { break };
        cursor = last.cursor;
        paged.extend(page);
    }
    assert_eq!(paged, entries);
}

fn name(number: u32) -> Vec<u8> {
    // Most names are short; some are as long as they may be.
    let length = if number.is_multiple_of(97) { 255 } else { 6 + (number % 23) as usize };
    let mut name = format!("{number:x}-").into_bytes();
    name.resize(length.max(name.len()), b'a' + (number % 26) as u8);
    name
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_zap_behaves_like_a_map(
        steps in prop::collection::vec((0..400u32, 0..12u8, any::<u64>()), 1..400),
        reopen_every in 20..200usize,
    ) {
        run(async {
            let mut fixture = Fixture::new();
            let mut zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
            let object = zap.dnode().object();
            let mut model = Model::new();
            for (step, (number, action, word)) in steps.into_iter().enumerate() {
                if step % reopen_every == reopen_every - 1 {
                    fixture.reopen().await;
                    zap = Zap::open(&fixture.os, object).await.unwrap();
                }
                let (tx, name) = (fixture.tx(), name(number));
                match action {
                    0..=2 => {
                        let was = zap.remove(&tx, &name).await.unwrap();
                        assert_eq!(was, model.remove(&name).is_some());
                    }
                    3 => {
                        // Only a fat ZAP holds this.
                        let length = word as usize % 600;
                        let value = ZapValue { integer_size: 2, integers: vec![word & 0xffff; length] };
                        zap.put(&tx, &name, &value).await.unwrap();
                        model.insert(name, value);
                    }
                    4..=6 => {
                        let added = zap.add_u64(&tx, &name, word).await;
                        if let std::collections::btree_map::Entry::Vacant(entry) = model.entry(name) {
                            added.unwrap();
                            entry.insert(ZapValue::from_u64(word));
                        } else {
                            assert!(matches!(added, Err(ZioError::Exists(_))));
                        }
                    }
                    _ => {
                        zap.put_u64(&tx, &name, word).await.unwrap();
                        model.insert(name, ZapValue::from_u64(word));
                    }
                }
            }
            check(&zap, &model).await;
            fixture.reopen().await;
            check(&Zap::open(&fixture.os, object).await.unwrap(), &model).await;
        });
    }
}

/// The table has grown out of the header, and shrinks to one leaf when all is removed.
#[test]
fn twenty_thousand_entries_come_and_go() {
    run(async {
        let mut fixture = Fixture::new();
        let mut zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
        let object = zap.dnode().object();
        let mut model = Model::new();
        for number in 0..20_000 {
            zap.add_u64(&fixture.tx(), &name(number), u64::from(number)).await.unwrap();
            model.insert(name(number), ZapValue::from_u64(u64::from(number)));
            if number % 7_001 == 0 {
                fixture.reopen().await;
                zap = Zap::open(&fixture.os, object).await.unwrap();
                check(&zap, &model).await;
            }
        }
        check(&zap, &model).await;
        for number in 0..20_000u32 {
            assert_eq!(zap.get_u64(&name(number)).await.unwrap(), Some(u64::from(number)));
        }
        assert_eq!(zap.get(b"absent").await.unwrap(), None);
        for number in (0..20_000).rev() {
            assert!(zap.remove(&fixture.tx(), &name(number)).await.unwrap());
            model.remove(&name(number));
            if number % 6_001 == 0 {
                fixture.reopen().await;
                zap = Zap::open(&fixture.os, object).await.unwrap();
                check(&zap, &model).await;
            }
        }
        let block = zap.dnode().read_block(0, Priority::SyncRead).await.unwrap();
        let (leaves, free_block) = Fat::open(zap.dnode(), &block).unwrap().sizes();
        assert_eq!(leaves, 1, "empty siblings were joined");
        assert!(free_block < 8, "block numbers were given back, {free_block} is next");
    });
}

#[test]
fn the_pointer_table_outgrows_the_header_and_then_one_block() {
    run(async {
        let mut fixture = Fixture::new();
        // Words that are their own hash: a few long shared prefixes deepen the tree quickly.
        let flags = FLAG_HASH64 | FLAG_UINT64_KEY | FLAG_PRE_HASHED_KEY;
        let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(flags)).await.unwrap();
        let mut model = Model::new();
        for number in 0..2_000u64 {
            let word = if number.is_multiple_of(4) { number << 52 } else { 0xabc << 52 | number << 36 };
            let mut key = word.to_be_bytes().to_vec();
            key.extend_from_slice(&number.to_be_bytes());
            let value = ZapValue { integer_size: 8, integers: vec![number; 5] };
            zap.add(&fixture.tx(), &key, &value).await.unwrap();
            model.insert(key, value);
        }
        check(&zap, &model).await;
        let object = zap.dnode().object();
        fixture.reopen().await;
        let zap = Zap::open(&fixture.os, object).await.unwrap();
        check(&zap, &model).await;
        let block = zap.dnode().read_block(0, Priority::SyncRead).await.unwrap();
        let header = platter_ondisk::zap::FatHeader::decode(&block).unwrap();
        assert!(header.table.shift > 12 && header.table.blocks > 2, "{header:?}");
        assert!(zap.get(&[0; 7]).await.unwrap().is_none());
    });
}

#[test]
fn a_cursor_stays_valid_while_other_entries_come_and_go() {
    run(async {
        for entries in [100u32, 6_000] {
            let fixture = Fixture::new();
            let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
            for number in 0..entries {
                zap.add_u64(&fixture.tx(), &name(number), 1).await.unwrap();
            }
            let mut seen = std::collections::BTreeSet::new();
            let (mut cursor, mut step) = (0, 0);
            loop {
                let page = zap.entries(cursor, 50).await.unwrap();
                let Some(last) = page.last() else { break };
                cursor = last.cursor;
                for entry in &page {
                    assert!(seen.insert(entry.name.clone()), "listed twice");
                    // What was listed may go, as `rm -r` does it, and new names may come.
                    if step % 3 == 0 {
                        assert!(zap.remove(&fixture.tx(), &entry.name).await.unwrap());
                    }
                    zap.add_u64(&fixture.tx(), format!("new {step}").as_bytes(), 2).await.unwrap();
                    step += 1;
                    assert!(step < 100 * entries, "the listing does not end");
                }
            }
            for number in 0..entries {
                assert!(seen.contains(&name(number)), "entry {number} was missed");
            }
        }
    });
}

#[test]
fn impossible_names_and_values_are_refused() {
    run(async {
        let fixture = Fixture::new();
        let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(0)).await.unwrap();
        let tx = fixture.tx();
        for bad in [&b""[..], b"a\0b", &[b'x'; 256]] {
            assert!(matches!(zap.put_u64(&tx, bad, 1).await, Err(ZioError::Invalid(_))));
            assert_eq!(zap.get(bad).await.unwrap(), None);
            assert!(!zap.remove(&tx, bad).await.unwrap());
        }
        let wide = ZapValue { integer_size: 8, integers: vec![0; 1025] };
        assert!(matches!(zap.put(&tx, b"wide", &wide).await, Err(ZioError::Invalid(_))));
        let odd = ZapValue { integer_size: 3, integers: vec![0] };
        assert!(matches!(zap.put(&tx, b"odd", &odd).await, Err(ZioError::Invalid(_))));
        let empty = ZapValue { integer_size: 1, integers: vec![] };
        zap.put(&tx, b"empty", &empty).await.unwrap();
        assert_eq!(zap.get(b"empty").await.unwrap(), Some(empty));
        assert!(zap.get_u64(b"empty").await.is_err());
    });
}

#[test]
fn names_that_fold_to_one_live_side_by_side() {
    run(async {
        for fat in [false, true] {
            let fixture = Fixture::new();
            let new = NewZap { normalization: platter_ondisk::zap::name::TO_UPPER as u32, ..new_zap(0) };
            let zap = Zap::create(&fixture.os, &fixture.tx(), None, new).await.unwrap();
            let tx = fixture.tx();
            if fat {
                zap.put(&tx, b"text", &ZapValue::from_string("value")).await.unwrap();
            }
            zap.add_u64(&tx, b"File", 1).await.unwrap();
            zap.add_u64(&tx, b"FILE", 2).await.unwrap();
            assert_eq!(zap.get_u64(b"FILE").await.unwrap(), Some(2));
            assert_eq!(zap.get_u64(b"file").await.unwrap(), None);
            let found = async |name: &str, match_case| {
                let found = zap.get_normalized(name.as_bytes(), match_case).await.unwrap();
                found.map(|(name, value)| (String::from_utf8(name).unwrap(), value.integers[0]))
            };
            assert_eq!(found("file", false).await, Some(("File".into(), 1)));
            assert_eq!(found("FILE", false).await, Some(("FILE".into(), 2)));
            assert_eq!(found("file", true).await, None);
            zap.put_u64(&tx, "Straße".as_bytes(), 3).await.unwrap();
            assert_eq!(found("STRAßE", false).await, Some(("Straße".into(), 3)));
            assert_eq!(found("STRASSE", false).await, None);
            assert!(zap.remove(&tx, "Straße".as_bytes()).await.unwrap());
            // A name whose form is unknown is refused.
            assert!(matches!(zap.put_u64(&tx, "\u{345}".as_bytes(), 4).await, Err(ZioError::Invalid(_))));
            assert_eq!(zap.get("\u{345}".as_bytes()).await.unwrap(), None);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_is_an_error_and_never_a_panic(
        fat: bool,
        noise in prop::collection::vec((0..3u64, 0..16_384usize, any::<u8>()), 1..30),
    ) {
        run(async {
            let fixture = Fixture::new();
            let zap = Zap::create(&fixture.os, &fixture.tx(), None, new_zap(u64::from(fat))).await.unwrap();
            let tx = fixture.tx();
            for number in 0..300 {
                zap.put_u64(&tx, &name(number), 1).await.unwrap();
            }
            let size = zap.dnode().block_size() as usize;
            for (block, at, byte) in noise {
                // Headers are where the interesting fields are.
                let at = if at % 3 == 0 { at % 128 } else { at % size };
                zap.dnode().write(&tx, block * size as u64 + at as u64, &[byte]).await.unwrap();
            }
            *zap.shared().index.write() = None;
            let _ = (zap.all().await, zap.count().await);
            for number in 0..40 {
                let _ = zap.get(&name(number)).await;
                let _ = zap.remove(&tx, &name(number)).await;
                let _ = zap.put(&tx, &name(number + 1_000), &ZapValue::from_bytes(&[1; 700])).await;
            }
        });
    }
}

#[test]
fn operations_can_run_on_any_thread() {
    fn sendable(_: impl Send) {}
    let fixture = Fixture::new();
    let tx = fixture.tx();
    let zap = run(Zap::create(&fixture.os, &tx, None, new_zap(0))).unwrap();
    let value = ZapValue::from_u64(1);
    sendable(Zap::create(&fixture.os, &tx, None, new_zap(0)));
    sendable((zap.get(b"a"), zap.get_normalized(b"a", false), zap.put(&tx, b"a", &value), zap.remove(&tx, b"a")));
    sendable((zap.entries(0, 1), zap.count()));
}
