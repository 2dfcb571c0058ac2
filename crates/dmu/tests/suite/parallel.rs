//! Writers on several threads, each with objects of its own, while groups are closed and synced as fast as they can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{World, file};
use platter_dmu::{NewDnode, Objset};
use platter_ondisk::{ObjectId, ObjectType, ObjsetType};

/// A small generator: the order of the threads is not reproducible anyway.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const LENGTH: u64 = 600_000;

async fn writer(os: Arc<Objset>, seed: u64) -> (ObjectId, Vec<u8>) {
    let mut random = Random(seed);
    let mut model = vec![0u8; LENGTH as usize];
    let tx = os.begin().await.unwrap();
    let new = NewDnode { indirect_shift: 12, ..file(1024) };
    let mut object = os.allocate(&tx, new.clone()).await.unwrap().object();
    drop(tx);
    for _ in 0..1500 {
        let tx = os.begin().await.unwrap();
        let dnode = os.dnode(object).await.unwrap();
        let offset = random.below(LENGTH);
        let length = random.below(12_000).min(LENGTH - offset) as usize;
        let at = offset as usize..offset as usize + length;
        match random.below(20) {
            0 => {
                os.free_object(&tx, object).await.unwrap();
                object = os.allocate(&tx, new.clone()).await.unwrap().object();
                model.fill(0);
            }
            1 => {
                dnode.free_range(&tx, offset, u64::MAX).await.unwrap();
                model[offset as usize..].fill(0);
            }
            2..5 => {
                dnode.free_range(&tx, offset, length as u64).await.unwrap();
                model[at].fill(0);
            }
            5..12 => {
                let value = random.below(256) as u8;
                dnode.write(&tx, offset, &vec![value; length]).await.unwrap();
                dnode.set_bonus(&tx, ObjectType::SA, &[value; 16]).unwrap();
                model[at].fill(value);
            }
            _ => {
                let mut out = vec![0; length];
                dnode.read(offset, &mut out).await.unwrap();
                assert!(out == model[at], "object {object}, {length} bytes at {offset}");
            }
        }
        drop(tx);
        tokio::task::yield_now().await;
    }
    (object, model)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_beside_syncs_read_what_they_wrote() {
    let world = Arc::new(World::new(false));
    let tx = world.gate.begin().await.unwrap();
    let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
    drop(tx);
    let done = Arc::new(AtomicBool::new(false));
    let syncer = {
        let (world, os, done) = (world.clone(), os.clone(), done.clone());
        tokio::spawn(async move {
            let mut syncs = 0;
            while !done.load(Ordering::Relaxed) {
                world.sync(&os).await;
                syncs += 1;
                // A group with nothing in it is synced without a wait, and whom it woke may be next on this worker.
                tokio::task::yield_now().await;
            }
            syncs
        })
    };
    let writers: Vec<_> = (1..=6).map(|seed| tokio::spawn(writer(os.clone(), seed))).collect();
    let mut results = Vec::new();
    for writer in writers {
        results.push(writer.await.unwrap());
    }
    done.store(true, Ordering::Relaxed);
    let syncs = syncer.await.unwrap();
    assert!(syncs > 3, "{syncs} syncs ran beside the writers");
    let root = world.sync(&os).await;
    assert_eq!(world.audit(&root).await.objects.len(), results.len());
    let os = Objset::open(world.params(), root).await.unwrap();
    for (object, model) in results {
        let mut out = vec![0; model.len()];
        os.dnode(object).await.unwrap().read(0, &mut out).await.unwrap();
        assert!(out == model, "object {object} after all");
    }
}
