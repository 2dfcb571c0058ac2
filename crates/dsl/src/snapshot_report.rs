//! What `zfs list` and `zfs get` are told about a snapshot (`dsl_dataset_stats`, `dsl_prop_get_all_ds`): what holds of
//! it since it was taken, what its neighbours make of it, and the properties of its data set that it has, too.

use std::sync::Arc;

use platter_api::names;
use platter_api::properties::{NATIVES, is_user};
use platter_api::report::{DatasetKind, DatasetReport, Properties, Property, PropertySource, PropertyValue};
use platter_dmu::zap::Zap;
use platter_ondisk::ObjectId;
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::features::Feature;

use crate::dataset::Dataset;
use crate::dataset_report::{contents_of, default, ratio, shown, with_contents};
use crate::deadlist;
use crate::error::Result;
use crate::inheritance::lookup;
use crate::named_snapshot::in_order;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::stored_property::StoredProperty;
use crate::{holds, redacted, snapshot_properties};

/// Bytes written since the snapshot before it (`dsl_get_written`); `None` when there is none.
async fn written(dsl: &DslPool, bonus: &SnapshotBonus) -> Result<Option<u64>> {
    let phys = &bonus.phys;
    if !phys.prev_snap_obj.is_some() {
        return Ok(None);
    }
    let before = SnapshotBonus::load(&dsl.mos, phys.prev_snap_obj).await?.phys.referenced_bytes;
    let dead = deadlist::space_used(&dsl.mos, phys.deadlist_obj).await?;
    Ok(Some(phys.referenced_bytes.saturating_add(dead).saturating_sub(before)))
}

/// Names of the clones.
async fn clones(dsl: &DslPool, bonus: &SnapshotBonus) -> Result<String> {
    let mut names = Vec::new();
    if bonus.phys.next_clones_obj.is_some() {
        let object = bonus.snapshot().object;
        let tree = dsl.tree.read().datasets.clone();
        if Zap::open(&dsl.mos, bonus.phys.next_clones_obj).await?.count().await? > 0 {
            let is_clone = |dataset: &Dataset| dataset.dir.phys.lock().origin_obj == object;
            let is_shown = |name: &str| !name.contains('%');
            let clones = tree.into_iter().filter(|(name, dataset)| is_shown(name) && is_clone(dataset));
            names.extend(clones.map(|(name, _)| name));
        }
    }
    Ok(names.join(","))
}

async fn statistics(dsl: &DslPool, bonus: &SnapshotBonus, properties: &mut Properties) -> Result<()> {
    let phys = &bonus.phys;
    let mut put = |name: &str, value: PropertyValue| {
        properties.insert(name.to_owned(), Property { value, source: PropertySource::None });
    };
    let compressed = ratio(phys.uncompressed_bytes, phys.compressed_bytes);
    let numbers = [
        ("creation", phys.creation_time),
        ("used", phys.unique_bytes),
        ("referenced", phys.referenced_bytes),
        ("compressratio", compressed),
        ("refcompressratio", compressed),
        ("logicalreferenced", phys.uncompressed_bytes),
        ("guid", phys.guid.0),
        ("createtxg", phys.creation_txg.0),
        ("objsetid", bonus.snapshot().object.0),
        ("userrefs", holds::count(&dsl.mos, phys.userrefs_obj).await?),
    ];
    for (name, number) in numbers {
        put(name, PropertyValue::Number(number));
    }
    if dsl.features.is_active(Feature::RedactedDatasets)
        && let Some(snaps) = redacted::snapshots_of(dsl, bonus.snapshot().object).await?
    {
        put("redact_snaps", PropertyValue::Text(redacted::shown(&snaps)));
    }
    if let Some(written) = written(dsl, bonus).await? {
        put("written", PropertyValue::Number(written));
    }
    let is_deferred = phys.flags & dataset_flags::DEFER_DESTROY != 0;
    put("defer_destroy", PropertyValue::Text(if is_deferred { "on" } else { "off" }.into()));
    put("clones", PropertyValue::Text(clones(dsl, bonus).await?));
    put("type", PropertyValue::Text(DatasetKind::Snapshot.name().into()));
    Ok(())
}

/// Those of the data set that its snapshots have: all of them are inherited.
fn natives(dsl: &DslPool, head: &Dataset, properties: &mut Properties) {
    let is_volume = head.kind == DatasetKind::Volume;
    for native in NATIVES.iter().filter(|native| native.of_snapshots && (native.of_volumes || !is_volume)) {
        let found = if native.inherits { lookup(&head.dir, native) } else { (None, None) };
        let property = match found {
            (Some(value), Some(dir)) => {
                let source = PropertySource::Inherited(dir.full_name(dsl.name()));
                Property { value: shown(native, &value), source }
            }
            _ => Property { value: default(native), source: PropertySource::Default },
        };
        properties.insert(native.name.to_owned(), property);
    }
}

/// Its own, and the users' properties of the directories above.
async fn of_users(dsl: &DslPool, head: &Dataset, bonus: &SnapshotBonus, properties: &mut Properties) -> Result<()> {
    let stored = snapshot_properties::load(&dsl.mos, bonus.phys.props_obj).await?;
    for (name, (value, received)) in snapshot_properties::own(&stored) {
        if let (true, StoredProperty::Text(text)) = (is_user(name), value) {
            let source = if received { PropertySource::Received } else { PropertySource::Local };
            properties.insert(name.to_owned(), Property { value: PropertyValue::Text(text.clone()), source });
        }
    }
    let mut at = Some(head.dir.clone());
    while let Some(dir) = at {
        let stored = dir.properties.read().clone();
        for (name, (value, _)) in snapshot_properties::own(&stored) {
            if let (true, StoredProperty::Text(text)) = (is_user(name), value) {
                let source = PropertySource::Inherited(dir.full_name(dsl.name()));
                let property = Property { value: PropertyValue::Text(text.clone()), source };
                properties.entry(name.to_owned()).or_insert(property);
            }
        }
        at = dir.parent();
    }
    Ok(())
}

/// The report of one snapshot.
async fn report(dsl: &DslPool, full_name: String, head: &Arc<Dataset>, bonus: &SnapshotBonus) -> Result<DatasetReport> {
    let mut properties = Properties::new();
    statistics(dsl, bonus, &mut properties).await?;
    natives(dsl, head, &mut properties);
    with_contents(&contents_of(dsl, head).await, &mut properties);
    properties.remove("volblocksize");
    of_users(dsl, head, bonus, &mut properties).await?;
    let (kind, received) = (DatasetKind::Snapshot, Default::default());
    Ok(DatasetReport { name: full_name, kind, properties, received, read_only_reason: None })
}

impl DslPool {
    /// Full name of the snapshot that is `object` in the MOS; none when there is no such, or its name cannot be read.
    pub async fn snapshot_by_object(&self, object: ObjectId) -> Option<String> {
        let place = SnapshotBonus::load(&self.mos, object).await.ok()?.phys.dir_obj;
        let (dataset, head) = self.tree.read().dataset_in(place)?;
        let names = head.snapshot_names(&self.mos).await.ok()?;
        let (own, _) = names.into_iter().find(|(_, other)| *other == object)?;
        Some(format!("{dataset}@{own}"))
    }

    /// The snapshots of all data sets, or of `under` and those below it; of each the oldest first.
    ///
    /// # Errors
    /// Damage in the MOS, unreadable blocks; the pool is suspended.
    pub async fn snapshots(&self, under: Option<&str>) -> Result<Vec<DatasetReport>> {
        self.unless_suspended(async {
            let datasets = self.tree.read().datasets.clone();
            let among = |name: &str| under.is_none_or(|under| names::is_at_or_below(name, under));
            let mut reports = Vec::new();
            for (dataset, head) in datasets.iter().filter(|(name, _)| among(name)) {
                for (name, bonus) in in_order(self, head).await? {
                    // A clone that something is being received into is nobody's to see.
                    if !name.starts_with('%') {
                        reports.push(report(self, format!("{dataset}@{name}"), head, &bonus).await?);
                    }
                }
            }
            Ok(reports)
        })
        .await
    }

    /// Names of the data set `name` and of those below it, parents first.
    ///
    /// # Errors
    /// It does not exist.
    pub fn names_under(&self, name: &str) -> Result<Vec<String>> {
        self.find(name)?;
        let below = format!("{name}/");
        let tree = self.tree.read();
        let mut names: Vec<String> =
            tree.datasets.keys().filter(|other| *other == name || other.starts_with(&below)).cloned().collect();
        // What a receive fills until it takes the place of its target.
        names.retain(|name| !name.contains('%'));
        names.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        Ok(names)
    }

    /// Full names of a data set's own snapshots, the oldest first.
    ///
    /// # Errors
    /// It does not exist; damage in the MOS, unreadable blocks.
    pub async fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        let head = self.find(dataset)?;
        Ok(in_order(self, &head).await?.into_iter().map(|(name, _)| format!("{dataset}@{name}")).collect())
    }

    /// One snapshot.
    ///
    /// # Errors
    /// It does not exist; damage in the MOS, unreadable blocks.
    pub async fn snapshot(&self, full_name: &str) -> Result<DatasetReport> {
        let found = crate::named_snapshot::find(self, full_name).await?;
        let found = found.ok_or_else(|| crate::error::PoolError::NotFound("dataset does not exist".into()))?;
        let bonus = SnapshotBonus::load(&self.mos, found.object).await?;
        report(self, found.full_name, &found.head, &bonus).await
    }
}
