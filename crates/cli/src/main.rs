//! The `platter` binary. It answers as `zpool`, `zfs` and `mount.zfs` too: by its first word (`platter zpool …`) or by
//! the name it is called with.
#![forbid(unsafe_code)]

mod disks;
mod faults;
mod getopt;
mod ids;
mod json;
mod mount_snapshot;
mod mount_zfs;
mod nice;
mod notify;
mod out;
mod paint;
mod platter;
mod props;
mod replicate;
mod schedule;
mod session;
mod sink;
mod stream;
mod system_text;
mod table;
mod txgs;
mod usage;
mod volume;
mod zfs;
mod zpool;

use std::process::ExitCode;

/// Aligned blocks without a search, and without clearing what the kernel has cleared.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ends a command with a core dump where `ZFS_ABORT` asks for it (`zpool(8)`, `zfs(8)`: to look for leaks).
fn with_core_dump(code: u8) -> u8 {
    if std::env::var_os("ZFS_ABORT").is_some() {
        out::outln!("dumping core by request");
        std::process::abort();
    }
    code
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let called = words.next().unwrap_or_default();
    let name = std::path::Path::new(&called).file_name().map(|name| name.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    ExitCode::from(match (name.as_deref(), words.split_first()) {
        (Some("zpool"), _) => with_core_dump(zpool::main(&words)),
        (Some("zfs"), _) => with_core_dump(zfs::main(&words)),
        (Some("mount.zfs" | "mount.fuse.zfs"), _) => mount_zfs::main(&words),
        (_, Some((first, rest))) if first == "zpool" => with_core_dump(zpool::main(rest)),
        (_, Some((first, rest))) if first == "zfs" => with_core_dump(zfs::main(rest)),
        (_, Some((first, rest))) if first == "mount.zfs" => mount_zfs::main(rest),
        _ => platter::main(),
    })
}
