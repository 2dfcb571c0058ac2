//! Projects of files: whose space a file takes beside its owner's and its group's (`include/sys/zfs_project.h`).
//!
//! Invariants:
//! - a file has a project of its own from the moment the pool counts projects; older files get one when it is set;
//! - what is made in a directory with `ZFS_PROJINHERIT` belongs to the directory's project, and nothing of another
//!   project gets in by a new name: a directory with the flag is the top of a tree of one project;
//! - the objects that hold a file's extended attributes belong to the file's project.

use std::sync::Arc;

use platter_dmu::userused::OBJECTS_PREFIX;
use platter_dmu::{Objset, Totals};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::flags;

use crate::attr::{FileKind, NewFile, SetAttr, StatFs};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::phys::Phys;
use crate::sa_table::SaTable;
use crate::znode::{Znode, group_of_new};

/// Whether new objects carry a project (`dmu_objset_projectquota_enabled`).
pub(crate) fn new_objects_have_projects(os: &Objset, table: &SaTable) -> bool {
    os.accounting().projects && !table.is_legacy()
}

/// Whom the quotas must be asked about when `phys`'s object takes space: user, group, and a project that was given.
pub(crate) fn takers(phys: &Phys) -> [Option<u64>; 3] {
    [Some(phys.uid), Some(phys.gid), Some(phys.project()).filter(|&project| project != 0)]
}

/// Fails when an object of another project would get a name in `directory` (`zfs_rename`, `zfs_link`).
pub(crate) fn check_same_project(directory: &Znode, object: &Znode) -> Result<()> {
    let project = {
        let phys = &directory.state.lock().phys;
        if phys.flags & flags::PROJINHERIT == 0 {
            return Ok(());
        }
        phys.project()
    };
    if object.state.lock().phys.project() == project { Ok(()) } else { Err(ZplError::CrossDevice) }
}

impl Zpl {
    /// The project of what is made in `parent`, where objects have one.
    pub(crate) fn project_of_new(&self, parent: &Znode) -> Option<u64> {
        new_objects_have_projects(&self.os, &self.table).then(|| parent.state.lock().phys.project_for_new())
    }

    /// Whether those whom a new object in `parent` will belong to may have one more (`zfs_acl_ids_overquota`).
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Quota`] when one of them may not; damage.
    pub(crate) async fn check_quotas_of_new(&self, parent: &Znode, new: &NewFile) -> Result<()> {
        let project = self.project_of_new(parent).filter(|&project| project != 0);
        let takers = [Some(u64::from(new.uid)), Some(group_of_new(parent, new.gid)), project];
        Ok(self.check_quotas(takers, true).await?)
    }

    /// Fails when `change` sets a project, or that it is passed on, where there is none.
    pub(crate) fn check_project_change(&self, phys: &Phys, change: &SetAttr) -> Result<()> {
        let passed_on = change.flags.is_some_and(|new| (new ^ phys.flags) & flags::PROJINHERIT != 0);
        if !passed_on && change.project.is_none_or(|new| new == phys.project()) {
            return Ok(());
        }
        if !new_objects_have_projects(&self.os, &self.table) {
            return Err(ZplError::NotSupported("projects before the pool's feature project_quota is enabled"));
        }
        match phys.kind() {
            FileKind::Regular | FileKind::Directory => Ok(()),
            _ => Err(ZplError::NotSupported("setting the project of what is neither a file nor a directory")),
        }
    }

    /// Sizes for `df` of `object`: in the tree of a project with quotas those are the limits (`zfs_statfs_project`).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn statfs_of(&self, object: ObjectId) -> Result<StatFs> {
        let mut stat = self.statfs();
        let project = match self.znode(object).await {
            Ok(znode) => znode.state.lock().phys.project_for_new(),
            Err(ZplError::Stale) => 0,
            Err(error) => return Err(error),
        };
        let Some(totals) = self.os.totals(Totals::Projects).filter(|_| project != 0) else { return Ok(stat) };
        if let Some(quota) = self.quota_of(Totals::Projects, false, project).await? {
            let used = totals.get_int(project).await?.unwrap_or(0);
            let unit = u64::from(stat.block_size);
            (stat.blocks, stat.available) = (quota / unit, quota.saturating_sub(used) / unit);
        }
        if let Some(quota) = self.quota_of(Totals::Projects, true, project).await? {
            // There is this one at least, counted or not.
            let used = totals.get_u64(format!("{OBJECTS_PREFIX}{project:x}").as_bytes()).await?.unwrap_or(1);
            (stat.files, stat.files_free) = (quota, quota.saturating_sub(used));
        }
        Ok(stat)
    }

    /// Lets the objects that hold the extended attributes of `znode` belong to whom it belongs to now. The caller holds
    /// the file's lock.
    pub(crate) async fn hand_on_owners(&self, znode: &Arc<Znode>, tx: &platter_dmu::Tx) -> Result<()> {
        let Some(directory) = self.xattr_directory(znode).await? else { return Ok(()) };
        let (uid, gid, project) = {
            let phys = &znode.state.lock().phys;
            (phys.uid, phys.gid, phys.project())
        };
        let mut hidden = Vec::new();
        for entry in directory.zap().all().await? {
            hidden.extend(self.xattr_file(&directory, &entry.name).await?);
        }
        hidden.push(directory);
        for object in hidden {
            let is_same = {
                let phys = &object.state.lock().phys;
                (phys.uid, phys.gid, phys.project()) == (uid, gid, project)
            };
            if is_same {
                continue;
            }
            self.update(&object, tx, |phys| {
                (phys.uid, phys.gid) = (uid, gid);
                if phys.project() != project {
                    phys.set_project(project, &self.table);
                }
            })
            .await?;
        }
        Ok(())
    }
}
