//! The night shift: disks die one after the other, each in another way, while files are written and read. Nobody types
//! a command; in the morning the pool is whole, and its owner has been told.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, Tree, damage, data, zdb};
use serde_json::Value;

/// A spare is in so long after the verdict.
const SPARE_IN: u64 = 10;
/// For so long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the labels in front end.
const BEHIND_LABELS: u64 = damage::LABEL_START_BYTES;
/// Files that are read again and again.
const FILES: u64 = 160;
/// Bytes of each.
const FILE_BYTES: usize = 256 << 10;

/// A web server that keeps what is posted to it.
struct Webhook {
    url: String,
    got: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/platter", listener.local_addr().expect("its address"));
        let got = Arc::<Mutex<Vec<Value>>>::default();
        let kept = got.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut request, mut some) = (Vec::new(), [0; 4096]);
                let body = loop {
                    match stream.read(&mut some) {
                        Ok(0) | Err(_) => break None,
                        Ok(bytes) => request.extend(&some[..bytes]),
                    }
                    let head = request.windows(4).position(|end| end == b"\r\n\r\n");
                    if let Some(body) = head.and_then(|head| serde_json::from_slice(&request[head + 4..]).ok()) {
                        break Some(body);
                    }
                };
                kept.lock().expect("messages").extend(body);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        Self { url, got }
    }

    /// The time of the first message of one of these classes about a device.
    fn time(&self, classes: &[&str], device: &Path) -> Option<u64> {
        let got = self.got.lock().expect("messages");
        let is_of = |message: &Value| message["class"].as_str().is_some_and(|class| classes.contains(&class));
        let is_it = |message: &&Value| is_of(message) && message["device"] == device.display().to_string();
        got.iter().find(is_it).and_then(|message| message["time"].as_u64())
    }

    /// As [`time`](Self::time), once it is there.
    #[track_caller]
    fn wait(&self, lab: &Lab, classes: &[&str], device: &Path) -> u64 {
        let start = Instant::now();
        loop {
            if let Some(time) = self.time(classes, device) {
                return time;
            }
            let (status, got) = (lab.zpool("status tank"), self.got.lock().expect("messages").clone());
            assert!(start.elapsed() < PATIENCE, "no {classes:?} of {}: {got:#?}\n{status}", device.display());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Writes files, and reads those that were there before from disk, until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn name(number: u64) -> String {
    format!("kept-{number}")
}

fn read_from_disk(path: &Path) -> Vec<u8> {
    let mut file = fs::File::open(path).expect("the file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("no pages");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

impl Load {
    fn on(mount: PathBuf) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (reading, writing) = (stop.clone(), stop.clone());
        let (from, to) = (mount.clone(), mount);
        let reader = std::thread::spawn(move || {
            while !reading.load(Ordering::Relaxed) {
                for number in 0..FILES {
                    let right = data::random(number, FILE_BYTES);
                    assert!(read_from_disk(&from.join(name(number))) == right, "file {number} is not what it was");
                }
            }
        });
        let writer = std::thread::spawn(move || {
            let mut number = 0;
            while !writing.load(Ordering::Relaxed) {
                let path = to.join(format!("new-{}", number % 40));
                let mut file = fs::File::create(path).expect("a new file");
                file.write_all(&data::mixed(number, 200_000, 20_000)).expect("it is written");
                file.sync_all().expect("it is stable");
                number += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { stop, threads: vec![reader, writer] }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("nobody met an error"));
    }
}

/// Waits until a spare has everything that a device had; it was in soon enough after its verdict.
#[track_caller]
fn is_helped(lab: &Lab, hook: &Webhook, verdict: &[&str], device: &Path) {
    let judged = hook.wait(lab, verdict, device);
    let helped = hook.wait(lab, &["sysevent.fs.zfs.vdev_spare"], device);
    assert!(helped - judged <= SPARE_IN, "{} s after the verdict on {}", helped - judged, device.display());
    hook.wait(lab, &["sysevent.fs.zfs.resilver_finish"], device);
    let faults = lab.platter(["faults", "tank"]).ok();
    faults.says(&device.display().to_string()).says("stands in for it").says("Replace it when it suits you");
}

#[test]
fn disks_die_in_every_way_and_nobody_types_a_command() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(11, 128);
    // Two of them fail on command; the spares are the last three.
    let disks = FaultyDisks::over(&lab, 2);
    let hook = Webhook::open();
    lab.platter(["notify", "add", "webhook", &hook.url]).ok();
    let mirrors = format!("mirror {} mirror d2 d3 mirror d4 d5 mirror d6 d7 spare d8 d9 d10", disks.all());
    let mount = lab.create("-O primarycache=metadata", "tank", &mirrors);
    for number in 0..FILES {
        fs::write(mount.join(name(number)), data::random(number, FILE_BYTES)).expect("a file");
    }
    // What is read from now on comes from disk.
    let folders = format!("-d {} -d {}", lab.dev().display(), disks.dir().display());
    lab.export("tank");
    lab.zpool(&format!("import {folders} tank")).ok();
    lab.wait_mounted(&mount);
    let load = Load::on(mount.clone());
    // One vanishes: who comes first sees it gone, or a read fails that nothing else helps.
    let vanished = lab.disk(7);
    fs::OpenOptions::new().write(true).open(&vanished).and_then(|file| file.set_len(0)).expect("cut");
    fs::remove_file(&vanished).expect("removed");
    is_helped(&lab, &hook, &["resource.fs.zfs.removed", "resource.fs.zfs.statechange"], &vanished);
    // One fails wherever there are data, though its labels can be read and written.
    disks.set(0, Faults { read: true, write: true, from: BEHIND_LABELS, ..Faults::default() });
    is_helped(&lab, &hook, &["fault.fs.zfs.vdev.io"], &disks.disk(0));
    // One delivers other bytes than were written, and no error.
    damage::overwrite_data_area(&lab.disk(4), 7);
    is_helped(&lab, &hook, &["fault.fs.zfs.vdev.checksum"], &lab.disk(4));
    load.end();
    let status = lab.zpool("status tank").ok();
    let status = status.says("FAULTED").says("DEGRADED").says("too many errors").says("No known data errors");
    assert_eq!(status.stdout.matches("INUSE").count(), 3, "one spare for each: {status}");
    lab.zpool("events -H").ok().says("fault.fs.zfs.vdev.io").says("fault.fs.zfs.vdev.checksum");
    lab.platter(["notify", "list"]).ok().says("webhook").says_not("trouble");
    for number in 0..FILES {
        assert!(read_from_disk(&mount.join(name(number))) == data::random(number, FILE_BYTES), "file {number}");
    }
    let tree = Tree::of(&mount);
    lab.scrub("tank").says("with 0 errors").says("No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import {folders} tank")).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "in the morning");
    // Verdicts outlive the night.
    lab.zpool("status tank").ok().says("FAULTED").says("too many errors");
    lab.export("tank");
}
