//! Names of vdevs as the options `-g`, `-L` and `-P` want them.

use platter_api::report::VdevReport;

use crate::getopt::Parsed;

/// How to name vdevs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// By guid.
    pub guid: bool,
    /// Follow symbolic links.
    pub follow: bool,
    /// By full path.
    pub path: bool,
}

impl Naming {
    /// From the options of a command.
    pub fn from(parsed: &Parsed) -> Self {
        Self { guid: parsed.has("g"), follow: parsed.has("L"), path: parsed.has("P") }
    }

    /// The name of a vdev.
    pub fn name(&self, vdev: &VdevReport) -> String {
        if vdev.kind == "root" {
            return vdev.name.clone();
        }
        if self.guid {
            return vdev.guid.to_string();
        }
        match &vdev.path {
            // A device that is not there has its guid for a name; its path is in the note.
            Some(path) if vdev.children.is_empty() && !vdev.name.bytes().all(|byte| byte.is_ascii_digit()) => {
                let real = self.follow.then(|| std::fs::canonicalize(path).ok()).flatten();
                match real {
                    Some(real) if self.path || vdev.kind != "disk" => real.display().to_string(),
                    Some(real) => {
                        real.file_name().map_or_else(|| vdev.name.clone(), |name| name.to_string_lossy().into_owned())
                    }
                    None if self.path => path.clone(),
                    None => vdev.name.clone(),
                }
            }
            _ => vdev.name.clone(),
        }
    }

    /// Longest name, indentation included, of a tree.
    pub fn width(&self, vdev: &VdevReport, depth: usize) -> usize {
        let own = self.name(vdev).chars().count() + depth;
        vdev.children.iter().map(|child| self.width(child, depth + 2)).max().unwrap_or(0).max(own)
    }
}
