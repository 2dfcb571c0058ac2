//! The judges themselves, on pools that OpenZFS's kernel module made: a judge that says "clean" to everything, or reads
//! file lists wrongly, would make every other test worthless.

use platter_itest::reference::ReferencePool;
use platter_itest::tree::Kind;
use platter_itest::{damage, judge, zdb, zhack};

#[test]
fn zdb_calls_a_kernel_made_pool_clean_and_its_file_lists_equal_the_manifest() {
    let Some(pool) = ReferencePool::copy("refz1") else { return };
    zdb::assert_clean(&pool.dir(), pool.name());
    let Some(listings) = zdb::list_pool(&pool.dir(), pool.name()) else { return };
    let mut compared = 0;
    for (dataset, tree) in pool.manifests() {
        // zdb has no key for encrypted file systems.
        if dataset.starts_with("refz1/enc") {
            continue;
        }
        let Some(listing) = listings.get(&dataset) else { panic!("zdb lists no {dataset}") };
        zdb::assert_listing(listing, &tree, &dataset);
        compared += 1;
    }
    assert!(compared > 20, "only {compared} file systems compared");
    let manifests = pool.manifests();
    for dataset in ["refz1/comp-lz4", "refz1/rs4m", "refz1/nested/a/b"] {
        zdb::assert_contents(&pool.dir(), dataset, &manifests[dataset], 4);
    }
}

#[test]
fn zdb_reads_the_legacy_format_too() {
    let Some(pool) = ReferencePool::copy("refv28") else { return };
    zdb::assert_clean(&pool.dir(), pool.name());
    let Some(listings) = zdb::list_pool(&pool.dir(), pool.name()) else { return };
    let manifests = pool.manifests();
    for (dataset, tree) in &manifests {
        let Some(listing) = listings.get(dataset) else { panic!("zdb lists no {dataset}") };
        zdb::assert_listing(listing, tree, dataset);
    }
    zdb::assert_contents(&pool.dir(), "refv28", &manifests["refv28"], 3);
}

#[test]
fn block_places_point_at_the_block() {
    let Some(pool) = ReferencePool::copy("refz1") else { return };
    let Some(listing) = zdb::list(&pool.dir(), "refz1/comp-lz4") else { return };
    let (path, znode) = listing
        .iter()
        .filter(|(_, znode)| znode.kind == Kind::File && znode.size < zdb::EXTRACT_BYTES_MAX)
        .max_by_key(|(_, znode)| znode.size)
        .expect("a file");
    let before = zdb::extracted_sha256(&pool.dir(), "refz1/comp-lz4", path);
    let Some(blocks) = zdb::blocks(&pool.dir(), "refz1/comp-lz4", znode.object) else { return };
    assert!(!blocks.is_empty(), "{path} has no blocks");
    let layout = damage::Layout::Raidz { disks: 5 };
    let disks = pool.disks();
    let block = blocks.iter().max_by_key(|block| block.dvas[0].asize).expect("a block");
    // One disk's part of the block destroyed: parity gives it back.
    for range in damage::sectors_of(&block.dvas[0], layout, 12, 1) {
        damage::overwrite(&disks[1], range, 1);
    }
    assert_eq!(before, zdb::extracted_sha256(&pool.dir(), "refz1/comp-lz4", path), "one disk's part is redundant");
    // Every disk's part destroyed: lost.
    for (index, disk) in disks.iter().enumerate() {
        for range in damage::sectors_of(&block.dvas[0], layout, 12, index as u64) {
            damage::overwrite(disk, range, 2);
        }
    }
    let mut clean = true;
    if let Some(run) = zdb::zdb(&pool.dir(), &["-bcc", pool.name()]) {
        clean = run.code == 0 && !run.mentions("got error");
    }
    assert!(!clean, "zdb did not notice a destroyed block: the place was wrong");
}

#[test]
fn every_judge_is_there_when_judges_are_required() {
    if !judge::required() {
        return;
    }
    for program in ["zdb", "zhack", "rsync", "fio", "getfattr"] {
        assert!(judge::find(program).is_some(), "{program} is missing");
    }
    assert!(judge::need_fuse());
}

#[test]
fn openzfs_can_be_made_to_write_without_its_kernel_module() {
    let Some(pool) = ReferencePool::copy("refz1") else { return };
    let before = damage::fingerprints(&pool.disks());
    if zhack::enable_feature(&pool.dir(), pool.name(), "com.example:future").is_none() {
        return;
    }
    assert_ne!(before, damage::fingerprints(&pool.disks()), "nothing was written");
    zdb::assert_clean(&pool.dir(), pool.name());
}
