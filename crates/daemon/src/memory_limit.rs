//! How much memory this process may use, and how much of it nobody uses at the moment: the machine's, or that of the
//! control group above the process with the least.

use std::path::{Path, PathBuf};

/// Bytes of memory this process may use: the machine's, or its control group's when that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
}

impl MemoryLimit {
    /// Asks the system. 1 GiB when nothing can be learned.
    pub fn of_this_process() -> Self {
        let machine = meminfo("MemTotal:");
        let group = groups_of_this_process().iter().filter_map(Group::limit).min();
        let bytes = match (machine, group) {
            (Some(machine), Some(group)) => machine.min(group),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 1 << 30,
        };
        Self { bytes }
    }

    /// What the daemon cannot do without.
    pub const LEAST: Self = Self { bytes: 128 << 20 };

    /// Block cache of all pools together: a quarter.
    pub fn cache_bytes(self) -> u64 {
        self.bytes / 4
    }

    /// Free ranges of all pools' metaslabs: a sixteenth.
    pub fn metaslab_bytes(self) -> u64 {
        self.bytes / 16
    }

    /// Dirty data of all pools together before writers wait: a tenth, at most 1 GiB (`zfs_dirty_data_max_percent`). On
    /// its way to disk it may take several times as much.
    pub fn dirty_bytes_max(self) -> u64 {
        (self.bytes / 10).clamp(8 << 20, 1 << 30)
    }

    /// Data of requests that wait: a thirty-second, at most 128 MiB.
    pub fn waiting_bytes_max(self) -> u64 {
        (self.bytes / 32).min(128 << 20)
    }

    /// What places for requests over io_uring may come to hold, if all of them are in use at once: an eighth.
    pub fn ring_bytes_max(self) -> u64 {
        self.bytes / 8
    }
}

fn meminfo(field: &str) -> Option<u64> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?, field)
}

fn parse_meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// What a control group's memory controller calls its files.
struct Names {
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: pages of files, which the kernel gives up when it needs them.
    of_files: [&'static str; 2],
}

/// cgroup v2.
const UNIFIED: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    of_files: ["inactive_file", "active_file"],
};
/// cgroup v1.
const LEGACY: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    of_files: ["total_inactive_file", "total_active_file"],
};

/// A control group that may limit memory.
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

impl Group {
    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(name)).ok()
    }

    fn limit(&self) -> Option<u64> {
        parse_limit(&self.read(self.names.limit)?)
    }

    /// What its processes may take beyond what they have.
    fn available(&self) -> Option<u64> {
        let (limit, stat) = (self.limit()?, self.read("memory.stat")?);
        let usage: u64 = self.read(self.names.usage)?.trim().parse().ok()?;
        let of_files: u64 = self.names.of_files.iter().filter_map(|name| parse_stat(&stat, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(of_files)))
    }
}

/// The control groups above this process, up to the root.
fn groups_of_this_process() -> Vec<Group> {
    std::fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default()
}

fn groups(proc_self_cgroup: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in proc_self_cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let names = match controllers.is_empty() {
            true => &UNIFIED,
            false if controllers.split(',').any(|controller| controller == "memory") => &LEGACY,
            false => continue,
        };
        let below = Path::new(path.trim_start_matches('/'));
        found.extend(below.ancestors().map(|below| Group { folder: Path::new(names.root).join(below), names }));
    }
    found
}

fn parse_limit(text: &str) -> Option<u64> {
    // "max" and cgroup v1's huge number both mean "none".
    text.trim().parse().ok().filter(|limit| *limit < 1 << 60)
}

fn parse_stat(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Bytes that could be taken now without anything being swapped out or killed: pages of files count, as the kernel
/// gives them up. `None` when that cannot be learned.
pub fn available() -> Option<u64> {
    let groups = groups_of_this_process();
    groups.iter().filter_map(Group::available).chain(meminfo("MemAvailable:")).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kibibytes() {
        assert_eq!(parse_meminfo("MemTotal:        8039988 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(8_039_988 * 1024));
        assert_eq!(parse_meminfo("MemFree: 1 kB\n", "MemTotal:"), None);
    }

    #[test]
    fn no_limit_is_not_a_limit() {
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
        assert_eq!(parse_limit("1073741824\n"), Some(1 << 30));
    }

    #[test]
    fn dirty_data_stays_within_its_bounds() {
        assert_eq!(MemoryLimit { bytes: 64 << 30 }.dirty_bytes_max(), 1 << 30);
        assert_eq!(MemoryLimit { bytes: 4 << 30 }.dirty_bytes_max(), (4 << 30) / 10);
        assert_eq!(MemoryLimit { bytes: 64 << 20 }.dirty_bytes_max(), 8 << 20);
    }

    #[test]
    fn all_groups_above_a_process_count() {
        let folders = |text: &str| groups(text).iter().map(|group| group.folder.clone()).collect::<Vec<_>>();
        let found = folders("0::/system.slice/platter.service\n");
        let expected =
            ["/sys/fs/cgroup/system.slice/platter.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(folders("4:cpu,memory:/\n2:cpuset:/x\n"), [PathBuf::from("/sys/fs/cgroup/memory/")]);
    }

    #[test]
    fn pages_of_files_are_to_be_had() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group { folder: folder.path().to_owned(), names: &UNIFIED };
        assert_eq!(group.available(), None);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 300\ninactive_file 200\nactive_file 50\nactive_file_x 7\n");
        assert_eq!(group.available(), Some(350));
        write("memory.max", "max\n");
        assert_eq!(group.available(), None);
    }
}
