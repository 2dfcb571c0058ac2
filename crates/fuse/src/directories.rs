//! Requests that list directories.

use std::time::Duration;

use platter_transport::{Directory, Entry, FileAttr, NodeId, Reply};

use crate::attr::{attr_ttl, blank_attr, file_attr, type_bits};
use crate::server::PlatterFs;
use crate::terms::ENTRY_TTL;

impl PlatterFs {
    pub(crate) async fn readdir(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        let mut entries = Directory::new(size);
        if let Some(own) = self.control.entries(node, offset) {
            for (attr, cursor, name) in own {
                if entries.add(attr.node, cursor, attr.mode, name) {
                    break;
                }
            }
            return reply.directory(&entries);
        }
        let result = self
            .list(self.object(node), offset, false, |entry| {
                entries.add(NodeId(entry.object.0), entry.cursor, type_bits(entry.kind), &entry.name)
            })
            .await;
        match result {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) async fn readdirplus(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        let mut entries = Directory::new(size);
        if let Some(own) = self.control.entries(node, offset) {
            for (attr, cursor, name) in own {
                if entries.add_entry(&lasting(attr.node, attr), cursor, name) {
                    break;
                }
            }
            return reply.directory(&entries);
        }
        let result = self
            .list(self.object(node), offset, true, |entry| {
                let node = NodeId(entry.object.0);
                let (attr, attr_ttl, generation) = match &entry.attr {
                    Some(attr) => (file_attr(attr), attr_ttl(attr), attr.generation),
                    // Unreadable: the kernel learns the error when somebody asks for the attributes.
                    None => (blank_attr(node, type_bits(entry.kind)), Duration::ZERO, 0),
                };
                let answer = Entry { node, generation, attr, entry_ttl: self.entry_ttl(attr_ttl), attr_ttl };
                let full = entries.add_entry(&answer, entry.cursor, &entry.name);
                // Each entry counts as looked up, but not these two.
                if !full && !matches!(&entry.name[..], b"." | b"..") {
                    self.zpl.remember(entry.object);
                }
                full
            })
            .await;
        match result {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(error),
        }
    }
}

/// A node that does not change, for as long as the kernel likes.
pub(crate) fn lasting(node: NodeId, attr: FileAttr) -> Entry {
    Entry { node, generation: 0, attr, entry_ttl: ENTRY_TTL, attr_ttl: ENTRY_TTL }
}
