//! `pools.json`: the pools that the next daemon opens again (the role of OpenZFS's `zpool.cache`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::home::replace_file;

/// What is needed to open a pool as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedPool {
    /// Guid, decimal (JSON numbers lose digits in some readers).
    pub guid: String,
    /// Last known paths of its leaves.
    pub devices: Vec<PathBuf>,
    /// Alternate root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub altroot: Option<PathBuf>,
    /// Whether it was imported read-only.
    #[serde(default)]
    pub read_only: bool,
    /// Whether its file systems were to be mounted (`import -N` says no).
    #[serde(default = "yes")]
    pub mount: bool,
    /// A transaction group that it has reached.
    #[serde(default)]
    pub txg: u64,
}

fn yes() -> bool {
    true
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    version: u32,
    pools: BTreeMap<String, RememberedPool>,
}

/// Reads the list; a missing file is an empty list.
///
/// # Errors
/// When the file is there but cannot be read or understood.
pub fn read(path: &Path) -> Result<BTreeMap<String, RememberedPool>, String> {
    let text = match crate::home::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("cannot read '{}': {error}", path.display())),
    };
    let content: Content = serde_json::from_slice(&text)
        .map_err(|error| format!("'{}' is damaged ({error}); 'zpool import' finds pools without it", path.display()))?;
    Ok(content.pools)
}

/// Writes the list.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, pools: &BTreeMap<String, RememberedPool>) -> Result<(), String> {
    let content = Content { version: 1, pools: pools.clone() };
    let text = serde_json::to_vec_pretty(&content).map_err(|error| error.to_string())?;
    replace_file(path, &text).map_err(|error| format!("cannot write '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pools.json");
        assert!(read(&path).unwrap().is_empty());
        let mut pools = BTreeMap::new();
        pools.insert(
            "tank".to_owned(),
            RememberedPool {
                guid: u64::MAX.to_string(),
                devices: vec!["/a/d0".into(), "/a/d1".into()],
                altroot: Some("/mnt".into()),
                read_only: true,
                mount: false,
                txg: 7,
            },
        );
        write(&path, &pools).unwrap();
        assert_eq!(read(&path).unwrap(), pools);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pools.json");
        std::fs::write(&path, "{\"pools\": [").unwrap();
        assert!(read(&path).unwrap_err().contains("zpool import"));
    }
}
