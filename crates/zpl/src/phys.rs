//! A file's attributes in memory, and how they come from and go to its bonus and spill block.
//!
//! Invariants:
//! - what this version does not know is kept: attributes of other software come back in their old place;
//! - [`Phys::order`] is the order on disk, bonus first, spill after it; a new attribute goes to the end
//!   (as `sa_modify_attrs` does). What is not in it would be lost.
//!
//! A file of a file system before version 5 has a znode instead: see `znode_legacy`.

use std::ops::{Deref, DerefMut};

use platter_dmu::{Dnode, ZioError};
use platter_ondisk::sa::{SaBuffer, SaHeader, SaValue, SaWriter, encode, fit};
use platter_ondisk::sector::SECTOR;
use platter_ondisk::znode::{ZnodeAcl, ZplAttr, flags};
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::Result;

use crate::acl::Acl;
use crate::attr::{FileKind, Timestamp};
use crate::sa_table::{FIXED, FIXED_WORDS, SaTable, template};

/// The attributes that every object has, with the length that they always have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub mode: u64,
    pub size: u64,
    pub generation: u64,
    pub uid: u64,
    pub gid: u64,
    pub parent: u64,
    pub flags: u64,
    pub links: u64,
    pub atime: [u64; 2],
    pub mtime: [u64; 2],
    pub ctime: [u64; 2],
    pub crtime: [u64; 2],
}

impl Fixed {
    /// In the order of [`FIXED`].
    pub fn words(&self) -> [u64; FIXED_WORDS] {
        let Self { mode, size, generation, uid, gid, parent, flags, links, atime, mtime, ctime, crtime } = *self;
        let [a, m, c, cr] = [atime, mtime, ctime, crtime];
        [mode, size, generation, uid, gid, parent, flags, a[0], a[1], m[0], m[1], c[0], c[1], cr[0], cr[1], links]
    }
}

/// What of a legacy znode has no other place in [`Phys`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegacyRest {
    /// The access control list as it is stored.
    pub acl: ZnodeAcl,
    /// What `acl` says; while the file's list is this one, `acl` is written back.
    pub meaning: Option<Acl>,
    pub pad: [u64; 4],
    /// Bytes behind the znode that are no link's target.
    pub tail: Vec<u8>,
}

/// All attributes of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phys {
    pub fixed: Fixed,
    pub rdev: Option<u64>,
    /// The project as it is stored; see [`project`](Self::project).
    pub projid: Option<u64>,
    /// The hidden directory with extended attributes; 0 is none, too.
    pub xattr: Option<u64>,
    /// The encoded list of extended attributes.
    pub dxattr: Option<Vec<u8>>,
    pub acl: Option<Acl>,
    pub symlink: Option<Vec<u8>>,
    /// Attributes that only pass through, by number.
    pub others: Vec<(u16, Vec<u8>)>,
    /// Attribute numbers in their order on disk.
    pub order: Vec<u16>,
    /// The object with a legacy znode's access control list; freed when the znode is first written back.
    pub external_acl: Option<ObjectId>,
    /// What a znode has beside all this; only in a file system before version 5.
    pub legacy: Option<Box<LegacyRest>>,
}

impl Deref for Phys {
    type Target = Fixed;

    fn deref(&self) -> &Fixed {
        &self.fixed
    }
}

impl DerefMut for Phys {
    fn deref_mut(&mut self) -> &mut Fixed {
        &mut self.fixed
    }
}

/// Attributes that are told apart by whether they must be stored anew as a whole: who changes only [`Fixed`] ones does
/// not, unless others wait for it.
#[derive(Debug)]
pub(crate) struct Tracked {
    phys: Phys,
    /// Something beside [`Phys::fixed`] may have changed since all was stored.
    changed: bool,
}

impl Tracked {
    pub fn new(phys: Phys) -> Self {
        Self { phys, changed: false }
    }

    /// For any change; [`stored`](Self::stored) must follow.
    pub fn change(&mut self) -> &mut Phys {
        self.changed = true;
        &mut self.phys
    }

    pub fn change_fixed(&mut self) -> &mut Fixed {
        &mut self.phys.fixed
    }

    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// All has been stored as it is.
    pub fn stored(&mut self) {
        self.changed = false;
    }
}

impl Deref for Tracked {
    type Target = Phys;

    fn deref(&self) -> &Phys {
        &self.phys
    }
}

/// What goes to disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub bonus: Vec<u8>,
    pub spill: Option<Vec<u8>>,
}

/// Why [`Phys::encode`] could not.
#[derive(Debug)]
pub(crate) enum EncodeError {
    /// The data set has no layout with these attributes yet; add it and try again.
    MissingLayout(Vec<u16>),
    Zio(ZioError),
}

impl Phys {
    /// A new object's attributes; `project` where objects have one.
    pub fn new(
        kind: FileKind,
        mode: u64,
        generation: u64,
        now: Timestamp,
        project: Option<u64>,
        table: &SaTable,
    ) -> Self {
        let directory = kind == FileKind::Directory;
        let now = now.to_words();
        let inherited = if directory { flags::ACL_AUTO_INHERIT } else { 0 };
        let has_project = if project.is_some() { flags::PROJID } else { 0 };
        let fixed = Fixed {
            mode: kind.mode_bits() | mode & 0o7777,
            size: if directory { 2 } else { 0 },
            generation,
            uid: 0,
            gid: 0,
            parent: 0,
            flags: flags::ARCHIVE | flags::AV_MODIFIED | has_project | inherited | crate::acl::trivial_flags(mode),
            links: if directory { 2 } else { 1 },
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
        };
        Self {
            fixed,
            projid: project,
            acl: Some(Acl::trivial(mode, directory)),
            order: table.numbers_of(&template(kind, project.is_some())),
            ..Self::empty()
        }
    }

    /// Kind ([`read`](Self::read) refused unknown ones).
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Changes the permission bits, and the access control list with them.
    pub fn set_mode(&mut self, mode: u64) {
        self.mode = self.mode & !0o7777 | mode & 0o7777;
        self.acl = Some(Acl::trivial(mode, self.is_directory()));
        let kept = self.flags & (flags::ACL_AUTO_INHERIT | flags::ACL_DEFAULTED | flags::ACL_PROTECTED);
        self.flags = self.flags & !(flags::ACL_WIDE | flags::NO_EXECS_DENIED) | kept | crate::acl::trivial_flags(mode);
    }

    /// Sets the access control list, and the permission bits with it; `wide` are the flags of the list as a whole.
    pub fn set_acl(&mut self, acl: Acl, wide: u64) {
        self.mode = self.mode & !0o777 | acl.mode(self.uid, self.gid);
        let trivial = acl == Acl::trivial(self.mode, self.is_directory());
        let wide = wide & (flags::ACL_AUTO_INHERIT | flags::ACL_DEFAULTED | flags::ACL_PROTECTED);
        let gone = flags::ACL_WIDE | flags::NO_EXECS_DENIED;
        self.flags = self.flags & !gone | wide | if trivial { crate::acl::trivial_flags(self.mode) } else { 0 };
        self.acl = Some(acl);
    }

    /// Whether running the file changes who one is, in a way that a write by others must end.
    pub fn has_set_id(&self) -> bool {
        self.kind() == FileKind::Regular && (self.mode & 0o4000 != 0 || self.mode & 0o2010 == 0o2010)
    }

    /// Clears set-uid and, where the group may execute the file, set-gid (without that right it means mandatory locks).
    pub fn drop_set_id(&mut self) {
        if self.has_set_id() {
            let gone = if self.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
            self.set_mode(self.mode & !gone);
        }
    }

    /// The project it belongs to; 0 is the one of all that were never given another.
    pub fn project(&self) -> u64 {
        self.projid.filter(|_| self.flags & flags::PROJID != 0).unwrap_or(0)
    }

    /// The project of what is made in this directory, or for this file (`zfs_inherit_projid`).
    pub fn project_for_new(&self) -> u64 {
        if self.flags & flags::PROJINHERIT != 0 { self.project() } else { 0 }
    }

    /// Sets the project. A file that had none gets its attributes in another order, since those that count space look
    /// for it at a fixed place (`sa_add_projid`).
    pub fn set_project(&mut self, project: u64, table: &SaTable) {
        let mut order = table.numbers_of(&FIXED);
        order.push(table.number(ZplAttr::Projid));
        if !self.order.starts_with(&order) {
            let rest: Vec<u16> = self.order.iter().copied().filter(|number| !order.contains(number)).collect();
            order.extend(rest);
            self.order = order;
        }
        self.flags |= flags::PROJID;
        self.projid = Some(project);
    }

    /// Sets or removes the encoded list of extended attributes.
    pub fn set_dxattr(&mut self, list: Option<Vec<u8>>, table: &SaTable) {
        let number = table.number(ZplAttr::Dxattr);
        self.order.retain(|&other| other != number || list.is_some());
        if list.is_some() && !self.order.contains(&number) {
            self.order.push(number);
        }
        self.dxattr = list;
    }

    /// Notes the hidden directory with extended attributes.
    pub fn set_xattr(&mut self, directory: ObjectId, table: &SaTable) {
        let number = table.number(ZplAttr::Xattr);
        if !self.order.contains(&number) {
            self.order.push(number);
        }
        self.xattr = Some(directory.0);
    }

    /// Nothing yet.
    pub fn empty() -> Self {
        Self {
            fixed: Fixed::default(),
            rdev: None,
            projid: None,
            xattr: None,
            dxattr: None,
            acl: None,
            symlink: None,
            others: Vec::new(),
            order: Vec::new(),
            external_acl: None,
            legacy: None,
        }
    }

    /// As `stored::read` when the bonus has it all, as it should be.
    pub fn read_now(dnode: &Dnode, table: &SaTable) -> Option<Self> {
        if dnode.info().bonus_type != ObjectType::SA || dnode.has_spill() {
            return None;
        }
        Self::of_bonus(&dnode.bonus(), table, dnode.object())
    }

    /// What a bonus alone says of `object`; `None` when that is no file.
    pub fn of_bonus(bonus: &[u8], table: &SaTable, object: ObjectId) -> Option<Self> {
        let mut phys = Self::empty();
        phys.absorb(bonus, table, object).ok()?;
        FileKind::from_mode(phys.mode).map(|_| phys)
    }

    /// Takes in the attributes that a bonus or a spill block of `object` holds.
    pub fn absorb(&mut self, bytes: &[u8], table: &SaTable, object: ObjectId) -> Result<()> {
        let damaged = |e: platter_ondisk::Error| ZioError::corrupt("file attributes", format!("object {object}: {e}"));
        // The closure must hand out a reference that outlives the call.
        let number = SaHeader::of(bytes).map_or(0, |header| header.layout);
        let layout = table.layout(number);
        let buffer = SaBuffer::decode(
            bytes,
            |n| if n == number { layout.as_deref() } else { None },
            |attribute| table.shape(attribute),
        )
        .map_err(damaged)?;
        self.order.reserve(buffer.attributes.len());
        for (number, place) in buffer.attributes {
            let value = &buffer.bytes[place];
            self.order.push(number);
            let known = table.attr(number);
            if !known.is_some_and(|attr| self.take(attr, value)) {
                self.others.push((number, value.to_vec()));
            }
        }
        Ok(())
    }

    /// Stores a known attribute; `false` when it is one that only passes through.
    fn take(&mut self, attr: ZplAttr, value: &[u8]) -> bool {
        let words = || {
            let mut words = [0u64; 2];
            for (word, bytes) in words.iter_mut().zip(value.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            words
        };
        match attr {
            ZplAttr::Atime => self.atime = words(),
            ZplAttr::Mtime => self.mtime = words(),
            ZplAttr::Ctime => self.ctime = words(),
            ZplAttr::Crtime => self.crtime = words(),
            ZplAttr::Gen => self.generation = words()[0],
            ZplAttr::Mode => self.mode = words()[0],
            ZplAttr::Size => self.size = words()[0],
            ZplAttr::Parent => self.parent = words()[0],
            ZplAttr::Links => self.links = words()[0],
            ZplAttr::Flags => self.flags = words()[0],
            ZplAttr::Uid => self.uid = words()[0],
            ZplAttr::Gid => self.gid = words()[0],
            ZplAttr::Rdev => self.rdev = Some(words()[0]),
            ZplAttr::Xattr => self.xattr = Some(words()[0]),
            ZplAttr::DaclCount => self.acl.get_or_insert_default().count = words()[0],
            ZplAttr::DaclAces => self.acl.get_or_insert_default().entries = value.to_vec(),
            ZplAttr::Symlink => self.symlink = Some(value.to_vec()),
            ZplAttr::Dxattr => self.dxattr = Some(value.to_vec()),
            ZplAttr::Projid => self.projid = Some(words()[0]),
            ZplAttr::Pad | ZplAttr::ZnodeAcl | ZplAttr::Scanstamp => return false,
        }
        true
    }

    /// Appends the bytes of attribute `number` to `out`.
    fn give(&self, number: u16, table: &SaTable, out: &mut Vec<u8>) {
        let mut words = |words: &[u64]| words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
        match table.attr(number) {
            Some(ZplAttr::Atime) => words(&self.atime),
            Some(ZplAttr::Mtime) => words(&self.mtime),
            Some(ZplAttr::Ctime) => words(&self.ctime),
            Some(ZplAttr::Crtime) => words(&self.crtime),
            Some(ZplAttr::Gen) => words(&[self.generation]),
            Some(ZplAttr::Mode) => words(&[self.mode]),
            Some(ZplAttr::Size) => words(&[self.size]),
            Some(ZplAttr::Parent) => words(&[self.parent]),
            Some(ZplAttr::Links) => words(&[self.links]),
            Some(ZplAttr::Flags) => words(&[self.flags]),
            Some(ZplAttr::Uid) => words(&[self.uid]),
            Some(ZplAttr::Gid) => words(&[self.gid]),
            Some(ZplAttr::Rdev) => words(&[self.rdev.unwrap_or(0)]),
            Some(ZplAttr::Projid) => words(&[self.projid.unwrap_or(0)]),
            Some(ZplAttr::Xattr) => words(&[self.xattr.unwrap_or(0)]),
            Some(ZplAttr::DaclCount) => words(&[self.acl.as_ref().map_or(0, |a| a.count)]),
            Some(ZplAttr::DaclAces) => out.extend_from_slice(self.acl.as_ref().map_or(&[], |a| &a.entries)),
            Some(ZplAttr::Dxattr) => out.extend_from_slice(self.dxattr.as_deref().unwrap_or_default()),
            Some(ZplAttr::Symlink) => out.extend_from_slice(self.symlink.as_deref().unwrap_or_default()),
            _ => {
                if let Some((_, bytes)) = self.others.iter().find(|(n, _)| *n == number) {
                    out.extend_from_slice(bytes);
                }
            }
        }
    }

    /// The bytes for the bonus when that has room for all, as it nearly always has.
    fn encode_whole(&self, table: &SaTable, capacity: usize) -> Option<Vec<u8>> {
        let is_variable = |number: u16| table.shape(number).is_some_and(|shape| shape.length == 0);
        let variable = self.order.iter().filter(|&&number| is_variable(number)).count();
        let mut writer = SaWriter::new(table.layout_number(&self.order)?, variable, capacity).ok()?;
        for &number in &self.order {
            writer.value(is_variable(number), |out| self.give(number, table, out)).ok()?;
        }
        writer.finish().ok().filter(|bytes| bytes.len() <= capacity)
    }

    /// Each attribute that has a value has its place in the order on disk. (An access control list need not: one that
    /// only follows from the mode is not stored in files that had none.)
    fn assert_internally_consistent(&self, table: &SaTable) {
        let has_place = |attr| self.order.contains(&table.number(attr));
        assert!(self.others.iter().all(|(number, _)| self.order.contains(number)), "an unknown attribute is lost");
        assert!(self.xattr.is_none_or(|directory| directory == 0) || has_place(ZplAttr::Xattr));
        assert!(self.dxattr.is_none() || has_place(ZplAttr::Dxattr));
        assert!(self.symlink.is_none() || has_place(ZplAttr::Symlink));
        assert!(self.projid.is_none() || has_place(ZplAttr::Projid));
        assert!(self.rdev.is_none() || has_place(ZplAttr::Rdev));
    }

    /// The bytes for the bonus (`capacity` bytes at most) and the spill block (a multiple of 512).
    pub fn encode(&self, table: &SaTable, capacity: usize) -> std::result::Result<Encoded, EncodeError> {
        if cfg!(debug_assertions) {
            self.assert_internally_consistent(table);
        }
        if let Some(bonus) = self.encode_whole(table, capacity) {
            return Ok(Encoded { bonus, spill: None });
        }
        let mut bytes = Vec::with_capacity(256);
        let mut places = Vec::with_capacity(self.order.len());
        for &number in &self.order {
            let from = bytes.len();
            self.give(number, table, &mut bytes);
            places.push((table.shape(number).is_some_and(|s| s.length == 0), from..bytes.len()));
        }
        let values: Vec<SaValue<'_>> = places
            .iter()
            .map(|(variable, place)| SaValue { variable: *variable, bytes: &bytes[place.clone()] })
            .collect();
        let kept = fit(&values, capacity);
        let part = |from: usize, to: usize| {
            let order = &self.order[from..to];
            let layout = table.layout_number(order).ok_or_else(|| EncodeError::MissingLayout(order.to_vec()))?;
            encode(layout, &values[from..to]).map_err(|e| EncodeError::Zio(ZioError::Invalid(e.to_string())))
        };
        let bonus = part(0, kept)?;
        let spill = if kept < values.len() {
            let mut spill = part(kept, values.len())?;
            spill.resize(spill.len().next_multiple_of(SECTOR as usize), 0);
            Some(spill)
        } else {
            None
        };
        Ok(Encoded { bonus, spill })
    }
}
