//! Whether a scrub has found something where nothing can be wrong.

use platter_api::report::{Detail, VdevReport};
use platter_spa::Pool;

/// Whether the last scan, if that was a scrub, has found everything right.
///
/// # Errors
/// What it found.
pub async fn nothing_was_mended(pool: &Pool) -> Result<(), String> {
    let report = pool.report(Detail { errors: true, extended: false }).await.map_err(|error| error.to_string())?;
    let (errors, repaired) = (report.scan.errors, report.scan.repaired);
    if report.scan.resilver || (errors == 0 && repaired == 0) {
        return Ok(());
    }
    Err(format!(
        "a scrub found {errors} errors and repaired {repaired} bytes, where nothing was damaged: {}",
        counts(&report.vdevs).join(", ")
    ))
}

/// Every vdev with its state and what it counted.
fn counts(vdev: &VdevReport) -> Vec<String> {
    let own = format!("{} {} {:?}", vdev.name, vdev.state, vdev.counts);
    std::iter::once(own).chain(vdev.children.iter().flat_map(counts)).collect()
}
