//! Lists of lost blocks as OpenZFS writes them, with births: who has such a block is found out when a pool is imported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
use platter_dmu::NewDnode;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dsl::mos;
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};
use platter_zio::Bookmark;

use crate::Pool;
use crate::test_environment::environment;

const BLOCK: usize = 4096;

async fn create(folder: &Path) -> Arc<Pool> {
    let disk = folder.join("disk");
    File::create(&disk).and_then(|file| file.set_len(128 << 20)).expect("a file");
    let request =
        CreateRequest { name: "tank".into(), vdevs: vec![VdevRequest::Leaf(disk)], ..CreateRequest::default() };
    Pool::create(environment(1), request).await.expect("created")
}

async fn import(folder: &Path, seed: u8) -> Arc<Pool> {
    let request = ImportRequest { pool: "tank".into(), search: vec![folder.into()], ..ImportRequest::default() };
    Pool::import(environment(seed), request).await.expect("imported")
}

/// Writes two blocks of an object, a new one if none is given.
async fn write(pool: &Pool, name: &str, object: Option<ObjectId>, first: u64, byte: u8) -> ObjectId {
    let os = pool.dsl().open_filesystem(name).await.expect("opened");
    let tx = os.begin().await.expect("begun");
    let dnode = match object {
        Some(object) => os.dnode(object).await.expect("an object"),
        None => os.allocate(&tx, NewDnode::plain(ObjectType::PLAIN_FILE_CONTENTS, BLOCK as u32)).await.expect("made"),
    };
    // Bytes that cannot be compressed to nothing.
    let bytes: Vec<u8> = (0..2 * BLOCK).map(|at| (at * at / 7) as u8 ^ byte).collect();
    dnode.write(&tx, first * BLOCK as u64, &bytes).await.expect("written");
    drop(tx);
    pool.sync().await.expect("synced");
    dnode.object()
}

async fn birth(pool: &Pool, name: &str, object: ObjectId, blkid: u64) -> Txg {
    let os = pool.dsl().open_filesystem(name).await.expect("opened");
    os.dnode(object).await.expect("an object").block_pointer(blkid).await.expect("a pointer").physical_birth()
}

fn head(pool: &Pool, name: &str) -> ObjectId {
    pool.core.dsl.tree.read().datasets[name].object
}

fn snapshot_before(pool: &Pool, name: &str) -> ObjectId {
    pool.core.dsl.tree.read().datasets[name].phys.lock().prev_snap_obj
}

/// Writes the log, as OpenZFS would.
async fn log(pool: &Pool, lists: Vec<(ObjectId, Vec<String>)>) {
    let written = pool.core.task(async move |core, tx| {
        let made = mos::create_zap(&core.dsl.mos, &tx, ObjectType::ERROR_LOG, 1).await?;
        let outer = Zap::open(&core.dsl.mos, made).await?;
        for (head, names) in lists {
            let list = mos::create_zap(&core.dsl.mos, &tx, ObjectType::ERROR_LOG, 2).await?;
            outer.put_u64(&tx, format!("{:x}", head.0).as_bytes(), list.0).await?;
            let list = Zap::open(&core.dsl.mos, list).await?;
            for name in names {
                list.put(&tx, name.as_bytes(), &ZapValue { integer_size: 1, integers: vec![0] }).await?;
            }
        }
        Ok(core.dsl.directory.put_u64(&tx, mos::ERRLOG_LAST.as_bytes(), made.0).await?)
    });
    written.await.expect("written");
}

fn damaged(pool: &Pool) -> BTreeSet<(ObjectId, ObjectId)> {
    pool.core.damaged.lock().clone()
}

#[tokio::test]
async fn whoever_has_a_lost_block_still_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = create(folder.path()).await;
    pool.dsl().create_dataset("tank/a", &BTreeMap::new()).await.expect("a data set");
    let object = write(&pool, "tank/a", None, 0, 1).await;
    let (old, kept) = (birth(&pool, "tank/a", object, 0).await, birth(&pool, "tank/a", object, 1).await);
    pool.dsl().take_snapshots(&["tank/a@s".to_owned()], &BTreeMap::new()).await.expect("a snapshot");
    pool.dsl().clone_snapshot("tank/a@s", "tank/c", &BTreeMap::new()).await.expect("a clone");
    let snapshot = snapshot_before(&pool, "tank/a");
    // The head has another first block by now, the clone another second one.
    let bytes = write(&pool, "tank/c", Some(object), 1, 2).await;
    assert_eq!(bytes, object);
    let os = pool.dsl().open_filesystem("tank/a").await.expect("opened");
    let tx = os.begin().await.expect("begun");
    os.dnode(object).await.expect("it").write(&tx, 0, &[7; BLOCK]).await.expect("written");
    drop((tx, os));
    pool.sync().await.expect("synced");
    assert_ne!(birth(&pool, "tank/a", object, 0).await, old);
    let (a, c) = (head(&pool, "tank/a"), head(&pool, "tank/c"));
    let name = |blkid: u64, birth: Txg| format!("{:x}:0:{blkid:x}:{:x}", object.0, birth.0);
    let cases = [
        // Written over in the head: the snapshot and the clone have it.
        (a, name(0, old), vec![snapshot, c]),
        // Found in the clone, which shares it.
        (c, name(0, old), vec![snapshot, c]),
        // Written over in the clone.
        (a, name(1, kept), vec![a, snapshot]),
        // Nobody has it any more.
        (a, name(0, Txg(old.0 - 1)), vec![]),
        (a, name(77, old), vec![]),
        // Nothing is known of its birth, or of where it was.
        (a, name(0, Txg(0)), vec![a]),
        (ObjectId(0), name(0, old), vec![ObjectId(0)]),
        (ObjectId(7777), name(0, old), vec![ObjectId(7777)]),
    ];
    let mut pool = pool;
    for (number, (listed, name, expected)) in cases.into_iter().enumerate() {
        log(&pool, vec![(listed, vec![name.clone()])]).await;
        pool.export().await.expect("exported");
        drop(pool);
        pool = import(folder.path(), number as u8 + 2).await;
        let expected: BTreeSet<_> = expected.into_iter().map(|objset| (objset, object)).collect();
        assert_eq!(damaged(&pool), expected, "{name} in {listed}");
        // As this version writes it, it says the same.
        pool.core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await.expect("written");
        pool.export().await.expect("exported");
        drop(pool);
        pool = import(folder.path(), number as u8 + 100).await;
        assert_eq!(damaged(&pool), expected, "{name} in {listed}");
    }
}

#[tokio::test]
async fn what_is_no_list_is_not_freed() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = create(folder.path()).await;
    let precious = pool.core.dsl.tree.read().datasets["tank"].dir.object;
    let written = pool.core.task(async move |core, tx| {
        let made = mos::create_zap(&core.dsl.mos, &tx, ObjectType::ERROR_LOG, 1).await?;
        let outer = Zap::open(&core.dsl.mos, made).await?;
        outer.put_u64(&tx, b"7", precious.0).await?;
        outer.put_u64(&tx, b"8", u64::MAX).await?;
        outer.put_u64(&tx, b"9", made.0).await?;
        let list = mos::create_zap(&core.dsl.mos, &tx, ObjectType::ERROR_LOG, 2).await?;
        outer.put_u64(&tx, b"a", list.0).await?;
        outer.put_u64(&tx, b"b", list.0).await?;
        Ok(core.dsl.directory.put_u64(&tx, mos::ERRLOG_LAST.as_bytes(), made.0).await?)
    });
    written.await.expect("written");
    pool.core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await.expect("written");
    assert!(pool.core.dsl.mos.dnode(precious).await.is_ok(), "a directory is no list of errors");
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn what_a_reader_finds_is_listed_wherever_it_is_shared_till_it_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = create(folder.path()).await;
    pool.dsl().create_dataset("tank/a", &BTreeMap::new()).await.expect("a data set");
    let object = write(&pool, "tank/a", None, 0, 1).await;
    pool.dsl().take_snapshots(&["tank/a@s".to_owned()], &BTreeMap::new()).await.expect("a snapshot");
    pool.dsl().clone_snapshot("tank/a@s", "tank/c", &BTreeMap::new()).await.expect("a clone");
    // The clone has another first block by now.
    assert_eq!(write(&pool, "tank/c", Some(object), 0, 2).await, object);
    let (a, c, snapshot) = (head(&pool, "tank/a"), head(&pool, "tank/c"), snapshot_before(&pool, "tank/a"));
    let os = pool.dsl().open_filesystem("tank/a").await.expect("opened");
    let bp = os.dnode(object).await.expect("an object").block_pointer(0).await.expect("a pointer");
    drop(os);
    let note = |objset, bp: &BlkPtr| {
        let bookmark = Bookmark { objset, object, level: 0, blkid: 0 };
        crate::error_log::note(&pool.core, bookmark, bp);
    };
    let of = |objsets: &[ObjectId]| objsets.iter().map(|&objset| (objset, object)).collect::<BTreeSet<_>>();
    for found_in in [a, snapshot] {
        pool.core.damaged.lock().clear();
        note(found_in, &bp);
        assert_eq!(damaged(&pool), of(&[found_in]));
        crate::error_log::spread_new(&pool.core).await;
        assert_eq!(damaged(&pool), of(&[a, snapshot]), "the clone lost nothing");
    }
    // What was cleared meanwhile does not come back.
    pool.core.damaged.lock().clear();
    note(a, &bp);
    pool.core.damaged.lock().clear();
    crate::error_log::spread_new(&pool.core).await;
    assert_eq!(damaged(&pool), of(&[]));
    pool.core.damaged.lock().extend(of(&[a, snapshot]));
    note(ObjectId(7777), &bp);
    let own = pool.dsl().open_filesystem("tank/c").await.expect("opened");
    note(c, &own.dnode(object).await.expect("an object").block_pointer(0).await.expect("a pointer"));
    drop(own);
    crate::error_log::spread_new(&pool.core).await;
    assert_eq!(damaged(&pool), of(&[a, snapshot, c]), "nothing is noted of what is not there");

    pool.dsl().destroy_dataset("tank/c").await.expect("destroyed");
    assert_eq!(damaged(&pool), of(&[a, snapshot]));
    pool.dsl().destroy_snapshots(&["tank/a@s".to_owned()], false).await.expect("destroyed");
    assert_eq!(damaged(&pool), of(&[a]));
    pool.dsl().destroy_dataset("tank/a").await.expect("destroyed");
    assert_eq!(damaged(&pool), of(&[]));
    pool.export().await.expect("exported");
    drop(pool);
    let pool = import(folder.path(), 2).await;
    assert_eq!(damaged(&pool), of(&[]), "nor is it on disk");
}

#[tokio::test]
async fn what_a_reader_finds_during_a_scrub_outlives_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = create(folder.path()).await;
    let object = write(&pool, "tank", None, 0, 1).await;
    let bp = BlkPtr::HOLE;
    let lost = Arc::new(parking_lot::Mutex::new(crate::lost::Lost::default()));
    pool.core.scan.lock().lost = Arc::downgrade(&lost);
    let bookmark = Bookmark { objset: head(&pool, "tank"), object, level: 0, blkid: 0 };
    crate::error_log::note(&pool.core, bookmark, &bp);
    assert_eq!(lost.lock().objects, [(bookmark.objset, object)].into());
    crate::error_log::note(&pool.core, Bookmark { objset: ObjectId(7777), ..bookmark }, &bp);
    assert_eq!(lost.lock().objects.len(), 1, "it is not there");
    drop(lost);
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn what_an_interrupted_scan_found_is_looked_for_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = create(folder.path()).await;
    let object = write(&pool, "tank", None, 0, 1).await;
    pool.dsl().take_snapshots(&["tank@s".to_owned()], &BTreeMap::new()).await.expect("a snapshot");
    let (tank, snapshot) = (head(&pool, "tank"), snapshot_before(&pool, "tank"));
    let os = pool.dsl().open_filesystem("tank").await.expect("opened");
    let bp = os.dnode(object).await.expect("an object").block_pointer(0).await.expect("a pointer");
    drop(os);
    let lost = parking_lot::Mutex::new(crate::lost::Lost::default());
    lost.lock().add(Bookmark { objset: snapshot, object, level: 0, blkid: 0 }, &bp);
    pool.core.scan.lock().interrupt = crate::scan_state::Interrupt::Halt;
    crate::scan_store::checkpoint(&pool.core, &lost).await.expect("written");
    pool.core.scan.lock().interrupt = crate::scan_state::Interrupt::None;
    crate::error_log::spread_new(&pool.core).await;
    assert_eq!(damaged(&pool), [(tank, object), (snapshot, object)].into());
    pool.export().await.expect("exported");
}
