//! Bookmarks: what a snapshot was, of which an incremental stream needs no more (`module/zfs/dsl_bookmark.c`).
//!
//! A data set's bookmarks are in a ZAP that its own object names. What is stored of each is in `bookmark_phys`, what it
//! knows of space in `bookmark_space`.

use std::sync::Arc;

use platter_api::names;
use platter_api::report::{DatasetKind, DatasetReport, Properties, Property, PropertySource, PropertyValue};
use platter_dmu::zap::{NewZap, Zap, ZapValue};
use platter_dmu::{Objset, Tx};
use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::features::Feature;
use platter_ondisk::{Guid, ObjectId, ObjectType, Txg};

use crate::bookmark_phys::{self, BookmarkPhys, BookmarkSpace};
use crate::dataset::Dataset;
use crate::dataset_report::ratio;
use crate::error::{PoolError, Result};
use crate::followed::{FIELD, names};
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::redaction_list::{self, RedactionHead};
use crate::send_since::{Since, is_before, missing, not_earlier};
use crate::snapshot::SnapshotBonus;
use crate::space_since::Earlier;
use crate::{bookmark_space, history, redacted, space, zapify};

/// `U8_TEXTPREP_TOUPPER`: names compare without case where files' do.
const NORMALIZE_TO_UPPER: u32 = 2;

/// A bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Its name, without the data set's.
    pub name: String,
    /// What is stored of it.
    pub phys: BookmarkPhys,
    /// Whether it is stored in the second form.
    is_long: bool,
}

impl Bookmark {
    /// What `zfs list` and `zfs get` are told about it.
    fn report(&self, dataset: &str, redaction: Option<&RedactionHead>) -> DatasetReport {
        let number = |name: &str, number| {
            let value = PropertyValue::Number(number);
            (name.to_owned(), Property { value, source: PropertySource::None })
        };
        let phys = &self.phys;
        let mut properties = Properties::from([
            number("creation", phys.creation_time),
            number("createtxg", phys.creation_txg.0),
            number("guid", phys.guid.0),
        ]);
        if phys.has_freed() {
            let BookmarkSpace { used, compressed, uncompressed } = phys.referenced;
            properties.extend([
                number("referenced", used),
                number("logicalreferenced", uncompressed),
                number("refcompressratio", ratio(uncompressed, compressed)),
            ]);
        }
        let kind = PropertyValue::Text(DatasetKind::Bookmark.name().into());
        properties.insert("type".into(), Property { value: kind, source: PropertySource::None });
        if let Some(head) = redaction {
            let snaps = PropertyValue::Text(redacted::shown(&head.snaps));
            properties.insert("redact_snaps".into(), Property { value: snaps, source: PropertySource::None });
        }
        let name = format!("{dataset}#{}", self.name);
        DatasetReport {
            name,
            kind: DatasetKind::Bookmark,
            properties,
            received: Default::default(),
            read_only_reason: None,
        }
    }
}

fn decode(name: &[u8], value: &ZapValue) -> Option<Bookmark> {
    let phys = BookmarkPhys::decode(value)?;
    Some(Bookmark { name: String::from_utf8_lossy(name).into_owned(), phys, is_long: bookmark_phys::is_long(value) })
}

/// The bookmark of this name.
pub(crate) async fn lookup(os: &Arc<Objset>, dataset: &Dataset, name: &str) -> Result<Option<Bookmark>> {
    let Some(zap) = names(os, dataset.object).await? else { return Ok(None) };
    let folded = dataset.phys.lock().flags & dataset_flags::CI_DATASET != 0;
    let found = match folded {
        true => zap.get_normalized(name.as_bytes(), false).await?,
        false => zap.get(name.as_bytes()).await?.map(|value| (name.as_bytes().to_vec(), value)),
    };
    Ok(found.and_then(|(name, value)| decode(&name, &value)))
}

/// What the bookmark called `full_name` stands for in a stream of `to`.
pub(crate) async fn since(dsl: &DslPool, full_name: &str, to: &DslDatasetPhys) -> Result<Since> {
    let (dataset, name) = full_name.split_once('#').ok_or_else(|| missing(full_name))?;
    let head = dsl.find(dataset).map_err(|_| missing(full_name))?;
    let bookmark = lookup(&dsl.mos, &head, name).await?.ok_or_else(|| missing(full_name))?;
    let since = |of_origin| Since {
        guid: bookmark.phys.guid,
        txg: bookmark.phys.creation_txg,
        of_origin,
        redaction: bookmark.phys.redaction,
        redacted: None,
        earlier: Earlier::bookmark(&bookmark.phys),
    };
    match is_before(dsl, (head.dir.object, bookmark.phys.creation_txg), to).await? {
        Some(of_origin) => Ok(since(of_origin)),
        // What was left out of the snapshot itself.
        None if bookmark.phys.redaction.is_some() && bookmark.phys.guid == to.guid => Ok(since(false)),
        None => Err(not_earlier()),
    }
}

/// The redaction bookmark called `full_name` of a snapshot: its list.
///
/// # Errors
/// It does not exist, is none or of another snapshot; damage.
pub(crate) async fn redaction_of(dsl: &DslPool, full_name: &str, guid: Guid) -> Result<ObjectId> {
    let absent = || PoolError::NotFound(format!("redaction bookmark '{full_name}' does not exist"));
    let (dataset, name) = full_name.split_once('#').ok_or_else(absent)?;
    let bookmark = lookup(&dsl.mos, &*dsl.find(dataset)?, name).await?.ok_or_else(absent)?;
    let list = bookmark.phys.redaction.ok_or_else(|| PoolError::invalid("not a redaction bookmark"))?;
    if bookmark.phys.guid != guid {
        return Err(PoolError::invalid("it is a redaction bookmark of another snapshot"));
    }
    Ok(list)
}

/// A bookmark that can be made.
struct Plan {
    dataset: Arc<Dataset>,
    name: String,
    bookmark: BookmarkPhys,
    /// The snapshot, when it is not made of another bookmark.
    source: Option<ObjectId>,
    /// What its list says of itself, of a redaction bookmark.
    redaction: Option<RedactionHead>,
    /// One of this name that is not complete, and of no use.
    replaced: Option<Bookmark>,
}

/// Whether the snapshot or bookmark `source` can be bookmarked as `full_name`.
async fn check(dsl: &DslPool, source: &str, full_name: &str, wanted: Option<RedactionHead>) -> Result<Plan> {
    space::check_task(dsl)?;
    if !dsl.features.is_enabled(Feature::Bookmarks) {
        return Err(PoolError::Unsupported("bookmark feature not enabled".into()));
    }
    let invalid = || PoolError::invalid("invalid bookmark name");
    let (dataset, name) = full_name.split_once('#').ok_or_else(invalid)?;
    let dataset = dsl.find(dataset)?;
    let replaced = lookup(&dsl.mos, &dataset, name).await?;
    if let Some(there) = &replaced
        && !is_replaced(dsl, there, wanted.as_ref()).await?
    {
        return Err(PoolError::Exists("bookmark exists".into()));
    }
    let mut redaction = wanted;
    let head = dataset.phys.lock().clone();
    let not_an_ancestor = || PoolError::invalid("source is not an ancestor of the new bookmark's dataset");
    let (bookmark, source) = match source.contains('#') {
        true => {
            let (of, own) = source.split_once('#').ok_or_else(invalid)?;
            let of = dsl.find(of)?;
            let found = lookup(&dsl.mos, &of, own).await?;
            let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
            is_before(
                dsl,
                (of.dir.object, found.phys.creation_txg),
                &DslDatasetPhys { creation_txg: Txg(u64::MAX), ..head },
            )
            .await?
            .ok_or_else(not_an_ancestor)?;
            // The list of a redaction bookmark is its own.
            (found.phys.without_list(), None)
        }
        false => {
            let found = named_snapshot::find(dsl, source).await?;
            let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
            let phys = SnapshotBonus::load(&dsl.mos, found.object).await?.phys;
            is_before(dsl, (phys.dir_obj, phys.creation_txg), &DslDatasetPhys { creation_txg: Txg(u64::MAX), ..head })
                .await?
                .ok_or_else(not_an_ancestor)?;
            if let Some(snaps) = redacted::snapshots_of(dsl, found.object).await?
                && dsl.features.is_enabled(Feature::RedactionBookmarks)
                && snaps.len() <= redaction_list::SNAPSHOTS_MAX
            {
                redaction = Some(RedactionHead { last: (u64::MAX, u64::MAX), entries: 0, snaps });
            }
            (BookmarkPhys::of(&phys), Some(found.object))
        }
    };
    Ok(Plan { dataset, name: name.to_owned(), bookmark, source, redaction, replaced })
}

/// Whether a bookmark gives way to a redaction bookmark that begins as `wanted`: it was to be the same, and whoever
/// made it did not get to the end.
async fn is_replaced(dsl: &DslPool, there: &Bookmark, wanted: Option<&RedactionHead>) -> Result<bool> {
    let (Some(list), Some(wanted)) = (there.phys.redaction, wanted) else { return Ok(false) };
    let head = redaction_list::load(&dsl.mos, list).await?;
    Ok(!head.is_complete() && head.snaps == wanted.snaps && !dsl.in_use.has(list))
}

/// Removes a bookmark and what it has beside its entry. Within a task.
async fn remove(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    head: &Dataset,
    zap: &Zap,
    bookmark: &Bookmark,
) -> platter_zio::Result<()> {
    zap.remove(tx, bookmark.name.as_bytes()).await?;
    head.followed.lock().forget(bookmark.name.as_bytes(), &bookmark.phys);
    head.book_by_history();
    bookmark_space::end(dsl, tx, head, &bookmark.phys).await?;
    release(dsl, tx, bookmark).await
}

/// Gives back what a bookmark has beside its entry and its space. Within a task.
async fn release(dsl: &Arc<DslPool>, tx: &Tx, bookmark: &Bookmark) -> platter_zio::Result<()> {
    if bookmark.is_long {
        dsl.features.adjust(tx, Feature::BookmarkV2, -1).await?;
    }
    match bookmark.phys.redaction {
        Some(list) => redaction_list::destroy(dsl, tx, list).await,
        None => Ok(()),
    }
}

/// The ZAP of a data set's bookmarks, from now on. Within a task.
async fn ensure(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset) -> platter_zio::Result<Zap> {
    if let Some(zap) = names(&dsl.mos, dataset.object).await? {
        return Ok(zap);
    }
    let new = NewZap {
        object_type: ObjectType::OTN_ZAP_METADATA,
        normalization: NORMALIZE_TO_UPPER,
        flags: 0,
        bonus_type: ObjectType::NONE,
        bonus_length: 0,
        dnode_size: 0,
        salt: dsl.random(),
    };
    let zap = Zap::create(&dsl.mos, tx, None, new).await?;
    dsl.features.adjust(tx, Feature::Bookmarks, 1).await?;
    let own = zapify::ensure(dsl, tx, dataset).await?;
    own.put_u64(tx, FIELD.as_bytes(), zap.dnode().object().0).await?;
    dsl.dirty_config();
    Ok(zap)
}

/// Gives a clone that is promoted the bookmarks up to group `txg`, which is its origin's; one whose name it has itself
/// stays (`dsl_dataset_promote_sync`, `module/zfs/dsl_dataset.c`). Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn move_older(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    from: &Dataset,
    to: &Dataset,
    txg: Txg,
) -> platter_zio::Result<()> {
    let Some(zap) = names(&dsl.mos, from.object).await? else { return Ok(()) };
    let mut target = None;
    for entry in zap.all().await? {
        let Some(phys) = BookmarkPhys::decode(&entry.value).filter(|phys| phys.creation_txg <= txg) else { continue };
        let target = match &mut target {
            Some(target) => target,
            none => none.insert(ensure(dsl, tx, to).await?),
        };
        if target.get(&entry.name).await?.is_none() {
            target.add(tx, &entry.name, &entry.value).await?;
            zap.remove(tx, &entry.name).await?;
            to.followed.lock().note(&entry.name, &phys);
            from.followed.lock().forget(&entry.name, &phys);
        }
    }
    from.book_by_history();
    to.book_by_history();
    Ok(())
}

/// Makes it. Within a task.
async fn make(dsl: &Arc<DslPool>, tx: &Tx, full_name: &str, plan: Plan) -> platter_zio::Result<Option<ObjectId>> {
    let Plan { dataset, name, bookmark: mut phys, source, redaction, replaced } = plan;
    let zap = ensure(dsl, tx, &dataset).await?;
    if let Some(replaced) = replaced {
        remove(dsl, tx, &dataset, &zap, &replaced).await?;
    }
    if let Some(head) = &redaction {
        phys.redaction = Some(redaction_list::create(dsl, tx, head).await?);
    }
    if let Some(source) = source {
        let snapshot = SnapshotBonus::load(&dsl.mos, source).await?.phys;
        bookmark_space::begin(dsl, &mut phys, &snapshot).await?;
    }
    for (feature, is_needed) in [(Feature::BookmarkWritten, phys.has_freed()), (Feature::BookmarkV2, phys.is_long())] {
        if is_needed {
            dsl.features.adjust(tx, feature, 1).await?;
            dsl.dirty_config();
        }
    }
    zap.add(tx, name.as_bytes(), &phys.encode()).await?;
    dataset.followed.lock().note(name.as_bytes(), &phys);
    dataset.book_by_history();
    let text = format!("{full_name} ({}) creation_txg={}", dataset.object, phys.creation_txg);
    history::append_event(dsl, tx, "bookmark", &text).await?;
    Ok(phys.redaction)
}

/// Removes bookmarks of snapshots later than group `txg`, as the data set goes back to what it was then: what comes
/// after it would be taken to build on them. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn remove_newer(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset, txg: Txg) -> platter_zio::Result<()> {
    let Some(zap) = names(&dsl.mos, dataset.object).await? else { return Ok(()) };
    for entry in zap.all().await? {
        let Some(bookmark) = decode(&entry.name, &entry.value) else { continue };
        if bookmark.phys.creation_txg > txg {
            remove(dsl, tx, dataset, &zap, &bookmark).await?;
            let text = format!("{} ({})", bookmark.name, dataset.object);
            history::append_event(dsl, tx, "remove bookmark", &text).await?;
        }
    }
    Ok(())
}

/// Removes a data set's bookmarks with it. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn remove_all(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset) -> platter_zio::Result<()> {
    let Some(zap) = names(&dsl.mos, dataset.object).await? else { return Ok(()) };
    for entry in zap.all().await? {
        let Some(bookmark) = decode(&entry.name, &entry.value) else { continue };
        if bookmark.phys.has_freed() {
            // Its deadlist goes as a whole, and nobody was cloned from it.
            dsl.features.adjust(tx, Feature::BookmarkWritten, -1).await?;
        }
        release(dsl, tx, &bookmark).await?;
    }
    dsl.features.adjust(tx, Feature::Bookmarks, -1).await?;
    dsl.mos.free_object(tx, zap.dnode().object()).await
}

impl DslPool {
    /// A data set's bookmarks, the oldest first.
    ///
    /// # Errors
    /// It does not exist; damage, unreadable blocks.
    pub async fn bookmarks(&self, dataset: &str) -> Result<Vec<Bookmark>> {
        let head = self.find(dataset)?;
        let Some(zap) = names(&self.mos, head.object).await? else { return Ok(Vec::new()) };
        let mut all: Vec<Bookmark> =
            zap.all().await?.iter().filter_map(|entry| decode(&entry.name, &entry.value)).collect();
        all.sort_by(|a, b| (a.phys.creation_txg, &a.name).cmp(&(b.phys.creation_txg, &b.name)));
        Ok(all)
    }

    /// Full name of the bookmark of the snapshot of this guid of `dataset`.
    ///
    /// # Errors
    /// It does not exist; damage, unreadable blocks.
    pub async fn bookmark_by_guid(&self, dataset: &str, guid: Guid) -> Result<Option<String>> {
        let all = self.bookmarks(dataset).await?;
        Ok(all.into_iter().find(|bookmark| bookmark.phys.guid == guid).map(|found| format!("{dataset}#{}", found.name)))
    }

    /// Full name of the redaction bookmark of the snapshot of this guid of `dataset`, for the sake of these others.
    ///
    /// # Errors
    /// It does not exist; damage, unreadable blocks.
    pub async fn redaction_bookmark(&self, dataset: &str, guid: Guid, snaps: &[Guid]) -> Result<Option<String>> {
        for bookmark in self.bookmarks(dataset).await? {
            let Some(list) = bookmark.phys.redaction.filter(|_| bookmark.phys.guid == guid) else { continue };
            let head = redaction_list::load(&self.mos, list).await?;
            let same = |of: &[Guid], as_in: &[Guid]| of.iter().all(|guid| as_in.contains(guid));
            if head.is_complete() && same(&head.snaps, snaps) && same(snaps, &head.snaps) {
                return Ok(Some(format!("{dataset}#{}", bookmark.name)));
            }
        }
        Ok(None)
    }

    /// What `zfs list` and `zfs get` are told about one bookmark, by full name.
    ///
    /// # Errors
    /// Its data set does not exist; damage, unreadable blocks; the pool is suspended.
    pub async fn bookmark_report(&self, full_name: &str) -> Result<Option<DatasetReport>> {
        let (dataset, name) = full_name.split_once('#').unwrap_or((full_name, ""));
        self.unless_suspended(async {
            match self.bookmarks(dataset).await?.into_iter().find(|bookmark| bookmark.name == name) {
                Some(bookmark) => Ok(Some(self.report_of(dataset, &bookmark).await?)),
                None => Ok(None),
            }
        })
        .await
    }

    async fn report_of(&self, dataset: &str, bookmark: &Bookmark) -> Result<DatasetReport> {
        let head = match bookmark.phys.redaction {
            Some(list) => Some(redaction_list::load(&self.mos, list).await?),
            None => None,
        };
        Ok(bookmark.report(dataset, head.as_ref()))
    }

    /// The bookmarks of all data sets, or of `under` and those below it; of each the oldest first.
    ///
    /// # Errors
    /// Damage in the MOS, unreadable blocks; the pool is suspended.
    pub async fn bookmark_reports(&self, under: Option<&str>) -> Result<Vec<DatasetReport>> {
        let among = |name: &str| under.is_none_or(|under| names::is_at_or_below(name, under));
        let names: Vec<String> = self.tree.read().datasets.keys().filter(|name| among(name)).cloned().collect();
        self.unless_suspended(async {
            let mut reports = Vec::new();
            for dataset in names {
                for bookmark in self.bookmarks(&dataset).await? {
                    reports.push(self.report_of(&dataset, &bookmark).await?);
                }
            }
            Ok(reports)
        })
        .await
    }

    /// `zfs bookmark`.
    ///
    /// # Errors
    /// The source does not exist, or is not before; the bookmark exists; the pool is too old, read-only or stopped.
    pub async fn create_bookmark(self: &Arc<Self>, source: &str, full_name: &str) -> Result<()> {
        let (source, wanted, made) = (source.to_owned(), full_name.to_owned(), full_name.to_owned());
        let check = async move |dsl: Arc<Self>| check(&dsl, &source, &wanted, None).await;
        let make = async move |dsl: Arc<Self>, tx: Tx, plan: Plan| Ok(make(&dsl, &tx, &made, plan).await?);
        self.checked_task(check, make).await.map(drop)
    }

    /// Makes a redaction bookmark whose list is empty yet; the list.
    ///
    /// # Errors
    /// As [`create_bookmark`](Self::create_bookmark).
    pub(crate) async fn create_redaction(
        self: &Arc<Self>,
        source: &str,
        full_name: &str,
        head: RedactionHead,
    ) -> Result<ObjectId> {
        let (source, wanted, made) = (source.to_owned(), full_name.to_owned(), full_name.to_owned());
        let check = async move |dsl: Arc<Self>| check(&dsl, &source, &wanted, Some(head)).await;
        let make = async move |dsl: Arc<Self>, tx: Tx, plan: Plan| Ok(make(&dsl, &tx, &made, plan).await?);
        let list = self.checked_task(check, make).await?;
        list.ok_or_else(|| PoolError::invalid("it has no list"))
    }

    /// `zfs destroy` of a bookmark.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; damage.
    pub async fn destroy_bookmark(self: &Arc<Self>, full_name: &str) -> Result<()> {
        let (wanted, gone) = (full_name.to_owned(), full_name.to_owned());
        let check = async move |dsl: Arc<Self>| {
            let absent = || PoolError::NotFound("dataset does not exist".into());
            let (dataset, name) = wanted.split_once('#').ok_or_else(absent)?;
            let dataset = dsl.find(dataset)?;
            let found = lookup(&dsl.mos, &dataset, name).await?.ok_or_else(absent)?;
            if found.phys.redaction.is_some_and(|list| dsl.in_use.has(list)) {
                return Err(PoolError::Busy("dataset is busy".into()));
            }
            Ok((dataset, found))
        };
        let destroy = async move |dsl: Arc<Self>, tx: Tx, (dataset, found): (Arc<Dataset>, Bookmark)| {
            if let Some(zap) = names(&dsl.mos, dataset.object).await? {
                remove(&dsl, &tx, &dataset, &zap, &found).await?;
            }
            let text = format!("{gone} ({})", dataset.object);
            history::append_event(&dsl, &tx, "remove bookmark", &text).await?;
            Ok(())
        };
        self.checked_task(check, destroy).await
    }
}
