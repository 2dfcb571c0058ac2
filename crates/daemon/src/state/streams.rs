//! `zfs receive`.
//!
//! A stream that runs holds no lock of its pool: what is received into is nobody's until it is finished. The lock is
//! held at its beginning and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::ask::Ask;
use platter_api::messages::{ErrorBody, ErrorKind, Outcome};
use platter_api::names::{is_below, split_snapshot};
use platter_api::snapshots::HoldSnapshot;
use platter_api::streams::{AbortReceive, ReceiveStream, ReceivedName, ReceivedPart, ReceivedStream};
use platter_dsl::receive::{Failed, Received};
use platter_dsl::receive_begin::{Begun, ReceiveRequest};
use platter_dsl::received_limits::Which;
use platter_dsl::resume_state::RECEIVING;
use platter_dsl::stream_ends::StreamSource;
use platter_dsl::stream_records::{Records, read_begin, read_next};
use platter_dsl::{DslPool, PoolError};
use platter_nvlist::NvList;
use platter_ondisk::{Guid, ObjsetType};
use platter_stream::{Begin, HeaderKind, Parser, StreamFeatures, begin_flags};

use super::mounts::{no_such_dataset, pool_of};
use super::replicated::Replica;
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::descriptors::Handed;
use crate::engine::PoolHandle;
use crate::mount_plan;
use crate::mounter::HowToMount;
use crate::pipe::Inlet;
use crate::secpolicy;

/// What stands in the stream is put behind the target's name (`zfs_receive_one`, `lib/libzfs/libzfs_sendrecv.c`).
fn received_name(call: &ReceiveStream, top: &str, sent_as: &str) -> Result<String, PoolError> {
    let target = &call.target;
    let bad = || PoolError::invalid("invalid backup stream");
    let (sent, own) = split_snapshot(sent_as).ok_or_else(bad)?;
    let below = sent.strip_prefix(top).ok_or_else(bad)?;
    let not_with =
        |option: &str| Err(PoolError::Invalid(format!("invalid argument - snapshot not allowed with {option}")));
    Ok(match call.named {
        ReceivedName::Tail if target.contains('@') => return not_with("-e"),
        ReceivedName::WithoutPool if target.contains('@') => return not_with("-d"),
        ReceivedName::Tail => format!("{target}/{}{below}@{own}", top.rsplit('/').next().unwrap_or(top)),
        ReceivedName::WithoutPool => match sent.split_once('/') {
            Some((_, rest)) => format!("{target}/{rest}@{own}"),
            None => format!("{target}@{own}"),
        },
        ReceivedName::Own if target.contains('@') => target.clone(),
        ReceivedName::Own => format!("{target}{below}@{own}"),
    })
}

/// Gives a target the limits that came with its stream; what does not fit is told.
async fn set_limits(
    dsl: &Arc<DslPool>,
    target: &str,
    (properties, without): (&NvList, &BTreeSet<String>),
    which: Which,
    problems: &mut Vec<String>,
) {
    match dsl.set_received_limits(target, properties, without, which).await {
        Ok(refused) => {
            let told = |(limit, why)| format!("cannot receive {limit} property on {target}: {why}");
            for problem in refused.into_iter().map(told) {
                // Of a new data set they are set twice, some at the beginning.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        Err(error) => problems.push(format!("cannot receive limits on {target}: {error}")),
    }
}

/// Reads the rest of a stream and leaves it.
async fn skip(parser: Parser, source: &mut dyn StreamSource) -> Result<u64, PoolError> {
    let mut records = Records::new(parser, source);
    while records.next().await?.is_some() {}
    Ok(records.bytes())
}

/// What a receive of this stream cannot do, in which words.
pub(super) fn attempt(begin: &Begin) -> &'static str {
    if begin.features.has(StreamFeatures::RESUMING) {
        "cannot receive resume stream"
    } else if begin.from_guid.0 == 0 {
        "cannot receive new filesystem stream"
    } else {
        "cannot receive incremental stream"
    }
}

/// The beginning of a stream with one snapshot.
struct Incoming<'a> {
    parser: Parser,
    begin: Begin,
    list: Option<NvList>,
    /// The data set that was sent, or the topmost of them.
    top: &'a str,
    /// The list of the package in which it is.
    package: Option<&'a NvList>,
}

/// One snapshot as it is received: with which properties, and for whom.
#[derive(Clone, Copy)]
struct One<'a> {
    request: &'a ReceiveRequest,
    properties: Option<&'a NvList>,
    asker: &'a Asker,
}

fn decoded(list: &[u8]) -> Result<Option<NvList>, PoolError> {
    match list.is_empty() {
        true => Ok(None),
        false => NvList::decode(list).map(Some).map_err(|_| PoolError::invalid("invalid backup stream")),
    }
}

/// Why nothing was received, and how it can go on.
fn not_received(what: &str, Failed { error, token }: Failed) -> ErrorBody {
    let text = error.to_string();
    match token.filter(|_| matches!(text.as_str(), "incomplete stream" | "checksum mismatch" | "interrupted")) {
        Some(token) => ErrorBody::new(format!(
            "{what}: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
             A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
        )),
        None => failed(what, error),
    }
}

/// The snapshot here of which what is received becomes a clone.
async fn origin_here(
    dsl: &DslPool,
    call: &ReceiveStream,
    begin: &Begin,
    name: &str,
) -> Result<Option<String>, PoolError> {
    if call.origin.is_some() || begin.flags & begin_flags::CLONE == 0 {
        return Ok(call.origin.clone());
    }
    let target = name.split('@').next().unwrap_or_default();
    let found = dsl.snapshot_by_guid(target, begin.from_guid).await?;
    let lost = || PoolError::Invalid(format!("local origin for clone {name} does not exist"));
    found.map(Some).ok_or_else(lost)
}

impl Daemon {
    /// The engine's own pool of a data set, which makes and takes streams.
    pub(super) fn streaming(&self, name: &str) -> Answer<(Arc<dyn PoolHandle>, Arc<DslPool>)> {
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let engine = pool.engine_pool().ok_or_else(|| ErrorBody::new("this pool has no streams"))?;
        let dsl = engine.dsl().clone();
        Ok((pool, dsl))
    }

    /// Closes what a guest has handed over and nobody has taken.
    pub fn let_go(&self, uid: u32, name: &str) {
        drop(self.descriptors.take(Some(uid), name));
    }

    pub(super) fn handed(&self, name: &str, asker: &Asker) -> Answer<Handed> {
        let lost = || ErrorBody::of_kind(ErrorKind::Lost, "the daemon does not have the stream's descriptor");
        let whose = match asker {
            Asker::Owner => None,
            Asker::Guest(guest) => Some(guest.uid),
        };
        self.descriptors.take(whose, name).ok_or_else(lost)
    }

    /// `zfs receive`.
    pub async fn receive_stream(&self, call: &ReceiveStream, asker: &Asker) -> Answer<ReceivedStream> {
        let handed = self.handed(&call.descriptor, asker)?;
        self.may_receive_at_all(call, asker).await?;
        self.check_named(call).await?;
        let running = self.streams.begin(pool_of(&call.target));
        let mut source = Inlet::new(handed, running.told());
        let cannot = |error| failed("cannot receive", error);
        let (parser, begin, list) = read_begin(&mut source).await.map_err(cannot)?;
        let mut answer = ReceivedStream::default();
        let top = begin.to_name.split('@').next().unwrap_or_default().to_owned();
        let mut call = call.clone();
        let list = decoded(&list).map_err(cannot)?;
        if begin.kind == HeaderKind::Substream {
            let stream = Incoming { parser, begin, list, top: &top, package: None };
            self.receive_part(&call, stream, &mut source, &mut answer, asker).await?;
            return Ok(answer);
        }
        let package = list.unwrap_or_default();
        if !package.contains("not_recursive") && call.target.contains('@') {
            let text = "cannot specify snapshot name for multi-snapshot stream";
            return Err(cannot(PoolError::invalid(text)));
        }
        skip(parser, &mut source).await.map_err(|_| cannot(PoolError::invalid("incorrect header checksum")))?;
        self.follow(&call, &package, &top, &mut answer, asker).await?;
        loop {
            let Some((parser, begin, list)) = read_next(&mut source).await.map_err(cannot)? else {
                self.follow(&call, &package, &top, &mut answer, asker).await?;
                return Ok(answer);
            };
            let list = decoded(&list).map_err(cannot)?;
            let stream = Incoming { parser, begin, list, top: &top, package: Some(&package) };
            self.receive_part(&call, stream, &mut source, &mut answer, asker).await?;
            // In the history once.
            call.command.clear();
        }
    }

    /// Refuses names in the call that are nothing's.
    async fn check_named(&self, call: &ReceiveStream) -> Answer<()> {
        let missing = |what: &str, name: &str| {
            let text = format!("cannot receive: specified {what} ({name}) does not exist");
            Err(ErrorBody::of_kind(ErrorKind::NotFound, text))
        };
        if call.named != ReceivedName::Own && !call.target.contains('@') {
            let is_there = self.streaming(&call.target).is_ok_and(|(_, dsl)| dsl.find(&call.target).is_ok());
            if !is_there {
                return missing("fs", &call.target);
            }
        }
        if let Some(origin) = &call.origin {
            let (_, dsl) = self.streaming(origin)?;
            if !matches!(dsl.snapshot_guid(origin).await, Ok(Some(_))) {
                return missing("origin fs", origin);
            }
        }
        Ok(())
    }

    /// Has what is here follow a recursive stream, before or after it is received.
    async fn follow(
        &self,
        call: &ReceiveStream,
        package: &NvList,
        top: &str,
        answer: &mut ReceivedStream,
        asker: &Asker,
    ) -> Answer<()> {
        if call.dry_run || package.contains("not_recursive") {
            return Ok(());
        }
        let cannot = |error| failed("cannot receive", error);
        let name = received_name(call, top, &format!("{top}@")).map_err(cannot)?;
        let name = name.trim_end_matches('@');
        let (_, dsl) = self.streaming(name)?;
        let named_as_sent = call.named != ReceivedName::Own;
        let followed = self.follow_replica(&dsl, package, name, (named_as_sent, call.force), asker).await;
        let is_done = followed.map_err(cannot)?;
        let left =
            format!("{name}: not everything could be renamed, promoted or destroyed as it was where it was sent");
        // Said once, of what is left at the end.
        answer.problems.retain(|problem| *problem != left);
        if !is_done {
            answer.problems.push(left);
        }
        Ok(())
    }

    /// One snapshot of a stream.
    async fn receive_part(
        &self,
        call: &ReceiveStream,
        stream: Incoming<'_>,
        source: &mut Inlet,
        answer: &mut ReceivedStream,
        asker: &Asker,
    ) -> Answer<()> {
        let cannot = |error| failed("cannot receive", error);
        let Incoming { parser, begin, list, top, package } = stream;
        let sent_as = begin.to_name.clone();
        let name = received_name(call, top, &sent_as).map_err(cannot)?;
        platter_api::names::check_snapshot(&name).map_err(|reason| cannot(PoolError::from(reason)))?;
        let incremental = begin.from_guid.0 != 0;
        let name = self.where_it_is(call, (&begin, top), name).await.map_err(cannot)?;
        let part = ReceivedPart { snapshot: name.clone(), sent_as, incremental, ..ReceivedPart::default() };
        if call.heal {
            answer.parts.push(self.heal_part(call, &begin, parser, source, part, asker).await?);
            return Ok(());
        }
        answer.parts.push(part);
        let at = answer.parts.len() - 1;
        let (_, dsl) = self.streaming(&name)?;
        let is_there = package.is_some()
            && dsl.snapshot_guid(&name).await.map_err(cannot)?.is_some_and(|guid| guid == begin.to_guid);
        if call.dry_run || is_there {
            let bytes = skip(parser, source).await.map_err(|error| failed(attempt(&begin), error))?;
            answer.parts[at].bytes = bytes;
            answer.parts[at].was_there = is_there;
            return Ok(());
        }
        let (target, own) = name.split_once('@').unwrap_or((&name, ""));
        // What is asked for holds for the topmost; those below inherit it.
        let (none, is_top) = (BTreeMap::new(), begin.to_name.split('@').next() == Some(top));
        let given = if is_top { &call.properties } else { &none };
        let existed = dsl.find(target).is_ok();
        let origin = origin_here(&dsl, call, &begin, &name).await.map_err(cannot)?;
        let mut properties =
            platter_api::properties::parse_all(given).map_err(|error| cannot(PoolError::from(error)))?;
        if !existed && begin.objset_type == ObjsetType::ZFS {
            self.distrust(asker, target, &mut properties).await;
        }
        let request = ReceiveRequest {
            target: target.to_owned(),
            snapshot: own.to_owned(),
            begin,
            list,
            origin,
            force: call.force,
            resumable: call.resumable,
            properties,
            creator: Some(asker.creator()),
        };
        self.distrust_existing(asker, &dsl, &request).await?;
        if call.named == ReceivedName::WithoutPool {
            self.make_parents(&dsl, call, target, asker).await?;
        }
        let (replica, guid) = (package.map(Replica::of), request.begin.to_guid);
        let properties = replica.as_ref().and_then(|replica| replica.properties(guid));
        let one = One { request: &request, properties, asker };
        let bytes = self.receive_one(call, one, parser, source, &mut answer.problems).await?;
        answer.parts[at].bytes = bytes;
        if existed {
            self.set_given(target, given, asker).await?;
        }
        if let Some(replica) = &replica {
            answer.problems.extend(self.finish_snapshot(&dsl, call, &name, (guid, replica), asker).await);
        }
        Ok(())
    }

    /// The name under which an incremental stream of a package goes on here. What could not be renamed yet, as where
    /// it belongs comes with this package, has its snapshots under another name (`zfs_receive_one`).
    async fn where_it_is(
        &self,
        call: &ReceiveStream,
        (begin, top): (&Begin, &str),
        name: String,
    ) -> Result<String, PoolError> {
        let (target, own) = name.split_once('@').unwrap_or((&name, ""));
        let is_top = begin.to_name.split('@').next() == Some(top);
        let is_clone = begin.flags & begin_flags::CLONE != 0;
        let Ok((_, dsl)) = self.streaming(target) else { return Ok(name) };
        if begin.from_guid.0 == 0 || is_clone || call.heal || is_top || dsl.find(target).is_ok() {
            return Ok(name);
        }
        let above = call.target.split('@').next().unwrap_or_default();
        let found = dsl.snapshot_by_guid(target, begin.from_guid).await?;
        let found = found.as_deref().and_then(|found| Some(found.split_once('@')?.0));
        Ok(found.filter(|found| is_below(found, above)).map_or_else(|| name.clone(), |found| format!("{found}@{own}")))
    }

    /// Heals a snapshot that is there with one of a stream.
    async fn heal_part(
        &self,
        call: &ReceiveStream,
        begin: &Begin,
        parser: Parser,
        source: &mut Inlet,
        mut part: ReceivedPart,
        asker: &Asker,
    ) -> Answer<ReceivedPart> {
        // It writes where others' blocks are, if only what was there: that is not delegated.
        if !asker.may_mount() {
            return Err(ErrorBody::of_kind(ErrorKind::Denied, "cannot receive: permission denied"));
        }
        let cannot = |error| failed(attempt(begin), error);
        let refused = |text: &str| Err(cannot(PoolError::invalid(text)));
        if call.force || call.resumable || call.unmounted || call.without_holds || call.named != ReceivedName::Own {
            return refused("corrective recv can not be used when combined with this flag");
        }
        part.healed = Some(0);
        let absent = || cannot(PoolError::invalid("corrective recv must specify an existing snapshot to heal"));
        let (pool, dsl) = self.streaming(&part.snapshot).map_err(|_| absent())?;
        match dsl.snapshot_guid(&part.snapshot).await.map_err(cannot)? {
            None => return Err(absent()),
            Some(guid) if guid != begin.to_guid => {
                return refused("local snapshot doesn't match the snapshot in the provided stream");
            }
            Some(_) if call.dry_run => {
                part.bytes = skip(parser, source).await.map_err(cannot)?;
                return Ok(part);
            }
            Some(_) => {}
        }
        let healed = dsl.heal_snapshot(&part.snapshot, begin, parser, source).await;
        let healed = healed.map_err(cannot)?;
        (part.bytes, part.healed) = (healed.bytes, Some(healed.healed));
        self.log(&pool, &call.command);
        Ok(part)
    }

    /// Gives a received snapshot its properties and tags; answers what cannot be set.
    async fn finish_snapshot(
        &self,
        dsl: &Arc<DslPool>,
        call: &ReceiveStream,
        name: &str,
        (guid, replica): (Guid, &Replica<'_>),
        asker: &Asker,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let may_set = self.lacking(asker, secpolicy::of_user_properties(name)).await.is_empty();
        if let Some(list) = replica.of_snapshot(guid, "snapprops").filter(|_| may_set)
            && let Err(error) = dsl.set_received_of_snapshot(name, list).await
        {
            problems.push(format!("cannot receive properties on {name}: {error}"));
        }
        let tags = replica.of_snapshot(guid, "snapholds").filter(|_| !call.without_holds);
        for (tag, _) in tags.into_iter().flat_map(NvList::iter) {
            let hold = HoldSnapshot { name: name.to_owned(), tag: tag.to_owned(), ..HoldSnapshot::default() };
            if let Err(refused) = self.permit_part(asker, &hold.operation()).await {
                problems.push(refused.message);
                continue;
            }
            let held = dsl.hold_snapshots(&[name.to_owned()], tag).await;
            let refusals = held.unwrap_or_else(|error| vec![(name.to_owned(), error)]);
            problems
                .extend(refusals.into_iter().map(|(name, error)| format!("cannot hold snapshot '{name}': {error}")));
        }
        problems
    }

    /// What is missing between the target of `zfs receive -d` and what is received.
    async fn make_parents(&self, dsl: &Arc<DslPool>, call: &ReceiveStream, name: &str, asker: &Asker) -> Answer<()> {
        let ends = name.match_indices('/').map(|(at, _)| at).filter(|at| *at > call.target.len());
        for end in ends {
            let parent = &name[..end];
            if dsl.find(parent).is_ok() {
                continue;
            }
            let _lock = self.turn(pool_of(parent), &format!("cannot create '{parent}'")).await?;
            let needs = secpolicy::of_receiving(parent, false, "receive");
            self.permit_asker(asker, &needs, &format!("cannot create '{parent}'")).await?;
            let made = dsl.create_dataset_of(parent, &Default::default(), Some(asker.creator())).await;
            made.map_err(|error| failed(&format!("cannot create '{parent}'"), error))?;
            dsl.close_filesystem(parent).await.map_err(|error| failed("cannot receive", error))?;
            if !call.unmounted {
                let _ = self.mount_dataset(parent, false, &HowToMount::default()).await;
            }
        }
        Ok(())
    }

    async fn receive_one(
        &self,
        call: &ReceiveStream,
        one: One<'_>,
        parser: Parser,
        source: &mut Inlet,
        problems: &mut Vec<String>,
    ) -> Answer<u64> {
        let One { request, properties, asker } = one;
        let (what, target) = (attempt(&request.begin), &request.target);
        let (pool, dsl) = self.streaming(target)?;
        let begun = self.begin_receive(&dsl, request, asker).await?;
        let before = dsl.received_properties(target).ok().filter(|_| properties.is_some() && !begun.is_new);
        let mut limits = None;
        if let Some(properties) = properties {
            let mut without: BTreeSet<String> = call.without.iter().cloned().collect();
            without.extend(call.properties.keys().cloned());
            for property in self.not_his_to_set(asker, target, properties).await {
                problems.push(format!("cannot receive {property} property on {target}: permission denied"));
                without.insert(property);
            }
            if let Err(error) = dsl.set_received(target, properties, &without).await {
                problems.push(format!("cannot receive properties on {target}: {error}"));
            }
            set_limits(
                &dsl,
                target,
                (properties, &without),
                if begun.is_new { Which::Beginning } else { Which::Loosened },
                problems,
            )
            .await;
            limits = Some((properties, without));
        }
        let taken = dsl.take_stream(request, &begun, parser, source).await;
        let _lock = self.locks.of(pool_of(target)).await;
        let received = match taken {
            Ok(bytes) if begun.is_new => dsl.finish_receive(request, &begun, bytes).await,
            Ok(bytes) => self.put_in_place(&pool, &dsl, one, (&begun, bytes), problems).await,
            Err(failed) => Err(failed),
        };
        if let (true, Some(before)) = (received.is_err(), before)
            && let Err(error) = dsl.restore_received(target, before).await
        {
            problems.push(format!("cannot restore properties of {target}: {error}"));
        }
        let received = received.map_err(|failed| not_received(what, failed))?;
        if let Some((properties, without)) = &limits {
            set_limits(&dsl, target, (properties, without), Which::All, problems).await;
        }
        self.log(&pool, &call.command);
        if received.is_new {
            dsl.close_filesystem(target).await.map_err(|error| failed(what, error))?;
            self.show_volumes(pool_of(target), false).await;
            if !call.unmounted
                && let Err(error) = self.mount_dataset(target, false, &HowToMount::default()).await
            {
                problems.push(error.message);
            }
        }
        Ok(received.bytes)
    }

    async fn begin_receive(&self, dsl: &Arc<DslPool>, request: &ReceiveRequest, asker: &Asker) -> Answer<Begun> {
        let (what, target) = (attempt(&request.begin), &request.target);
        let _lock = self.turn(pool_of(target), what).await?;
        self.may_receive(dsl, request, asker).await?;
        self.check_target(dsl, request).await.map_err(|error| failed(what, error))?;
        dsl.begin_receive(request).await.map_err(|error| match error {
            PoolError::NotFound(text) if text == "parent does not exist" => {
                let parent = target.rsplit_once('/').map_or("", |(parent, _)| parent);
                let text =
                    format!("cannot open '{parent}': dataset does not exist\n{what}: unable to restore to destination");
                ErrorBody::of_kind(ErrorKind::NotFound, text)
            }
            error => failed(what, error),
        })
    }

    /// What was received takes the place of a target that is there, and may be mounted: it is so again afterwards.
    /// Who has files of it open gets errors then, as they are others now.
    async fn put_in_place(
        &self,
        pool: &Arc<dyn PoolHandle>,
        dsl: &Arc<DslPool>,
        One { request, asker, .. }: One<'_>,
        (begun, bytes): (&Begun, u64),
        problems: &mut Vec<String>,
    ) -> Result<Received, Failed> {
        let target = &request.target;
        let again = self.as_mounted(&self.mounted_under(target));
        let names: Vec<String> = again.iter().map(|(name, _)| name.clone()).collect();
        let closed = async {
            let map = mount_plan::by_name(&self.reports(pool, "cannot receive").await?);
            if let Err(busy) = self.unmount_all_or_none(names.clone(), false, &map).await {
                // Nothing is taken away from others for a guest.
                if !asker.may_mount() {
                    return Err(busy);
                }
                self.unmount_all_or_none(names, true, &map).await?;
            }
            dsl.close_filesystem(target).await.map_err(|error| failed("cannot receive", error))?;
            Ok::<_, ErrorBody>(map)
        };
        let map = match closed.await {
            Ok(map) => map,
            Err(busy) => return Err(dsl.fail_receive(request, begun, PoolError::Busy(busy.message)).await),
        };
        let received = dsl.finish_receive(request, begun, bytes).await;
        problems.extend(self.mount_again(again, &map).await);
        received
    }

    /// Refuses a target that cannot take this stream, in the words of `zfs receive`.
    async fn check_target(&self, dsl: &Arc<DslPool>, request: &ReceiveRequest) -> Result<(), PoolError> {
        let name = &request.target;
        let is_full = request.begin.from_guid.0 == 0;
        let resuming = request.begin.features.has(StreamFeatures::RESUMING);
        if dsl.find(name).is_err() {
            let is_new = is_full || request.origin.is_some();
            return match is_new && name.contains('/') {
                true => Ok(()),
                false => Err(PoolError::NotFound(format!("destination '{name}' does not exist"))),
            };
        }
        // What goes on beside a target that is there takes its place in the end, as one that begins does.
        let goes_on = resuming && dsl.find(&format!("{name}/{RECEIVING}")).is_err();
        if !is_full || goes_on {
            return Ok(());
        }
        let exists = |text: String| Err(PoolError::Exists(text));
        if !request.force {
            return exists(format!("destination '{name}' exists\nmust specify -F to overwrite it"));
        }
        if let Some(first) = dsl.snapshot_names(name).await?.first() {
            return exists(format!("destination has snapshots (eg. {first})\nmust destroy them to overwrite it"));
        }
        Ok(())
    }

    /// `zfs receive -A`.
    pub async fn abort_receive(&self, call: &AbortReceive) -> Answer<Outcome> {
        let name = &call.target;
        let (pool, dsl) = self.streaming(name)?;
        let _lock = self.turn(pool_of(name), &format!("cannot destroy '{name}'")).await?;
        let below = format!("{name}/{RECEIVING}");
        let unfinished = if dsl.find(&below).is_ok() { &below } else { name };
        let token = dsl.resume_token(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        if token.is_none() {
            return Err(ErrorBody::new(format!("'{name}' does not have any resumable receive state to abort")));
        }
        let result = dsl.destroy_unfinished(unfinished).await;
        result.map_err(|error| failed(&format!("cannot destroy '{name}'"), error))?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_of_target_and_stream() {
        let name = |target: &str, named: ReceivedName, sent: &str| {
            let top = sent.split('@').next().unwrap_or_default().to_owned();
            let call = ReceiveStream { target: target.into(), named, ..ReceiveStream::default() };
            received_name(&call, &top, sent).map_err(|error| error.to_string())
        };
        use ReceivedName::{Own, Tail, WithoutPool};
        assert_eq!(name("b/x", Own, "a/f/g@s").unwrap(), "b/x@s");
        assert_eq!(name("b/x@t", Own, "a/f/g@s").unwrap(), "b/x@t");
        assert_eq!(name("b/x", WithoutPool, "a/f/g@s").unwrap(), "b/x/f/g@s");
        assert_eq!(name("b/x", WithoutPool, "a@s").unwrap(), "b/x@s");
        assert_eq!(name("b/x", Tail, "a/f/g@s").unwrap(), "b/x/g@s");
        assert_eq!(name("b/x", Tail, "a@s").unwrap(), "b/x/a@s");
        assert!(name("b/x@t", Tail, "a@s").unwrap_err().contains("not allowed with -e"));
        assert!(name("b", Own, "no snapshot").is_err());
        let below = |target: &str, named: ReceivedName| {
            let call = ReceiveStream { target: target.into(), named, ..ReceiveStream::default() };
            received_name(&call, "a/f", "a/f/g/h@s").unwrap()
        };
        assert_eq!(below("b/x", Own), "b/x/g/h@s");
        assert_eq!(below("b/x", Tail), "b/x/f/g/h@s");
        assert_eq!(below("b/x", WithoutPool), "b/x/f/g/h@s");
    }
}
