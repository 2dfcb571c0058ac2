//! Data sets: directories, their properties, space and limits, and all that is done with them in the pool's own object
//! set (the DSL: `module/zfs/dsl_pool.c`, `dsl_dir.c`, `dsl_dataset.c`, `dsl_prop.c`, `dsl_destroy.c`).
//!
//! # The problem
//! A pool has many object sets that share its space. Which there are, what they are called, what they may take and what
//! holds in them is itself kept in an object set, the MOS, which changes in the same groups as they do; and everything
//! in it must add up to the byte, after any crash.
//!
//! # The idea
//! ```text
//! Dir   name, properties, space of all below, quota, reservation      tank/home
//!  └ Dataset   the head: its object set, its log, what it references   (objset 54)
//!      └ Snapshot ─► Snapshot ─► …   what it was; `prev_snap_obj` leads back to the origin, which may be another's
//! ```
//! [`DslPool`] is what operations need of their pool, and all that they need: blocks, groups, the MOS, the tree of data
//! sets in memory. An operation that changes the MOS is a *task*: a check, which has no transaction and so cannot
//! change anything, and a change, which the sync loop makes once the group's data sets are written. Reading asks the
//! tree, which mirrors the MOS as of the last task.
//!
//! Births and deaths of blocks are only counted where they happen (`accounting`); `sync` brings the sums into totals,
//! directories and deadlists once a group. What is destroyed is put into a queue and freed over as many groups as it
//! takes (`freeing`).
//!
//! # Invariants
//! - The MOS changes only in the sync loop; a task that is refused leaves no trace.
//! - What a directory uses is what its data sets use plus what its children do, with reservations counted as used.
//! - A block is freed once: by its death in the head, by a deadlist, or by freeing in the background.
//!
//! # Where to start
//! `pool` and `tasks`, then `datasets`, which has every operation by its command's name; `dir` and `dataset` are the
//! two things in memory; `space` says how much may still be written.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod at_creation;
pub mod bookmark_phys;
mod bookmark_space;
pub mod bookmarks;
pub mod change_properties;
pub mod claimed_log;
pub mod clone;
mod clone_keys;
pub mod contents;
pub mod counting;
pub mod counts;
pub mod dataset;
pub mod dataset_report;
pub mod datasets;
pub mod deadlist;
pub mod deadlist_merge;
pub mod delegation;
pub mod deleted_clones;
pub mod destroy;
pub mod destroy_snapshot;
pub mod destroy_snapshots;
pub mod dir;
pub mod effects;
pub mod empty_bpobj;
pub mod encryption;
pub mod environment;
pub mod error;
pub mod features;
pub mod filesystem_space;
mod followed;
pub mod freeing;
pub mod heal_stream;
pub mod history;
pub mod holds;
pub mod in_use;
pub mod inheritance;
pub mod intent;
pub mod limits;
pub mod livelist;
pub mod lives;
pub mod local_replica;
pub mod mos;
pub mod mos_access;
pub mod mos_properties;
pub mod named_snapshot;
pub mod new_dataset;
pub mod noted;
pub mod origin;
pub mod permissions;
pub mod pool;
pub mod promote;
pub mod receive;
pub mod receive_begin;
pub mod receive_existing;
pub mod receive_records;
pub mod received_limits;
pub mod received_properties;
pub mod redact;
pub mod redacted;
pub mod redaction_list;
pub mod rename;
pub mod rename_snapshot;
pub mod resume_state;
pub mod rollback;
pub mod send;
pub mod send_package;
pub mod send_redaction;
pub mod send_since;
pub mod send_source;
pub mod send_stream;
pub mod snapshot;
pub mod snapshot_properties;
pub mod snapshot_report;
pub mod snapshots_changed;
pub mod space;
mod space_since;
pub mod stored_property;
pub mod stream_ends;
pub mod stream_records;
pub mod sync;
pub mod take_snapshot;
pub mod tasks;
pub mod temporary_holds;
pub mod temporary_map;
pub mod tree;
pub mod unreadable;
pub mod used_space;
pub mod version;
pub mod version_limits;
pub mod volume;
pub mod volume_server;
pub mod watched;
pub mod written_since;
pub mod zapify;

pub use environment::{FilesystemMaker, FilesystemOptions, Randomness};
pub use error::{PoolError, Result};
pub use filesystem_space::FilesystemSpace;
pub use pool::DslPool;
