//! `zfs hold`, `zfs release`: tags that keep a snapshot from being destroyed (`module/zfs/dsl_userhold.c`).
//!
//! Invariants: a tag is on a snapshot once; the map of tags is made with the first one and stays for the snapshot's
//! life; a snapshot that waits to be destroyed goes with its last tag, when it has no clone.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::{ObjectId, ObjectType};

use crate::destroy_snapshot;
use crate::error::{PoolError, Result};
use crate::named_snapshot::{NamedSnapshot, find};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::take_snapshot::{Refusals, Verdict};
use crate::{history, mos, space, temporary_map};

/// Longest tag in bytes (`MAXNAMELEN`).
const TAG_MAX: usize = 256;

/// How many tags are in the map `object`, which may be none (`userrefs`).
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn count(os: &Arc<Objset>, object: ObjectId) -> platter_dmu::Result<u64> {
    if object.is_some() { Zap::open(os, object).await?.count().await } else { Ok(0) }
}

/// Tags, with when they were set in seconds since the epoch.
pub(crate) async fn tags(os: &Arc<Objset>, object: ObjectId) -> Result<BTreeMap<String, u64>> {
    let mut tags = BTreeMap::new();
    if object.is_some() {
        for entry in Zap::open(os, object).await?.all().await? {
            let time = entry.value.integers.first().copied().unwrap_or(0);
            tags.insert(String::from_utf8_lossy(&entry.name).into_owned(), time);
        }
    }
    Ok(tags)
}

/// A snapshot, and how many tags it had.
pub(crate) struct Held {
    pub snapshot: NamedSnapshot,
    pub before: u64,
}

/// How long a tag is meant to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until somebody takes it away.
    Lasting,
    /// As long as the pool is imported ([`temporary_map`]).
    Temporary,
}

/// Looks up those that are there, and asks each whether `tag` may be set, or taken away.
async fn check(
    dsl: &DslPool,
    names: &[String],
    refuse: impl Fn(&BTreeMap<String, u64>) -> Option<PoolError>,
) -> Result<Verdict<Vec<Held>>> {
    if !dsl.version().has_holds() {
        return Err(PoolError::Unsupported("pool must be upgraded".into()));
    }
    let (mut found, mut refusals) = (Vec::new(), Refusals::new());
    for name in names {
        let Some(snapshot) = find(dsl, name).await? else { continue };
        let phys = SnapshotBonus::load(&dsl.mos, snapshot.object).await?.phys;
        let tags = tags(&dsl.mos, phys.userrefs_obj).await?;
        match refuse(&tags) {
            Some(reason) => refusals.push((name.clone(), reason)),
            None => found.push(Held { snapshot, before: tags.len() as u64 }),
        }
    }
    Ok(if refusals.is_empty() { Verdict::Fine(found) } else { Verdict::Refused(refusals) })
}

/// Sets `tag` on these. Within a task.
pub(crate) async fn hold(dsl: &Arc<DslPool>, tx: &Tx, tag: &str, snapshots: &[Held], lifetime: Lifetime) -> Result<()> {
    let temp = u8::from(lifetime == Lifetime::Temporary);
    let now = dsl.now();
    for Held { snapshot, before } in snapshots {
        let mut bonus = SnapshotBonus::load(&dsl.mos, snapshot.object).await?;
        if !bonus.phys.userrefs_obj.is_some() {
            bonus.phys.userrefs_obj = mos::create_zap(&dsl.mos, tx, ObjectType::USERREFS, dsl.random()).await?;
            bonus.store(tx)?;
        }
        Zap::open(&dsl.mos, bonus.phys.userrefs_obj).await?.add_u64(tx, tag.as_bytes(), now).await?;
        let name = &snapshot.full_name;
        let text = format!("{name} ({}) tag={tag} temp={temp} refs={}", snapshot.object, before.saturating_add(1));
        history::append_event(dsl, tx, "hold", &text).await?;
    }
    Ok(())
}

/// Whether a snapshot goes with its last tag.
fn goes_with_tag(phys: &DslDatasetPhys, tags: u64) -> bool {
    phys.flags & dataset_flags::DEFER_DESTROY != 0 && tags <= 1 && phys.num_children <= 1
}

/// Whether one that goes with its last tag can: nobody reads it (`dsl_dataset_user_release_check_one`).
pub(crate) async fn check_release(dsl: &DslPool, held: &Held) -> Result<()> {
    let phys = SnapshotBonus::load(&dsl.mos, held.snapshot.object).await?.phys;
    if !goes_with_tag(&phys, held.before) {
        return Ok(());
    }
    if dsl.in_use.has(held.snapshot.object) {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    Ok(destroy_snapshot::check(dsl, &held.snapshot).await?)
}

/// Takes `tag` away from these, which [`check_release`] found possible; those that waited for that are destroyed.
/// Within a task.
pub(crate) async fn release(dsl: &Arc<DslPool>, tx: &Tx, tag: &str, snapshots: &[Held]) -> Result<()> {
    for Held { snapshot, before } in snapshots {
        let bonus = SnapshotBonus::load(&dsl.mos, snapshot.object).await?;
        let phys = &bonus.phys;
        Zap::open(&dsl.mos, phys.userrefs_obj).await?.remove(tx, tag.as_bytes()).await?;
        temporary_map::forget(dsl, tx, snapshot.object, tag).await?;
        let left = before.saturating_sub(1);
        let text = format!("{} ({}) tag={tag} refs={left}", snapshot.full_name, snapshot.object);
        history::append_event(dsl, tx, "release", &text).await?;
        if goes_with_tag(phys, *before) {
            destroy_snapshot::destroy(dsl, tx, snapshot).await?;
        }
    }
    Ok(())
}

impl DslPool {
    /// `zfs hold` of these snapshots, by full name, as far as they are there, all or none. Returned are the names that
    /// stand in the way, with the reasons.
    ///
    /// # Errors
    /// None of them is there; the pool is too old, read-only or stopped; damage.
    pub async fn hold_snapshots(self: &Arc<Self>, names: &[String], tag: &str) -> Result<Refusals> {
        let (names, tag) = (names.to_vec(), tag.to_owned());
        let wanted = tag.clone();
        let check = async move |dsl: Arc<Self>| {
            space::check_task(&dsl)?;
            check(&dsl, &names, |tags| {
                let reason = match tags.contains_key(&wanted) {
                    _ if wanted.len() > TAG_MAX => "tag too long",
                    true => "tag already exists on this dataset",
                    false => return None,
                };
                Some(PoolError::invalid(reason))
            })
            .await
        };
        let change = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<Held>>| match verdict {
            Verdict::Fine(found) if found.is_empty() => Err(PoolError::NotFound("dataset does not exist".into())),
            Verdict::Fine(found) => hold(&dsl, &tx, &tag, &found, Lifetime::Lasting).await.map(|()| Refusals::new()),
            Verdict::Refused(refusals) => Ok(refusals),
            Verdict::Later => Ok(Refusals::new()),
        };
        self.checked_task(check, change).await
    }

    /// `zfs release` of these snapshots, by full name, as far as they have the tag. Returned are the names that stand
    /// in the way, with the reasons.
    ///
    /// # Errors
    /// None of them is there; the pool is too old, read-only or stopped; damage.
    pub async fn release_snapshots(self: &Arc<Self>, names: &[String], tag: &str) -> Result<Refusals> {
        let (names, tag) = (names.to_vec(), tag.to_owned());
        let wanted = tag.clone();
        let check = async move |dsl: Arc<Self>| {
            let missing = || Some(PoolError::invalid("no such tag on this dataset"));
            let verdict = check(&dsl, &names, |tags| if tags.contains_key(&wanted) { None } else { missing() }).await?;
            let Verdict::Fine(found) = verdict else { return Ok(verdict) };
            let mut refusals = Refusals::new();
            for held in &found {
                match check_release(&dsl, held).await {
                    Ok(()) => {}
                    Err(error @ PoolError::Engine(_)) => return Err(error),
                    Err(error) => refusals.push((held.snapshot.full_name.clone(), error)),
                }
            }
            Ok(if refusals.is_empty() { Verdict::Fine(found) } else { Verdict::Refused(refusals) })
        };
        let change = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<Held>>| match verdict {
            Verdict::Fine(found) if found.is_empty() => Err(PoolError::NotFound("dataset does not exist".into())),
            Verdict::Fine(found) => release(&dsl, &tx, &tag, &found).await.map(|()| Refusals::new()),
            Verdict::Refused(refusals) => Ok(refusals),
            Verdict::Later => Ok(Refusals::new()),
        };
        self.checked_task(check, change).await
    }

    /// The tags on a snapshot, with when they were set in seconds since the epoch.
    ///
    /// # Errors
    /// It does not exist; damage, unreadable blocks.
    pub async fn holds(&self, full_name: &str) -> Result<BTreeMap<String, u64>> {
        let found = find(self, full_name).await?;
        let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
        let phys = SnapshotBonus::load(&self.mos, found.object).await?.phys;
        tags(&self.mos, phys.userrefs_obj).await
    }
}
