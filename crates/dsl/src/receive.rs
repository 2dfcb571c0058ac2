//! `zfs receive`: a stream becomes a snapshot (`dmu_recv_stream`, `dmu_recv_end`, `module/zfs/dmu_recv.c`).
//!
//! ```text
//! begin:  a data set that nobody sees but as unfinished ─► records fill it, in open groups ─► end: one task makes it
//!         visible, as the target or in its place, and takes the snapshot with the stream's guid
//! ```
//! What breaks off before the end leaves the target as it was: the unfinished data set is destroyed, then, or when the
//! pool is opened after a crash; or, when it is resumable, kept with how far it has come.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::Txg;
use platter_ondisk::dsl::dataset_flags;
use platter_stream::{Parser, RECORD_SIZE, StreamFeatures};
use platter_zio::{Phase, ZioError};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::receive_begin::{Begun, ReceiveRequest, bad_stream, check_features, check_new, make_new};
use crate::receive_records::Filling;
use crate::resume_state::RECEIVING;
use crate::stream_ends::StreamSource;
use crate::stream_records::Records;
use crate::take_snapshot::{self, Site, must_wait};
use crate::{destroy, history, intent, receive_existing, redacted, resume_state, watched};

/// What a finished receive comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream, as far as this call took them in.
    pub bytes: u64,
    /// Whether the target is new.
    pub is_new: bool,
}

/// How a receive failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: PoolError,
    /// Where it can go on, when what was received is kept.
    pub token: Option<String>,
}

/// Takes records in until the last.
async fn take_in(filling: &mut Filling, records: &mut Records<'_>, before: u64, bytes: &mut u64) -> Result<()> {
    let begun = *bytes;
    while let Some((record, contents)) = records.next().await? {
        *bytes = begun + records.bytes();
        filling.apply(&record, contents, before + *bytes).await?;
    }
    *bytes = begun + records.bytes();
    Ok(())
}

/// The data set in which a receive was broken off that `request` resumes.
async fn check_resumed(dsl: &DslPool, request: &ReceiveRequest) -> Result<Begun> {
    check_features(dsl, &request.begin)?;
    let below = format!("{}/{RECEIVING}", request.target);
    let (dataset, is_new) = match dsl.find(&below) {
        Ok(dataset) => (dataset, false),
        Err(_) => (dsl.find(&request.target)?, true),
    };
    let inconsistent = dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0;
    let token = resume_state::token(dsl, &dataset).await?;
    let Some(token) = token.filter(|_| inconsistent) else { return Err(bad_stream()) };
    if dataset.open_objset().is_some() {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    let begin = &request.begin;
    let number = |name: &str| request.list.as_ref().and_then(|list| list.get_u64(name));
    let fits = token.to_guid == begin.to_guid
        && token.from_guid.unwrap_or_default() == begin.from_guid
        && number("resume_object") == Some(token.object.0)
        && number("resume_offset") == Some(token.offset);
    if !fits {
        return Err(bad_stream());
    }
    Ok(Begun { dataset, is_new, is_resumed: true, bytes: token.bytes })
}

impl DslPool {
    /// Begins a receive: makes the data set that it fills, or opens the one in which it was broken off.
    ///
    /// # Errors
    /// It exists, or does not; what the stream asks for is not there; limits, space; damage.
    pub async fn begin_receive(self: &Arc<Self>, request: &ReceiveRequest) -> Result<Begun> {
        let below = format!("{}/{RECEIVING}", request.target);
        let resumes = request.begin.features.has(StreamFeatures::RESUMING);
        let is_new = self.find(&request.target).is_err() || resumes && self.find(&below).is_err();
        let begun = self.begin_at_once(request).await;
        // What was refused before has begun nothing: what lies there is another receive's.
        if matches!(begun, Err(PoolError::Suspended { is_begun: true, .. })) {
            let name = if is_new { request.target.clone() } else { below };
            self.clean_up_later(name, request.resumable || resumes);
        }
        begun
    }

    /// What a receive has begun that was told of the pool's suspension comes into being when the pool goes on, and
    /// nobody is there any more who would fill it: it is closed then, and destroyed unless it is to be kept.
    fn clean_up_later(self: &Arc<Self>, name: String, is_kept: bool) {
        let dsl = self.clone();
        watched::spawn(self, "the end of a receive", async move {
            if !matches!(dsl.store.suspension().resumed().await, Phase::Running) {
                return;
            }
            // Its task, if there is one, is in this group at the latest.
            let _ = dsl.wait_synced(dsl.gate.open_txg()).await;
            let is_unfinished = |dataset: Arc<Dataset>| dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0;
            if !dsl.find(&name).is_ok_and(is_unfinished) {
                return;
            }
            let mut ended = dsl.close_filesystem(&name).await;
            if ended.is_ok() && !is_kept {
                ended = dsl.destroy_unfinished(&name).await;
            }
            if let Err(error) = ended {
                tracing::warn!(dataset = name, %error, "what was received in part stays until the next import");
            }
        });
    }

    async fn begin_at_once(self: &Arc<Self>, request: &ReceiveRequest) -> Result<Begun> {
        let request = request.clone();
        let says_what = redacted::listed(request.list.as_ref(), redacted::SNAPS).is_some();
        if request.begin.features.has(StreamFeatures::REDACTED) && !says_what {
            return Err(bad_stream());
        }
        if request.begin.features.has(StreamFeatures::RESUMING) {
            let check = async move |dsl: Arc<Self>| check_resumed(&dsl, &request).await;
            let open = async move |dsl: Arc<Self>, tx: Tx, begun: Begun| {
                let os = intent::open(&dsl, &begun.dataset).await?;
                {
                    let mut open = begun.dataset.objset.lock();
                    // `zfs send -S` sends it.
                    if dsl.in_use.has(begun.dataset.object) {
                        return Err(PoolError::Busy("dataset is busy".into()));
                    }
                    assert!(open.is_none(), "it was checked that nobody has it open");
                    *open = Some(os);
                }
                let text = format!("({})", begun.dataset.object);
                history::append_event(&dsl, &tx, "resume receive", &text).await?;
                Ok(begun)
            };
            return self.checked_task(check, open).await;
        }
        if self.find(&request.target).is_ok() || request.origin.is_some() {
            return receive_existing::begin(self, request).await;
        }
        let asked = request.clone();
        let check = async move |dsl: Arc<Self>| check_new(&dsl, &asked).await;
        let make = async move |dsl: Arc<Self>, tx: Tx, site| make_new(&dsl, &tx, &request, site).await;
        self.checked_task(check, make).await
    }

    /// Takes in the rest of a stream whose beginning `request` has, from `source`, into what
    /// [`begin_receive`](Self::begin_receive) made; the bytes of it. Then it is for
    /// [`finish_receive`](Self::finish_receive) to make it visible.
    ///
    /// # Errors
    /// See [`Failed`]: the target is as it was, and nothing of it is open.
    pub async fn take_stream(
        self: &Arc<Self>,
        request: &ReceiveRequest,
        begun: &Begun,
        parser: Parser,
        source: &mut dyn StreamSource,
    ) -> std::result::Result<u64, Failed> {
        let mut bytes = RECORD_SIZE as u64 + u64::from(request.begin.list_length);
        let Some(os) = begun.dataset.open_objset() else {
            let error = PoolError::Engine(ZioError::corrupt("receive", "it was closed meanwhile"));
            return Err(Failed { error, token: None });
        };
        let resumable = request.resumable || begun.is_resumed;
        let (begin, swapped) = (&request.begin, parser.is_swapped());
        let mut filling = Filling::new(self, &begun.dataset, os, begin, swapped, resumable);
        let taken = take_in(&mut filling, &mut Records::new(parser, source), begun.bytes, &mut bytes).await;
        drop(filling);
        match taken {
            Ok(()) => Ok(bytes),
            Err(error) => Err(self.fail_receive(request, begun, error).await),
        }
    }

    /// Makes what was taken in visible: the target is closed.
    ///
    /// # Errors
    /// See [`Failed`]: the target is as it was, and nothing of it is open.
    pub async fn finish_receive(
        self: &Arc<Self>,
        request: &ReceiveRequest,
        begun: &Begun,
        bytes: u64,
    ) -> std::result::Result<Received, Failed> {
        match self.finish(request, begun).await {
            Ok(()) => Ok(Received { bytes, is_new: begun.is_new }),
            Err(error) => Err(self.fail_receive(request, begun, error).await),
        }
    }

    /// Makes what was received visible.
    async fn finish(self: &Arc<Self>, request: &ReceiveRequest, begun: &Begun) -> Result<()> {
        let _closed = match self.find(&request.target) {
            Ok(target) => Some(self.keep_closed(&target).await?),
            Err(_) => None,
        };
        loop {
            // What was written is on disk with its group.
            self.sync().await?;
            let (asked, what) = (request.clone(), begun.clone());
            let (made, of) = (request.clone(), begun.clone());
            let check = async move |dsl: Arc<Self>, txg: Txg| check_end(&dsl, &asked, &what, txg).await;
            let end = async move |dsl: Arc<Self>, tx: Tx, site: Option<Site>| match site {
                Some(site) => end(&dsl, &tx, &made, &of, site).await.map(|()| true),
                None => Ok(false),
            };
            if self.checked_task_in_group(check, end).await? {
                return Ok(());
            }
        }
    }

    /// Removes what a receive that failed with `error` has made, or keeps it.
    pub async fn fail_receive(self: &Arc<Self>, request: &ReceiveRequest, begun: &Begun, error: PoolError) -> Failed {
        let Some(name) = self.name_of(begun.dataset.object) else { return Failed { error, token: None } };
        if self.check_running().is_err() {
            self.clean_up_later(name, request.resumable || begun.is_resumed);
            return Failed { error, token: None };
        }
        if let Err(also) = self.close_filesystem(&name).await {
            tracing::warn!(dataset = name, error = %also, "what was received in part stays until the next import");
            return Failed { error, token: None };
        }
        if request.resumable || begun.is_resumed {
            let token = resume_state::token(self, &begun.dataset).await.ok().flatten();
            return Failed { error, token: token.map(|token| token.encode()) };
        }
        if let Err(also) = self.destroy_unfinished(&name).await {
            tracing::warn!(dataset = name, error = %also, "what was received in part stays until the next import");
        }
        Failed { error, token: None }
    }

    /// Destroys a closed data set that a receive has not finished.
    ///
    /// # Errors
    /// It is none, or open; device errors, damage.
    pub async fn destroy_unfinished(self: &Arc<Self>, name: &str) -> Result<()> {
        let unfinished = self.find(name)?;
        let _closed = self.keep_closed(&unfinished).await?;
        let (doomed, gone) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| {
            let dataset = dsl.find(&doomed)?;
            let unfinished = dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0;
            if !unfinished || dataset.open_objset().is_some() {
                return Err(PoolError::Busy("dataset is busy".into()));
            }
            destroy::check(&dsl, &dataset).await?;
            Ok(dataset)
        };
        let destroy = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            Ok(receive_existing::remove(&dsl, &tx, &gone, &dataset).await?)
        };
        self.checked_task(check, destroy).await
    }

    /// Destroys what receives that a crash ended have left, but for what can go on (`dsl_destroy_inconsistent`).
    ///
    /// # Errors
    /// Device errors, damage; the pool is read-only.
    pub async fn clean_up_receives(self: &Arc<Self>) -> Result<()> {
        let unfinished = |dataset: &Dataset| dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0;
        let found: Vec<(String, Arc<Dataset>)> = {
            let tree = self.tree.read();
            let all = tree.datasets.iter().filter(|(_, dataset)| unfinished(dataset));
            all.map(|(name, dataset)| (name.clone(), dataset.clone())).collect()
        };
        for (name, dataset) in found {
            let origin = dataset.dir.phys.lock().origin_obj;
            let has_snapshots = dataset.phys.lock().prev_snap_obj != origin;
            if has_snapshots || dataset.open_objset().is_some() || resume_state::token(self, &dataset).await?.is_some()
            {
                continue;
            }
            tracing::info!(pool = self.name(), dataset = name, "what was received in part is destroyed");
            self.destroy_unfinished(&name).await?;
        }
        Ok(())
    }

    /// Where the receive into `name` goes on that was broken off.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn resume_token(&self, name: &str) -> Result<Option<String>> {
        let dataset = self.find(name)?;
        Ok(resume_state::token_for(self, name, &dataset).await?.map(|token| token.encode()))
    }
}

/// Whether the receive can be finished; `None` when not in this group.
async fn check_end(dsl: &DslPool, request: &ReceiveRequest, begun: &Begun, txg: Txg) -> Result<Option<Site>> {
    let target = match begun.is_new {
        true => begun.dataset.clone(),
        false => dsl.find(&request.target)?,
    };
    if must_wait(&begun.dataset, txg) || must_wait(&target, txg) {
        return Ok(None);
    }
    let name = dsl.name_of(target.object).unwrap_or_else(|| request.target.clone());
    let (guid, time) = (request.begin.to_guid, request.begin.creation_time);
    let full_name = format!("{name}@{}", request.snapshot);
    let site = Site::of_received(&target, full_name, request.snapshot.clone(), guid, time);
    if let Some((_, reason)) = take_snapshot::check_received(dsl, &site).await?.into_iter().next() {
        return Err(reason);
    }
    if !begun.is_new {
        receive_existing::check_end(dsl, request, begun, &target).await?;
    }
    Ok(Some(site))
}

/// Finishes it. Within a task.
async fn end(dsl: &Arc<DslPool>, tx: &Tx, request: &ReceiveRequest, begun: &Begun, site: Site) -> Result<()> {
    let text = format!("{} ({}) snap={}", request.target, begun.dataset.object, request.snapshot);
    history::append_event(dsl, tx, "finish receiving", &text).await?;
    resume_state::end(dsl, tx, &begun.dataset).await?;
    if !begun.is_new {
        receive_existing::swap(dsl, tx, request, begun, &site).await?;
    }
    {
        let mut phys = site.head().phys.lock();
        phys.flags &= !dataset_flags::INCONSISTENT;
    }
    *site.head().contents.lock() = Contents::Unknown;
    take_snapshot::take(dsl, tx, &[site], &Default::default()).await?;
    if !begun.is_new {
        receive_existing::remove_clone(dsl, tx, begun).await?;
    }
    Ok(())
}
