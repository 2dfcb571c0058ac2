//! A mount whose requests come over io_uring, on kernels that have it: the same promises as through `/dev/fuse`.
//!
//! The kernel's switch is the machine's. It is turned on for these tests and put back; other tests' mounts that are
//! made meanwhile are served that way too, which must make no difference to them.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use platter_itest::load::{Promises, Writer};
use platter_itest::{Group, Lab, data, judge, zdb};

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

/// The paths in a folder of what the system tells of the daemon.
fn told(lab: &Lab, what: &str) -> Vec<PathBuf> {
    let all = |pid: i32| fs::read_dir(format!("/proc/{pid}/{what}")).into_iter().flatten().flatten();
    lab.daemon_pids().into_iter().flat_map(all).map(|entry| entry.path()).collect()
}

/// The names of the daemon's threads.
fn threads(lab: &Lab) -> Vec<String> {
    let name = |path: &PathBuf| fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
    told(lab, "task").iter().map(name).collect()
}

/// Those of them that serve rings.
fn serving(lab: &Lab) -> usize {
    threads(lab).iter().filter(|name| name.starts_with("fuse-near") || name.starts_with("fuse-far")).count()
}

/// Mounts that the daemon has descriptors of.
fn connections(lab: &Lab) -> usize {
    let device = Path::new("/dev/fuse");
    told(lab, "fd").iter().filter(|path| fs::read_link(path).is_ok_and(|target| target == device)).count()
}

/// What was handed in on all of the daemon's rings.
fn handed_in(lab: &Lab) -> u64 {
    let tail = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("SqTail:")?.trim().parse::<u64>().ok())
    };
    told(lab, "fdinfo").iter().filter_map(tail).sum()
}

/// Whether requests for what lies in `folder` come over io_uring: there are some hundred, with few transfers.
fn has_rings(lab: &Lab, folder: &Path) -> bool {
    const REQUESTS: u64 = 400;
    let before = handed_in(lab);
    for number in 0..REQUESTS {
        assert!(fs::metadata(folder.join(format!("nothing{before}-{number}"))).is_err());
    }
    handed_in(lab) - before >= REQUESTS
}

/// The daemon's threads, descriptors and mappings.
fn costs(lab: &Lab) -> (usize, usize, usize) {
    let maps = |pid: i32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines().count();
    (told(lab, "task").len(), told(lab, "fd").len(), lab.daemon_pids().into_iter().map(maps).sum())
}

/// Waits until `done`, for half a minute at most.
#[track_caller]
fn wait_for(what: &str, done: impl Fn() -> bool) {
    let told = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        done()
    });
    assert!(told, "waited in vain: {what}");
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
    // The daemon notices that nobody asks it any more, and nothing of the mount is left there.
    wait_for("the mount's end", || lab.zfs("get -H -o value mounted tank").ok().stdout.trim() == "no");
    wait_for("its descriptor's end", || connections(&lab) == 0);
    lab.zfs("mount tank").ok();
    assert!(mount.join("open").is_file());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A loop on the files of a folder, until something fails; it is counted.
fn use_files(folder: &Path, rounds: &AtomicUsize, stop: &AtomicBool) -> std::io::Result<()> {
    let large = data::random(5, 200_000);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let path = folder.join(format!("file{}", number % 7));
        fs::write(&path, &large[number % 100..])?;
        File::open(&path)?.sync_all()?;
        assert!(fs::read(&path)? == large[number % 100..], "{} has other data", path.display());
        fs::remove_file(&path)?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Each mount had threads of its own, two for each processor.
#[test]
fn threads_do_not_grow_with_mounts() {
    const MOUNTS: usize = 8;
    let Some(lab) = Lab::open() else { return };
    let rings = Rings::on();
    if rings.is_none() {
        return;
    }
    lab.disks(1, 512);
    let mut places = vec![lab.create("", "tank", "d0")];
    let one = serving(&lab);
    assert!(one >= 2, "no rings: {:?}", threads(&lab));
    places.extend((1..MOUNTS).map(|number| lab.create_fs("", &format!("tank/d{number}"))));
    drop(rings);
    let stats: Vec<_> =
        told(&lab, "task").iter().filter_map(|task| fs::read_to_string(task.join("stat")).ok()).collect();
    for stat in stats.iter().filter(|stat| stat.contains("(fuse-near") || stat.contains("(fuse-far")) {
        // One of them does what several threads do through /dev/fuse: they get its share on a busy machine.
        let nice = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16)?.parse::<i32>().ok());
        assert_eq!(nice, Some(-10), "{stat}");
    }
    assert_eq!(serving(&lab), one, "threads for {MOUNTS} mounts and for one");
    for (seed, place) in places.iter().enumerate() {
        assert!(has_rings(&lab, place), "{} has no rings", place.display());
        fs::write(place.join("file"), data::random(seed as u64, 3 << 20)).expect("written");
    }
    for (seed, place) in places.iter().enumerate() {
        assert!(fs::read(place.join("file")).expect("readable") == data::random(seed as u64, 3 << 20));
    }
    lab.export("tank");
    assert_eq!(connections(&lab), 0);
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Places of all mounts together may hold an eighth of the memory: here that is for a few mounts, on many processors
/// for none.
#[test]
fn as_many_mounts_have_rings_as_memory_suffices_for() {
    const MEMORY: u64 = 600 << 20;
    const MOST: usize = 10;
    let Some(lab) = Lab::open() else { return };
    let Some(group) = Group::new("platter-rings", MEMORY) else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 512);
    lab.zpool_through(&group.enter(), &format!("create -m {} tank d0", lab.mnt("tank").display())).ok();
    let mut places = vec![lab.mnt("tank")];
    places.extend((1..MOST).map(|number| lab.create_fs("", &format!("tank/d{number}"))));
    let ringed: Vec<_> = places.iter().map(|place| has_rings(&lab, place)).collect();
    let first = ringed.iter().take_while(|&&rings| rings).count();
    assert!(first < MOST && ringed[first..].iter().all(|rings| !rings), "who has rings: {ringed:?}");
    for (seed, place) in places.iter().enumerate() {
        fs::write(place.join("file"), data::random(seed as u64, 3 << 20)).expect("written");
    }
    for (seed, place) in places.iter().enumerate() {
        assert!(fs::read(place.join("file")).expect("readable") == data::random(seed as u64, 3 << 20));
    }
    // Who goes leaves its rings to who comes.
    if first > 1 {
        lab.zfs("destroy tank/d1").ok();
        wait_for("the mount's end", || connections(&lab) == MOST - 1);
        assert!(has_rings(&lab, &lab.create_fs("", "tank/new")), "the memory of a mount's places did not come back");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// They share their threads: what becomes of one must not matter to the others.
#[test]
fn mounts_come_and_go_beside_others_that_are_used() {
    const OTHERS: usize = 3;
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 1024);
    lab.create("", "tank", "d0");
    let others: Vec<_> = (0..OTHERS).map(|number| lab.create_fs("", &format!("tank/d{number}"))).collect();
    let coming = lab.create_fs("", "tank/coming");
    let (stop, rounds) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; OTHERS]);
    let counts = || rounds.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (place, count) in others.iter().zip(&rounds) {
            let stop = &stop;
            scope.spawn(move || use_files(place, count, stop).expect("nothing happens to it"));
        }
        for turn in 0..6 {
            let before = counts();
            fs::write(coming.join("file"), data::random(turn, 500_000)).expect("written");
            if turn % 2 == 0 {
                lab.zfs("unmount tank/coming").ok();
            } else {
                // The connection is ended under those who use it.
                let (own_stop, own_count) = (AtomicBool::new(false), AtomicUsize::new(0));
                let torn = std::thread::scope(|inner| {
                    let user = inner.spawn(|| use_files(&coming, &own_count, &own_stop));
                    wait_for("somebody who uses it", || own_count.load(Ordering::Relaxed) > 2);
                    let open = File::open(&coming).expect("there");
                    let _ = Command::new("umount").arg("-f").arg(&coming).output().expect("umount");
                    drop(open);
                    user.join().expect("no other data")
                });
                assert!(torn.is_err(), "it was used on after its connection's end");
                wait_for("the mount's end", || {
                    lab.zfs("get -H -o value mounted tank/coming").ok().stdout.trim() == "no"
                });
            }
            lab.zfs("mount tank/coming").ok();
            assert!(fs::read(coming.join("file")).expect("readable") == data::random(turn, 500_000));
            wait_for("the others to go on", || counts().iter().zip(&before).all(|(now, before)| now > before));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(connections(&lab), OTHERS + 2);
    lab.export("tank");
    assert_eq!(connections(&lab), 0);
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn mounting_again_and_again_leaves_nothing_behind() {
    const TIMES: usize = 60;
    let Some(lab) = Lab::open() else { return };
    let Some(_rings) = Rings::on() else { return };
    lab.disks(1, 256);
    let mount = lab.create("", "tank", "d0");
    let again = |times: usize| {
        for number in 0..times {
            fs::write(mount.join("file"), data::random(number as u64, 300_000)).expect("written");
            lab.zfs("unmount tank").ok();
            lab.zfs("mount tank").ok();
            assert!(fs::read(mount.join("file")).expect("readable") == data::random(number as u64, 300_000));
        }
    };
    again(5);
    let before = costs(&lab);
    again(TIMES);
    // Each mount has dozens of places, of two mappings each: one place that each left behind would be seen. The runtime
    // starts and ends some threads, with stacks and heaps.
    let least = |(threads, files, maps): (usize, usize, usize)| {
        threads <= before.0 + 8 && files <= before.1 + 8 && maps < before.2 + 2 * TIMES
    };
    wait_for(&format!("{:?} to come down to {before:?}", costs(&lab)), || least(costs(&lab)));
    assert!(has_rings(&lab, &mount), "no room for rings any more");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
