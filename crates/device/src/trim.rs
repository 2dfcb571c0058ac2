//! Giving bytes up: holes punched in files, `BLKDISCARD` and `BLKSECDISCARD` on block devices (`vdev_disk_io_trim` in
//! `module/os/linux/zfs/vdev_disk.c`, `vdev_file_io_start` in `module/os/linux/zfs/vdev_file.c`).
//!
//! Invariants:
//! - each call may wait for the device for as long as it likes, so threads of the device's own make it;
//! - what turned out to be refused by a device's kind is not said to be supported any more;
//! - a trim that waited for its thread beyond its lease is not handed to the kernel.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use tokio::sync::oneshot;

use crate::block_device::{TrimKind, TrimSupport};
use crate::lease::{Lease, TooLate};
use crate::open_file::OpenFile;
use crate::pool::Pool;

const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKSECDISCARD: Opcode = opcode::none(0x12, 125);
/// No range of any device: the kernel refuses it, after it has looked whether the device takes such calls at all.
const NOWHERE: [u64; 2] = [1, 1];

/// Asks a block device to give up a range, first byte and length.
fn discard(device: &File, kind: TrimKind, range: [u64; 2]) -> Result<(), Errno> {
    // SAFETY: both take a pointer to two 64-bit numbers, which `Setter` passes; they change nothing in memory.
    unsafe {
        match kind {
            TrimKind::Plain => ioctl(device.as_fd(), Setter::<BLKDISCARD, [u64; 2]>::new(range)),
            TrimKind::Secure => ioctl(device.as_fd(), Setter::<BLKSECDISCARD, [u64; 2]>::new(range)),
        }
    }
}

/// What a file or block device takes. Of a file only trying tells, which does no harm (`vdev_file_open`); nothing makes
/// a file system forget what was there for good.
pub(crate) fn support(file: &File, is_block: bool, writable: bool) -> TrimSupport {
    if !writable {
        return TrimSupport::default();
    }
    if !is_block {
        return TrimSupport { plain: true, secure: false };
    }
    let takes = |kind| discard(file, kind, NOWHERE) == Err(Errno::INVAL);
    let plain = takes(TrimKind::Plain);
    TrimSupport { plain, secure: plain && takes(TrimKind::Secure) }
}

/// The trims of one file or block device.
#[derive(Default)]
pub(crate) struct Trimming {
    plain: Arc<AtomicBool>,
    secure: Arc<AtomicBool>,
    threads: Pool,
}

impl Trimming {
    /// Of a device that takes such trims.
    pub fn new(support: TrimSupport) -> Self {
        let TrimSupport { plain, secure } = support;
        Self { plain: Arc::new(plain.into()), secure: Arc::new(secure.into()), threads: Pool::default() }
    }

    /// What it takes, as far as is known.
    pub fn support(&self) -> TrimSupport {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        TrimSupport { plain: is(&self.plain), secure: is(&self.secure) }
    }

    /// Gives up `range`, first byte and length, of `file`. It stays open, and locked, until that is over.
    pub async fn run(
        &self,
        file: &Arc<OpenFile>,
        is_block: bool,
        range: (u64, u64),
        kind: TrimKind,
        lease: Option<Arc<Lease>>,
    ) -> io::Result<()> {
        debug_assert!(range.1 > 0, "nothing is no range");
        let supported = if kind == TrimKind::Plain { &self.plain } else { &self.secure };
        if !supported.load(Ordering::Relaxed) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (tell, told) = oneshot::channel();
        let (file, supported) = (file.clone(), supported.clone());
        self.threads.call(move || {
            let outcome = match lease.is_some_and(|lease| !lease.holds()) {
                true => Err(io::Error::other(TooLate)),
                false => give_up(&file, is_block, range, kind).map_err(io::Error::from),
            };
            if outcome.as_ref().is_err_and(is_refusal) {
                supported.store(false, Ordering::Relaxed);
            }
            drop(file);
            // Nobody waits any more when the future was dropped.
            let _ = tell.send(outcome);
        });
        told.await.unwrap_or_else(|_| Err(io::Error::other("the I/O thread ended")))
    }
}

/// Whether a device or file system of this kind never does it.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY))
}

fn give_up(file: &File, is_block: bool, (offset, length): (u64, u64), kind: TrimKind) -> Result<(), Errno> {
    loop {
        let outcome = match is_block {
            true => discard(file, kind, [offset, length]),
            false => {
                rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
            }
        };
        if outcome != Err(Errno::INTR) {
            return outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use platter_buffer::Buf;

    use super::*;
    use crate::{BlockDevice, DeviceError, FileDevice, OpenOptions};

    #[tokio::test]
    async fn a_file_gives_its_room_back_and_keeps_its_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d0");
        File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a file");
        let device = FileDevice::open(&path, OpenOptions::exclusive()).expect("open");
        assert_eq!(device.trim_support(), TrimSupport { plain: true, secure: false });
        device.write(0, vec![Buf::copy_from(&vec![7; 4 << 20])]).await.expect("write");
        device.flush().await.expect("flush");
        let blocks = || std::fs::metadata(&path).expect("it is there").blocks();
        let before = blocks();
        if let Err(DeviceError::NotTrimmable(_)) = device.trim(1 << 20, 2 << 20, TrimKind::Plain).await {
            assert_eq!(device.trim_support(), TrimSupport::default(), "once refused, it is not asked again");
            eprintln!("this file system punches no holes");
            return;
        }
        assert_eq!((before - blocks(), device.size()), ((2 << 20) / 512, 8 << 20));
        let bytes = device.read(0, 4 << 20).await.expect("read");
        assert!(bytes.iter().enumerate().all(|(at, &byte)| (byte == 0) == ((1 << 20)..(3 << 20)).contains(&at)));
        // What is written there afterwards stays.
        device.write(2 << 20, vec![Buf::copy_from(&[9; 4096])]).await.expect("write");
        assert_eq!(device.read(2 << 20, 4096).await.expect("read")[..], [9; 4096]);
        assert!(matches!(device.trim(0, 4096, TrimKind::Secure).await, Err(DeviceError::NotTrimmable(_))));
        assert!(matches!(device.trim(8 << 20, 4096, TrimKind::Plain).await, Err(DeviceError::Truncated { .. })));
        drop(device);
        let reader = FileDevice::open(&path, OpenOptions::read_only()).expect("open");
        assert!(matches!(reader.trim(0, 4096, TrimKind::Plain).await, Err(DeviceError::ReadOnly(_))));
    }
}
