//! Leaves come and go while blocks are read and written; several leaves in the place of one hold the same.

mod common;

use std::sync::Arc;

use async_trait::async_trait;
use common::{DEVICE_SIZE, Random};
use platter_buffer::Buf;
use platter_device::{
    BlockDevice, DeviceError, Fault, FaultDevice, FaultKind, Geometry, MemDevice, Presence, ReadSlot,
};
use platter_hooks::Watch;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::{Guid, Txg};
use platter_vdev::Priority;
use platter_vdev::raidz_map::RaidzMap;
use platter_vdev::{
    Arrangement, Condition, Copied, Copies, DeviceOpener, Extent, FIRST_GROUP, Layout, Leaf, MissingRanges, OpenError,
    ScrubOutcome, TopVdev, VdevAux, VdevError, VdevKind, VdevSpec, VdevState,
};

const ASHIFT: u8 = 9;
const RAIDZ: VdevKind = VdevKind::Raidz { parity: 1 };

/// A device whose transfers wait while its gate is closed.
#[derive(Debug)]
struct GateDevice {
    inner: Arc<FaultDevice>,
    is_open: Watch<bool>,
}

impl GateDevice {
    async fn pass(&self) {
        self.is_open.wait_for(|is_open| *is_open).await;
    }
}

#[async_trait]
impl BlockDevice for GateDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        self.pass().await;
        self.inner.read_into(offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.pass().await;
        self.inner.write(offset, data).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush().await
    }
}

/// Five devices, and a leaf on each.
struct Bench {
    memory: Vec<Arc<MemDevice>>,
    faulty: Vec<Arc<FaultDevice>>,
    gates: Vec<Arc<GateDevice>>,
    leaves: Vec<Arc<Leaf>>,
}

#[async_trait]
impl DeviceOpener for Bench {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.gates[spec.guid.0 as usize - 1].clone())
    }
}

fn leaf_spec(number: usize) -> VdevSpec {
    VdevSpec { guid: Guid(number as u64 + 1), ..VdevSpec::leaf(VdevKind::File, format!("d{number}")) }
}

impl Bench {
    async fn new() -> Self {
        let memory: Vec<_> = (0..5).map(|number| Arc::new(MemDevice::new(format!("d{number}"), DEVICE_SIZE))).collect();
        let faulty: Vec<_> = memory.iter().map(|device| Arc::new(FaultDevice::new(device.clone()))).collect();
        let gate =
            |device: &Arc<FaultDevice>| Arc::new(GateDevice { inner: device.clone(), is_open: Watch::new(true) });
        let gates = faulty.iter().map(gate).collect();
        let mut bench = Self { memory, faulty, gates, leaves: Vec::new() };
        for number in 0..5 {
            bench.leaves.push(Leaf::open(&leaf_spec(number), &bench, true, 0).await);
        }
        bench
    }

    fn arrangement(&self, kind: &VdevKind, children: &[&[usize]]) -> Arrangement {
        let leaves = |child: &&[usize]| child.iter().map(|&number| self.leaves[number].clone()).collect();
        Arrangement { guid: Guid(99), kind: kind.clone(), children: children.iter().map(leaves).collect() }
    }

    /// A vdev of these leaves.
    async fn top(&self, kind: &VdevKind, children: &[&[usize]]) -> Arc<TopVdev> {
        let of_child = children.iter().map(|child| leaf_spec(child[0])).collect();
        let mut spec =
            if kind.is_leaf() { leaf_spec(children[0][0]) } else { VdevSpec::parent(kind.clone(), of_child) };
        spec.ashift = ASHIFT;
        let top = TopVdev::open(&spec, self, true).await.expect("open");
        top.exchange(self.arrangement(kind, children)).await.expect("exchange");
        Arc::new(top)
    }

    fn set_gates(&self, is_open: bool) {
        self.gates.iter().for_each(|gate| gate.is_open.set(is_open));
    }

    /// A scrub gave them what they lack: all of a block that was written before they came.
    #[track_caller]
    fn assert_mended(&self, joining: &[usize], (block, birth): (u64, u64), outcome: &ScrubOutcome, case: &str) {
        let is_missing = joining.iter().any(|&joined| self.leaves[joined].is_missing(Txg(birth)));
        assert!(is_missing || block >= 2, "{case}: it came later than the block");
        assert_eq!(outcome.repaired_bytes > 0, is_missing, "{case}: {outcome:?}");
    }

    /// What a device holds of a block as one of `width` children of a vdev with this layout.
    fn held(&self, top: &TopVdev, number: usize, child: usize, offset: u64, psize: usize) -> Vec<u8> {
        let place = match top.layout() {
            Layout::Raidz { parity } => {
                let map = RaidzMap::new(offset, psize as u64, ASHIFT, top.width(), parity);
                let column = map.columns.iter().find(|column| column.child == child).expect("a column");
                (column.offset, column.size)
            }
            _ => (offset, psize),
        };
        let mut bytes = vec![0; place.1];
        self.memory[number].peek(VDEV_LABEL_START_SIZE + place.0, &mut bytes);
        bytes
    }

    /// Changes what a device holds of a block.
    fn spoil(&self, top: &TopVdev, number: usize, child: usize, offset: u64, psize: usize) {
        let Layout::Raidz { parity } = top.layout() else { panic!("no raidz") };
        let map = RaidzMap::new(offset, psize as u64, ASHIFT, top.width(), parity);
        let column = map.columns.iter().find(|column| column.child == child).expect("a column");
        self.memory[number].poke(VDEV_LABEL_START_SIZE + column.offset, &vec![0xa5; column.size]);
    }
}

fn extent(offset: u64, data: &Buf, birth: u64) -> Extent {
    Extent { offset, psize: data.len() as u64, birth: Txg(birth), speculative: false, checked: true }
}

async fn write(top: &TopVdev, offset: u64, data: &Buf, txg: u64) {
    top.write(offset, data.clone(), Txg(txg), Priority::AsyncWrite).await.expect("write");
}

async fn read(top: &TopVdev, offset: u64, data: &Buf, birth: u64) -> platter_vdev::ReadOutcome {
    let extent = extent(offset, data, birth);
    let (bytes, outcome) =
        top.read(extent, Priority::SyncRead, &|bytes: &[u8]| bytes == &data[..]).await.expect("read");
    assert_eq!(&bytes, data);
    outcome
}

async fn scrub(top: &TopVdev, offset: u64, data: &Buf, birth: u64) -> platter_vdev::ScrubOutcome {
    top.scrub(extent(offset, data, birth), &|bytes: &[u8]| bytes == &data[..]).await.expect("scrub")
}

async fn let_others_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// The ways in which leaves come and go: (type and children before, after).
type Side = (VdevKind, Vec<&'static [usize]>);

fn exchanges() -> Vec<(Side, Side)> {
    let (file, mirror) = (VdevKind::File, VdevKind::Mirror);
    vec![
        ((mirror.clone(), vec![&[0], &[1]]), (mirror.clone(), vec![&[0], &[1], &[3]])),
        ((mirror.clone(), vec![&[0], &[1], &[3]]), (mirror.clone(), vec![&[0], &[3]])),
        ((file.clone(), vec![&[0]]), (mirror.clone(), vec![&[0], &[3]])),
        ((file.clone(), vec![&[0]]), (VdevKind::Replacing, vec![&[0], &[3]])),
        ((mirror, vec![&[0], &[3]]), (file, vec![&[3]])),
        ((RAIDZ, vec![&[0], &[1], &[2]]), (RAIDZ, vec![&[0], &[1, 3], &[2]])),
        ((RAIDZ, vec![&[0], &[1, 3], &[2]]), (RAIDZ, vec![&[0], &[3], &[2]])),
        ((RAIDZ, vec![&[0], &[1, 3], &[2]]), (RAIDZ, vec![&[0], &[1, 4], &[2]])),
    ]
}

#[tokio::test]
async fn leaves_come_and_go_while_blocks_are_read_and_written() {
    let mut random = Random(31);
    for ((old_kind, old), (new_kind, new)) in exchanges() {
        let case = format!("{old_kind} {old:?} -> {new_kind} {new:?}");
        let bench = Bench::new().await;
        let top = bench.top(&old_kind, &old).await;
        let blocks: Vec<Buf> = (0..4).map(|_| random.buf(8 << ASHIFT)).collect();
        let at = |block: u64| (1 + block) << 20;
        write(&top, at(0), &blocks[0], 5).await;

        // A write and a read by the old arrangement.
        bench.set_gates(false);
        let (own, data) = (top.clone(), blocks[1].clone());
        let writing = tokio::spawn(async move { write(&own, at(1), &data, 6).await });
        let (own, data) = (top.clone(), blocks[0].clone());
        let reading = tokio::spawn(async move { read(&own, at(0), &data, 5).await });
        let_others_run().await;
        let (joining, leaving) = (only_in(&new, &old), only_in(&old, &new));
        for &number in &joining {
            bench.leaves[number].note_lacking(Txg(1), Txg(7));
        }
        let (own, arrangement) = (top.clone(), bench.arrangement(&new_kind, &new));
        let exchange = tokio::spawn(async move { own.exchange(arrangement).await });
        let_others_run().await;
        assert!(!exchange.is_finished(), "{case}: others are still at work");
        assert_eq!((top.kind(), top.width()), (new_kind.clone(), new.len()), "{case}: but the new one is in force");
        // What begins now goes by the new one.
        let (own, data) = (top.clone(), blocks[2].clone());
        let later = tokio::spawn(async move { write(&own, at(2), &data, 7).await });
        let_others_run().await;
        bench.set_gates(true);
        exchange.await.expect("ends").expect("exchange");
        for number in 0..5 {
            bench.gates[number].is_open.set(!leaving.contains(&number));
        }
        assert!(writing.is_finished() && reading.is_finished(), "{case}: nobody uses the old one any more");
        writing.await.expect("write");
        assert_eq!(reading.await.expect("read"), Default::default(), "{case}");
        later.await.expect("later write");

        // Nothing reaches what has left (its gate would keep it for ever), and all reaches what has joined.
        let count = |number: &usize| bench.faulty[*number].transfers();
        let before: Vec<_> = leaving.iter().map(count).collect();
        write(&top, at(3), &blocks[3], 8).await;
        top.flush(Txg(8)).await.expect("flush");
        for (block, birth) in [(0, 5), (1, 6), (2, 7), (3, 8)] {
            read(&top, at(block), &blocks[block as usize], birth).await;
        }
        assert_eq!(leaving.iter().map(count).collect::<Vec<_>>(), before, "{case}");
        for &number in &joining {
            let child = new.iter().position(|child| child.contains(&number)).expect("a child");
            let sibling = if new[child].len() > 1 { new[child][0] } else { new[0][0] };
            let held = |number: usize, block: u64| {
                let psize = blocks[block as usize].len();
                bench.held(&top, number, child, at(block), psize)
            };
            for block in [2, 3] {
                assert_eq!(held(number, block), held(sibling, block), "{case}: {number} has block {block}");
            }
            assert_ne!(held(number, 1), held(sibling, 1), "{case}: the write under way goes by the old one");
            for (block, birth) in [(0, 5), (1, 6), (2, 7), (3, 8)] {
                let outcome = scrub(&top, at(block), &blocks[block as usize], birth).await;
                bench.assert_mended(&joining, (block, birth), &outcome, &case);
                assert_eq!(held(number, block), held(sibling, block), "{case}: {number} has block {block}");
            }
            assert_eq!(bench.leaves[number].stats().snapshot().checksum_errors, 0, "{case}: nobody is blamed");
        }
        nothing_is_to_be_mended(&top, &blocks, at, &case).await;
    }
}

/// The leaves of one arrangement that are not in another.
fn only_in(own: &[&[usize]], other: &[&[usize]]) -> Vec<usize> {
    let is_in = |side: &[&[usize]], number: usize| side.iter().any(|child| child.contains(&number));
    (0..5).filter(|&number| is_in(own, number) && !is_in(other, number)).collect()
}

/// A scrub of these blocks, born in groups 5 and later, finds all of them good.
async fn nothing_is_to_be_mended(top: &Arc<TopVdev>, blocks: &[Buf], at: impl Fn(u64) -> u64, case: &str) {
    top.leaves().iter().for_each(|leaf| leaf.set_missing(Default::default()));
    for block in 0..blocks.len() as u64 {
        let outcome = scrub(top, at(block), &blocks[block as usize], 5 + block).await;
        assert_eq!((outcome.bad_children, outcome.repaired_bytes), (vec![], 0), "{case}");
    }
}

/// Columns stay where they are, and nothing changes when an exchange is refused.
#[tokio::test]
async fn an_exchange_that_would_move_blocks_is_refused() {
    let bench = Bench::new().await;
    let top = bench.top(&RAIDZ, &[&[0], &[1], &[2]]).await;
    let impossible: Vec<(VdevKind, Vec<&[usize]>)> = vec![
        (RAIDZ, vec![&[0], &[1], &[2], &[3]]),
        (VdevKind::Raidz { parity: 2 }, vec![&[0], &[1], &[2]]),
        (VdevKind::Mirror, vec![&[0], &[1], &[2]]),
        (RAIDZ, vec![&[0], &[], &[2]]),
        (VdevKind::File, vec![&[0], &[1]]),
    ];
    for (kind, children) in impossible {
        let error = top.exchange(bench.arrangement(&kind, &children)).await.expect_err("refused");
        assert!(matches!(error, VdevError::Config(_)), "{kind}: {error}");
        assert_eq!((top.kind(), top.leaves().len()), (RAIDZ, 3));
    }
}

const NESTED: [&[usize]; 3] = [&[0], &[1, 3], &[2]];

/// One of two leaves in a child's place fails: the child has the block, and another child may fail too.
#[tokio::test]
async fn a_leaf_that_fails_beside_another_is_noted_and_its_child_is_sound() {
    let mut random = Random(32);
    for failing in [1, 3] {
        let bench = Bench::new().await;
        let top = bench.top(&RAIDZ, &NESTED).await;
        let data = random.buf(8 << ASHIFT);
        let fail = |number: usize, kind| {
            let offset = VDEV_LABEL_START_SIZE;
            bench.faulty[number].inject(Fault { kind, offset, length: 64 << 20, times: u64::MAX });
        };
        let missing = |txg| (0..4).filter(|&n| bench.leaves[n].is_missing(Txg(txg))).collect::<Vec<_>>();
        fail(failing, FaultKind::WriteError);
        write(&top, 0, &data, 9).await;
        assert_eq!(missing(9), [failing]);
        assert_eq!(read(&top, 0, &data, 9).await, Default::default());
        fail(0, FaultKind::WriteError);
        write(&top, 1 << 20, &data, 10).await;
        assert_eq!(missing(10), if failing == 1 { [0, 1] } else { [0, 3] });
        read(&top, 1 << 20, &data, 10).await;
        // Two children are too many, and then it is nobody's.
        fail(4 - failing, FaultKind::WriteError);
        let error = top.write(2 << 20, data.clone(), Txg(11), Priority::AsyncWrite).await.expect_err("too many");
        assert!(matches!(error, VdevError::NoReplicas { .. }), "{error}");
        assert_eq!(missing(11), []);
    }
}

/// A flush that fails on one of two leaves, and on all of a child and another one.
#[tokio::test]
async fn a_child_is_flushed_when_one_of_its_leaves_is() {
    let bench = Bench::new().await;
    let top = bench.top(&RAIDZ, &NESTED).await;
    let fail = |number: usize| bench.faulty[number].inject(Fault::everywhere(FaultKind::FlushError));
    fail(1);
    fail(0);
    top.flush(Txg(9)).await.expect("within redundancy");
    let missing = |txg| (0..4).filter(|&n| bench.leaves[n].is_missing(Txg(txg))).collect::<Vec<_>>();
    assert_eq!(missing(9), [0, 1]);
    fail(3);
    assert!(top.flush(Txg(10)).await.is_err());
    assert_eq!(missing(10), [0, 1, 3]);
}

/// The block is sound, but one of the leaves has it wrong.
#[tokio::test]
async fn a_scrub_repairs_a_wrong_leaf_beside_a_right_one() {
    let mut random = Random(33);
    for (wrong, stale) in [(1, false), (3, false), (1, true), (3, true)] {
        // Each child is parity for some offset.
        for offset in (0..6).map(|sector| sector << ASHIFT) {
            let bench = Bench::new().await;
            let top = bench.top(&RAIDZ, &NESTED).await;
            let data = random.buf(4 << ASHIFT);
            write(&top, offset, &data, 9).await;
            let right = bench.held(&top, wrong, 1, offset, data.len());
            bench.spoil(&top, wrong, 1, offset, data.len());
            if stale {
                bench.leaves[wrong].note_missing(Txg(9));
            }
            let outcome = scrub(&top, offset, &data, 9).await;
            assert_eq!((outcome.bad_children, outcome.repaired_bytes), (vec![1], right.len() as u64));
            assert_eq!(bench.held(&top, wrong, 1, offset, data.len()), right, "{wrong} {stale} {offset}");
            let errors = |number: usize| bench.leaves[number].stats().snapshot().checksum_errors;
            assert_eq!(errors(wrong), u64::from(!stale), "{wrong} {stale}");
            assert_eq!(errors(4 - wrong), 0);
            bench.leaves[wrong].set_missing(Default::default());
            let again = scrub(&top, offset, &data, 9).await;
            assert_eq!((again.bad_children, again.repaired_bytes), (vec![], 0));
        }
    }
}

/// Another leaf in the same place is asked when one cannot deliver, or has it wrong and redundancy is used up.
#[tokio::test]
async fn another_leaf_serves_when_one_fails_or_is_wrong() {
    let mut random = Random(34);
    let bench = Bench::new().await;
    let top = bench.top(&RAIDZ, &NESTED).await;
    let data = random.buf(8 << ASHIFT);
    write(&top, 0, &data, 9).await;
    for number in [1, 3] {
        let (offset, times) = (VDEV_LABEL_START_SIZE, 1);
        bench.faulty[number].inject(Fault { kind: FaultKind::ReadError, offset, length: 64 << 20, times });
        let outcome = read(&top, 0, &data, 9).await;
        let read_errors = bench.leaves[number].stats().snapshot().read_errors;
        bench.faulty[number].heal();
        assert_eq!(read_errors, u64::from(number == 1), "the first is asked first");
        assert_eq!(outcome.bad_children.is_empty(), number == 3);
    }
    let right: Vec<_> = [1, 3].map(|number| bench.held(&top, number, 1, 0, data.len())).to_vec();
    for wrong in [1, 3] {
        bench.faulty[0].disappear();
        top.check_present();
        bench.spoil(&top, wrong, 1, 0, data.len());
        read(&top, 0, &data, 9).await;
        scrub(&top, 0, &data, 9).await;
        assert_eq!([1, 3].map(|number| bench.held(&top, number, 1, 0, data.len())).to_vec(), right);
        bench.spoil(&top, wrong, 1, 0, data.len());
        scrub(&top, 0, &data, 9).await;
        assert_eq!([1, 3].map(|number| bench.held(&top, number, 1, 0, data.len())).to_vec(), right);
    }
}

/// Without checksum, what a leaf missed is not believed while its sibling, or redundancy, has it.
#[tokio::test]
async fn a_stale_leaf_of_a_block_without_checksum_is_never_believed() {
    let mut random = Random(35);
    for stale in [1, 3] {
        for sibling_fails in [false, true] {
            for offset in (0..6).map(|sector| sector << ASHIFT) {
                let bench = Bench::new().await;
                let top = bench.top(&RAIDZ, &NESTED).await;
                let data = random.buf(4 << ASHIFT);
                write(&top, offset, &data, 9).await;
                let right = bench.held(&top, stale, 1, offset, data.len());
                bench.spoil(&top, stale, 1, offset, data.len());
                bench.leaves[stale].note_missing(Txg(9));
                if sibling_fails {
                    let fault = Fault { kind: FaultKind::ReadError, offset: 0, length: DEVICE_SIZE, times: 1 };
                    bench.faulty[4 - stale].inject(Fault { offset: VDEV_LABEL_START_SIZE, ..fault });
                }
                let extent = Extent { checked: false, ..extent(offset, &data, 9) };
                for _ in 0..4 {
                    let (bytes, _) = top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await.expect("read");
                    assert_eq!(bytes, data, "{stale} {sibling_fails} {offset}");
                }
                top.scrub(extent, &|_: &[u8]| true).await.expect("scrub");
                for number in [1, 3] {
                    assert_eq!(bench.held(&top, number, 1, offset, data.len()), right, "{stale} {sibling_fails}");
                    assert_eq!(bench.leaves[number].stats().snapshot().checksum_errors, 0, "nobody is blamed");
                }
                assert_eq!(top.scrub(extent, &|_: &[u8]| true).await.expect("again").repaired_bytes, 0);
            }
        }
    }
}

/// A child can be used, and has a group, while one of its leaves does.
#[tokio::test]
async fn redundancy_is_counted_by_children() {
    let bench = Bench::new().await;
    let top = bench.top(&RAIDZ, &NESTED).await;
    assert!((0..4).all(|number| top.can_do_without(&bench.leaves[number])));
    bench.leaves[3].note_missing(Txg(9));
    assert!((0..4).all(|number| top.can_do_without(&bench.leaves[number])));
    bench.leaves[0].note_missing(Txg(9));
    assert!(!top.is_doubtful(Txg(9)));
    let dispensable = |top: &TopVdev| (0..4).filter(|&n| top.can_do_without(&bench.leaves[n])).collect::<Vec<_>>();
    assert_eq!(dispensable(&top), [0, 3]);
    assert!(top.can_do_without_group(Txg(9), &[Guid(1), Guid(4)]));
    assert!(!top.can_do_without_group(Txg(9), &[Guid(2)]));
    bench.leaves[1].note_missing(Txg(9));
    assert!(top.is_doubtful(Txg(9)));
    bench.leaves.iter().for_each(|leaf| leaf.set_missing(MissingRanges::new()));
    for (number, state) in [(3, VdevState::Degraded), (0, VdevState::Degraded), (1, VdevState::CantOpen)] {
        bench.faulty[number].disappear();
        top.check_present();
        assert_eq!(top.condition().state, state, "{number}");
    }
}

/// What OpenZFS left in the middle of a replacement.
#[tokio::test]
async fn nested_replacing_and_spare_vdevs_open() {
    let bench = Bench::new().await;
    let nested = |kind: VdevKind, children: Vec<VdevSpec>| VdevSpec::parent(kind, children);
    let pair = |kind: VdevKind| nested(kind, vec![leaf_spec(1), leaf_spec(3)]);
    let with_spare = || nested(VdevKind::Spare, vec![pair(VdevKind::Replacing), leaf_spec(4)]);
    let cases = [
        (pair(VdevKind::Replacing), Layout::Mirror, 2, "replacing-0"),
        (pair(VdevKind::Spare), Layout::Mirror, 2, "spare-0"),
        (nested(VdevKind::Mirror, vec![leaf_spec(0), pair(VdevKind::Replacing)]), Layout::Mirror, 3, "mirror-0"),
        (nested(RAIDZ, vec![leaf_spec(0), with_spare(), leaf_spec(2)]), Layout::Raidz { parity: 1 }, 3, "raidz1-0"),
    ];
    for (mut spec, layout, width, name) in cases {
        spec.ashift = ASHIFT;
        let top = TopVdev::open(&spec, &bench, true).await.expect("open");
        assert_eq!((top.layout(), top.width(), &*top.name()), (layout, width, name));
        let opened: Vec<Guid> = top.leaves().iter().map(|leaf| leaf.guid()).collect();
        assert_eq!(opened, spec.leaves().iter().map(|leaf| leaf.guid).collect::<Vec<_>>());
        assert_eq!(top.condition().state, VdevState::Healthy);
        let least = top.leaves().iter().map(|leaf| leaf.asize()).min().expect("leaves");
        assert_eq!(top.asize(), layout.asize(width, least), "{name}");
    }
    let refused = [
        nested(VdevKind::Mirror, vec![leaf_spec(0), pair(VdevKind::Mirror)]),
        nested(RAIDZ, vec![leaf_spec(0), pair(RAIDZ), leaf_spec(2)]),
        nested(RAIDZ, vec![leaf_spec(0), nested(VdevKind::Spare, vec![pair(VdevKind::Mirror)]), leaf_spec(2)]),
        nested(VdevKind::Replacing, vec![leaf_spec(0), pair(VdevKind::Other("draid".into()))]),
    ];
    for spec in refused {
        let error = TopVdev::open(&spec, &bench, true).await.expect_err("refused");
        assert!(matches!(error, VdevError::Unsupported { .. }), "{error}");
    }
    let empty = nested(RAIDZ, vec![leaf_spec(0), nested(VdevKind::Replacing, vec![]), leaf_spec(2)]);
    assert!(matches!(TopVdev::open(&empty, &bench, true).await, Err(VdevError::Config(_))));
}

/// While a block without checksum was read, a transfer failed, and parity was asked for instead. By then the leaf that
/// should have it was gone, so its sibling answered, which had missed the block: what it held was taken for parity.
#[tokio::test]
async fn a_leaf_that_missed_a_block_without_checksum_is_not_believed_when_its_sibling_goes_away_meanwhile() {
    let mut random = Random(31);
    for pair in 0..3 {
        let bench = Bench::new().await;
        let mut children = [vec![0], vec![1], vec![2]];
        children[pair].push(3);
        let children: Vec<&[usize]> = children.iter().map(|child| &child[..]).collect();
        let top = bench.top(&RAIDZ, &children).await;
        let data = random.buf(2 << ASHIFT);
        top.write(0, data.clone(), Txg(7), Priority::AsyncWrite).await.expect("write");
        let map = RaidzMap::new(0, data.len() as u64, ASHIFT, 3, 1);
        let column = map.columns.iter().find(|column| column.child == pair).expect("each child has a column");
        bench.memory[3].poke(VDEV_LABEL_START_SIZE + column.offset, &random.buf(column.size));
        bench.leaves[3].note_missing(Txg(7));
        let failing = map.data().iter().find(|column| column.child != pair).expect("two have data").child;
        bench.faulty[failing].inject(Fault::everywhere(FaultKind::ReadError));
        bench.gates[failing].is_open.set(false);
        let extent = Extent { offset: 0, psize: data.len() as u64, birth: Txg(7), speculative: false, checked: false };
        let reading = {
            let top = top.clone();
            tokio::spawn(async move { top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await })
        };
        let_others_run().await;
        bench.leaves[pair].close(Condition::new(VdevState::Offline, VdevAux::None));
        bench.gates[failing].is_open.set(true);
        if let Ok((bytes, _)) = reading.await.expect("it ends") {
            assert_eq!(bytes, data, "child {pair} has two leaves");
        }
    }
}

/// A mirror of leaves 0 and 1 with a block, which leaf 3 has joined.
async fn joined(bench: &Bench, old: &Buf) -> Arc<TopVdev> {
    let top = bench.top(&VdevKind::Mirror, &[&[0], &[1]]).await;
    write(&top, 1 << 20, old, 5).await;
    bench.leaves[3].note_lacking(Txg(1), Txg(7));
    bench.leaves[3].begin_scan();
    let new = bench.arrangement(&VdevKind::Mirror, &[&[0], &[1], &[3]]);
    top.exchange(new).await.expect("exchange");
    top
}

const JOINED: [Guid; 1] = [Guid(4)];

#[tokio::test]
async fn a_write_and_a_copy_of_one_place_come_one_after_the_other() {
    let mut random = Random(77);
    let (old, new) = (random.buf(8 << ASHIFT), random.buf(8 << ASHIFT));
    for copies_first in [true, false] {
        let bench = Bench::new().await;
        let top = joined(&bench, &old).await;
        let (place, length) = (1 << 20, old.len());
        // What began before is waited for.
        bench.set_gates(false);
        let (own, data) = (top.clone(), old.clone());
        let early = tokio::spawn(async move { write(&own, place, &data, 8).await });
        let_others_run().await;
        let beginning = tokio::spawn(Copies::begin(top.clone()));
        let_others_run().await;
        assert!(!beginning.is_finished());
        bench.set_gates(true);
        early.await.expect("no panic");
        let copies = Arc::new(beginning.await.expect("no panic").expect("begun"));
        bench.set_gates(false);
        let copy = |copies: Arc<Copies>| async move { copies.copy((place, length as u64), &JOINED).await };
        let first = copies_first.then(|| tokio::spawn(copy(copies.clone())));
        let_others_run().await;
        let (own, data) = (top.clone(), new.clone());
        let writing = tokio::spawn(async move { write(&own, place, &data, 9).await });
        let_others_run().await;
        let copying = first.unwrap_or_else(|| tokio::spawn(copy(copies.clone())));
        let_others_run().await;
        bench.set_gates(true);
        writing.await.expect("no panic");
        assert_eq!(copying.await.expect("no panic"), Copied { was_read: true, written: length as u64 });
        for number in [0, 1, 3] {
            assert_eq!(
                bench.held(&top, number, number, place, length),
                new[..],
                "{number}, copy first: {copies_first}"
            );
        }
    }
}

#[tokio::test]
async fn a_copy_is_taken_from_who_has_everything_and_who_does_not_take_it_says_so() {
    let mut random = Random(78);
    let old = random.buf(8 << ASHIFT);
    let bench = Bench::new().await;
    let top = joined(&bench, &old).await;
    let (place, length) = (1 << 20, old.len());
    bench.leaves[1].note_missing(Txg(5));
    bench.memory[1].poke(VDEV_LABEL_START_SIZE + place, &vec![0xa5; length]);
    let copies = Copies::begin(top.clone()).await.expect("begun");
    let range = (place, length as u64);
    for _ in 0..20 {
        assert!(copies.copy(range, &JOINED).await.was_read);
        assert_eq!(bench.held(&top, 3, 3, place, length), old[..]);
    }
    // Who lacks something, and has not joined, is left as it is.
    assert_eq!(bench.held(&top, 1, 1, place, length), vec![0xa5; length]);
    assert!(bench.leaves[3].noted().is_empty());
    let offset = VDEV_LABEL_START_SIZE;
    bench.faulty[3].inject(Fault { kind: FaultKind::WriteError, offset, length: 64 << 20, times: u64::MAX });
    assert_eq!(copies.copy(range, &JOINED).await, Copied { was_read: true, written: 0 });
    assert!(bench.leaves[3].noted().contains(FIRST_GROUP), "it would be taken for done");
    bench.leaves[0].note_missing(Txg(8));
    assert_eq!(copies.copy(range, &JOINED).await, Copied::default(), "nobody has everything");
    assert_eq!(copies.copy((DEVICE_SIZE, 512), &JOINED).await, Copied::default());
}
