//! zfs-fuse 0.7, a complete ZFS of pool version 23 that nobody here wrote, as judge of legacy pools.
//!
//! What holds at all times:
//! - it listens on one fixed socket, so one instance runs on a machine at a time: whoever holds the lock file has it,
//!   and others wait;
//! - its pools have names that no other test uses: exporting one, it unmounts whatever has that source, which may be a
//!   mount of a test that runs at the same time;
//! - dropping it ends its process (by its id) and its mounts, then lets the lock go.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Run, judge};

/// Longest time for one of its commands.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest time to wait for its turn, and for it to answer.
const START_LIMIT: Duration = Duration::from_secs(400);
/// Held by whoever runs zfs-fuse.
const LOCK: &str = "/var/lock/platter-zfs-fuse";

/// A running zfs-fuse.
pub struct ZfsFuse {
    tools: PathBuf,
    server: Child,
    mounts_below: PathBuf,
    _lock: File,
}

impl ZfsFuse {
    /// Starts it, or reports that it is missing. What it mounts lies below `mounts_below`.
    ///
    /// # Panics
    /// When another one runs for minutes, or it does not answer.
    pub fn start(mounts_below: &Path) -> Option<ZfsFuse> {
        let judges = std::env::var_os("PLATTER_JUDGES").map_or_else(|| "/opt/platter-judges".into(), PathBuf::from);
        let tools = judges.join("zfs-fuse/sbin");
        if !tools.join("zfs-fuse").is_file() {
            judge::skip("zfs-fuse", "the program is not unpacked");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            judge::skip("zfs-fuse", "it needs root");
            return None;
        }
        for folder in ["/var/run/zfs", "/var/lock/zfs", "/etc/zfs"] {
            std::fs::create_dir_all(folder).expect("zfs-fuse's folders can be made");
        }
        let lock = File::create(LOCK).expect("the lock file can be made");
        lock.lock().expect("the lock can be waited for");
        let start = Instant::now();
        // One that was not started by a test does not know the lock.
        while answers(&tools) {
            assert!(start.elapsed() < START_LIMIT, "another zfs-fuse keeps running");
            std::thread::sleep(Duration::from_millis(500));
        }
        let mut server = Command::new(tools.join("zfs-fuse"))
            .arg("-n")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("zfs-fuse starts");
        while !answers(&tools) {
            if let Ok(Some(status)) = server.try_wait() {
                panic!("zfs-fuse ended: {status}");
            }
            assert!(start.elapsed() < START_LIMIT, "zfs-fuse does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        let this = ZfsFuse { tools, server, mounts_below: mounts_below.to_owned(), _lock: lock };
        this.forget_pools();
        Some(this)
    }

    /// Runs its `zpool WORDS...`.
    pub fn zpool(&self, words: &str) -> Run {
        self.run("zpool", words)
    }

    /// Runs its `zfs WORDS...`.
    pub fn zfs(&self, words: &str) -> Run {
        self.run("zfs", words)
    }

    /// Exports `pool`. A mount is busy for a moment after its last reader is gone.
    #[track_caller]
    pub fn export(&self, pool: &str) {
        for _ in 0..50 {
            if self.zpool(&format!("export {pool}")).code == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        self.zpool(&format!("export {pool}")).ok();
    }

    /// Kills it with its pools open, as a power failure would.
    pub fn kill(mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    /// Lets go of every pool: it remembers the open ones in a file, and an ended test may have left some there.
    fn forget_pools(&self) {
        for pool in self.zpool("list -H -o name").stdout.lines() {
            self.zpool(&format!("export -f {pool}"));
        }
    }

    fn run(&self, tool: &str, words: &str) -> Run {
        Run::of(Command::new(self.tools.join(tool)).args(words.split_whitespace()), LIMIT)
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        self.forget_pools();
        let _ = self.server.kill();
        let _ = self.server.wait();
        for mount in crate::lab::mounts_below(&self.mounts_below) {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
    }
}

fn answers(tools: &Path) -> bool {
    Run::of(Command::new(tools.join("zpool")).arg("list"), LIMIT).code == 0
}
