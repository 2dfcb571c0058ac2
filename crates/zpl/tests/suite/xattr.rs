//! Extended attributes and access control lists: in the file itself, in the hidden directory, and between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{TestPool, mounted, properties};
use platter_ondisk::ObjectId;
use platter_zpl::{MountOptions, NewFile, SetAttr, SetXattr, XattrMode, Zpl, ZplError};

const FILE: NewFile = NewFile { mode: 0o644, umask: 0, uid: 1, gid: 2, open: false };
const DIR: NewFile = NewFile { mode: 0o755, ..FILE };

const EEXIST: i32 = 17;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
const E2BIG: i32 = 7;
const EINVAL: i32 = 22;

fn errno<T: std::fmt::Debug>(result: Result<T, ZplError>) -> i32 {
    result.unwrap_err().errno()
}

async fn with_mode(xattr: XattrMode, posix_acl: bool) -> (Arc<TestPool>, Arc<Zpl>) {
    let pool = TestPool::new(properties()).await;
    let zpl = pool.mount_with(MountOptions { xattr, posix_acl, ..MountOptions::default() }).await;
    (pool, zpl)
}

async fn remount(pool: &Arc<TestPool>, zpl: Arc<Zpl>, xattr: XattrMode, posix_acl: bool) -> Arc<Zpl> {
    zpl.unmount().await.unwrap();
    drop(zpl);
    pool.reload().await;
    pool.mount_with(MountOptions { xattr, posix_acl, ..MountOptions::default() }).await
}

async fn set(zpl: &Zpl, object: ObjectId, name: &str, value: &[u8]) {
    zpl.setxattr(object, name.as_bytes(), value, SetXattr::Any, true).await.unwrap();
}

async fn all(zpl: &Zpl, object: ObjectId) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in zpl.listxattr(object, true).await.unwrap() {
        let value = zpl.getxattr(object, &name).await.unwrap();
        found.insert(String::from_utf8(name).unwrap(), value);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_is_found_after_reopening_wherever_it_lies() {
    for mode in [XattrMode::Sa, XattrMode::Dir] {
        let (pool, zpl) = with_mode(mode, false).await;
        let file = zpl.create(zpl.root(), b"file", FILE).await.unwrap().object;
        let link = zpl.symlink(zpl.root(), b"link", &[b'x'; 300], FILE).await.unwrap().object;
        let mut expected = BTreeMap::new();
        // Inside the dnode, in a spill block, and (33 000 and 64 Ki) too large for either.
        for (i, length) in [0, 1, 7, 100, 600, 5_000, 30_000, 33_000, 64 << 10].into_iter().enumerate() {
            let (name, value) = (format!("user.n{i}"), vec![i as u8; length]);
            set(&zpl, file, &name, &value).await;
            expected.insert(name, value);
        }
        set(&zpl, link, "trusted.on-a-link", b"yes").await;
        set(&zpl, file, "user.n3", b"changed").await;
        expected.insert("user.n3".into(), b"changed".to_vec());
        assert!(all(&zpl, file).await == expected, "{mode:?}");
        let zpl = remount(&pool, zpl, mode, false).await;
        assert!(all(&zpl, file).await == expected, "{mode:?}");
        assert_eq!(zpl.getxattr(link, b"trusted.on-a-link").await.unwrap(), b"yes");
        assert_eq!(zpl.readlink(link).await.unwrap(), [b'x'; 300]);

        // Written anew under the other mode, each stays in one place only.
        let other = if mode == XattrMode::Sa { XattrMode::Dir } else { XattrMode::Sa };
        zpl.set_xattr_mode(other);
        for (name, value) in &mut expected {
            value.reverse();
            value.push(1);
            value.truncate(64 << 10);
            set(&zpl, file, name, value).await;
        }
        assert!(all(&zpl, file).await == expected, "{mode:?}");
        for name in expected.keys() {
            zpl.removexattr(file, name.as_bytes()).await.unwrap();
            assert_eq!(errno(zpl.getxattr(file, name.as_bytes()).await), ENODATA, "{name}");
        }
        assert!(all(&zpl, file).await.is_empty());
        let zpl = remount(&pool, zpl, mode, false).await;
        assert!(all(&zpl, file).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn create_and_replace_mean_what_they_say() {
    for mode in [XattrMode::Sa, XattrMode::Dir] {
        let (_pool, zpl) = with_mode(mode, false).await;
        let file = zpl.create(zpl.root(), b"file", FILE).await.unwrap().object;
        let set = |how, value: &'static [u8]| zpl.setxattr(file, b"user.a", value, how, true);
        assert_eq!(errno(set(SetXattr::Replace, b"1").await), ENODATA);
        set(SetXattr::Create, b"2").await.unwrap();
        assert_eq!(errno(set(SetXattr::Create, b"3").await), EEXIST);
        set(SetXattr::Replace, b"4").await.unwrap();
        assert_eq!(zpl.getxattr(file, b"user.a").await.unwrap(), b"4");
        assert_eq!(errno(zpl.removexattr(file, b"user.b").await), ENODATA);
        assert_eq!(errno(zpl.setxattr(file, b"user.big", &vec![0; (64 << 10) + 1], SetXattr::Any, true).await), E2BIG);
        assert_eq!(errno(zpl.setxattr(file, b"user.", b"", SetXattr::Any, true).await), EINVAL);
        for name in ["unknown.a", "nothing", "system.posix_acl_access"] {
            assert_eq!(errno(zpl.getxattr(file, name.as_bytes()).await), EOPNOTSUPP, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_utf8_is_kept_as_it_is() {
    let (pool, zpl) = mounted().await;
    let file = zpl.create(zpl.root(), b"file", FILE).await.unwrap().object;
    let name = b"user.\xff\xfe";
    zpl.setxattr(file, name, b"value", SetXattr::Any, true).await.unwrap();
    set(&zpl, file, "user.plain", b"too").await;
    let zpl = pool.reopen(zpl).await;
    assert_eq!(zpl.listxattr(file, false).await.unwrap(), [b"user.plain".to_vec(), name.to_vec()]);
    assert_eq!(zpl.getxattr(file, name).await.unwrap(), b"value");
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_go_with_their_file() {
    let (_pool, zpl) = with_mode(XattrMode::Dir, false).await;
    zpl.create(zpl.root(), b"first", FILE).await.unwrap();
    zpl.sync().await.unwrap();
    let before = zpl.objset().object_count();
    for number in 0..20 {
        let name = format!("f{number}");
        let object = zpl.create(zpl.root(), name.as_bytes(), FILE).await.unwrap().object;
        set(&zpl, object, "user.a", &[1; 3000]).await;
        set(&zpl, object, "user.b", b"").await;
    }
    zpl.sync().await.unwrap();
    assert_eq!(zpl.objset().object_count(), before + 20 * 4);
    for number in 0..20 {
        zpl.unlink(zpl.root(), format!("f{number}").as_bytes()).await.unwrap();
    }
    zpl.sync().await.unwrap();
    assert_eq!(zpl.objset().object_count(), before);
}

/// An access control list as the kernel encodes it: owner, a named user, group, mask, others.
fn acl(owner: u8, user: Option<u8>, group: u8, mask: u8, other: u8) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    let mut entry = |tag: u8, permissions: u8, id: u32| {
        out.extend_from_slice(&[tag, 0, permissions, 0]);
        out.extend_from_slice(&id.to_le_bytes());
    };
    entry(1, owner, u32::MAX);
    if let Some(permissions) = user {
        entry(2, permissions, 1001);
    }
    entry(4, group, u32::MAX);
    if user.is_some() {
        entry(0x10, mask, u32::MAX);
    }
    entry(0x20, other, u32::MAX);
    out
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_modes_follow_each_other() {
    for mode in [XattrMode::Sa, XattrMode::Dir] {
        let (pool, zpl) = with_mode(mode, true).await;
        let file = zpl.create(zpl.root(), b"file", NewFile { mode: 0o2755, ..FILE }).await.unwrap().object;
        set(&zpl, file, ACCESS, &acl(6, Some(7), 5, 6, 4)).await;
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o2664);
        zpl.setattr(file, SetAttr { mode: Some(0o751), ..SetAttr::default() }).await.unwrap();
        let zpl = remount(&pool, zpl, mode, true).await;
        assert_eq!(zpl.getxattr(file, ACCESS.as_bytes()).await.unwrap(), acl(7, Some(7), 5, 5, 1));
        // One that names nobody is only a mode; set by somebody of another group it ends set-gid.
        zpl.setattr(file, SetAttr { mode: Some(0o2751), ..SetAttr::default() }).await.unwrap();
        zpl.setxattr(file, ACCESS.as_bytes(), &acl(6, None, 4, 0, 0), SetXattr::Any, false).await.unwrap();
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o640);
        assert_eq!(errno(zpl.getxattr(file, ACCESS.as_bytes()).await), ENODATA);
        assert_eq!(errno(zpl.setxattr(file, ACCESS.as_bytes(), b"junk", SetXattr::Any, true).await), EINVAL);
        assert_eq!(
            errno(zpl.setxattr(file, DEFAULT.as_bytes(), &acl(6, None, 4, 0, 0), SetXattr::Any, true).await),
            13
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_files_inherit_the_default_list_and_no_umask_then() {
    for mode in [XattrMode::Sa, XattrMode::Dir] {
        let (pool, zpl) = with_mode(mode, true).await;
        let dir = zpl.mkdir(zpl.root(), b"dir", DIR).await.unwrap().object;
        let masked = NewFile { mode: 0o666, umask: 0o077, ..FILE };
        assert_eq!(zpl.create(dir, b"plain", masked).await.unwrap().mode, 0o600);
        let list = acl(7, Some(6), 5, 7, 4);
        set(&zpl, dir, DEFAULT, &list).await;
        let file = zpl.create(dir, b"file", masked).await.unwrap();
        let sub = zpl.mkdir(dir, b"sub", NewFile { mode: 0o777, umask: 0o077, ..FILE }).await.unwrap();
        let link = zpl.symlink(dir, b"link", b"target", NewFile { mode: 0o777, ..FILE }).await.unwrap();
        assert_eq!((file.mode, sub.mode, link.mode), (0o664, 0o774, 0o777));
        let zpl = remount(&pool, zpl, mode, true).await;
        let expected = |pairs: &[(&str, Vec<u8>)]| -> BTreeMap<String, Vec<u8>> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        assert_eq!(all(&zpl, file.object).await, expected(&[(ACCESS, acl(6, Some(6), 5, 6, 4))]));
        assert_eq!(all(&zpl, sub.object).await, expected(&[(ACCESS, list.clone()), (DEFAULT, list.clone())]));
        assert!(all(&zpl, link.object).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn privileges_end_with_a_write_and_with_a_new_owner() {
    for mode in [XattrMode::Sa, XattrMode::Dir] {
        let (_pool, zpl) = with_mode(mode, false).await;
        let program = NewFile { mode: 0o6755, ..FILE };
        let file = zpl.create(zpl.root(), b"file", program).await.unwrap().object;
        set(&zpl, file, "security.capability", b"cap").await;
        // Who may keep set-uid still loses capabilities.
        zpl.drop_privileges(file, false).await.unwrap();
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o6755);
        assert_eq!(errno(zpl.getxattr(file, b"security.capability").await), ENODATA);
        zpl.drop_privileges(file, true).await.unwrap();
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o755);

        let file = zpl.create(zpl.root(), b"other", program).await.unwrap().object;
        set(&zpl, file, "security.capability", b"cap").await;
        set(&zpl, file, "user.kept", b"").await;
        zpl.setattr(file, SetAttr { uid: Some(5), ..SetAttr::default() }).await.unwrap();
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o755);
        assert_eq!(all(&zpl, file).await.into_keys().collect::<Vec<_>>(), ["user.kept"]);
        // Without the right to execute, the group's bit means something else and stays.
        let file = zpl.create(zpl.root(), b"lock", NewFile { mode: 0o6644, ..FILE }).await.unwrap().object;
        zpl.drop_privileges(file, true).await.unwrap();
        assert_eq!(zpl.getattr(file).await.unwrap().mode, 0o2644);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_range_has_the_same_bytes_and_holes() {
    let (_pool, zpl) = mounted().await;
    let from = zpl.create(zpl.root(), b"from", FILE).await.unwrap().object;
    let to = zpl.create(zpl.root(), b"to", FILE).await.unwrap().object;
    let block = 128u64 << 10;
    zpl.write(from, 0, &vec![7; block as usize], false).await.unwrap();
    zpl.write(from, 20 * block, &vec![8; block as usize + 10], false).await.unwrap();
    zpl.write(to, 0, &vec![9; 30 * block as usize], false).await.unwrap();
    let mut done = 0;
    loop {
        match zpl.copy_range(from, done, to, done, u64::MAX).await.unwrap() {
            0 => break,
            copied => done += copied,
        }
    }
    assert_eq!(done, 21 * block + 10);
    let bytes = crate::common::read_all(&zpl, to).await;
    let source = crate::common::read_all(&zpl, from).await;
    assert!(bytes[..source.len()] == source[..]);
    assert!(bytes[source.len()..].iter().all(|&byte| byte == 9) && bytes.len() as u64 == 30 * block);
    let hole = zpl.seek(to, 0, platter_zpl::SeekFor::Hole).await.unwrap();
    assert_eq!(hole, block);
    assert_eq!((hole, zpl.seek(to, hole, platter_zpl::SeekFor::Data).await.unwrap()), (block, 20 * block));
}
