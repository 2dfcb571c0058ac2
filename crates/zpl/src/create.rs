//! Fills a new object set with an empty file system (`zfs_create_fs`).
//!
//! Invariant: of what is made here only the root directory is as large as `dnodesize` says; the master node is object 1
//! and would otherwise not fit its block.

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Objset, Tx, ZioError};
use platter_ondisk::znode::{MASTER_NODE_OBJECT, ZPL_VERSION, ZplAttr, master};
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::Result;

use crate::attr::FileKind;
use crate::error::ZplError;
use crate::fs::{NameRules, Zpl};
use crate::options::CreateOptions;
use crate::phys::Phys;
use crate::projects::new_objects_have_projects;
use crate::sa_table::{SaTable, directory_zap, plain_zap};
use crate::salt::Salts;
use crate::znode::Znode;
use crate::znode_legacy;

impl Zpl {
    /// Fills the new object set `os` with an empty file system, all within `tx`.
    ///
    /// # Errors
    /// A version that cannot be written; those of the layers below.
    pub async fn create_filesystem(os: &Arc<Objset>, tx: &Tx, options: &CreateOptions) -> Result<()> {
        if !(znode_legacy::WRITTEN_OLDEST..=ZPL_VERSION).contains(&options.version) {
            return Err(ZioError::Invalid(format!(
                "file system version {} cannot be written, only {} to {ZPL_VERSION}",
                options.version,
                znode_legacy::WRITTEN_OLDEST
            )));
        }
        let salts = Salts::new(options.salt_seed);
        let master_object = ObjectId(MASTER_NODE_OBJECT);
        let zap = Zap::create(os, tx, Some(master_object), plain_zap(ObjectType::MASTER_NODE, &salts)).await?;
        for (name, value) in [
            (master::VERSION, options.version),
            (master::NORMALIZATION, options.normalization),
            (master::UTF8ONLY, options.utf8only),
            (master::CASE_SENSITIVITY, options.case_sensitivity),
        ] {
            zap.put_u64(tx, name.as_bytes(), value).await?;
        }

        let table = if options.version >= znode_legacy::SA_VERSION {
            let sa = Zap::create(os, tx, None, plain_zap(ObjectType::SA_MASTER_NODE, &salts)).await?;
            zap.put_u64(tx, master::SA_ATTRS.as_bytes(), sa.dnode().object().0).await?;
            SaTable::create(os, tx, &sa, &salts).await?
        } else {
            SaTable::legacy()
        };
        let unlinked = Zap::create(os, tx, None, plain_zap(ObjectType::UNLINKED_SET, &salts)).await?;
        zap.put_u64(tx, master::DELETE_QUEUE.as_bytes(), unlinked.dnode().object().0).await?;

        let project = new_objects_have_projects(os, &table).then_some(0);
        let mut phys = Phys::new(FileKind::Directory, 0o755, tx.txg().0, options.now, project, &table);
        phys.uid = u64::from(options.uid);
        phys.gid = u64::from(options.gid);
        debug_assert!(phys.order.contains(&table.number(ZplAttr::Parent)));
        let names = NameRules::new(options.utf8only != 0, options.normalization, options.case_sensitivity);
        let dnode_size = os.properties().dnode_size;
        let root = NewZap { dnode_size, ..directory_zap(&salts, &table, names.normalization) };
        let root = Zap::create(os, tx, None, root).await?;
        let object = root.dnode().object();
        let znode = Znode::new(root.dnode().clone(), phys);
        // The root is its own parent.
        znode.update(os, &table, tx, |phys| phys.parent = object.0).await.map_err(|error| match error {
            ZplError::Zio(error) => error,
            other => ZioError::Invalid(other.to_string()),
        })?;
        zap.put_u64(tx, master::ROOT.as_bytes(), object.0).await
    }
}
