//! A pool last used by another host needs `-f`; with `multihost` on, one that another host is using is not opened at
//! all. The other host is a second daemon with another host id.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use platter_itest::{Lab, Overlay, Run, Tree, binary, damage, data, judge, zdb};

/// A second daemon on the devices of a lab.
struct OtherHost<'a> {
    lab: &'a Lab,
    home: PathBuf,
    hostid: &'static str,
    /// Whether it has a network of its own, as another host has: nothing else tells daemons of one host apart.
    is_apart: bool,
}

impl<'a> OtherHost<'a> {
    fn of(lab: &'a Lab) -> OtherHost<'a> {
        OtherHost { lab, home: lab.tmp().join("other-host"), hostid: "00bab10c", is_apart: false }
    }

    fn run(&self, words: &str) -> Run {
        let mut command = match self.is_apart {
            true => self.lab.command("unshare"),
            false => self.lab.command(binary::platter()),
        };
        if self.is_apart {
            command.arg("-n").arg(binary::platter());
        }
        command.args(words.split_whitespace()).env("PLATTER_HOME", &self.home);
        command.env("PLATTER_HOSTID", self.hostid).env("PLATTER_MULTIHOST_INTERVAL", "100");
        Run::of(&mut command, Duration::from_secs(60))
    }
}

impl Drop for OtherHost<'_> {
    fn drop(&mut self) {
        let _ = self.run("daemon stop");
    }
}

/// Ends the lab's own daemon as a crash of its host would.
fn crash(lab: &Lab) {
    for pid in lab.daemon_pids() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    while !lab.daemon_pids().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for mount in lab.mounts() {
        let _ = Command::new("umount").arg("-l").arg(mount).status();
    }
}

/// Creates a pool on the lab's own host, whose multihost writes are frequent.
fn create(lab: &Lab, options: &str) -> Tree {
    let mount = lab.mnt("tank");
    let words = format!("zpool create {options} -m {} tank mirror d0 d1", mount.display());
    let mut create = lab.command(binary::platter());
    create.args(words.split_whitespace()).env("PLATTER_MULTIHOST_INTERVAL", "100").env("PLATTER_HOSTID", "1234abcd");
    Run::of(&mut create, Duration::from_secs(60)).ok();
    lab.wait_mounted(&mount);
    fs::write(mount.join("file"), data::mixed(1, 500_000, 20_000)).expect("a file");
    lab.zpool("sync tank").ok();
    Tree::of(&mount)
}

#[test]
fn a_pool_last_used_by_another_host_needs_force() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let tree = create(&lab, "");
    crash(&lab);
    let other = OtherHost::of(&lab);
    let import = format!("zpool import -d {}", lab.dev().display());
    other.run(&import).ok().says("last accessed by another system").says("'-f' flag");
    let refused = other.run(&format!("{import} tank")).refused();
    refused.says("previously in use from another system").says("hostid=1234abcd").says("zpool import -f");
    other.run(&format!("{import} -f tank")).ok();
    lab.wait_mounted(&lab.mnt("tank"));
    tree.assert_same(&Tree::of(&lab.mnt("tank")), "on the other host");
    other.run("zpool export tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
    // What was exported belongs to nobody.
    let _ = fs::remove_file(lab.home().join("pools.json"));
    lab.import("", "tank");
}

/// The list said that it could be imported with `-f`.
#[test]
fn a_pool_that_another_host_writes_is_listed_as_in_use() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    create(&lab, "-o multihost=on");
    let list = OtherHost::of(&lab).run(&format!("zpool import -d {}", lab.dev().display())).ok();
    let list = list.says("currently imported by another system").says("(hostid=1234abcd)");
    assert!(!list.stdout.contains("can be imported"), "{list}");
    lab.export("tank");
}

/// A second daemon opened the pool for reading without a word, saw blocks change, and called that permanent errors.
#[test]
fn a_pool_that_another_daemon_writes_is_read_only_by_force() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    create(&lab, "");
    // Another daemon of the same host.
    let mut other = OtherHost::of(&lab);
    other.hostid = "1234abcd";
    let import = format!("zpool import -d {}", lab.dev().display());
    other.run(&import).ok().says("currently imported by another process").says("pid").says("UNAVAIL");
    let read = format!("{import} -o readonly=on -R {}", lab.tmp().join("there").display());
    other.run(&format!("{read} tank")).refused().says("pool is in use").says("pid").says("-f -o readonly=on");
    other.run(&format!("{import} -f tank")).refused().says("in use");
    other.run(&format!("{read} -f tank")).ok();
    let seen = lab.tmp().join("there").join(lab.mnt("tank").strip_prefix("/").expect("absolute"));
    lab.wait_mounted(&seen);
    for round in 0..12 {
        for number in 0..8 {
            let bytes = data::random(round * 8 + number, 3 << 20);
            fs::write(lab.mnt("tank").join(format!("{number}")), bytes).expect("a file");
        }
        fs::write(lab.mnt("tank").join("file"), data::mixed(round, 500_000, 20_000)).expect("a file");
        lab.zpool("sync tank").ok();
        // As it was, or damaged: nothing hangs, and nothing is said of the pool.
        let _ = fs::read(seen.join("file"));
    }
    other.run("zpool status tank").ok().says("No known data errors").says_not("Permanent errors");
    other.run("zpool export tank").ok();
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    other.run(&import).ok().says("can be imported").says_not("another process");
}

#[test]
fn a_pool_with_multihost_is_not_opened_while_another_host_uses_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let tree = create(&lab, "-o multihost=on");
    assert_eq!(lab.zpool("get -H -o value,source multihost tank").ok().stdout, "on\tlocal\n");
    if let Some(program) = judge::need("zdb") {
        std::thread::sleep(Duration::from_millis(500));
        let labels = Run::of(Command::new(program).arg("-lu").arg(lab.disk(0)), Duration::from_secs(60)).ok();
        labels.says("mmp_write = 100").says("mmp_fail = 10");
    }
    let other = OtherHost::of(&lab);
    let import = format!("zpool import -d {} -N", lab.dev().display());
    // Force is no way around it.
    let refused = other.run(&format!("{import} -f tank")).refused();
    refused.says("pool is imported on").says("0x1234abcd").says("Export the pool on the other system");
    crash(&lab);
    other.run(&format!("{import} tank")).refused().says("zpool import -f");
    other.run(&format!("{import} -f tank")).ok();
    other.run("zpool set multihost=off tank").ok();
    other.run("zpool export tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
    let _ = fs::remove_file(lab.home().join("pools.json"));
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "back on the first host");
}

fn signal(lab: &Lab, signal: &str) {
    for pid in lab.daemon_pids() {
        let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
    }
}

/// A daemon that stood still for longer than the limit, and whose pool another host had taken meanwhile, went on with
/// the group and the log records that it had begun: nothing looked at the time before a write.
#[test]
fn a_daemon_that_stood_still_writes_nothing_after_another_host_took_its_pool() {
    let Some(lab) = Lab::open() else { return };
    // Two files that no lock shows to be the same, as on a host that is another one.
    let Some(overlay) = Overlay::new() else { return judge::skip("overlayfs", "mount fails") };
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success()) {
        return judge::skip("a network name space", "unshare fails here");
    }
    for name in ["d0", "d1"] {
        let file = overlay.merged().join(name);
        fs::File::create(&file).and_then(|made| made.set_len(96 << 20)).expect("a sparse file");
        std::os::unix::fs::symlink(&file, lab.dev().join(name)).expect("a link");
    }
    create(&lab, "-o multihost=on");
    let mount = lab.mnt("tank");
    let script = "i=0; while :; do i=$((i+1)); dd if=/dev/urandom of=$0/busy$((i%8)) bs=64k count=4 conv=fsync; done";
    let quiet = std::process::Stdio::null;
    let mut busy =
        Command::new("sh").args(["-c", script]).arg(&mount).stdout(quiet()).stderr(quiet()).spawn().expect("a shell");
    std::thread::sleep(Duration::from_secs(1));
    signal(&lab, "-STOP");
    let mut other = OtherHost::of(&lab);
    other.is_apart = true;
    let imported = other.run(&format!("zpool import -d {} -N -f tank", overlay.upper().display()));
    if imported.code != 0 {
        signal(&lab, "-CONT");
    }
    imported.ok();
    other.run("zpool set comment=theirs tank").ok();
    other.run("zpool export tank").ok();
    // What the kernel had been given has arrived by now. What waited in a queue of the daemon's must not follow.
    let left = damage::fingerprints(&[lab.disk(0), lab.disk(1)]);
    signal(&lab, "-CONT");
    std::thread::sleep(Duration::from_secs(5));
    let after = damage::fingerprints(&[lab.disk(0), lab.disk(1)]);
    let _ = busy.kill();
    assert_eq!(left, after, "the first host goes on writing after its pool was taken");
    assert_eq!(lab.health("tank"), "SUSPENDED");
    lab.zpool("clear tank").refused().says("imported on").says("meanwhile");
    crash(&lab);
    let _ = busy.wait();
    zdb::assert_clean(&overlay.merged(), "tank");
}
