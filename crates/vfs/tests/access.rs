//! Operations for somebody whom nobody has checked: what permission bits, access lists, the sticky bit and ownership
//! allow, asked for as a server without a kernel in front of it would.

mod common;

use common::{CHECKED, READ_ONLY, READ_WRITE, ROOT, Served, WRITE_ONLY, new, served, user};
use platter_ondisk::ObjectId;
use platter_vfs::{
    Access, Credentials, Fallocate, FileKind, Reading, RenameFlags, SetAttr, SetXattr, VfsError, Writing,
};
use platter_zpl::{ZplError, posix_acl};

fn is_denied<T>(result: &platter_vfs::Result<T>) -> bool {
    matches!(result, Err(VfsError::Denied))
}

fn is_not_permitted<T>(result: &platter_vfs::Result<T>) -> bool {
    matches!(result, Err(VfsError::NotPermitted))
}

impl Served {
    async fn directory(&self, who: &Credentials, name: &[u8], mode: u32) -> ObjectId {
        self.vfs.mkdir(CHECKED, self.vfs.root(), name, new(who, mode)).await.unwrap().object
    }
}

#[tokio::test]
async fn contents_take_the_right_to_them() {
    let served = served().await;
    let vfs = &served.vfs;
    let (owner, member, other) = (user(5), Credentials { uid: 6, gid: 6, groups: vec![5] }, user(7));
    let file = served.file(&owner, b"file", 0o640, b"text").await.object;
    let mine = served.file(&other, b"other", 0o644, b"mine").await.object;
    let read = async |who: &Credentials| vfs.read(Access::Of(who), file, 0, 9, Reading::default()).await.map(drop);
    let write = async |who: &Credentials| {
        vfs.write(Access::Of(who), file, 0, b"t", Writing::default()).await.map(|done| assert!(done.is_settled()))
    };
    for (who, reads, writes) in
        [(&owner, true, true), (&member, true, false), (&other, false, false), (&ROOT, true, true)]
    {
        assert_eq!((read(who).await.is_ok(), write(who).await.is_ok()), (reads, writes), "{who:?}");
        for (opening, allowed) in [(READ_ONLY, reads), (WRITE_ONLY, writes), (READ_WRITE, reads && writes)] {
            let opened = vfs.open(Access::Of(who), file, opening).await;
            assert_eq!(opened.is_ok(), allowed, "{who:?}");
            if let Ok(how) = opened {
                served.close(file, opening, how).await;
            }
        }
    }
    assert!(is_denied(&vfs.copy_range(Access::Of(&other), (file, 0), (mine, 0), 4).await));
    assert!(is_denied(&vfs.copy_range(Access::Of(&member), (file, 0), (mine, 0), 4).await));
    assert!(vfs.copy_range(Access::Of(&ROOT), (file, 0), (mine, 0), 4).await.is_ok());
    let punched = vfs.fallocate(Access::Of(&member), file, Fallocate::PunchHole, 0, 1).await;
    assert!(is_denied(&punched));
}

#[tokio::test]
async fn names_take_rights_to_their_directories() {
    let served = served().await;
    let vfs = &served.vfs;
    let (owner, other) = (user(5), user(7));
    let shut = served.directory(&owner, b"shut", 0o700).await;
    let seen = served.directory(&owner, b"seen", 0o755).await;
    let access = Access::Of(&other);
    assert!(is_denied(&vfs.lookup(access, shut, b"a").await));
    assert!(is_denied(&vfs.open_directory(access, shut).await));
    assert!(is_denied(&vfs.list(access, shut, 0, false, |_| false).await));
    for directory in [shut, seen] {
        assert!(is_denied(&vfs.mkdir(access, directory, b"a", new(&other, 0o755)).await));
        assert!(is_denied(&vfs.symlink(access, directory, b"a", b"b", new(&other, 0o777)).await));
        assert!(is_denied(&vfs.create(access, directory, b"a", new(&other, 0o644), READ_WRITE).await));
        assert!(is_denied(&vfs.tmpfile(access, directory, new(&other, 0o644), true, READ_WRITE).await));
        assert!(is_denied(&vfs.link(access, seen, directory, b"a").await));
        assert!(is_denied(&vfs.unlink(access, directory, b"a").await));
    }
    assert!(matches!(vfs.lookup(access, seen, b"a").await, Err(VfsError::File(ZplError::NotFound))));
    let (made, _) = vfs.create(Access::Of(&owner), seen, b"a", new(&owner, 0o644), READ_WRITE).await.unwrap();
    assert_eq!((made.uid, made.gid), (5, 5));
    assert!(is_denied(&vfs.unlink(access, seen, b"a").await));
    assert!(is_denied(&vfs.rename(access, (seen, b"a"), (vfs.root(), b"b"), RenameFlags::default()).await));
    vfs.unlink(Access::Of(&owner), seen, b"a").await.unwrap();
    // Nobody but root makes devices; pipes are anybody's.
    let mknod = async |kind| vfs.mknod(Access::Of(&owner), seen, b"node", kind, 0, new(&owner, 0o644)).await;
    assert!(is_not_permitted(&mknod(FileKind::CharDevice).await));
    assert!(mknod(FileKind::Fifo).await.is_ok());
}

#[tokio::test]
async fn the_sticky_bit_guards_names_from_removal_replacement_and_moves() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let (owner, other) = (user(5), user(7));
    let sticky = served.directory(&ROOT, b"tmp", 0o1777).await;
    for (name, who) in [(&b"his"[..], &owner), (b"mine", &other)] {
        vfs.mknod(Access::Of(who), sticky, name, FileKind::Regular, 0, new(who, 0o666)).await.unwrap();
    }
    let access = Access::Of(&other);
    let plain = RenameFlags::default();
    assert!(is_not_permitted(&vfs.unlink(access, sticky, b"his").await));
    assert!(is_not_permitted(&vfs.rename(access, (sticky, b"his"), (root, b"a"), plain).await));
    assert!(is_not_permitted(&vfs.rename(access, (sticky, b"mine"), (sticky, b"his"), plain).await));
    vfs.rename(access, (sticky, b"mine"), (sticky, b"moved"), plain).await.unwrap();
    vfs.unlink(access, sticky, b"moved").await.unwrap();
    vfs.unlink(Access::Of(&ROOT), sticky, b"his").await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_moved_is_changed_itself() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let (owner, other) = (user(5), user(7));
    let to = served.directory(&other, b"to", 0o755).await;
    served.directory(&owner, b"his", 0o755).await;
    let moved = vfs.rename(Access::Of(&other), (root, b"his"), (to, b"his"), RenameFlags::default()).await;
    assert!(is_denied(&moved));
    // Its name alone changes.
    vfs.rename(Access::Of(&other), (root, b"his"), (root, b"was"), RenameFlags::default()).await.unwrap();
}

#[tokio::test]
async fn an_access_list_decides_where_there_is_one() {
    let served = served().await;
    let vfs = &served.vfs;
    let (owner, named, member) = (user(5), user(50), Credentials { uid: 60, gid: 60, groups: vec![200] });
    let file = served.file(&owner, b"file", 0o600, b"text").await.object;
    let mut list = 2u32.to_le_bytes().to_vec();
    // Owner, user 50, the file's group, group 200, mask, others.
    for (tag, bits, id) in [(1u16, 6u16, 0u32), (2, 6, 50), (4, 0, 0), (8, 6, 200), (16, 4, 0), (32, 0, 0)] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&bits.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    let set = async |who: &Credentials| {
        vfs.setxattr(Access::Of(who), file, posix_acl::ACCESS, &list, SetXattr::Any, true).await
    };
    let opened = async |who: &Credentials, opening| {
        let how = vfs.open(Access::Of(who), file, opening).await?;
        served.close(file, opening, how).await;
        Ok(())
    };
    assert!(is_denied(&opened(&named, READ_ONLY).await));
    assert!(is_not_permitted(&set(&named).await));
    set(&owner).await.unwrap();
    for who in [&named, &member] {
        opened(who, READ_ONLY).await.unwrap();
        // The mask.
        assert!(is_denied(&opened(who, WRITE_ONLY).await), "{who:?}");
    }
    opened(&owner, READ_WRITE).await.unwrap();
    assert!(is_denied(&opened(&user(70), READ_ONLY).await));
    // `chmod` moves the mask.
    vfs.setattr(Access::Of(&owner), file, SetAttr { mode: Some(0o660), ..SetAttr::default() }, false).await.unwrap();
    opened(&member, READ_WRITE).await.unwrap();
}

#[tokio::test]
async fn attributes_are_the_owners_and_extended_ones_have_kinds() {
    let served = served().await;
    let vfs = &served.vfs;
    let (owner, other) = (user(5), user(7));
    let file = served.file(&owner, b"file", 0o644, b"text").await.object;
    let set = async |who: &Credentials, change| vfs.setattr(Access::Of(who), file, change, false).await;
    let mode = SetAttr { mode: Some(0o604), ..SetAttr::default() };
    assert!(is_not_permitted(&set(&other, mode).await));
    assert!(is_denied(&set(&other, SetAttr { size: Some(0), ..SetAttr::default() }).await));
    assert_eq!(set(&owner, mode).await.unwrap().mode, 0o604);
    assert!(is_not_permitted(&set(&owner, SetAttr { uid: Some(7), ..SetAttr::default() }).await));
    let nodump = platter_ondisk::znode::flags::NODUMP;
    assert!(is_not_permitted(&vfs.set_flags(Access::Of(&other), file, nodump, None).await));
    assert!(vfs.set_flags(Access::Of(&owner), file, nodump, None).await.unwrap().flags & nodump != 0);

    let (user_name, trusted) = (&b"user.a"[..], &b"trusted.a"[..]);
    let set =
        async |who: &Credentials, name| vfs.setxattr(Access::Of(who), file, name, b"value", SetXattr::Any, true).await;
    assert!(is_denied(&set(&other, user_name).await) && is_not_permitted(&set(&owner, trusted).await));
    set(&owner, user_name).await.unwrap();
    set(&ROOT, trusted).await.unwrap();
    assert_eq!(vfs.listxattr(Access::Of(&owner), file).await.unwrap(), [user_name]);
    assert_eq!(vfs.listxattr(Access::Of(&ROOT), file).await.unwrap(), [trusted, user_name]);
    let value = vfs.getxattr(Access::Of(&other), file, user_name).await.unwrap();
    assert_eq!(value, b"value");
    let hidden = vfs.getxattr(Access::Of(&owner), file, trusted).await;
    assert!(matches!(hidden, Err(VfsError::File(ZplError::NoAttribute))));
    assert!(is_denied(&vfs.removexattr(Access::Of(&other), file, user_name).await));
    vfs.removexattr(Access::Of(&owner), file, user_name).await.unwrap();
}
