//! How a file system is shown to the kernel.

use std::sync::Arc;

use platter_vfs::AtimeMode;

use crate::snapshots::Snapshots;

/// The type that `mount` and `/proc/mounts` show is `fuse.` and this.
pub(crate) const SUBTYPE: &str = "zfs";
pub(crate) const HELPER: &str = "fusermount3";

/// What the kernel shows of a mount, and honours. `Default` suits ZFS's default properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFlags {
    /// Whether the kernel refuses changes.
    pub read_only: bool,
    /// Property `devices`: whether device nodes work.
    pub devices: bool,
    /// Property `setuid`: whether set-uid bits work.
    pub setuid: bool,
    /// Property `exec`: whether programs may be run.
    pub exec: bool,
    /// Properties `atime` and `relatime`. Shown only: in a FUSE file system the kernel notes no access by itself.
    pub atime: AtimeMode,
}

impl Default for KernelFlags {
    fn default() -> Self {
        Self { read_only: false, devices: true, setuid: true, exec: true, atime: AtimeMode::default() }
    }
}

/// Options of one mount. `Default` suits a file system with ZFS's default properties.
#[derive(Clone)]
pub struct MountOptions {
    /// What `mount` and `df` show as the device: the data set's name.
    pub source: String,
    /// What the kernel shows and honours.
    pub flags: KernelFlags,
    /// Whether users other than the one who mounts may enter.
    pub allow_other: bool,
    /// Threads that serve requests; 0 takes a number that suits the machine.
    pub threads: usize,
    /// Whether the kernel may remember names, and that a name does not exist. Not for file systems whose names fold
    /// case or have a normal form.
    pub cache_absent: bool,
    /// Where the snapshots come from that it shows.
    pub snapshots: Option<Arc<dyn Snapshots>>,
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions").field("source", &self.source).field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        let (source, flags) = ("zfs".into(), KernelFlags::default());
        Self { source, flags, allow_other: true, threads: 0, cache_absent: true, snapshots: None }
    }
}
