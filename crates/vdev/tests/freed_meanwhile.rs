//! A block that is freed while it is read is read, and nothing is written where it lay.

mod common;

use common::{Random, Rig};
use platter_ondisk::Txg;
use platter_vdev::{Extent, Knowledge, Priority, VdevKind};

/// Whoever reads knows the bytes, and that the block is nobody's any more.
struct Freed<'a>(&'a [u8]);

impl Knowledge for Freed<'_> {
    fn is_right(&self, bytes: &[u8]) -> bool {
        bytes == self.0
    }

    fn is_in_use(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn nothing_is_set_right_where_a_freed_block_lay() {
    let mut random = Random(5);
    let raidz = |parity| VdevKind::Raidz { parity };
    for (kind, width) in [(VdevKind::Mirror, 3), (raidz(1), 4), (raidz(2), 6)] {
        let rig = Rig::new(kind, width, 12).await;
        let data = random.buf(60_000);
        rig.write(0, &data, 1).await;
        rig.places(0, data.len() as u64).into_iter().take(1).for_each(|place| rig.corrupt(place, &mut random));
        let before = rig.image(0, data.len() as u64);
        let extent = Extent { offset: 0, psize: 60_000, birth: Txg(1), speculative: false, checked: true };
        // A mirror's reads go to one child for long: each is asked, some time.
        for _ in 0..2 * width {
            let (bytes, outcome) =
                rig.top.read(extent, Priority::SyncRead, &Freed(&data)).await.expect("there is redundancy");
            assert_eq!((bytes, outcome.repaired_bytes), (data.clone(), 0));
        }
        let outcome = rig.top.scrub(extent, &Freed(&data)).await.expect("there is redundancy");
        assert_eq!((outcome.repaired_bytes, outcome.unrepaired_bytes), (0, 0), "nothing is left to be done");
        assert_eq!(rig.image(0, data.len() as u64), before, "{width} devices");
        let outcome = rig.scrub(0, &data).await.expect("there is redundancy");
        assert!(outcome.repaired_bytes > 0, "while it is somebody's, it is set right");
    }
}
