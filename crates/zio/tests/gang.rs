//! Gang blocks over two devices in memory: read, repaired and freed member by member.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_buffer::Buf;
use platter_device::MemDevice;
use platter_ondisk::Checksum;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::{BlkPtr, Dva, gang};
use platter_zio::{BlockReader, BlockStore, Bookmark, Priority, WritePolicy, ZioError};
use platter_zio::{Store, free_gang};

use crate::common::{DEVICE_BYTES, store_over};

mod common;

async fn rig() -> (Store, Vec<Arc<MemDevice>>) {
    let devices = [0, 1].map(|id| Arc::new(MemDevice::new(format!("d{id}"), DEVICE_BYTES))).to_vec();
    let store = store_over(&devices).await;
    store.set_salt([9; 32]);
    store.state().force_ganging.store(1024, Ordering::Relaxed);
    (store, devices)
}

fn policy(copies: u8, kind: Checksum) -> WritePolicy {
    WritePolicy { checksum: kind, copies, ..common::policy() }
}

fn data(length: usize) -> Buf {
    let bytes: Vec<u8> = (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    Buf::copy_from(&bytes)
}

fn peek(devices: &[Arc<MemDevice>], dva: &Dva, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    devices[dva.vdev as usize].peek(VDEV_LABEL_START_SIZE + dva.offset, &mut bytes);
    bytes
}

fn spoil(devices: &[Arc<MemDevice>], dva: &Dva) {
    devices[dva.vdev as usize].poke(VDEV_LABEL_START_SIZE + dva.offset, &[0xa5; 64]);
}

/// Every copy of header and members, as it is on the devices.
fn image(devices: &[Arc<MemDevice>], bp: &BlkPtr, parts: &[BlkPtr]) -> Vec<Vec<u8>> {
    let header = bp.dvas().map(|dva| (dva, gang::HEADER_SIZE as u64));
    let parts = parts.iter().flat_map(|part| part.dvas().map(|dva| (dva, part.psize())));
    header.chain(parts).map(|(dva, size)| peek(devices, &dva, size)).collect()
}

#[tokio::test]
async fn a_wrong_copy_of_a_header_or_a_member_is_repaired_by_reads_and_by_scrubs() {
    // A scrub used to verify that a gang block could be put together, and left its wrong copies as they were; a read
    // repaired none of them either.
    for kind in [Checksum::FLETCHER_4, Checksum::SKEIN, Checksum::EDONR, Checksum::BLAKE3] {
        let (store, devices) = rig().await;
        let bytes = data(9 * 512);
        let bp = store.write(bytes.clone(), policy(2, kind), &BlkPtr::HOLE).await.expect("write");
        assert!(bp.is_gang());
        let mut parts = gang::pointers(&peek(&devices, &bp.dva(0), gang::HEADER_SIZE as u64));
        parts.retain(|part| !part.is_hole());
        assert_eq!(parts.len(), 3);
        let whole = image(&devices, &bp, &parts);

        // A read meets the first copies only.
        spoil(&devices, &bp.dva(0));
        parts.iter().for_each(|part| spoil(&devices, &part.dva(0)));
        assert_ne!(image(&devices, &bp, &parts), whole);
        store.state().cache.clear();
        let read = store.read(&bp, Bookmark::default(), Priority::SyncRead).await.expect("read");
        assert_eq!(read, bytes);
        assert_eq!(image(&devices, &bp, &parts), whole, "after a read");

        spoil(&devices, &bp.dva(1));
        parts.iter().for_each(|part| spoil(&devices, &part.dva(1)));
        let done = store.scrub(&bp, Bookmark::default()).await.expect("scrub");
        assert!(done.repaired >= bytes.len() as u64, "{done:?}");
        assert_eq!(image(&devices, &bp, &parts), whole, "after a scrub");

        parts[1].dvas().for_each(|dva| spoil(&devices, &dva));
        assert!(store.scrub(&bp, Bookmark::default()).await.is_err(), "a member without a good copy is lost");
    }
}

#[tokio::test]
async fn a_gang_block_that_finds_no_room_leaves_nothing_allocated() {
    // Members that were gangs themselves used to keep their space when a later member found none.
    let (store, _) = rig().await;
    {
        let mut allocator = store.state().allocator.lock();
        for group in allocator.groups_mut() {
            for index in 0..group.metaslabs().len() {
                group.change(index, |metaslab| {
                    metaslab.claim(metaslab.start, metaslab.size).expect("all of it is free");
                    metaslab.take_changes();
                });
            }
        }
        allocator.groups_mut()[0].change(0, |first| {
            for sector in 0..12 {
                first.allocatable.add(sector * 1024, 512).expect("it is not free");
            }
        });
    }
    let before = store.state().allocator.lock().allocated();
    let error = store.write(data(40 * 512), policy(1, Checksum::SHA256), &BlkPtr::HOLE).await.unwrap_err();
    assert!(matches!(error, ZioError::NoSpace), "{error}");
    assert_eq!(store.state().allocator.lock().allocated(), before);
    // Three sectors of data and a header with two copies.
    let bp = store.write(data(3 * 512), policy(1, Checksum::SHA256), &BlkPtr::HOLE).await.expect("it fits");
    assert_eq!(bp.copies(), 2);
    assert_eq!(store.state().allocator.lock().allocated(), before + 5 * 512);
    let take = || {
        let mut allocator = store.state().allocator.lock();
        let mut freed = 0;
        for group in allocator.groups_mut() {
            group.change_active(|metaslab| freed += metaslab.take_changes().1.total());
        }
        freed
    };
    assert_eq!(take(), 0);
    free_gang(&store, &bp).await.expect("free");
    assert_eq!(take(), 5 * 512);
}

#[tokio::test]
async fn a_gang_block_whose_headers_are_lost_is_not_freed_in_part() {
    let (store, devices) = rig().await;
    let bp = store.write(data(9 * 512), policy(1, Checksum::FLETCHER_4), &BlkPtr::HOLE).await.expect("write");
    let before = store.state().allocator.lock().allocated();
    bp.dvas().for_each(|dva| spoil(&devices, &dva));
    let error = free_gang(&store, &bp).await.unwrap_err();
    assert!(matches!(error, ZioError::Io(_)), "{error}");
    let allocator = store.state().allocator.lock();
    assert_eq!(allocator.allocated(), before);
    assert!(allocator.groups().iter().flat_map(|g| g.metaslabs()).all(|m| m.freeing.is_empty()));
}

#[tokio::test]
async fn a_gang_block_that_a_log_leads_to_is_there_and_is_claimed_whole() {
    let (store, devices) = rig().await;
    let bytes = data(9 * 512);
    let bp = store.write(bytes, policy(1, Checksum::FLETCHER_4), &BlkPtr::HOLE).await.expect("write");
    assert!(bp.is_gang());
    let parts = gang::pointers(&peek(&devices, &bp.dva(0), gang::HEADER_SIZE as u64));
    assert!(store.has_block(&bp).await.expect("read"));
    spoil(&devices, &bp.dva(0));
    store.complete_block(&bp).await.expect("completed");
    spoil(&devices, &bp.dva(1));
    assert!(store.has_block(&bp).await.expect("read"), "the first header was not set right");

    // As after a crash: no space map has it.
    let written = store.state().allocator.lock().allocated();
    let headers = bp.dvas().map(|dva| Dva { asize: gang::HEADER_SIZE as u64, ..dva });
    let members = parts.iter().filter(|part| !part.is_hole()).flat_map(BlkPtr::dvas);
    headers.chain(members).for_each(|dva| store.state().allocator.lock().unallocate(&dva));
    let without = store.state().allocator.lock().allocated();
    assert_eq!(without, written - (2 + 9) * 512);
    store.claim(&bp).await.expect("claimed");
    assert_eq!(store.state().allocator.lock().allocated(), written);

    parts[1].dvas().for_each(|dva| spoil(&devices, &dva));
    assert!(!store.has_block(&bp).await.expect("read"), "a member is lost");
}
