//! What a stream of a file system says of a file beside its contents: its object's bonus, read with the tables of
//! attributes that are in the stream too (`module/zfs/sa.c`), or in an old file system a znode.

use std::collections::BTreeMap;

use platter_ondisk::sa::{AttrShape, SaBuffer};
use platter_ondisk::znode::{ZNODE_PHYS_SIZE, ZnodePhys, ZplAttr};
use platter_ondisk::{ObjectType, byteswap};

use crate::contents::named;
use crate::error::StreamError;
use crate::record::ObjectRecord;

/// What a file is, whom it belongs to and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// Kind and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Bytes of its contents; entries of a directory.
    pub size: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names it has.
    pub links: u64,
    /// The device that a node stands for.
    pub device: u64,
    /// Seconds and nanoseconds of the last access, the last change of contents, of attributes, and of its creation.
    pub times: [[u64; 2]; 4],
    /// Where a symbolic link leads, when it is among the attributes.
    pub target: Option<Vec<u8>>,
}

/// Which attributes there are, and in which order they lie.
#[derive(Clone, Debug, Default)]
pub struct AttributeTables {
    shapes: BTreeMap<u16, AttrShape>,
    known: BTreeMap<u16, ZplAttr>,
    layouts: BTreeMap<u16, Vec<u16>>,
}

fn damaged(what: impl std::fmt::Display) -> StreamError {
    StreamError::Malformed(format!("attributes of a file: {what}"))
}

impl AttributeTables {
    /// Of the blocks of the registry and of the layouts.
    ///
    /// # Errors
    /// They make no sense.
    pub fn of(registry: &[Vec<u8>], layouts: &[Vec<u8>]) -> Result<Self, StreamError> {
        let mut tables = Self::default();
        // The first ones have their numbers in every file system.
        for attribute in ZplAttr::ALL.into_iter().take(ZplAttr::LEGACY) {
            tables.shapes.insert(attribute as u16, attribute.shape());
            tables.known.insert(attribute as u16, attribute);
        }
        for (name, values) in registry.iter().map(|block| named(block)).collect::<Result<Vec<_>, _>>()?.concat() {
            let Some(&value) = values.first() else { continue };
            let shape = AttrShape::from_registry(value).map_err(damaged)?;
            tables.shapes.insert(shape.number, shape);
            if let Some(attribute) = ZplAttr::ALL.into_iter().find(|known| known.name().as_bytes() == name) {
                tables.known.insert(shape.number, attribute);
            }
        }
        for (name, values) in layouts.iter().map(|block| named(block)).collect::<Result<Vec<_>, _>>()?.concat() {
            let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
            let number = number.ok_or_else(|| damaged("a layout without a number"))?;
            tables.layouts.insert(number, values.into_iter().map(|value| value as u16).collect());
        }
        tables.layouts.entry(1).or_default();
        Ok(tables)
    }

    /// The attributes of a file: of its object, the bonus behind that in the stream, and its spill block.
    ///
    /// # Errors
    /// They make no sense.
    pub fn decode(
        &self,
        object: &ObjectRecord,
        bonus: &[u8],
        spill: Option<&[u8]>,
        swapped: bool,
    ) -> Result<FileAttributes, StreamError> {
        let bonus = bonus.get(..object.bonus_length as usize).ok_or_else(|| damaged("too few bytes"))?;
        if object.bonus_type != ObjectType::SA {
            return old(object, bonus, swapped);
        }
        let mut found = FileAttributes::default();
        for bytes in [Some(bonus), spill].into_iter().flatten() {
            let layout = |number| self.layouts.get(&number).map(Vec::as_slice);
            let buffer = SaBuffer::decode(bytes, layout, |number| self.shapes.get(&number).copied());
            let buffer = buffer.map_err(damaged)?;
            for (number, place) in &buffer.attributes {
                if let Some(&attribute) = self.known.get(number) {
                    found.note(attribute, &buffer.bytes[place.clone()]);
                }
            }
        }
        Ok(found)
    }
}

impl FileAttributes {
    fn note(&mut self, attribute: ZplAttr, bytes: &[u8]) {
        let word =
            |at: usize| bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        match attribute {
            ZplAttr::Mode => self.mode = word(0) as u32,
            ZplAttr::Size => self.size = word(0),
            ZplAttr::Uid => self.uid = word(0) as u32,
            ZplAttr::Gid => self.gid = word(0) as u32,
            ZplAttr::Links => self.links = word(0),
            ZplAttr::Rdev => self.device = word(0),
            ZplAttr::Atime => self.times[0] = [word(0), word(8)],
            ZplAttr::Mtime => self.times[1] = [word(0), word(8)],
            ZplAttr::Ctime => self.times[2] = [word(0), word(8)],
            ZplAttr::Crtime => self.times[3] = [word(0), word(8)],
            ZplAttr::Symlink => self.target = Some(bytes.to_vec()),
            _ => {}
        }
    }
}

/// Of a file system before version 5.
fn old(object: &ObjectRecord, bonus: &[u8], swapped: bool) -> Result<FileAttributes, StreamError> {
    let mut bonus = bonus.to_vec();
    if swapped {
        byteswap::byteswap(object.bonus_type, &mut bonus);
    }
    let znode = ZnodePhys::decode(&bonus).map_err(damaged)?;
    let target = bonus.get(ZNODE_PHYS_SIZE..ZNODE_PHYS_SIZE.saturating_add(znode.size as usize));
    Ok(FileAttributes {
        mode: znode.mode as u32,
        size: znode.size,
        uid: znode.uid as u32,
        gid: znode.gid as u32,
        links: znode.links,
        device: znode.rdev,
        times: [znode.atime, znode.mtime, znode.ctime, znode.crtime],
        target: target.filter(|target| !target.is_empty()).map(<[u8]>::to_vec),
    })
}
