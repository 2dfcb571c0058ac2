//! zfs-fuse 0.7, the older ZFS in user space.
//!
//! It listens on one fixed socket, so one runs on a machine at a time: who holds the lock file has it. The integration
//! tests know the same lock.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{FileSystem, Layout, Scrub, Shape, drop_caches, is_mounted, timed};
use crate::error::{Result, While, said};
use crate::program::{output, patiently, server, wait_until};
use crate::{interrupt, leftovers};

const POOL: &str = "benchz";
const LOCK: &str = "/var/lock/platter-zfs-fuse";
const LIMIT: Duration = Duration::from_secs(600);

/// zfs-fuse.
pub struct ZfsFuse {
    tools: PathBuf,
    mount: PathBuf,
    devices: Option<PathBuf>,
    server: Option<(Child, File)>,
}

impl ZfsFuse {
    /// Mounted below `work`. The programs are where `PLATTER_JUDGES` says.
    pub fn new(work: &Path) -> Self {
        let judges = std::env::var_os("PLATTER_JUDGES").map_or_else(|| "/opt/platter-judges".into(), PathBuf::from);
        Self { tools: judges.join("zfs-fuse/sbin"), mount: work.join("mnt-zfs-fuse"), devices: None, server: None }
    }

    fn zpool(&self, words: &[&str]) -> Result<String> {
        output(Command::new(self.tools.join("zpool")).args(words), LIMIT, false)
    }

    fn start(&mut self) -> Result<()> {
        for folder in ["/var/run/zfs", "/var/lock/zfs", "/etc/zfs"] {
            std::fs::create_dir_all(folder).on(|| format!("making {folder}"))?;
        }
        let lock = File::create(LOCK).on(|| format!("making {LOCK}"))?;
        let start = Instant::now();
        wait_until("another zfs-fuse to end", LIMIT, || {
            let free = lock.try_lock().is_ok() && self.zpool(&["list"]).is_err();
            if !free {
                std::thread::sleep(Duration::from_millis(200));
            }
            free
        })?;
        if start.elapsed() > Duration::from_secs(5) {
            eprintln!("waited {} s for another zfs-fuse", start.elapsed().as_secs());
        }
        let mut command = server(self.tools.join("zfs-fuse"));
        command.arg("-n").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A group of its own: Ctrl-C is for us, and its pool has to be put away first.
        let server = command.spawn().on(|| "starting zfs-fuse".into())?;
        leftovers::note_process(server.id(), true);
        self.server = Some((server, lock));
        wait_until("zfs-fuse", Duration::from_secs(60), || self.zpool(&["list"]).is_ok())
    }

    fn stop(&mut self) {
        let Some((mut server, _lock)) = self.server.take() else { return };
        let _ = server.kill();
        let _ = server.wait();
        leftovers::note_process(server.id(), false);
        for mount in leftovers::mounts_below(&self.mount) {
            let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl FileSystem for ZfsFuse {
    fn name(&self) -> &'static str {
        "zfs-fuse"
    }

    fn missing(&self) -> Option<String> {
        let there = self.tools.join("zfs-fuse").is_file();
        (!there).then(|| format!("no zfs-fuse in {}: run .ci/run judges", self.tools.display()))
    }

    fn has(&self, layout: Layout) -> bool {
        matches!(layout, Layout::Raidz1 | Layout::Mirror)
    }

    fn create(&mut self, shape: &Shape) -> Result<()> {
        if self.server.is_none() {
            self.start()?;
        }
        let files = shape.make_files("dev-zfs-fuse")?;
        self.devices = Some(shape.under.join("dev-zfs-fuse"));
        let record = format!("recordsize={}", shape.record);
        let mount = self.mount.display().to_string();
        let mut words = vec!["create", "-f", "-O", "compression=off", "-O", "atime=off", "-O", &record, "-m", &mount];
        words.push(POOL);
        let vdevs = shape.layout.vdevs(&files);
        words.extend(vdevs.iter().map(String::as_str));
        self.zpool(&words)?;
        wait_until("zfs-fuse's mount", Duration::from_secs(30), || is_mounted(&self.mount))
    }

    fn mountpoint(&self) -> PathBuf {
        self.mount.clone()
    }

    fn cold(&mut self) -> Result<Duration> {
        patiently(|| self.zpool(&["export", POOL]))?;
        drop_caches()?;
        let Some(devices) = &self.devices else { return said("there is no pool") };
        let devices = devices.display().to_string();
        timed(|| {
            self.zpool(&["import", "-d", &devices, POOL])?;
            wait_until("zfs-fuse's mount", Duration::from_secs(30), || is_mounted(&self.mount))
        })
    }

    fn server(&self) -> Option<u32> {
        self.server.as_ref().map(|(server, _)| server.id())
    }

    fn scrub(&mut self) -> Result<Scrub> {
        let size = |words: &str| -> Option<u64> { parse_size(words.trim()) };
        // Its pool version has no exact figures.
        let allocated = self.zpool(&["list", "-H", "-o", "allocated", POOL])?;
        let Some(bytes) = size(&allocated) else { return said(format!("not a size: {allocated}")) };
        let start = Instant::now();
        self.zpool(&["scrub", POOL])?;
        loop {
            let status = self.zpool(&["status", POOL])?;
            if status.contains("scrub repaired") || status.contains("scrub completed") {
                return Ok(Scrub { bytes, elapsed: start.elapsed() });
            }
            interrupt::check()?;
            if start.elapsed() > LIMIT {
                return said(format!("zfs-fuse's scrub does not end: {status}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn destroy(&mut self) -> Result<()> {
        if self.server.is_some() {
            patiently(|| self.zpool(&["destroy", "-f", POOL]))?;
        }
        self.stop();
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
        Ok(())
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        if self.server.is_some() {
            // It remembers pools in a file and would look for this one at its next start.
            let mut command = Command::new(self.tools.join("zpool"));
            let _ = command.args(["destroy", "-f", POOL]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        self.stop();
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
    }
}

/// A size such as `1.50G`, in bytes.
fn parse_size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let power = match unit.chars().next() {
        None => 0,
        Some(unit) => "BKMGTP".find(unit.to_ascii_uppercase())?,
    };
    Some((digits.parse::<f64>().ok()? * 1024f64.powi(power as i32)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_read() {
        assert_eq!(parse_size("1.50K"), Some(1536));
        assert_eq!(parse_size("2G"), Some(2 << 30));
        assert_eq!(parse_size("7"), Some(7));
        assert_eq!(parse_size("-"), None);
    }
}
