//! What POSIX asks of files and directories, one property a test.

use std::sync::Arc;

use crate::common::{TestPool, mounted, names, properties, read_all};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::flags;
use platter_zio::memory::MemoryStore;
use platter_zpl::{
    AtimeMode, Fallocate, FileKind, MountOptions, NewFile, RenameFlags, SeekFor, SetAttr, SetTime, SetXattr, SpaceInfo,
    Timestamp, Zpl, ZplError, object_path,
};

const FILE: NewFile = NewFile { mode: 0o644, umask: 0, uid: 1, gid: 2, open: false };
const DIR: NewFile = NewFile { mode: 0o755, umask: 0, uid: 1, gid: 2, open: false };

fn errno<T: std::fmt::Debug>(result: Result<T, ZplError>) -> i32 {
    result.unwrap_err().errno()
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ENXIO: i32 = 6;
const EPERM: i32 = 1;
const ESTALE: i32 = 116;

#[test]
fn operations_can_move_between_threads() {
    fn send<T: Send>(_: &dyn Fn(&'static Zpl) -> T) {}
    send(&|zpl| zpl.lookup(ObjectId(1), b""));
    send(&|zpl| zpl.create(ObjectId(1), b"", FILE));
    send(&|zpl| zpl.rename(ObjectId(1), b"", ObjectId(1), b"", RenameFlags::default()));
    send(&|zpl| zpl.read(ObjectId(1), 0, 0));
    send(&|zpl| zpl.write(ObjectId(1), 0, b"", false));
    send(&|zpl| zpl.readdir(ObjectId(1), 0, 0, true));
    send(&|zpl| zpl.setattr(ObjectId(1), SetAttr::default()));
    send(&|zpl| zpl.unlink(ObjectId(1), b""));
    send(&|zpl| zpl.release(ObjectId(1)));
    send(&|zpl| zpl.fallocate(ObjectId(1), Fallocate::PunchHole, 0, 0));
    send(&|zpl| zpl.seek(ObjectId(1), 0, SeekFor::Data));
    send(&|zpl| zpl.sync());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_system_has_an_empty_root() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.getattr(zpl.root()).await.unwrap();
    assert_eq!((root.kind, root.mode, root.uid, root.gid), (FileKind::Directory, 0o755, 7, 8));
    assert_eq!((root.links, root.size), (2, 2));
    assert_eq!(root.flags, 0x0408_0000_0144);
    assert_eq!(root.crtime, Timestamp { seconds: 1_600_000_000, nanoseconds: 5 });
    assert_eq!(names(&zpl, zpl.root()).await, [".", ".."]);
    assert_eq!(zpl.lookup(zpl.root(), b"..").await.unwrap().object, zpl.root());
    assert_eq!(zpl.read_only_reason(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_made_is_there_after_reopening() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let dir = zpl.mkdir(root, b"dir", DIR).await.unwrap();
    let file = zpl.create(dir.object, b"file", FILE).await.unwrap();
    zpl.write(file.object, 0, b"hello", false).await.unwrap();
    let long = vec![b'x'; 4000];
    let links = [&b"short"[..], &[b'y'; 140], &[b'z'; 300], &long];
    for (i, target) in links.iter().enumerate() {
        zpl.symlink(root, format!("link{i}").as_bytes(), target, FILE).await.unwrap();
    }
    zpl.mknod(root, b"fifo", FileKind::Fifo, 0, FILE).await.unwrap();
    zpl.mknod(root, b"null", FileKind::CharDevice, 0x0103, FILE).await.unwrap();
    let before = zpl.getattr(file.object).await.unwrap();

    let zpl = pool.reopen(zpl).await;
    let found = zpl.lookup(root, b"dir").await.unwrap();
    assert_eq!(found.object, dir.object);
    let after = zpl.lookup(found.object, b"file").await.unwrap();
    let at_rest = platter_zpl::Attr { blocks: after.blocks, settled: true, ..before };
    assert_eq!(after, at_rest);
    assert_eq!(read_all(&zpl, after.object).await, b"hello");
    for (i, target) in links.iter().enumerate() {
        let link = zpl.lookup(root, format!("link{i}").as_bytes()).await.unwrap();
        assert_eq!((link.kind, link.size), (FileKind::Symlink, target.len() as u64));
        assert_eq!(zpl.readlink(link.object).await.unwrap(), *target);
    }
    assert_eq!(zpl.lookup(root, b"fifo").await.unwrap().kind, FileKind::Fifo);
    let null = zpl.lookup(root, b"null").await.unwrap();
    assert_eq!((null.kind, null.rdev), (FileKind::CharDevice, 0x0103));
    assert_eq!(zpl.getattr(root).await.unwrap().links, 3);
    assert_eq!(zpl.getattr(root).await.unwrap().size, 2 + 1 + 4 + 2);
}

/// Whoever keeps what `stat` tells has to ask again for what will change, and for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn the_space_of_a_file_is_settled_unless_some_is_on_its_way_to_disk() {
    let (pool, zpl) = mounted().await;
    let made = zpl.create(zpl.root(), b"file", FILE).await.unwrap();
    let attr = async || zpl.getattr(made.object).await.unwrap();
    assert!(made.settled, "an empty file takes no more space on disk");
    pool.settle().await;
    assert_eq!(attr().await, made);
    zpl.setattr(made.object, SetAttr { mode: Some(0o600), ..SetAttr::default() }).await.unwrap();
    assert!(attr().await.settled);

    zpl.write(made.object, 0, &[7; 5000], false).await.unwrap();
    assert!(!attr().await.settled && attr().await.blocks == made.blocks);
    pool.settle().await;
    let written = attr().await;
    assert!(written.settled && written.blocks > made.blocks);
    zpl.setattr(made.object, SetAttr { size: Some(0), ..SetAttr::default() }).await.unwrap();
    assert!(!attr().await.settled);
    pool.settle().await;
    let emptied = attr().await;
    assert!(emptied.settled && emptied.blocks == made.blocks);
    // In a spill block.
    zpl.setxattr(made.object, b"user.large", &[b'v'; 1500], SetXattr::Any, true).await.unwrap();
    assert!(!attr().await.settled);
    pool.settle().await;
    let with_value = attr().await;
    assert!(with_value.settled && with_value.blocks > emptied.blocks);
    let zpl = pool.reopen(zpl).await;
    assert_eq!(zpl.getattr(made.object).await.unwrap(), with_value);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spilled_link_survives_changes_of_its_attributes() {
    let (pool, zpl) = mounted().await;
    let link = zpl.symlink(zpl.root(), b"l", &[b't'; 400], FILE).await.unwrap();
    for mode in [0o400, 0o705, 0o070, 0o777] {
        zpl.setattr(link.object, SetAttr { mode: Some(mode), uid: Some(9), ..SetAttr::default() }).await.unwrap();
    }
    let zpl = pool.reopen(zpl).await;
    assert_eq!(zpl.readlink(link.object).await.unwrap(), [b't'; 400]);
    let attr = zpl.getattr(link.object).await.unwrap();
    assert_eq!((attr.mode, attr.uid), (0o777, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_checked() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"f", FILE).await.unwrap();
    assert_eq!(errno(zpl.create(root, b"f", FILE).await), EEXIST);
    assert_eq!(errno(zpl.mkdir(root, b"f", DIR).await), EEXIST);
    assert_eq!(errno(zpl.mkdir(root, b".", DIR).await), EEXIST);
    assert_eq!(errno(zpl.create(root, b"a/b", FILE).await), EINVAL);
    assert_eq!(errno(zpl.create(root, &[b'n'; 256], FILE).await), ENAMETOOLONG);
    zpl.create(root, &[b'n'; 255], FILE).await.unwrap();
    assert_eq!(zpl.lookup(root, &[b'n'; 255]).await.unwrap().kind, FileKind::Regular);
    assert_eq!(errno(zpl.lookup(root, &[b'n'; 256]).await), ENAMETOOLONG);
    assert_eq!(errno(zpl.lookup(root, b"none").await), ENOENT);
    assert_eq!(errno(zpl.lookup(file.object, b"x").await), ENOTDIR);
    assert_eq!(errno(zpl.create(file.object, b"x", FILE).await), ENOTDIR);
    assert_eq!(errno(zpl.symlink(root, b"s", &[b'n'; 4096], FILE).await), ENAMETOOLONG);
    assert_eq!(errno(zpl.getattr(ObjectId(999_999)).await), ESTALE);
    assert_eq!(errno(zpl.getattr(ObjectId(1)).await), ESTALE);
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_follows_the_kind() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.root();
    let dir = zpl.mkdir(root, b"d", DIR).await.unwrap();
    zpl.create(dir.object, b"f", FILE).await.unwrap();
    assert_eq!(errno(zpl.unlink(root, b"d").await), EISDIR);
    assert_eq!(errno(zpl.rmdir(root, b"d").await), ENOTEMPTY);
    assert_eq!(errno(zpl.rmdir(dir.object, b"f").await), ENOTDIR);
    assert_eq!(errno(zpl.rmdir(dir.object, b".").await), EINVAL);
    assert_eq!(errno(zpl.rmdir(dir.object, b"..").await), ENOTEMPTY);
    assert_eq!(errno(zpl.unlink(root, b"none").await), ENOENT);
    zpl.unlink(dir.object, b"f").await.unwrap();
    zpl.rmdir(root, b"d").await.unwrap();
    assert_eq!(errno(zpl.getattr(dir.object).await), ESTALE);
    assert_eq!(errno(zpl.create(dir.object, b"x", FILE).await), ESTALE);
    let attr = zpl.getattr(root).await.unwrap();
    assert_eq!((attr.links, attr.size), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_are_counted() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"a", FILE).await.unwrap();
    let dir = zpl.mkdir(root, b"d", DIR).await.unwrap();
    assert_eq!(zpl.link(file.object, dir.object, b"b").await.unwrap().links, 2);
    assert_eq!(errno(zpl.link(dir.object, root, b"e").await), EPERM);
    assert_eq!(errno(zpl.link(file.object, root, b"a").await), EEXIST);
    zpl.unlink(root, b"a").await.unwrap();
    let zpl = pool.reopen(zpl).await;
    let attr = zpl.lookup(dir.object, b"b").await.unwrap();
    assert_eq!((attr.object, attr.links), (file.object, 1));
    assert_eq!(zpl.object_path(file.object).await.unwrap(), "/d/b");
    zpl.unlink(dir.object, b"b").await.unwrap();
    assert_eq!(errno(zpl.getattr(file.object).await), ESTALE);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_outlives_its_name() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"f", NewFile { open: true, ..FILE }).await.unwrap();
    zpl.write(file.object, 0, b"still here", false).await.unwrap();
    zpl.open(file.object).await.unwrap();
    zpl.unlink(root, b"f").await.unwrap();
    assert_eq!(zpl.getattr(file.object).await.unwrap().links, 0);
    assert_eq!(errno(zpl.link(file.object, root, b"g").await), ENOENT);
    zpl.release(file.object).await.unwrap();
    assert_eq!(read_all(&zpl, file.object).await, b"still here");
    zpl.release(file.object).await.unwrap();
    assert_eq!(errno(zpl.getattr(file.object).await), ESTALE);

    // Open at a crash: the next mount frees it.
    let lost = zpl.create(root, b"g", NewFile { open: true, ..FILE }).await.unwrap();
    zpl.write(lost.object, 0, &vec![1; 300_000], false).await.unwrap();
    zpl.unlink(root, b"g").await.unwrap();
    zpl.sync().await.unwrap();
    drop(zpl);
    pool.reload().await;
    pool.os().dnode(lost.object).await.unwrap();
    let zpl = pool.mount().await;
    zpl.sync().await.unwrap();
    assert!(matches!(pool.os().dnode(lost.object).await, Err(platter_zio::ZioError::NotFound(_))));
    assert_eq!(names(&zpl, root).await, [".", ".."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_object_keeps_its_number_until_it_is_forgotten() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"file", FILE).await.unwrap().object;
    let dir = zpl.mkdir(root, b"dir", DIR).await.unwrap().object;
    for object in [file, file, dir] {
        zpl.remember(object);
    }
    zpl.unlink(root, b"file").await.unwrap();
    zpl.rmdir(root, b"dir").await.unwrap();
    zpl.sync().await.unwrap();
    for i in 0..100 {
        let new = zpl.create(root, format!("new{i}").as_bytes(), FILE).await.unwrap().object;
        assert!(new != file && new != dir);
    }
    assert_eq!(zpl.getattr(file).await.unwrap().links, 0);
    assert_eq!(errno(zpl.create(dir, b"below", FILE).await), ENOENT);
    assert!(!zpl.forget(file, 1));
    zpl.reap(file).await.unwrap();
    zpl.getattr(file).await.unwrap();
    assert!(zpl.forget(file, 1));
    zpl.reap(file).await.unwrap();
    assert_eq!(errno(zpl.getattr(file).await), ESTALE);
    zpl.forget_all().await.unwrap();
    assert_eq!(errno(zpl.getattr(dir).await), ESTALE);

    // What nobody gave back before a crash goes at the next mount.
    let lost = zpl.create(root, b"lost", FILE).await.unwrap().object;
    zpl.remember(lost);
    zpl.unlink(root, b"lost").await.unwrap();
    zpl.sync().await.unwrap();
    pool.reload().await;
    let zpl = pool.mount().await;
    assert_eq!(errno(zpl.getattr(lost).await), ESTALE);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_and_not_open_is_freed_when_asked() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.root();
    let [mut forgotten, mut open, mut known] = [ObjectId(0); 3];
    for (name, object) in [(&b"forgotten"[..], &mut forgotten), (b"open", &mut open), (b"known", &mut known)] {
        *object = zpl.create(root, name, FILE).await.unwrap().object;
        zpl.remember(*object);
        if name == b"open" {
            zpl.open(*object).await.unwrap();
        }
        zpl.unlink(root, name).await.unwrap();
    }
    assert!(zpl.forget(forgotten, 1) && zpl.forget(open, 1));
    assert_eq!(zpl.reap_unopened().await.unwrap(), 1, "one is known");
    assert_eq!(errno(zpl.getattr(forgotten).await), ESTALE);
    assert_eq!([zpl.getattr(open).await.unwrap().links, zpl.getattr(known).await.unwrap().links], [0, 0]);
    assert!(zpl.forget(known, 1));
    assert_eq!(zpl.reap_unopened().await.unwrap(), 0);
    assert_eq!(errno(zpl.getattr(known).await), ESTALE);
    zpl.release(open).await.unwrap();
    assert_eq!(errno(zpl.getattr(open).await), ESTALE);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_uses_is_looked_up_as_it_is() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"file", FILE).await.unwrap().object;
    zpl.write(file, 0, &[7; 300_000], false).await.unwrap();
    zpl.symlink(root, b"link", b"somewhere", FILE).await.unwrap();
    zpl.mkdir(root, b"dir", DIR).await.unwrap();
    zpl.mknod(root, b"null", FileKind::CharDevice, 0x0103, FILE).await.unwrap();
    zpl.sync().await.unwrap();
    let names = [&b"file"[..], b"link", b"dir", b"null"];
    let mut before = Vec::new();
    for name in names {
        before.push(zpl.lookup(root, name).await.unwrap());
    }
    pool.reload().await;
    let zpl = pool.mount().await;
    // The first one reads the block that they share, and may take the other way.
    zpl.lookup(root, b"file").await.unwrap();
    for (name, before) in names.into_iter().zip(before) {
        let at_rest = zpl.lookup(root, name).await.unwrap();
        assert_eq!(at_rest, before);
        assert_eq!(zpl.open(at_rest.object).await.unwrap(), before);
        zpl.setattr(at_rest.object, SetAttr { uid: Some(99), ..SetAttr::default() }).await.unwrap();
        assert_eq!(zpl.lookup(root, name).await.unwrap().uid, 99);
        zpl.release(at_rest.object).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_directory_keeps_its_names() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.root();
    let dir = zpl.mkdir(root, b"dir", DIR).await.unwrap().object;
    let file = zpl.create(dir, b"file", FILE).await.unwrap().object;
    for flag in [flags::IMMUTABLE, flags::APPENDONLY] {
        zpl.setattr(dir, SetAttr { flags: Some(flag), ..SetAttr::default() }).await.unwrap();
        assert_eq!(errno(zpl.unlink(dir, b"file").await), EPERM);
        assert_eq!(errno(zpl.rename(dir, b"file", root, b"file", RenameFlags::default()).await), EPERM);
        assert_eq!(zpl.create(dir, b"other", FILE).await.is_ok(), flag == flags::APPENDONLY);
        assert_eq!(zpl.link(file, dir, b"link").await.is_ok(), flag == flags::APPENDONLY);
    }
    zpl.setattr(dir, SetAttr { flags: Some(0), ..SetAttr::default() }).await.unwrap();
    zpl.unlink(dir, b"file").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_moves_and_replaces_as_posix_says() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let plain = RenameFlags::default();
    let a = zpl.mkdir(root, b"a", DIR).await.unwrap();
    let b = zpl.mkdir(root, b"b", DIR).await.unwrap();
    let sub = zpl.mkdir(a.object, b"sub", DIR).await.unwrap();
    let f = zpl.create(root, b"f", FILE).await.unwrap();
    let g = zpl.create(root, b"g", FILE).await.unwrap();

    assert_eq!(errno(zpl.rename(root, b"a", sub.object, b"x", plain).await), EINVAL);
    assert_eq!(errno(zpl.rename(root, b"a", a.object, b"x", plain).await), EINVAL);
    assert_eq!(errno(zpl.rename(root, b"f", root, b"a", plain).await), EISDIR);
    assert_eq!(errno(zpl.rename(root, b"a", root, b"f", plain).await), ENOTDIR);
    assert_eq!(errno(zpl.rename(root, b"b", root, b"a", plain).await), ENOTEMPTY);
    assert_eq!(errno(zpl.rename(a.object, b"sub", root, b"a", plain).await), ENOTEMPTY);
    assert_eq!(errno(zpl.rename(root, b"none", root, b"x", plain).await), ENOENT);
    assert_eq!(errno(zpl.rename(root, b"f", root, b"..", plain).await), EINVAL);
    let no_replace = RenameFlags { no_replace: true, ..plain };
    assert_eq!(errno(zpl.rename(root, b"f", root, b"g", no_replace).await), EEXIST);

    // A directory moves to another parent: links and sizes follow.
    zpl.rename(a.object, b"sub", b.object, b"moved", plain).await.unwrap();
    let (a_now, b_now) = (zpl.getattr(a.object).await.unwrap(), zpl.getattr(b.object).await.unwrap());
    assert_eq!((a_now.links, a_now.size, b_now.links, b_now.size), (2, 2, 3, 3));
    assert_eq!(zpl.lookup(sub.object, b"..").await.unwrap().object, b.object);
    assert_eq!(zpl.object_path(sub.object).await.unwrap(), "/b/moved");

    // An empty directory is replaced by a directory, a file by a file.
    zpl.rename(b.object, b"moved", root, b"a", plain).await.unwrap();
    assert_eq!(errno(zpl.getattr(a.object).await), ESTALE);
    assert_eq!(zpl.lookup(root, b"a").await.unwrap().object, sub.object);
    zpl.rename(root, b"f", root, b"g", plain).await.unwrap();
    assert_eq!(errno(zpl.getattr(g.object).await), ESTALE);
    assert_eq!(zpl.lookup(root, b"g").await.unwrap().object, f.object);

    // Two names of one file: nothing happens.
    zpl.link(f.object, root, b"h").await.unwrap();
    zpl.rename(root, b"g", root, b"h", plain).await.unwrap();
    assert_eq!(zpl.lookup(root, b"g").await.unwrap().links, 2);

    // Exchange.
    let exchange = RenameFlags { exchange: true, ..plain };
    assert_eq!(errno(zpl.rename(root, b"g", root, b"none", exchange).await), ENOENT);
    zpl.rename(root, b"g", b.object, b"q", plain).await.unwrap();
    zpl.rename(b.object, b"q", root, b"a", exchange).await.unwrap();
    assert_eq!(zpl.lookup(root, b"a").await.unwrap().object, f.object);
    assert_eq!(zpl.lookup(b.object, b"q").await.unwrap().object, sub.object);
    assert_eq!(zpl.lookup(sub.object, b"..").await.unwrap().object, b.object);
    let (root_now, b_now) = (zpl.getattr(root).await.unwrap(), zpl.getattr(b.object).await.unwrap());
    assert_eq!((root_now.links, root_now.size, b_now.links, b_now.size), (3, 5, 3, 3));

    let zpl = pool.reopen(zpl).await;
    assert_eq!(names(&zpl, root).await, [".", "..", "a", "b", "h"]);
    assert_eq!(names(&zpl, b.object).await, [".", "..", "q"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_gid_directory_passes_its_group_on() {
    let (_pool, zpl) = mounted().await;
    let dir = zpl.mkdir(zpl.root(), b"d", NewFile { mode: 0o2775, gid: 50, ..DIR }).await.unwrap();
    let file = zpl.create(dir.object, b"f", FILE).await.unwrap();
    let sub = zpl.mkdir(dir.object, b"s", DIR).await.unwrap();
    assert_eq!((file.gid, file.mode), (50, 0o644));
    assert_eq!((sub.gid, sub.mode), (50, 0o2755));
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_change_and_stay() {
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap();
    let old = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
    let change = SetAttr {
        mode: Some(0o4711),
        uid: Some(100),
        gid: Some(200),
        atime: Some(SetTime::At(old)),
        mtime: Some(SetTime::At(old)),
        ..SetAttr::default()
    };
    let changed = zpl.setattr(file.object, change).await.unwrap();
    assert!(changed.ctime > file.ctime);
    let zpl = pool.reopen(zpl).await;
    let attr = zpl.getattr(file.object).await.unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.atime, attr.mtime), (0o4711, 100, 200, old, old));
    assert_eq!(attr.flags & flags::NO_EXECS_DENIED, flags::NO_EXECS_DENIED);
    assert_eq!(attr.crtime, file.crtime);

    zpl.setattr(file.object, SetAttr { flags: Some(flags::IMMUTABLE), ..SetAttr::default() }).await.unwrap();
    assert_eq!(errno(zpl.write(file.object, 0, b"x", false).await), EPERM);
    assert_eq!(errno(zpl.unlink(zpl.root(), b"f").await), EPERM);
    zpl.setattr(file.object, SetAttr { flags: Some(0), ..SetAttr::default() }).await.unwrap();
    zpl.write(file.object, 0, b"x", false).await.unwrap();
}

/// The hole behind the last block was data: of three blocks and a file made longer, a copy had to read all of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_hole_at_the_end_begins_behind_the_last_block() {
    const BLOCK: u64 = 128 << 10;
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap().object;
    zpl.write(file, 0, &vec![7; 3 * BLOCK as usize], false).await.unwrap();
    zpl.setattr(file, SetAttr { size: Some(60 << 20), ..SetAttr::default() }).await.unwrap();
    let check = async |zpl: &Arc<Zpl>| {
        assert_eq!(zpl.seek(file, 0, SeekFor::Hole).await.unwrap(), 3 * BLOCK);
        assert_eq!(zpl.seek(file, 10 * BLOCK + 5, SeekFor::Hole).await.unwrap(), 10 * BLOCK + 5);
        assert_eq!(errno(zpl.seek(file, 3 * BLOCK, SeekFor::Data).await), ENXIO);
        assert_eq!(errno(zpl.seek(file, 60 << 20, SeekFor::Hole).await), ENXIO);
    };
    check(&zpl).await;
    check(&pool.reopen(zpl).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_grow_shrink_and_have_holes() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"f", FILE).await.unwrap().object;
    assert_eq!(zpl.write(file, 0, b"0123456789", false).await.unwrap(), 10);
    assert_eq!(zpl.write(file, 99, b"end", true).await.unwrap(), 3);
    assert_eq!(read_all(&zpl, file).await, b"0123456789end");

    // Far beyond the first block: it takes the record size, and what is between reads as zeros.
    zpl.write(file, 1_000_000, b"far", false).await.unwrap();
    let mut expected = vec![0; 1_000_003];
    expected[..13].copy_from_slice(b"0123456789end");
    expected[1_000_000..].copy_from_slice(b"far");
    assert_eq!(read_all(&zpl, file).await, expected);
    let zpl = pool.reopen(zpl).await;
    assert_eq!(read_all(&zpl, file).await, expected);
    assert_eq!(zpl.seek(file, 0, SeekFor::Hole).await.unwrap(), 128 << 10);
    assert_eq!(zpl.seek(file, 128 << 10, SeekFor::Data).await.unwrap(), 7 * (128 << 10));
    assert_eq!(zpl.seek(file, 1_000_001, SeekFor::Hole).await.unwrap(), 1_000_003);
    assert_eq!(errno(zpl.seek(file, 1_000_003, SeekFor::Data).await), ENXIO);

    // What a truncation cuts off never comes back.
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    zpl.setattr(file, size(5)).await.unwrap();
    zpl.setattr(file, size(300_000)).await.unwrap();
    let mut expected = vec![0; 300_000];
    expected[..5].copy_from_slice(b"01234");
    assert_eq!(read_all(&zpl, file).await, expected);
    assert_eq!(errno(zpl.setattr(file, size(1 << 63)).await), EFBIG);
    assert_eq!(errno(zpl.setattr(root, size(1)).await), EISDIR);
    assert_eq!(errno(zpl.write(file, (1 << 63) - 2, b"abc", false).await), EFBIG);
    assert_eq!(errno(zpl.read(root, 0, 1).await), EISDIR);

    zpl.write(file, 0, &vec![7; 300_000], false).await.unwrap();
    zpl.fallocate(file, Fallocate::PunchHole, 100_000, 150_000).await.unwrap();
    zpl.fallocate(file, Fallocate::ZeroRange { keep_size: false }, 290_000, 20_000).await.unwrap();
    zpl.fallocate(file, Fallocate::Allocate { keep_size: true }, 0, 1 << 20).await.unwrap();
    let mut expected = vec![7; 310_000];
    expected[100_000..250_000].fill(0);
    expected[290_000..].fill(0);
    let zpl = pool.reopen(zpl).await;
    assert_eq!(read_all(&zpl, file).await, expected);
    zpl.fallocate(file, Fallocate::Allocate { keep_size: false }, 0, 400_000).await.unwrap();
    assert_eq!(zpl.getattr(file).await.unwrap().size, 400_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_files_take_one_block_of_their_size() {
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap().object;
    for (size, block) in [(1u64, 512), (513, 1024), (5000, 5120), (131_072, 131_072), (131_073, 131_072)] {
        let at = zpl.getattr(file).await.unwrap().size;
        zpl.write(file, at, &vec![3; (size - at) as usize], false).await.unwrap();
        assert_eq!(pool.os().dnode(file).await.unwrap().block_size(), block, "at {size}");
        assert_eq!(read_all(&zpl, file).await, vec![3; size as usize]);
    }
    let zpl = pool.reopen(zpl).await;
    assert_eq!(read_all(&zpl, file).await, vec![3; 131_073]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fsync_waits_for_the_disk() {
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap().object;
    zpl.write(file, 0, b"precious", false).await.unwrap();
    zpl.fsync(file).await.unwrap();
    // No unmount: as after a crash.
    drop(zpl);
    pool.reload().await;
    let zpl = pool.mount().await;
    assert_eq!(read_all(&zpl, file).await, b"precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn access_times_follow_the_mode() {
    let pool = TestPool::new(properties()).await;
    let zpl = pool.mount_with(MountOptions { atime: AtimeMode::Relative, ..MountOptions::default() }).await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap().object;
    zpl.write(file, 0, b"abc", false).await.unwrap();
    let atime = |zpl: std::sync::Arc<Zpl>| async move { zpl.getattr(file).await.unwrap().atime };
    let before = atime(zpl.clone()).await;
    read_all(&zpl, file).await;
    let first = atime(zpl.clone()).await;
    assert!(first > before);
    read_all(&zpl, file).await;
    assert_eq!(atime(zpl.clone()).await, first);
    zpl.set_atime(AtimeMode::Always);
    read_all(&zpl, file).await;
    let second = atime(zpl.clone()).await;
    assert!(second > first);
    zpl.set_atime(AtimeMode::Off);
    read_all(&zpl, file).await;
    assert_eq!(atime(zpl.clone()).await, second);
    let zpl = pool.reopen(zpl).await;
    assert_eq!(atime(zpl).await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_mount_refuses_every_change() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    let file = zpl.create(root, b"f", FILE).await.unwrap().object;
    zpl.unmount().await.unwrap();
    drop(zpl);
    let zpl = pool.mount_with(MountOptions { read_only: true, ..MountOptions::default() }).await;
    assert!(zpl.read_only_reason().is_some());
    assert_eq!(errno(zpl.create(root, b"g", FILE).await), EROFS);
    assert_eq!(errno(zpl.unlink(root, b"f").await), EROFS);
    assert_eq!(errno(zpl.write(file, 0, b"x", false).await), EROFS);
    assert_eq!(errno(zpl.setattr(file, SetAttr::default()).await), EROFS);
    assert_eq!(errno(zpl.rename(root, b"f", root, b"g", RenameFlags::default()).await), EROFS);
    assert_eq!(zpl.lookup(root, b"f").await.unwrap().object, file);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_found_without_mounting() {
    let (pool, zpl) = mounted().await;
    let a = zpl.mkdir(zpl.root(), b"a", DIR).await.unwrap().object;
    let b = zpl.mkdir(a, b"b", DIR).await.unwrap().object;
    let f = zpl.create(b, b"f", FILE).await.unwrap().object;
    let root = zpl.root();
    zpl.unmount().await.unwrap();
    drop(zpl);
    pool.reload().await;
    let os = pool.os();
    assert_eq!(object_path(&os, f).await.unwrap(), "/a/b/f");
    assert_eq!(object_path(&os, root).await.unwrap(), "/");
    assert!(object_path(&os, ObjectId(1)).await.is_err());
    assert!(object_path(&os, ObjectId(77_777)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_goes_on_while_entries_come_and_go() {
    let (_pool, zpl) = mounted().await;
    let root = zpl.root();
    for i in 0..500 {
        zpl.create(root, format!("keep{i}").as_bytes(), FILE).await.unwrap();
        zpl.create(root, format!("drop{i}").as_bytes(), FILE).await.unwrap();
    }
    let (mut seen, mut cursor, mut round) = (Vec::new(), 0, 0);
    loop {
        let entries = zpl.readdir(root, cursor, 50, true).await.unwrap();
        let Some(last) = entries.last() else { break };
        assert_ne!(last.cursor, 0);
        cursor = last.cursor;
        for entry in &entries {
            if entry.name.starts_with(b"keep") {
                assert_eq!(entry.attr.unwrap().object, entry.object);
                assert_eq!(entry.kind, Some(FileKind::Regular));
                seen.push(String::from_utf8(entry.name.clone()).unwrap());
            }
        }
        for i in round * 20..(round + 1) * 20 {
            let _ = zpl.unlink(root, format!("drop{i}").as_bytes()).await;
        }
        zpl.create(root, format!("new{round}").as_bytes(), FILE).await.unwrap();
        round += 1;
        assert!(round < 200, "the listing does not end");
    }
    seen.sort();
    let mut expected: Vec<_> = (0..500).map(|i| format!("keep{i}")).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_operations_neither_deadlock_nor_lose_anything() {
    let pool = TestPool::new(properties()).await;
    // A small cache, so that znodes are evicted under way.
    let zpl = pool.mount_with(MountOptions { znodes_max: 1, salt_seed: 3, ..MountOptions::default() }).await;
    let root = zpl.root();
    let dirs: Vec<_> = {
        let mut dirs = Vec::new();
        for i in 0..4 {
            dirs.push(zpl.mkdir(root, format!("d{i}").as_bytes(), DIR).await.unwrap().object);
        }
        dirs
    };
    let tasks: Vec<_> = (0..8usize)
        .map(|task| {
            let (zpl, dirs) = (zpl.clone(), dirs.clone());
            tokio::spawn(async move {
                for i in 0..60usize {
                    let (from, to) = (dirs[(task + i) % 4], dirs[(task * 3 + i * 7 + 1) % 4]);
                    let name = format!("t{task}-{i}");
                    let file = zpl.create(from, name.as_bytes(), FILE).await.unwrap().object;
                    zpl.write(file, 0, name.as_bytes(), false).await.unwrap();
                    let new_name = format!("m{task}-{i}");
                    zpl.rename(from, name.as_bytes(), to, new_name.as_bytes(), RenameFlags::default()).await.unwrap();
                    // All tasks fight for one name.
                    let _ = zpl.rename(to, new_name.as_bytes(), dirs[0], b"prize", RenameFlags::default()).await;
                    let keep = format!("k{task}-{i}");
                    let kept = zpl.create(to, keep.as_bytes(), FILE).await.unwrap().object;
                    zpl.write(kept, 1000, keep.as_bytes(), false).await.unwrap();
                    if i % 3 == 0 {
                        zpl.unlink(to, keep.as_bytes()).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(std::time::Duration::from_secs(120), task).await.expect("no deadlock").unwrap();
    }
    let zpl = pool.reopen(zpl).await;
    let mut found = 0;
    for &dir in &dirs {
        let names = names(&zpl, dir).await;
        assert_eq!(zpl.getattr(dir).await.unwrap().size, names.len() as u64);
        for name in names.iter().filter(|n| n.starts_with('k')) {
            let file = zpl.lookup(dir, name.as_bytes()).await.unwrap();
            let data = read_all(&zpl, file.object).await;
            assert_eq!(&data[1000..], name.as_bytes());
            found += 1;
        }
        assert_eq!(names.contains(&"prize".to_string()), dir == dirs[0]);
    }
    assert_eq!(found, 8 * 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_of_one_file_do_not_lose_each_others_bytes() {
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"f", FILE).await.unwrap().object;
    const PIECE: usize = 10_000;
    let tasks: Vec<_> = (0..8u64)
        .map(|task| {
            let zpl = zpl.clone();
            tokio::spawn(async move {
                for i in 0..20u64 {
                    let at = (i * 8 + task) * PIECE as u64;
                    assert_eq!(zpl.write(file, at, &vec![task as u8 + 1; PIECE], false).await.unwrap(), PIECE);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let expected: Vec<u8> = (0..160).flat_map(|i| vec![i % 8 + 1; PIECE]).collect();
    assert!(read_all(&zpl, file).await == expected);
    let zpl = pool.reopen(zpl).await;
    assert!(read_all(&zpl, file).await == expected);
}

/// Room for a number of blocks in the store, known as of the last sync.
struct Blocks(std::sync::Arc<MemoryStore>, usize);

impl SpaceInfo for Blocks {
    fn available(&self) -> u64 {
        (self.1.saturating_sub(self.0.live_blocks()) as u64) << 17
    }

    fn referenced(&self) -> u64 {
        (self.0.live_blocks() as u64) << 17
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_system_refuses_writes_and_can_be_emptied() {
    const LIMIT: usize = 200;
    let pool = TestPool::new(properties()).await;
    let zpl = pool.mount_limited(std::sync::Arc::new(Blocks(pool.store.clone(), LIMIT))).await;
    let root = zpl.root();
    let file = zpl.create(root, b"f", FILE).await.unwrap().object;
    let mut written = 0;
    let error = loop {
        match zpl.write(file, written, &vec![5; 1 << 20], false).await {
            Ok(bytes) => written += bytes as u64,
            Err(error) => break error,
        }
        assert!(written < 1 << 30, "never full");
    };
    assert_eq!(error.errno(), ENOSPC);
    zpl.sync().await.unwrap();
    assert!(written >= 16 << 20, "refused although most of the room was left: {written}");
    assert!(pool.store.live_blocks() <= LIMIT + 20, "{} blocks", pool.store.live_blocks());
    zpl.unlink(root, b"f").await.unwrap();
    pool.settle().await;
    let file = zpl.create(root, b"g", FILE).await.unwrap().object;
    zpl.write(file, 0, &vec![5; 8 << 20], false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn freed_files_give_their_blocks_back() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    zpl.sync().await.unwrap();
    let settle = || async {
        pool.settle().await;
        pool.store.live_blocks()
    };
    let before = settle().await;
    for i in 0..20 {
        let file = zpl.create(root, format!("f{i}").as_bytes(), FILE).await.unwrap().object;
        zpl.write(file, 0, &vec![i + 1; 1 << 20], false).await.unwrap();
    }
    zpl.sync().await.unwrap();
    assert!(settle().await > before + 100);
    for i in 0..20 {
        zpl.unlink(root, format!("f{i}").as_bytes()).await.unwrap();
    }
    zpl.sync().await.unwrap();
    let after = settle().await;
    assert!(after <= before + 4, "{after} blocks live, {before} before");
}
