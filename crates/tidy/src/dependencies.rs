//! What the workspace depends on, as cargo tells: licences that let Platter be built into anything, one source, and
//! nothing that needs a system package.

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::Complaint;

/// Permissive licences: of each dependency one of those that it offers must be among them.
const LICENCES: [&str; 12] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that need a system package, and what is there instead.
const NEVER: [(&str, &str); 3] = [
    ("openssl-sys", "ring has what is needed"),
    ("libz-sys", "zlib-rs and libdeflate build on their own"),
    ("fuse-sys", "fuser builds without libfuse"),
];

/// Where crates come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Where Platter runs; crates for other systems are not looked at, as nobody here has them.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Asks cargo, and looks at every package of the lock file.
pub fn dependencies_are_free_and_self_contained() -> Vec<Complaint> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", PLATFORM])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(asked.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&asked.stderr));
    let told: Value = serde_json::from_slice(&asked.stdout).expect("cargo tells JSON");
    let packages = told["packages"].as_array().expect("it lists packages");
    assert!(packages.len() > 50, "all dependencies are listed");
    packages.iter().flat_map(look_at).collect()
}

fn look_at(package: &Value) -> Vec<Complaint> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let mut complaints = Vec::new();
    let mut complain = |what: String| {
        complaints.push(Complaint { file: format!("{} {}", text("name"), text("version")), line: 0, what });
    };
    // Those of the workspace have no source.
    if !package["source"].is_null() && text("source") != REGISTRY {
        complain(format!("comes from {}, and not from crates.io", text("source")));
    }
    if let Some((_, instead)) = NEVER.iter().find(|(name, _)| *name == text("name")) {
        complain(format!("needs a system package; {instead}"));
    }
    if let Err(why) = may_be_used(text("license")) {
        complain(why);
    }
    complaints
}

/// Whether a licence expression can be met with [`LICENCES`] alone.
fn may_be_used(expression: &str) -> Result<(), String> {
    let mode = ParseMode { allow_slash_as_or_operator: true, ..ParseMode::STRICT };
    let parsed =
        Expression::parse_mode(expression, mode).map_err(|error| format!("licence '{expression}': {error}"))?;
    let allowed = |required: &spdx::LicenseReq| LICENCES.contains(&required.to_string().as_str());
    match parsed.evaluate(allowed) {
        true => Ok(()),
        false => Err(format!("its licence, '{expression}', is not among the permissive ones")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_licences_offered_is_enough_and_all_that_are_demanded_must_be_met() {
        for good in ["MIT", "MIT/Apache-2.0", "MIT OR LGPL-2.1-or-later", "(MIT OR GPL-3.0-only) AND Unicode-3.0"] {
            assert_eq!(may_be_used(good), Ok(()), "{good}");
        }
        for bad in ["GPL-2.0-only", "MIT AND LGPL-2.1-or-later", "AGPL-3.0-or-later", "", "who knows"] {
            assert!(may_be_used(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_package_from_elsewhere_is_complained_about() {
        let package = serde_json::json!({
            "name": "openssl-sys", "version": "1", "license": "GPL-3.0-only", "source": "git+https://example.org"
        });
        assert_eq!(look_at(&package).len(), 3);
        let own = serde_json::json!({ "name": "a", "version": "1", "license": "MIT", "source": null });
        assert!(look_at(&own).is_empty());
    }
}
