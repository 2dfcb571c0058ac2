//! What is free of a vdev is given up on its leaves, and nothing else is: blocks beside it stay as they are.

mod common;

use common::{Random, Rig};
use platter_device::{Fault, FaultKind};
use platter_ondisk::Guid;
use platter_vdev::{Priority, TrimKind, VdevKind};

/// A vdev whose leaves can be told apart.
async fn rig(kind: VdevKind, width: usize, ashift: u8) -> Rig {
    let rig = Rig::new(kind, width, ashift).await;
    (1..).zip(rig.top.leaves()).for_each(|(guid, leaf)| leaf.set_guid(Guid(guid)));
    rig
}

#[tokio::test]
async fn blocks_beside_what_is_given_up_stay() {
    let mut random = Random(11);
    let kinds = [(VdevKind::File, 1), (VdevKind::Mirror, 2)].into_iter();
    let raidz = [(1, 3), (1, 5), (2, 6), (3, 7)].map(|(parity, width)| (VdevKind::Raidz { parity }, width));
    for (kind, width) in kinds.chain(raidz) {
        for ashift in [9, 12] {
            let rig = rig(kind.clone(), width, ashift).await;
            // Every other block is freed.
            let mut blocks = Vec::new();
            let mut offset = 1 << 20;
            for _ in 0..40 {
                let size = (1 + random.below(30) as usize) << ashift;
                let data = random.buf(size);
                rig.write(offset, &data, 1).await;
                blocks.push((offset, data));
                offset += rig.top.asize_for(size as u64);
            }
            let mut bytes = 0;
            for (offset, data) in blocks.iter().step_by(2) {
                let range = (*offset, rig.top.asize_for(data.len() as u64));
                for leaf in rig.top.leaves() {
                    let Some(there) = rig.top.on_leaf(leaf.guid(), range) else { continue };
                    rig.top.trim(leaf.guid(), there, TrimKind::Plain).await.expect("trimmed");
                    bytes += there.1;
                }
            }
            let copies = if kind == VdevKind::Mirror { width as u64 } else { 1 };
            let freed: u64 = blocks.iter().step_by(2).map(|(_, data)| rig.top.asize_for(data.len() as u64)).sum();
            assert_eq!(bytes, freed * copies, "{kind}: each sector is given up once");
            for (index, (offset, data)) in blocks.iter().enumerate() {
                let scrubbed = rig.scrub(*offset, data).await;
                match index % 2 {
                    0 => assert!(scrubbed.is_err(), "{kind}: {index} was given up"),
                    _ => assert!(scrubbed.expect("it is whole").bad_children.is_empty(), "{kind}: {index}"),
                }
            }
            let counted: u64 = rig.top.leaves().iter().map(|leaf| leaf.stats().snapshot().bytes_trimmed).sum();
            assert_eq!(counted, bytes);
        }
    }
}

#[tokio::test]
async fn a_trim_that_fails_is_counted_and_makes_nobody_doubt_the_device() {
    let rig = rig(VdevKind::Mirror, 2, 9).await;
    let leaf = rig.top.leaves()[0].clone();
    rig.shelf.faulty[0].inject(Fault { kind: FaultKind::TrimError, offset: 0, length: u64::MAX, times: 1 });
    assert!(rig.top.trim(leaf.guid(), (1 << 20, 4096), TrimKind::Plain).await.is_err());
    let stats = leaf.stats().snapshot();
    assert_eq!((stats.trim_errors, stats.write_errors, leaf.is_complete()), (1, 0, true));
    rig.top.trim(leaf.guid(), (1 << 20, 4096), TrimKind::Plain).await.expect("only once");
    let histograms = leaf.histograms().snapshot();
    assert_eq!(histograms.individual[Priority::Trim].iter().sum::<u64>(), 2);
    assert!(rig.top.trim(leaf.guid(), (rig.top.asize(), 4096), TrimKind::Plain).await.is_err(), "the labels are there");
    rig.shelf.faulty[0].disappear();
    assert!(rig.top.trim(leaf.guid(), (1 << 20, 4096), TrimKind::Plain).await.is_err());
    assert!(!leaf.is_usable(), "it is not there");
}
