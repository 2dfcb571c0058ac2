//! What other processes see of a file that somebody maps, writes past the page cache, or may not write without losing
//! its set-id bits. Those who do that are programs of their own (`coherence/`).

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::Fixture;
use platter_fuse::{FuseError, Mount};
use rustix::fs::{SeekFrom, seek};

const MAP: &str = include_str!("coherence/map.py");
const STORE: &str = include_str!("coherence/store.py");
const SET_ID: &str = include_str!("coherence/set_id.py");
const ASYNCHRONOUS: &str = include_str!("coherence/asynchronous.py");

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 128 << 10;
/// Most time for anything that could hang.
const LIMIT: Duration = Duration::from_secs(120);

/// One of the programs, with its input and output in our hands.
struct Script {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(program: &str, arguments: &[&Path]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", program]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends its input, and it.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// What a program prints, which must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: python3 is missing");
    }
    found
}

/// Unmounts, once children that other tests start have closed what they were born with.
fn unmount(mount: &Mount) {
    let end = Instant::now() + LIMIT;
    while let Err(error) = mount.unmount(false) {
        assert!(matches!(error, FuseError::Busy(_)) && Instant::now() < end, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where a file has data, as lseek(2) says.
fn extents(file: &File) -> Vec<(u64, u64)> {
    let mut extents = Vec::new();
    let mut at = 0;
    while let Ok(data) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(data)).unwrap();
        extents.push((data, at));
    }
    extents
}

/// Process A made a file with something at either end and a hole between, mapped it, and stored into the hole; B copied
/// it, by asking where it has data: the kernel had the page and did not say so, and the copy had zeros there.
#[test]
fn a_copy_of_a_mapped_file_has_what_was_stored_in_its_holes() {
    let Some(fixture) = Fixture::new().filter(|_| has_python()) else { return };
    let mount = fixture.mount();
    let path = fixture.path("mapped");
    let file = File::create_new(&path).unwrap();
    file.set_len(8 * MIB).unwrap();
    file.write_all_at(b"head", 0).unwrap();
    file.write_all_at(b"tail", 8 * MIB - 4).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut expected = fs::read(&path).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let folder = fixture.directory.path();
    let program = |name: &str, arguments: &[&Path]| {
        output(Command::new(name).args(arguments));
    };
    let copies: [(&str, &dyn Fn(&Path)); 5] = [
        ("cp", &|to| program("cp", &[&path, to])),
        ("cp --sparse=always", &|to| program("cp", &["--sparse=always".as_ref(), &path, to])),
        ("tar -S", &|to| {
            let archive = outside.path().join("archive");
            // It ends with 1 for a file that changed meanwhile: its times did, when its pages were written.
            let script = r#"tar -C "$0" -Scf "$1" mapped || [ $? = 1 ]"#;
            program("sh", &["-c".as_ref(), script.as_ref(), folder, &archive]);
            program("tar", &["-C".as_ref(), outside.path(), "-xf".as_ref(), &archive]);
            fs::rename(outside.path().join("mapped"), to).unwrap();
        }),
        // By the server (copy_file_range).
        ("cp inside", &|to| {
            program("cp", &[&path, &fixture.path("inside")]);
            program("cp", &[&fixture.path("inside"), to]);
        }),
        // What qemu-img and rsync do.
        ("lseek", &|to| {
            let (from, copy) = (File::open(&path).unwrap(), File::create(to).unwrap());
            copy.set_len(8 * MIB).unwrap();
            for (data, hole) in extents(&from) {
                let mut bytes = vec![0; (hole - data) as usize];
                from.read_exact_at(&mut bytes, data).unwrap();
                copy.write_all_at(&bytes, data).unwrap();
            }
        }),
    ];
    // Mapped throughout: what was stored before a copy and what is stored between two.
    let mut mapping = Script::start(MAP, &[&path]);
    for (number, (name, copy)) in copies.iter().enumerate() {
        for at in [4 * MIB + number as u64 * BLOCK, 2 * MIB + number as u64 * 4096] {
            mapping.tell(&format!("{at} hello"));
            assert_eq!(mapping.line(), "stored");
            expected[at as usize..at as usize + 5].copy_from_slice(b"hello");
        }
        let to = outside.path().join("copy");
        copy(&to);
        assert!(fs::read(&to).unwrap() == expected, "{name}");
        fs::remove_file(to).unwrap();
    }
    // And what is a hole still is one.
    let expected = [(0, BLOCK), (2 * MIB, 2 * MIB + BLOCK), (4 * MIB, 4 * MIB + 5 * BLOCK), (8 * MIB - BLOCK, 8 * MIB)];
    assert_eq!(extents(&File::open(&path).unwrap()), expected);
    mapping.end();
    assert_eq!(extents(&File::open(&path).unwrap()), expected);
    unmount(&mount);
}

/// Who asks for holes waits for pages to be written, by the same threads that serve who asks.
#[test]
fn many_ask_for_holes_of_files_that_others_store_in() {
    let Some(fixture) = Fixture::new().filter(|_| has_python()) else { return };
    let mount = fixture.mount();
    let paths: Vec<_> = (0..6).map(|number| fixture.path(&format!("mapped{number}"))).collect();
    for path in &paths {
        File::create_new(path).unwrap().set_len(16 * MIB).unwrap();
    }
    let mut storing = Script::start(STORE, &paths.iter().map(|path| path.as_path()).collect::<Vec<_>>());
    assert_eq!(storing.line(), "mapped");
    let (tell, told) = mpsc::channel();
    for path in paths.iter().chain(&paths).chain(&paths) {
        let (path, tell) = (path.clone(), tell.clone());
        std::thread::spawn(move || {
            let (file, end) = (File::open(path).unwrap(), Instant::now() + Duration::from_secs(2));
            let mut rounds = 0;
            while Instant::now() < end {
                assert!(extents(&file).iter().all(|(data, hole)| data < hole));
                rounds += 1;
            }
            drop(file);
            let _ = tell.send(rounds);
        });
    }
    for _ in 0..3 * paths.len() {
        assert!(told.recv_timeout(LIMIT).expect("who asks for holes is answered") > 0);
    }
    storing.end();
    unmount(&mount);
}

/// The daemon took the bits, but the kernel went on with the mode that it knew, for a second: who wrote to the file, as
/// somebody else, could run it as its owner.
#[test]
fn a_program_that_somebody_changed_does_not_run_as_its_owner() {
    let Some(fixture) = Fixture::new().filter(|_| has_python()) else { return };
    let mount = fixture.mount();
    fs::set_permissions(fixture.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (path, other) = (fixture.path("su"), fixture.path("other"));
    fs::write(&other, vec![7; 10_000]).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    for how in ["write", "only-write", "append", "direct", "truncate", "allocate", "punch", "zero", "copy"] {
        let _ = fs::remove_file(&path);
        // Not open for writing in this process: a child that another test starts would have it open too.
        output(Command::new("cp").arg("/usr/bin/id").arg(&path));
        output(Command::new("truncate").args(["-s", "1M"]).arg(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(output(Command::new(&path).arg("-u")), "0");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
        let said = output(Command::new("python3").args(["-c", SET_ID]).arg(&path).arg(&other).arg(how));
        assert_eq!(said, "65534 65534 777", "{how}");
    }
    unmount(&mount);
}

/// Pages that were read while an asynchronous direct write was on its way kept what was there before.
#[test]
fn what_was_written_directly_and_asynchronously_is_read_at_once() {
    let Some(fixture) = Fixture::new().filter(|_| has_python()) else { return };
    let mount = fixture.mount();
    let said = output(Command::new("python3").args(["-c", ASYNCHRONOUS]).arg(fixture.path("file")).arg("3"));
    eprintln!("{said}");
    unmount(&mount);
}
