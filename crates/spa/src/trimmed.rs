//! Trims and initializing by hand: what is given up and written over, what survives an import, what is refused.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, LeafWork, LeafWorkState, VdevReport};
use platter_api::request::{
    CreateRequest, FreeWork, ImportRequest, InitializeAction, PoolChange, TrimAction, VdevRequest,
};
use platter_ondisk::Sectors;

use crate::Pool;
use crate::free_state::Kind;
use crate::test_environment::environment;

const SIZE: u64 = 128 << 20;

fn make_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("d{number}"))).collect();
    for path in &paths {
        std::fs::File::create(path).and_then(|file| file.set_len(SIZE)).expect("a file");
    }
    paths
}

/// Bytes that a file takes of its file system.
fn taken(path: &Path) -> u64 {
    Sectors(std::fs::metadata(path).expect("it is there").blocks()).bytes()
}

async fn create(vdevs: Vec<VdevRequest>) -> Arc<Pool> {
    let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
    Pool::create(environment(1), request).await.expect("created")
}

async fn import(folder: &Path) -> Arc<Pool> {
    let request = ImportRequest { pool: "tank".into(), search: vec![folder.into()], ..Default::default() };
    Pool::import(environment(2), request).await.expect("imported")
}

const TRIM: FreeWork = FreeWork::Trim(TrimAction::Start { rate: 0, secure: false });
const SLOW_TRIM: FreeWork = FreeWork::Trim(TrimAction::Start { rate: 1 << 20, secure: false });
const INITIALIZE: FreeWork = FreeWork::Initialize(InitializeAction::Start);

/// What was refused.
async fn change(pool: &Pool, work: FreeWork, devices: &[&Path]) -> Vec<String> {
    let devices = devices.iter().map(|path| path.display().to_string()).collect();
    pool.change(PoolChange::Free { work, devices }).await.expect("carried out").problems
}

async fn works(pool: &Pool, of: fn(&VdevReport) -> Option<LeafWork>) -> Vec<Option<LeafWork>> {
    fn leaves(vdev: &VdevReport, of: fn(&VdevReport) -> Option<LeafWork>, found: &mut Vec<Option<LeafWork>>) {
        if vdev.children.is_empty() {
            found.push(of(vdev));
        }
        vdev.children.iter().for_each(|child| leaves(child, of, found));
    }
    let mut found = Vec::new();
    leaves(&pool.report(Detail::default()).await.expect("a report").vdevs, of, &mut found);
    found
}

async fn states(pool: &Pool, of: fn(&VdevReport) -> Option<LeafWork>) -> Vec<Option<LeafWorkState>> {
    works(pool, of).await.into_iter().map(|work| work.map(|work| work.state)).collect()
}

async fn until_done(pool: &Pool, of: fn(&VdevReport) -> Option<LeafWork>) {
    for _ in 0..3000 {
        if states(pool, of).await.iter().all(|state| *state == Some(LeafWorkState::Complete)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it does not end: {:?}", works(pool, of).await);
}

#[tokio::test]
async fn what_was_written_over_is_given_up_and_what_is_in_use_stays() {
    for vdev in [VdevRequest::Mirror, |children| VdevRequest::Raidz { parity: 1, children }] {
        let folder = tempfile::tempdir().expect("a folder");
        let files = make_files(folder.path(), 3);
        let pool = create(vec![vdev(files.clone())]).await;
        assert_eq!(change(&pool, INITIALIZE, &[]).await, [""; 0]);
        until_done(&pool, |vdev| vdev.initialize).await;
        let full: Vec<u64> = files.iter().map(|path| taken(path)).collect();
        assert!(full.iter().all(|taken| *taken > SIZE * 3 / 4), "{full:?}");
        assert_eq!(change(&pool, TRIM, &[]).await, [""; 0]);
        until_done(&pool, |vdev| vdev.trim).await;
        let empty: Vec<u64> = files.iter().map(|path| taken(path)).collect();
        assert!(empty.iter().all(|taken| *taken < SIZE / 10), "{empty:?}");
        pool.scrub_start().await.expect("a scrub");
        pool.scrub_wait().await.expect("its end");
        let report = pool.report(Detail { errors: true, extended: true }).await.expect("a report");
        assert_eq!((report.scan.errors, report.scan.repaired, report.error_count), (0, 0, 0));
        let counts = report.vdevs.children[0].children[0].counts;
        assert!(counts.trim_bytes > SIZE / 2 && counts.trim_errors == 0, "{counts:?}");
        let trims: u64 = report.vdevs.extended.expect("asked for").individual[5].iter().sum();
        assert_eq!(trims, report.vdevs.counts.trim_ops);
        pool.export().await.expect("exported");
        let pool = import(folder.path()).await;
        assert_eq!(states(&pool, |vdev| vdev.trim).await, [Some(LeafWorkState::Complete); 3]);
        let classes: Vec<String> = pool.history().await.expect("its history").into_iter().map(|e| e.text).collect();
        for said in ["activated", "complete"] {
            assert!(classes.iter().any(|text| text.contains(said)), "{said}: {classes:?}");
        }
        pool.export().await.expect("exported");
    }
}

#[tokio::test]
async fn a_trim_is_suspended_cancelled_and_goes_on_after_an_import_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 2);
    let pool = create(files.iter().cloned().map(VdevRequest::Leaf).collect()).await;
    let [first, second] = [&*files[0], &*files[1]];
    assert_eq!(change(&pool, FreeWork::Trim(TrimAction::Cancel), &[]).await.len(), 2);
    assert_eq!(change(&pool, SLOW_TRIM, &[first]).await, [""; 0]);
    let busy = format!("cannot trim '{}': currently trimming", first.display());
    assert_eq!(change(&pool, TRIM, &[first]).await, [busy]);
    assert_eq!(states(&pool, |vdev| vdev.trim).await, [Some(LeafWorkState::Active), None]);
    assert_eq!(change(&pool, FreeWork::Trim(TrimAction::Suspend), &[first]).await, [""; 0]);
    let suspended = works(&pool, |vdev| vdev.trim).await[0].expect("it was begun");
    assert_eq!(suspended.state, LeafWorkState::Suspended);
    let none = format!("cannot trim '{}': there is no active trim", second.display());
    assert_eq!(change(&pool, FreeWork::Trim(TrimAction::Suspend), &[second]).await, [none]);
    pool.export().await.expect("exported");
    let pool = import(folder.path()).await;
    let again = works(&pool, |vdev| vdev.trim).await[0].expect("it is remembered");
    assert_eq!((again.state, again.time), (suspended.state, suspended.time));
    // Whatever runs when the pool is left runs when it is there again.
    assert_eq!(change(&pool, SLOW_TRIM, &[]).await, [""; 0]);
    pool.export().await.expect("exported");
    let pool = import(folder.path()).await;
    assert_eq!(states(&pool, |vdev| vdev.trim).await, [Some(LeafWorkState::Active); 2]);
    assert_eq!(change(&pool, FreeWork::Trim(TrimAction::Cancel), &[]).await, [""; 0]);
    assert_eq!(states(&pool, |vdev| vdev.trim).await, [Some(LeafWorkState::Canceled); 2]);
    let wrong = change(&pool, TRIM, &[first, Path::new("/none")]).await;
    assert_eq!(wrong, ["cannot trim '/none': no such device in pool"]);
    assert_eq!(states(&pool, |vdev| vdev.trim).await, [Some(LeafWorkState::Canceled); 2], "nothing was begun");
    let secure = FreeWork::Trim(TrimAction::Start { rate: 0, secure: true });
    let unable = change(&pool, secure, &[]).await;
    assert!(unable.len() == 2 && unable[0].ends_with("trim operations are not supported by this device"), "{unable:?}");
    let events = pool.core.environment.events.after(0);
    let count = |class: &str| events.iter().filter(|event| event.class.ends_with(class)).count();
    // Of this import.
    assert_eq!((count("trim_resume"), count("trim_start"), count("trim_cancel")), (0, 0, 2));
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn what_was_initialized_can_be_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 1);
    let pool = create(vec![VdevRequest::Leaf(files[0].clone())]).await;
    assert_eq!(change(&pool, INITIALIZE, &[]).await, [""; 0]);
    until_done(&pool, |vdev| vdev.initialize).await;
    assert_eq!(change(&pool, FreeWork::Initialize(InitializeAction::Uninitialize), &[]).await, [""; 0]);
    assert_eq!(states(&pool, |vdev| vdev.initialize).await, [None]);
    pool.export().await.expect("exported");
    let pool = import(folder.path()).await;
    assert_eq!(states(&pool, |vdev| vdev.initialize).await, [None]);
    let none = change(&pool, FreeWork::Initialize(InitializeAction::Cancel), &[]).await;
    assert!(none[0].ends_with("there is no active initialization"), "{none:?}");
    pool.export().await.expect("exported");
}

/// A walk says that it is done a moment before it is put away; a command that comes between waits for that.
#[tokio::test]
async fn what_has_just_ended_is_not_under_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 1);
    let pool = create(vec![VdevRequest::Leaf(files[0].clone())]).await;
    let next = [FreeWork::Initialize(InitializeAction::Uninitialize), INITIALIZE];
    for next in next {
        assert_eq!(change(&pool, INITIALIZE, &[]).await, [""; 0]);
        until_done(&pool, |vdev| vdev.initialize).await;
        let works = &pool.core.works;
        let key = *works.known.lock().keys().find(|(_, kind)| *kind == Kind::Initialize).expect("it was begun");
        while works.known.lock()[&key].runner.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        works.known.lock().get_mut(&key).expect("it is known").runner = Some(u64::MAX);
        let put_away = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            works.end(key, u64::MAX);
        };
        let (said, ()) = tokio::join!(change(&pool, next, &[]), put_away);
        assert_eq!(said, [""; 0]);
    }
    pool.export().await.expect("exported");
}
