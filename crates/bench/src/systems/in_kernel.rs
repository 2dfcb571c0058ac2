//! File systems of the kernel on loop devices over files on the same disk: btrfs with redundancy and checksums as a
//! pool has them, ext4 and xfs on one device of the same capacity, without either.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use super::loops::Loops;
use super::{FileSystem, Layout, Scrub, Shape, btrfs, drop_caches, is_mounted, timed};
use crate::error::{Result, While, said};
use crate::program::{find, output, patiently};

const LIMIT: Duration = Duration::from_secs(600);

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Several devices, redundancy, checksums.
    Btrfs,
    /// One device.
    Ext4,
    /// One device.
    Xfs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Btrfs => &["mkfs.btrfs", "btrfs", "losetup"],
            Self::Ext4 => &["mkfs.ext4", "losetup"],
            Self::Xfs => &["mkfs.xfs", "losetup"],
        }
    }

    fn mkfs(self, layout: Layout) -> Vec<&'static str> {
        match self {
            Self::Btrfs => btrfs::mkfs(layout).to_vec(),
            // What it would otherwise do in the background after the first mount is done before anything is measured.
            Self::Ext4 => vec!["-F", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            Self::Xfs => vec!["-f", "-q", "-K"],
        }
    }
}

/// A file system of the kernel.
pub struct InKernel {
    kind: Kind,
    mount: PathBuf,
    devices: Option<PathBuf>,
    loops: Loops,
}

impl InKernel {
    /// Mounted below `work`.
    pub fn new(kind: Kind, work: &Path) -> Self {
        let mount = work.join(format!("mnt-{}", kind.name()));
        Self { kind, mount, devices: None, loops: Loops::default() }
    }

    fn mount(&self) -> Result<()> {
        let devices = self.loops.devices();
        let options = if self.kind == Kind::Btrfs { btrfs::mount_options(devices) } else { String::new() };
        let Some(first) = devices.first() else { return said(format!("there is no {}", self.name())) };
        let options = CString::new(options).expect("no zero byte in it");
        rustix::mount::mount(first, &self.mount, self.name(), MountFlags::NOATIME, options.as_c_str())
            .on(|| format!("mounting {} at {}", self.name(), self.mount.display()))
    }

    fn unmount(&self) -> Result<()> {
        patiently(|| {
            let unmounted = rustix::mount::unmount(&self.mount, UnmountFlags::empty());
            unmounted.on(|| format!("unmounting {}", self.mount.display()))
        })
    }

    fn release(&mut self) {
        if self.kind == Kind::Btrfs {
            btrfs::forget(self.loops.devices());
        }
        self.loops.detach();
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
    }
}

impl FileSystem for InKernel {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn missing(&self) -> Option<String> {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_known = known.lines().any(|line| line.trim().ends_with(self.name()));
        match self.kind.programs().iter().find(|program| find(program).is_none()) {
            Some(program) => Some(format!("no program {program}")),
            // It may be a module that is loaded by the first mount.
            None if !is_known && !Path::new("/lib/modules").exists() => {
                Some(format!("the kernel has no {}", self.name()))
            }
            None => None,
        }
    }

    fn has(&self, layout: Layout) -> bool {
        matches!(layout, Layout::Raidz1 | Layout::Mirror)
    }

    fn can_scrub(&self) -> bool {
        self.kind == Kind::Btrfs
    }

    fn is_served(&self) -> bool {
        false
    }

    fn create(&mut self, shape: &Shape) -> Result<()> {
        let folder = format!("dev-{}", self.name());
        let one = shape.on_one();
        let files = if self.kind == Kind::Btrfs { shape } else { &one }.make_files(&folder)?;
        self.devices = Some(shape.under.join(folder));
        files.iter().try_for_each(|file| self.loops.attach(file))?;
        let mut mkfs = Command::new(format!("mkfs.{}", self.name()));
        mkfs.args(self.kind.mkfs(shape.layout)).args(self.loops.devices());
        output(&mut mkfs, LIMIT, false)?;
        std::fs::create_dir_all(&self.mount).on(|| format!("making {}", self.mount.display()))?;
        self.mount()
    }

    fn mountpoint(&self) -> PathBuf {
        self.mount.clone()
    }

    fn cold(&mut self) -> Result<Duration> {
        self.unmount()?;
        drop_caches()?;
        timed(|| self.mount())
    }

    fn server(&self) -> Option<u32> {
        None
    }

    fn scrub(&mut self) -> Result<Scrub> {
        if self.kind == Kind::Btrfs { btrfs::scrub(&self.mount) } else { said("it has nothing to scrub") }
    }

    fn destroy(&mut self) -> Result<()> {
        if is_mounted(&self.mount) {
            self.unmount()?;
        }
        self.release();
        Ok(())
    }
}

impl Drop for InKernel {
    fn drop(&mut self) {
        if is_mounted(&self.mount) {
            let _ = rustix::mount::unmount(&self.mount, UnmountFlags::DETACH);
        }
        self.release();
    }
}
