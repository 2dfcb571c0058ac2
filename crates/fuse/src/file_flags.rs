//! File flags as `lsattr` and `chattr` show and change them (`module/os/linux/zfs/zpl_file.c`, `__zpl_ioctl_getflags`).
//!
//! From Linux 5.13 on, who may change what is the kernel's to decide: it compares with the old flags and asks for
//! ownership and `CAP_LINUX_IMMUTABLE` before it sends new ones (`vfs_fileattr_set` in `fs/file_attr.c`). Kernels
//! before send whatever anybody asks for, so that `vfs` is asked to check it. Of the caller only the user is known
//! then: root stands for all capabilities, and a user namespace of the caller's own, in which Linux lets nobody change
//! projects, is not noticed.
//!
//! A flag that would have no effect is refused, not kept.

use std::sync::OnceLock;

use platter_ondisk::ObjectId;
use platter_transport::Errno;
use platter_vfs::{Access, Credentials, Vfs};

use crate::attr::errno;
use crate::flag_words::{shown, wanted_flags};
use crate::server::Caller;

/// Commands of ioctl(2), from `linux/fs.h`.
const GETVERSION: u32 = 0x8008_7601;
const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;

/// `ZFS_IOC_REWRITE` of `include/sys/fs/zfs.h`, with offset, length, flags, and a word that is to be 0.
const REWRITE: u32 = 0x4020_8303;

/// Bytes of `struct fsxattr`: flags, extent size hint, extents, project, copy extent size hint, padding.
const FSXATTR_BYTES: usize = 28;
const PROJECT_AT: usize = 12;
/// No project's number (`ZFS_INVALID_PROJID`).
const NO_PROJECT: u32 = u32::MAX;

fn word_at(data: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Whether a kernel of this release (`uname -r`) asks who changes flags, before it sends the change.
fn asks_first(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 13)
}

/// Whether this kernel does.
fn kernel_asks() -> bool {
    static ASKS: OnceLock<bool> = OnceLock::new();
    *ASKS.get_or_init(|| asks_first(&rustix::system::uname().release().to_string_lossy()))
}

/// Answers ioctl(2) `command` of `caller` on `object` with the bytes to hand back.
pub(crate) async fn ioctl(
    vfs: &Vfs,
    object: ObjectId,
    caller: Caller,
    command: u32,
    data: &[u8],
) -> Result<Vec<u8>, Errno> {
    let user = Credentials { uid: caller.uid, gid: caller.gid, groups: Vec::new() };
    let access = if kernel_asks() { Access::Checked(&caller) } else { Access::Of(&user) };
    let attr = async || vfs.getattr(access, object).await.map_err(|error| errno(&error));
    let set = async |flags: u64, project: Option<u64>| {
        let changed = vfs.set_flags(access, object, flags, project).await;
        changed.map(|_| Vec::new()).map_err(|error| errno(&error))
    };
    match command {
        // A C `int`, whatever the command's number says.
        GETVERSION => Ok((attr().await?.generation as u32).to_ne_bytes().to_vec()),
        GETFLAGS => Ok(shown(&attr().await?, |flag| flag.plain).to_ne_bytes().to_vec()),
        SETFLAGS => {
            let attr = attr().await?;
            set(wanted_flags(&attr, word_at(data, 0)?, |flag| flag.plain)?, None).await
        }
        FSGETXATTR => {
            let attr = attr().await?;
            let mut answer = vec![0; FSXATTR_BYTES];
            answer[..4].copy_from_slice(&shown(&attr, |flag| flag.extended).to_ne_bytes());
            // Ids above 32 bits are not made by any system.
            answer[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&(attr.project as u32).to_ne_bytes());
            Ok(answer)
        }
        FSSETXATTR => {
            // Hints about extents.
            if [4, 16].into_iter().any(|at| word_at(data, at) != Ok(0)) {
                return Err(Errno::OPNOTSUPP);
            }
            let project = word_at(data, PROJECT_AT)?;
            if project == NO_PROJECT {
                return Err(Errno::INVAL);
            }
            let attr = attr().await?;
            let flags = wanted_flags(&attr, word_at(data, 0)?, |flag| flag.extended)?;
            set(flags, Some(u64::from(project))).await
        }
        REWRITE => {
            // The kernel hands on what somebody asks who may only read.
            let access =
                if platter_vfs::Caller::is_root(&caller) { Access::Checked(&caller) } else { Access::Of(&user) };
            rewrite(vfs, access, object, data).await
        }
        _ => Err(Errno::NOTTY),
    }
}

async fn rewrite(vfs: &Vfs, access: Access<'_>, object: ObjectId, data: &[u8]) -> Result<Vec<u8>, Errno> {
    let words: Vec<u64> =
        data.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?))).collect();
    let [offset, length, flags, argument] = words[..] else { return Err(Errno::INVAL) };
    if argument != 0 {
        return Err(Errno::INVAL);
    }
    // Feature `physical_rewrite`, and what to leave as it is.
    if flags != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    vfs.rewrite(access, object, offset, length).await.map(|_| Vec::new()).map_err(|error| errno(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_ask_are_known_by_their_release() {
        for release in ["5.13.0", "5.13-rc1", "6.1.0-18-amd64", "10.0"] {
            assert!(asks_first(release), "{release}");
        }
        for release in ["5.12.19", "5.4.0-190-generic", "4.19.0", ""] {
            assert!(!asks_first(release), "{release}");
        }
    }
}
