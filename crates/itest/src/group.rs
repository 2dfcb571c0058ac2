//! Memory that processes may have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::judge;

/// A group of processes that may have so much memory together, as long as this lives.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A new one, or `None` (and a reported skip) where there can be none.
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folders = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, file) in folders {
            let group = Self(Path::new(root).join(format!("{name}-{}-{number}", std::process::id())));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        judge::skip("memory groups", "no memory controller that we may use");
        None
    }

    /// A script that enters it and runs its arguments there.
    pub fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display())
    }

    /// How often something was killed in it for want of memory.
    pub fn killed(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let text: String = files.iter().filter_map(|file| fs::read_to_string(self.0.join(file)).ok()).collect();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.map_or(0, |count| count.trim().parse().expect("a number"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
