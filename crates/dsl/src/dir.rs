//! DSL directories: the name space and space totals of data sets (`module/zfs/dsl_dir.c`).
//!
//! Invariants:
//! - `used_bytes` of a directory is its own data sets' use plus its children's, with reservations counted as used;
//! - the breakdown sums to `used_bytes`;
//! - `phys` in memory is what the bonus will be after the running sync: every change is written back in the same group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_ondisk::ObjectId;
use platter_ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DSL_DIR_SIZE, DslDirPhys, UsedBreakdown};
use platter_ondisk::types::object_type;

use crate::mos;

/// Reserved directories at the root.
pub use platter_ondisk::names::special_dir::{FREE as FREE_DIR, MOS as MOS_DIR, ORIGIN as ORIGIN_DIR};

/// What a directory's space is used for (`dd_used_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedKind {
    /// The head data set.
    Head,
    /// Snapshots.
    Snapshots,
    /// Directories below.
    Child,
    /// Reservations of directories below.
    ChildReservation,
}

impl UsedKind {
    fn of(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Self::Head => &mut breakdown.head,
            Self::Snapshots => &mut breakdown.snapshots,
            Self::Child => &mut breakdown.children,
            Self::ChildReservation => &mut breakdown.child_reservations,
        }
    }
}

/// A locally set property as stored: a number for native numeric and index properties, text for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredProperty {
    /// One 8-byte integer.
    Number(u64),
    /// A string.
    Text(String),
}

impl StoredProperty {
    fn to_zap(&self) -> ZapValue {
        match self {
            Self::Number(n) => ZapValue { integer_size: 8, integers: vec![*n] },
            Self::Text(text) => {
                ZapValue { integer_size: 1, integers: text.bytes().chain([0]).map(u64::from).collect() }
            }
        }
    }

    fn from_zap(value: &ZapValue) -> Self {
        if value.integer_size == 1 {
            let bytes: Vec<u8> = value.integers.iter().map(|&n| n as u8).take_while(|&b| b != 0).collect();
            Self::Text(String::from_utf8_lossy(&bytes).into_owned())
        } else {
            Self::Number(value.integers.first().copied().unwrap_or(0))
        }
    }
}

/// A directory in memory.
pub struct Dir {
    /// Its object in the MOS.
    pub object: ObjectId,
    /// The directory above; none for the root.
    pub parent: Option<Arc<Dir>>,
    /// Its own part of the name; empty for the root.
    pub name: String,
    /// The bonus.
    pub phys: Mutex<DslDirPhys>,
    /// Locally set properties.
    pub properties: RwLock<BTreeMap<String, StoredProperty>>,
}

impl Dir {
    /// Loads directory `object`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(
        os: &Arc<Objset>,
        object: ObjectId,
        parent: Option<Arc<Self>>,
        name: String,
    ) -> Result<Arc<Self>> {
        let dnode = os.dnode(object).await?;
        if dnode.info().bonus_type != object_type::DSL_DIR {
            return Err(ZioError::corrupt("DSL directory", format!("object {object} ({name}) is something else")));
        }
        let phys = DslDirPhys::decode(&dnode.bonus())
            .map_err(|e| ZioError::corrupt("DSL directory", format!("object {object}: {e}")))?;
        let mut properties = BTreeMap::new();
        if phys.props_zapobj.is_some() {
            for entry in Zap::open(os, phys.props_zapobj).await?.all().await? {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                properties.insert(name, StoredProperty::from_zap(&entry.value));
            }
        }
        Ok(Arc::new(Self { object, parent, name, phys: Mutex::new(phys), properties: RwLock::new(properties) }))
    }

    /// Makes a directory below `parent` (`dsl_dir_create_sync`); without one it becomes the pool's root.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn create(
        os: &Arc<Objset>,
        directory: &Zap,
        tx: &Tx,
        parent: Option<Arc<Self>>,
        name: &str,
        now: u64,
        mut salt: impl FnMut() -> u64,
    ) -> Result<Arc<Self>> {
        let new = NewDnode {
            object_type: object_type::DSL_DIR,
            block_size: 512,
            indirect_shift: 17,
            bonus_type: object_type::DSL_DIR,
            bonus_length: DSL_DIR_SIZE as u16,
            dnode_size: 512,
        };
        let dnode = os.allocate(tx, new).await?;
        let object = dnode.object();
        match &parent {
            Some(parent) => {
                let children = parent.phys.lock().child_dir_zapobj;
                let zap = Zap::open(os, children).await?;
                let value = ZapValue { integer_size: 8, integers: vec![object.0] };
                zap.add(tx, name.as_bytes(), &value).await?;
            }
            None => directory.put_u64(tx, mos::ROOT_DATASET.as_bytes(), object.0).await?,
        }
        let phys = DslDirPhys {
            creation_time: now,
            parent_obj: parent.as_ref().map_or(ObjectId::NONE, |p| p.object),
            props_zapobj: mos::create_zap(os, tx, object_type::DSL_PROPS, salt()).await?,
            child_dir_zapobj: mos::create_zap(os, tx, object_type::DSL_DIR_CHILD_MAP, salt()).await?,
            flags: DD_FLAG_USED_BREAKDOWN,
            ..DslDirPhys::default()
        };
        dnode.set_bonus(tx, object_type::DSL_DIR, &phys.encode())?;
        let (phys, properties) = (Mutex::new(phys), RwLock::new(BTreeMap::new()));
        Ok(Arc::new(Self { object, parent, name: name.to_owned(), phys, properties }))
    }

    /// Writes the bonus back.
    ///
    /// # Errors
    /// Device errors.
    pub async fn store(&self, os: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let bytes = self.phys.lock().encode();
        os.dnode(self.object).await?.set_bonus(tx, object_type::DSL_DIR, &bytes)
    }

    /// Sets or clears a local property, on disk and in memory.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn set_property(
        &self,
        os: &Arc<Objset>,
        tx: &Tx,
        name: &str,
        value: Option<StoredProperty>,
    ) -> Result<()> {
        let object = self.phys.lock().props_zapobj;
        let zap = Zap::open(os, object).await?;
        match value {
            Some(value) => {
                zap.put(tx, name.as_bytes(), &value.to_zap()).await?;
                self.properties.write().insert(name.to_owned(), value);
            }
            None => {
                zap.remove(tx, name.as_bytes()).await?;
                self.properties.write().remove(name);
            }
        }
        Ok(())
    }

    /// Books a change of space here and in every directory above (`dsl_dir_diduse_space`). Returns the directories that
    /// changed, to be stored.
    pub fn diduse(self: &Arc<Self>, kind: UsedKind, used: i64, compressed: i64, uncompressed: i64) -> Vec<Arc<Self>> {
        let mut changed = Vec::new();
        let mut work = vec![(self.clone(), kind, used, compressed, uncompressed)];
        while let Some((dir, kind, used, compressed, uncompressed)) = work.pop() {
            let accounted = {
                let mut phys = dir.phys.lock();
                let accounted = parent_delta(phys.reserved, phys.used_bytes, used);
                phys.used_bytes = phys.used_bytes.saturating_add_signed(used);
                phys.compressed_bytes = phys.compressed_bytes.saturating_add_signed(compressed);
                phys.uncompressed_bytes = phys.uncompressed_bytes.saturating_add_signed(uncompressed);
                let share = kind.of(&mut phys.used_breakdown);
                *share = share.saturating_add_signed(used);
                accounted
            };
            if let Some(parent) = &dir.parent {
                if accounted != used {
                    work.push((parent.clone(), UsedKind::ChildReservation, used - accounted, 0, 0));
                }
                work.push((parent.clone(), UsedKind::Child, accounted, compressed, uncompressed));
            }
            changed.push(dir);
        }
        changed
    }

    /// Moves space from one share to another (`dsl_dir_transfer_space`).
    pub fn transfer(&self, from: UsedKind, to: UsedKind, bytes: u64) {
        let mut phys = self.phys.lock();
        let source = from.of(&mut phys.used_breakdown);
        *source = source.saturating_sub(bytes);
        *to.of(&mut phys.used_breakdown) += bytes;
    }
}

/// What of `delta` reaches the parent: changes within the reservation are counted there already.
fn parent_delta(reserved: u64, used: u64, delta: i64) -> i64 {
    let before = used.max(reserved);
    let after = used.saturating_add_signed(delta).max(reserved);
    after as i64 - before as i64
}
