//! A block that was freed while somebody still reads it: its place is another's by now, and is not set right.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_device::MemDevice;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::{BlkPtr, Dva, Txg};
use platter_zio::{BlockStore, Priority, Store, WritePolicy};

use crate::common::{DEVICE_BYTES, end_group, policy, store_over};

mod common;

const LENGTH: usize = 4096;

fn place(dva: &Dva) -> u64 {
    VDEV_LABEL_START_SIZE + dva.offset
}

/// Reads and scrubs a block; bytes that were and were not set right.
async fn set_right(store: &Store, bp: &BlkPtr) -> (u64, u64) {
    let bookmark = policy().bookmark;
    let bytes = store.read_stored(bp, bookmark, Priority::SyncRead).await.expect("the other copy is right");
    assert_eq!(bytes[..], [7; LENGTH]);
    let scrubbed = store.scrub(bp, bookmark).await.expect("the other copy is right");
    (scrubbed.repaired, scrubbed.unrepaired)
}

/// Of one copy another block has the place already, and has just been written there; the other copy is still read.
#[tokio::test]
async fn what_lies_there_by_now_is_not_written_over() {
    let devices = [0, 1].map(|id| Arc::new(MemDevice::new(format!("d{id}"), DEVICE_BYTES)));
    let store = store_over(&devices).await;
    let policy = WritePolicy { copies: 2, ..policy() };
    let bp = store.write(Buf::copy_from(&[7; LENGTH]), policy, &BlkPtr::default()).await.expect("written");
    let (first, device) = (bp.dva(0), &devices[bp.dva(0).vdev as usize]);
    let held = || {
        let mut bytes = [0; LENGTH];
        device.peek(place(&first), &mut bytes);
        bytes
    };
    end_group(&store, 5);
    device.poke(place(&first), &[8; LENGTH]);
    set_right(&store, &bp).await;
    assert_eq!(held(), [7; LENGTH], "what rots is set right");

    store.free(Txg(6), &bp);
    // Freed in the group that is open, then waiting, then free for everybody.
    for txg in 6..10 {
        device.poke(place(&first), &[9; LENGTH]);
        assert_eq!(set_right(&store, &bp).await, (0, 0), "there is nothing to do");
        assert_eq!(held(), [9; LENGTH], "group {txg}");
        end_group(&store, txg);
    }
}
