//! What a mount is told and asked for, whoever serves it: sizes, capabilities, how long the kernel may trust answers.
//!
//! A file system that is to be compared with ours, transport for transport, takes its terms from here.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::time::Duration;

use platter_transport::{Config, InitFlags, OpenFlags};
use platter_vfs::{Caching, Opening};

/// Largest request of either direction, bytes.
pub const REQUEST_MAX: u32 = 1 << 20;
/// How long the kernel may trust names: nobody but it changes them.
pub const ENTRY_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the kernel may trust attributes of a file at rest.
pub const ATTR_TTL: Duration = Duration::from_secs(3600);

/// Requests that nobody waits for (readahead) in flight.
const BACKGROUND_MAX: u16 = 64;
/// How much the kernel reads ahead of a sequential reader (as root; else the kernel's default stands), KiB.
const READAHEAD_KIB: u32 = 4 << 10;

/// Flags of open(2): for what, and their values.
const O_ACCMODE: i32 = 0o3;
const O_RDONLY: i32 = 0o0;
const O_WRONLY: i32 = 0o1;
const O_APPEND: i32 = 0o2000;
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// What a file is opened for with these flags of open(2).
pub(crate) fn opening(flags: i32) -> Opening {
    let how = flags & O_ACCMODE;
    let (appends, direct) = (flags & O_APPEND != 0, flags & O_DIRECT != 0);
    Opening { reads: how != O_WRONLY, writes: how != O_RDONLY, appends, direct }
}

/// Past the page cache. What it keeps from before is as good as ever: the kernel drops what is written over.
const PAST_CACHE: OpenFlags =
    OpenFlags(OpenFlags::KEEP_CACHE.0 | OpenFlags::DIRECT_IO.0 | OpenFlags::PARALLEL_DIRECT_WRITES.0);

/// How the kernel is told to use its page cache for an open file.
pub(crate) fn open_flags(caching: Caching) -> OpenFlags {
    match caching {
        Caching::Kept => OpenFlags::KEEP_CACHE,
        Caching::Anew => OpenFlags::default(),
        Caching::Past => PAST_CACHE,
        // sendfile(2) and mappings read from there all the same.
        Caching::PastEmptied => OpenFlags(PAST_CACHE.0 & !OpenFlags::KEEP_CACHE.0),
    }
}

/// How a file that nobody else has open is opened with these `flags`, where mappings do not stand in the way.
pub fn how_alone(flags: i32) -> OpenFlags {
    open_flags(Caching::alone(opening(flags)))
}

/// What is agreed on with the kernel. `threads`: how many serve requests, 0 takes a number that suits the machine;
/// `posix_acl`: whether files have access lists.
pub fn config(threads: usize, posix_acl: bool) -> Config {
    let wanted = InitFlags::ASYNC_READ
        | InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::HAS_IOCTL_DIR
        // Contents change through the kernel only, so it need not guess from times when to drop its pages.
        | InitFlags::EXPLICIT_INVAL_DATA
        // Otherwise the kernel asks for capabilities before each write.
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        // Without it, what is written past the page cache could not be mapped meanwhile.
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        // Access is checked by the kernel (`default_permissions`): all that it takes.
        | InitFlags::ALLOW_IDMAP
        // Offered only where the machine's owner allows it (/sys/module/fuse/parameters/enable_uring).
        | InitFlags::OVER_IO_URING;
    // The kernel checks access by the lists; what new files inherit is decided here, so the umask is too.
    let lists = InitFlags::POSIX_ACL | InitFlags::DONT_MASK;
    // Threads wait while the engine works for them, so a few more than there are processors keep it busy.
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Config {
        threads: if threads > 0 { threads } else { (2 * processors).clamp(4, 16) },
        wanted: if posix_acl { wanted | lists } else { wanted },
        request_max: REQUEST_MAX,
        readahead_max: REQUEST_MAX,
        background_max: BACKGROUND_MAX,
    }
}

/// What mount(2) is told beside source, type and flags, for a mount that `device` serves; `shared`: whether users other
/// than the one who mounts may enter.
pub fn mount_data(device: &impl AsRawFd, shared: bool) -> CString {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let shared = if shared { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={REQUEST_MAX}{shared}",
        device.as_raw_fd()
    );
    CString::new(data).expect("no zero byte in it")
}

/// Raises the kernel's readahead for the mount with the device number `device` (`major:minor`) beyond what the protocol
/// can ask for. A failure only costs speed.
pub fn set_readahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READAHEAD_KIB.to_string()) {
        tracing::debug!("setting {path}: {error}");
    }
}
