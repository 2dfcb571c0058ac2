//! What `zpool import` without a name says of a pool that was found (`show_import`, `cmd/zpool/zpool_main.c`).

use platter_api::report::{ImportableReport, VdevReport};

use crate::config::{PoolState, VdevConfig};
use crate::discover::{Candidate, is_unknown};
use crate::environment::{CHOOSE_HOSTID, Environment};
use crate::look_inside::Metadata;
use crate::vdev_names::vdev_name;

/// What a listing says of a pool that was found.
struct Verdict {
    state: &'static str,
    status: Option<String>,
    action: String,
    /// What stands beside its name.
    note: Option<&'static str>,
}

impl Verdict {
    fn new(state: &'static str, status: impl Into<String>, action: impl Into<String>) -> Self {
        Self { state, status: Some(status.into()), action: action.into(), note: None }
    }

    /// It can be imported, after a look at who had it last when it is `foreign`.
    fn importable(foreign: bool) -> Self {
        let plain = "The pool can be imported using its name or numeric identifier";
        if foreign {
            let status = "The pool was last accessed by another system.";
            return Self::new("ONLINE", status, format!("{plain} and\n\tthe '-f' flag."));
        }
        Self { state: "ONLINE", status: None, action: format!("{plain}."), note: None }
    }
}

impl Candidate {
    /// This version cannot read it at all.
    fn unreadable(&self) -> Option<Verdict> {
        let (unsupported, unknown) = (self.unsupported(), self.unknown_vdevs());
        if !unsupported.is_empty() {
            return Some(Verdict {
                note: Some("unsupported feature(s)"),
                ..Verdict::new(
                    "UNAVAIL",
                    format!(
                        "The pool uses the following feature(s) not supported on this system:\n\t{}",
                        unsupported.join("\n\t")
                    ),
                    "The pool cannot be imported. Access the pool on a system that supports\n\tthe required \
                     feature(s), or recreate the pool from backup.",
                )
            });
        }
        if unknown.is_empty() {
            return None;
        }
        let kinds: Vec<&str> = unknown.iter().map(|kind| &**kind).collect();
        Some(Verdict {
            note: Some("unsupported vdev type"),
            ..Verdict::new(
                "UNAVAIL",
                format!("The pool has vdevs of a type that this version does not have: {}.", kinds.join(", ")),
                "The pool cannot be imported. Access the pool on a system that supports\n\tthem, or recreate the pool \
                 from backup.",
            )
        })
    }

    /// Its devices or its metadata are not all there, or it cannot be written.
    fn unusable(&self, metadata: &Metadata) -> Option<Verdict> {
        let missing = "One or more devices are missing from the system.";
        if !self.is_complete_enough() || *metadata == Metadata::Missing {
            let action = "The pool cannot be imported. Attach the missing\n\tdevices and try again.";
            return Some(Verdict::new("UNAVAIL", missing, action));
        }
        match metadata {
            Metadata::Damaged(reason) => Some(Verdict {
                note: Some("corrupted data"),
                ..Verdict::new(
                    "FAULTED",
                    format!("The pool metadata is corrupted.\n\t{reason}"),
                    "The pool cannot be imported due to damaged devices or data.",
                )
            }),
            Metadata::ReadOnly(obstacles) => Some(Verdict {
                note: Some("unsupported feature(s)"),
                ..Verdict::new(
                    "UNAVAIL",
                    format!(
                        "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in \
                         read-write mode because it uses the following\n\tfeature(s) not supported on this \
                         system:\n\t{}",
                        obstacles.join("\n\t")
                    ),
                    "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", \
                     access the pool on a system that supports the\n\trequired feature(s), or recreate the pool from \
                     backup.",
                )
            }),
            Metadata::LogsLost(logs) => Some(Verdict::new(
                "DEGRADED",
                missing,
                format!(
                    "The pool can be imported using the '-m' flag, without what is in\n\t{}: what was made stable \
                     there only, in the last\n\tseconds before the pool was left, would be lost. Otherwise attach the \
                     missing\n\tdevices and try again.",
                    logs.join(", ")
                ),
            )),
            _ => self.impaired(),
        }
    }

    /// Some devices are not in use, and can be done without.
    fn impaired(&self) -> Option<Verdict> {
        let tree = &self.config.vdev_tree;
        let has = |state: &str| tree.leaves().iter().any(|leaf| self.leaf_state(leaf) == state);
        let status = if self.absent(tree) > 0 {
            "One or more devices are missing from the system."
        } else if has("FAULTED") {
            "One or more devices are faulted."
        } else if has("OFFLINE") {
            "One or more devices are offlined."
        } else {
            return None;
        };
        Some(Verdict::new(
            "DEGRADED",
            status,
            "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be \
             compromised if imported.",
        ))
    }

    /// Somebody has it open, as far as is seen; of another host there is more to tell.
    fn held(&self, metadata: &Metadata) -> Option<Verdict> {
        let writer = self.writer.as_ref().filter(|_| *metadata != Metadata::InUse)?;
        Some(Verdict::new(
            "UNAVAIL",
            format!("The pool is currently imported by {writer}."),
            "The pool must be exported there before it can be safely imported.",
        ))
    }

    /// Another host has it, or may have it without our seeing that.
    fn in_use(&self, environment: &Environment, metadata: &Metadata) -> Option<Verdict> {
        if *metadata == Metadata::InUse {
            let host = self.config.hostname.as_deref().unwrap_or("<unknown>");
            return Some(Verdict::new(
                "UNAVAIL",
                "The pool is currently imported by another system.",
                format!(
                    "The pool must be exported from {host} (hostid={:x})\n\tbefore it can be safely imported.",
                    self.config.hostid.unwrap_or(0)
                ),
            ));
        }
        self.needs_hostid(environment).then(|| {
            Verdict::new(
                "UNAVAIL",
                "The pool has the multihost property on.  It cannot\n\tbe safely imported when the system hostid is \
                 not set.",
                CHOOSE_HOSTID,
            )
        })
    }

    /// What `zpool import` lists.
    pub fn report(&self, environment: &Environment, metadata: &Metadata) -> ImportableReport {
        let config = &self.config;
        let destroyed = config.state == PoolState::Destroyed;
        let foreign = self.is_foreign(environment);
        let verdict = self
            .unreadable()
            .or_else(|| self.held(metadata))
            .or_else(|| self.unusable(metadata))
            .or_else(|| self.in_use(environment, metadata))
            .unwrap_or_else(|| Verdict::importable(foreign));
        let Verdict { state, status, action, note } = verdict;
        let mut vdevs = self.vdev_report(&config.vdev_tree, &config.name, metadata);
        if let Some(note) = note {
            (vdevs.state, vdevs.note) = (state.into(), Some(note.into()));
        }
        ImportableReport {
            name: config.name.clone(),
            guid: config.guid.0,
            state: state.into(),
            status,
            action: Some(if destroyed {
                format!("{action}\n\tThe pool was destroyed: '-D' imports it.")
            } else {
                action
            }),
            last_host: foreign.then(|| config.hostname.clone()).flatten(),
            vdevs,
            destroyed,
        }
    }

    /// The state of a device: whether it is offline or faulted only the pool's own metadata knows.
    fn leaf_state(&self, leaf: &VdevConfig) -> &'static str {
        match () {
            () if self.is_looked_into && leaf.faulted => "FAULTED",
            () if self.is_looked_into && leaf.offline => "OFFLINE",
            () if !self.paths.contains_key(&leaf.guid.0) => "UNAVAIL",
            () => "ONLINE",
        }
    }

    fn vdev_report(&self, vdev: &VdevConfig, pool: &str, metadata: &Metadata) -> VdevReport {
        let unknown = is_unknown(vdev);
        let absent = vdev.is_leaf() && self.leaf_state(vdev) == "UNAVAIL";
        let impaired = || vdev.leaves().iter().any(|leaf| self.leaf_state(leaf) != "ONLINE");
        let state = match &*vdev.kind {
            _ if unknown => "UNAVAIL",
            _ if vdev.is_leaf() => self.leaf_state(vdev),
            "root" if !self.is_complete_enough() || *metadata == Metadata::Missing => "UNAVAIL",
            "mirror" | "raidz" | "replacing" | "spare" if !self.tolerates(vdev) => "UNAVAIL",
            "root" | "mirror" | "raidz" | "replacing" | "spare" if impaired() => "DEGRADED",
            _ => "ONLINE",
        };
        VdevReport {
            name: vdev_name(vdev, pool, self.paths.get(&vdev.guid.0)),
            kind: vdev.kind.clone(),
            is_log: vdev.is_log,
            guid: vdev.guid.0,
            path: vdev.path.clone(),
            state: state.into(),
            note: match unknown {
                true => Some("unsupported vdev type".into()),
                false => absent.then(|| self.absence(vdev)),
            },
            ashift: vdev.ashift,
            children: vdev.children.iter().map(|child| self.vdev_report(child, pool, metadata)).collect(),
            ..VdevReport::default()
        }
    }
}
