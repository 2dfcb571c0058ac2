//! The suites that others wrote for POSIX file systems, on a mount: pjdfstest and fsx (both of crates.io, installed by
//! `make test`), and, by `make test-posix` only, fio, stress-ng, dbench and directories of a million entries.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::{Lab, Run, judge, zdb};

/// Operations and seeds of the long run, as promised; the short one is a sample of it.
const LONG: (u64, u64) = (1_000_000, 10);
const SHORT: (u64, u64) = (3_000, 3);

/// Most time for a suite at full length.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Tests of pjdfstest 0.2 that are not asked, with the reason it gives itself.
const SKIPPED: [(&str, &str); 2] = [
    // Asked in a process of their own.
    ("::erofs_", "allow_remount"),
    // pathconf(_PC_LINK_MAX) is answered by libc from a table of file systems that does not know FUSE.
    ("link::link_count_max", "Cannot get value for LINK_MAX"),
];

fn configuration(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/posix").join(name)
}

/// A program, found where the Makefile installs it (`TARGET/tools/bin`) or in `PATH`.
fn tool(name: &str) -> Option<PathBuf> {
    // TARGET/PROFILE/deps/test-HASH
    let target = std::env::current_exe().ok()?.ancestors().nth(3)?.to_path_buf();
    Some(target.join("tools/bin").join(name)).filter(|path| path.is_file()).or_else(|| judge::need(name))
}

/// A `mount` that serves pjdfstest's remounting: it must not hand FUSE mounts of type `fuse.zfs` to OpenZFS's helper
/// `mount.zfs` (the judge zdb brings it along), and waits while the kernel still releases files that were just closed
/// (FUSE does that after `close` returned, and a remount meanwhile is "busy").
fn patient_mount(lab: &Lab) -> PathBuf {
    let folder = lab.tmp().join("bin");
    fs::create_dir(&folder).expect("a folder");
    let script = "#!/bin/sh\nfor attempt in $(seq 50); do\n\
                  /bin/mount -i \"$@\" 2>/dev/null && exit 0\nsleep 0.1\ndone\nexec /bin/mount -i \"$@\"\n";
    let program = folder.join("mount");
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    folder
}

/// How many tests passed in this run, in which none may fail and none but `skipped` may be left out.
#[track_caller]
fn judged(run: &Run, skipped: &[(&str, &str)]) -> usize {
    let lines: Vec<&str> = run.stdout.lines().collect();
    let is = |word: &'static str| lines.iter().enumerate().filter(move |(_, line)| line.trim_end().ends_with(word));
    let after = |at: usize| lines.get(at + 1).copied().unwrap_or_default();
    let failed: Vec<_> = is("FAILED").map(|(at, line)| format!("{line}: {}", after(at))).collect();
    assert!(failed.is_empty(), "pjdfstest finds:\n{}", failed.join("\n"));
    for (at, line) in is("skipped") {
        let name = line.split_whitespace().next().unwrap_or_default();
        let known = skipped.iter().any(|(known, why)| name.contains(known) && after(at).contains(why));
        assert!(known, "{name} is skipped: {}", after(at));
    }
    assert_eq!(run.code, 0, "{run}");
    is(" ok").count()
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
    for (folder, mode) in [(lab.root(), 0o755), (&lab.root().join("mnt"), 0o755), (&lab.tmp(), 0o777), (&other, 0o777)]
    {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("permissions");
    }
    let path = std::env::join_paths(
        std::iter::once(patient_mount(&lab))
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let path = path.expect("paths without colons");
    let run = |configuration: &Path, pattern: &[&str]| {
        let mut command = lab.command(&program);
        command.env("PATH", &path).arg("-c").arg(configuration).arg("-p").arg(&mount).arg("-s").arg(&other);
        Run::of(command.arg("--").args(pattern), Duration::from_secs(400))
    };
    // Some of its tests forget to close files, after which nothing can be remounted read-only: those that do run in a
    // process of their own.
    let all = fs::read_to_string(configuration("pjdfstest.toml")).expect("a file");
    let without = lab.tmp().join("no-remount.toml");
    fs::write(&without, all.replace("allow_remount = true", "allow_remount = false")).expect("a file");
    let passed =
        [judged(&run(&configuration("pjdfstest.toml"), &["erofs"]), &[]), judged(&run(&without, &[]), &SKIPPED)];
    assert!(passed[0] >= 13 && passed[1] >= 384, "too few tests ran: {passed:?}");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The configuration without what fsx 0.3.2 itself does not survive for long:
/// - it never unmaps what it maps for reading, so a run becomes slower with each of these (a file made shorter
///   invalidates them all) and ends when the kernel gives no more; what it maps for writing it reads, too;
/// - once in some hundred thousand operations it asks `posix_fallocate` for 0 bytes, which is EINVAL, and gives up.
fn lasting(configuration: &str) -> String {
    let shorter = configuration.replace("mapread = 10\n", "mapread = 0.25\n");
    shorter.replace("posix_fallocate = 5\n", "posix_fallocate = 0\n")
}

/// All seeds, some at a time: each mostly waits for the kernel.
fn fsx((operations, seeds): (u64, u64), limit: Duration) {
    const AT_A_TIME: u64 = 4;
    let Some(program) = tool("fsx") else { return };
    let Some(lab) = Lab::open_big(limit) else { return };
    lab.disks(3, 512);
    let mount = lab.create("-O compression=lz4", "tank", "raidz d0 d1 d2");
    for seed in 1..=seeds {
        // A small record size has many blocks in fsx's 256 KiB, a large one has all in one.
        let record_size = ["128K", "4K", "1M"][(seed % 3) as usize];
        lab.zfs(&format!("create -o recordsize={record_size} tank/fs{seed}")).ok();
    }
    let plain = fs::read_to_string(configuration("fsx.toml")).expect("a file");
    let configured = lab.tmp().join("fsx.toml");
    fs::write(&configured, if operations > SHORT.0 { lasting(&plain) } else { plain }).expect("a file");
    let run = |seed: u64| {
        let file = mount.join(format!("fs{seed}/file"));
        let mut command = lab.command(&program);
        command.args(["-q", "-f"]).arg(&configured).arg("-P").arg(lab.tmp());
        command.args(["-S", &seed.to_string(), "-N", &operations.to_string()]).arg(file);
        Run::of(&mut command, limit).ok().says("All operations completed");
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for lane in 1..=AT_A_TIME {
            scope.spawn(move || (lane..=seeds).step_by(AT_A_TIME as usize).for_each(run));
        }
    });
    println!("fsx: {seeds} seeds of {operations} operations in {:.0} s", start.elapsed().as_secs_f64());
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn fsx_reads_back_what_it_wrote() {
    fsx(SHORT, Duration::from_secs(600));
}

#[test]
#[ignore = "takes half an hour: make test-posix"]
fn fsx_reads_back_what_it_wrote_over_a_million_operations() {
    fsx(LONG, LIMIT);
}

/// What of stress-ng's class `filesystem` does not go through the file system that it is pointed at.
const NOT_OURS: &str = "bind-mount,binderfs,dup,eventfd,null,procfs,ramfs,sysfs,tun,urandom,zero";

#[test]
#[ignore = "takes minutes: make test-posix"]
fn stress_ng_finds_no_fault() {
    let Some(program) = judge::need("stress-ng") else { return };
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(3, 2048);
    let mount = lab.create("-O compression=lz4 -O acltype=posix", "tank", "raidz d0 d1 d2");
    let mut command = lab.command(program);
    command.args(["--class", "filesystem", "--sequential", "2", "--timeout", "4", "--verify", "--metrics-brief"]);
    command.args(["--exclude", NOT_OURS, "--temp-path"]).arg(&mount);
    let run = Run::of(&mut command, LIMIT);
    let faults: Vec<&str> =
        run.stdout.lines().chain(run.stderr.lines()).filter(|line| line.contains("fail:")).collect();
    println!("{}{}", run.stdout, run.stderr);
    assert!(faults.is_empty(), "stress-ng finds:\n{}", faults.join("\n"));
    run.ok();
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
#[ignore = "takes a minute: make test-posix"]
fn dbench_finds_no_fault() {
    let Some(program) = judge::need("dbench") else { return };
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(3, 2048);
    let mount = lab.create("-O compression=lz4", "tank", "raidz d0 d1 d2");
    for clients in ["1", "8"] {
        let mut command = lab.command(&program);
        command.args(["-t", "20", "-D"]).arg(&mount).arg(clients);
        let run = Run::of(&mut command, LIMIT).ok().says("Throughput").says_not("ERROR").says_not("failed");
        println!("{}", run.stdout.lines().filter(|line| line.contains("Throughput")).collect::<String>());
    }
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
#[ignore = "takes minutes: make test-posix"]
fn a_directory_of_a_million_entries_is_like_any_other() {
    const ENTRIES: u32 = 1_000_000;
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(1, 8192);
    let mount = lab.create("", "tank", "d0");
    let folder = mount.join("many");
    fs::create_dir(&folder).expect("a folder");
    let rate = |what: &str, start: Instant| {
        println!("{what}: {:.0} entries/s", f64::from(ENTRIES) / start.elapsed().as_secs_f64());
    };
    let name = |number: u32| folder.join(format!("entry-{number}"));
    let start = Instant::now();
    for number in 0..ENTRIES {
        fs::File::create_new(name(number)).expect("create");
    }
    rate("created", start);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    let start = Instant::now();
    let mut seen = vec![false; ENTRIES as usize];
    for entry in fs::read_dir(&folder).expect("list") {
        let entry = entry.expect("an entry").file_name();
        let number: usize =
            entry.to_str().and_then(|name| name.strip_prefix("entry-")?.parse().ok()).expect("our name");
        assert!(!std::mem::replace(&mut seen[number], true), "{number} is listed twice");
    }
    assert!(seen.into_iter().all(|seen| seen), "not all are listed");
    rate("listed", start);
    let start = Instant::now();
    for number in 0..ENTRIES {
        assert!(
            fs::metadata(name((u64::from(number) * 514_229 % u64::from(ENTRIES)) as u32)).expect("found").is_file()
        );
    }
    rate("looked up", start);
    let start = Instant::now();
    fs::remove_dir_all(&folder).expect("removed");
    rate("removed", start);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
