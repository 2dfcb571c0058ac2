//! What is done with disks: one that is in no pool at first joins, takes places, stands in, and leaves.
//!
//! An operation brings the disk first to where it begins: so each can be the only one of a workload, and all of its
//! states are tried on every layout.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, VdevReport};
use platter_api::request::{PoolChange, VdevRequest};
use platter_api::splits::SplitRequest;
use platter_spa::Pool;

use super::mended::nothing_was_mended;
use super::model::{Model, Role, Step};
use crate::world::SimDevices;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskOperation {
    /// `zpool add`.
    AddVdev,
    /// `zpool add` of a separate intent log.
    AddLog,
    /// `zpool remove` of the log.
    RemoveLog,
    /// `zpool offline` of the log.
    OfflineLog,
    /// `zpool online` of the log.
    OnlineLog,
    /// `zpool add` of a cache device.
    AddCache,
    /// `zpool remove` of the cache device.
    RemoveCache,
    /// `zpool replace` of the first disk, until it has left.
    Replace,
    /// `zpool attach` to the first disk, until it has everything.
    Attach,
    /// `zpool attach -s` to the first disk, until it has everything and all of it is verified.
    AttachSequentially,
    /// `zpool detach` of what was attached.
    Detach,
    /// `zpool detach` of the first disk: what was attached stays.
    DetachFirst,
    /// `zpool add` of a hot spare.
    AddSpare,
    /// `zpool remove` of the spare.
    RemoveSpare,
    /// `zpool replace` of the first disk by the spare, until that has everything.
    SpareIn,
    /// `zpool detach` of the spare: it is free again.
    SpareOut,
    /// `zpool detach` of the first disk: the spare stays in its place.
    SpareStays,
    /// `zpool split`: what was attached becomes a pool of its own, with the last disk of each other mirror.
    SplitAttached,
    /// `zpool split` of a pool of several mirrors: the last disk of each becomes one of another pool.
    Split,
}

/// The name of the pool that is split off.
pub const TWIN: &str = "twin";

/// Tenths of a second after the resilver within which a disk that was replaced leaves.
const LEAVES_WITHIN: usize = 1000;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn path(number: usize) -> String {
    SimDevices::path(number).display().to_string()
}

fn is_replacing(vdev: &VdevReport) -> bool {
    vdev.kind == "replacing" || vdev.children.iter().any(is_replacing)
}

/// A command.
#[derive(Clone, Copy)]
enum Move {
    Add(fn(PathBuf) -> VdevRequest),
    Remove,
    Offline,
    Online,
    Attach,
    AttachSequentially,
    Replace,
    Detach,
    DetachFirst,
    Split,
}

impl Move {
    async fn run(self, pool: &Arc<Pool>, spare: usize) -> Result<(), String> {
        let attach = |replaces, sequential| PoolChange::Attach {
            device: path(0),
            new: SimDevices::path(spare),
            replaces,
            force: false,
            ashift: 0,
            sequential,
        };
        let change = match self {
            Self::Add(vdev) => PoolChange::Add {
                vdevs: vec![vdev(SimDevices::path(spare))],
                force: true,
                ashift: 0,
                any_ashift: true,
                dry_run: false,
            },
            Self::Remove => PoolChange::Remove { device: path(spare) },
            Self::Offline => PoolChange::Offline { device: path(spare), temporary: false },
            Self::Online => PoolChange::Online { device: path(spare), expand: false },
            Self::Attach => attach(false, false),
            Self::AttachSequentially => attach(false, true),
            Self::Replace => attach(true, false),
            Self::Detach => PoolChange::Detach { device: path(spare) },
            Self::DetachFirst => PoolChange::Detach { device: path(0) },
            Self::Split => {
                let request = SplitRequest { new_name: TWIN.into(), ..SplitRequest::default() };
                return pool.split(request).await.map(drop).map_err(text);
            }
        };
        pool.change(change).await.map_err(text)?;
        match self {
            Self::Attach | Self::AttachSequentially | Self::Replace => settle(pool).await,
            _ => Ok(()),
        }
    }
}

/// Waits until a disk that joined has everything, and one that was replaced has left.
async fn settle(pool: &Arc<Pool>) -> Result<(), String> {
    for _ in 0..LEAVES_WITHIN {
        pool.scrub_wait().await.map_err(text)?;
        let vdevs = pool.report(Detail::default()).await.map_err(text)?.vdevs;
        if !is_replacing(&vdevs) {
            // Of a reconstruction the scrub is over that follows it.
            return nothing_was_mended(pool).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the disk that was replaced has not left".into())
}

impl DiskOperation {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::AddVdev,
        Self::AddLog,
        Self::RemoveLog,
        Self::OfflineLog,
        Self::OnlineLog,
        Self::AddCache,
        Self::RemoveCache,
        Self::Replace,
        Self::Attach,
        Self::AttachSequentially,
        Self::Detach,
        Self::DetachFirst,
        Self::AddSpare,
        Self::RemoveSpare,
        Self::SpareIn,
        Self::SpareOut,
        Self::SpareStays,
        Self::SplitAttached,
        Self::Split,
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::AddVdev => "add-vdev",
            Self::AddLog => "add-log",
            Self::RemoveLog => "remove-log",
            Self::OfflineLog => "offline-log",
            Self::OnlineLog => "online-log",
            Self::AddCache => "add-cache",
            Self::RemoveCache => "remove-cache",
            Self::Replace => "replace",
            Self::Attach => "attach",
            Self::AttachSequentially => "attach-sequential",
            Self::Detach => "detach",
            Self::DetachFirst => "detach-first",
            Self::AddSpare => "add-spare",
            Self::RemoveSpare => "remove-spare",
            Self::SpareIn => "spare-in",
            Self::SpareOut => "spare-out",
            Self::SpareStays => "spare-stays",
            Self::SplitAttached => "split-attached",
            Self::Split => "split",
        }
    }

    /// The operation without which this one cannot begin.
    fn before(self) -> Option<Self> {
        match self {
            Self::RemoveLog | Self::OfflineLog => Some(Self::AddLog),
            Self::OnlineLog => Some(Self::OfflineLog),
            Self::RemoveCache => Some(Self::AddCache),
            Self::Detach | Self::DetachFirst | Self::SplitAttached => Some(Self::Attach),
            Self::RemoveSpare | Self::SpareIn => Some(Self::AddSpare),
            Self::SpareOut | Self::SpareStays => Some(Self::SpareIn),
            _ => None,
        }
    }

    /// What the disk is before and after it, and how it comes to be that.
    fn transition(self) -> (Role, Move, Role) {
        match self {
            Self::AddVdev => (Role::Idle, Move::Add(VdevRequest::Leaf), Role::Vdev),
            Self::AddLog => (Role::Idle, Move::Add(|path| VdevRequest::Log(vec![path])), Role::Log),
            Self::RemoveLog => (Role::Log, Move::Remove, Role::Idle),
            Self::OfflineLog => (Role::Log, Move::Offline, Role::LogOffline),
            Self::OnlineLog => (Role::LogOffline, Move::Online, Role::Log),
            Self::AddCache => (Role::Idle, Move::Add(|path| VdevRequest::Cache(vec![path])), Role::Cache),
            Self::RemoveCache => (Role::Cache, Move::Remove, Role::Idle),
            Self::Replace => (Role::Idle, Move::Replace, Role::Member),
            Self::Attach => (Role::Idle, Move::Attach, Role::Side),
            Self::AttachSequentially => (Role::Idle, Move::AttachSequentially, Role::Side),
            Self::Detach => (Role::Side, Move::Detach, Role::Idle),
            Self::DetachFirst => (Role::Side, Move::DetachFirst, Role::Member),
            Self::AddSpare => (Role::Idle, Move::Add(|path| VdevRequest::Spare(vec![path])), Role::Spare),
            Self::RemoveSpare => (Role::Spare, Move::Remove, Role::Gone),
            Self::SpareIn => (Role::Spare, Move::Replace, Role::StandIn),
            Self::SpareOut => (Role::StandIn, Move::Detach, Role::Spare),
            Self::SpareStays => (Role::StandIn, Move::DetachFirst, Role::Member),
            Self::SplitAttached => (Role::Side, Move::Split, Role::Twin),
            Self::Split => (Role::Idle, Move::Split, Role::Twin),
        }
    }

    /// What the disk is after it.
    pub fn leads_to(self) -> Role {
        self.transition().2
    }

    /// This operation and those that must come before it where the disk is now; `None` when none lead there.
    fn path_from(self, role: Role) -> Option<Vec<Self>> {
        let mut path = vec![self];
        while path[0].transition().0 != role {
            path.insert(0, path[0].before()?);
        }
        Some(path)
    }

    /// The steps that it makes from `model` on; `None` when it cannot be done there.
    pub fn plan(self, model: &Model) -> Option<Vec<Step>> {
        let path = self.path_from(model.role())?;
        let attaches = |step: &Self| matches!(step, Self::Attach | Self::AttachSequentially);
        let possible = match self {
            Self::Split => model.is_of_mirrors(),
            _ => model.has_mirrors() || !path.iter().any(attaches),
        };
        possible.then(|| path.into_iter().map(|operation| Step::Disk(operation.transition().2)).collect())
    }

    /// Does it with the disk number `spare`, which is this to the pool now.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn run(self, pool: &Arc<Pool>, spare: usize, role: Role) -> Result<(), String> {
        let path = self.path_from(role).ok_or("it cannot be done from there")?;
        for operation in path {
            operation.transition().1.run(pool, spare).await?;
        }
        Ok(())
    }
}
