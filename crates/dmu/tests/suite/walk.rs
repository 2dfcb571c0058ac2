//! Walks over everything an object set references.

use std::sync::{Arc, Mutex};

use crate::support::{World, file};
use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit, visit_upwards};
use platter_dmu::{NewDnode, Objset};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, ObjsetType};
use platter_zio::{BlockStore, Bookmark, ZioError};

#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<(Bookmark, BlkPtr)>>,
    damaged: Mutex<Vec<Bookmark>>,
    stop_after: Option<usize>,
    skip: Option<Bookmark>,
    /// No objects are looked into but this one.
    only: Option<ObjectId>,
    /// What was to be read ahead.
    ahead: Mutex<Vec<Bookmark>>,
}

impl Recorder {
    fn leaves_out(&self, bookmark: Bookmark) -> bool {
        bookmark.object.0 != 0 && self.only.is_some_and(|only| bookmark.object != only)
    }
}

impl Visitor for Recorder {
    fn reads_ahead(&self, bookmark: Bookmark, _: &BlkPtr) -> bool {
        self.ahead.lock().unwrap().push(bookmark);
        !self.leaves_out(bookmark)
    }

    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            let mut seen = self.seen.lock().unwrap();
            seen.push((bookmark, *bp));
            match self.stop_after {
                Some(limit) if seen.len() == limit => Visit::Stop,
                _ if self.skip == Some(bookmark) || self.leaves_out(bookmark) => Visit::Skip,
                _ => Visit::Continue,
            }
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, _: &'a BlkPtr, _: &'a ZioError) -> BoxFuture<'a, Visit> {
        self.damaged.lock().unwrap().push(bookmark);
        async { Visit::Continue }.boxed()
    }
}

/// Three dnode blocks' worth of files of all shapes: tall, sparse, with spill blocks, empty.
async fn populated(world: &World) -> Arc<Objset> {
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    for n in 0..70u64 {
        let new = NewDnode { indirect_shift: 12, ..file(512) };
        let dnode = os.allocate(&tx, new).await.unwrap();
        for blkid in [0, 1, 40, n * n * n] {
            if n % 3 != 0 {
                dnode.write_block(&tx, blkid, Buf::copy_from(&[n as u8 + 1; 512])).await.unwrap();
            }
        }
        if n % 5 == 0 {
            dnode.set_spill(&tx, Some(Buf::copy_from(&[1; 512]))).unwrap();
        }
    }
    drop(tx);
    world.sync(&os).await;
    os
}

async fn walk(world: &World, os: &Objset, from: Option<Bookmark>, recorder: &Recorder) -> WalkEnd {
    let store: Arc<dyn BlockStore> = world.store.clone();
    visit(&store, ObjectId(54), &os.root(), from, recorder).await.unwrap()
}

#[tokio::test]
async fn a_walk_shows_every_live_block_once() {
    let world = World::new(false);
    let os = populated(&world).await;
    let recorder = Recorder::default();
    assert_eq!(walk(&world, &os, None, &recorder).await, WalkEnd::Complete);
    let seen = recorder.seen.into_inner().unwrap();
    let mut offsets: Vec<u64> =
        seen.iter().filter(|(_, bp)| !bp.is_embedded()).map(|(_, bp)| bp.dva(0).offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, world.store.offsets());
}

#[tokio::test]
async fn a_walk_resumed_after_any_block_shows_exactly_the_rest() {
    let world = World::new(false);
    let os = populated(&world).await;
    let all = Recorder::default();
    walk(&world, &os, None, &all).await;
    let all = all.seen.into_inner().unwrap();
    for at in (0..all.len()).step_by(3) {
        let rest = Recorder::default();
        assert_eq!(walk(&world, &os, Some(all[at].0), &rest).await, WalkEnd::Complete);
        let rest: Vec<Bookmark> = rest.seen.into_inner().unwrap().into_iter().map(|(bookmark, _)| bookmark).collect();
        let expected: Vec<Bookmark> = all[at + 1..].iter().map(|(bookmark, _)| *bookmark).collect();
        assert_eq!(rest, expected, "after {}", all[at].0);
    }
}

#[tokio::test]
async fn a_walk_upwards_shows_the_same_each_after_what_is_below_it() {
    let world = World::new(false);
    let os = populated(&world).await;
    let store: Arc<dyn BlockStore> = world.store.clone();
    let (down, up) = (Recorder::default(), Recorder::default());
    walk(&world, &os, None, &down).await;
    assert_eq!(visit_upwards(&store, ObjectId(54), &os.root(), None, &up).await.unwrap(), WalkEnd::Complete);
    let (mut down, all) = (down.seen.into_inner().unwrap(), up.seen.into_inner().unwrap());
    assert_eq!(all.last().unwrap().0.level, -1);
    let position = |bookmark: Bookmark| all.iter().position(|(other, _)| *other == bookmark).unwrap();
    for (at, (bookmark, _)) in all.iter().enumerate().filter(|(_, (bookmark, _))| bookmark.object.0 > 0) {
        let block = Bookmark { object: ObjectId(0), level: 0, blkid: bookmark.object.0 / 32, ..*bookmark };
        // Space totals are no objects of a dnode block.
        assert!(bookmark.object.0 > 1 << 48 || at < position(block));
    }
    // From any block of level 0 on, the rest and nothing else.
    for (at, (bookmark, _)) in all.iter().enumerate().filter(|(_, (bookmark, _))| bookmark.level == 0) {
        let rest = Recorder::default();
        visit_upwards(&store, ObjectId(54), &os.root(), Some(*bookmark), &rest).await.unwrap();
        let rest: Vec<Bookmark> = rest.seen.into_inner().unwrap().into_iter().map(|(bookmark, _)| bookmark).collect();
        let expected: Vec<Bookmark> = all[at..].iter().map(|(bookmark, _)| *bookmark).collect();
        assert_eq!(rest, expected, "from {bookmark}");
    }
    let mut up = all;
    down.sort_by_key(|(bookmark, _)| *bookmark);
    up.sort_by_key(|(bookmark, _)| *bookmark);
    assert_eq!(down, up);
}

#[tokio::test]
async fn a_walk_stops_and_skips_as_told() {
    let world = World::new(false);
    let os = populated(&world).await;
    let stopped = Recorder { stop_after: Some(20), ..Recorder::default() };
    assert_eq!(walk(&world, &os, None, &stopped).await, WalkEnd::Stopped);
    assert_eq!(stopped.seen.lock().unwrap().len(), 20);
    // The second dnode block: none of the objects 32..64 is shown.
    let block = Bookmark { objset: ObjectId(54), object: ObjectId(0), level: 0, blkid: 1 };
    let skipped = Recorder { skip: Some(block), ..Recorder::default() };
    walk(&world, &os, None, &skipped).await;
    let seen = skipped.seen.into_inner().unwrap();
    assert!(seen.iter().all(|(bookmark, _)| !(32..64).contains(&bookmark.object.0)));
    assert!(seen.iter().any(|(bookmark, _)| bookmark.object.0 >= 64));
}

#[tokio::test]
async fn damage_is_reported_and_the_walk_goes_on() {
    let world = World::new(false);
    let os = populated(&world).await;
    let tall = os.dnode(ObjectId(51)).await.unwrap().phys();
    assert!(tall.levels > 1);
    world.store.lose(&tall.blkptrs[0]);
    let recorder = Recorder::default();
    assert_eq!(walk(&world, &os, None, &recorder).await, WalkEnd::Complete);
    let damaged = recorder.damaged.into_inner().unwrap();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].object, ObjectId(51));
    assert!(recorder.seen.into_inner().unwrap().iter().any(|(bookmark, _)| bookmark.object.0 > 51));
}

/// A disk would move its head for each file, one after the other: the blocks that lead to the next ones are read
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn what_leads_to_the_next_files_is_read_ahead_and_nothing_that_is_left_out() {
    const FILES: u64 = 200;
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    for _ in 0..FILES {
        let dnode = os.allocate(&tx, NewDnode { indirect_shift: 12, ..file(512) }).await.unwrap();
        for blkid in 0..4 {
            dnode.write_block(&tx, blkid, Buf::copy_from(&[7; 512])).await.unwrap();
        }
    }
    drop(tx);
    world.sync(&os).await;
    assert_eq!(os.dnode(ObjectId(9)).await.unwrap().phys().levels, 2);
    // From now on a read takes a millisecond.
    world.store.forget_cache(true);
    let (begin, before) = (tokio::time::Instant::now(), world.store.reads());
    walk(&world, &os, None, &Recorder::default()).await;
    let (took, reads) = (begin.elapsed().as_millis() as u64, world.store.reads() - before);
    assert!(reads > FILES && took < reads / 4, "{reads} reads in {took} ms");
    let before = world.store.reads();
    let one = Recorder { only: Some(ObjectId(9)), ..Recorder::default() };
    walk(&world, &os, None, &one).await;
    let few = world.store.reads() - before;
    // The head, the dnodes and what leads to them, and the one file's block.
    assert!(few <= 1 + FILES / 32 + 8, "{few} reads");
    assert!(one.seen.lock().unwrap().iter().any(|(at, _)| at.object.0 == 9 && at.level == 0), "it is seen");
}

/// A walk that frees goes on within an object of which it has freed a part: nothing of that may be read, and repaired.
#[tokio::test]
async fn what_a_walk_is_past_is_not_read_ahead() {
    let world = World::new(false);
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    let new = NewDnode { indirect_shift: 12, ..NewDnode::plain(ObjectType::PLAIN_FILE_CONTENTS, 512) };
    for _ in 0..3 {
        let dnode = os.allocate(&tx, new.clone()).await.unwrap();
        for blkid in [0, 40, 80] {
            dnode.write_block(&tx, blkid, Buf::copy_from(&[7; 512])).await.unwrap();
        }
    }
    drop(tx);
    world.sync(&os).await;
    let tops = os.dnode(ObjectId(2)).await.unwrap().phys();
    assert_eq!((tops.levels, tops.blkptrs.len()), (2, 3));
    let top = |object, blkid| Bookmark { objset: ObjectId(54), object: ObjectId(object), level: 1, blkid };
    let at = Bookmark { level: 0, blkid: 40, ..top(2, 0) };
    let store: Arc<dyn BlockStore> = world.store.clone();
    let (up, down) = (Recorder::default(), Recorder::default());
    visit_upwards(&store, ObjectId(54), &os.root(), Some(at), &up).await.unwrap();
    walk(&world, &os, Some(at), &down).await;
    for recorder in [up, down] {
        let ahead = recorder.ahead.into_inner().unwrap();
        assert!([top(1, 0), top(1, 2), top(2, 0)].iter().all(|passed| !ahead.contains(passed)), "{ahead:?}");
        assert!([top(2, 1), top(2, 2), top(3, 0), top(3, 2)].iter().all(|next| ahead.contains(next)), "{ahead:?}");
    }
}
