//! What programmers do to a file system, run by `make test-big`: the Linux kernel's sources, and building Platter
//! itself.
//!
//! `PLATTER_KERNEL_SOURCES` names an archive of the kernel's sources; without it that of Debian's package linux-source
//! in `/usr/src` is taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use platter_itest::{Lab, Run, judge, rsync, zdb};

const LIMIT: Duration = Duration::from_secs(7200);

/// Runs a program in `directory`; printed with its time.
#[track_caller]
fn timed(directory: &Path, program: &str, args: &[&str]) -> Run {
    let start = Instant::now();
    let run = Run::of(Command::new(program).args(args).current_dir(directory), LIMIT);
    println!("{program} {}: {:.1} s", args.join(" "), start.elapsed().as_secs_f64());
    run
}

fn kernel_sources() -> Option<PathBuf> {
    if let Some(archive) = std::env::var_os("PLATTER_KERNEL_SOURCES") {
        return Some(archive.into());
    }
    let found = fs::read_dir("/usr/src").ok()?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("linux-source-") && name.ends_with(".tar.xz"))
    });
    if found.is_none() {
        judge::skip("the kernel's sources", "no linux-source-*.tar.xz in /usr/src, nor PLATTER_KERNEL_SOURCES");
    }
    found
}

/// Gives all folders one time: tar leaves some that it comes back to with the time of unpacking, anywhere.
#[track_caller]
fn same_folder_times(tree: &Path) {
    timed(tree, "find", &[".", "-type", "d", "-exec", "touch", "-d", "@1700000000.123456789", "{}", "+"]).ok();
}

/// Hash of the tree as an archive, which has modes, owners and times too.
#[track_caller]
fn archive_hash(tree: &Path) -> String {
    let script = "tar --sort=name --numeric-owner -cf - . | sha256sum";
    timed(tree, "bash", &["-o", "pipefail", "-c", script]).ok().stdout
}

#[test]
#[ignore = "takes minutes: make test-big"]
fn the_kernels_sources_survive_all_that_programmers_do() {
    let Some(archive) = kernel_sources() else { return };
    if ["rsync", "git", "tar", "xz"].into_iter().any(|program| judge::need(program).is_none()) {
        return;
    }
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(7, 2048);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2 d3 d4 d5 d6");
    let mount = lab.create_fs("-o compression=lz4", "tank/src");
    let (plain, ours) = (lab.tmp().join("linux"), mount.join("linux"));
    for tree in [&plain, &ours] {
        fs::create_dir(tree).expect("a folder");
        timed(tree, "tar", &["-xJf", archive.to_str().expect("UTF-8"), "--strip-components=1"]).ok();
        same_folder_times(tree);
    }
    let files = Run::of(Command::new("bash").arg("-c").arg("find . | wc -l").current_dir(&plain), LIMIT).ok();
    println!("{} files and folders", files.stdout.trim());
    rsync::assert_no_difference(&lab, &plain, &ours);
    assert_eq!(archive_hash(&plain), archive_hash(&ours));

    let identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"];
    timed(&ours, "git", &["init", "-q"]).ok();
    // Debian's archive ignores everything but its own packaging.
    timed(&ours, "git", &["add", "-A", "-f"]).ok();
    timed(&ours, "git", &[&identity[..], &["commit", "-q", "-m", "all"]].concat()).ok();
    timed(&mount, "git", &["clone", "-q", "--no-local", "linux", "clone"]).ok();
    timed(&mount.join("clone"), "git", &["fsck", "--full"]).ok();
    assert_eq!(timed(&mount.join("clone"), "git", &["status", "--porcelain"]).ok().stdout, "");
    fs::remove_dir_all(mount.join("clone")).expect("the clone can be removed");
    fs::remove_dir_all(ours.join(".git")).expect("the repository can be removed");
    same_folder_times(&ours);

    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    rsync::assert_no_difference(&lab, &plain, &ours);
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    let start = Instant::now();
    fs::remove_dir_all(&ours).expect("the tree can be removed");
    println!("removed: {:.1} s", start.elapsed().as_secs_f64());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
#[ignore = "takes minutes: make test-big"]
fn platter_is_built_on_a_mount_of_platter() {
    if ["git", "cargo"].into_iter().any(|program| judge::need(program).is_none()) {
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository");
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(3, 6144);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs("-o compression=lz4", "tank/work");
    let clone = mount.join("platter");
    timed(&mount, "git", &["clone", "-q", "--no-local", repository.to_str().expect("UTF-8"), "platter"]).ok();
    timed(&clone, "git", &["fsck", "--full"]).ok();
    let build = |what: &str| {
        let start = Instant::now();
        let mut command = Command::new("cargo");
        command.args(["build", "--package", "platter"]).current_dir(&clone).env_remove("CARGO_TARGET_DIR");
        let run = Run::of(&mut command, LIMIT).ok();
        println!("{what}: {:.1} s", start.elapsed().as_secs_f64());
        run
    };
    build("cargo build").says("Finished");
    let version = |platter: &Path| Run::of(Command::new(platter).arg("--version"), LIMIT).ok().stdout;
    let built = clone.join("target/debug/platter");
    let before = version(&built);
    assert!(before.starts_with("platter "), "{before:?}");

    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert_eq!(version(&built), before);
    // Times are as they were: nothing has to be built again.
    build("cargo build once more").says("Finished").says_not("Compiling");
    timed(&clone, "git", &["status", "--porcelain"]).ok();
    lab.export("tank");
}
