//! Tables of who may do what.

use platter_ondisk::ObjectId;
use platter_zpl::Timestamp;

use super::*;

const OWNER: u32 = 1000;
const GROUP: u32 = 100;

fn attr(mode: u32) -> Attr {
    Attr {
        object: ObjectId(7),
        generation: 1,
        kind: FileKind::Regular,
        mode,
        uid: OWNER,
        gid: GROUP,
        size: 0,
        blocks: 0,
        settled: true,
        block_size: 512,
        links: 1,
        rdev: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        crtime: Timestamp::default(),
        flags: 0,
        project: 0,
    }
}

fn who(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials { uid, gid, groups: groups.to_vec() }
}

/// A list as Linux has it in an extended attribute: tags 1, 2, 4, 8, 16 and 32 are owner, user, owning group, group,
/// mask and others.
fn list(entries: &[(u16, u16, u32)]) -> PosixAcl {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    PosixAcl::decode(&bytes).expect("a list")
}

#[test]
fn the_first_class_that_fits_decides() {
    let (owner, member, other) = (who(OWNER, 5, &[]), who(1, 5, &[6, GROUP]), who(1, 5, &[6]));
    for (mode, class, rights) in [
        (0o700, &owner, Rights::READ.and(Rights::WRITE).and(Rights::EXECUTE)),
        (0o070, &member, Rights::READ.and(Rights::WRITE)),
        (0o004, &other, Rights::READ),
    ] {
        assert!(allows(class, &attr(mode), None, rights), "{mode:o}");
    }
    // A narrower class is not helped by what a wider one may do.
    assert!(!allows(&owner, &attr(0o077), None, Rights::READ));
    assert!(!allows(&member, &attr(0o707), None, Rights::READ));
    assert!(!allows(&other, &attr(0o770), None, Rights::READ));
    assert!(!allows(&other, &attr(0o774), None, Rights::READ.and(Rights::WRITE)));
    assert!(allows(&other, &attr(0), None, Rights::NONE));
}

#[test]
fn root_may_all_but_run_what_is_no_program() {
    let root = who(0, 0, &[]);
    assert!(allows(&root, &attr(0), None, Rights::READ.and(Rights::WRITE)));
    assert!(!allows(&root, &attr(0o666), None, Rights::EXECUTE));
    assert!(allows(&root, &attr(0o001), None, Rights::EXECUTE));
    let directory = Attr { kind: FileKind::Directory, ..attr(0) };
    assert!(allows(&root, &directory, None, Rights::EXECUTE.and(Rights::WRITE)));
}

#[test]
fn a_list_gives_named_ones_what_its_mask_lets_through() {
    let acl = list(&[(1, 7, 0), (2, 7, 50), (2, 0, 51), (4, 4, 0), (8, 6, 200), (8, 1, 201), (16, 5, 0), (32, 4, 0)]);
    let may = |who: &Credentials, wanted| allows(who, &attr(0o754), Some(&acl), wanted);
    // The owner's entry knows no mask.
    assert!(may(&who(OWNER, 1, &[]), Rights::WRITE));
    assert!(may(&who(50, 1, &[]), Rights::READ.and(Rights::EXECUTE)));
    assert!(!may(&who(50, 1, &[]), Rights::WRITE));
    // Who is named gets nothing from his groups, nor from others.
    assert!(!may(&who(51, GROUP, &[200]), Rights::READ));
    // One of his groups is enough, but no two together are.
    assert!(may(&who(60, 1, &[GROUP, 201]), Rights::READ));
    assert!(may(&who(60, 1, &[GROUP, 201]), Rights::EXECUTE));
    assert!(!may(&who(60, 1, &[GROUP, 201]), Rights::READ.and(Rights::EXECUTE)));
    assert!(!may(&who(60, 200, &[]), Rights::WRITE));
    // Who is in one of the groups is not one of the others.
    assert!(!may(&who(60, 201, &[]), Rights::READ));
    assert!(may(&who(60, 1, &[]), Rights::READ));
    assert!(!may(&who(60, 1, &[]), Rights::EXECUTE));
}

#[test]
fn a_mask_of_nothing_shuts_all_but_owner_and_others_out() {
    let acl = list(&[(1, 7, 0), (2, 7, 50), (4, 7, 0), (16, 0, 0), (32, 7, 0)]);
    let may = |who: &Credentials| allows(who, &attr(0o707), Some(&acl), Rights::READ);
    assert!(may(&who(OWNER, 1, &[])) && may(&who(60, 1, &[])));
    assert!(!may(&who(50, 1, &[])) && !may(&who(60, GROUP, &[])));
}

#[test]
fn in_a_sticky_directory_names_belong_to_somebody() {
    let victim = Attr { uid: 20, ..attr(0o644) };
    let directory = |mode| Attr { kind: FileKind::Directory, uid: 10, ..attr(mode) };
    assert!(may_remove(&who(30, 1, &[]), &directory(0o777), &victim));
    for (uid, expected) in [(30, false), (20, true), (10, true), (0, true)] {
        assert_eq!(may_remove(&who(uid, 1, &[]), &directory(0o1777), &victim), expected, "{uid}");
    }
}

#[test]
fn what_is_the_owners_to_change_is_nobody_elses() {
    let (owner, writer, root) = (who(OWNER, GROUP, &[101]), who(1, 5, &[]), who(0, 0, &[]));
    let old = attr(0o646);
    let none = SetAttr::default();
    let at = Some(SetTime::At(Timestamp::default()));
    let changes = [
        SetAttr { mode: Some(0o600), ..none },
        SetAttr { gid: Some(101), ..none },
        SetAttr { uid: Some(OWNER), ..none },
        SetAttr { mtime: at, ..none },
    ];
    for change in changes {
        assert!(check_change(&owner, &old, &change).is_ok(), "{change:?}");
        assert!(matches!(check_change(&writer, &old, &change), Err(VfsError::NotPermitted)), "{change:?}");
        assert!(check_change(&root, &old, &change).is_ok(), "{change:?}");
    }
    // Nobody gives files away, nor to a group that he is not in.
    for change in [SetAttr { uid: Some(1), ..none }, SetAttr { gid: Some(5), ..none }] {
        assert!(check_change(&owner, &old, &change).is_err() && check_change(&root, &old, &change).is_ok());
    }
    let now = SetAttr { mtime: Some(SetTime::Now), ..none };
    assert_eq!(check_change(&writer, &old, &now).unwrap().1, Rights::WRITE);
    assert_eq!(check_change(&owner, &old, &now).unwrap().1, Rights::NONE);
    // A size takes the right to write, of the owner too.
    assert_eq!(check_change(&owner, &old, &SetAttr { size: Some(0), ..none }).unwrap().1, Rights::WRITE);
}

#[test]
fn who_is_not_in_the_group_makes_nothing_run_as_it() {
    let change = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
    let made = |who: &Credentials| check_change(who, &attr(0o644), &change).unwrap().0.mode;
    assert_eq!(made(&who(OWNER, 5, &[])), Some(0o755));
    assert_eq!(made(&who(OWNER, GROUP, &[])), Some(0o2755));
    assert_eq!(made(&who(0, 0, &[])), Some(0o2755));
}

/// On kernels 5.4 to 5.12 anybody who could open a file could make it immutable, or take the flag away, and move it to
/// another project: the kernel left the check to the server, which left it to the kernel.
#[test]
fn only_the_owner_changes_flags_and_only_root_those_that_guard_a_file() {
    for (old, new, by_owner) in [
        (0, flags::NODUMP, true),
        (flags::PROJINHERIT, 0, true),
        (flags::IMMUTABLE, flags::IMMUTABLE | flags::NODUMP, true),
        (0, flags::IMMUTABLE, false),
        (flags::IMMUTABLE, 0, false),
        (flags::APPENDONLY | flags::NODUMP, flags::NODUMP, false),
    ] {
        let attr = Attr { flags: old, ..attr(0o644) };
        let change = SetAttr { flags: Some(new), project: Some(3), ..SetAttr::default() };
        let may = |uid: u32| check_change(&who(uid, 1, &[]), &attr, &change).is_ok();
        assert_eq!(may(OWNER), by_owner, "{old:x} to {new:x}");
        assert!(!may(1001) && may(0), "{old:x} to {new:x}");
    }
}
