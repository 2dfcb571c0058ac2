//! Whether a device may be taken for a new pool: nothing may be lost by surprise (`check_in_use`,
//! `cmd/zpool/zpool_vdev.c`; `check_disk`, `cmd/zpool/os/linux/zpool_vdev_os.c`).
//!
//! What is written to was looked at through the handle that writes, which [`check`] returns: between two openings of a
//! path another device may get it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_device::{
    BlockDevice, DeviceError, DeviceSource, Holder, OpenOptions, PathKind, Remembered, disk, signatures,
};
use platter_ondisk::Guid;
use platter_ondisk::names::pool_state;

use crate::config::PoolState;
use crate::environment::Environment;
use crate::labels::DeviceLabels;
use crate::spare_label::SpareLabel;
use crate::{aux_label, cache_label, identity, label_search, labels, path_look, spare_label};
use platter_dsl::error::{PoolError, Result};

/// What stands above the reasons that `-f` overrides.
pub const OVERRIDE: &str = "use '-f' to override the following errors:";

/// Checks the device at `path`. With `force`, members of exported and of potentially active pools are taken too, and
/// what holds a file system or anything else of use; what is open somewhere is never. Returns the device as it was
/// looked at, open for writing.
///
/// What is a hot spare of some pool may become one of another pool, too (`as_spare`).
///
/// # Errors
/// The device with its reason.
pub async fn check(
    environment: &Environment,
    path: &Path,
    force: bool,
    as_spare: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let (shown, devices) = (path.display(), &*environment.devices);
    match path_look::look(devices, path).await.kind {
        PathKind::Missing(_) => return Err(PoolError::Devices(format!("cannot resolve path '{shown}'"))),
        PathKind::Folder => {
            return Err(PoolError::Devices(format!("cannot use '{shown}': must be a block device or regular file")));
        }
        PathKind::File(_) | PathKind::BlockDevice | PathKind::Other => {}
    }
    // Opening it exclusively tells whether it is mounted, in another pool or otherwise in use.
    let device = match identity::in_time(path, devices.open_path(path, OpenOptions::exclusive())).await {
        Ok(device) => device,
        Err(error) => return Err(in_use(devices, path, &error.to_string()).await),
    };
    if device.size() < crate::labels::DEVICE_SIZE_MIN {
        return Err(PoolError::invalid(format!(
            "one or more devices is less than the minimum size (64M): {shown} has {} bytes",
            device.size()
        )));
    }
    // What is asked of it below is often the same.
    let looked_at: Arc<dyn BlockDevice> = Arc::new(Remembered::new(device.clone()));
    let found = Found::on(environment, &looked_at, path).await;
    if let Some(busy) = found.open_member(environment).or_else(|| found.reserved(environment, as_spare)) {
        return Err(busy);
    }
    let reason = if force { None } else { contents(&looked_at, path, &found, as_spare).await };
    match reason {
        None => Ok(device),
        Some(reason) => Err(PoolError::NeedsForce { reason, hint: OVERRIDE.into() }),
    }
}

/// That the labels make the device a member of a pool that somebody may want to have again.
fn membership((path, found): &(PathBuf, DeviceLabels)) -> Option<String> {
    let what = match found.config().state {
        PoolState::Active => "is part of potentially active pool",
        PoolState::Exported => "is part of exported pool",
        PoolState::Destroyed | PoolState::Other(_) => return None,
    };
    Some(format!("{} {what} '{}'", path.display(), found.config().name))
}

/// The labels on a device, in its partitions, and on the disk that it is a partition of, each with the path of what it
/// is on.
#[derive(Default)]
struct Found {
    /// Its own, or those in the partition that is a pool's.
    own: Option<(PathBuf, DeviceLabels)>,
    /// Those in its partitions, and of the disk that it is on.
    others: Vec<(PathBuf, DeviceLabels)>,
    /// The cache device that it is.
    cache: Option<(PathBuf, Guid)>,
    /// The hot spare that it is.
    own_spare: Option<(PathBuf, SpareLabel)>,
    /// The hot spares that its partitions are, or the disk that it is on.
    other_spares: Vec<(PathBuf, SpareLabel)>,
}

impl Found {
    async fn on(environment: &Environment, device: &Arc<dyn BlockDevice>, path: &Path) -> Self {
        let devices = &*environment.devices;
        let own = label_search::labels_of(device).await.map(|labels| (path.to_owned(), labels));
        let mut found = Self { own, ..Self::default() };
        // One in the partition of a disk that would be given a table again stays what it is: it is taken as it is.
        if let Some((label, in_partition)) = spare_label::search(device).await
            && (!in_partition || devices.is_whole_disk(path))
        {
            found.own_spare = Some((path.to_owned(), label));
        }
        found.cache = cache_label::read(&**device).await.map(|guid| (path.to_owned(), guid));
        for partition in signatures::partitions(device).await {
            let Ok(window) = signatures::open(device, &partition) else { continue };
            found.add(disk::partition_path(path, partition.number), &window).await;
        }
        if let Some(holding) = devices.disk_of(path).await
            && let Ok(disk) = devices.open_path(&holding.disk, OpenOptions::read_only()).await
        {
            found.add(holding.disk, &*disk).await;
        }
        found
    }

    /// Looks at what holds the device, or is held by it.
    async fn add(&mut self, path: PathBuf, device: &dyn BlockDevice) {
        if let Ok(labels) = labels::read(device).await {
            self.others.push((path.clone(), labels));
        }
        let spare = spare_label::read_all(device).await;
        let is_own = |label: &SpareLabel| self.own_spare.as_ref().is_some_and(|(_, own)| own.guid == label.guid);
        self.other_spares.extend(spare.filter(|label| !is_own(label)).map(|label| (path, label)));
    }

    /// The refusal of what is a device, or has one in a partition, of a pool that is open: the device has another face,
    /// by which its pool uses it, or this is a copy of it, which nobody can tell from it (`vdev_inuse`,
    /// `module/zfs/vdev_label.c`).
    fn open_member(&self, environment: &Environment) -> Option<PoolError> {
        self.own.iter().chain(&self.others).find_map(|(place, labels)| {
            let holder = holder(environment, labels)?;
            let (place, name) = (place.display(), &labels.config().name);
            Some(PoolError::Busy(format!(
                "{place} is part of active pool '{name}'\n{holder} has that pool open, and this device's labels are \
                 its, or copies of them"
            )))
        })
    }

    /// The refusal of what is a cache device or a hot spare of a pool that is open here, or has one in a partition: the
    /// pool may take it at any time; a spare may become one of another pool, too, as it is. A cache device that no open
    /// pool lists holds nothing that anybody would miss.
    fn reserved(&self, environment: &Environment, as_spare: bool) -> Option<PoolError> {
        if let Some((place, guid)) = &self.cache
            && let Some(pool) = environment.pool_locks.pool_with(*guid)
        {
            // Nobody uses it at the moment: it may be offline.
            return Some(PoolError::Busy(format!("{} is part of active pool '{pool}'", place.display())));
        }
        let own = self.own_spare.iter().filter(|_| !as_spare);
        own.chain(&self.other_spares).find_map(|(place, label)| {
            let pool = environment.pool_locks.pool_with(label.guid)?;
            Some(PoolError::Busy(format!("{} is reserved as a hot spare for pool '{pool}'", place.display())))
        })
    }
}

/// What is on the device or in its partitions, in OpenZFS's words.
async fn contents(device: &Arc<dyn BlockDevice>, path: &Path, found: &Found, as_spare: bool) -> Option<String> {
    if let Some(reason) = found.own.as_ref().and_then(membership) {
        return Some(reason);
    }
    let others = || found.others.iter().find_map(membership);
    if let Some(reason) = found.own_spare.as_ref().and_then(|_| others()) {
        return Some(reason);
    }
    let mut spares = found.own_spare.iter().filter(|_| !as_spare).chain(&found.other_spares);
    if let Some((place, _)) = spares.find(|(_, label)| !label.is_released) {
        // No label says of which pool.
        return Some(format!(
            "{} is reserved as a hot spare\nIts pool is not imported here, or has it no more; 'zpool labelclear' makes \
             it an unused device",
            place.display()
        ));
    }
    if as_spare && found.own_spare.is_some() {
        return None;
    }
    if let Some(found) = signatures::search(device).await.into_iter().next() {
        let place = found.partition.map_or_else(|| path.to_owned(), |number| disk::partition_path(path, number));
        return Some(format!("{} contains a filesystem of type '{}'", place.display(), found.kind));
    }
    others()
}

/// Who has the pool open that a device is of by its labels.
fn holder(environment: &Environment, labels: &DeviceLabels) -> Option<Holder> {
    let config = labels.config();
    (config.state == PoolState::Active)
        .then(|| environment.pool_locks.holder_of_leaf(config.guid, config.device_guid))
        .flatten()
}

/// Who has a device that cannot be opened: the pool in its label, when there is one.
async fn in_use(devices: &dyn DeviceSource, path: &Path, reason: &str) -> PoolError {
    if let Some((_, found)) = label_search::labels_at(devices, path).await
        && found.config().state == PoolState::Active
    {
        let name = &found.config().name;
        return PoolError::Busy(format!("{} is part of active pool '{name}'\n{reason}", path.display()));
    }
    PoolError::Busy(reason.to_owned())
}

/// `zpool labelclear`: zeroes the labels of a device that is in no imported pool. Those of an exported or potentially
/// active pool need `force`.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn clear_label(environment: &Environment, path: &Path, force: bool) -> Result<()> {
    let devices = &*environment.devices;
    let shown = path.display();
    if let PathKind::Missing(error) = path_look::look(devices, path).await.kind {
        return Err(PoolError::NotFound(format!("failed to open {shown}: {error}")));
    }
    let Some((at, found)) = label_search::labels_at(devices, path).await else {
        return clear_beside(environment, path).await;
    };
    let name = &found.config().name;
    // Whoever has it open keeps it.
    let device = match devices.open_vdev(&at, at != path, OpenOptions::exclusive()).await {
        Ok(device) => device,
        Err(error) => {
            return Err(PoolError::Busy(format!("{shown} is a member (ACTIVE) of pool \"{name}\"\n{error}")));
        }
    };
    let found = labels::read(&*device)
        .await
        .map_err(|reason| PoolError::NotFound(format!("failed to read label from {shown}: {reason}")))?;
    let (state, name) = (found.config().state, &found.config().name);
    if let Some(holder) = holder(environment, &found) {
        let text = format!("{shown} is a member (ACTIVE) of pool \"{name}\"\n{holder} has that pool open");
        return Err(PoolError::Busy(text));
    }
    let member = match state {
        PoolState::Active => "potentially active pool",
        PoolState::Exported => "exported pool",
        PoolState::Destroyed | PoolState::Other(_) => "",
    };
    if !force && !member.is_empty() {
        return Err(PoolError::NeedsForce {
            reason: format!("{shown} is a member of {member} \"{name}\""),
            hint: "use '-f' to override the following error:".into(),
        });
    }
    labels::clear(&*device)
        .await
        .map_err(|error| PoolError::Unavailable(format!("failed to clear label for {shown}: {error}")))
}

/// As [`clear_label`], of a hot spare that stands in for nothing, or a cache device. That pools which are not open here
/// list it is known to nobody, and keeps nobody from clearing it (`zpool_in_use`, `lib/libzfs/libzfs_import.c`).
async fn clear_beside(environment: &Environment, path: &Path) -> Result<()> {
    let (devices, shown) = (&*environment.devices, path.display());
    let unreadable = || PoolError::NotFound(format!("failed to read label from {shown}"));
    let Ok(mut device) = devices.open_path(path, OpenOptions::read_only()).await else { return Err(unreadable()) };
    let kinds = [(pool_state::SPARE, "SPARE", "hot spare"), (pool_state::L2CACHE, "L2CACHE", "cache device")];
    let mut found = None;
    for (state, word, kind) in kinds {
        if found.is_none() {
            let label = aux_label::search(&device, state).await;
            found = label.map(|(guid, _, in_partition)| (guid, in_partition, state, word, kind));
        }
    }
    let (guid, in_partition, state, word, kind) = found.ok_or_else(unreadable)?;
    drop(device);
    if let Some(pool) = environment.pool_locks.pool_with(guid) {
        return Err(PoolError::Busy(format!("{shown} is a member ({word}) of pool \"{pool}\"")));
    }
    let busy = |error: DeviceError| PoolError::Busy(format!("{shown} is a {kind}\n{error}"));
    device = devices.open_vdev(path, in_partition, OpenOptions::exclusive()).await.map_err(busy)?;
    if aux_label::read(&*device, state).await != Some(guid) || labels::read(&*device).await.is_ok() {
        return Err(PoolError::Busy(format!("{shown} changed meanwhile: try again")));
    }
    labels::clear(&*device)
        .await
        .map_err(|error| PoolError::Unavailable(format!("failed to clear label for {shown}: {error}")))
}
