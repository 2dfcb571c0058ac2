//! Jobs as a client finds and controls them.

use platter_api::job::{ControlJob, JobAction, JobKind};
use platter_api::messages::ErrorKind;

use super::*;

#[tokio::test]
async fn a_job_is_paused_resumed_and_cancelled_by_its_number_and_never_begun_again() {
    let bench = Bench::new().with_pool().await;
    assert_eq!(bench.daemon.jobs(None).await.unwrap(), []);
    *bench.disks.scan.lock() =
        ScanReport { state: "scanning".into(), start_time: 7, to_examine: 100, ..ScanReport::default() };
    *bench.disks.freeing.lock() = 50;
    let jobs = bench.daemon.jobs(Some("tank")).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.kind).collect::<Vec<_>>(), [JobKind::Scrub, JobKind::Free]);
    let control = |job, action| bench.daemon.control_job(ControlJob { job, action, command: String::new() });
    let state = || bench.disks.scan.lock().state.clone();
    let scrub = jobs[0].id;
    for (action, then) in
        [(JobAction::Pause, "paused"), (JobAction::Resume, "scanning"), (JobAction::Cancel, "canceled")]
    {
        control(scrub, action).await.unwrap();
        assert_eq!(state(), then);
    }
    // It is over, though nobody has looked since.
    let error = control(scrub, JobAction::Resume).await.unwrap_err();
    assert_eq!((error.kind, state().as_str()), (ErrorKind::NotFound, "canceled"), "{error}");
    assert_eq!(error.message, format!("no such job: {}; it may be over", scrub.0));
    let error = control(jobs[1].id, JobAction::Cancel).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    // The next one has another number.
    *bench.disks.scan.lock() = ScanReport { state: "scanning".into(), start_time: 9, ..ScanReport::default() };
    let next = bench.daemon.jobs(Some("tank")).await.unwrap()[0].id;
    assert!(next != scrub && next != jobs[1].id);
}
