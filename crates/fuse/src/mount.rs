//! Mounting and unmounting.
//!
//! As root the mount is made with `mount(2)` on our own `/dev/fuse`, so that source and type can be chosen and the
//! answer of `umount(2)` is seen; anybody else goes through `fusermount3`.
//!
//! Invariants:
//! - when [`Mount::unmount`] succeeded no request is under way and none can come: the file system may be closed. Who
//!   keeps it elsewhere (another mount name space, a file that was open when somebody else unmounted it) gets errors;
//! - a [`Mount`] that is dropped leaves the mount in place, served by its threads until somebody unmounts it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_transport::{Config, DEVICE, Filesystem, HelperError, InitFlags, Kernel, Session};
use platter_vfs::{AtimeMode, Vfs};
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::cut;
use crate::elsewhere::{Elsewhere, Keeper};
use crate::error::{FuseError, Result, start_advice};
use crate::mountinfo;
use crate::options::{HELPER, KernelFlags, MountOptions, SUBTYPE};
use crate::place::Place;
use crate::server::PlatterFs;
use crate::snapshots::Shelf;
use crate::still::{StillFs, StillTree};
use crate::terms;
use crate::volume_tree::VolumeTree;
use crate::volumes::VolumesFs;

/// How long pages of mappings are written back before a mount is taken away by force: its devices may not answer.
const FORCED_WRITE_BACK: Duration = Duration::from_secs(2);
/// How long [`Mount::flush`] waits for a moment in which nothing is asked for: on a busy mount there may be none.
const FLUSH_QUIET: Duration = Duration::from_secs(1);

/// What statfs(2) calls a FUSE file system (`FUSE_SUPER_MAGIC`).
const FUSE_MAGIC: u64 = 0x6573_5546;
/// How long the serving threads may take to end once the kernel's mount is gone. They wait for a transaction group at
/// most; what takes longer is kept alive by somebody.
const END_WAIT: Duration = Duration::from_secs(30);
/// How long the kernel may take to let go of what somebody else unmounted, before it counts as kept elsewhere. What we
/// unmount ourselves it has let go of when it says that it is done.
const LET_GO: Duration = Duration::from_millis(300);
/// After which pauses what is busy is asked for again, before it is said to be: 100 ms in all.
const BUSY_PAUSES: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(30), Duration::from_millis(60)];

/// Descriptors that mounts leave for devices, clients and files of the daemon.
const DESCRIPTORS_KEPT: u64 = 64;

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    mountpoint: PathBuf,
    /// Device number (`major:minor`) that the kernel gave the mount: tells it from others at the same place.
    device: Option<String>,
    /// Whether the mount is ours to undo with `umount(2)`, or the helper's.
    direct: bool,
    session: Mutex<Option<Session>>,
    /// The kernel's side, once it has said its first words.
    kernel: Arc<OnceLock<Kernel>>,
    /// Snapshots that are open in it.
    shelf: Arc<Shelf<PlatterFs>>,
    runtime: tokio::runtime::Handle,
    ended: tokio::sync::watch::Receiver<bool>,
}

/// Mounts `vfs` at `mountpoint` (an existing directory). Requests are served on threads that all mounts share; what
/// waits for the engine goes on on `runtime`, which must outlive the mount.
///
/// # Errors
/// See [`FuseError`].
pub fn mount(
    vfs: Arc<Vfs>,
    mountpoint: &Path,
    options: MountOptions,
    runtime: tokio::runtime::Handle,
) -> Result<Mount> {
    let place = check_place(mountpoint)?;
    let (posix_acl, every_read) = (vfs.has_posix_acl(), vfs.notes_every_read());
    let (end, ended) = tokio::sync::watch::channel(false);
    let mut fs = PlatterFs::new(vfs, runtime.clone(), options.cache_absent, end);
    fs.source = options.snapshots.clone();
    let (shelf, kernel) = (fs.shelf.clone(), fs.kernel.clone());
    let mut config = terms::config(options.threads, posix_acl);
    if every_read {
        config.wanted = config.wanted.without(InitFlags::CACHE_SYMLINKS);
    }
    begin(fs, place, &options, config, Ours { kernel, shelf, runtime, ended })
}

/// Mounts the volumes of `tree` as files at `mountpoint` (an existing directory), as [`mount`] does a file system.
///
/// # Errors
/// See [`FuseError`].
pub fn mount_volumes(
    tree: Arc<dyn VolumeTree>,
    mountpoint: &Path,
    options: MountOptions,
    runtime: tokio::runtime::Handle,
) -> Result<Mount> {
    let place = check_place(mountpoint)?;
    let (end, ended) = tokio::sync::watch::channel(false);
    let fs = VolumesFs::new(tree, runtime.clone(), end);
    let (shelf, kernel) = (Arc::new(Shelf::new()), fs.kernel.clone());
    let mut config = terms::config(options.threads, false);
    // As of a device, whose size stays: who opens one with O_TRUNC (dd does) has it opened, and nothing emptied.
    config.wanted = config.wanted | InitFlags::ATOMIC_O_TRUNC;
    begin(fs, place, &options, config, Ours { kernel, shelf, runtime, ended })
}

/// Mounts the files of `tree`, which never change, at `mountpoint` (an existing directory), as [`mount`] does a file
/// system.
///
/// # Errors
/// See [`FuseError`].
pub fn mount_still(
    tree: Arc<dyn StillTree>,
    mountpoint: &Path,
    options: MountOptions,
    runtime: tokio::runtime::Handle,
) -> Result<Mount> {
    let place = check_place(mountpoint)?;
    let (end, ended) = tokio::sync::watch::channel(false);
    let fs = StillFs::new(tree, runtime.clone(), end);
    let (shelf, kernel) = (Arc::new(Shelf::new()), fs.kernel.clone());
    let mut config = terms::config(options.threads, false);
    // What is listed is looked at when somebody asks for it.
    config.wanted = config.wanted.without(InitFlags::DO_READDIRPLUS).without(InitFlags::READDIRPLUS_AUTO);
    begin(fs, place, &options, config, Ours { kernel, shelf, runtime, ended })
}

/// Where something is to be mounted.
struct Target {
    /// The mount point's real path.
    path: PathBuf,
    /// The folder itself, of root's.
    folder: Option<Place>,
}

/// Where it is, if anything can be mounted there.
fn check_place(mountpoint: &Path) -> Result<Target> {
    let target = check_mountpoint(mountpoint)?;
    if !Path::new(DEVICE).exists() {
        return Err(FuseError::NoDevice);
    }
    check_descriptors(&target.path)?;
    Ok(target)
}

/// What a mount keeps of its file system.
struct Ours {
    kernel: Arc<OnceLock<Kernel>>,
    shelf: Arc<Shelf<PlatterFs>>,
    runtime: tokio::runtime::Handle,
    ended: tokio::sync::watch::Receiver<bool>,
}

/// Mounts what `fs` serves.
fn begin<F: Filesystem>(
    fs: F,
    Target { path: mountpoint, folder }: Target,
    options: &MountOptions,
    config: Config,
    Ours { kernel, shelf, runtime, ended }: Ours,
) -> Result<Mount> {
    let direct = folder.is_some();
    let device = match &folder {
        Some(folder) => mount_directly(folder, options)?,
        None => mount_with_helper(&mountpoint, options)?,
    };
    let session = Session::start(fs, device, config, runtime.clone()).map_err(|source| {
        // The device is closed: nobody answers what is still mounted.
        if direct {
            let _ = rustix::mount::unmount(&mountpoint, UnmountFlags::DETACH);
        } else {
            let _ = Command::new(HELPER).args(["-u", "-z", "--"]).arg(&mountpoint).output();
        }
        FuseError::Mount { what: options.source.clone(), mountpoint: mountpoint.clone(), source }
    })?;
    // Before Linux 5.8 the table is the only one to tell.
    let listed = || mountinfo::find(&mountpoint).filter(mountinfo::MountInfo::is_ours).map(|found| found.device);
    let device = device_at(&mountpoint).or_else(listed);
    if let Some(device) = device.as_deref().filter(|_| direct) {
        terms::set_readahead(device);
    }
    Ok(Mount { mountpoint, device, direct, session: Mutex::new(Some(session)), kernel, shelf, runtime, ended })
}

/// Refuses while there is still room for everything else: the system gives the lowest number that is free.
fn check_descriptors(mountpoint: &Path) -> Result<()> {
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current else { return Ok(()) };
    let next = OpenOptions::new().read(true).open("/dev/null").map(|file| file.as_raw_fd() as u64);
    match next {
        Ok(next) if next + DESCRIPTORS_KEPT <= limit => Ok(()),
        Err(error) if error.raw_os_error() != Some(Errno::MFILE.raw_os_error()) => Ok(()),
        _ => {
            let mountpoint = mountpoint.to_owned();
            Err(FuseError::NoDescriptors { mountpoint, limit, kept: DESCRIPTORS_KEPT })
        }
    }
}

/// The device number (`major:minor`) of the topmost file system at `mountpoint`, if it begins there. Asks the kernel
/// alone, of this one: the table of all mounts is long where there are many.
fn device_at(mountpoint: &Path) -> Option<String> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::empty()).ok()?;
    let is_root = found.stx_attributes & found.stx_attributes_mask & StatxAttributes::MOUNT_ROOT;
    (!is_root.is_empty()).then(|| format!("{}:{}", found.stx_dev_major, found.stx_dev_minor))
}

/// The mount point itself. What a process that died left mounted there is cleared away first.
fn check_mountpoint(mountpoint: &Path) -> Result<Target> {
    let bad = |source| FuseError::BadMountpoint { mountpoint: mountpoint.to_owned(), source };
    let is_dead = |error: &io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    let found = match mountpoint.canonicalize().and_then(|found| found.metadata().map(|_| found)) {
        Err(error) if is_dead(&error) => {
            let path = std::path::absolute(mountpoint).map_err(bad)?;
            if mountinfo::find(&path).is_none_or(|found| !found.is_ours()) {
                return Err(bad(error));
            }
            tracing::warn!("{}: clearing away the mount of a server that is gone", path.display());
            rustix::mount::unmount(&path, UnmountFlags::DETACH).map_err(|error| bad(error.into()))?;
            path.canonicalize().map_err(bad)?
        }
        other => other.map_err(bad)?,
    };
    if !found.is_dir() {
        return Err(bad(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(Target { path: found, folder: None });
    }
    let folder = Place::find(&std::path::absolute(mountpoint).map_err(bad)?).map_err(bad)?;
    Ok(Target { path: folder.path().to_owned(), folder: Some(folder) })
}

fn mount_directly(folder: &Place, options: &MountOptions) -> Result<OwnedFd> {
    let mountpoint = folder.path();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => FuseError::NoDevice,
        io::ErrorKind::PermissionDenied => FuseError::NotAllowed(mountpoint.to_owned()),
        _ => FuseError::Mount { what: options.source.clone(), mountpoint: mountpoint.to_owned(), source },
    };
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(failed)?;
    let data = terms::mount_data(&device, options.allow_other);
    let flags = mount_flags(options.flags);
    let kind = format!("fuse.{SUBTYPE}");
    rustix::mount::mount(options.source.as_str(), folder.fixed(), kind, flags, data.as_c_str())
        .map_err(|error| failed(error.into()))?;
    Ok(device.into())
}

fn mount_flags(flags: KernelFlags) -> MountFlags {
    // One of these has to be said: a remount without any keeps what there was.
    let atime = match flags.atime {
        AtimeMode::Off => MountFlags::NOATIME,
        AtimeMode::Relative => MountFlags::RELATIME,
        AtimeMode::Always => MountFlags::STRICTATIME,
    };
    let flags = [
        (flags.read_only, MountFlags::RDONLY),
        (!flags.devices, MountFlags::NODEV),
        (!flags.setuid, MountFlags::NOSUID),
        (!flags.exec, MountFlags::NOEXEC),
    ];
    flags.into_iter().filter(|(set, _)| *set).fold(atime, |all, (_, flag)| all | flag)
}

fn mount_with_helper(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let mut words = vec![
        format!("fsname={}", options.source),
        format!("subtype={SUBTYPE}"),
        "default_permissions".to_owned(),
        format!("max_read={}", terms::REQUEST_MAX),
    ];
    // An ordinary user's mount never honours devices and set-id bits.
    let flags = [
        (options.flags.read_only, "ro"),
        (!options.flags.exec, "noexec"),
        (options.flags.atime == AtimeMode::Off, "noatime"),
        (true, "nodev"),
        (true, "nosuid"),
        (options.allow_other, "allow_other"),
    ];
    words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
    platter_transport::mount_with_helper(HELPER, mountpoint, &words).map_err(|error| match error {
        HelperError::Start(source) => FuseError::Helper { mountpoint: mountpoint.to_owned(), source },
        HelperError::NotShared(_) => FuseError::NotShared(mountpoint.to_owned()),
        // The helper has more than its caller's rights, and such a process is kept out (`fuse_allow_current_process`).
        HelperError::Refused(_) if !options.allow_other && lies_in_fuse(mountpoint) => {
            FuseError::Nested(mountpoint.to_owned())
        }
        HelperError::Refused(said) => FuseError::Mount {
            what: options.source.clone(),
            mountpoint: mountpoint.to_owned(),
            source: io::Error::other(said),
        },
        HelperError::Device(source) => {
            FuseError::Mount { what: options.source.clone(), mountpoint: mountpoint.to_owned(), source }
        }
    })
}

fn lies_in_fuse(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == FUSE_MAGIC)
}

/// Whether the machine lets an ordinary user show his mounts to others (fuse.conf(5)).
pub fn users_may_share() -> bool {
    let text = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

impl Mount {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Its device number, `major:minor`.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Whether the kernel still sends requests (false once somebody unmounted it).
    pub fn is_alive(&self) -> bool {
        if *self.ended.borrow() {
            return false;
        }
        // Held while somebody unmounts, which takes as long as the last requests: until then it is alive.
        self.session.try_lock().is_none_or(|session| session.as_ref().is_some_and(|s| !s.is_finished()))
    }

    /// Changes what the kernel honours in the mount, in use or not: device nodes, set-id bits, programs. `read_only`
    /// is to be what it is already. `false` when that cannot be had but by a new mount (for an ordinary user, or when
    /// it is covered). Blocks; call it on a thread that may.
    pub fn set_flags(&self, flags: KernelFlags) -> bool {
        // Held, so that nobody unmounts it meanwhile.
        let session = self.session.lock();
        if !self.direct || session.is_none() || self.device.is_none() || device_at(&self.mountpoint) != self.device {
            return false;
        }
        // With `BIND` it is about this mount and not about the file system: the kernel asks nobody.
        let flags = MountFlags::BIND | mount_flags(flags);
        rustix::mount::mount_remount(&self.mountpoint, flags, c"").is_ok()
    }

    /// Whether somebody took it away from this name space (`umount -l`), given all mounts there are
    /// ([`mountinfo::present`]); its requests may still be served.
    pub fn is_detached(&self, present: &BTreeSet<String>) -> bool {
        self.device.as_ref().is_some_and(|device| !present.contains(device))
    }

    /// Who keeps it beside this place, and would lose it with the connection.
    pub fn keeper(&self, elsewhere: &Elsewhere) -> Option<Keeper> {
        // Without a connection nothing of it is mounted anywhere, and its number may be another file system's by now.
        self.kernel.get().filter(|kernel| kernel.is_connected())?;
        elsewhere.keeper(self.device.as_deref()?, &self.mountpoint)
    }

    /// Waits until the kernel's side is gone, whoever unmounted it.
    pub async fn gone(&self) {
        let mut ended = self.ended.clone();
        // An error means that the serving threads are gone without a word: gone all the same.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Has the kernel bring to us, as far as that can be done in a moment, what was stored through mappings so far.
    /// Blocks; call it on a thread that may.
    pub fn flush(&self) {
        // Held, so that nobody unmounts it meanwhile.
        let session = self.session.lock();
        if session.is_some() && self.device.is_some() && device_at(&self.mountpoint) == self.device {
            // On a busy mount that is nothing to be told of.
            if !self.write_back(FORCED_WRITE_BACK, FLUSH_QUIET) {
                tracing::debug!("{}: perhaps not all stored through mappings is written", self.mountpoint.display());
            }
        }
    }

    /// Serves no snapshot of these numbers any more; whoever has files of one open gets errors.
    pub fn close_snapshots(&self, numbers: &[u64]) {
        for snapshot in self.shelf.take_off(Some(numbers)) {
            self.runtime.spawn(async move { snapshot.vfs.give_back().await });
        }
    }

    /// Unmounts, and returns when the last request is answered. With `force` the mount point is freed even while files
    /// are open: whoever has one open gets errors from then on. So does, in any case, who has it where it cannot be
    /// seen from here. Blocks; call it on a thread that may.
    ///
    /// # Errors
    /// [`FuseError::Busy`] without `force`; [`FuseError::Covered`] when another file system is mounted over it: the
    /// mount stays as it is. [`FuseError::StillMounted`] when it is gone from its mount point but somebody keeps it
    /// elsewhere, and the connection cannot be cut.
    pub fn unmount(&self, force: bool) -> Result<()> {
        // Held throughout, so that two calls do not unmount what somebody mounted in between.
        let mut session = self.session.lock();
        let Some(running) = session.as_ref() else { return Ok(()) };
        let mut let_go = LET_GO;
        if !*self.ended.borrow() && self.is_at_its_place()? {
            let limit = if force { FORCED_WRITE_BACK } else { Duration::MAX };
            if !self.write_back(limit, limit) {
                tracing::warn!("{}: not all that was stored through mappings is written", self.mountpoint.display());
            }
            let place = &self.mountpoint;
            if self.direct {
                self.unmount_directly(place, force)?
            } else {
                self.unmount_with_helper(place, force)?
            }
            let_go = Duration::ZERO;
        } else if !*self.ended.borrow() {
            self.unmount_where_it_was_moved(force)?;
        }
        self.wait_for_the_end(running, let_go)?;
        assert!(running.is_finished(), "no request is under way once it is unmounted");
        let Some(session) = session.take() else { return Ok(()) };
        match session.join() {
            // The kernel cut the connection, as asked.
            Err(error) if force => tracing::debug!("{} ended with: {error}", self.mountpoint.display()),
            Err(error) => tracing::warn!("{} ended with: {error}", self.mountpoint.display()),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Ends the connection where it cannot be unmounted, which stays there and gives errors. Pages that were changed
    /// through mappings and not synced are lost. Blocks; call it on a thread that may.
    ///
    /// # Errors
    /// [`FuseError::StillMounted`] when the connection cannot be cut.
    pub fn cut_off(&self) -> Result<()> {
        let mut session = self.session.lock();
        let Some(running) = session.as_ref() else { return Ok(()) };
        self.wait_for_the_end(running, Duration::ZERO)?;
        assert!(running.is_finished(), "no request is under way once it is cut off");
        if let Some(Err(error)) = session.take().map(Session::join) {
            tracing::debug!("{} ended with: {error}", self.mountpoint.display());
        }
        Ok(())
    }

    /// Whether `umount(2)` of the mount point would meet this mount; `false` when it is not mounted there any more.
    fn is_at_its_place(&self) -> Result<bool> {
        if self.device.is_some() && device_at(&self.mountpoint) == self.device {
            return Ok(true);
        }
        let all = mountinfo::all();
        let mut here = all.iter().rev().filter(|found| found.mountpoint == self.mountpoint);
        let is_this = |found: &mountinfo::MountInfo| found.is_ours() && Some(&found.device) == self.device.as_ref();
        let covered = |by: &mountinfo::MountInfo| FuseError::Covered {
            mountpoint: self.mountpoint.clone(),
            by: format!("{} ({})", by.source, by.kind),
            place: by.mountpoint.clone(),
        };
        match here.next() {
            // What was mounted later on a folder above hides it.
            Some(top) if is_this(top) => {
                let mut later = all.iter().rev().take_while(|found| !is_this(found));
                let cover = later.find(|found| self.mountpoint.starts_with(&found.mountpoint));
                cover.map_or(Ok(true), |by| Err(covered(by)))
            }
            Some(top) if here.any(is_this) => Err(covered(top)),
            _ => Ok(false),
        }
    }

    /// Unmounts it where it is although nobody mounted it there: a folder above it got another name.
    fn unmount_where_it_was_moved(&self, force: bool) -> Result<()> {
        let all = mountinfo::all();
        let own = |found: &&mountinfo::MountInfo| found.is_ours() && Some(&found.device) == self.device.as_ref();
        for found in all.iter().rev().filter(own) {
            let place = &found.mountpoint;
            if self.direct { self.unmount_directly(place, force)? } else { self.unmount_with_helper(place, force)? }
        }
        Ok(())
    }

    /// Has the kernel bring pages to us that were changed through mappings: somebody may keep the file system alive in
    /// another name space, who is cut off then. Whether it was done or not, it is over after `limit`, or when others
    /// ask all the time after `quiet`. Returns whether all of it has come.
    fn write_back(&self, limit: Duration, quiet: Duration) -> bool {
        let mountpoint = self.mountpoint.clone();
        let write = move || {
            let synced = File::open(&mountpoint).and_then(|root| Ok(rustix::fs::syncfs(&root)?));
            if let Err(error) = synced {
                tracing::debug!("writing back {}: {error}", mountpoint.display());
            }
        };
        if limit == Duration::MAX {
            write();
            return true;
        }
        let begin = Instant::now();
        let (done, end) = std::sync::mpsc::channel();
        // One that waits for devices ends with the connection.
        std::thread::spawn(move || {
            write();
            let _ = done.send(());
        });
        let mut written = end.recv_timeout(limit).is_ok();
        let asked = Instant::now();
        // The kernel (6.16) has asked for all of it to be written then, and does not wait for the answers.
        while written && self.device.as_deref().and_then(cut::unanswered).is_some_and(|unanswered| unanswered > 0) {
            written = begin.elapsed() < limit && asked.elapsed() < quiet;
            std::thread::sleep(Duration::from_millis(1));
        }
        written
    }

    /// Waits until the serving threads have ended. A connection that lives on although nothing is mounted here any more
    /// is cut after `let_go`: somebody keeps it in another name space, or has a file open that was unmounted lazily.
    fn wait_for_the_end(&self, session: &Session, let_go: Duration) -> Result<()> {
        let begin = Instant::now();
        let is_connected = || self.kernel.get().is_some_and(Kernel::is_connected);
        let mut pause = Duration::from_micros(100);
        let mut cut = false;
        while !session.is_finished() {
            if !cut && begin.elapsed() >= let_go && is_connected() {
                cut = true;
                tracing::warn!("{} is kept elsewhere; its connection is cut", self.mountpoint.display());
                if let Err(error) = self.abort() {
                    tracing::warn!("cutting the connection of {}: {error}", self.mountpoint.display());
                }
            }
            if begin.elapsed() >= END_WAIT {
                return Err(FuseError::StillMounted(self.mountpoint.clone()));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    fn abort(&self) -> io::Result<()> {
        match (&self.device, self.kernel.get()) {
            (Some(device), Some(kernel)) => cut::cut(device, kernel),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn unmount_directly(&self, place: &Path, force: bool) -> Result<()> {
        // Detaching alone would let open files work on; cutting the connection makes the engine's side quiet too.
        let flags = if force { UnmountFlags::FORCE | UnmountFlags::DETACH } else { UnmountFlags::empty() };
        let mut unmounted = rustix::mount::unmount(place, flags);
        // Somebody may hold it for a moment only: who looks through all mounts, or a program that starts another, which
        // has its files until it runs.
        for pause in BUSY_PAUSES {
            if unmounted != Err(Errno::BUSY) {
                break;
            }
            std::thread::sleep(pause);
            unmounted = rustix::mount::unmount(place, flags);
        }
        match unmounted {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(FuseError::Busy(self.mountpoint.clone())),
            // Not mounted any more: somebody was faster. That the server ends is waited for all the same.
            Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(self.unmount_failed(error.into())),
        }
    }

    fn unmount_with_helper(&self, place: &Path, force: bool) -> Result<()> {
        let mut command = Command::new(HELPER);
        command.arg("-u").args(force.then_some("-z")).arg("--").arg(place);
        let started = command.output();
        let output = started.map_err(|error| {
            self.unmount_failed(io::Error::other(format!("cannot start {HELPER}: {}", start_advice(&error))))
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if said.contains("busy") {
            return Err(FuseError::Busy(self.mountpoint.clone()));
        }
        Err(self.unmount_failed(io::Error::other(said)))
    }

    fn unmount_failed(&self, source: io::Error) -> FuseError {
        FuseError::Unmount { mountpoint: self.mountpoint.clone(), source }
    }
}
