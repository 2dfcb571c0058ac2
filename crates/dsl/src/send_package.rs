//! Streams of several snapshots (`zfs send -I`, `-R`, `-p`): a list of data sets, snapshots and properties, then one
//! stream for each snapshot (`gather_nvlist`, `dump_filesystems`, `lib/libzfs/libzfs_sendrecv.c`).
//!
//! ```text
//! BEGIN (compound; list) END │ BEGIN … END │ BEGIN … END │ … │ END
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::names;
use platter_api::properties::{find, is_read_only, is_user};
use platter_nvlist::{NvList, Value};
use platter_ondisk::{Guid, ObjectId, ObjsetType, Txg};
use platter_stream::{Begin, Framer, HeaderKind, Record, StreamFeatures};

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::named_snapshot::in_order;
use crate::pool::DslPool;
use crate::send_since::missing;
use crate::snapshot::SnapshotBonus;
use crate::stored_property::{INHERIT, NEWER, RECEIVED, StoredProperty};
use crate::{holds, snapshot_properties, space};

/// What a package holds.
#[derive(Clone, Debug, Default)]
pub struct PackageRequest {
    /// The data set.
    pub dataset: String,
    /// Its snapshot up to which is sent.
    pub to: String,
    /// Its snapshot from which on.
    pub from: Option<String>,
    /// Those in between, too (`-I`).
    pub all_between: bool,
    /// From this snapshot of another data set on, by full name: the one that the data set is a clone of.
    pub from_origin: Option<String>,
    /// Data sets below, with all their snapshots up to there (`-R`).
    pub replicate: bool,
    /// Properties (`-p`).
    pub properties: bool,
    /// Properties as they were received alone (`-b`).
    pub backup: bool,
    /// Holds (`-h`).
    pub holds: bool,
    /// Data sets that are left out, with those below (`-X`).
    pub without: Vec<String>,
    /// Data sets that lack the snapshot are left out (`-s`).
    pub skip_missing: bool,
}

/// One stream of a package: full names of the snapshot and of the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The snapshot.
    pub snapshot: String,
    /// The one before.
    pub since: Option<String>,
}

impl Part {
    fn dataset(&self) -> &str {
        self.snapshot.split('@').next().unwrap_or_default()
    }
}

/// A package that can be sent.
pub struct Package {
    begin: Begin,
    list: Vec<u8>,
    /// Its streams, in order.
    pub parts: Vec<Part>,
    /// What is not in it although it was asked for, and why.
    pub left_out: LeftOut,
}

/// What a package does not have, in the words of `zfs send`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Data sets that are younger than the snapshot: nobody misses them.
    pub younger: Vec<String>,
    /// Data sets that lack the snapshot and were to be passed over (`-s`).
    pub lacking: Vec<String>,
    /// Data sets of which nothing can be sent: the command fails in the end.
    pub failed: Vec<String>,
}

impl Package {
    /// The bytes before the first stream.
    pub fn header(&self) -> Vec<u8> {
        let mut framer = Framer::new(Guid(0));
        let mut bytes = framer.frame(&Record::Begin(self.begin.clone()), &self.list).to_vec();
        bytes.extend_from_slice(&self.list);
        bytes.extend_from_slice(&framer.conclusion());
        bytes
    }

    /// The bytes after the last.
    pub fn end() -> Vec<u8> {
        Framer::package_end().to_vec()
    }
}

/// A data set's own properties; with `received`, only as they came with a stream (`send_iterate_prop`).
fn own_properties(stored: &BTreeMap<String, StoredProperty>, received: bool) -> NvList {
    let mut list = NvList::new();
    for (name, value) in stored {
        let plain = name.trim_end_matches(RECEIVED);
        let came = plain.len() != name.len();
        let masked = stored.contains_key(plain) || stored.contains_key(&format!("{plain}{INHERIT}"));
        if name.ends_with(INHERIT) || name.ends_with(NEWER) || received != came && (received || masked) {
            continue;
        }
        if !is_user(plain) && (find(plain).is_none() || is_read_only(plain)) {
            continue;
        }
        match value {
            StoredProperty::Number(number) => list.add_u64(plain, *number),
            StoredProperty::Text(text) => list.add_str(plain, text.clone()),
        };
    }
    list
}

/// What one data set contributes.
struct Gathered {
    guid: Guid,
    list: NvList,
    parts: Vec<Part>,
    /// The snapshot's guid below which those of data sets below are found.
    from_guid: Guid,
}

/// A data set of the package.
struct Member {
    name: String,
    dataset: Arc<Dataset>,
    /// Its snapshots, oldest first.
    snapshots: Vec<(String, SnapshotBonus)>,
    /// The group of the one up to which is sent.
    to_txg: Txg,
}

struct Gather<'a> {
    dsl: &'a DslPool,
    request: &'a PackageRequest,
    /// Snapshots of which a data set of the package was cloned: they are sent wherever they lie, or the clone would
    /// have nothing to begin from (`is_clone_origin`, `dump_filesystems`).
    origins: BTreeSet<ObjectId>,
}

impl Gather<'_> {
    async fn snapshot_lists(&self, name: &str, bonus: &SnapshotBonus) -> Result<(NvList, NvList)> {
        let stored = snapshot_properties::load(&self.dsl.mos, bonus.phys.props_obj).await?;
        let mut properties = own_properties(&stored, self.request.backup);
        properties = properties.into_iter().filter(|(name, _)| !space::is_limit(name)).collect();
        let mut held = NvList::new();
        if self.request.holds && bonus.phys.userrefs_obj.is_some() {
            for (tag, time) in self.dsl.holds(name).await? {
                held.add_u64(tag, time);
            }
        }
        debug_assert!(holds::count(&self.dsl.mos, bonus.phys.userrefs_obj).await? as usize >= held.len());
        Ok((properties, held))
    }

    /// Whether a snapshot's properties are in the list: those of what is sent.
    fn is_listed(&self, own: &str, has_from: bool, txg: Txg, from: Txg) -> bool {
        let request = self.request;
        if request.replicate {
            return true;
        }
        own == request.to || request.all_between && (!has_from || txg > from)
    }

    /// Whether a snapshot gets a stream of its own.
    fn is_sent(&self, own: &str, bonus: &SnapshotBonus, from: Option<Txg>) -> bool {
        let request = self.request;
        let is_origin = || request.replicate && self.origins.contains(&bonus.snapshot().object);
        let is_wanted = request.all_between || own == request.to || is_origin();
        is_wanted && from.is_none_or(|from| bonus.phys.creation_txg > from)
    }

    async fn dataset(&self, member: &Member, parent_from: Guid) -> Result<Gathered> {
        let Member { name, dataset, snapshots: all, to_txg } = member;
        let request = self.request;
        let from = request.from.as_ref().and_then(|from| all.iter().find(|(own, _)| own == from));
        if let (None, Some(from), false) = (&from, &request.from, request.replicate) {
            return Err(missing(&format!("{name}@{from}")));
        }
        let from_txg = from.map(|(_, bonus)| bonus.phys.creation_txg);
        let (mut snaps, mut snapprops, mut snapholds) = (NvList::new(), NvList::new(), NvList::new());
        let (mut parts, mut from_guid) = (Vec::new(), from.map(|(_, bonus)| bonus.phys.guid));
        let mut before = from.map(|(own, _)| format!("{name}@{own}"));
        let origin = dataset.dir.phys.lock().origin_obj;
        if before.is_none() && (request.replicate || request.from_origin.is_some()) {
            before = self.name_of_origin(origin).await?;
            if request.from_origin.is_some() && request.from_origin != before {
                return Err(PoolError::invalid("incremental source must be in same filesystem"));
            }
        }
        for (own, bonus) in all.iter().filter(|(_, bonus)| bonus.phys.creation_txg <= *to_txg) {
            let (txg, full_name) = (bonus.phys.creation_txg, format!("{name}@{own}"));
            if own == &request.to {
                from_guid.get_or_insert(bonus.phys.guid);
            }
            let is_from_there_on = txg >= from_txg.unwrap_or_default();
            if request.replicate || is_from_there_on && (request.all_between || *own == request.to) {
                snaps.add_u64(own.clone(), bonus.phys.guid.0);
            }
            if self.is_listed(own, from.is_some(), txg, from_txg.unwrap_or_default()) {
                let (properties, held) = self.snapshot_lists(&full_name, bonus).await?;
                snapprops.add_list(own.clone(), properties);
                if !held.is_empty() {
                    snapholds.add_list(own.clone(), held);
                }
            }
            if self.is_sent(own, bonus, from_txg) {
                parts.push(Part { snapshot: full_name.clone(), since: before.replace(full_name) });
            }
        }
        let mut list = NvList::new();
        list.add_str("name", name).add_u64("parentfromsnap", parent_from.0);
        if origin.is_some() && Some(origin) != self.pool_origin() {
            list.add_u64("origin", SnapshotBonus::load(&self.dsl.mos, origin).await?.phys.guid.0);
        }
        if request.properties || request.backup || request.replicate {
            let stored = dataset.dir.properties.read().clone();
            list.add_list("props", own_properties(&stored, request.backup));
        }
        list.add_list("snaps", snaps).add_list("snapprops", snapprops);
        if request.holds {
            list.add_list("snapholds", snapholds);
        }
        let guid = dataset.phys.lock().guid;
        Ok(Gathered { guid, list, parts, from_guid: from_guid.unwrap_or_default() })
    }

    fn pool_origin(&self) -> Option<ObjectId> {
        self.dsl.tree.read().origin.as_ref().map(|origin| origin.snapshot.object)
    }

    /// Full name of the snapshot from which a data set was cloned.
    async fn name_of_origin(&self, origin: ObjectId) -> Result<Option<String>> {
        if !origin.is_some() || Some(origin) == self.pool_origin() {
            return Ok(None);
        }
        let dir = SnapshotBonus::load(&self.dsl.mos, origin).await?.phys.dir_obj;
        let found: Option<(String, Arc<Dataset>)> = {
            let tree = self.dsl.tree.read();
            let mut all = tree.datasets.iter();
            all.find(|(_, dataset)| dataset.dir.object == dir).map(|(name, dataset)| (name.clone(), dataset.clone()))
        };
        let Some((name, dataset)) = found else { return Ok(None) };
        let names = dataset.phys.lock().snapnames_zapobj;
        let own = SnapshotBonus::load(&self.dsl.mos, origin).await?.snapshot().name(&self.dsl.mos, names).await?;
        Ok(own.map(|own| format!("{name}@{own}")))
    }
}

/// Whether a data set is one of `above`, or below one.
fn is_under_one(name: &str, above: &[String]) -> bool {
    above.iter().any(|above| names::is_at_or_below(name, above))
}

impl DslPool {
    /// The data sets of a package, those above before those below; and what is left out (`send_iterate_fs`).
    async fn members(&self, request: &PackageRequest) -> Result<(Vec<Member>, LeftOut)> {
        let mut names = match request.replicate {
            true => self.names_under(&request.dataset)?,
            false => vec![request.dataset.clone()],
        };
        names.retain(|name| !is_under_one(name, &request.without));
        let (mut members, mut left_out, mut passed): (Vec<Member>, _, _) = (Vec::new(), LeftOut::default(), Vec::new());
        for name in names {
            if is_under_one(&name, &passed) {
                continue;
            }
            let dataset = self.find(&name)?;
            let snapshots = in_order(self, &dataset).await?;
            let to = snapshots.iter().find(|(own, _)| *own == request.to).map(|(_, bonus)| bonus.phys.creation_txg);
            if let Some(to_txg) = to {
                members.push(Member { name, dataset, snapshots, to_txg });
                continue;
            }
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let above = members.iter().find(|member| member.name == parent);
            let made = dataset.phys.lock().creation_txg;
            if above.is_some_and(|above| made > above.to_txg) {
                left_out.younger.push(format!("skipping dataset {name}: snapshot {} does not exist", request.to));
            } else if request.skip_missing {
                left_out.lacking.push(format!(
                    "WARNING: skipping dataset {name} and its children: snapshot {} does not exist",
                    request.to
                ));
            } else {
                let what = if request.replicate { " recursively" } else { "" };
                return Err(PoolError::NotFound(format!(
                    "cannot send {}@{to}{what}: snapshot {name}@{to} does not exist",
                    request.dataset,
                    to = request.to
                )));
            }
            passed.push(name);
        }
        Ok((members, left_out))
    }

    /// What a package holds, in the order in which it is sent: data sets after those above them, and after those they
    /// were cloned from.
    ///
    /// # Errors
    /// A data set without the snapshot; damage, unreadable blocks.
    pub async fn prepare_package(&self, request: &PackageRequest) -> Result<Package> {
        let (members, mut left_out) = self.members(request).await?;
        let origins = members.iter().map(|member| member.dataset.dir.phys.lock().origin_obj).collect();
        let gather = Gather { dsl: self, request, origins };
        let (mut fss, mut parts) = (NvList::new(), Vec::new());
        let mut from_guids: BTreeMap<&str, Guid> = BTreeMap::new();
        for member in &members {
            let parent = member.name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let parent_from = from_guids.get(parent).copied().unwrap_or_default();
            let found = gather.dataset(member, parent_from).await?;
            if let (true, Some(from)) = (found.parts.is_empty(), &request.from) {
                let name = &member.name;
                let text = format!("incremental source ({name}@{from}) is not earlier than it");
                if *name == request.dataset {
                    // Whoever received the rest would be told to destroy what is newer there.
                    return Err(PoolError::Invalid(text));
                }
                left_out.failed.push(format!("WARNING: could not send {name}@{}:\n{text}", request.to));
            }
            from_guids.insert(&member.name, found.from_guid);
            fss.add_list(format!("0x{:x}", found.guid.0), found.list);
            parts.extend(found.parts);
        }
        let mut list = NvList::new();
        if let Some(from) = &request.from {
            list.add_str("fromsnap", from.clone());
        }
        list.add_str("tosnap", request.to.clone());
        if !request.replicate {
            list.add_flag("not_recursive");
        }
        list.add("fss", Value::List(fss));
        let list = list.encode_xdr();
        let mut features = StreamFeatures::SA_SPILL;
        if request.holds {
            features = features.with(StreamFeatures::HOLDS);
        }
        let begin = Begin {
            kind: HeaderKind::Compound,
            features,
            creation_time: 0,
            objset_type: ObjsetType::NONE,
            flags: 0,
            to_guid: Guid(0),
            from_guid: Guid(0),
            to_name: format!("{}@{}", request.dataset, request.to),
            list_length: u32::try_from(list.len()).map_err(|_| PoolError::invalid("too many snapshots"))?,
        };
        Ok(Package { begin, list, parts: clones_last(parts), left_out })
    }
}

/// What was cloned comes after what it was cloned from, and what lies below another data set after the first of that,
/// as far as both are sent.
fn clones_last(mut waiting: Vec<Part>) -> Vec<Part> {
    let mut ordered: Vec<Part> = Vec::with_capacity(waiting.len());
    let mut begun: BTreeSet<String> = BTreeSet::new();
    loop {
        let (ready, later): (Vec<Part>, Vec<Part>) = {
            let pending: Vec<String> = waiting.iter().map(|part| part.snapshot.clone()).collect();
            let mut seen: BTreeSet<String> = Default::default();
            let firsts: BTreeMap<String, String> =
                waiting.iter().rev().map(|part| (part.dataset().to_owned(), part.snapshot.clone())).collect();
            waiting.into_iter().partition(|part| {
                let is_there = |before: &String| !pending.contains(before) || seen.contains(before);
                let above = part.dataset().rsplit_once('/').and_then(|(above, _)| firsts.get_key_value(above));
                let is_above_there = above.is_none_or(|(above, first)| begun.contains(above) || is_there(first));
                let is_ready = part.since.as_ref().is_none_or(is_there) && is_above_there;
                if is_ready {
                    seen.insert(part.snapshot.clone());
                    begun.insert(part.dataset().to_owned());
                }
                is_ready
            })
        };
        let stuck = ready.is_empty();
        ordered.extend(ready);
        if later.is_empty() {
            return ordered;
        }
        if stuck {
            // Damage: they name each other.
            ordered.extend(later);
            return ordered;
        }
        waiting = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_properties_are_those_in_force_or_those_received() {
        let number = StoredProperty::Number;
        let stored = BTreeMap::from([
            ("compression".to_owned(), number(2)),
            ("compression$recvd".to_owned(), number(15)),
            ("atime$recvd".to_owned(), number(0)),
            ("copies$inherit".to_owned(), number(0)),
            ("copies$recvd".to_owned(), number(2)),
            ("my:own".to_owned(), StoredProperty::Text("x".into())),
            ("unknown".to_owned(), number(1)),
        ]);
        let names = |list: &NvList| list.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        let own = own_properties(&stored, false);
        assert_eq!(names(&own), ["atime", "compression", "my:own"]);
        assert_eq!(own.get_u64("compression"), Some(2));
        let received = own_properties(&stored, true);
        assert_eq!(names(&received), ["atime", "compression", "copies"]);
        assert_eq!(received.get_u64("compression"), Some(15));
    }

    #[test]
    fn a_clone_comes_after_its_origin() {
        let part =
            |snapshot: &str, since: Option<&str>| Part { snapshot: snapshot.into(), since: since.map(str::to_owned) };
        let parts = vec![part("t/a@1", Some("t/b@1")), part("t/a@2", Some("t/a@1")), part("t/b@1", None)];
        let names: Vec<String> = clones_last(parts).into_iter().map(|part| part.snapshot).collect();
        assert_eq!(names, ["t/b@1", "t/a@1", "t/a@2"]);
    }

    /// The stream of `o/a/c` came before that of `o/a`, and could not be received.
    #[test]
    fn what_lies_below_a_clone_comes_after_it() {
        let part =
            |snapshot: &str, since: Option<&str>| Part { snapshot: snapshot.into(), since: since.map(str::to_owned) };
        let parts = vec![
            part("o@K", None),
            part("o/a@K", Some("o/z@1")),
            part("o/a/c@K", None),
            part("o/z@1", None),
            part("o/z@K", Some("o/z@1")),
        ];
        let names: Vec<String> = clones_last(parts).into_iter().map(|part| part.snapshot).collect();
        assert_eq!(names, ["o@K", "o/z@1", "o/z@K", "o/a@K", "o/a/c@K"]);
        // A data set that is a clone of what lies below it: in some order, and all of them.
        let parts = vec![part("t@1", Some("t/a@1")), part("t/a@1", None), part("t/a@2", Some("t/a@1"))];
        assert_eq!(clones_last(parts).len(), 3);
    }
}
