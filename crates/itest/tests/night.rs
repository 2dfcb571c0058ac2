//! A night with 44 disks and two spares: five of them die, each in another way, while files are written and read.
//! Nobody types a command: a spare stands in, and when there is another disk in the dead one's place that is used.
//! Slow; see `make test-night`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, NightLoad, Tree, Webhook, damage, zdb};

/// A spare is in so long after the verdict.
const SPARE_IN: u64 = 10;
/// For so long the pool may take until all is well again.
const PATIENCE: Duration = Duration::from_secs(400);
/// A whole night takes less.
const NIGHT: Duration = Duration::from_secs(3600);
/// Size of a disk.
const DISK_MIB: u64 = 128;
/// Files that are read: a disk that delivers wrong bytes is to be caught at that often enough, and of two that are a
/// mirror each is read for half of its blocks.
const FILES: u64 = 480;
/// Longer than a transfer may take before it counts as slow.
const SLOW: Duration = Duration::from_secs(31);

/// How a disk dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Vanish,
    Errors,
    WrongBytes,
    Slowness,
    Hang,
}

impl Death {
    const ALL: [Self; 5] = [Self::Vanish, Self::Errors, Self::WrongBytes, Self::Slowness, Self::Hang];

    /// The classes of the messages of its verdict.
    fn classes(self) -> &'static [&'static str] {
        match self {
            Self::Vanish => &["resource.fs.zfs.removed", "resource.fs.zfs.statechange"],
            Self::Errors => &["fault.fs.zfs.vdev.io"],
            Self::WrongBytes => &["fault.fs.zfs.vdev.checksum"],
            Self::Slowness => &["fault.fs.zfs.vdev.slow_io"],
            Self::Hang => &["ereport.fs.zfs.deadman"],
        }
    }
}

struct Night {
    lab: Lab,
    /// The first three fail on command.
    disks: FaultyDisks,
    hook: Webhook,
    mount: PathBuf,
}

fn blank(path: &Path) {
    File::create(path).and_then(|file| file.set_len(DISK_MIB << 20)).expect("a new disk");
}

impl Night {
    /// The number of the disk that dies so: three of them are other disks' neighbours in each layout.
    fn victim(death: Death) -> usize {
        match death {
            Death::Errors => 0,
            Death::Slowness => 1,
            Death::Hang => 2,
            Death::Vanish => 20,
            Death::WrongBytes => 33,
        }
    }

    fn path(&self, number: usize) -> PathBuf {
        if number < 3 { self.disks.disk(number) } else { self.lab.disk(number) }
    }

    fn import(&self) {
        // The files behind the disks that fail on command would be a second way to them.
        let places: String = (3..46).map(|number| format!("-d {} ", self.lab.disk(number).display())).collect();
        self.lab.zpool(&format!("import {places} -d {} tank", self.disks.dir().display())).ok();
        self.lab.wait_mounted(&self.mount);
    }

    fn die(&self, death: Death) {
        let (number, path) = (Self::victim(death), self.path(Self::victim(death)));
        match death {
            Death::Vanish => fs::remove_file(&path).expect("removed"),
            Death::Errors => {
                let from = damage::LABEL_START_BYTES;
                self.disks.set(number, Faults { read: true, write: true, from, ..Faults::default() });
            }
            Death::WrongBytes => damage::overwrite_data_area(&path, 7),
            Death::Slowness => {
                self.lab.zpool(&format!("set slow_io_n=3 tank {}", path.display())).ok();
                self.lab.zpool(&format!("set slow_io_t=600 tank {}", path.display())).ok();
                self.disks.set(number, Faults { late: SLOW, ..Faults::default() });
            }
            Death::Hang => self.disks.set(number, Faults { hang: true, ..Faults::default() }),
        }
    }

    /// In the morning somebody pulls the dead disk out and puts a new one in its place.
    fn swap(&self, death: Death) {
        let (number, path) = (Self::victim(death), self.path(Self::victim(death)));
        match death {
            Death::Vanish => blank(&path),
            Death::WrongBytes => {
                fs::remove_file(&path).expect("pulled out");
                std::thread::sleep(Duration::from_secs(3));
                blank(&path);
            }
            Death::Errors | Death::Slowness | Death::Hang => {
                self.disks.set(number, Faults::DEAD);
                self.until("it is not used", |status| {
                    let line = status.lines().find(|line| line.contains(&path.display().to_string()));
                    line.is_some_and(|line| line.contains("FAULTED") || line.contains("REMOVED"))
                });
                self.disks.renew(number);
            }
        }
    }

    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let status = self.lab.zpool("status -P tank").ok().stdout;
            if is_so(&status) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {status}\n{}", self.lab.platter(["faults", "tank"]));
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// One disk dies, a spare has everything soon, and so has the new disk in its place.
    fn pass(&self, death: Death) {
        let path = self.path(Self::victim(death));
        let load = NightLoad::on(self.mount.clone(), FILES);
        self.die(death);
        let judged = self.hook.wait(&self.lab, death.classes(), &path);
        let helped = self.hook.wait(&self.lab, &["sysevent.fs.zfs.vdev_spare"], &path);
        assert!(helped - judged <= SPARE_IN, "{death:?}: {} s after the verdict", helped - judged);
        self.hook.wait(&self.lab, &["sysevent.fs.zfs.resilver_finish"], &path);
        load.end();
        self.judge(&format!("{death:?}, with a spare"));
        let load = NightLoad::on(self.mount.clone(), FILES);
        self.swap(death);
        self.until("all is well again", |status| {
            let is_whole = !["INUSE", "DEGRADED", "FAULTED", "REMOVED", "UNAVAIL", "in progress"]
                .into_iter()
                .any(|word| status.contains(word));
            is_whole && status.matches("AVAIL").count() == 2 && status.contains("No known data errors")
        });
        load.end();
        self.judge(&format!("{death:?}, with a new disk"));
        eprintln!("{death:?}: the spare was in {} s after the verdict, and all is well again", helped - judged);
    }

    /// All files are what they were, and so says zdb.
    fn judge(&self, what: &str) {
        NightLoad::check(&self.mount, FILES);
        let tree = Tree::of(&self.mount);
        self.lab.export("tank");
        zdb::assert_clean(&self.lab.dev(), "tank");
        self.import();
        tree.assert_same(&Tree::of(&self.mount), what);
    }
}

fn night(layout: impl Fn(&[String]) -> String) {
    let Some(lab) = Lab::open_long(NIGHT) else { return };
    lab.disks(46, DISK_MIB);
    let disks = FaultyDisks::over(&lab, 3);
    let hook = Webhook::open();
    lab.platter(["notify", "add", "webhook", &hook.url]).ok();
    let name = |number: usize| match number {
        0..3 => disks.disk(number).display().to_string(),
        _ => format!("d{number}"),
    };
    let names: Vec<String> = (0..44).map(name).collect();
    let mount =
        lab.create("-o autoreplace=on -O primarycache=metadata", "tank", &format!("{} spare d44 d45", layout(&names)));
    NightLoad::prepare(&mount, FILES);
    let night = Night { lab, disks, hook, mount };
    // What is read from now on comes from disk.
    night.lab.export("tank");
    night.import();
    for death in Death::ALL {
        night.pass(death);
    }
    night.lab.scrub("tank").says("with 0 errors").says("No known data errors");
    night.lab.export("tank");
}

#[test]
#[ignore = "a quarter of an hour: make test-night"]
fn twenty_two_mirrors_survive_the_night() {
    night(|names| names.chunks(2).map(|pair| format!("mirror {} ", pair.join(" "))).collect());
}

#[test]
#[ignore = "a quarter of an hour: make test-night"]
fn three_wide_raidz2_survive_the_night() {
    // 42 of them; two more are a mirror.
    night(|names| {
        let wide: String = names[..42].chunks(14).map(|disks| format!("raidz2 {} ", disks.join(" "))).collect();
        format!("-f {wide} mirror {}", names[42..].join(" "))
    });
}
