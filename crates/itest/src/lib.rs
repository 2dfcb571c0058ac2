//! Harness of the integration tests: a real `platter` binary, real files as disks, real FUSE mounts, and judges that
//! nobody here wrote.
//!
//! What holds at all times:
//! - every [`Lab`] has its own `PLATTER_HOME`, devices and mount points in one temporary folder, so tests run side by
//!   side;
//! - dropping a `Lab` stops its daemon and removes its mounts, whatever state the test left behind, and a watchdog does
//!   the same to a test that hangs, so that a deadlock is a failure and not a stuck build;
//! - a judge that is not installed is reported on the terminal as `SKIPPED`, or is a failure when
//!   `PLATTER_REQUIRE_JUDGES=1` (as in CI). Silence is never success.
#![forbid(unsafe_code)]

pub mod binary;
pub mod damage;
pub mod data;
pub mod faulty;
pub mod group;
pub mod judge;
pub mod lab;
pub mod load;
pub mod loops;
pub mod night;
pub mod others;
pub mod overlay;
pub mod reference;
pub mod rsync;
pub mod run;
pub mod stream;
pub mod tree;
pub mod zdb;
pub mod zfs_fuse;
pub mod zhack;

pub use faulty::{Faults, FaultyDisks};
pub use group::Group;
pub use lab::Lab;
pub use loops::Loop;
pub use night::{NightLoad, Webhook};
pub use overlay::Overlay;
pub use run::Run;
pub use tree::Tree;
pub use zfs_fuse::ZfsFuse;
