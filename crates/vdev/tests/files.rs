//! Vdevs on real files: opening, sizes, disappearance.

mod common;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use common::Random;
use platter_device::{BlockDevice, OpenOptions, Presence};
use platter_ondisk::Txg;
use platter_vdev::Priority;
use platter_vdev::{DeviceOpener, Extent, OpenError, TopVdev, VdevError, VdevKind, VdevSpec, VdevState};

/// Opens leaves by the path in their configuration, and nobody else may.
struct Exclusive;

#[async_trait]
impl DeviceOpener for Exclusive {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let path = spec.path.as_ref().expect("the test gave it one");
        Ok(platter_device::open_vdev(path, spec.whole_disk, OpenOptions::exclusive()).await?)
    }
}

const OPENER: Exclusive = Exclusive;

fn make(dir: &Path, count: usize, size: u64) -> VdevSpec {
    let leaves = (0..count).map(|index| {
        let path = dir.join(format!("d{index}"));
        std::fs::File::create(&path).expect("create").set_len(size).expect("size");
        VdevSpec::leaf(VdevKind::File, path)
    });
    VdevSpec::parent(VdevKind::Raidz { parity: 1 }, leaves.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_blocks_at_once_on_files_survive_a_deleted_one() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spec = make(dir.path(), 5, 128 << 20);
    let top = TopVdev::open(&spec, &OPENER, true).await.expect("open");
    assert_eq!((top.ashift(), top.asize()), (9, 5 * ((128 << 20) - (4 << 20) - (512 << 10))));
    let mut random = Random(11);
    let mut offset = 0;
    let blocks: Vec<_> = (0..300)
        .map(|_| {
            let sectors = 1 + random.below(400) as usize;
            let data = random.buf(512 * sectors);
            let at = offset;
            offset += top.asize_for(data.len() as u64);
            (at, data)
        })
        .collect();
    let writes = blocks.iter().map(|(at, data)| top.write(*at, data.clone(), Txg(4), Priority::AsyncWrite));
    for result in futures::future::join_all(writes).await {
        result.expect("write");
    }
    top.flush(Txg(4)).await.expect("flush");
    for round in 0..2 {
        let top = &top;
        let reads = blocks.iter().map(|(at, data)| async move {
            let extent =
                Extent { offset: *at, psize: data.len() as u64, birth: Txg(4), speculative: false, checked: true };
            let (bytes, outcome) =
                top.read(extent, Priority::SyncRead, &|bytes: &[u8]| bytes == &data[..]).await.expect("read");
            assert_eq!(&bytes, data);
            assert!(round == 1 || !outcome.reconstructed);
        });
        futures::future::join_all(reads).await;
        if round == 0 {
            std::fs::remove_file(dir.path().join("d3")).expect("rm");
            assert!(matches!(top.leaves()[3].device().expect("open").presence(), Presence::Unlinked(_)));
            assert!(top.check_present());
            assert_eq!(top.leaves()[3].condition().name(), "REMOVED");
            assert_eq!(top.condition().name(), "DEGRADED");
        }
    }
    // At the next import it cannot be opened, and the rest serves.
    drop(top);
    let mut known = spec.clone();
    (known.ashift, known.asize) = (9, 5 * ((128 << 20) - (4 << 20) - (512 << 10)));
    let top = TopVdev::open(&known, &OPENER, true).await.expect("open");
    assert_eq!(top.leaves()[3].condition().name(), "UNAVAIL");
    assert_eq!(top.leaves()[3].condition().aux_text(), "cannot open");
    let (at, data) = &blocks[0];
    let extent = Extent { offset: *at, psize: data.len() as u64, birth: Txg(4), speculative: false, checked: true };
    top.read(extent, Priority::SyncRead, &|bytes: &[u8]| bytes == &data[..]).await.expect("read");
}

#[tokio::test]
async fn devices_that_cannot_serve_say_why() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spec = make(dir.path(), 3, 32 << 20);
    let error = TopVdev::open(&spec, &OPENER, true).await.expect_err("too small");
    assert!(matches!(&error, VdevError::Unavailable { reason, .. } if reason.contains("at least 67108864")), "{error}");
    let mut spec = make(dir.path(), 3, 100 << 20);
    let first = TopVdev::open(&spec, &OPENER, true).await.expect("open");
    let error = TopVdev::open(&spec, &OPENER, true).await.expect_err("in use");
    assert!(error.to_string().contains("in use already, by this very process"), "{error}");
    (spec.ashift, spec.asize, spec.metaslab_shift) = (9, first.asize(), 24);
    drop(first);
    // A file that lost its end, beyond the last partial metaslab.
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("d1")).expect("open");
    file.set_len(80 << 20).expect("truncate");
    let top = TopVdev::open(&spec, &OPENER, true).await.expect("open");
    let condition = top.leaves()[1].condition();
    assert_eq!((condition.state, condition.aux_text()), (VdevState::CantOpen, "invalid label"));
    assert!(condition.detail.is_some_and(|detail| detail.contains("shrunk")));
    assert_eq!(top.condition().state, VdevState::Degraded);
}

#[tokio::test]
async fn labels_are_reached_at_both_ends() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spec = make(dir.path(), 3, (100 << 20) + 777);
    let top = TopVdev::open(&spec, &OPENER, true).await.expect("open");
    let leaf = &top.leaves()[0];
    let data = Random(12).buf(1024);
    for label in 0..4 {
        leaf.write_label_area(label, 128 << 10, data.clone()).await.expect("write");
    }
    leaf.flush().await.expect("flush");
    let bytes = std::fs::read(dir.path().join("d0")).expect("file");
    for start in [0, 256 << 10, (100 << 20) - (512 << 10), (100 << 20) - (256 << 10)] {
        assert_eq!(&bytes[start + (128 << 10)..][..1024], &data[..]);
    }
}
