//! `zpool upgrade`.

use platter_api::features::CREATED;
use platter_api::messages::PoolView;
use platter_api::report::Detail;
use platter_api::report::PropertyValue;
use platter_api::request::{PoolChange, PoolOperation};

use super::compatibility;
use super::pools::views;
use crate::getopt::{Grammar, parse};
use crate::out::{out, outln};
use crate::props::pool::FEATURES;
use crate::session::{Done, Failure, Session, refused, usage};

const SOME_DISABLED: &str = "
Some supported features are not enabled on the following pools. Once a
feature is enabled the pool may become incompatible with software
that does not support the feature. See zpool-features(7) for details.

Note that the pool 'compatibility' feature can be used to inhibit
feature upgrades.

Features marked with (*) are not applied automatically on upgrade, and
must be applied explicitly with zpool-set(7).

POOL  FEATURE
---------------
";

/// Names of the features that this version writes, in OpenZFS's order.
fn supported() -> Vec<&'static str> {
    let written = |name: &str| CREATED.iter().any(|feature| feature.info().name == name);
    FEATURES.iter().copied().filter(|name| written(name)).collect()
}

fn text<'a>(pool: &'a PoolView, property: &str) -> Option<&'a str> {
    match &pool.properties.get(property)?.value {
        PropertyValue::Text(text) => Some(text),
        PropertyValue::Number(_) => None,
    }
}

/// Features that could be enabled in a pool, as its `compatibility` allows.
pub(super) fn wanting(pool: &PoolView) -> Vec<&'static str> {
    let allowed = super::compatibility::load(text(pool, "compatibility").unwrap_or("off"));
    let Ok(allowed) = allowed else { return Vec::new() };
    let is_allowed = |name: &&str| allowed.as_ref().is_none_or(|allowed| allowed.contains(*name));
    disabled(pool).into_iter().filter(is_allowed).collect()
}

fn disabled(pool: &PoolView) -> Vec<&'static str> {
    let is_disabled = |name: &&str| text(pool, &format!("feature@{name}")) == Some("disabled");
    supported().into_iter().filter(is_disabled).collect()
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: ":avV:", long: &[] }, words).map_err(usage)?;
    let (all, show_features) = (parsed.has("a"), parsed.has("v"));
    if parsed.has("V") {
        return Err(refused("zpool upgrade -V: legacy versions are not supported yet"));
    }
    if show_features && (all || !parsed.operands.is_empty()) {
        return Err(usage("-v option is incompatible with other arguments"));
    }
    if all && !parsed.operands.is_empty() {
        return Err(usage("-a option should not be used along with a pool name"));
    }
    outln!("This system supports ZFS pool feature flags.\n");
    if show_features {
        out!("{}\n{}", features(), legacy_versions());
        return Ok(0);
    }
    let (found, code) = views(session, &parsed.operands, Detail::default())?;
    if all || !parsed.operands.is_empty() {
        let mut count = 0;
        for pool in &found {
            let enabled = upgrade(session, pool)?;
            count += enabled;
            if enabled == 0 && !all {
                outln!("Pool '{}' already has all supported and requested features enabled.", pool.report.name);
            }
        }
        if all && count == 0 && code == 0 {
            outln!("All pools are already formatted using feature flags.\n");
            outln!("Every feature flags pool already has all supported and requested features enabled.");
        }
        return Ok(code);
    }
    out!("{}", old_versions(&found));
    let flags: Vec<PoolView> = found.into_iter().filter(|pool| pool.report.version >= 5000).collect();
    out!("{}", list(&flags));
    Ok(code)
}

fn features() -> String {
    let mut out = String::from("The following features are supported:\n\nFEAT DESCRIPTION\n");
    out.push_str(&format!("{}\n", "-".repeat(61)));
    for name in supported() {
        let Some(info) = CREATED.iter().map(|feature| feature.info()).find(|info| info.name == name) else {
            continue;
        };
        let compatible = if info.readonly_compat { " (read-only compatible)" } else { "" };
        out.push_str(&format!("{name:<37}{compatible}\n     {}\n", info.description));
    }
    out
}

/// What each version before feature flags brought (`zpool_do_upgrade`, `cmd/zpool/zpool_main.c`).
const VERSIONS: [&str; 28] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

fn legacy_versions() -> String {
    let mut out = String::from("The following legacy versions are also supported:\n\nVER  DESCRIPTION\n");
    out.push_str(&format!("---  {}\n", "-".repeat(56)));
    for (version, what) in (1..).zip(VERSIONS) {
        out.push_str(&format!(" {version:<4}{what}\n"));
    }
    out + "\nFor more information on a particular version, including supported releases,\nsee the ZFS Administration \
           Guide.\n\n"
}

/// Pools with a version, as OpenZFS lists them.
fn old_versions(pools: &[PoolView]) -> String {
    let old: Vec<&PoolView> = pools.iter().filter(|pool| pool.report.version < 5000).collect();
    if old.is_empty() {
        return "All pools are formatted using feature flags.\n\n".to_owned();
    }
    let mut out = String::from(
        "The following pools are formatted with legacy version numbers and can\nbe upgraded to use feature flags.  \
         After being upgraded, these pools\nwill no longer be accessible by software that does not support \
         feature\nflags.\n\nNote that setting a pool's 'compatibility' feature to 'legacy' \
         will\ninhibit upgrades.\n\nVER  POOL\n---  ------------\n",
    );
    for pool in old {
        out.push_str(&format!("{:>2}   {}\n", pool.report.version, pool.report.name));
    }
    out + "\n"
}

fn list(pools: &[PoolView]) -> String {
    let mut out = String::new();
    for pool in pools {
        let disabled = disabled(pool);
        if disabled.is_empty() {
            continue;
        }
        if out.is_empty() {
            out.push_str(SOME_DISABLED);
        }
        out.push_str(&format!("{}\n", pool.report.name));
        for name in disabled {
            out.push_str(&format!("      {name}\n"));
        }
    }
    if out.is_empty() {
        "Every feature flags pool has all supported and requested features enabled.\n".to_owned()
    } else {
        out + "\n"
    }
}

fn upgrade(session: &mut Session, pool: &PoolView) -> Result<usize, Failure> {
    let name = &pool.report.name;
    let files = text(pool, "compatibility").unwrap_or("off");
    if pool.report.version < 5000 && files == "legacy" {
        return Err(refused("Upgrade not performed because 'compatibility' property set to 'legacy'."));
    }
    let allowed = compatibility::load(files)?;
    let features = allowed.map(|names| names.into_iter().collect());
    let changed = session.operate(name, PoolOperation::Change(PoolChange::Upgrade { features }))?;
    if let Some(version) = changed.from_version {
        outln!("Successfully upgraded '{name}' from version {version} to feature flags.");
    }
    if !changed.features.is_empty() {
        outln!("Enabled the following features on '{name}':");
        for feature in &changed.features {
            outln!("  {feature}");
        }
    }
    if changed.from_version.is_some() || !changed.features.is_empty() {
        outln!("");
    }
    Ok(changed.features.len() + usize::from(changed.from_version.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;
    use platter_api::report::{Property, PropertySource};

    #[test]
    fn pools_without_a_feature_are_listed_with_it() {
        let mut pool = example();
        assert!(list(&[pool.clone()]).starts_with("Every feature flags pool has all"));
        let value = PropertyValue::Text("disabled".into());
        pool.properties.insert("feature@large_blocks".into(), Property { value, source: PropertySource::Local });
        assert!(list(&[pool]).ends_with("POOL  FEATURE\n---------------\nrefz1\n      large_blocks\n\n"));
    }

    #[test]
    fn every_written_feature_is_shown() {
        let text = features();
        for feature in CREATED {
            assert!(text.contains(&format!("\n{}", feature.info().name)), "{feature:?}");
        }
    }
}
