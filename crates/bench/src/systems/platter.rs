//! Platter itself, with a daemon of its own.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{FileSystem, Layout, Scrub, Shape, drop_caches, is_mounted, timed};
use crate::error::{Result, While, said};
use crate::leftovers;
use crate::meter::{Meter, Usage};
use crate::program::{output, patiently, wait_until};
use crate::switch;

/// Platter where it is served through `/dev/fuse` beside one that is served over io_uring.
pub const THROUGH_DEVICE: &str = "platter-dev-fuse";

/// Another build of Platter, in turn with this one.
pub const BEFORE: &str = "platter-before";

const POOL: &str = "benchp";
const LIMIT: Duration = Duration::from_secs(1800);

/// Platter.
pub struct Platter {
    /// What it is called beside others.
    name: &'static str,
    binary: Option<PathBuf>,
    create: Vec<String>,
    home: PathBuf,
    mount: PathBuf,
    devices: Option<PathBuf>,
    daemon: Option<u32>,
}

impl Platter {
    /// With its daemon's folder and mount point below `work`, and more options of `zpool create`. The binary is
    /// `PLATTER_BIN`, or lies beside this one.
    pub fn new(work: &Path, create: &str) -> Self {
        Self::called("platter", own_binary(), work, create)
    }

    fn called(name: &'static str, binary: Option<PathBuf>, work: &Path, create: &str) -> Self {
        Self {
            name,
            binary: binary.filter(|path| path.is_file()).and_then(|path| path.canonicalize().ok()),
            create: create.split_whitespace().map(str::to_owned).collect(),
            home: work.join(format!("home-{name}")),
            mount: work.join(format!("mnt-{name}")),
            devices: None,
            daemon: None,
        }
    }

    /// As [`Self::new`], but served through `/dev/fuse` also where others are served over io_uring.
    pub fn through_device(work: &Path, create: &str) -> Self {
        Self::called(THROUGH_DEVICE, own_binary(), work, create)
    }

    /// As [`Self::new`], but the binary `before`: another build.
    pub fn before(before: PathBuf, work: &Path, create: &str) -> Self {
        Self::called(BEFORE, Some(before), work, create)
    }

    /// Runs what mounts the pool's file system, so that requests come the right way.
    fn mounting<T>(&self, run: impl FnOnce() -> T) -> T {
        if self.name == THROUGH_DEVICE { switch::without(run) } else { run() }
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let Some(binary) = &self.binary else { return said("there is no platter binary") };
        let mut command = Command::new(binary);
        output(command.args(words).env("PLATTER_HOME", &self.home).env("LC_ALL", "C.UTF-8"), LIMIT, false)
    }

    fn find_daemon(&mut self) -> Result<()> {
        self.daemon = pids_with_home(&self.home).first().copied();
        match self.daemon {
            Some(pid) => leftovers::note_process(pid, true),
            None => return said("platter's daemon is not running"),
        }
        Ok(())
    }

    /// Makes a pool with more options of `zpool create`, which go before those that all pools have here.
    ///
    /// # Errors
    /// What the commands said.
    pub fn create_with(&mut self, shape: &Shape, more: &[&str]) -> Result<()> {
        std::fs::create_dir_all(&self.home).on(|| format!("making {}", self.home.display()))?;
        let files = shape.make_files(&format!("dev-{}", self.name))?;
        self.devices = Some(shape.under.join(format!("dev-{}", self.name)));
        let (record, mount) = (format!("recordsize={}", shape.record), self.mount.display().to_string());
        let own: Vec<&str> = self.create.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let mut words = vec!["zpool", "create", "-f", "-m", &mount];
        // A property may be named once only.
        let usual = [("-o", "ashift=12"), ("-O", "compression=off"), ("-O", "atime=off"), ("-O", &record)];
        for (option, value) in usual {
            let property = value.split_inclusive('=').next().unwrap_or_default();
            let is_named = |word: &&str| word.trim_start_matches("-o").trim_start_matches("-O").starts_with(property);
            if !own.iter().any(is_named) {
                words.extend([option, value]);
            }
        }
        words.extend(own);
        words.push(POOL);
        let vdevs = shape.layout.vdevs(&files);
        words.extend(vdevs.iter().map(String::as_str));
        let created = self.mounting(|| self.run(&words).and_then(|_| self.wait_for_mount()));
        // Found though it refused, so that it is stopped.
        let found = self.find_daemon();
        created.and(found)
    }

    fn wait_for_mount(&self) -> Result<()> {
        wait_until("platter's mount", Duration::from_secs(30), || is_mounted(&self.mount))
    }

    fn import(&self) -> Result<()> {
        let Some(devices) = &self.devices else { return said("there is no pool") };
        let devices = devices.display().to_string();
        self.mounting(|| self.run(&["zpool", "import", "-d", &devices, POOL]).and_then(|_| self.wait_for_mount()))
    }

    /// Exports the pool, and imports it with a new daemon and no cache filled. Returns how long the import took and
    /// what it cost that daemon.
    ///
    /// # Errors
    /// What the commands said.
    pub fn import_anew(&mut self) -> Result<(Duration, Usage)> {
        self.export()?;
        self.import_exported()
    }

    /// Exports the pool, and returns how long that took.
    ///
    /// # Errors
    /// What the commands said.
    pub fn export(&self) -> Result<Duration> {
        timed(|| patiently(|| self.run(&["zpool", "export", POOL])).map(drop))
    }

    /// As [`Self::import_anew`], of a pool that is exported.
    ///
    /// # Errors
    /// What the commands said.
    pub fn import_exported(&mut self) -> Result<(Duration, Usage)> {
        self.stop()?;
        drop_caches()?;
        // Any command starts a daemon.
        self.run(&["zpool", "list"])?;
        self.find_daemon()?;
        let meter = Meter::start(self.daemon);
        let elapsed = timed(|| self.import())?;
        Ok((elapsed, meter.stop()))
    }

    /// Makes the data set with this number, and mounts it.
    ///
    /// # Errors
    /// What the command said.
    pub fn create_dataset(&self, number: u64) -> Result<()> {
        self.run(&["zfs", "create", &format!("{POOL}/d{number}")]).map(drop)
    }

    /// Lists all data sets, and returns how many there are, and how long that took.
    ///
    /// # Errors
    /// What the command said.
    pub fn list_datasets(&self) -> Result<(u64, Duration)> {
        let start = Instant::now();
        let list = self.run(&["zfs", "list", "-H", "-o", "name,used,mounted"])?;
        Ok((list.lines().count() as u64, start.elapsed()))
    }

    /// Changes a property of all data sets at once, and returns how long that took.
    ///
    /// # Errors
    /// What the command said.
    pub fn set_of_all(&self, setting: &str) -> Result<Duration> {
        timed(|| self.run(&["zfs", "set", setting, POOL]).map(drop))
    }

    /// Numbers that `zpool list` knows.
    fn numbers<const N: usize>(&self, properties: [&str; N]) -> Result<[u64; N]> {
        let list = self.run(&["zpool", "list", "-Hp", "-o", &properties.join(","), POOL])?;
        let mut words = list.split_whitespace();
        let mut numbers = [0; N];
        for (number, property) in numbers.iter_mut().zip(properties) {
            let word = words.next().unwrap_or_default();
            match word.trim_end_matches('%').parse() {
                Ok(found) => *number = found,
                Err(_) => return said(format!("zpool list says {word:?} for {property}")),
            }
        }
        Ok(numbers)
    }

    /// Bytes of the devices that are in use, and all of them.
    ///
    /// # Errors
    /// What the command said.
    pub fn room(&self) -> Result<(u64, u64)> {
        self.numbers(["allocated", "size"]).map(|[used, size]| (used, size))
    }

    /// How much the free room is in pieces, percent.
    ///
    /// # Errors
    /// What the command said.
    pub fn fragmentation(&self) -> Result<f64> {
        self.numbers(["fragmentation"]).map(|[percent]| percent as f64)
    }

    fn stop(&mut self) -> Result<()> {
        let Some(pid) = self.daemon.take() else { return Ok(()) };
        let stopped = self.run(&["daemon", "stop"]).and_then(|_| {
            wait_until("platter's daemon to end", Duration::from_secs(30), || pids_with_home(&self.home).is_empty())
        });
        if stopped.is_err() {
            pids_with_home(&self.home).into_iter().for_each(|pid| leftovers::signal(pid, Signal::KILL));
        }
        leftovers::note_process(pid, false);
        stopped
    }
}

impl FileSystem for Platter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn missing(&self) -> Option<String> {
        self.binary.is_none().then(|| match self.name {
            BEFORE => "there is no such binary".into(),
            _ => "no platter beside this program; build it or set PLATTER_BIN".into(),
        })
    }

    fn has(&self, _: Layout) -> bool {
        true
    }

    fn create(&mut self, shape: &Shape) -> Result<()> {
        self.create_with(shape, &[])
    }

    fn mountpoint(&self) -> PathBuf {
        self.mount.clone()
    }

    fn cold(&mut self) -> Result<Duration> {
        patiently(|| self.run(&["zpool", "export", POOL]))?;
        drop_caches()?;
        timed(|| self.import())
    }

    fn server(&self) -> Option<u32> {
        self.daemon
    }

    fn scrub(&mut self) -> Result<Scrub> {
        let (bytes, _) = self.room()?;
        let start = Instant::now();
        self.run(&["zpool", "scrub", "-w", POOL])?;
        let elapsed = start.elapsed();
        let status = self.run(&["zpool", "status", POOL])?;
        if !status.contains("No known data errors") || !status.contains("with 0 errors") {
            return said(format!("platter's scrub: {status}"));
        }
        Ok(Scrub { bytes, elapsed })
    }

    fn destroy(&mut self) -> Result<()> {
        if self.daemon.is_some() && is_mounted(&self.mount) {
            patiently(|| self.run(&["zpool", "destroy", POOL]))?;
        }
        self.stop()?;
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
        Ok(())
    }
}

impl Drop for Platter {
    fn drop(&mut self) {
        for pid in pids_with_home(&self.home) {
            leftovers::signal(pid, Signal::KILL);
            leftovers::note_process(pid, false);
        }
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
    }
}

/// The binary that lies beside this one, unless another is named.
fn own_binary() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(|folder| folder.join("platter")));
    std::env::var_os("PLATTER_BIN").map(PathBuf::from).or(beside)
}

/// The processes that serve this instance, found by their environment. The commands are gone when this is asked.
fn pids_with_home(home: &Path) -> Vec<u32> {
    let wanted = [b"PLATTER_HOME=", home.as_os_str().as_bytes()].concat();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_home = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == wanted)
    };
    pids.filter(has_home).collect()
}
