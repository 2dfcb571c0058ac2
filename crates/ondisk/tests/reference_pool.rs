//! Labels and uberblocks that OpenZFS wrote verify, decode, and encode to the same bytes.
//!
//! One uberblock slot is a fixture. Whole reference pools are looked for in the folder that `PLATTER_REFERENCE_POOLS`
//! names (one folder per pool with its disk images); without it that part is skipped.

use platter_ondisk::{Uberblock, label};
use sha2::{Digest, Sha256};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn sha256(bytes: &[u8]) -> [u64; 4] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|i| u64::from_be_bytes(digest[8 * i..8 * i + 8].try_into().unwrap()))
}

/// A slot of the first label of a raidz1 pool, `SLOT_AT` on the device.
const SLOT: &[u8] = include_bytes!("fixtures/uberblock_slot.bin");
const SLOT_AT: u64 = 180224;

#[test]
fn a_real_uberblock_verifies_and_is_written_to_the_same_bytes() {
    let ub = Uberblock::read_slot(SLOT, SLOT_AT, sha256).unwrap();
    assert_eq!(ub.version, 5000);
    assert_eq!(ub.rootbp.object_type(), platter_ondisk::ObjectType::OBJSET);
    assert_eq!(ub.rootbp.lsize(), 4096);
    assert_eq!(ub.rootbp.copies(), 3);
    assert_eq!(ub.build_slot(SLOT.len() as u64, SLOT_AT, sha256), SLOT);
    assert!(Uberblock::read_slot(SLOT, SLOT_AT + 1024, sha256).is_err());
}

fn images() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("PLATTER_REFERENCE_POOLS") else { return Vec::new() };
    let list =
        |dir: &Path| -> Vec<PathBuf> { std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let pools = list(Path::new(&root)).into_iter().filter(|path| path.is_dir());
    let mut images: Vec<_> = pools.flat_map(|pool| list(&pool)).collect();
    images.retain(|path| path.extension().is_some_and(|extension| extension == "img"));
    images.sort();
    images
}

#[test]
fn every_label_of_the_reference_pools_is_written_to_the_same_bytes() {
    let images = images();
    if images.is_empty() {
        eprintln!("skipped: PLATTER_REFERENCE_POOLS names no folder with pools");
    }
    for path in images {
        let file = std::fs::File::open(&path).unwrap();
        let psize = label::usable_size(file.metadata().unwrap().len());
        for index in 0..label::VDEV_LABELS {
            let base = label::label_offset(psize, index);
            let mut bytes = vec![0; label::VDEV_LABEL_SIZE as usize];
            file.read_exact_at(&mut bytes, base).unwrap();
            let phys_at = base + label::VDEV_PHYS_OFFSET;
            let phys = &bytes[label::VDEV_PHYS_OFFSET as usize..label::UBERBLOCK_RING_OFFSET as usize];
            let config = label::read_phys(phys, phys_at, sha256).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(label::build_phys(&config, phys_at, sha256).unwrap(), phys, "{} {config}", path.display());

            let env_at = base + label::BOOT_ENV_OFFSET;
            let env = &bytes[label::BOOT_ENV_OFFSET as usize..label::VDEV_PHYS_OFFSET as usize];
            if let Ok(read) = label::read_boot_env(env, env_at, sha256) {
                assert_eq!(label::build_boot_env(&read, env_at, sha256).unwrap(), env);
            }

            // Cache and spare devices have no pool's uberblocks.
            let Some(ashift) = config.get_list("vdev_tree").and_then(|tree| tree.get_u64("ashift")) else { continue };
            let (ashift, mut best) = (ashift as u32, None::<Uberblock>);
            for slot in 0..label::uberblock_slots(ashift) {
                let at = label::uberblock_offset(ashift, slot);
                let slot_bytes = &bytes[at as usize..(at + label::uberblock_slot_size(ashift)) as usize];
                if let Ok(ub) = Uberblock::read_slot(slot_bytes, base + at, sha256) {
                    assert_eq!(ub.build_slot(slot_bytes.len() as u64, base + at, sha256), slot_bytes);
                    assert_eq!(label::uberblock_slot_of(ashift, ub.txg, ub.is_multihost()), slot);
                    if best.as_ref().is_none_or(|best| ub.compare(best).is_gt()) {
                        best = Some(ub);
                    }
                } else {
                    // A new label's ring is sealed as a whole, which leaves a template of group 0 in its first slot.
                    let template = slot == 0 && slot_bytes[16..24] == [0; 8];
                    let unused = slot_bytes[..100].iter().all(|&byte| byte == 0);
                    assert!(template || unused, "{} label {index} slot {slot} is damaged", path.display());
                }
            }
            let best = best.unwrap_or_else(|| panic!("{}: no uberblock", path.display()));
            assert!(best.txg.0 >= config.get_u64("txg").unwrap());
            eprintln!("{} label {index}: txg {} ashift {ashift}", path.display(), best.txg);
        }
    }
}
