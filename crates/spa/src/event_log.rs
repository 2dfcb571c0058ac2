//! The log's line for each event of a pool: what `zpool events` forgets after a while stays there.
//!
//! Every line names its pool, and the vdev when it is about one; numbers that differ from event to event are fields, so
//! that lines of one kind can be counted.

use crate::core::Core;
use platter_api::event::EventValue;

/// Writes the line for an event of `class` in `pool`.
pub fn write(core: &Core, pool: &str, class: &str, fields: &[(String, EventValue)]) {
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let text = |name: &str| match field(name) {
        Some(EventValue::Text(text)) => text.as_str(),
        _ => "",
    };
    let number = |name: &str| match field(name) {
        Some(EventValue::Number(number)) => *number,
        _ => 0,
    };
    let vdev = match text("vdev_path") {
        "" => text("vdev_type"),
        path => path,
    };
    match class {
        "ereport.fs.zfs.io" => {
            let (reads, writes) = (number("vdev_read_errors"), number("vdev_write_errors"));
            tracing::warn!(pool, vdev, reads, writes, "I/O error: {}", text("zio_err_text"));
        }
        "ereport.fs.zfs.checksum" => {
            let (offset, size, errors) = (number("zio_offset"), number("zio_size"), number("vdev_cksum_errors"));
            tracing::warn!(pool, vdev, offset, size, errors, "a block's checksum is wrong");
        }
        "ereport.fs.zfs.probe_failure" => {
            tracing::warn!(pool, vdev, "the device is given up: {}", text("zio_err_text"));
        }
        "ereport.fs.zfs.sitout" => {
            let seconds = number("sit_out_secs");
            tracing::warn!(
                pool,
                vdev,
                seconds,
                "the device is far slower than its siblings: it is not read for a while"
            );
        }
        "fault.fs.zfs.vdev.io" | "fault.fs.zfs.vdev.checksum" | "fault.fs.zfs.vdev.slow_io" => {
            tracing::warn!(pool, vdev, class, "too many errors: the device is {} now", text("vdev_state_text"));
        }
        "resource.fs.zfs.statechange" => {
            let (state, reason) = (text("vdev_state_text"), text("reason"));
            if state == "ONLINE" {
                tracing::info!(pool, vdev, state, reason, "a vdev's state changed");
            } else {
                tracing::warn!(pool, vdev, state, reason, "a vdev's state changed");
            }
        }
        // Its own line is more complete; and one that would come with every group.
        "ereport.fs.zfs.io_failure" | "sysevent.fs.zfs.config_sync" => {}
        "sysevent.fs.zfs.history_event" => {
            let what = text("history_internal_name");
            tracing::info!(pool, what, "{}", text("history_internal_str"));
        }
        "sysevent.fs.zfs.scrub_finish" | "sysevent.fs.zfs.resilver_finish" => {
            write_end_of_scan(core, pool, class);
        }
        other => {
            let what = other.rsplit('.').next().unwrap_or(other);
            match what {
                "pool_create" => tracing::info!(pool, "the pool was created"),
                "pool_import" => tracing::info!(pool, "the pool was imported"),
                "pool_export" => tracing::info!(pool, "the pool was exported"),
                "pool_destroy" => tracing::info!(pool, "the pool was destroyed"),
                "scrub_start" => tracing::info!(pool, "scrub started"),
                "resilver_start" => tracing::info!(pool, "resilver started"),
                _ => tracing::info!(pool, vdev, class, "event"),
            }
        }
    }
}

/// Writes the line for the end of a scrub or resilver.
fn write_end_of_scan(core: &Core, pool: &str, class: &str) {
    let what = if class.ends_with("scrub_finish") { "scrub" } else { "resilver" };
    let scan = core.scan.try_lock().map(|scrub| scrub.phys.clone()).unwrap_or_default();
    let (repaired, errors, seconds) = (scan.processed, scan.errors, scan.end_time.saturating_sub(scan.start_time));
    if errors == 0 {
        tracing::info!(pool, repaired, errors, seconds, "{what} finished");
    } else {
        tracing::warn!(pool, repaired, errors, seconds, "{what} finished with errors: 'zpool status -v' lists them");
    }
}
