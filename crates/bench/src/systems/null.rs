//! The FUSE file system without storage, as a process of its own so that its processor time can be told apart.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::{FileSystem, Layout, Scrub, Shape, drop_caches, is_mounted};
use crate::error::{Result, While, said};
use crate::leftovers;
use crate::program::{patiently, server, wait_until};

/// The null FUSE file system.
pub struct Null {
    mount: PathBuf,
    server: Option<Child>,
}

impl Null {
    /// Mounted below `work`.
    pub fn new(work: &Path) -> Self {
        Self { mount: work.join("mnt-null"), server: None }
    }

    fn stop(&mut self) {
        if is_mounted(&self.mount) {
            let _ = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
            leftovers::note_process(server.id(), false);
        }
    }
}

impl FileSystem for Null {
    fn name(&self) -> &'static str {
        "null-fuse"
    }

    fn missing(&self) -> Option<String> {
        (!Path::new(platter_transport::DEVICE).exists()).then(|| format!("no {}", platter_transport::DEVICE))
    }

    fn has(&self, layout: Layout) -> bool {
        matches!(layout, Layout::Raidz1 | Layout::Mirror)
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn can_scrub(&self) -> bool {
        false
    }

    fn create(&mut self, _: &Shape) -> Result<()> {
        self.stop();
        std::fs::create_dir_all(&self.mount).on(|| format!("making {}", self.mount.display()))?;
        let exe = std::env::current_exe().on(|| "finding this program".into())?;
        let mut command = server(exe);
        command.arg("null-fs").arg(&self.mount).stdin(Stdio::null());
        let server = command.spawn().on(|| "starting the null file system".into())?;
        leftovers::note_process(server.id(), true);
        self.server = Some(server);
        wait_until("the null file system", Duration::from_secs(10), || is_mounted(&self.mount))
    }

    fn mountpoint(&self) -> PathBuf {
        self.mount.clone()
    }

    fn cold(&mut self) -> Result<Duration> {
        // Its names are in memory only, so it stays mounted; what the kernel knows of it is forgotten.
        drop_caches()?;
        Ok(Duration::ZERO)
    }

    fn server(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    fn scrub(&mut self) -> Result<Scrub> {
        said("it has nothing to scrub")
    }

    fn destroy(&mut self) -> Result<()> {
        patiently(|| {
            let unmounted = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::empty());
            unmounted.on(|| format!("unmounting {}", self.mount.display()))
        })?;
        self.stop();
        Ok(())
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        self.stop();
    }
}
