//! The order of the crates: imports point only downwards.

use std::collections::BTreeMap;

use crate::{Complaint, Source};

/// The layers from the bottom up; crates of one layer do not know each other. The tests of a crate may use any other.
const LAYERS: [&[&str]; 18] = [
    &["buffer", "hooks", "nvlist", "parity"],
    &["ondisk"],
    &["api", "checksum", "compress"],
    &["device", "faults", "schedule", "stream"],
    &["model", "transport"],
    &["vdev"],
    &["zio"],
    &["dmu"],
    &["zil"],
    &["dsl"],
    &["spa"],
    &["zpl", "zvol"],
    &["vfs"],
    &["sim"],
    &["fuse"],
    &["archive", "daemon"],
    &["cli"],
    &["bench", "itest", "tidy"],
];

/// What a crate's manifest says about its place in the house.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The folder under `crates/`.
    pub folder: String,
    /// The folders of our own crates it uses, each with the line that says so; those its tests use are left out.
    pub uses: BTreeMap<String, usize>,
    /// Whether it takes its lints from the workspace.
    pub shared_lints: bool,
}

impl Manifest {
    /// Reads a `crates/*/Cargo.toml`; `None` for any other file.
    pub fn read(source: &Source) -> Option<Self> {
        let folder = source.crate_folder()?.to_owned();
        let mut manifest = Self { folder, uses: BTreeMap::new(), shared_lints: false };
        let mut section = String::new();
        for (index, line) in source.text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            } else if section == "lints" && line.replace(' ', "") == "workspace=true" {
                manifest.shared_lints = true;
            } else if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") {
                let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
                if let Some(other) = name.strip_prefix("platter-") {
                    manifest.uses.insert(other.to_owned(), index + 1);
                }
            }
        }
        Some(manifest)
    }
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

/// A crate uses only crates of lower layers, has a place in the order, and takes its lints from the workspace.
pub fn dependencies_point_downwards(source: &Source) -> Vec<Complaint> {
    let Some(manifest) = Manifest::read(source) else { return Vec::new() };
    let complain = |line: usize, what: String| Complaint { file: source.path.clone(), line, what };
    let Some(own) = layer(&manifest.folder) else {
        return vec![complain(0, "give the crate its layer in crates/tidy/src/layers.rs".into())];
    };
    let mut complaints = Vec::new();
    for (other, &line) in &manifest.uses {
        if layer(other).is_none_or(|theirs| theirs >= own) {
            complaints
                .push(complain(line, format!("`{}` may not use `{other}`, which is not below it", manifest.folder)));
        }
    }
    if !manifest.shared_lints {
        complaints.push(complain(0, "take the lints of the workspace: `[lints] workspace = true`".into()));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(folder: &str, text: &str) -> Vec<Complaint> {
        let text = format!("[lints]\nworkspace = true\n{text}");
        dependencies_point_downwards(&Source { path: format!("crates/{folder}/Cargo.toml"), text })
    }

    #[test]
    fn an_import_that_points_up_or_sideways_is_found() {
        assert_eq!(manifest("vdev", "[dependencies]\nplatter-device.workspace = true\n"), []);
        assert_eq!(manifest("vdev", "[dependencies]\nplatter-spa = { path = \"../spa\" }\n")[0].line, 4);
        assert_eq!(manifest("parity", "[dependencies]\nplatter-buffer.workspace = true\n").len(), 1);
        assert_eq!(manifest("vdev", "[target.'cfg(unix)'.dependencies]\nplatter-dmu.workspace = true\n").len(), 1);
    }

    #[test]
    fn tests_may_use_any_crate() {
        assert_eq!(manifest("vdev", "[dev-dependencies]\nplatter-spa.workspace = true\n"), []);
    }

    #[test]
    fn a_crate_without_a_layer_or_with_its_own_lints_is_found() {
        assert_eq!(manifest("attic", "").len(), 1);
        let source = Source { path: "crates/spa/Cargo.toml".into(), text: "[lints.rust]\n".into() };
        assert_eq!(dependencies_point_downwards(&source).len(), 1);
    }
}
