//! A mount whose requests come over io_uring, on kernels that have it: the same promises as through `/dev/fuse`.
//!
//! The kernel's switch is the machine's. It is turned on for these tests and put back; other tests' mounts that are
//! made meanwhile are served that way too, which must make no difference to them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use platter_itest::load::{Promises, Writer};
use platter_itest::{Lab, data, judge, zdb};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// One test at a time turns the switch.
static TURNED: Mutex<()> = Mutex::new(());

/// The switch is on as long as this lives.
struct Rings {
    before: String,
    _turn: MutexGuard<'static, ()>,
}

impl Rings {
    fn on() -> Option<Self> {
        let turn = TURNED.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(SWITCH).ok();
        let turned = before.filter(|_| fs::write(SWITCH, "Y").is_ok());
        if turned.is_none() {
            judge::skip("FUSE over io_uring", "this kernel has none (Linux 6.14), or we are not root");
        }
        turned.map(|before| Self { before, _turn: turn })
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.before.trim());
    }
}

/// The names of the daemon's threads.
fn threads(lab: &Lab) -> Vec<String> {
    let tasks = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
    lab.daemon_pids().into_iter().flat_map(tasks).map(|task| name(&task.path())).collect()
}

#[test]
fn a_mixed_load_keeps_its_promises() {
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(3, 512);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let threads = threads(&lab);
    assert!(threads.iter().any(|name| name.starts_with("fuse-near")), "no rings: {threads:?}");

    // As many at once as the places of a queue and more.
    let mut writers: Vec<_> =
        (0..12).map(|seed| Writer::new(mount.join(format!("w{seed}")), Promises::Synced, seed)).collect();
    for kill in 0..2 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            writers.iter_mut().for_each(|writer| {
                let stop = &stop;
                scope.spawn(move || writer.run(stop));
            });
            std::thread::sleep(Duration::from_millis(1500));
            lab.kill_daemon(kill == 0);
            stop.store(true, Ordering::Relaxed);
        });
        zdb::assert_clean(&lab.dev(), "tank");
        lab.revive("tank");
        writers.iter_mut().for_each(|writer| writer.check(&format!("kill {kill}")));
    }
    assert!(writers.iter().map(|writer| writer.acknowledged).sum::<u64>() > 100);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    writers.iter_mut().for_each(|writer| writer.check("after export and import"));
}

#[test]
fn large_and_small_requests_share_their_places() {
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 512);
    let mount = lab.create("-O recordsize=128K", "tank", "d0");
    let contents = data::random(7, 48 << 20);
    fs::write(mount.join("large"), &contents).expect("written");
    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (contents, path) = (&contents, mount.join("large"));
            scope.spawn(move || {
                let mut file = File::open(&path).expect("there");
                let mut found = Vec::new();
                file.read_to_end(&mut found).expect("readable");
                assert!(found == *contents, "reader {reader} got other data");
                let mut rng = data::Rng::new(reader);
                for _ in 0..200 {
                    let at = rng.below(contents.len() as u64 - 70_000) as usize;
                    let mut piece = vec![0; 1 + rng.below(70_000) as usize];
                    file.read_exact_at(&mut piece, at as u64).expect("readable");
                    assert!(piece == contents[at..at + piece.len()], "reader {reader} got other data at {at}");
                }
            });
        }
        for maker in 0..3 {
            let folder = mount.join(format!("small{maker}"));
            scope.spawn(move || {
                fs::create_dir(&folder).expect("made");
                for number in 0..300 {
                    fs::write(folder.join(format!("{number}")), [number as u8; 100]).expect("written");
                }
                for number in 0..300 {
                    let path = folder.join(format!("{number}"));
                    assert_eq!(fs::read(&path).expect("readable"), [number as u8; 100]);
                    fs::remove_file(path).expect("removed");
                }
                fs::remove_dir(folder).expect("empty");
            });
        }
    });
    // A value that is larger than what is copied, both ways.
    let path = mount.join("large");
    let value = data::text(3, 20_000);
    rustix::fs::setxattr(&path, "user.large", &value, rustix::fs::XattrFlags::empty()).expect("set");
    let mut found = vec![0; 65_536];
    let length = rustix::fs::getxattr(&path, "user.large", &mut found[..]).expect("there");
    assert!(found[..length] == value[..]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_mount_can_be_torn_away() {
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 256);
    let mount = lab.create("", "tank", "d0");
    let open = File::create(mount.join("open")).expect("made");
    lab.zfs("unmount tank").refused();
    lab.zfs("unmount -f tank").refused();
    // The kernel ends the connection, and then finds that the mount is busy.
    let forced = Command::new("umount").arg("-f").arg(&mount).output().expect("umount");
    assert!(!forced.status.success());
    assert!(open.write_at(b"gone", 0).is_err());
    drop(open);
    // The daemon notices that nobody asks it any more.
    let unmounted = || lab.zfs("get -H -o value mounted tank").ok().stdout.trim() == "no";
    assert!((0..600).any(|_| unmounted() || {
        std::thread::sleep(Duration::from_millis(50));
        false
    }));
    let left = threads(&lab);
    assert!(!left.iter().any(|name| name.starts_with("fuse-near") || name.starts_with("fuse-far")), "{left:?}");
    lab.zfs("mount tank").ok();
    assert!(mount.join("open").is_file());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Each mount had rings, with threads and places of its own, however many there were.
#[test]
fn of_many_mounts_the_first_have_rings_and_all_are_served() {
    const MOST: usize = 8;
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let near = || threads(&lab).iter().filter(|name| name.starts_with("fuse-near")).count();
    let each = near();
    let places: Vec<_> = (0..MOST + 2).map(|number| lab.create_fs("", &format!("tank/d{number}"))).collect();
    let all = near();
    assert!((each..=MOST * each).contains(&all), "{all} threads near a processor, {each} for one mount");
    for (seed, place) in places.iter().enumerate() {
        fs::write(place.join("file"), data::random(seed as u64, 3 << 20)).expect("written");
    }
    for (seed, place) in places.iter().enumerate() {
        assert!(fs::read(place.join("file")).expect("readable") == data::random(seed as u64, 3 << 20));
    }
    // Who goes leaves its rings to who comes.
    lab.zfs("destroy tank/d0").ok();
    lab.create_fs("", "tank/new");
    assert_eq!(near(), all);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
