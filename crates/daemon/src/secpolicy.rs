//! What an operation takes of whoever is not the daemon's owner: for each operation one answer, in one place (the
//! `zfs_secpolicy_*` functions of `module/zfs/zfs_ioctl.c`, and what `zfs_ioctl_init` says which operation has which).
//!
//! Invariants:
//! - every operation is named here: one that is new does not compile until somebody has said what it takes;
//! - whatever is not said to be delegated is the owner's.

use platter_api::ask::Operation;
use platter_api::delegation::{Allow, Unallow};
use platter_api::messages::{CreateDataset, DestroyDataset, IdQuota, SetDatasetProperties, Whose};
use platter_api::names::split_snapshot;
use platter_api::snapshots::{DestroySnapshots, HoldSnapshot, RenameSnapshot, RollbackDataset, TakeSnapshots};
use platter_api::{delegation, properties};
use platter_dsl::volume::RESERVED;
use platter_ondisk::dsl::{Grantee, PermissionKey};

/// What an operation takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing.
    Everybody,
    /// To be the daemon's owner.
    Owner,
    /// All of these.
    Delegated(Vec<Need>),
    /// What comes out while it is done: whoever does it asks again.
    AsItGoes,
}

/// A permission, and where it must be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The permission.
    pub permission: String,
    /// Where.
    pub place: Place,
}

/// Where a permission must be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a data set, or what is allowed there for its snapshots when it is one of these.
    At(String),
    /// At a data set and all below it.
    Tree(String),
    /// At the data set above one that is to be made, or the nearest that is there; there also for what is below, when
    /// more than one is to be made.
    Above(String),
    /// At a data set that is to be made, by what it will have.
    New(String),
    /// At these snapshots: the data set's name, which of its snapshots, and whether of those below, too.
    Snapshots(String, String, bool),
    /// At a data set's snapshots, and at all data sets below with theirs.
    Inside(String),
    /// At everything that depends on a data set.
    Dependents(String),
    /// At those snapshots and bookmarks of a data set that are newer than the snapshot that is named.
    NewerThan(String),
    /// At everything that depends on those.
    DependentsOfNewer(String),
    /// At everything that depends on snapshots, named as in [`Place::Snapshots`].
    DependentsOfSnapshots(String, String, bool),
    /// At the snapshot of which a data set is a clone.
    Origin(String),
    /// Nowhere: nobody has it.
    Nowhere,
}

/// Beginning of the names of user properties by which the daemon acts: it takes and destroys snapshots by them.
const OWN_PROPERTIES: &str = "platter:";

/// A data set and all below it, or it alone.
fn tree(name: &str, recursive: bool) -> Place {
    if recursive { Place::Tree(name.to_owned()) } else { Place::At(name.to_owned()) }
}

/// The data set of a snapshot or bookmark.
fn dataset_of(name: &str) -> String {
    name.split(['@', '#']).next().unwrap_or_default().to_owned()
}

fn all(permissions: &[&str], place: &Place) -> Vec<Need> {
    permissions.iter().map(|permission| need(*permission, place)).collect()
}

fn need(permission: impl Into<String>, place: &Place) -> Need {
    Need { permission: permission.into(), place: place.clone() }
}

/// What setting or inheriting a property takes (`zfs_check_settable`, `zfs_secpolicy_setprop`).
pub fn of_property(property: &str, place: &Place) -> Vec<Need> {
    if !properties::is_user(property) {
        // One that there is not is nobody's.
        return vec![need(delegation::canonical(property).unwrap_or(property), place)];
    }
    assert!(*place != Place::Nowhere, "a property is something's");
    let mut needs = vec![need("userprop", place)];
    if property.starts_with(OWN_PROPERTIES) {
        // What is below takes it over, and the daemon does by it what is asked for there.
        let everywhere = match place {
            Place::At(name) => Place::Tree(dataset_of(name)),
            other => other.clone(),
        };
        needs.extend(all(&["snapshot", "mount", "destroy"], &everywhere));
    }
    needs
}

/// What seeing or setting a quota, or seeing what is used, takes (`userquota_perms`).
fn of_ids(whose: Whose, kind: &str, place: &Place) -> Need {
    let whose = match whose {
        Whose::User => "user",
        Whose::Group => "group",
        Whose::Project => "project",
    };
    need(format!("{whose}{kind}"), place)
}

/// What setting a quota takes.
pub fn of_quota(quota: &IdQuota, place: &Place) -> Need {
    of_ids(quota.whose, if quota.objects { "objquota" } else { "quota" }, place)
}

/// What seeing what others use, or may use, takes: `kind` is `used`, `quota`, `objused` or `objquota`.
pub fn of_usage(whose: Whose, kind: &str, name: &str) -> Need {
    of_ids(whose, kind, &Place::At(name.to_owned()))
}

fn of_creation(call: &CreateDataset) -> Vec<Need> {
    let mut needs = all(&["create", "mount"], &Place::Above(call.name.clone()));
    let new = Place::New(call.name.clone());
    // What is chosen when it is made is no change of anything.
    let once = |property: &str| properties::is_read_only(property) || property == "version";
    let settable = call.properties.keys().filter(|property| properties::is_user(property) || !once(property));
    needs.extend(settable.flat_map(|property| of_property(property, &new)));
    if call.volume.is_some_and(|volume| !volume.sparse) {
        needs.push(need(RESERVED, &new));
    }
    needs.extend(call.quotas.iter().map(|quota| of_quota(quota, &new)));
    needs
}

const DESTROY: [&str; 2] = ["mount", "destroy"];

fn of_destruction(call: &DestroyDataset) -> Vec<Need> {
    let mut needs = all(&DESTROY, &tree(&call.name, call.recursive || call.clones));
    if call.recursive || call.clones {
        needs.extend(all(&DESTROY, &Place::Inside(call.name.clone())));
        needs.extend(all(&DESTROY, &Place::Dependents(call.name.clone())));
    }
    needs
}

fn of_snapshots_destruction(call: &DestroySnapshots) -> Vec<Need> {
    let place = Place::Snapshots(call.dataset.clone(), call.which.clone(), call.recursive);
    let mut needs = all(&DESTROY, &place);
    if call.clones {
        let place = Place::DependentsOfSnapshots(call.dataset.clone(), call.which.clone(), call.recursive);
        needs.extend(all(&DESTROY, &place));
    }
    needs
}

fn of_rollback(call: &RollbackDataset) -> Vec<Need> {
    let mut needs = all(&["rollback"], &Place::At(dataset_of(&call.snapshot)));
    needs.extend(all(&DESTROY, &Place::NewerThan(call.snapshot.clone())));
    if call.clones {
        needs.extend(all(&DESTROY, &Place::DependentsOfNewer(call.snapshot.clone())));
    }
    needs
}

fn of_snapshots(call: &TakeSnapshots) -> Vec<Need> {
    let mut needs = Vec::new();
    for name in &call.names {
        let place = tree(&dataset_of(name), call.recursive);
        needs.push(need("snapshot", &place));
        needs.extend(call.properties.keys().flat_map(|property| of_property(property, &place)));
    }
    needs
}

fn of_snapshot_rename(call: &RenameSnapshot) -> Vec<Need> {
    let (dataset, own) = split_snapshot(&call.from).unwrap_or((&call.from, ""));
    let mut needs = all(&["rename", "mount"], &Place::Snapshots(dataset.to_owned(), own.to_owned(), call.recursive));
    needs.extend(all(&["create", "mount"], &tree(dataset, call.recursive)));
    needs
}

fn of_hold(call: &HoldSnapshot) -> Vec<Need> {
    let permission = if call.release { "release" } else { "hold" };
    all(&[permission], &tree(&dataset_of(&call.name), call.recursive))
}

fn of_properties(call: &SetDatasetProperties) -> Vec<Need> {
    let place = tree(&call.name, call.recursive);
    call.properties.keys().flat_map(|property| of_property(property, &place)).collect()
}

/// Whoever allows something must have it himself, and nobody can allow others to allow (`dsl_deleg_can_allow`).
fn of_allowing(call: &Allow) -> Vec<Need> {
    let here = Place::At(call.name.clone());
    let mut needs = all(&["allow"], &here);
    for permission in call.granted.values().flatten() {
        let place = if permission == "allow" { Place::Nowhere } else { here.clone() };
        needs.push(need(delegation::canonical(permission).unwrap_or(permission), &place));
    }
    needs
}

/// Nobody takes anything away but from himself (`dsl_deleg_can_unallow`).
fn of_disallowing(call: &Unallow, uid: u32) -> Vec<Need> {
    let is_own = |key: &String| {
        let key = PermissionKey::decode(key.as_bytes()).map(|key| key.grantee);
        matches!(key, Ok(Grantee::User(user, _)) if user == u64::from(uid))
    };
    let place = if call.revoked.keys().all(is_own) { tree(&call.name, call.recursive) } else { Place::Nowhere };
    all(&["allow"], &place)
}

/// What an operation takes of the user `uid`.
pub fn policy(operation: &Operation, uid: u32) -> Policy {
    let at = |name: &str| Place::At(name.to_owned());
    Policy::Delegated(match operation {
        Operation::Look(_) => return Policy::Everybody,
        Operation::StopDaemon(_)
        | Operation::SetLogLevel(_)
        | Operation::GetEvents(_)
        | Operation::ClearEvents(_)
        | Operation::CreatePool(_)
        | Operation::ImportPool(_)
        | Operation::SearchPools(_)
        | Operation::ClosePool(_)
        | Operation::OperatePool(_)
        | Operation::SplitPool(_)
        | Operation::ControlJob(_)
        | Operation::GetHistory(_)
        | Operation::ClearLabel(_)
        | Operation::CheckPlaces(_)
        | Operation::ListSchedules(_)
        | Operation::ListDisks(_)
        | Operation::HoldDevice(_)
        | Operation::AddReceiver(_)
        | Operation::ListReceivers(_)
        | Operation::RemoveReceiver(_)
        | Operation::TestReceivers(_)
        | Operation::MountRequest(_)
        | Operation::UnmountRequest(_)
        // As in OpenZFS (`zfs_secpolicy_config`).
        | Operation::Redact(_) => return Policy::Owner,
        // What is not done takes nothing; each of them tells what everybody may list.
        Operation::CreateDataset(call) if call.dry_run => return Policy::Everybody,
        Operation::DestroyDataset(call) if call.dry_run => return Policy::Everybody,
        Operation::DestroySnapshots(call) if call.dry_run => return Policy::Everybody,
        Operation::SendStream(call) if call.descriptor.is_none() => return Policy::Everybody,
        Operation::SendStream(_) | Operation::ReceiveStream(_) | Operation::GetUserspace(_) => return Policy::AsItGoes,
        Operation::CreateDataset(call) => of_creation(call),
        Operation::DestroyDataset(call) => of_destruction(call),
        Operation::RenameDataset(call) => {
            let mut needs = all(&["rename", "mount"], &at(&call.from));
            needs.extend(all(&["create", "mount"], &Place::Above(call.to.clone())));
            needs
        }
        Operation::TakeSnapshots(call) => of_snapshots(call),
        Operation::DestroySnapshots(call) => of_snapshots_destruction(call),
        Operation::RenameSnapshot(call) => of_snapshot_rename(call),
        Operation::HoldSnapshot(call) => of_hold(call),
        Operation::RollbackDataset(call) => of_rollback(call),
        Operation::CloneSnapshot(call) => {
            let mut needs = all(&["clone"], &at(&call.snapshot));
            needs.extend(all(&["create", "mount"], &Place::Above(call.name.clone())));
            let new = Place::New(call.name.clone());
            needs.extend(call.properties.keys().flat_map(|property| of_property(property, &new)));
            needs.extend(call.quotas.iter().map(|quota| of_quota(quota, &new)));
            needs
        }
        Operation::PromoteDataset(call) => {
            let mut needs = all(&["promote", "mount"], &at(&call.name));
            needs.extend(all(&["promote"], &Place::Origin(call.name.clone())));
            needs
        }
        Operation::DiffSnapshots(call) => [all(&["diff"], &at(&call.from)), all(&["diff"], &at(&call.to))].concat(),
        Operation::AbortReceive(call) => all(&DESTROY, &at(&call.target)),
        Operation::CreateBookmark(call) => all(&["bookmark"], &at(&dataset_of(&call.bookmark))),
        Operation::DestroyBookmark(call) => all(&["destroy"], &at(&dataset_of(&call.bookmark))),
        Operation::SetDatasetProperties(call) => of_properties(call),
        Operation::SetIdQuota(call) => vec![of_quota(&call.quota, &at(&call.name))],
        Operation::Allow(call) => of_allowing(call),
        Operation::Unallow(call) => of_disallowing(call, uid),
    })
}

/// An operation as it is done for somebody else than the owner: nothing is mounted, and nothing is taken away from
/// those who use it.
pub fn tamed(mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::ReceiveStream(call) => call.unmounted = true,
        Operation::SetDatasetProperties(call) => call.no_mount = true,
        Operation::DestroyDataset(call) => call.force = false,
        Operation::RenameDataset(call) => call.force = false,
        Operation::RollbackDataset(call) => call.force = false,
        _ => {}
    }
    operation
}

/// Takes the command line out of an operation that changes a pool, with a name in that pool: it is noted once the
/// operation is done, as the guest's.
pub fn take_command(operation: &mut Operation) -> Option<(String, String)> {
    let (name, command) = match operation {
        Operation::CreateDataset(call) => (&call.name, &mut call.command),
        Operation::DestroyDataset(call) => (&call.name, &mut call.command),
        Operation::RenameDataset(call) => (&call.from, &mut call.command),
        Operation::TakeSnapshots(call) => (call.names.first()?, &mut call.command),
        Operation::DestroySnapshots(call) => (&call.dataset, &mut call.command),
        Operation::RenameSnapshot(call) => (&call.from, &mut call.command),
        Operation::HoldSnapshot(call) => (&call.name, &mut call.command),
        Operation::RollbackDataset(call) => (&call.snapshot, &mut call.command),
        Operation::CloneSnapshot(call) => (&call.name, &mut call.command),
        Operation::PromoteDataset(call) => (&call.name, &mut call.command),
        Operation::ReceiveStream(call) => (&call.target, &mut call.command),
        Operation::AbortReceive(call) => (&call.target, &mut call.command),
        Operation::CreateBookmark(call) => (&call.bookmark, &mut call.command),
        Operation::DestroyBookmark(call) => (&call.bookmark, &mut call.command),
        Operation::SetDatasetProperties(call) => (&call.name, &mut call.command),
        Operation::SetIdQuota(call) => (&call.name, &mut call.command),
        Operation::Allow(call) => (&call.name, &mut call.command),
        Operation::Unallow(call) => (&call.name, &mut call.command),
        _ => return None,
    };
    // As text alone: it is shown in terminals.
    let command: String = std::mem::take(command).chars().filter(|c| !c.is_control()).collect();
    (!command.is_empty()).then(|| (name.clone(), command))
}

/// What sending a snapshot takes (`zfs_secpolicy_send_impl`).
pub fn of_sending(snapshot: &str) -> Vec<Need> {
    all(&["send"], &Place::At(snapshot.to_owned()))
}

/// What making a clone of a snapshot takes there.
pub fn of_cloning(snapshot: &str) -> Vec<Need> {
    all(&["clone"], &Place::At(snapshot.to_owned()))
}

/// What giving a snapshot its user properties takes.
pub fn of_user_properties(snapshot: &str) -> Vec<Need> {
    all(&["userprop"], &Place::At(snapshot.to_owned()))
}

/// What receiving into a data set takes (`zfs_secpolicy_recv`): of one that is there, there, else above it. With `-F`
/// it is not enough that something may be added.
pub fn of_receiving(target: &str, is_there: bool, permission: &'static str) -> Vec<Need> {
    let place = if is_there { Place::At(target.to_owned()) } else { Place::Above(target.to_owned()) };
    all(&[permission, "mount", "create"], &place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::ask::Ask;
    use platter_api::messages::{ClosePool, GetEvents, ListPools, MountRequest, RenameDataset, SetIdQuota};
    use platter_api::streams::SendStream;
    use std::collections::{BTreeMap, BTreeSet};

    fn needs(call: impl Ask) -> Vec<(String, Place)> {
        let Policy::Delegated(needs) = policy(&call.operation(), 1000) else { panic!("it is not delegated") };
        needs.into_iter().map(|need| (need.permission, need.place)).collect()
    }

    fn at(name: &str) -> Place {
        Place::At(name.to_owned())
    }

    #[test]
    fn what_is_about_pools_and_the_daemon_is_its_owners() {
        for operation in
            [ClosePool::default().operation(), GetEvents::default().operation(), MountRequest::default().operation()]
        {
            assert_eq!(policy(&operation, 0), Policy::Owner);
        }
        assert_eq!(policy(&ListPools {}.operation(), 1000), Policy::Everybody);
        let told = SendStream { snapshot: "t/a@1".into(), ..SendStream::default() };
        assert_eq!(policy(&told.clone().operation(), 1000), Policy::Everybody);
        let sent = SendStream { descriptor: Some("x".into()), ..told };
        assert_eq!(policy(&sent.operation(), 1000), Policy::AsItGoes);
    }

    #[test]
    fn renaming_takes_rights_at_both_ends() {
        let call = RenameDataset { from: "t/a".into(), to: "t/b/c".into(), ..RenameDataset::default() };
        let above = Place::Above("t/b/c".into());
        let expected = [("rename", at("t/a")), ("mount", at("t/a")), ("create", above.clone()), ("mount", above)];
        assert_eq!(needs(call), expected.map(|(permission, place)| (permission.to_owned(), place)));
    }

    #[test]
    fn properties_are_named_in_full_and_user_properties_are_one_permission() {
        let set = |property: &str| SetDatasetProperties {
            name: "t/a".into(),
            properties: BTreeMap::from([(property.to_owned(), None)]),
            ..SetDatasetProperties::default()
        };
        assert_eq!(needs(set("compress")), [("compression".to_owned(), at("t/a"))]);
        assert_eq!(needs(set("a:b")), [("userprop".to_owned(), at("t/a"))]);
        // The daemon acts by them, at all data sets that inherit them.
        let own: BTreeSet<String> = needs(set("platter:prune")).into_iter().map(|(permission, _)| permission).collect();
        assert_eq!(own.into_iter().collect::<Vec<_>>(), ["destroy", "mount", "snapshot", "userprop"]);
        let quota = IdQuota { whose: Whose::Group, id: 5, objects: true, value: 1 };
        let call = SetIdQuota { name: "t/a".into(), quota, command: String::new() };
        assert_eq!(needs(call), [("groupobjquota".to_owned(), at("t/a"))]);
    }

    #[test]
    fn nobody_allows_more_than_he_has_or_takes_from_others() {
        let granted = BTreeMap::from([("ul$5".to_owned(), BTreeSet::from(["allow".to_owned(), "send".to_owned()]))]);
        let allow = Allow { name: "t/a".into(), granted, command: String::new() };
        let expected = [("allow", at("t/a")), ("allow", Place::Nowhere), ("send", at("t/a"))];
        assert_eq!(needs(allow), expected.map(|(permission, place)| (permission.to_owned(), place)));
        for (key, place) in [("ul$1000", at("t/a")), ("ul$1", Place::Nowhere), ("gl$1000", Place::Nowhere)] {
            let revoked = BTreeMap::from([(key.to_owned(), None)]);
            let call = Unallow { name: "t/a".into(), revoked, ..Unallow::default() };
            assert_eq!(needs(call), [("allow".to_owned(), place)], "{key}");
        }
    }

    #[test]
    fn a_volume_reserves_its_space_by_permission() {
        let volume = |sparse| Some(platter_api::request::NewVolume { size: 1 << 20, block_size: None, sparse });
        let create = |sparse| CreateDataset { name: "t/v".into(), volume: volume(sparse), ..CreateDataset::default() };
        let new = Place::New("t/v".into());
        assert!(needs(create(false)).contains(&(RESERVED.to_owned(), new)));
        assert_eq!(needs(create(true)).len(), 2);
    }
}
