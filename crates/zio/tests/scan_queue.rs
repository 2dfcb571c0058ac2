//! What a scan has found waits in the order of its place, and not for longer than it is there.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_device::MemDevice;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::{BlockStore, Bookmark, Store};

use crate::common::{DEVICE_BYTES, policy, store_over};

mod common;

/// Two vdevs with eight blocks, in the order in which they were written.
async fn rig() -> (Store, Vec<(Bookmark, BlkPtr)>) {
    let store = store_over(&["d0", "d1"].map(|name| Arc::new(MemDevice::new(name, DEVICE_BYTES)))).await;
    store.set_pass(1);
    let mut written = Vec::new();
    for number in 0..8 {
        let mut policy = policy();
        policy.bookmark.blkid = number;
        let block = Buf::copy_from(&[number as u8 + 1; 256 << 10]);
        written.push((policy.bookmark, store.write(block, policy, &BlkPtr::default()).await.expect("written")));
    }
    end_group(&store, 5);
    (store, written)
}

/// The group is on disk.
fn end_group(store: &Store, txg: u64) {
    let mut allocator = store.state().allocator.lock();
    for group in allocator.groups_mut() {
        group.change_active(|metaslab| drop(metaslab.take_changes()));
    }
    allocator.finish(Txg(txg));
}

fn place(bp: &BlkPtr) -> (u32, u64) {
    let first = bp.dvas().next().expect("a place");
    (first.vdev, first.offset)
}

#[tokio::test]
async fn each_vdev_gives_its_blocks_in_their_order() {
    let (store, written) = rig().await;
    let queue = store.scan_queue();
    let pinned = store.pin();
    for (bookmark, bp) in written.iter().rev() {
        queue.add(*bookmark, bp);
    }
    let sharing = Bookmark { object: ObjectId(9), ..written[0].0 };
    queue.add(sharing, &written[0].1);
    queue.add(sharing, &written[0].1);
    assert_eq!((queue.len(), queue.bytes()), (9, 9 * written[0].1.asize()), "who shares a block is known, once");
    assert_eq!(queue.vdevs(), [0, 1], "both were written to");
    let mut taken = Vec::new();
    for vdev in queue.vdevs() {
        let of_vdev: Vec<BlkPtr> = std::iter::from_fn(|| queue.take(vdev)).map(|(_, bp)| bp).collect();
        assert!(of_vdev.is_sorted_by_key(place), "{of_vdev:?}");
        taken.extend(of_vdev);
    }
    assert_eq!(taken.len(), 9);
    assert!(queue.is_empty() && queue.bytes() == 0 && queue.vdevs().is_empty());
    drop(pinned);
}

/// A block that was freed, whose space was handed out again, would be taken for damaged, and "repaired" where the other
/// side of a mirror is not written yet.
#[tokio::test]
async fn what_is_freed_leaves_before_its_space_is_used_again() {
    let (store, written) = rig().await;
    let queue = store.scan_queue();
    let pinned = store.pin();
    written.iter().for_each(|(bookmark, bp)| queue.add(*bookmark, bp));
    [0, 1, 4].into_iter().for_each(|number| store.free(Txg(6), &written[number].1));
    for txg in 6..12 {
        end_group(&store, txg);
        assert_eq!(queue.len(), 8, "pinned space is not handed out");
    }
    drop(pinned);
    for txg in 12..16 {
        end_group(&store, txg);
    }
    assert_eq!((queue.len(), queue.bytes()), (5, 5 * written[0].1.asize()));
    let _pinned = store.pin();
    let left: Vec<BlkPtr> = queue
        .vdevs()
        .into_iter()
        .flat_map(|vdev| std::iter::from_fn(|| queue.take(vdev)).collect::<Vec<_>>())
        .map(|(_, bp)| bp)
        .collect();
    for number in [0, 1, 4] {
        assert!(!left.contains(&written[number].1), "{number}");
    }
}

/// What was counted of the one was taken off for the other.
#[tokio::test]
async fn who_comes_to_a_place_twice_is_counted_as_what_waits() {
    let (store, written) = rig().await;
    let queue = store.scan_queue();
    let _pinned = store.pin();
    let (bookmark, bp) = &written[0];
    let mut wider = *bp;
    wider.set_dva(1, written[7].1.dvas().next().expect("a place"));
    queue.add(*bookmark, bp);
    queue.add(*bookmark, &wider);
    assert_eq!((queue.len(), queue.bytes()), (1, wider.asize()));
    assert_eq!(queue.take(place(bp).0), Some((*bookmark, wider)));
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}
