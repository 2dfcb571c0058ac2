//! Requests that list directories.

use std::time::Duration;

use platter_transport::{Directory, Entry, NodeId, Reply};
use platter_vfs::{Access, is_control};

use crate::attr::{attr_ttl, blank_attr, errno, type_bits};
use crate::server::{PlatterFs, control_entry};

impl PlatterFs {
    pub(crate) async fn readdir(&self, access: Access<'_>, node: NodeId, offset: u64, size: u32, reply: Reply) {
        if self.shows_snapshots(node) {
            return Box::pin(self.list_snapshots(offset, size, false, reply)).await;
        }
        let mut entries = Directory::new(size);
        let add = |entry: &platter_vfs::DirEntry| {
            entries.add(self.node(entry.object), entry.cursor, type_bits(entry.kind), &entry.name)
        };
        match self.vfs.list(access, self.object(node), offset, false, add).await {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) async fn readdirplus(&self, access: Access<'_>, node: NodeId, offset: u64, size: u32, reply: Reply) {
        if self.shows_snapshots(node) {
            return Box::pin(self.list_snapshots(offset, size, true, reply)).await;
        }
        let mut entries = Directory::new(size);
        let add = |entry: &platter_vfs::DirEntry| {
            let node = self.node(entry.object);
            let answer = match &entry.attr {
                Some(attr) if is_control(attr.object) => control_entry(attr),
                Some(attr) => {
                    let (generation, attr_ttl) = (self.vfs.handle(attr).generation(), attr_ttl(attr));
                    Entry {
                        node,
                        generation,
                        attr: self.file_attr(attr),
                        entry_ttl: self.entry_ttl(attr_ttl),
                        attr_ttl,
                    }
                }
                // Unreadable: the kernel learns the error when somebody asks for the attributes.
                None => {
                    let attr = blank_attr(node, type_bits(entry.kind));
                    Entry { node, generation: 0, attr, entry_ttl: Duration::ZERO, attr_ttl: Duration::ZERO }
                }
            };
            let full = entries.add_entry(&answer, entry.cursor, &entry.name);
            // Each entry counts as looked up, but not these two.
            if !full && !matches!(&entry.name[..], b"." | b"..") && !is_control(entry.object) {
                self.remember(entry.object);
            }
            full
        };
        match self.vfs.list(access, self.object(node), offset, true, add).await {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
