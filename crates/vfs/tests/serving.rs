//! What a server relies on, on a pool in memory and without a mount: files that are open, handles, caches, events.

mod common;

use common::{CHECKED, READ_ONLY, READ_WRITE, ROOT, WRITE_ONLY, contents_of, new, serve, served, user};
use platter_vfs::{
    Access, Caching, Handle, Opening, Operation, Reading, RenameFlags, SeekFor, SetAttr, SetXattr, VfsError, Writing,
};
use platter_zpl::ZplError;

fn is_stale<T>(result: &platter_vfs::Result<T>) -> bool {
    matches!(result, Err(VfsError::File(ZplError::Stale)))
}

#[tokio::test]
async fn what_is_open_lives_on_without_a_name_until_it_is_closed() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let file = served.file(&ROOT, b"file", 0o644, b"text").await.object;
    let how = vfs.open(CHECKED, file, READ_ONLY).await.unwrap();
    vfs.unlink(CHECKED, root, b"file").await.unwrap();
    let pieces = vfs.read(CHECKED, file, 0, 100, Reading::default()).await.unwrap();
    assert_eq!(pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>(), b"text");
    served.close(file, READ_ONLY, how).await;
    assert!(is_stale(&vfs.getattr(CHECKED, file).await));
    assert!(matches!(vfs.close(file, READ_ONLY, false), Err(VfsError::NotOpen)));
}

#[tokio::test]
async fn what_is_known_is_freed_once_it_is_forgotten() {
    let served = served().await;
    let vfs = &served.vfs;
    let file = served.file(&ROOT, b"file", 0o644, b"text").await.object;
    vfs.remember(file);
    vfs.remember(file);
    vfs.unlink(CHECKED, vfs.root(), b"file").await.unwrap();
    vfs.forget([(file, 1)].into_iter());
    assert_eq!(vfs.getattr(CHECKED, file).await.unwrap().links, 0);
    served.told.take();
    vfs.forget([(file, 1)].into_iter());
    // Away from whoever serves, soon.
    while served.told.events.lock().iter().all(|(operation, ..)| *operation != Operation::Reap) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(is_stale(&vfs.getattr(CHECKED, file).await));
}

#[tokio::test]
async fn at_the_end_all_is_given_back_and_nothing_begins() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let (open, _) = served.create(&ROOT, b"open", 0o644).await;
    let known = served.file(&ROOT, b"known", 0o644, b"").await.object;
    let stays = served.file(&ROOT, b"stays", 0o644, b"text").await.object;
    vfs.open(CHECKED, stays, READ_ONLY).await.unwrap();
    vfs.open_directory(CHECKED, root).await.unwrap();
    vfs.remember(known);
    for name in [&b"open"[..], b"known"] {
        vfs.unlink(CHECKED, root, name).await.unwrap();
    }
    vfs.give_back().await;

    for gone in [open.object, known] {
        assert!(matches!(served.zpl.getattr(gone).await, Err(ZplError::Stale)));
    }
    assert_eq!(contents_of(&served.zpl, stays).await, b"text");
    assert!(matches!(vfs.open(CHECKED, stays, READ_ONLY).await, Err(VfsError::Over)));
    assert!(matches!(vfs.read(CHECKED, stays, 0, 1, Reading::default()).await, Err(VfsError::Over)));
    assert!(matches!(vfs.unlink(Access::Of(&ROOT), root, b"stays").await, Err(VfsError::Over)));
    // Served anew it is all there.
    let (again, _) = serve(&served.zpl);
    assert_eq!(again.lookup(CHECKED, root, b"stays").await.unwrap().object, stays);
}

#[tokio::test]
async fn a_handle_leads_to_its_file_or_to_none() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let attr = served.file(&ROOT, b"file", 0o644, b"text").await;
    let handle = vfs.handle(&attr);
    let bytes = handle.encode();
    assert_eq!(vfs.find(CHECKED, &Handle::decode(&bytes).unwrap()).await.unwrap(), attr);
    // Another life of the same number, and another object set.
    for (at, what) in [(16, "generation"), (0, "object set")] {
        let mut other = bytes;
        other[at] ^= 1;
        assert!(is_stale(&vfs.find(CHECKED, &Handle::decode(&other).unwrap()).await), "{what}");
    }
    // Whoever comes back after a restart finds it, until it has no name, open or not.
    let (again, _) = serve(&served.zpl);
    assert_eq!(again.find(CHECKED, &handle).await.unwrap().object, attr.object);
    vfs.open(CHECKED, attr.object, READ_ONLY).await.unwrap();
    vfs.unlink(CHECKED, root, b"file").await.unwrap();
    assert!(is_stale(&vfs.find(CHECKED, &handle).await));
    let control = vfs.lookup(CHECKED, root, b".zfs").await.unwrap();
    assert_eq!(vfs.find(CHECKED, &vfs.handle(&control)).await.unwrap(), control);
}

#[tokio::test]
async fn the_control_directory_is_there_and_nobodys_to_change() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let control = vfs.lookup(CHECKED, root, b".zfs").await.unwrap();
    let listed = |entries: &mut Vec<String>, entry: &platter_vfs::DirEntry| {
        entries.push(String::from_utf8(entry.name.clone()).unwrap());
        false
    };
    let mut entries = Vec::new();
    vfs.list(CHECKED, control.object, 0, true, |entry| listed(&mut entries, entry)).await.unwrap();
    assert_eq!(entries, [".", "..", "snapshot"]);
    entries.clear();
    vfs.list(CHECKED, root, 0, false, |entry| listed(&mut entries, entry)).await.unwrap();
    assert_eq!(entries, [".", ".."]);
    let up = vfs.lookup(CHECKED, control.object, b"..").await.unwrap();
    assert_eq!(up.object, root);
    vfs.open_directory(CHECKED, control.object).await.unwrap();
    assert!(vfs.close_directory(control.object).unwrap().is_none());

    let refused = [
        vfs.mkdir(CHECKED, control.object, b"a", new(&ROOT, 0o755)).await.map(drop),
        vfs.mkdir(CHECKED, root, b".zfs", new(&ROOT, 0o755)).await.map(drop),
        vfs.rmdir(CHECKED, root, b".zfs").await,
        vfs.setattr(CHECKED, control.object, SetAttr::default(), false).await.map(drop),
        vfs.setxattr(CHECKED, control.object, b"user.a", b"1", SetXattr::Any, true).await,
        vfs.tmpfile(CHECKED, control.object, new(&ROOT, 0o644), true, READ_WRITE).await.map(drop),
        vfs.rename(CHECKED, (root, b".zfs"), (root, b"a"), RenameFlags::default()).await,
    ];
    for (at, refused) in refused.iter().enumerate() {
        assert!(matches!(refused, Err(VfsError::NotPermitted)), "{at}: {refused:?}");
    }
}

#[tokio::test]
async fn caches_forget_what_was_written_past_them() {
    let served = served().await;
    let (vfs, told) = (&served.vfs, &served.told);
    let file = served.file(&ROOT, b"file", 0o644, b"first").await.object;
    let past = Writing { direct: true, ..Writing::default() };
    // A lone writer goes past the cache; who reads meanwhile may fill it through a mapping.
    assert_eq!(vfs.open(CHECKED, file, WRITE_ONLY).await.unwrap(), Caching::Past);
    assert!(vfs.write(CHECKED, file, 0, b"other", past).await.unwrap().is_settled());
    vfs.open(CHECKED, file, READ_ONLY).await.unwrap();
    vfs.read(CHECKED, file, 0, 5, Reading { direct: false, fills_cache: true }).await.unwrap();
    let written = vfs.write(CHECKED, file, 1, b"now", past).await.unwrap();
    assert!(!written.is_settled() && told.contents.lock().is_empty());
    vfs.settle(written).await.unwrap();
    assert_eq!(*told.contents.lock(), [(file, 1..4)]);
    // One that must be stable is not settled either, and forgets nothing.
    let stable = vfs.write(CHECKED, file, 0, b"n", Writing { stable: true, ..Writing::default() }).await.unwrap();
    assert!(!stable.is_settled());
    vfs.settle(stable).await.unwrap();
    assert_eq!(told.contents.lock().len(), 1);
}

#[tokio::test]
async fn caches_forget_the_mode_that_writing_has_changed() {
    let served = served().await;
    let (vfs, told) = (&served.vfs, &served.told);
    let file = served.file(&ROOT, b"file", 0o6777, b"text").await.object;
    let write = |drops_set_id| vfs.write(CHECKED, file, 0, b"t", Writing { drops_set_id, ..Writing::default() });
    assert!(write(false).await.unwrap().is_settled() && told.attributes.lock().is_empty());
    assert!(write(true).await.unwrap().is_settled());
    assert_eq!(*told.attributes.lock(), [file]);
    assert_eq!(vfs.getattr(CHECKED, file).await.unwrap().mode, 0o777);
    // Where nobody has checked, whoever is not root loses them without being told so.
    let mine = served.file(&user(5), b"mine", 0o4777, b"").await.object;
    let (five, how) = (user(5), Writing::default());
    assert!(vfs.write(Access::Of(&five), mine, 0, b"t", how).await.unwrap().is_settled());
    assert_eq!(vfs.getattr(CHECKED, mine).await.unwrap().mode, 0o777);
}

#[tokio::test]
async fn a_hole_is_written_back_before_it_is_called_one() {
    let served = served().await;
    let vfs = &served.vfs;
    let file = served.file(&ROOT, b"file", 0o644, b"text").await.object;
    vfs.setattr(CHECKED, file, SetAttr { size: Some(1 << 20), ..SetAttr::default() }, false).await.unwrap();
    assert!(!vfs.may_have_unknown_changes(file));
    vfs.open(CHECKED, file, READ_WRITE).await.unwrap();
    assert!(vfs.may_have_unknown_changes(file));
    let hole = vfs.seek_written_back(CHECKED, file, 0, SeekFor::Hole).await.unwrap();
    assert_eq!(hole, vfs.seek(CHECKED, file, 0, SeekFor::Hole).await.unwrap());
    assert_eq!(*served.told.contents.lock(), [(file, hole..1 << 20)]);
}

#[tokio::test]
async fn each_operation_is_one_event_however_it_ends() {
    let served = served().await;
    let (vfs, root) = (&served.vfs, served.vfs.root());
    let file = served.file(&user(5), b"file", 0o600, b"text").await.object;
    served.told.take();
    let (five, six) = (user(5), user(6));
    vfs.read(Access::Of(&five), file, 1, 100, Reading::default()).await.unwrap();
    vfs.read(Access::Of(&six), file, 0, 100, Reading::default()).await.unwrap_err();
    let written = vfs.write(CHECKED, file, 0, b"longer text", Writing::default()).await.unwrap();
    vfs.lookup(CHECKED, root, b"nothing").await.unwrap_err();
    let copied = vfs.copy_range(CHECKED, (file, 0), (file, 1 << 20), 6).await.unwrap();
    assert_eq!((written.bytes, copied), (11, 6));
    let because = |why: &str| Some(why.to_owned());
    assert_eq!(
        served.told.take(),
        [
            (Operation::Read, file, 3, None),
            (Operation::Read, file, 0, because("permission denied")),
            (Operation::Write, file, 11, None),
            (Operation::Lookup, root, 0, because("no such file or directory")),
            (Operation::CopyRange, file, 6, None),
        ]
    );
}

#[tokio::test]
async fn an_immutable_file_is_not_opened_to_be_written() {
    let served = served().await;
    let vfs = &served.vfs;
    let append = Opening { appends: true, ..WRITE_ONLY };
    for (flag, appended) in [(platter_ondisk::znode::flags::IMMUTABLE, false), (0, true)] {
        let name = format!("{flag}");
        let file = served.file(&ROOT, name.as_bytes(), 0o644, b"").await.object;
        let flag = if flag == 0 { platter_ondisk::znode::flags::APPENDONLY } else { flag };
        vfs.set_flags(CHECKED, file, flag, None).await.unwrap();
        assert!(matches!(vfs.open(CHECKED, file, WRITE_ONLY).await, Err(VfsError::NotPermitted)));
        assert_eq!(vfs.open(CHECKED, file, append).await.is_ok(), appended);
        vfs.open(CHECKED, file, READ_ONLY).await.unwrap();
        // What was refused is not open: what is left closes it.
        let mut closed = 0;
        while let Ok(one) = vfs.close(file, READ_ONLY, false) {
            vfs.released(one).await;
            closed += 1;
        }
        assert_eq!(closed, 1 + usize::from(appended));
    }
}
