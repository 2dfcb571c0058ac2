//! What a device holds that somebody may want to keep: file systems, swap, members of arrays, encrypted volumes, and
//! the same in its partitions.
//!
//! | file | idea |
//! |---|---|
//! | `image` | the parts of a device where signatures are |
//! | `table` | every signature: its name, its place, its bytes |
//! | `checks` | what else must fit, where a few bytes prove nothing |
//! | `partition`, `partitions` | where the partitions are |
//! | `disklabels` | the same for tables that are neither GPT nor DOS |
//!
//! How it is looked:
//! - nothing is written;
//! - names, places and bytes are those that util-linux's libblkid knows, so that messages have the words that people
//!   know from `blkid` and OpenZFS; members of ZFS pools are not among them: their labels say more than a signature;
//! - in doubt something is found: who knows better has `-f`. But blank devices, random bytes and what a ZFS pool has
//!   left hold nothing.

mod checks;
mod disklabels;
mod image;
mod partition;
mod partitions;
mod table;

use std::sync::Arc;

pub use image::Image;
pub use partition::Partition;
pub use partitions::Table;
pub use table::TABLE;

use crate::block_device::BlockDevice;
use crate::window::WindowDevice;

/// Something found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The number of the partition that it is in; none: it is on the device itself.
    pub partition: Option<u32>,
    /// What it is, as `blkid` calls it: `ext4`, `crypto_LUKS`, `swap`.
    pub kind: &'static str,
}

/// The signature in an image, as `blkid` calls it.
pub fn identify(image: &Image) -> Option<&'static str> {
    TABLE.iter().find(|signature| signature.is_in(image)).map(|signature| signature.kind)
}

/// Looks at a device and at its partitions. What cannot be read counts as empty.
pub async fn search(device: &Arc<dyn BlockDevice>) -> Vec<Finding> {
    let image = Image::read(&**device).await;
    let mut found: Vec<Finding> = identify(&image).into_iter().map(|kind| Finding { partition: None, kind }).collect();
    for partition in partitions_of(device, &image).await {
        if let Ok(window) = open(device, &partition) {
            let kind = identify(&Image::read(&window).await);
            found.extend(kind.map(|kind| Finding { partition: Some(partition.number), kind }));
        }
    }
    found
}

/// The partitions of a device, when it has a table that is known.
pub async fn partitions(device: &Arc<dyn BlockDevice>) -> Vec<Partition> {
    partitions_of(device, &Image::read(&**device).await).await
}

async fn partitions_of(device: &Arc<dyn BlockDevice>, image: &Image) -> Vec<Partition> {
    Table::read(&**device, image).await.map_or_else(Vec::new, |table| table.partitions)
}

/// A partition as a device of its own.
///
/// # Errors
/// It lies beyond the device.
pub fn open(device: &Arc<dyn BlockDevice>, partition: &Partition) -> crate::Result<WindowDevice> {
    let name = device.path().map(|path| crate::disk::partition_path(path, partition.number)).unwrap_or_default();
    WindowDevice::new(device.clone(), partition.start, partition.size, name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use platter_buffer::Buf;

    use super::table::Signature;
    use super::*;
    use crate::{MemDevice, OpenOptions, disk};

    const SIZE: u64 = 96 << 20;

    async fn device_with(parts: &[(u64, Vec<u8>)]) -> Arc<dyn BlockDevice> {
        let device = MemDevice::new("d", SIZE);
        for (at, bytes) in parts {
            device.write(*at, vec![Buf::copy_from(bytes)]).await.expect("written");
        }
        Arc::new(device)
    }

    fn le(number: u64, bytes: usize) -> Vec<u8> {
        number.to_le_bytes()[..bytes].to_vec()
    }

    fn be(number: u64, bytes: usize) -> Vec<u8> {
        number.to_be_bytes()[8 - bytes..].to_vec()
    }

    /// What a signature at `at` needs besides.
    fn besides(signature: &Signature, at: u64) -> Vec<(u64, Vec<u8>)> {
        let fat = || {
            let fields =
                [(0x0b, le(512, 2)), (0x0d, le(8, 1)), (0x0e, le(32, 2)), (0x10, le(2, 1)), (0x15, le(0xf8, 1))];
            let sizes = [(0x20, le(100_000, 4)), (0x24, le(800, 4)), (0x1fe, le(0xAA55, 2))];
            fields.into_iter().chain(sizes).collect()
        };
        let minix = |begin: u64, number: fn(u64, usize) -> Vec<u8>| {
            let halves =
                [(0, 100), (2, 500), (4, 1), (6, 1), (8, 10)].map(|(at, value)| (begin + at, number(value, 2)));
            halves.into_iter().chain([(begin + 20, number(500, 4))]).collect()
        };
        let minix3 = |begin: u64, number: fn(u64, usize) -> Vec<u8>| {
            let halves = [(6, 1), (8, 1), (10, 10)].map(|(at, value)| (begin + at, number(value, 2)));
            halves.into_iter().chain([(begin, number(100, 4)), (begin + 20, number(500, 4))]).collect()
        };
        let ext = |compatible: u64, needed: u64| {
            let fields = [(0, 100), (4, 1000), (0x18, 2), (0x20, 8192), (0x5c, compatible), (0x60, needed)];
            fields.map(|(at, value)| (1024 + at, le(value, 4))).to_vec()
        };
        match (signature.kind, signature.magic) {
            ("crypto_LUKS", b"SKUL\xba\xbe") => vec![(at + 6, be(2, 2)), (at + 256, be(at, 8))],
            ("crypto_LUKS", _) => vec![(at + 6, be(1, 2))],
            ("BitLocker", b"\xeb\x58\x90MSWIN4.1") => {
                vec![(424, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01".to_vec())]
            }
            ("cs_fvault2", _) => vec![(8, le(1, 2)), (10, le(0x10, 2)), (90, le(1, 4))],
            ("LVM2_member", _) => vec![(at + 8, le(at / 512, 8)), (at + 24, b"LVM2 001".to_vec())],
            ("LVM1_member", _) => vec![(at + 2, le(1, 2))],
            ("linux_raid_member", b"\xa9\x2b\x4e\xfc") => vec![(at + 32, be(1024, 4))],
            ("linux_raid_member", _) if at == SIZE - (64 << 10) => vec![(at + 32, le(1024, 4))],
            ("linux_raid_member", _) => vec![(at + 4, le(1, 4)), (at + 144, le(at / 512, 8))],
            ("adaptec_raid_member", _) => vec![(at - 256, be(0x37FC_4D1E, 4))],
            ("silicon_medley_raid_member", _) => vec![(at - 0x60 + 0x13E, le(0x1_0000 - 0x2f00, 2))],
            ("jmicron_raid_member", _) => vec![(at + 2, le(0x1_0000 - 0x4d4a, 2))],
            ("via_raid_member", _) => vec![(at + 50, vec![0xff])],
            ("swap", b"SWAPSPACE2") => vec![(1024, le(1, 4)), (1028, le(1000, 4))],
            ("jbd", _) => ext(0, 8),
            ("ext2", _) => ext(0, 2),
            ("ext3", _) => ext(4, 2),
            ("ext4", _) => ext(4, 0x42),
            ("xfs", _) => vec![(4, be(4096, 4)), (8, be(9, 8)), (88, be(4, 4)), (102, be(512, 2))],
            ("xfs_external_log", _) => {
                let record = [(0, 0xfeed_babe), (8, 2), (12, 512), (300, 1)];
                record.map(|(at, value)| (1024 + at, be(value, 4))).to_vec()
            }
            ("btrfs", _) => vec![(at - 0x10, le(at - 0x40, 8))],
            ("exfat", _) => {
                vec![(0, b"\xeb\x76\x90".to_vec()), (108, vec![9]), (110, vec![1]), (0x1fe, le(0xAA55, 2))]
            }
            ("ntfs", _) => vec![(0x0b, le(512, 2)), (0x0d, vec![8])],
            ("vfat", _) => fat(),
            ("hfsplus", b"BD") => vec![(at + 20, be(4096, 4)), (at + 124, b"H+".to_vec())],
            ("hfsplus", _) => vec![(at + 40, be(4096, 4))],
            ("hfs", _) => vec![(at + 20, be(4096, 4))],
            ("udf", _) => vec![(at + 4096, b"NSR02".to_vec())],
            ("squashfs", _) => vec![(at + 28, le(4, 2))],
            ("jfs", _) => vec![(at + 16, le(4096, 4)), (at + 20, le(12, 2))],
            ("gfs2", _) => vec![(at + 24, be(1801, 4))],
            ("gfs", _) => vec![(at + 24, be(1309, 4))],
            ("nilfs2", _) => vec![(at - 6, le(2, 4)), (at + 2, le(280, 2))],
            ("hpfs", _) => vec![(at + 0x200, b"\x49\x18\x91\xf9".to_vec())],
            ("ufs", _) => vec![((64 << 10) + 0x55c, le(0x1954_0119, 4))],
            ("minix", b"\x13\x7f" | b"\x13\x8f" | b"\x24\x68" | b"\x24\x78") => minix(at - 0x10, be),
            ("minix", b"\x5a\x4d") => minix3(at - 0x18, le),
            ("minix", b"\x4d\x5a") => minix3(at - 0x18, be),
            ("minix", _) => minix(at - 0x10, le),
            _ => Vec::new(),
        }
    }

    fn name(path: &Path) -> &str {
        path.to_str().expect("a temporary path is UTF-8")
    }

    /// `zpool create` without `-f` took disks, partitions and files with file systems, swap and members of arrays.
    #[tokio::test]
    async fn each_signature_is_found_and_called_what_blkid_calls_it() {
        for signature in TABLE {
            let at = signature.at.on(SIZE).expect("the device is large enough");
            let mut parts = vec![(at, signature.magic.to_vec())];
            parts.extend(besides(signature, at));
            let found = search(&device_with(&parts).await).await;
            assert_eq!(found, [Finding { partition: None, kind: signature.kind }], "{signature:?}");
        }
    }

    #[tokio::test]
    async fn what_is_blank_random_or_only_looks_like_one_holds_nothing() {
        assert_eq!(search(&device_with(&[]).await).await, []);
        let mut state = 1u64;
        for _ in 0..20 {
            let mut noise = |length: usize| -> Vec<u8> {
                let mut next = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as u8
                };
                (0..length).map(|_| next()).collect()
            };
            let device = device_with(&[(0, noise(400 << 10)), (SIZE - (2 << 20), noise(2 << 20))]).await;
            assert_eq!(search(&device).await, []);
        }
        for (at, bytes) in [
            (0x438, &b"\x53\xef"[..]),
            (1024, b"BD"),
            (1024, b"H+"),
            (0, b"\xeb\x63\x90"),
            (0, b"HM"),
            (0, b"\xeb\x58\x90MSWIN4.1"),
            (1040, b"\x7f\x13"),
            (1048, b"\x5a\x4d"),
            (SIZE - 512, b"JM"),
            (SIZE - 512, b"\x55\xaa"),
        ] {
            // A boot loader's sector ends in these two bytes too.
            let device = device_with(&[(at, bytes.to_vec()), (0x1fe, vec![0x55, 0xaa])]).await;
            assert_eq!(search(&device).await, [], "{bytes:?} at {at}");
        }
    }

    #[tokio::test]
    async fn partitions_of_dos_and_gpt_are_looked_into() {
        let entry =
            |kind: u8, first: u64, count: u64| [vec![0, 0, 0, 0, kind, 0, 0, 0], le(first, 4), le(count, 4)].concat();
        let end = || (0x1fe, vec![0x55, 0xaa]);
        let swap = |start: u64| (start * 512 + 0xff6, b"SWAP-SPACE".to_vec());
        let logical = |begin: u64| [(0x1be, entry(0x83, 8, 4096)), end()].map(|(at, bytes)| (begin * 512 + at, bytes));
        let mut parts = vec![(0x1be, entry(0x83, 2048, 4096)), (0x1ce, entry(0x05, 8192, 65536)), end(), swap(8200)];
        parts.extend(logical(8192));
        parts.push((8192 * 512 + 0x1ce, entry(0x05, 16384, 8192)));
        parts.extend(logical(8192 + 16384));
        parts.push(swap(8192 + 16384 + 8));
        let found = |number| Finding { partition: Some(number), kind: "swap" };
        assert_eq!(search(&device_with(&parts).await).await, [found(5), found(6)]);
        // A chain that leads to itself ends.
        parts.push(((8192 + 16384) * 512 + 0x1ce, entry(0x05, 16384, 8192)));
        assert!(search(&device_with(&parts).await).await.len() >= 2);

        let list = [vec![7; 16], vec![1; 16], le(4096, 8), le(8191, 8), vec![0; 80]].concat();
        for header in [512, SIZE - 512] {
            let fields = [(72, le(2, 8)), (80, le(128, 4)), (84, le(128, 4))];
            let mut parts = vec![(0x1be, entry(0xee, 1, 0xffff)), end(), (header, b"EFI PART".to_vec())];
            parts.extend(fields.map(|(at, bytes)| (header + at, bytes)));
            parts.extend([(1024 + 128, list.clone()), swap(4096)]);
            assert_eq!(search(&device_with(&parts).await).await, [found(2)], "header at {header}");
        }
    }

    #[tokio::test]
    async fn partitions_of_other_tables_are_looked_into() {
        let swap = |start: u64| (start * 512 + 0xff6, b"SWAP-SPACE".to_vec());
        let found = |number| vec![Finding { partition: Some(number), kind: "swap" }];
        // Makes the words of the first sector add up to nothing at `at`.
        let summed = |mut parts: Vec<(u64, Vec<u8>)>, at: usize, sum: fn(&[u8]) -> Vec<u8>| {
            let mut sector = vec![0; 512];
            parts.iter().for_each(|(at, bytes)| sector[*at as usize..][..bytes.len()].copy_from_slice(bytes));
            parts.push((at as u64, sum(&sector)));
            parts
        };
        let exclusive =
            |sector: &[u8]| sector.chunks(2).fold(vec![0, 0], |sum, word| vec![sum[0] ^ word[0], sum[1] ^ word[1]]);
        let negative = |sector: &[u8]| {
            let words = sector.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four")));
            be(words.fold(0u32, u32::wrapping_sub).into(), 4)
        };
        // Heads and sectors make the cylinder; the third partition is the whole disk.
        let sun = vec![
            (436, be(16, 2)),
            (438, be(64, 2)),
            (444, [be(0, 4), be(1024, 4), be(4, 4), be(8192, 4), be(0, 4), be(SIZE / 512, 4)].concat()),
            (508, be(0xDABE, 2)),
        ];
        let sgi = vec![
            (0, be(0x0BE5_A941, 4)),
            (312 + 12, [be(8192, 4), be(4096, 4), be(10, 4)].concat()),
            (312 + 120, [be(SIZE / 512, 4), be(0, 4), be(6, 4)].concat()),
        ];
        // Blocks of 2048 bytes, as on a CD.
        let entry = |first: u64| [b"PM".to_vec(), be(0, 2), be(2, 4), be(first, 4), be(2048, 4)].concat();
        let apple = vec![(0, [b"ER".to_vec(), be(2048, 2)].concat()), (2048, entry(1)), (4096, entry(1024))];
        let label = |at: u64, parts: [(u64, u64, u8); 3]| {
            let entries =
                parts.map(|(first, count, kind)| [le(count, 4), le(first, 4), le(0, 4), vec![kind; 4]].concat());
            [(0, le(0x8256_4557, 4)), (132, le(0x8256_4557, 4)), (138, le(3, 2)), (148, entries.concat())]
                .map(|(offset, bytes)| (at + offset, bytes))
                .to_vec()
        };
        let bsd = label(64, [(16, 1024, 7), (4096, 8192, 1), (0, SIZE / 512, 1)]);
        for (parts, number) in [(summed(sun, 510, exclusive), 2), (summed(sgi, 504, negative), 2), (apple, 2), (bsd, 2)]
        {
            let mut parts = parts;
            assert_eq!(search(&device_with(&parts).await).await, [], "no partition holds anything");
            parts.push(swap(4096));
            assert_eq!(search(&device_with(&parts).await).await, found(number));
            // What is spoilt is no table.
            let (at, _) = parts[0];
            parts.push((at, vec![0x5a; 4]));
            assert_eq!(search(&device_with(&parts).await).await, []);
        }
        // Inside a DOS partition, counted from its beginning and from the disk's.
        for (kind, first) in [(0xa5u8, 2048), (0xa6, 4096)] {
            let entry = [vec![0, 0, 0, 0, kind, 0, 0, 0], le(2048, 4), le(65536, 4)].concat();
            let mut parts = vec![(0x1be, entry), (0x1fe, vec![0x55, 0xaa]), swap(4096)];
            let whole = if kind == 0xa5 { 0 } else { 2048 };
            parts.extend(label(2048 * 512 + 512, [(first, 8192, 1), (0, 0, 0), (whole, 65536, 1)]));
            assert_eq!(search(&device_with(&parts).await).await, found(5), "{kind:x}");
        }
        // Two such partitions: each partition inside has a number of its own, and unused entries have none.
        let slice = |first: u64| [vec![0, 0, 0, 0, 0xa6, 0, 0, 0], le(first, 4), le(16384, 4)].concat();
        let mut parts = vec![(0x1be, slice(2048)), (0x1ce, slice(32768)), (0x1fe, vec![0x55, 0xaa])];
        for first in [2048, 32768] {
            parts.extend(label(first * 512 + 512, [(0, 0, 0), (first + 2048, 4096, 1), (first, 16384, 1)]));
            parts.push(swap(first + 2048));
        }
        assert_eq!(search(&device_with(&parts).await).await, [found(5), found(6)].concat());
    }

    /// Whatever of these programs is there.
    #[tokio::test]
    async fn what_the_systems_programs_make_is_found() {
        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("key"), "secret").expect("key");
        let key = name(&dir.path().join("key")).to_owned();
        let (mut made, mut missing) = (0, Vec::new());
        for (kind, line) in [
            ("ext2", "mkfs.ext2 -q -F {}"),
            ("ext3", "mkfs.ext3 -q -F {}"),
            ("ext4", "mkfs.ext4 -q -F {}"),
            ("jbd", "mke2fs -q -F -O journal_dev {}"),
            ("xfs", "mkfs.xfs -q -f {}"),
            ("btrfs", "mkfs.btrfs -q -f {}"),
            ("f2fs", "mkfs.f2fs -q {}"),
            ("swap", "mkswap -q {}"),
            ("swap", "mkswap -q -p 65536 {}"),
            ("vfat", "mkfs.vfat -F 32 {}"),
            ("vfat", "mkfs.vfat -F 16 {}"),
            ("exfat", "mkfs.exfat {}"),
            ("ntfs", "mkfs.ntfs -q -f -F {}"),
            ("minix", "mkfs.minix -1 {}"),
            ("minix", "mkfs.minix -3 {}"),
            ("bfs", "mkfs.bfs {}"),
            ("crypto_LUKS", "cryptsetup -q luksFormat --type luks1 --pbkdf-force-iterations 1000 {} KEY"),
            (
                "crypto_LUKS",
                "cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 {} KEY",
            ),
        ] {
            let path = dir.path().join("image");
            std::fs::File::create(&path).and_then(|file| file.set_len(400 << 20)).expect("an image");
            let mut words = line.split(' ').map(|word| match word {
                "{}" => name(&path),
                "KEY" => &key,
                word => word,
            });
            let program = words.next().expect("a program");
            let paths = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
            match Command::new(program).args(words).env("PATH", paths).output() {
                Ok(run) if run.status.success() => {}
                Ok(run) if kind == "swap" && line.contains("-p") => {
                    println!("skipped: {line}: {}", String::from_utf8_lossy(&run.stderr));
                    continue;
                }
                Ok(run) => panic!("{line}: {}", String::from_utf8_lossy(&run.stderr)),
                Err(_) => {
                    missing.push(program.to_owned());
                    continue;
                }
            }
            made += 1;
            let device = disk::open_path(&path, OpenOptions::read_only()).await.expect("open");
            assert_eq!(search(&device).await, [Finding { partition: None, kind }], "{line}");
        }
        println!("{made} kinds made and found; skipped, as the program is missing: {missing:?}");
    }
}
