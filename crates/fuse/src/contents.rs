//! Requests for what files hold beside reading and writing, and for their extended attributes.

use platter_transport::{Errno, NodeId, Operation, Reply};
use platter_vfs::{Access, Fallocate, SeekFor, SetXattr, is_control};

use crate::attr::errno;
use crate::file_flags;
use crate::server::{Caller, PlatterFs, answer_empty, answer_value};

pub(crate) const FALLOC_KEEP_SIZE: i32 = 1;
pub(crate) const FALLOC_PUNCH_HOLE: i32 = 2;
pub(crate) const FALLOC_ZERO_RANGE: i32 = 16;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
pub(crate) const SEEK_DATA: u32 = 3;
pub(crate) const SEEK_HOLE: u32 = 4;

impl PlatterFs {
    /// Requests for what files hold.
    pub(crate) async fn serve_contents(&self, node: NodeId, caller: Caller, operation: Operation<'_>, reply: Reply) {
        let (access, object) = (Access::Checked(&caller), self.object(node));
        match operation {
            Operation::Fallocate { offset, length, mode } => {
                let Some(what) = what_to_allocate(mode) else { return reply.error(Errno::OPNOTSUPP) };
                answer_empty(self.vfs.fallocate(access, object, what, offset, length).await, reply);
            }
            Operation::Lseek { offset, whence } => self.lseek(caller, node, offset, whence, reply).await,
            Operation::CopyFileRange { offset, to, to_offset, length, wide } => {
                let to = (self.object(to), to_offset);
                match self.vfs.copy_range(access, (object, offset), to, length).await {
                    Ok(copied) => reply.copied(copied, wide),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Operation::Ioctl { .. } if is_control(object) => reply.error(Errno::NOTTY),
            Operation::Ioctl { command, data, answer_max } => {
                match file_flags::ioctl(&self.vfs, object, caller, command, data).await {
                    Ok(answer) => reply.ioctl(&answer[..answer.len().min(answer_max as usize)]),
                    Err(error) => reply.error(error),
                }
            }
            // Whatever else there is belongs to `serve`.
            _ => reply.error(Errno::NOSYS),
        }
    }

    /// Those for extended attributes.
    pub(crate) async fn serve_xattrs(&self, node: NodeId, caller: Caller, operation: Operation<'_>, reply: Reply) {
        let (access, object) = (Access::Checked(&caller), self.object(node));
        match operation {
            Operation::SetXattr { name, value, flags, clear_set_gid } => {
                self.setxattr(node, caller, name, value, flags, clear_set_gid, reply).await;
            }
            Operation::GetXattr { name, size } => {
                answer_value(self.vfs.getxattr(access, object, name).await, size, reply);
            }
            Operation::ListXattr { size } => {
                let names = self.vfs.listxattr(access, object).await;
                let joined = names.map(|names| names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect());
                answer_value(joined, size, reply);
            }
            Operation::RemoveXattr { name } => {
                answer_empty(self.vfs.removexattr(access, object, name).await, reply);
            }
            // Whatever else there is belongs to `serve`.
            _ => reply.error(Errno::NOSYS),
        }
    }

    /// `lseek` to data or a hole. Where pages may have been changed without our knowing they are written back first,
    /// which takes requests to us: not on a thread that serves them.
    async fn lseek(&self, caller: Caller, node: NodeId, offset: u64, whence: u32, reply: Reply) {
        let what = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        if i64::try_from(offset).is_err() {
            return reply.error(Errno::NXIO);
        }
        let object = self.object(node);
        let answer = |found: platter_vfs::Result<u64>, reply: Reply| match found {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(&error)),
        };
        if !self.vfs.may_have_unknown_changes(object) {
            return answer(self.vfs.seek(Access::Checked(&caller), object, offset, what).await, reply);
        }
        let vfs = self.vfs.clone();
        self.runtime.spawn(async move {
            answer(vfs.seek_written_back(Access::Checked(&caller), object, offset, what).await, reply);
        });
    }

    async fn setxattr(
        &self,
        node: NodeId,
        caller: Caller,
        name: &[u8],
        value: &[u8],
        flags: u32,
        clear_set_gid: Option<bool>,
        reply: Reply,
    ) {
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return reply.error(Errno::INVAL),
        };
        let (access, object) = (Access::Checked(&caller), self.object(node));
        let keep_set_gid = match clear_set_gid {
            Some(clear) => !clear,
            // An older kernel does not tell whether the caller is in the file's group: his first one has to do.
            None if caller.uid == 0 => true,
            None => match self.vfs.getattr(access, object).await {
                Ok(attr) => caller.gid == attr.gid,
                Err(error) => return reply.error(errno(&error)),
            },
        };
        answer_empty(self.vfs.setxattr(access, object, name, value, how, keep_set_gid).await, reply);
    }
}

/// What `fallocate` is to do; `None` for what there is not.
fn what_to_allocate(mode: i32) -> Option<Fallocate> {
    let keep_size = mode & FALLOC_KEEP_SIZE != 0;
    match mode & !FALLOC_KEEP_SIZE {
        0 => Some(Fallocate::Allocate { keep_size }),
        FALLOC_PUNCH_HOLE if keep_size => Some(Fallocate::PunchHole),
        FALLOC_ZERO_RANGE => Some(Fallocate::ZeroRange { keep_size }),
        _ => None,
    }
}
