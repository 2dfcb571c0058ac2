//! The policy on devices that are numbers: what gives a verdict, and what does not.

use std::time::Duration;

use platter_api::faults::{Cause, DeviceSigns, DeviceState, Limits};
use platter_faults::{Diagnosis, Finding};

/// A pool whose devices do what a test says, second by second.
struct Pool {
    diagnosis: Diagnosis,
    now: u64,
    devices: Vec<DeviceSigns>,
}

impl Pool {
    fn of(count: u64) -> Self {
        let device = |guid| DeviceSigns { guid, name: format!("/d{guid}"), has_everything: true, ..Default::default() };
        let mut pool = Self { diagnosis: Diagnosis::default(), now: 100, devices: (0..count).map(device).collect() };
        assert_eq!(pool.pass(1), []);
        pool
    }

    /// Goes on for so many seconds; what was found.
    fn pass(&mut self, seconds: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        for _ in 0..seconds {
            self.now += 1;
            findings.extend(self.diagnosis.observe(Duration::from_secs(self.now), &self.devices));
        }
        findings
    }

    /// The verdicts of the next seconds.
    fn verdicts(&mut self, seconds: u64) -> Vec<(u64, Cause)> {
        let judged = |finding| match finding {
            Finding::Judged { device, cause, .. } => Some((device.guid, cause)),
            _ => None,
        };
        self.pass(seconds).into_iter().filter_map(judged).collect()
    }
}

#[test]
fn ten_in_ten_minutes_are_too_many_and_nine_are_not() {
    for (cause, errors, judged) in [(Cause::Io, 10, true), (Cause::Io, 9, false), (Cause::Checksum, 10, true)] {
        let mut pool = Pool::of(4);
        for _ in 0..errors {
            match cause {
                Cause::Io => pool.devices[2].io_errors += 1,
                _ => pool.devices[2].checksum_errors += 1,
            }
            assert_eq!(pool.verdicts(4), []);
        }
        let expected = if judged { vec![(2, cause)] } else { Vec::new() };
        // The last one is still being thought over.
        assert_eq!(pool.verdicts(700), expected, "{errors} {cause:?}");
        assert_eq!(pool.verdicts(700), [], "once");
    }
}

#[test]
fn a_verdict_comes_within_ten_seconds() {
    let mut pool = Pool::of(4);
    pool.devices[1].io_errors = 50;
    assert_eq!(pool.verdicts(5), []);
    assert_eq!(pool.verdicts(2), [(1, Cause::Io)]);
}

#[test]
fn errors_over_years_are_no_verdict() {
    let mut pool = Pool::of(4);
    for _ in 0..100 {
        pool.devices[0].checksum_errors += 9;
        assert_eq!(pool.verdicts(601), []);
    }
}

#[test]
fn what_a_scrub_finds_does_not_count() {
    let mut pool = Pool::of(2);
    pool.devices[0].scan_errors = 1000;
    let findings = pool.pass(30);
    assert!(matches!(findings.as_slice(), [Finding::ScanErrors { .. }]), "{findings:?}");
}

#[test]
fn slow_transfers_count_only_when_a_property_says_so() {
    let mut pool = Pool::of(4);
    pool.devices[0].slow_ios = 1000;
    assert_eq!(pool.verdicts(30), []);
    pool.devices[0].limits = Limits { slow_io: (Some(5), Some(60)), ..Limits::default() };
    pool.devices[0].slow_ios += 5;
    assert_eq!(pool.verdicts(30), [(0, Cause::SlowIo)]);
}

/// A device with wrong bytes is read most while its pool is imported, before anybody looks.
#[test]
fn errors_before_the_first_look_count() {
    let mut pool = Pool { diagnosis: Diagnosis::default(), ..Pool::of(3) };
    pool.devices[1].checksum_errors = 25;
    assert_eq!(pool.verdicts(30), [(1, Cause::Checksum)]);
    // One that takes another's place is opened, too.
    pool.devices[2] = DeviceSigns { guid: 9, io_errors: 12, ..pool.devices[0].clone() };
    assert_eq!(pool.verdicts(30), [(9, Cause::Io)]);
}

#[test]
fn a_device_that_does_not_answer_is_given_up_and_several_are_not() {
    let silent = |finding: &Finding| match finding {
        Finding::Silent { device, .. } => vec![device.guid],
        Finding::AllSilent { devices } => devices.iter().map(|device| device.guid).collect(),
        _ => Vec::new(),
    };
    let found = |pool: &mut Pool, seconds| {
        pool.pass(seconds).iter().map(silent).filter(|of| !of.is_empty()).collect::<Vec<_>>()
    };
    let mut pool = Pool::of(4);
    // One is slow, and ends something every forty seconds; another has nothing to do.
    pool.devices[0].writes.0 = 30;
    for _ in 0..5 {
        assert_eq!(found(&mut pool, 40), Vec::<Vec<u64>>::new());
        pool.devices[0].writes.1 += 1;
    }
    (pool.devices[0].writes.0, pool.devices[2].writes.0) = (0, 1);
    assert_eq!(found(&mut pool, 59), Vec::<Vec<u64>>::new());
    assert_eq!(found(&mut pool, 300), [[2]]);
    // Nothing could be done about it: that is tried again.
    assert_eq!(found(&mut pool, 600), [[2]]);
    pool.devices[2].state = DeviceState::Faulted;
    assert_eq!(found(&mut pool, 2000), Vec::<Vec<u64>>::new(), "it is not used any more");
    // One whose writes hang while it is read.
    let mut pool = Pool::of(4);
    (pool.devices[1].writes.0, pool.devices[1].reads.0) = (1, 3);
    for _ in 0..59 {
        pool.devices[1].reads.1 += 100;
        assert_eq!(found(&mut pool, 1), Vec::<Vec<u64>>::new());
    }
    pool.devices[1].reads.1 += 100;
    assert_eq!(found(&mut pool, 1), [[1]]);
    // Three that go silent one after the other hang on one cable, and so do both sides of a mirror.
    let mut pool = Pool::of(6);
    for device in 0..3 {
        pool.devices[device].writes.0 = 5;
        assert_eq!(found(&mut pool, 3), Vec::<Vec<u64>>::new());
    }
    assert_eq!(found(&mut pool, 300), [[0, 1, 2]]);
    let mut pool = Pool::of(2);
    pool.devices.iter_mut().for_each(|device| device.reads.0 = 1);
    assert_eq!(found(&mut pool, 300), [[0, 1]]);
}

#[test]
fn a_burst_on_all_devices_faults_nobody_and_is_told_once() {
    for count in [2, 3, 8, 48] {
        let mut pool = Pool::of(count);
        let mut told = 0;
        for second in 0..60 {
            // The cable is bad for a minute; not every device is asked each second.
            for device in pool.devices.iter_mut().filter(|device| (device.guid + second) % 3 != 0) {
                (device.io_errors, device.checksum_errors) = (device.io_errors + 7, device.checksum_errors + 3);
            }
            for finding in pool.pass(1) {
                assert!(!matches!(finding, Finding::Judged { .. }), "{count} devices, second {second}: {finding:?}");
                told += usize::from(matches!(finding, Finding::Together { cause: Cause::Io, .. }));
            }
        }
        assert_eq!(told, 1, "{count} devices");
        assert_eq!(pool.verdicts(600), [], "{count} devices: nothing of it is left");
        // And then one of them fails by itself.
        pool.devices[1].io_errors += 20;
        assert_eq!(pool.verdicts(10), [(1, Cause::Io)], "{count} devices");
    }
}

#[test]
fn a_device_that_fails_beside_one_that_errs_now_and_then_is_judged() {
    let mut pool = Pool::of(8);
    let mut verdicts = Vec::new();
    for _ in 0..30 {
        pool.devices[3].io_errors += 2;
        pool.devices[5].io_errors += u64::from(pool.now.is_multiple_of(15));
        verdicts.extend(pool.verdicts(1));
    }
    assert_eq!(verdicts, [(3, Cause::Io)]);
}

#[test]
fn a_device_that_is_pulled_out_is_not_blamed_for_it() {
    let mut pool = Pool::of(4);
    pool.devices[0].io_errors = 40;
    assert_eq!(pool.verdicts(2), []);
    pool.devices[0].state = DeviceState::Removed;
    assert_eq!(pool.verdicts(60), []);
    pool.devices[0].state = DeviceState::Online;
    assert_eq!(pool.verdicts(60), [], "nor when it is back");
    pool.devices[0].io_errors += 10;
    assert_eq!(pool.verdicts(60), [(0, Cause::Io)]);
}

#[test]
fn clear_begins_anew() {
    let mut pool = Pool::of(4);
    pool.devices[0].checksum_errors = 12;
    assert_eq!(pool.verdicts(10), [(0, Cause::Checksum)]);
    (pool.devices[0].state, pool.devices[0].is_judged) = (DeviceState::Degraded, true);
    pool.devices[0].checksum_errors += 100;
    assert_eq!(pool.verdicts(100), []);
    (pool.devices[0].state, pool.devices[0].is_judged) = (DeviceState::Online, false);
    pool.devices[0].checksum_errors = 0;
    assert_eq!(pool.verdicts(100), []);
    pool.devices[0].checksum_errors = 9;
    assert_eq!(pool.verdicts(100), []);
    pool.devices[0].checksum_errors = 10;
    assert_eq!(pool.verdicts(100), [(0, Cause::Checksum)]);
}

#[test]
fn one_that_is_degraded_is_given_up_when_transfers_fail_and_again_when_it_can_be_spared() {
    let mut pool = Pool::of(4);
    (pool.devices[0].state, pool.devices[0].is_judged) = (DeviceState::Degraded, true);
    pool.pass(1);
    pool.devices[0].io_errors += 10;
    assert_eq!(pool.verdicts(10), [(0, Cause::Io)]);
    // It was the last good copy, and is still there.
    pool.devices[0].io_errors += 100;
    assert_eq!(pool.verdicts(10), []);
    pool.devices[0].helper = Some("/s".into());
    assert_eq!(pool.verdicts(10), []);
    pool.devices[0].helper_has_everything = true;
    assert_eq!(pool.verdicts(10), [(0, Cause::Io)]);
}

#[test]
fn what_becomes_of_a_device_is_told() {
    let mut pool = Pool::of(4);
    pool.devices[0].state = DeviceState::Faulted;
    let findings = pool.pass(1);
    assert!(matches!(findings.as_slice(), [Finding::Changed { from: Some(DeviceState::Online), .. }]), "{findings:?}");
    pool.devices[0].helper = Some("/s".into());
    assert!(matches!(pool.pass(5).as_slice(), [Finding::Helped { .. }]));
    pool.devices[0].helper_has_everything = true;
    assert!(matches!(pool.pass(5).as_slice(), [Finding::Whole { .. }]));
    (pool.devices[0].helper, pool.devices[0].helper_has_everything) = (None, false);
    assert!(matches!(pool.pass(5).as_slice(), [Finding::Alone { .. }]));
    // While it is opened anew its state says nothing.
    (pool.devices[0].state, pool.devices[0].is_in_transit) = (DeviceState::Unavailable, true);
    assert_eq!(pool.pass(5), []);
    pool.devices.remove(0);
    assert_eq!(pool.pass(5), []);
    // What is missing when the pool is opened is told.
    let missing = DeviceSigns { guid: 9, state: DeviceState::Unavailable, ..Default::default() };
    pool.devices.push(missing);
    assert!(matches!(pool.pass(5).as_slice(), [Finding::Changed { from: None, .. }]));
}
