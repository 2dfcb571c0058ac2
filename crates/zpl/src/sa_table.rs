//! A data set's attribute registry and layouts, in memory and in its ZAPs (`sa_setup`, `sa_find_layout` in
//! `module/zfs/sa.c`).
//!
//! Invariants:
//! - attribute and layout numbers, once given, never change; layout numbers are dense from 2 on;
//! - every layout in memory is in the ZAP too, in the same transaction group or an earlier one than its first user:
//!   [`SaTable::add_layout`] puts it there before the number is handed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use platter_dmu::zap::{NewZap, Zap, ZapValue};
use platter_dmu::{Objset, Tx, ZioError};
use platter_ondisk::sa::{AttrShape, SA_LAYOUT_FIRST, SA_LAYOUT_MAX, SA_LAYOUTS, SA_REGISTRY, SaHeader};
use platter_ondisk::znode::{ZNODE_PHYS_SIZE, ZPL_ATTRS, ZplAttr};
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::Result;

use crate::attr::FileKind;
use crate::salt::Salts;

/// What every file has, in this order and before all else: owners and project are looked up by offset when space is
/// counted (`SA_UID_OFFSET` and so on in `include/sys/zfs_sa.h`), and the project follows.
pub(crate) const FIXED: [ZplAttr; 12] = [
    ZplAttr::Mode,
    ZplAttr::Size,
    ZplAttr::Gen,
    ZplAttr::Uid,
    ZplAttr::Gid,
    ZplAttr::Parent,
    ZplAttr::Flags,
    ZplAttr::Atime,
    ZplAttr::Mtime,
    ZplAttr::Ctime,
    ZplAttr::Crtime,
    ZplAttr::Links,
];

/// Words of [`FIXED`]: a time has two.
pub(crate) const FIXED_WORDS: usize = 16;

/// The order of attributes in a new object of this kind, with or without a project (`zfs_mknode`).
pub(crate) fn template(kind: FileKind, project: bool) -> Vec<ZplAttr> {
    let mut all = FIXED.to_vec();
    if project {
        all.push(ZplAttr::Projid);
    }
    if matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
        all.push(ZplAttr::Rdev);
    }
    all.extend([ZplAttr::DaclCount, ZplAttr::DaclAces]);
    if kind == FileKind::Symlink {
        // The target comes last.
        all.push(ZplAttr::Symlink);
    }
    all
}

/// Most attributes a registry may name; today's software knows 22.
const ATTRIBUTES_MAX: usize = 1024;

#[derive(Default)]
struct Layouts {
    by_number: BTreeMap<u16, Arc<[u16]>>,
    by_attributes: BTreeMap<Arc<[u16]>, u16>,
}

impl Layouts {
    fn insert(&mut self, number: u16, attributes: Arc<[u16]>) {
        self.by_attributes.entry(attributes.clone()).or_insert(number);
        self.by_number.insert(number, attributes);
    }
}

struct Tables {
    registry: Option<Zap>,
    layouts: Option<Zap>,
}

/// The registry and the layouts.
pub(crate) struct SaTable {
    master: ObjectId,
    /// Files have znodes, not system attributes: there are no tables.
    legacy: bool,
    /// New files had projects when the tables were opened.
    projects: bool,
    /// By attribute number.
    shapes: Vec<Option<AttrShape>>,
    /// The number of each of [`ZplAttr::ALL`].
    numbers: [u16; ZPL_ATTRS],
    /// The inverse, by number.
    known: Vec<Option<ZplAttr>>,
    /// Attributes that have a number but are not in the registry yet.
    unregistered: Vec<ZplAttr>,
    layouts: RwLock<Layouts>,
    tables: tokio::sync::Mutex<Tables>,
}

impl SaTable {
    /// Reads the tables below SA master node `master` ([`ObjectId::NONE`] before version 5).
    pub async fn load(os: &Arc<Objset>, master: ObjectId) -> Result<Self> {
        let mut tables = Tables { registry: None, layouts: None };
        let mut shapes: BTreeMap<u16, AttrShape> = BTreeMap::new();
        let mut named = BTreeMap::new();
        let mut layouts = Layouts::default();
        if master.is_some() {
            let node = Zap::open(os, master).await?;
            if let Some(object) = node.get_u64(SA_REGISTRY.as_bytes()).await? {
                let zap = Zap::open(os, ObjectId(object)).await?;
                for entry in zap.all().await? {
                    let value = single(&entry.value, "attribute registry")?;
                    let shape = AttrShape::from_registry(value)
                        .map_err(|e| ZioError::corrupt("attribute registry", e.to_string()))?;
                    shapes.insert(shape.number, shape);
                    named.insert(entry.name, shape.number);
                }
                check_registry(&named, &shapes)?;
                tables.registry = Some(zap);
            }
            if let Some(object) = node.get_u64(SA_LAYOUTS.as_bytes()).await? {
                let zap = Zap::open(os, ObjectId(object)).await?;
                for entry in zap.all().await? {
                    let number = std::str::from_utf8(&entry.name)
                        .ok()
                        .and_then(|s| s.parse().ok())
                        .filter(|n| (SA_LAYOUT_FIRST..=SA_LAYOUT_MAX).contains(n))
                        .ok_or_else(|| ZioError::corrupt("attribute layouts", format!("number {:?}", entry.name)))?;
                    layouts.insert(number, entry.value.integers.iter().map(|&a| a as u16).collect());
                }
                tables.layouts = Some(zap);
            }
        }
        layouts.insert(1, Arc::new([]));
        Ok(Self { projects: os.accounting().projects, ..Self::build(master, shapes, &named, layouts, tables) })
    }

    /// Stands in where there are no tables: in a file system before version 5.
    pub fn legacy() -> Self {
        let tables = Tables { registry: None, layouts: None };
        Self::build(ObjectId::NONE, BTreeMap::new(), &BTreeMap::new(), Layouts::default(), tables)
    }

    /// Whether files have znodes instead of system attributes.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// Type and length in bytes of a new object's bonus.
    pub fn new_bonus(&self) -> (ObjectType, u16) {
        if self.legacy { (ObjectType::ZNODE, ZNODE_PHYS_SIZE as u16) } else { (ObjectType::SA, 0) }
    }

    /// The tables of a file system that is being made: `master` is still empty.
    pub async fn create(os: &Arc<Objset>, tx: &Tx, master: &Zap, salts: &Salts) -> Result<Self> {
        let tables = Tables { registry: None, layouts: None };
        let mut layouts = Layouts::default();
        layouts.insert(1, Arc::new([]));
        let object = master.dnode().object();
        let mut table = Self::build(object, BTreeMap::new(), &BTreeMap::new(), layouts, tables);
        table.projects = os.accounting().projects;
        table.complete(os, tx, salts).await?;
        Ok(table)
    }

    fn build(
        master: ObjectId,
        mut shapes: BTreeMap<u16, AttrShape>,
        named: &BTreeMap<Vec<u8>, u16>,
        layouts: Layouts,
        tables: Tables,
    ) -> Self {
        // Numbers for what is not registered continue after what is (`sa_attr_table_setup`).
        let mut next = named.len().max(ZplAttr::LEGACY) as u16;
        let mut numbers = [0; ZPL_ATTRS];
        let mut unregistered = Vec::new();
        for (i, attr) in ZplAttr::ALL.into_iter().enumerate() {
            let registered = named.get(attr.name().as_bytes()).copied();
            numbers[i] = match registered {
                _ if i < ZplAttr::LEGACY => i as u16,
                Some(number) => number,
                None => {
                    while shapes.contains_key(&next) {
                        next += 1;
                    }
                    next
                }
            };
            shapes.entry(numbers[i]).or_insert(AttrShape { number: numbers[i], ..attr.shape() });
            if registered.is_none() {
                unregistered.push(attr);
            }
        }
        let known = ZplAttr::ALL.into_iter().enumerate().map(|(i, attr)| (numbers[i], attr));
        Self {
            master,
            legacy: !master.is_some(),
            projects: false,
            shapes: by_number(shapes),
            numbers,
            known: by_number(known),
            unregistered,
            layouts: RwLock::new(layouts),
            tables: tokio::sync::Mutex::new(tables),
        }
    }

    /// Whether a writer must [`complete`](Self::complete) the tables first.
    pub fn is_complete(&self) -> bool {
        self.legacy
            || self.unregistered.is_empty() && self.standard_layouts().iter().all(|l| self.layout_number(l).is_some())
    }

    /// Registers what is not registered and adds the layouts that new files need, so that ordinary operations find
    /// everything in place.
    pub async fn complete(&mut self, os: &Arc<Objset>, tx: &Tx, salts: &Salts) -> Result<()> {
        let master = Zap::open(os, self.master).await?;
        {
            let mut tables = self.tables.lock().await;
            if tables.registry.is_none() {
                let kind = ObjectType::SA_ATTR_REGISTRATION;
                tables.registry = Some(linked(os, tx, &master, SA_REGISTRY, kind, salts).await?);
            }
            if tables.layouts.is_none() {
                let kind = ObjectType::SA_ATTR_LAYOUTS;
                tables.layouts = Some(linked(os, tx, &master, SA_LAYOUTS, kind, salts).await?);
            }
            if let Some(registry) = &tables.registry {
                for attr in std::mem::take(&mut self.unregistered) {
                    let shape = self.shape(self.number(attr)).expect("each attribute has one");
                    registry.put_u64(tx, attr.name().as_bytes(), shape.to_registry()).await?;
                }
            }
        }
        for layout in self.standard_layouts() {
            self.add_layout(tx, &layout).await?;
        }
        Ok(())
    }

    fn standard_layouts(&self) -> [Vec<u16>; 4] {
        let of = |kind| self.numbers_of(&template(kind, self.projects));
        let target = self.numbers_of(&[ZplAttr::Symlink]);
        [of(FileKind::Regular), of(FileKind::CharDevice), of(FileKind::Symlink), target]
    }

    /// The numbers of `attributes`.
    pub fn numbers_of(&self, attributes: &[ZplAttr]) -> Vec<u16> {
        attributes.iter().map(|&a| self.number(a)).collect()
    }

    /// The number of `attr` in this data set.
    pub fn number(&self, attr: ZplAttr) -> u16 {
        self.numbers[attr as usize]
    }

    /// The attribute with number `number`, when it is one of the file layer's.
    pub fn attr(&self, number: u16) -> Option<ZplAttr> {
        self.known.get(usize::from(number)).copied().flatten()
    }

    /// The shape of attribute `number`.
    pub fn shape(&self, number: u16) -> Option<AttrShape> {
        self.shapes.get(usize::from(number)).copied().flatten()
    }

    /// The attributes of layout `number`.
    pub fn layout(&self, number: u16) -> Option<Arc<[u16]>> {
        self.layouts.read().by_number.get(&number).cloned()
    }

    /// The number of the layout with exactly these attributes in this order.
    pub fn layout_number(&self, attributes: &[u16]) -> Option<u16> {
        self.layouts.read().by_attributes.get(attributes).copied()
    }

    /// Writes the attributes of [`FIXED`] over those in `bonus`. Whether these lie there, first and in this order.
    pub fn put_fixed(&self, bonus: &mut [u8], words: &[u64; FIXED_WORDS]) -> bool {
        let Some(header) = SaHeader::of(bonus).filter(|header| !header.turned) else { return false };
        let is_first = |attributes: &Arc<[u16]>| {
            let first = FIXED.iter().map(|&attr| self.number(attr));
            attributes.len() >= FIXED.len() && first.eq(attributes[..FIXED.len()].iter().copied())
        };
        if !self.layouts.read().by_number.get(&header.layout).is_some_and(is_first) {
            return false;
        }
        let Some(place) = bonus.get_mut(header.size..header.size + 8 * FIXED_WORDS) else { return false };
        for (to, word) in place.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        true
    }

    /// Makes sure that the layout exists.
    pub async fn add_layout(&self, tx: &Tx, attributes: &[u16]) -> Result<u16> {
        let tables = self.tables.lock().await;
        if let Some(number) = self.layout_number(attributes) {
            return Ok(number);
        }
        let number = {
            let layouts = self.layouts.read();
            layouts.by_number.keys().next_back().map_or(SA_LAYOUT_FIRST, |&n| (n + 1).max(SA_LAYOUT_FIRST))
        };
        if number > SA_LAYOUT_MAX {
            return Err(ZioError::Invalid("no attribute layout number is left".into()));
        }
        let Some(zap) = &tables.layouts else {
            return Err(ZioError::ReadOnly);
        };
        let name = number.to_string();
        let value = ZapValue { integer_size: 2, integers: attributes.iter().map(|&a| u64::from(a)).collect() };
        zap.put(tx, name.as_bytes(), &value).await?;
        self.layouts.write().insert(number, attributes.into());
        Ok(number)
    }
}

/// What belongs to numbers, to be found by them without a search.
fn by_number<T: Copy>(items: impl IntoIterator<Item = (u16, T)>) -> Vec<Option<T>> {
    let mut all = Vec::new();
    for (number, item) in items {
        let at = usize::from(number);
        if all.len() <= at {
            all.resize(at + 1, None);
        }
        all[at] = Some(item);
    }
    all
}

/// Fails when the registry says something about the file layer's attributes that cannot be: their bytes would be read
/// and written wrongly.
fn check_registry(named: &BTreeMap<Vec<u8>, u16>, shapes: &BTreeMap<u16, AttrShape>) -> Result<()> {
    let damaged = |what: String| ZioError::corrupt("attribute registry", what);
    if named.len() > ATTRIBUTES_MAX || shapes.len() != named.len() {
        return Err(damaged(format!("{} names for {} numbers", named.len(), shapes.len())));
    }
    for (i, attr) in ZplAttr::ALL.into_iter().enumerate() {
        let Some(number) = named.get(attr.name().as_bytes()) else { continue };
        let (found, expected) = (shapes[number].length, attr.shape().length);
        if found != expected || (i < ZplAttr::LEGACY && usize::from(*number) != i) {
            return Err(damaged(format!("{} has number {number} and {found} bytes", attr.name())));
        }
    }
    Ok(())
}

async fn linked(os: &Arc<Objset>, tx: &Tx, master: &Zap, name: &str, kind: ObjectType, salts: &Salts) -> Result<Zap> {
    let zap = Zap::create(os, tx, None, plain_zap(kind, salts)).await?;
    master.put_u64(tx, name.as_bytes(), zap.dnode().object().0).await?;
    Ok(zap)
}

/// A ZAP without bonus.
pub(crate) fn plain_zap(object_type: ObjectType, salts: &Salts) -> NewZap {
    NewZap {
        object_type,
        normalization: 0,
        flags: 0,
        bonus_type: ObjectType::NONE,
        bonus_length: 0,
        dnode_size: 0,
        salt: salts.next(),
    }
}

/// A directory's entries, whose names compare as `normalization` says.
pub(crate) fn directory_zap(salts: &Salts, table: &SaTable, normalization: u64) -> NewZap {
    let (bonus_type, bonus_length) = table.new_bonus();
    let normalization = normalization as u32;
    NewZap { bonus_type, bonus_length, normalization, ..plain_zap(ObjectType::DIRECTORY_CONTENTS, salts) }
}

fn single(value: &ZapValue, what: &'static str) -> Result<u64> {
    match (value.integer_size, &value.integers[..]) {
        (8, &[one]) => Ok(one),
        _ => Err(ZioError::corrupt(what, "an entry is not one 8-byte integer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Timestamp;
    use crate::phys::{Fixed, Phys};

    const CAPACITY: usize = 320;

    fn table() -> SaTable {
        let mut layouts = Layouts::default();
        let tables = Tables { registry: None, layouts: None };
        let made = SaTable::build(ObjectId(1), BTreeMap::new(), &BTreeMap::new(), Layouts::default(), tables);
        layouts.insert(2, made.numbers_of(&template(FileKind::Regular, false)).into());
        layouts.insert(3, made.numbers_of(&template(FileKind::Symlink, true)).into());
        // Another software's: the size comes first.
        let mut other = made.numbers_of(&template(FileKind::Regular, false));
        other.swap(0, 1);
        layouts.insert(4, other.into());
        SaTable { layouts: RwLock::new(layouts), ..made }
    }

    #[test]
    fn fixed_attributes_are_put_where_encoding_puts_them() {
        let table = table();
        let now = Timestamp { seconds: 1_000_000_007, nanoseconds: 99 };
        for (kind, project) in [(FileKind::Regular, None), (FileKind::Symlink, Some(77))] {
            let mut phys = Phys::new(kind, 0o640, 5, now, project, &table);
            phys.symlink = project.map(|_| b"../target of an odd length".to_vec());
            let mut bonus = phys.encode(&table, CAPACITY).expect("encoded").bonus;
            let [atime, mtime, ctime, crtime] = [[1, 2], [3, 4], [5, 6], [7, 8]];
            phys.fixed = Fixed {
                mode: 0o100600,
                size: u64::MAX,
                generation: 11,
                uid: 12,
                gid: 13,
                parent: 14,
                flags: 15,
                links: 16,
                atime,
                mtime,
                ctime,
                crtime,
            };
            assert!(table.put_fixed(&mut bonus, &phys.fixed.words()));
            assert_eq!(bonus, phys.encode(&table, CAPACITY).expect("encoded").bonus);
            let read = Phys::of_bonus(&bonus, &table, ObjectId(9)).expect("a file's");
            assert_eq!(read.fixed, phys.fixed);
        }
    }

    #[test]
    fn other_bonuses_are_left_as_they_are() {
        let table = table();
        let now = Timestamp { seconds: 7, nanoseconds: 8 };
        let mut phys = Phys::new(FileKind::Regular, 0o640, 5, now, None, &table);
        let usual = phys.encode(&table, CAPACITY).expect("encoded").bonus;
        phys.order.swap(0, 1);
        let swapped = phys.encode(&table, CAPACITY).expect("encoded").bonus;
        let unknown_layout = [&usual[..4], &[9, usual[5]], &usual[6..]].concat();
        let turned = [&[usual[3], usual[2], usual[1], usual[0]], &usual[4..]].concat();
        for bonus in [swapped, unknown_layout, turned, usual[..100].to_vec(), vec![0; 168], Vec::new()] {
            let mut after = bonus.clone();
            assert!(!table.put_fixed(&mut after, &[1; FIXED_WORDS]));
            assert_eq!(after, bonus);
        }
    }
}
