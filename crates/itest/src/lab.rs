//! One isolated Platter: its own daemon, devices and mount points in one temporary folder.
//!
//! ```text
//! DIR/home/    PLATTER_HOME of this instance
//! DIR/dev/     d0 d1 ...: sparse files as disks (what zdb gets as -p)
//! DIR/mnt/     mount points
//! DIR/tmp/     scratch space
//! ```
//!
//! Dropping it leaves neither a process nor a mount behind, also after a panic in the test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::{Run, Tree, binary, data, judge, zdb};

/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;

/// Longest time a single command may take unless the test says otherwise.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);
/// Longest time a whole test may take unless the test says otherwise.
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// How long something may be busy before that counts.
const BUSY_AT_MOST: Duration = Duration::from_secs(3);

/// An isolated instance; see the module's documentation.
pub struct Lab {
    root: tempfile::TempDir,
    command_limit: Duration,
    watchdog: Option<Watchdog>,
}

/// Lets go of all our mounts but those below its first argument, then becomes what the others say.
pub(crate) const WITHOUT_OTHERS: &str = r#"kept=$1; shift
while read -r _ place kind _; do
    case $kind,$place in
        fuse.zfs,"$kept"/*) ;;
        fuse.zfs,*) umount -l "$(printf '%b' "$place")" 2>/dev/null || true ;;
    esac
done < /proc/self/mounts
exec "$@""#;

impl Lab {
    /// A fresh instance, or `None` (and a reported skip) where FUSE mounts are impossible.
    pub fn open() -> Option<Lab> {
        judge::need_fuse().then(|| Lab::with_limits(COMMAND_LIMIT, TEST_LIMIT))
    }

    /// As [`Lab::open`] for tests that move gigabytes: `limit` for each command and for the test.
    pub fn open_big(limit: Duration) -> Option<Lab> {
        judge::need_fuse().then(|| Lab::with_limits(limit, limit))
    }

    /// As [`Lab::open`] for tests that wait for much: `limit` for the test, each command as usual.
    pub fn open_long(limit: Duration) -> Option<Lab> {
        judge::need_fuse().then(|| Lab::with_limits(COMMAND_LIMIT, limit))
    }

    fn with_limits(command_limit: Duration, test_limit: Duration) -> Lab {
        let root = tempfile::Builder::new().prefix("platter-itest-").tempdir().expect("a temporary folder");
        for sub in ["home", "dev", "mnt", "tmp"] {
            fs::create_dir(root.path().join(sub)).expect("a folder in the temporary folder");
        }
        let watchdog = Watchdog::start(root.path().to_path_buf(), test_limit);
        Lab { root, command_limit, watchdog: Some(watchdog) }
    }

    /// The folder that holds everything of this instance.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// `PLATTER_HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The folder of the device files.
    pub fn dev(&self) -> PathBuf {
        self.root().join("dev")
    }

    /// A scratch folder outside of every pool.
    pub fn tmp(&self) -> PathBuf {
        self.root().join("tmp")
    }

    /// Path of device file number `index`.
    pub fn disk(&self, index: usize) -> PathBuf {
        self.dev().join(format!("d{index}"))
    }

    /// Creates sparse device files `d0` to `d(count-1)` of `size_mib` MiB and returns their paths.
    pub fn disks(&self, count: usize, size_mib: u64) -> Vec<String> {
        (0..count).map(|index| self.add_disk(index, size_mib)).collect()
    }

    /// Creates the sparse device file number `index` of `size_mib` MiB.
    pub fn add_disk(&self, index: usize, size_mib: u64) -> String {
        let path = self.disk(index);
        fs::File::create(&path).and_then(|file| file.set_len(size_mib * MIB)).expect("a sparse file");
        path.to_str().expect("temporary paths are UTF-8").to_owned()
    }

    /// Where `dataset` is mounted when its pool was created by [`Lab::create`].
    pub fn mnt(&self, dataset: &str) -> PathBuf {
        self.root().join("mnt").join(dataset)
    }

    /// Full names of a data set and all below it, snapshots among them, in the order of `zfs list`.
    #[track_caller]
    pub fn names(&self, top: &str) -> Vec<String> {
        let listed = self.zfs(&format!("list -H -o name -t all -r {top}")).ok();
        listed.stdout.lines().map(str::to_owned).collect()
    }

    /// A command with this instance's environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("PLATTER_HOME", self.home()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").current_dir(self.dev());
        command
    }

    /// As [`Lab::command`], in a mount name space of its own with this lab's mounts only: those of other labs would be
    /// kept by it, and be busy there. `options` are more of unshare(1)'s.
    pub fn apart(&self, options: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "private"]).args(options);
        command.args(["sh", "-c", WITHOUT_OTHERS, "sh"]).arg(self.root()).arg(program);
        command
    }

    /// Runs `platter ARGS...` in the folder of the devices.
    pub fn platter<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Run {
        Run::of(self.command(binary::platter()).args(args), self.command_limit)
    }

    /// Runs `platter zpool WORDS...`; `words` are split at blanks. What is busy gets a moment to become free.
    pub fn zpool(&self, words: &str) -> Run {
        self.patiently("zpool", words)
    }

    /// Runs `zpool WORDS`, which starts the daemon, as `"$@"` of a shell script.
    pub fn zpool_through(&self, script: &str, words: &str) -> Run {
        let program = binary::platter().display().to_string();
        let args = ["-c", script, "sh", &program, "zpool"].into_iter().chain(words.split_whitespace());
        self.run("sh", args)
    }

    /// Runs `platter zfs WORDS...`; `words` are split at blanks. What is busy gets a moment to become free.
    pub fn zfs(&self, words: &str) -> Run {
        self.patiently("zfs", words)
    }

    /// A program that another test starts at this moment has this process's files open until it is executed (3 of 1500
    /// unmounts next to three threads that start programs found a tmpfs busy).
    fn patiently(&self, tool: &str, words: &str) -> Run {
        let began = Instant::now();
        loop {
            let run = self.platter([tool].into_iter().chain(words.split_whitespace()));
            if run.code == 0 || !run.mentions("busy") || began.elapsed() > BUSY_AT_MOST {
                return run;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// umount(8) of what is not ours. A daemon that has just ended, and a program that another test starts, have files
    /// open for a moment.
    #[track_caller]
    pub fn umount(&self, place: &Path) {
        let began = Instant::now();
        loop {
            let run = self.run("umount", [place]);
            if run.code == 0 || !run.mentions("busy") || began.elapsed() > BUSY_AT_MOST * 5 {
                run.ok();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs what [`Lab::command`] or [`Lab::apart`] prepared.
    pub fn run_command(&self, command: &mut Command) -> Run {
        Run::of(command, self.command_limit)
    }

    /// Runs any other program with this instance's environment.
    pub fn run<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Run {
        Run::of(self.command(program).args(args), self.command_limit)
    }

    /// `zpool create -m MNT/POOL OPTIONS POOL VDEVS`, which must succeed and mount the pool's file system.
    #[track_caller]
    pub fn create(&self, options: &str, pool: &str, vdevs: &str) -> PathBuf {
        let mount = self.mnt(pool);
        self.zpool(&format!("create -m {} {options} {pool} {vdevs}", mount.display())).ok();
        self.wait_mounted(&mount);
        mount
    }

    /// `zfs create OPTIONS DATASET`, which must succeed and mount it below its parent.
    #[track_caller]
    pub fn create_fs(&self, options: &str, dataset: &str) -> PathBuf {
        self.zfs(&format!("create {options} {dataset}")).ok();
        let mount = self.mnt(dataset);
        self.wait_mounted(&mount);
        mount
    }

    /// `zpool export`, after which nothing of the pool may be mounted.
    #[track_caller]
    pub fn export(&self, pool: &str) {
        self.zpool(&format!("export {pool}")).ok();
        let left: Vec<_> = self.mounts().into_iter().filter(|path| path.starts_with(self.mnt(pool))).collect();
        assert!(left.is_empty(), "still mounted after export: {left:?}");
    }

    /// `zpool import -d DEV OPTIONS POOL`, which must succeed and mount the pool's file system where it was.
    #[track_caller]
    pub fn import(&self, options: &str, pool: &str) -> PathBuf {
        self.zpool(&format!("import -d {} {options} {pool}", self.dev().display())).ok();
        let mount = self.mnt(pool);
        self.wait_mounted(&mount);
        mount
    }

    /// `zpool scrub -w POOL`, then `zpool status -v POOL`.
    #[track_caller]
    pub fn scrub(&self, pool: &str) -> Run {
        self.zpool(&format!("scrub -w {pool}")).ok();
        self.zpool(&format!("status -v {pool}")).ok()
    }

    /// Mount points below this instance's folder, the last mounted first.
    pub fn mounts(&self) -> Vec<PathBuf> {
        mounts_below(self.root())
    }

    /// Waits until something is mounted at `path`.
    #[track_caller]
    pub fn wait_mounted(&self, path: &Path) {
        let start = Instant::now();
        while !self.mounts().iter().any(|mount| mount == path) {
            assert!(start.elapsed() < Duration::from_secs(15), "nothing mounted at {} after 15 s", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the pool's state word is `health`.
    #[track_caller]
    pub fn wait_health(&self, pool: &str, health: &str) {
        let start = Instant::now();
        while self.health(pool) != health {
            assert!(start.elapsed() < Duration::from_secs(30), "{}", self.zpool(&format!("status {pool}")));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Exports, lets zdb judge, imports, and compares what is mounted at `mount` with `tree`.
    #[track_caller]
    pub fn judge_and_return(&self, pool: &str, mount: &Path, tree: &Tree) {
        self.export(pool);
        zdb::assert_clean(&self.dev(), pool);
        self.import("", pool);
        self.wait_mounted(mount);
        tree.assert_same(&Tree::of(mount), "after export and import");
    }

    /// Process ids of this instance's daemon (found by its environment, so it needs nothing from the daemon).
    pub fn daemon_pids(&self) -> Vec<i32> {
        pids_with_home(&self.home())
    }

    /// Kills the daemon: what it handed to the kernel stays, all else is gone. Its dead mounts are removed (`unmount`),
    /// or left to the next daemon.
    pub fn kill_daemon(&self, unmount: bool) {
        for pid in self.daemon_pids() {
            let _ = self.run("kill", ["-KILL", &pid.to_string()]);
        }
        let start = Instant::now();
        while !self.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for mount in self.mounts().into_iter().filter(|_| unmount) {
            let _ = self.run("umount", ["-l", mount.to_str().expect("temporary paths are UTF-8")]);
        }
    }

    /// Brings `pool` back after [`Lab::kill_daemon`]: the next daemon opens it by itself, or it is imported.
    #[track_caller]
    pub fn revive(&self, pool: &str) {
        if self.zpool(&format!("list -H {pool}")).code != 0 {
            self.zpool(&format!("import -f -d {} {pool}", self.dev().display())).ok();
        }
        self.wait_mounted(&self.mnt(pool));
    }

    /// Prints what the daemon logged last, for a test that failed.
    fn show_end_of_log(&self) {
        const LINES: usize = 60;
        let log = fs::read(self.home().join("daemon.log")).unwrap_or_default();
        let log = data::printable(&log);
        let skipped = log.lines().count().saturating_sub(LINES);
        println!("--- end of the daemon's log");
        log.lines().skip(skipped).for_each(|line| println!("{line}"));
        println!("--- mounts: {:?}", self.mounts());
    }

    /// The state word of the pool (`zpool list -H -o health`): `ONLINE`, `DEGRADED`, ...
    #[track_caller]
    pub fn health(&self, pool: &str) -> String {
        self.zpool(&format!("list -H -o health {pool}")).ok().stdout.trim().to_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.stop();
        }
        if std::thread::panicking() {
            self.show_end_of_log();
        }
        // A test without a daemon must not start one just to stop it.
        if !self.daemon_pids().is_empty() {
            let mut stop = self.command(binary::platter());
            stop.args(["daemon", "stop"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Ok(mut child) = stop.spawn() {
                let start = Instant::now();
                while matches!(child.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(30) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            let start = Instant::now();
            while !self.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        force_cleanup(self.root());
    }
}

/// Ends what is left of an instance by force: its processes, then its mounts.
fn force_cleanup(root: &Path) {
    for pid in pids_with_home(&root.join("home")) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    for mount in mounts_below(root) {
        // Lazy: a mount whose daemon is dead answers nothing else.
        let unmounted = ["umount", "fusermount3", "fusermount"].into_iter().any(|program| {
            let flags: &[&str] = if program == "umount" { &["-l"] } else { &["-u", "-z"] };
            let mut command = Command::new(program);
            command.args(flags).arg(&mount).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.process_group(0).status().is_ok_and(|status| status.success())
        });
        if !unmounted {
            eprintln!("could not unmount {}", mount.display());
        }
    }
}

/// Mount points below `root`, the last mounted first: a mount may hide earlier ones.
pub(crate) fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape_octal(field)))
        .filter(|path| path.starts_with(root))
        .collect();
    found.reverse();
    found
}

/// `/proc` writes blank, tab, newline and backslash as `\ooo`.
fn unescape_octal(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        match rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                text.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    text
}

fn pids_with_home(home: &Path) -> Vec<i32> {
    let mut wanted = b"PLATTER_HOME=".to_vec();
    wanted.extend_from_slice(home.as_os_str().as_bytes());
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|var| var == wanted.as_slice()))
        })
        .collect()
}

/// Ends an instance by force when its test has run for too long, so that system calls stuck in its mounts return.
struct Watchdog {
    done: Arc<(Mutex<bool>, Condvar)>,
    thread: std::thread::JoinHandle<()>,
}

impl Watchdog {
    fn start(root: PathBuf, limit: Duration) -> Watchdog {
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let (flag, wake) = &*seen;
            let guard = flag.lock().expect("the watchdog's lock is never poisoned");
            let (guard, wait) =
                wake.wait_timeout_while(guard, limit, |done| !*done).expect("the watchdog's lock is never poisoned");
            drop(guard);
            if wait.timed_out() {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "\nWATCHDOG: {} ran for {limit:?}: ended by force", root.display());
                force_cleanup(&root);
            }
        });
        Watchdog { done, thread }
    }

    fn stop(self) {
        *self.done.0.lock().expect("the watchdog's lock is never poisoned") = true;
        self.done.1.notify_all();
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_escapes_are_undone() {
        assert_eq!(unescape_octal(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape_octal(r"/plain\9"), r"/plain\9");
    }

    #[test]
    fn processes_are_found_by_their_home() {
        let home = tempfile::tempdir().expect("a temporary folder");
        assert!(pids_with_home(home.path()).is_empty());
        let mut child = Command::new("sleep").arg("30").env("PLATTER_HOME", home.path()).spawn().expect("sleep starts");
        let start = Instant::now();
        while pids_with_home(home.path()).is_empty() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(pids_with_home(home.path()), vec![child.id() as i32]);
        let _ = child.kill();
        let _ = child.wait();
    }
}
