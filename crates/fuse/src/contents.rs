//! Requests for what files hold, and for their extended attributes.

use platter_transport::{Errno, NodeId, Operation, Reply};
use platter_zpl::{Fallocate, Keeper, SetXattr};

use crate::control::Control;
use crate::file_flags;
use crate::server::{Caller, PlatterFs, answer_empty, answer_value};

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const TRUSTED: &[u8] = b"trusted.";

impl PlatterFs {
    /// Requests for what files hold.
    pub(crate) async fn serve_contents(&self, node: NodeId, caller: Caller, operation: Operation<'_>, reply: Reply) {
        match operation {
            Operation::Read { offset, size, direct, fills_cache } => {
                if fills_cache {
                    self.opens.note_pages(self.object(node));
                }
                let read = self.zpl.read_for(self.object(node), offset, size.into(), keeper(direct)).await;
                match self.told_of(read, self.object(node), "read") {
                    Ok(pieces) => reply.data(&pieces),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Write { offset, data, drop_privileges, direct, stable } => {
                if let Err(error) = self.drop_privileges(node, drop_privileges).await {
                    return reply.error(error);
                }
                // The kernel knows the file's size, so the offset of an appending write is right already.
                let written = self.zpl.write_for(self.object(node), Some(offset), data, keeper(direct)).await;
                match self.told_of(written, self.object(node), "write") {
                    Ok(written) => self.answer_written(node, offset, written as u32, direct, stable, reply),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Fallocate { offset, length, mode } => {
                self.fallocate(node, caller, offset, length, mode, reply).await;
            }
            Operation::Lseek { offset, whence } => self.lseek(node, offset, whence, reply).await,
            Operation::CopyFileRange { offset, to, to_offset, length, wide } => {
                if let Err(error) = self.drop_privileges_of(to, caller).await {
                    return reply.error(error);
                }
                let (from, to) = (self.object(node), self.object(to));
                let copied = self.zpl.copy_range(from, offset, to, to_offset, length).await;
                match self.told_of(copied, from, "copy_file_range") {
                    Ok(copied) => reply.copied(copied, wide),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Ioctl { .. } if Control::has(node) => reply.error(Errno::NOTTY),
            Operation::Ioctl { command, data, answer_max } => {
                match file_flags::ioctl(self, node, caller.uid, command, data).await {
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
        match operation {
            Operation::SetXattr { name, value, flags, clear_set_gid } => {
                self.setxattr(node, caller, name, value, flags, clear_set_gid, reply).await;
            }
            Operation::GetXattr { .. } if Control::has(node) => reply.error(Errno::NODATA),
            Operation::GetXattr { name, size } => {
                let value = self.zpl.getxattr(self.object(node), name).await;
                answer_value(self.told_of(value, self.object(node), "getxattr"), size, reply);
            }
            Operation::ListXattr { size } if Control::has(node) => answer_value(Ok(Vec::new()), size, reply),
            Operation::ListXattr { size } => {
                let names = self.names_of_xattrs(node, caller).await;
                let joined = names.map(|names| names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect());
                answer_value(joined, size, reply);
            }
            Operation::RemoveXattr { .. } if Control::has(node) => reply.error(Errno::PERM),
            Operation::RemoveXattr { name } => {
                let removed = self.zpl.removexattr(self.object(node), name).await;
                answer_empty(self.told_of(removed, self.object(node), "removexattr"), reply);
            }
            // Whatever else there is belongs to `serve`.
            _ => reply.error(Errno::NOSYS),
        }
    }

    async fn fallocate(&self, node: NodeId, caller: Caller, offset: u64, length: u64, mode: i32, reply: Reply) {
        let keep_size = mode & FALLOC_KEEP_SIZE != 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            FALLOC_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            FALLOC_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return reply.error(Errno::OPNOTSUPP),
        };
        if let Err(error) = self.drop_privileges_of(node, caller).await {
            return reply.error(error);
        }
        let object = self.object(node);
        answer_empty(self.told_of(self.zpl.fallocate(object, what, offset, length).await, object, "fallocate"), reply);
    }

    /// Only root sees those of name space `trusted`. Few files have any, and who asks may take long to find out.
    async fn names_of_xattrs(&self, node: NodeId, caller: Caller) -> Result<Vec<Vec<u8>>, Errno> {
        let object = self.object(node);
        let names = self.told_of(self.zpl.listxattr(object, true).await, object, "listxattr")?;
        let is_trusted = |name: &Vec<u8>| name.starts_with(TRUSTED);
        if !names.iter().any(is_trusted) || caller.is_root() {
            return Ok(names);
        }
        Ok(names.into_iter().filter(|name| !is_trusted(name)).collect())
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
        if Control::has(node) {
            return reply.error(Errno::PERM);
        }
        let object = self.object(node);
        let keep_set_gid = match clear_set_gid {
            Some(clear) => !clear,
            // An older kernel does not tell whether the caller is in the file's group: his first one has to do.
            None if caller.uid == 0 => true,
            None => match self.told_of(self.zpl.getattr(object).await, object, "setxattr") {
                Ok(attr) => caller.gid == attr.gid,
                Err(error) => return reply.error(error),
            },
        };
        answer_empty(
            self.told_of(self.zpl.setxattr(object, name, value, how, keep_set_gid).await, object, "setxattr"),
            reply,
        );
    }
}

/// Who keeps what is read or written: the kernel, unless it was told not to.
fn keeper(direct: bool) -> Keeper {
    if direct { Keeper::Nobody } else { Keeper::Caller }
}
