//! What goes on in a night in which disks die: files are written and read, and somebody is told.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Lab, data};

/// For so long a message is waited for.
const PATIENCE: Duration = Duration::from_secs(200);
/// Bytes of each.
const FILE_BYTES: usize = 256 << 10;

/// A web server that keeps what is posted to it.
pub struct Webhook {
    /// Where it is to be found.
    pub url: String,
    got: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    /// A server at a port of its own.
    ///
    /// # Panics
    /// When there is no port.
    pub fn open() -> Self {
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
    pub fn time(&self, classes: &[&str], device: &Path) -> Option<u64> {
        let got = self.got.lock().expect("messages");
        let is_of = |message: &Value| message["class"].as_str().is_some_and(|class| classes.contains(&class));
        let is_it = |message: &&Value| is_of(message) && message["device"] == device.display().to_string();
        got.iter().find(is_it).and_then(|message| message["time"].as_u64())
    }

    /// As [`time`](Self::time), once it is there.
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn wait(&self, lab: &Lab, classes: &[&str], device: &Path) -> u64 {
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
pub struct NightLoad {
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

impl NightLoad {
    /// Writes so many files that are kept, for [`on`](Self::on) to read: enough that each disk has some.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn prepare(mount: &Path, files: u64) {
        for number in 0..files {
            fs::write(mount.join(name(number)), data::random(number, FILE_BYTES)).expect("a file");
        }
    }

    /// Whether the files that are kept are what they were, read from disk.
    ///
    /// # Panics
    /// When one is not.
    pub fn check(mount: &Path, files: u64) {
        for number in 0..files {
            let right = data::random(number, FILE_BYTES);
            assert!(read_from_disk(&mount.join(name(number))) == right, "file {number} is not what it was");
        }
    }

    /// Begins.
    pub fn on(mount: PathBuf, files: u64) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (reading, writing) = (stop.clone(), stop.clone());
        let (from, to) = (mount.clone(), mount);
        let reader = std::thread::spawn(move || {
            while !reading.load(Ordering::Relaxed) {
                Self::check(&from, files);
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

    /// Ends.
    ///
    /// # Panics
    /// When anything failed meanwhile.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("nobody met an error"));
    }
}
