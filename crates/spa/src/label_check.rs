//! A scrub looks at the labels, too: what bit rot or somebody's dd(1) has taken of them is counted, told, and written
//! anew at once. Its end writes all labels in any case, but may be days away, and says nothing of what was there.
//!
//! OpenZFS opens all devices again when a scrub begins (`dsl_scan`, `module/zfs/dsl_scan.c`), and takes one without
//! labels out of the pool.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use platter_ondisk::label::VDEV_PHYS_SIZE;

use crate::core::Core;
use crate::dtl;
use crate::labels::{self, LabelTarget, Survey};
use platter_dsl::error::Result;

/// For how long a device's labels are waited for: one that hangs is somebody else's business.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// For how long within a group, which waits as well.
const ANSWER_SOON: Duration = Duration::from_secs(1);

/// Which of `targets` have labels that are not as they should be, and what they have.
async fn suspects(core: &Core, targets: Vec<LabelTarget>, patience: Duration) -> Vec<(LabelTarget, Survey)> {
    let pool = core.config.read().guid;
    let looks = targets.into_iter().map(|target| async move {
        let survey = tokio::time::timeout(patience, labels::survey(&*target.device, pool, target.guid)).await.ok()?;
        (!survey.is_whole()).then_some((target, survey))
    });
    join_all(looks).await.into_iter().flatten().collect()
}

/// Looks at the labels of all devices. What is not as it should be counts as checksum errors of its device, and the
/// next group writes it anew. Another's label is not worth a group, but whatever changes next writes over it. What no
/// group writes is mended here.
///
/// # Errors
/// When the pool stopped.
pub async fn mend(core: &Arc<Core>) -> Result<()> {
    if core.dsl.read_only {
        return Ok(());
    }
    mend_configurations(core).await?;
    mend_areas(core).await;
    Ok(())
}

async fn mend_configurations(core: &Arc<Core>) -> Result<()> {
    let targets = core.label_targets();
    // Who has just joined gets its first labels with this group.
    core.dsl.wait_synced(core.dsl.gate.open_txg()).await?;
    let found = suspects(core, targets, ANSWER_MAX).await;
    if found.is_empty() {
        return Ok(());
    }
    // A label may have been half written at that moment; in the syncing group nobody writes any.
    core.task(async |core, _| {
        let is_there = |target: &LabelTarget| core.label_targets().iter().any(|there| there.guid == target.guid);
        let targets = found.into_iter().map(|(target, _)| target).filter(is_there).collect();
        for (target, survey) in suspects(&core, targets, ANSWER_SOON).await {
            note(&core, &target, survey);
        }
        Ok(())
    })
    .await
}

/// Mends what of the labels no group writes, where the labels are this pool's. A device that does not take it is none
/// that this could help.
async fn mend_areas(core: &Core) {
    let pool = core.config.read().guid;
    let looks = core.label_targets().into_iter().map(|target| async move {
        let mend = async {
            let is_own = labels::survey(&*target.device, pool, target.guid).await.is_own();
            if is_own { labels::mend_areas(&*target.device).await } else { Ok(0) }
        };
        if let Ok(Ok(written @ 1..)) = tokio::time::timeout(ANSWER_MAX, mend).await {
            let path = path_of(&target);
            tracing::warn!(
                pool = core.name(),
                path,
                "{written} blank areas or boot environments of its labels could not be read and are written anew"
            );
        }
    });
    join_all(looks).await;
}

fn path_of(target: &LabelTarget) -> String {
    target.device.path().map(|path| path.display().to_string()).unwrap_or_default()
}

fn note(core: &Core, target: &LabelTarget, survey: Survey) {
    let (pool, guid, path) = (core.name(), target.guid.0, path_of(target));
    if let Some(leaf) = dtl::leaves(core).into_iter().find(|leaf| leaf.guid() == target.guid) {
        survey.wrong().for_each(|offset| leaf.note_wrong_label(offset, VDEV_PHYS_SIZE));
    }
    if survey.others.is_empty() {
        tracing::warn!(pool, guid, path, "{} of its 4 labels were damaged and are written anew", survey.damaged.len());
        core.dsl.dirty_config();
    } else {
        tracing::error!(
            pool,
            guid,
            path,
            "{} of its 4 labels were another pool's or device's: whoever wrote them may have written over more; look \
             at what the scrub finds there, or replace it",
            survey.others.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
    use platter_ondisk::label::{VDEV_LABEL_SIZE, VDEV_PHYS_OFFSET, label_offset};

    use super::*;
    use crate::Pool;
    use crate::test_environment::environment;

    const SIZE: u64 = 128 << 20;

    async fn pool(folder: &Path, name: &str, seed: u8) -> Arc<Pool> {
        let disks = ["a", "b"].map(|disk| folder.join(format!("{name}-{disk}")));
        for disk in &disks {
            File::create(disk).and_then(|file| file.set_len(SIZE)).unwrap();
        }
        let vdevs = vec![VdevRequest::Mirror(disks.to_vec())];
        Pool::create(environment(seed), CreateRequest { name: name.into(), vdevs, ..CreateRequest::default() })
            .await
            .unwrap()
    }

    /// Its whole labels, those of others and the damaged ones.
    async fn labels_of(pool: &Pool, index: usize) -> (usize, usize, usize) {
        let target = pool.core.label_targets().swap_remove(index);
        let own = pool.core.config.read().guid;
        let survey = labels::survey(&*target.device, own, target.guid).await;
        (4 - survey.wrong().count(), survey.others.len(), survey.damaged.len())
    }

    async fn scrub(pool: &Pool) {
        pool.scrub_start().await.unwrap();
        pool.scrub_wait().await.unwrap();
        pool.force_group().await.unwrap();
    }

    fn checksum_errors(pool: &Pool) -> Vec<u64> {
        dtl::leaves(&pool.core).iter().map(|leaf| leaf.stats().snapshot().checksum_errors).collect()
    }

    #[tokio::test]
    async fn a_scrub_writes_damaged_labels_anew() {
        let folder = tempfile::tempdir().unwrap();
        let tank = pool(folder.path(), "tank", 1).await;
        scrub(&tank).await;
        assert_eq!((labels_of(&tank, 0).await, checksum_errors(&tank)), ((4, 0, 0), vec![0, 0]));
        let file = File::options().write(true).open(folder.path().join("tank-a")).unwrap();
        for index in 0..4 {
            file.write_all_at(&vec![0; VDEV_LABEL_SIZE as usize], label_offset(SIZE, index)).unwrap();
        }
        let other = File::options().write(true).open(folder.path().join("tank-b")).unwrap();
        other.write_all_at(&[7; 512], label_offset(SIZE, 3) + VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE / 2).unwrap();
        assert_eq!((labels_of(&tank, 0).await, labels_of(&tank, 1).await), ((0, 0, 4), (3, 0, 1)));
        scrub(&tank).await;
        assert_eq!((labels_of(&tank, 0).await, labels_of(&tank, 1).await), ((4, 0, 0), (4, 0, 0)));
        assert_eq!(checksum_errors(&tank), [4, 1], "each damaged label is one");
        // Either of them is enough to find the pool by.
        tank.export().await.unwrap();
        std::fs::remove_file(folder.path().join("tank-b")).unwrap();
        let search = vec![folder.path().into()];
        let request = ImportRequest { pool: "tank".into(), search, ..ImportRequest::default() };
        Pool::import(environment(2), request).await.unwrap().export().await.unwrap();
    }

    #[tokio::test]
    async fn labels_of_others_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (tank, other) = (pool(folder.path(), "tank", 1).await, pool(folder.path(), "other", 2).await);
        // What its creation left to be written.
        tank.force_group().await.unwrap();
        let from = File::open(folder.path().join("other-a")).unwrap();
        let onto = File::options().write(true).open(folder.path().join("tank-a")).unwrap();
        let mut label = vec![0; VDEV_LABEL_SIZE as usize];
        from.read_exact_at(&mut label, label_offset(SIZE, 0)).unwrap();
        onto.write_all_at(&label, label_offset(SIZE, 0)).unwrap();
        onto.write_all_at(&vec![0; VDEV_LABEL_SIZE as usize], label_offset(SIZE, 1)).unwrap();
        mend(&tank.core).await.unwrap();
        assert_eq!(labels_of(&tank, 0).await, (2, 1, 1), "nothing is written there");
        assert_eq!(checksum_errors(&tank), [2, 0]);
        tank.stop("enough");
        other.export().await.unwrap();
    }
}
