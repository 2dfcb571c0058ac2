//! What a pool that was found is refused for before any of its devices is opened for good.

use platter_api::request::ImportRequest;
use platter_api::{features, names};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::version::PoolVersion;

use crate::config::PoolState;
use crate::discover::Candidate;
use crate::environment::Environment;

/// Whether it is the pool that was meant, and nobody else's.
///
/// # Errors
/// Another system has it, an older copy than was asked for was found, a name that no pool has.
pub fn check_owner(environment: &Environment, candidate: &Candidate, request: &ImportRequest) -> Result<()> {
    let config = &candidate.config;
    if let Some(name) = &request.new_name {
        names::check_pool(name)?;
    }
    if request.was_open && config.state != PoolState::Active {
        return Err(PoolError::Unavailable(format!(
            "it was exported\nrun 'zpool import {}' to have it here again, or 'zpool export {}' to forget it",
            config.name, config.name
        )));
    }
    let found = candidate.uberblock.as_ref().map_or(0, |uberblock| uberblock.txg.0);
    if found < request.least_txg {
        return Err(PoolError::Unavailable(format!(
            "only an older copy of the pool was found: it ends at group {found}, the pool was at {}\nrun 'zpool import \
             {}' to use the copy",
            request.least_txg, config.name
        )));
    }
    let foreign = config.hostid.is_some_and(|id| id != 0 && id != environment.hostid());
    if config.state == PoolState::Active && foreign && !request.force {
        let host = config.hostname.as_deref().unwrap_or("unknown");
        return Err(PoolError::NeedsForce {
            reason: format!(
                "pool was previously in use from another system.\nLast accessed by {host} (hostid={:x})",
                config.hostid.unwrap_or(0)
            ),
            hint: "The pool can be imported, use 'zpool import -f' to import the pool.".into(),
        });
    }
    if let Some(writer) = candidate.writer.as_ref().filter(|_| !request.force) {
        let host = config.hostname.as_deref().unwrap_or("unknown");
        return Err(PoolError::NeedsForce {
            reason: format!("pool is in use: {writer} has it open for writing on {host}"),
            hint: "Export it there. 'zpool import -f -o readonly=on' reads it as it is now; what is changed there \
                   afterwards may read as damaged."
                .into(),
        });
    }
    Ok(())
}

/// Whether this version can read it.
///
/// # Errors
/// A version or features that this version does not know.
pub fn check_version(candidate: &Candidate) -> Result<()> {
    let config = &candidate.config;
    let unsupported: Vec<&str> =
        config.features_for_read.iter().map(|g| &**g).filter(|g| !features::is_readable(g)).collect();
    if !unsupported.is_empty() {
        return Err(PoolError::Unsupported(format!(
            "unsupported feature(s)\nThis pool uses the following feature(s) not supported by this system:\n\t{}",
            unsupported.join("\n\t")
        )));
    }
    let version = PoolVersion(config.version);
    if version < PoolVersion::OLDEST {
        return Err(PoolError::Unsupported(format!(
            "pool version {version} is too old: this program knows {} to {} and {}",
            PoolVersion::OLDEST,
            PoolVersion::BEFORE_FEATURES,
            PoolVersion::FEATURES
        )));
    }
    if !version.is_supported() {
        return Err(PoolError::Unsupported(format!("pool is formatted using an unsupported ZFS version ({version})")));
    }
    Ok(())
}

/// Whether enough of it is there, as far as labels tell: those of other devices do not say what a vdev was of which
/// none is there. If it was a log, the pool's own configuration knows.
///
/// # Errors
/// Missing devices.
pub fn check_complete(candidate: &Candidate) -> Result<()> {
    if !candidate.is_complete_enough() {
        let mut text = String::from("one or more devices is currently unavailable");
        for line in candidate.missing_leaves() {
            text.push_str(&format!("\n\tmissing device: {line}"));
        }
        for top in &candidate.missing_tops {
            text.push_str(&format!("\n\tmissing top-level vdev {top}: none of its devices was found"));
        }
        return Err(PoolError::Unavailable(text));
    }
    Ok(())
}

/// Why a pool cannot be opened: what is missing of it, or, if that is not too much, what came of opening it.
pub fn why(candidate: &Candidate, incomplete: Option<PoolError>, error: PoolError) -> PoolError {
    let lines = candidate.missing_leaves();
    match (incomplete, &error) {
        (Some(incomplete), _) => incomplete,
        // Of another device something is wrong, or it is offline: labels do not say.
        (None, PoolError::Engine(_)) if !lines.is_empty() => {
            let missing: String = lines.iter().map(|line| format!("\n\tmissing device: {line}")).collect();
            PoolError::Unavailable(format!("one or more devices is currently unavailable{missing}\n{error}"))
        }
        (None, _) => error,
    }
}

/// Whether a pool of which these logs are `lost` may be opened, with their names.
///
/// # Errors
/// In OpenZFS's words, unless it was asked for (`zpool_import_props`, `lib/libzfs/libzfs_pool.c`).
pub fn check_logs(lost: &[String], request: &ImportRequest) -> Result<()> {
    if lost.is_empty() || request.missing_logs {
        return Ok(());
    }
    let mut text =
        String::from("one or more devices is currently unavailable\nThe devices below are missing or corrupted, ");
    text.push_str("use '-m' to import the pool anyway:");
    lost.iter().for_each(|log| text.push_str(&format!("\n\t    {log} [log]")));
    text.push_str("\nWhat was made stable there only, in the last seconds before the pool was left, would be lost.");
    Err(PoolError::Unavailable(text))
}
