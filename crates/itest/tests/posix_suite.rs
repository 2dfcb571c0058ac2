//! The suites that others wrote for POSIX file systems, on a mount: pjdfstest and fsx (both on crates.io, installed by
//! `.ci/run judges` or `cargo install pjdfstest fsx`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_itest::{Lab, Run, judge, zdb};

/// Operations and seeds of the long run, as promised; the short one is a sample of it.
const LONG: (u64, u64) = (1_000_000, 10);
const SHORT: (u64, u64) = (3_000, 3);

/// Tests of pjdfstest 0.2 that cannot be asked, with the reason it gives itself.
const SKIPPED: [(&str, &str); 1] = [
    // pathconf(_PC_LINK_MAX) is answered by libc from a table of file systems that does not know FUSE.
    ("link::link_count_max", "Cannot get value for LINK_MAX"),
];

fn configuration(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/posix").join(name)
}

/// A program, found in `PATH` or where cargo installs.
fn tool(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let installed = home.map(|home| home.join("bin").join(name)).filter(|path| path.is_file());
    installed.or_else(|| judge::need(name))
}

/// A `mount` that serves pjdfstest's remounting: it must not hand FUSE mounts of type `fuse.zfs` to OpenZFS's helper
/// `mount.zfs` (the judge zdb brings it along), and waits while the kernel still releases files that were just closed
/// (FUSE does that after `close` returned, and a remount meanwhile is "busy").
fn patient_mount(lab: &Lab) -> PathBuf {
    let folder = lab.tmp().join("bin");
    fs::create_dir(&folder).expect("a folder");
    let script = "#!/bin/sh\nfor attempt in 1 2 3 4 5 6 7 8 9 10; do\n\
                  /bin/mount -i \"$@\" 2>/dev/null && exit 0\nsleep 0.1\ndone\nexec /bin/mount -i \"$@\"\n";
    let program = folder.join("mount");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    folder
}

#[test]
fn pjdfstest_finds_nothing() {
    let Some(program) = tool("pjdfstest") else { return };
    if !rustix::process::geteuid().is_root() {
        return judge::skip("pjdfstest", "it switches users, which takes root");
    }
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    let mount = lab.create("", "tank", "d0");
    let other = lab.tmp().join("other");
    fs::create_dir(&other).expect("a folder");
    // Its other users must be able to come here.
    for folder in [lab.root(), &lab.root().join("mnt"), &lab.tmp(), &other] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("permissions");
    }
    let mut command = lab.command(program);
    let path = std::env::join_paths(
        std::iter::once(patient_mount(&lab))
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.env("PATH", path.expect("paths without colons"));
    command.arg("-c").arg(configuration("pjdfstest.toml")).arg("-p").arg(&mount).arg("-s").arg(&other);
    let run = Run::of(&mut command, Duration::from_secs(400));

    let lines: Vec<&str> = run.stdout.lines().collect();
    let is = |word: &'static str| lines.iter().enumerate().filter(move |(_, line)| line.trim_end().ends_with(word));
    let failed: Vec<_> =
        is("FAILED").map(|(at, line)| format!("{line}: {}", lines.get(at + 1).unwrap_or(&""))).collect();
    assert!(failed.is_empty(), "pjdfstest finds:\n{}", failed.join("\n"));
    for (at, line) in is("skipped") {
        let name = line.split_whitespace().next().unwrap_or_default();
        let reason = lines.get(at + 1).unwrap_or(&"");
        let known = SKIPPED.iter().any(|(known, why)| *known == name && reason.contains(why));
        assert!(known, "{name} is skipped: {reason}");
    }
    assert!(is(" ok").count() >= 390, "too few tests ran\n{run}");
    run.ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

fn fsx((operations, seeds): (u64, u64), limit: Duration) {
    let Some(program) = tool("fsx") else { return };
    let Some(lab) = Lab::open_big(limit) else { return };
    lab.disks(3, 512);
    let mount = lab.create("-O compression=lz4", "tank", "raidz d0 d1 d2");
    for seed in 1..=seeds {
        // A small record size has many blocks in fsx's 256 KiB, a large one has all in one.
        let record_size = ["128K", "4K", "1M"][(seed % 3) as usize];
        lab.zfs(&format!("create -o recordsize={record_size} tank/fs{seed}")).ok();
        let mut command = lab.command(&program);
        command.args(["-q", "-f"]).arg(configuration("fsx.toml")).arg("-P").arg(lab.tmp());
        command.args(["-S", &seed.to_string(), "-N", &operations.to_string()]);
        command.arg(mount.join(format!("fs{seed}/file")));
        Run::of(&mut command, limit).ok().says("All operations completed");
    }
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn fsx_reads_back_what_it_wrote() {
    fsx(SHORT, Duration::from_secs(600));
}

#[test]
#[ignore = "takes an hour: make test-big"]
fn fsx_reads_back_what_it_wrote_over_a_million_operations() {
    fsx(LONG, Duration::from_secs(4 * 3600));
}
