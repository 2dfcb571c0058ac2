//! Random histories of an object set against a model in plain memory: open-context changes run while the group before
//! is being synced; after every sync the tree is audited from its root and compared with the model as it was when that
//! group closed; at the end everything is freed and nothing may be left.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{World, file};
use platter_buffer::Buf;
use platter_dmu::{NewDnode, Objset, Tx};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, ObjsetType, Txg};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Allocate { size: u8, indirect: u8, dnode: u8 },
    Write { object: usize, offset: u64, length: usize, value: u8 },
    Free { object: usize, offset: u64, length: u64 },
    Truncate { object: usize, offset: u64 },
    Delete { object: usize },
    Bonus { object: usize, length: usize, value: u8 },
    BonusByte { object: usize, at: usize, value: u8 },
    Spill { object: usize, sectors: usize, value: u8 },
    Resize { object: usize, size: u8 },
    Read { object: usize, offset: u64, length: usize },
    CloseGroup,
    AwaitSync,
    Reopen,
}

const SPACE: u64 = 200_000;

fn op() -> impl Strategy<Value = Op> {
    let object = 0..64usize;
    // Zeros matter: they become holes.
    let value = prop_oneof![Just(0u8), any::<u8>()];
    prop_oneof![
        3 => (0..4u8, 12..15u8, 0..3u8).prop_map(|(size, indirect, dnode)| Op::Allocate { size, indirect, dnode }),
        10 => (object.clone(), 0..SPACE, 1..20_000usize, value.clone())
            .prop_map(|(object, offset, length, value)| Op::Write { object, offset, length, value }),
        3 => (object.clone(), 0..SPACE, 1..60_000u64)
            .prop_map(|(object, offset, length)| Op::Free { object, offset, length }),
        2 => (object.clone(), 0..SPACE).prop_map(|(object, offset)| Op::Truncate { object, offset }),
        1 => object.clone().prop_map(|object| Op::Delete { object }),
        2 => (object.clone(), 0..100usize, value.clone())
            .prop_map(|(object, length, value)| Op::Bonus { object, length, value }),
        1 => (0usize..40, 0usize..100, any::<u8>()).prop_map(|(object, at, value)| Op::BonusByte { object, at, value }),
        2 => (object.clone(), 0..4usize, 1..255u8)
            .prop_map(|(object, sectors, value)| Op::Spill { object, sectors, value }),
        1 => (object.clone(), 0..4u8).prop_map(|(object, size)| Op::Resize { object, size }),
        4 => (object, 0..SPACE, 1..40_000usize)
            .prop_map(|(object, offset, length)| Op::Read { object, offset, length }),
        4 => Just(Op::CloseGroup),
        2 => Just(Op::AwaitSync),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Clone, Default)]
struct Object {
    data: Vec<u8>,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

impl Object {
    fn range(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        let from = (offset as usize).min(self.data.len());
        let to = (offset as usize + length).min(self.data.len());
        out[..to - from].copy_from_slice(&self.data[from..to]);
        out
    }
}

type Model = BTreeMap<u64, Object>;

fn pick(model: &Model, n: usize) -> Option<ObjectId> {
    if model.is_empty() { None } else { model.keys().nth(n % model.len()).copied().map(ObjectId) }
}

async fn compare(os: &Arc<Objset>, model: &Model) {
    let mut after = ObjectId(0);
    let mut found = Vec::new();
    while let Some(object) = os.next_object(after).await.unwrap() {
        found.push(object.0);
        after = object;
    }
    assert_eq!(found, model.keys().copied().collect::<Vec<_>>());
    for (&object, expected) in model {
        let dnode = os.dnode(ObjectId(object)).await.unwrap();
        let mut data = vec![0; expected.data.len() + 1000];
        dnode.read(0, &mut data).await.unwrap();
        assert!(data == expected.range(0, data.len()), "contents of object {object}");
        assert_eq!(dnode.bonus()[..], expected.bonus[..]);
        assert_eq!(dnode.spill().await.unwrap().map(|spill| spill.to_vec()), expected.spill);
    }
}

/// What lies before the next data is zeros, what lies before the next hole is data.
async fn check_holes(dnode: &platter_dmu::Dnode, offset: u64, expected: &Object) {
    let size = u64::from(dnode.block_size());
    let blocks_end = (dnode.info().max_blkid + 1) * size;
    let data = dnode.seek(offset, false).await.unwrap();
    let hole = dnode.seek(offset, true).await.unwrap().expect("behind the last block there is one");
    assert!(offset <= hole && hole <= blocks_end.max(offset) && data.is_none_or(|data| offset <= data));
    let length = data.unwrap_or(expected.data.len() as u64).saturating_sub(offset) as usize;
    assert!(expected.range(offset, length).iter().all(|&byte| byte == 0), "data before {data:?} of {offset}");
    if hole < blocks_end {
        let length = (size - hole % size) as usize;
        assert!(expected.range(hole, length).iter().all(|&byte| byte == 0), "data in the hole at {hole}");
        assert_ne!(dnode.seek(hole, false).await.unwrap(), Some(hole));
    }
    for before in (offset..hole).step_by(size as usize) {
        // Zeros are data while they are in memory, and a hole once the sync beside us has written them.
        let length = (size - before % size) as usize;
        if expected.range(before, length).iter().all(|&byte| byte == 0) {
            continue;
        }
        assert_eq!(dnode.seek(before, false).await.unwrap(), Some(before), "no data at {before}, before the hole");
    }
}

struct Run {
    world: World,
    os: Arc<Objset>,
    model: Model,
    syncing: Option<(Txg, Model, tokio::task::JoinHandle<BlkPtr>)>,
}

impl Run {
    async fn close_group(&mut self) {
        self.await_sync().await;
        let txg = self.world.gate.quiesce().await;
        let os = self.os.clone();
        let task = tokio::spawn(async move { os.sync(txg, 1).await.unwrap() });
        self.syncing = Some((txg, self.model.clone(), task));
    }

    async fn await_sync(&mut self) {
        if let Some((txg, model, task)) = self.syncing.take() {
            let root = task.await.unwrap();
            self.world.gate.finish(txg);
            let audit = self.world.audit(&root).await;
            assert!(audit.objects.keys().eq(model.keys()));
            let on_disk = Objset::open(self.world.params(), root).await.unwrap();
            compare(&on_disk, &model).await;
        }
    }

    /// What is not the object's data: bonus and spill block.
    async fn change_attributes(&mut self, tx: &Tx, op: Op) {
        match op {
            Op::Bonus { object, length, value } => {
                let Some(object) = pick(&self.model, object) else { return };
                let bonus = vec![value; length];
                self.os.dnode(object).await.unwrap().set_bonus(tx, ObjectType::SA, &bonus).unwrap();
                self.model.get_mut(&object.0).unwrap().bonus = bonus;
            }
            Op::BonusByte { object, at, value } => {
                let Some(object) = pick(&self.model, object) else { return };
                let bonus = &mut self.model.get_mut(&object.0).unwrap().bonus;
                let put = |bytes: &mut [u8]| bytes.get_mut(at).map(|byte| *byte = value).is_some();
                // Transactions come one after the other: no later group has changed it.
                let changed = self.os.dnode(object).await.unwrap().change_bonus(tx, put).unwrap();
                assert_eq!(changed, put(bonus));
            }
            Op::Spill { object, sectors, value } => {
                let Some(object) = pick(&self.model, object) else { return };
                let spill = (sectors > 0).then(|| vec![value; sectors * 512]);
                let dnode = self.os.dnode(object).await.unwrap();
                dnode.set_spill(tx, spill.as_deref().map(Buf::copy_from)).unwrap();
                self.model.get_mut(&object.0).unwrap().spill = spill;
            }
            _ => unreachable!("no attribute"),
        }
    }

    async fn write(&mut self, tx: &Tx, object: usize, offset: u64, length: usize, value: u8) {
        let Some(object) = pick(&self.model, object) else { return };
        let dnode = self.os.dnode(object).await.unwrap();
        let data: Vec<u8> = (0..length).map(|i| if value == 0 { 0 } else { value ^ (i / 100) as u8 }).collect();
        if dnode.write(tx, offset, &data).await.is_err() {
            assert!(!dnode.block_size().is_power_of_two());
            // What lies in block 0 was written, the rest refused.
            let size = u64::from(dnode.block_size());
            let inside = size.saturating_sub(offset).min(length as u64) as usize;
            self.put(object, offset, &data[..inside]);
            return;
        }
        self.put(object, offset, &data);
    }

    async fn step(&mut self, op: Op) {
        let tx = self.world.gate.begin().await.unwrap();
        match op {
            Op::Allocate { size, indirect, dnode } => {
                let new = NewDnode {
                    indirect_shift: indirect,
                    dnode_size: [512, 1024, 2048][usize::from(dnode)],
                    bonus_length: 0,
                    ..file(512 << size)
                };
                let dnode = self.os.allocate(&tx, new).await.unwrap();
                assert!(self.model.insert(dnode.object().0, Object::default()).is_none(), "a number given out twice");
            }
            Op::Write { object, offset, length, value } => self.write(&tx, object, offset, length, value).await,
            Op::Free { object, offset, length } => {
                let Some(object) = pick(&self.model, object) else { return };
                self.os.dnode(object).await.unwrap().free_range(&tx, offset, length).await.unwrap();
                let data = &mut self.model.get_mut(&object.0).unwrap().data;
                let to = ((offset + length) as usize).min(data.len());
                data[(offset as usize).min(to)..to].fill(0);
            }
            Op::Truncate { object, offset } => {
                let Some(object) = pick(&self.model, object) else { return };
                let dnode = self.os.dnode(object).await.unwrap();
                dnode.free_range(&tx, offset, u64::MAX).await.unwrap();
                self.model.get_mut(&object.0).unwrap().data.truncate(offset as usize);
                let size = u64::from(dnode.block_size());
                assert!(dnode.info().max_blkid <= offset.div_ceil(size).saturating_sub(1), "the object shrank");
            }
            Op::Delete { object } => {
                let Some(object) = pick(&self.model, object) else { return };
                self.os.free_object(&tx, object).await.unwrap();
                self.model.remove(&object.0);
            }
            Op::Bonus { .. } | Op::BonusByte { .. } | Op::Spill { .. } => self.change_attributes(&tx, op).await,
            Op::Resize { object, size } => {
                let Some(object) = pick(&self.model, object) else { return };
                let dnode = self.os.dnode(object).await.unwrap();
                // Only ever up, as file systems do it: what is cut off would be lost.
                let size = [512, 1024, 1536, 4096][usize::from(size)].max(dnode.block_size());
                if dnode.info().max_blkid == 0 {
                    dnode.set_block_size(&tx, size).await.unwrap();
                } else if size != dnode.block_size() {
                    assert!(dnode.set_block_size(&tx, size).await.is_err());
                }
            }
            Op::Read { object, offset, length } => {
                let Some(object) = pick(&self.model, object) else { return };
                let mut out = vec![1; length];
                self.os.dnode(object).await.unwrap().read(offset, &mut out).await.unwrap();
                assert!(out == self.model[&object.0].range(offset, length), "read {length} at {offset} of {object}");
                let dnode = self.os.dnode(object).await.unwrap();
                check_holes(&dnode, offset, &self.model[&object.0]).await;
            }
            Op::CloseGroup => {
                drop(tx);
                self.close_group().await;
            }
            Op::AwaitSync => self.await_sync().await,
            Op::Reopen => {
                drop(tx);
                self.close_group().await;
                self.await_sync().await;
                self.os = Objset::open(self.world.params(), self.os.root()).await.unwrap();
            }
        }
    }

    fn put(&mut self, object: ObjectId, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let data = &mut self.model.get_mut(&object.0).unwrap().data;
        let end = offset as usize + bytes.len();
        data.resize(data.len().max(end), 0);
        data[offset as usize..end].copy_from_slice(bytes);
    }
}

fn history(ops: Vec<Op>, is_mos: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let world = World::new(is_mos);
        let tx = world.gate.begin().await.unwrap();
        let os = Objset::create(world.params(), ObjsetType::ZFS, &tx);
        drop(tx);
        let mut run = Run { world, os, model: Model::new(), syncing: None };
        for op in ops {
            run.step(op).await;
        }
        compare(&run.os, &run.model).await;
        run.close_group().await;
        run.await_sync().await;
        let tx = run.world.gate.begin().await.unwrap();
        for &object in run.model.keys() {
            run.os.free_object(&tx, ObjectId(object)).await.unwrap();
        }
        drop(tx);
        run.model.clear();
        run.close_group().await;
        run.await_sync().await;
        assert_eq!(run.world.store.live_blocks(), 1, "only the head is left");
        assert_eq!(run.world.gate.dirty(), 0, "every dirtied byte was counted off");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn an_object_set_does_what_its_model_does(ops in prop::collection::vec(op(), 1..120), is_mos in any::<bool>()) {
        history(ops, is_mos);
    }
}
