//! Telling the kernel what partitions a disk has now.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::ioctl::{NoArg, Setter, ioctl, opcode};

use crate::partition::Partition;

/// `struct blkpg_partition` (`include/uapi/linux/blkpg.h`).
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct BlkpgArgument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut BlkpgPartition,
}

const BLKRRPART: u32 = opcode::none(0x12, 95);
const BLKPG: u32 = opcode::none(0x12, 105);
const BLKPG_ADD_PARTITION: i32 = 1;

/// Makes the kernel read a new table, and tells it the partitions one by one where it does not understand the table.
/// Where it takes none (loop devices without partition scan), nothing is lost: the pool does not use the nodes.
pub(crate) fn announce(disk: &File, partitions: &[&Partition]) {
    // SAFETY: BLKRRPART takes no argument.
    let reread = unsafe { ioctl(disk.as_fd(), NoArg::<BLKRRPART>::new()) };
    for partition in partitions {
        let mut data = BlkpgPartition {
            start: partition.start as i64,
            length: partition.size as i64,
            number: partition.number as i32,
            device_name: [0; 64],
            volume_name: [0; 64],
        };
        let argument = BlkpgArgument {
            operation: BLKPG_ADD_PARTITION,
            flags: 0,
            length: size_of::<BlkpgPartition>() as i32,
            data: &raw mut data,
        };
        // SAFETY: BLKPG takes a pointer to `struct blkpg_ioctl_arg`, which `Setter` passes; `data` outlives the call
        // and has the layout that the operation expects.
        match unsafe { ioctl(disk.as_fd(), Setter::<BLKPG, BlkpgArgument>::new(argument)) } {
            // Busy: the kernel found it in the table.
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(error) => tracing::debug!("no node for partition {}: {reread:?}, {error}", partition.number),
        }
    }
}
