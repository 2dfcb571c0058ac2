//! Objects through write, sync, reopen and read, example by example.

use std::sync::Arc;

use crate::support::{World, file};
use platter_buffer::Buf;
use platter_dmu::{NewDnode, Objset, Tx, ZioError};
use platter_ondisk::{ObjectId, ObjectType, ObjsetType, Txg};
use platter_zio::Priority;

async fn reopen(world: &World, os: &Arc<Objset>) -> Arc<Objset> {
    Objset::open(world.params(), os.root()).await.unwrap()
}

#[tokio::test]
async fn what_was_written_is_read_back_after_a_sync_and_a_reopen() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(4096)).await.unwrap();
    assert_eq!(dnode.object(), ObjectId(1));
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    dnode.write(&tx, 0, &data).await.unwrap();
    dnode.set_bonus(&tx, ObjectType::SA, b"attributes").unwrap();
    drop(tx);
    let mut out = vec![0; 1_000_000];
    dnode.read(0, &mut out).await.unwrap();
    assert_eq!(out, data);
    let root = world.sync(&os).await;
    let audit = world.audit(&root).await;
    assert_eq!(audit.objects[&1].levels, 2);
    let os = reopen(&world, &os).await;
    let dnode = os.dnode(ObjectId(1)).await.unwrap();
    dnode.read(0, &mut out).await.unwrap();
    assert_eq!(out, data);
    assert_eq!(dnode.bonus()[..], *b"attributes");
    assert_eq!(os.object_count(), 1);
    assert!(matches!(os.dnode(ObjectId(2)).await, Err(ZioError::NotFound(_))));
}

#[tokio::test]
async fn an_object_set_without_objects_has_only_its_head() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    drop(tx);
    assert!(os.root().is_hole() && os.is_dirty(Txg(4)));
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects.len(), 0);
    assert_eq!(world.store.live_blocks(), 1);
    assert_eq!(os.sync(Txg(5), 1).await.unwrap(), root, "nothing dirty, nothing written");
}

#[tokio::test]
async fn a_file_system_starts_with_six_levels_of_meta_dnode_and_the_mos_with_one() {
    for (is_mos, levels) in [(false, 6), (true, 1)] {
        let world = World::new(is_mos);
        let tx = world.gate.begin().await.unwrap();
        let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
        assert_eq!(os.phys().meta_dnode.levels, levels);
    }
}

#[tokio::test]
async fn a_tree_grows_levels_with_its_last_block_and_shrinks_to_holes() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let new = NewDnode { indirect_shift: 12, ..file(512) };
    let dnode = os.allocate(&tx, new).await.unwrap();
    let block = |n: u8| Buf::copy_from(&[n; 512]);
    dnode.write_block(&tx, 0, block(1)).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    assert_eq!(dnode.info().levels, 1);
    // From one level to five at once, in one group.
    let far = 32u64.pow(3) * 7;
    let tx = world.gate.begin().await.unwrap();
    dnode.write_block(&tx, far, block(2)).await.unwrap();
    drop(tx);
    assert_eq!(dnode.info().levels, 5);
    let root = world.sync(&os).await;
    let audit = world.audit(&root).await;
    assert_eq!((audit.objects[&1].levels, audit.objects[&1].max_blkid), (5, far));
    assert_eq!(dnode.read_block(0, Priority::SyncRead).await.unwrap(), block(1));
    assert_eq!(dnode.seek(512, false).await.unwrap(), Some(far * 512));
    assert_eq!(dnode.seek(far * 512 + 3, true).await.unwrap(), Some((far + 1) * 512));
    assert_eq!(dnode.seek(0, true).await.unwrap(), Some(512));
    let tx = world.gate.begin().await.unwrap();
    dnode.free_range(&tx, 512, u64::MAX).await.unwrap();
    drop(tx);
    let root = world.sync(&os).await;
    let audit = world.audit(&root).await;
    assert_eq!((audit.objects[&1].levels, audit.objects[&1].max_blkid), (5, 0));
    assert_eq!(dnode.read_block(0, Priority::SyncRead).await.unwrap(), block(1));
    let tx = world.gate.begin().await.unwrap();
    dnode.free_range(&tx, 0, u64::MAX).await.unwrap();
    drop(tx);
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects[&1].used_bytes(), 0);
}

#[tokio::test]
async fn a_freed_object_is_gone_with_its_blocks_and_its_number_comes_back_later() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let mut objects = Vec::new();
    for _ in 0..100 {
        let dnode = os.allocate(&tx, file(4096)).await.unwrap();
        dnode.write(&tx, 0, &[7; 20_000]).await.unwrap();
        objects.push(dnode.object());
    }
    drop(tx);
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects.len(), 100);
    let tx = world.gate.begin().await.unwrap();
    for &object in &objects {
        os.free_object(&tx, object).await.unwrap();
        assert!(matches!(os.dnode(object).await, Err(ZioError::NotFound(_))));
    }
    assert!(os.next_object(ObjectId(0)).await.unwrap().is_none());
    let other = os.allocate(&tx, file(4096)).await.unwrap();
    assert!(!objects.contains(&other.object()), "not reused before the sync");
    drop(tx);
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects.len(), 1);
    let tx = world.gate.begin().await.unwrap();
    os.free_object(&tx, other.object()).await.unwrap();
    for _ in 0..200 {
        let dnode = os.allocate(&tx, file(4096)).await.unwrap();
        assert!(dnode.object() != other.object());
    }
    drop(tx);
    world.sync(&os).await;
    assert!(objects.iter().all(|_| os.object_count() == 200));
}

#[tokio::test]
async fn the_mos_syncs_again_for_what_its_own_sync_dirtied() {
    let world = World::new(true);
    let txg = Txg(4);
    let tx = Tx::syncing(txg);
    let os = Objset::create(world.params(), ObjsetType::META, &tx);
    let list = os
        .allocate(
            &tx,
            NewDnode {
                object_type: ObjectType::SPACE_MAP,
                bonus_type: ObjectType::SPACE_MAP_HEADER,
                bonus_length: 24,
                ..file(4096)
            },
        )
        .await
        .unwrap();
    list.write(&tx, 0, b"first pass").await.unwrap();
    let first = os.sync(txg, 1).await.unwrap();
    world.audit(&first).await;
    list.write(&tx, 6, b"second").await.unwrap();
    let more = os.allocate(&tx, NewDnode { object_type: ObjectType::OBJECT_DIRECTORY, ..file(512) }).await.unwrap();
    more.write(&tx, 0, &[3; 512]).await.unwrap();
    let second = os.sync(txg, 2).await.unwrap();
    assert_eq!(second.dva(0), first.dva(0), "rewritten in place");
    let audit = world.audit(&second).await;
    assert_eq!(audit.objects.len(), 2);
    assert_eq!(os.sync(txg, 3).await.unwrap(), second);
    let os = reopen(&world, &os).await;
    let mut out = [0; 12];
    os.dnode(list.object()).await.unwrap().read(0, &mut out).await.unwrap();
    assert_eq!(&out, b"first second");
}

#[tokio::test]
async fn the_block_size_changes_while_there_is_one_block() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(512)).await.unwrap();
    dnode.write(&tx, 0, &[9; 512]).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    let tx = world.gate.begin().await.unwrap();
    dnode.set_block_size(&tx, 1536).await.unwrap();
    assert!(dnode.write(&tx, 1536, &[1]).await.is_err(), "a second block needs a power of two");
    dnode.write(&tx, 1000, &[8; 100]).await.unwrap();
    drop(tx);
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects[&1].data_block_size(), 1536);
    let tx = world.gate.begin().await.unwrap();
    dnode.set_block_size(&tx, 4096).await.unwrap();
    dnode.write(&tx, 4096, &[5; 4096]).await.unwrap();
    assert!(dnode.set_block_size(&tx, 8192).await.is_err());
    drop(tx);
    let root = world.sync(&os).await;
    world.audit(&root).await;
    let mut out = vec![0; 8192];
    dnode.read(0, &mut out).await.unwrap();
    assert!(out[..512].iter().all(|&b| b == 9) && out[512..1000].iter().all(|&b| b == 0));
    assert!(out[1000..1100].iter().all(|&b| b == 8) && out[1100..4096].iter().all(|&b| b == 0));
    assert!(out[4096..].iter().all(|&b| b == 5));
}

#[tokio::test]
async fn a_spill_block_comes_stays_and_goes() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(512)).await.unwrap();
    assert_eq!((dnode.bonus_capacity(false), dnode.bonus_capacity(true)), (320, 192));
    let spill = Buf::copy_from(&[3; 1024]);
    dnode.set_spill(&tx, Some(spill.clone())).unwrap();
    assert!(dnode.set_bonus(&tx, ObjectType::SA, &[0; 193]).is_err());
    drop(tx);
    assert_eq!(dnode.spill().await.unwrap(), Some(spill.clone()));
    let root = world.sync(&os).await;
    assert!(world.audit(&root).await.objects[&1].spill.is_some());
    let os = reopen(&world, &os).await;
    let dnode = os.dnode(ObjectId(1)).await.unwrap();
    assert_eq!(dnode.spill().await.unwrap(), Some(spill));
    let tx = world.gate.begin().await.unwrap();
    dnode.set_spill(&tx, None).unwrap();
    dnode.set_bonus(&tx, ObjectType::SA, &[1; 320]).unwrap();
    drop(tx);
    assert_eq!(dnode.spill().await.unwrap(), None);
    let root = world.sync(&os).await;
    assert!(world.audit(&root).await.objects[&1].spill.is_none());
}

#[tokio::test]
async fn large_dnodes_stay_inside_their_block() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    for n in 0..60u8 {
        let dnode = os.allocate(&tx, NewDnode { dnode_size: 1536, ..file(512) }).await.unwrap();
        assert!(dnode.object().0 % 32 + 3 <= 32);
        dnode.set_bonus(&tx, ObjectType::SA, &vec![n; dnode.bonus_capacity(false)]).unwrap();
        let small = os.allocate(&tx, NewDnode { dnode_size: 512, ..file(512) }).await.unwrap();
        small.set_bonus(&tx, ObjectType::SA, &[n; 320]).unwrap();
    }
    drop(tx);
    let root = world.sync(&os).await;
    let audit = world.audit(&root).await;
    assert_eq!(audit.objects.len(), 120);
    assert!(audit.objects.values().all(|dnode| dnode.bonus.iter().all(|&b| b == dnode.bonus[0])));
    let os = reopen(&world, &os).await;
    let mut object = ObjectId(0);
    for (&expected, phys) in &audit.objects {
        object = os.next_object(object).await.unwrap().unwrap();
        assert_eq!(object.0, expected);
        assert_eq!(os.dnode(object).await.unwrap().bonus()[..], phys.bonus);
        let inner = ObjectId(expected + 1);
        if phys.slots() > 1 {
            assert!(matches!(os.dnode(inner).await, Err(ZioError::NotFound(_))), "an inner slot is no object");
        }
    }
    assert_eq!(os.next_object(object).await.unwrap(), None);
}

#[tokio::test]
async fn a_claimed_number_is_taken_and_cannot_be_claimed_twice() {
    let world = World::new(true);
    let tx = Tx::syncing(Txg(4));
    let os = Objset::create(world.params(), ObjsetType::META, &tx);
    let far = ObjectId(5_000_000);
    os.claim(&tx, far, file(512)).await.unwrap();
    assert!(matches!(os.claim(&tx, far, file(512)).await, Err(ZioError::Exists(_))));
    let root = os.sync(Txg(4), 1).await.unwrap();
    assert_eq!(world.audit(&root).await.objects.keys().copied().collect::<Vec<_>>(), [far.0]);
    assert_eq!(os.next_object(ObjectId(0)).await.unwrap(), Some(far));
}

#[tokio::test]
async fn concurrent_opens_of_one_object_give_one_handle() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    os.allocate(&tx, file(512)).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    let os = reopen(&world, &os).await;
    let opens = futures::future::join_all((0..10).map(|_| os.dnode(ObjectId(1)))).await;
    let first = opens[0].as_ref().unwrap();
    assert!(opens.iter().all(|open| Arc::ptr_eq(open.as_ref().unwrap(), first)));
}

#[tokio::test]
async fn a_file_with_a_lost_indirect_block_can_still_be_deleted() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(512)).await.unwrap();
    dnode.write(&tx, 0, &vec![1; 512 * 2000]).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    world.store.lose(&dnode.phys().blkptrs[0]);
    let tx = world.gate.begin().await.unwrap();
    assert!(dnode.write(&tx, 512 * 100, &[2; 512]).await.is_err(), "the writer learns of it, not the sync");
    os.free_object(&tx, dnode.object()).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    assert_eq!(os.object_count(), 0);
}

/// Every pointer of an object's first indirect block.
async fn first_indirect(world: &World, dnode: &platter_dmu::Dnode) -> Vec<platter_ondisk::BlkPtr> {
    use platter_zio::{BlockReader, Bookmark};
    let bp = dnode.phys().blkptrs[0];
    let block = world.store.read(&bp, Bookmark::default(), Priority::SyncRead).await.unwrap();
    block.chunks_exact(128).map(platter_ondisk::BlkPtr::decode).collect()
}

#[tokio::test]
async fn holes_remember_when_they_were_punched() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, NewDnode { indirect_shift: 12, ..file(512) }).await.unwrap();
    let block = Buf::copy_from(&[1; 512]);
    for blkid in [0, 3, 4, 200] {
        dnode.write_block(&tx, blkid, block.clone()).await.unwrap();
    }
    drop(tx);
    world.sync(&os).await;
    assert_eq!(dnode.info().levels, 3);
    let tx = world.gate.begin().await.unwrap();
    let punched = tx.txg();
    dnode.free_range(&tx, 0, 32 * 512).await.unwrap();
    drop(tx);
    let root = world.sync(&os).await;
    world.audit(&root).await;
    let level_one = first_indirect(&world, &dnode).await[0];
    assert!(level_one.is_hole() && level_one.birth() == punched && level_one.level() == 1);
    // A write below the hole: its neighbours stay holes of the hole's age.
    let tx = world.gate.begin().await.unwrap();
    dnode.write_block(&tx, 5, block).await.unwrap();
    drop(tx);
    let root = world.sync(&os).await;
    world.audit(&root).await;
    let level_two = dnode.phys().blkptrs[0];
    assert_eq!(level_two.level(), 2);
    let neighbours = {
        use platter_zio::{BlockReader, Bookmark};
        let bp = first_indirect(&world, &dnode).await[0];
        let block = world.store.read(&bp, Bookmark::default(), Priority::SyncRead).await.unwrap();
        block.chunks_exact(128).map(platter_ondisk::BlkPtr::decode).collect::<Vec<_>>()
    };
    assert!(!neighbours[5].is_hole());
    assert!(neighbours.iter().enumerate().all(|(at, bp)| at == 5 || bp.is_hole() && bp.birth() == punched));
}

#[tokio::test]
async fn many_readers_of_one_uncached_block_read_it_once() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(4096)).await.unwrap();
    dnode.write(&tx, 0, &[7; 4096]).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    world.store.forget_cache(true);
    let before = world.store.reads();
    let reads = (0..20).map(|_| dnode.read_block(0, Priority::SyncRead));
    for block in futures::future::join_all(reads).await {
        assert!(block.unwrap().iter().all(|&b| b == 7));
    }
    assert_eq!(world.store.reads() - before, 1);
}

/// Run by hand: `cargo test --release -p platter-dmu --test objects -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods)]
async fn rates_of_memory_writes_syncs_and_reads() {
    let world = World::new(false);
    let store = Arc::new(platter_zio::memory::MemoryStore::new());
    let params = platter_dmu::ObjsetParams {
        accounting: Arc::new(platter_zio::memory::FreeAtOnce(store.clone())),
        store,
        ..world.params()
    };
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(params, ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(1 << 20)).await.unwrap();
    let data = vec![1u8; 1 << 20];
    let total = 1024u64;
    let mut clock = std::time::Instant::now();
    let mut lap = |what: &str, count: f64, unit: &str| {
        println!("{what}: {:.0} {unit}/s", count / clock.elapsed().as_secs_f64());
        clock = std::time::Instant::now();
    };
    for n in 0..total {
        dnode.write(&tx, n << 20, &data).await.unwrap();
    }
    lap("1 MiB writes", total as f64, "MiB");
    drop(tx);
    world.sync(&os).await;
    lap("sync of 1 MiB blocks", total as f64, "MiB");
    let mut out = vec![0; 1 << 20];
    for n in 0..total {
        dnode.read(n << 20, &mut out).await.unwrap();
    }
    lap("1 MiB reads", total as f64, "MiB");
    let tx = world.gate.begin().await.unwrap();
    for n in 0..50_000u32 {
        let small = os.allocate(&tx, file(4096)).await.unwrap();
        small.write(&tx, 0, &n.to_le_bytes()).await.unwrap();
        small.set_bonus(&tx, ObjectType::SA, &[1; 168]).unwrap();
    }
    lap("small files made", 50_000.0, "files");
    drop(tx);
    world.sync(&os).await;
    lap("small files synced", 50_000.0, "files");
    let tx = world.gate.begin().await.unwrap();
    let sparse = os.allocate(&tx, file(4096)).await.unwrap();
    for n in 0..20_000u64 {
        sparse.write_block(&tx, n * 7919 % (1 << 18), Buf::copy_from(&[1; 4096])).await.unwrap();
    }
    lap("scattered 4 KiB writes", 20_000.0, "blocks");
    drop(tx);
    world.sync(&os).await;
    lap("scattered 4 KiB synced", 20_000.0, "blocks");
    let tx = world.gate.begin().await.unwrap();
    for n in 2..50_000 {
        os.free_object(&tx, ObjectId(n)).await.unwrap();
    }
    drop(tx);
    world.sync(&os).await;
    lap("small files deleted", 50_000.0, "files");
}

#[tokio::test]
async fn transactions_of_two_groups_that_overlap_lose_nothing() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, file(4096)).await.unwrap();
    dnode.write(&tx, 0, &[1; 16384]).await.unwrap();
    drop(tx);
    world.sync(&os).await;
    let early = world.gate.begin().await.unwrap();
    let closing = {
        let (gate, os) = (world.gate.clone(), os.clone());
        tokio::spawn(async move {
            let txg = gate.quiesce().await;
            let root = os.sync(txg, 1).await.unwrap();
            gate.finish(txg);
            root
        })
    };
    tokio::task::yield_now().await;
    let late = world.gate.begin().await.unwrap();
    assert!(early.txg() < late.txg());
    // The later group first: a part of a block, a whole block, a hole, the bonus.
    dnode.write(&late, 100, &[2; 100]).await.unwrap();
    dnode.write(&late, 4096, &[2; 4096]).await.unwrap();
    dnode.free_range(&late, 8192, 4096).await.unwrap();
    dnode.set_bonus(&late, ObjectType::SA, b"late").unwrap();
    dnode.write(&early, 300, &[3; 100]).await.unwrap();
    dnode.write(&early, 4096, &[3; 100]).await.unwrap();
    dnode.write(&early, 8192, &[3; 100]).await.unwrap();
    assert!(!dnode.change_bonus(&early, |_| true).unwrap(), "a later group changed it");
    dnode.set_bonus(&early, ObjectType::SA, b"early, but last").unwrap();
    let last = |bytes: &mut [u8]| {
        bytes[..5].copy_from_slice(b"later");
        true
    };
    assert!(dnode.change_bonus(&late, last).unwrap());
    drop((early, late));
    let mut expected = vec![1; 16384];
    expected[100..200].fill(2);
    expected[300..400].fill(3);
    expected[4096..8192].fill(2);
    expected[4096..4196].fill(3);
    expected[8192..12288].fill(0);
    expected[8192..8292].fill(3);
    let check = async |dnode: &platter_dmu::Dnode| {
        let mut out = vec![0; 16384];
        dnode.read(0, &mut out).await.unwrap();
        assert!(out == expected);
        assert_eq!(dnode.bonus()[..], *b"later, but last");
    };
    check(&dnode).await;
    let root = closing.await.unwrap();
    world.audit(&root).await;
    check(&dnode).await;
    // What the first of the two groups wrote is its own.
    let after_early = reopen(&world, &os).await.dnode(ObjectId(1)).await.unwrap();
    assert_eq!(after_early.bonus()[..], *b"early, but last");
    let root = world.sync(&os).await;
    world.audit(&root).await;
    check(&dnode).await;
    check(&reopen(&world, &os).await.dnode(ObjectId(1)).await.unwrap()).await;
}

/// A search for a hole in 700 MB without one asked for each block of 4 KiB, from the top of the tree, and nobody else
/// had a turn until it was over.
#[tokio::test]
async fn a_search_for_holes_passes_over_subtrees_and_lets_others_have_their_turn() {
    const BLOCKS: u64 = 20_000;
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let dnode = os.allocate(&tx, NewDnode { indirect_shift: 12, ..file(512) }).await.unwrap();
    let noise: Vec<u8> = (0..512 * BLOCKS).map(|at| (at % 251) as u8 | 1).collect();
    dnode.write(&tx, 0, &noise).await.unwrap();
    // All in memory: some steps, and not one for each block.
    let mut turns = 0;
    let mut search = std::pin::pin!(dnode.seek(0, true));
    let found = std::future::poll_fn(|context| {
        turns += 1;
        search.as_mut().poll(context)
    })
    .await;
    assert_eq!(found.unwrap(), Some(512 * BLOCKS));
    assert!((2..50).contains(&turns), "{turns} turns");
    drop(tx);
    world.sync(&os).await;
    // All on disk: the pointers near the top say that there is none below them.
    world.store.forget_cache(true);
    let before = world.store.reads();
    assert_eq!(dnode.seek(0, true).await.unwrap(), Some(512 * BLOCKS));
    let levels = u64::from(dnode.info().levels);
    assert!(world.store.reads() - before <= 2 * levels, "{} blocks were read", world.store.reads() - before);
    // One hole is found through one block of each level, more memory or not.
    world.store.forget_cache(false);
    let tx = world.gate.begin().await.unwrap();
    dnode.free_range(&tx, 512 * 12_345, 512).await.unwrap();
    assert_eq!(dnode.seek(5, true).await.unwrap(), Some(512 * 12_345));
    drop(tx);
    world.sync(&os).await;
    world.store.forget_cache(true);
    let before = world.store.reads();
    assert_eq!(dnode.seek(5, true).await.unwrap(), Some(512 * 12_345));
    assert!(world.store.reads() - before <= 2 * levels, "{} blocks were read", world.store.reads() - before);
    // What was freed in memory is passed over at once, and what lies behind the tree on disk is a hole.
    world.store.forget_cache(false);
    let tx = world.gate.begin().await.unwrap();
    dnode.free_range(&tx, 512, 512 * (BLOCKS - 2)).await.unwrap();
    assert_eq!(dnode.seek(512, false).await.unwrap(), Some(512 * (BLOCKS - 1)));
    let far = 32u64.pow(4);
    dnode.write(&tx, 512 * far, &[1; 512]).await.unwrap();
    assert_eq!(dnode.seek(512 * (BLOCKS - 1), true).await.unwrap(), Some(512 * BLOCKS));
    assert_eq!(dnode.seek(512 * BLOCKS, false).await.unwrap(), Some(512 * far));
    assert_eq!(dnode.seek(512 * (far - 1), true).await.unwrap(), Some(512 * (far - 1)));
}
