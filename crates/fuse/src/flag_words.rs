//! File flags on disk and the kernel's words for them.

use platter_ondisk::znode::flags;
use platter_transport::Errno;
use platter_vfs::Attr;

/// A file flag on disk, as `FS_*_FL` and as `FS_XFLAG_*`.
pub(crate) struct Flag {
    zfs: u64,
    pub plain: u32,
    pub extended: u32,
}

/// Those that can be changed.
const FLAGS: [Flag; 4] = [
    Flag { zfs: flags::IMMUTABLE, plain: 0x10, extended: 0x8 },
    Flag { zfs: flags::APPENDONLY, plain: 0x20, extended: 0x10 },
    Flag { zfs: flags::NODUMP, plain: 0x40, extended: 0x80 },
    Flag { zfs: flags::PROJINHERIT, plain: 0x2000_0000, extended: 0x200 },
];

/// The words that the kernel has for the `ZFS_*` flags.
pub(crate) fn shown(attr: &Attr, word: impl Fn(&Flag) -> u32) -> u32 {
    FLAGS.iter().filter(|flag| attr.flags & flag.zfs != 0).fold(0, |all, flag| all | word(flag))
}

/// The `ZFS_*` flags of a file that had `attr` and shall have the kernel's `wanted`.
pub(crate) fn wanted_flags(attr: &Attr, wanted: u32, word: impl Fn(&Flag) -> u32) -> Result<u64, Errno> {
    let known = FLAGS.iter().fold(0, |all, flag| all | word(flag));
    if wanted & !known != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(FLAGS.iter().fold(attr.flags, |all, flag| match wanted & word(flag) {
        0 => all & !flag.zfs,
        _ => all | flag.zfs,
    }))
}
