//! Clients of a daemon that is stopped, or dies while it is asked.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Lab, binary};

fn signal(lab: &Lab, daemon: &[i32], name: &str) {
    for pid in daemon {
        lab.run("kill", [name, &pid.to_string()]).ok();
    }
}

/// `zpool list`, with what it says in a file.
fn ask(lab: &Lab) -> (Child, std::path::PathBuf) {
    let said = lab.tmp().join("said");
    let file = File::create(&said).expect("a file");
    let mut command = lab.command(binary::platter());
    command.args(["zpool", "list"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    (command.spawn().expect("a command"), said)
}

fn wait_for(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{}", what());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A script's lock on descriptor 9 was held by the daemon that one of its commands started, for as long as that lived.
#[test]
fn a_daemon_has_nothing_open_of_who_started_it() {
    let Some(lab) = Lab::open() else { return };
    let held = lab.tmp().join("held");
    let script = format!("exec 9>{}; exec {} daemon start", held.display(), binary::platter().display());
    lab.run("sh", ["-c", &script]).ok();
    let daemon = lab.daemon_pids();
    assert_eq!(daemon.len(), 1);
    let open = fs::read_dir(format!("/proc/{}/fd", daemon[0])).expect("its descriptors");
    let open: Vec<_> = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(!open.is_empty() && !open.contains(&held), "{open:?}");
}

#[test]
fn a_client_says_that_its_daemon_is_stopped_and_notices_that_it_died() {
    // A client waited for ever for a daemon that died meanwhile, and without a word for one that was stopped.
    let Some(lab) = Lab::open() else { return };
    lab.zpool("list").ok();
    // Looked up while no client runs: a client has the daemon's home in its environment, too.
    let daemon = lab.daemon_pids();
    for (end, ends_well) in [("-CONT", true), ("-KILL", false)] {
        signal(&lab, &daemon, "-STOP");
        let (mut client, said) = ask(&lab);
        let told = || fs::read_to_string(&said).expect("what it says");
        wait_for(|| format!("{daemon:?}: it says '{}'", told()), || told().contains("is stopped; 'kill -CONT"));
        assert!(client.try_wait().expect("a child").is_none(), "it waits");
        signal(&lab, &daemon, end);
        wait_for(|| "it still waits".to_owned(), || client.try_wait().expect("a child").is_some());
        let code = client.wait().expect("a child");
        let said = fs::read_to_string(&said).expect("a file");
        assert_eq!(code.success(), ends_well, "{said}");
        assert_eq!(said.contains("may or may not have happened"), !ends_well, "{said}");
    }
}

/// Killed while a device did not answer, a daemon stays with its socket and its lock. Commands said that it had ended,
/// and one after the other found the same.
#[test]
fn a_killed_daemon_that_cannot_end_is_told_of_with_what_it_has_open() {
    let (Some(below), Some(lab)) = (Lab::open(), Lab::open()) else { return };
    below.disks(1, 512);
    let place = below.create("", "outer", "d0");
    let device = place.join("device");
    File::create(&device).and_then(|file| file.set_len(200 << 20)).expect("a file");
    let mount = lab.create("", "inner", device.to_str().expect("UTF-8"));
    let (slow, mine) = (below.daemon_pids(), lab.daemon_pids());
    signal(&below, &slow, "-STOP");
    let file = mount.join("file");
    let writer = std::thread::spawn(move || fs::write(file, vec![7; 20 << 20]));
    // Its first group is on the way.
    std::thread::sleep(Duration::from_secs(8));
    signal(&lab, &mine, "-KILL");
    let is_stuck = || {
        let status = fs::read_to_string(format!("/proc/{}/status", mine[0])).unwrap_or_default();
        status.contains("State:\tZ")
    };
    std::thread::sleep(Duration::from_secs(1));
    if is_stuck() {
        for words in ["zpool list", "daemon stop"] {
            let run = lab.platter(words.split(' '));
            assert!(run.code != 0 && run.stderr.contains("was killed and cannot end"), "{run}");
            assert!(run.stderr.contains(device.to_str().expect("UTF-8")) && !run.stderr.contains("ended"), "{run}");
        }
    } else {
        println!("skipped: the system let it end");
    }
    signal(&below, &slow, "-CONT");
    wait_for(|| "it does not end".to_owned(), || !lab.daemon_pids().contains(&mine[0]));
    let _ = writer.join();
    lab.revive("inner");
    assert_eq!(lab.health("inner"), "ONLINE");
    lab.export("inner");
    below.export("outer");
}

/// `zpool iostat 1` in another window opened the pools again that somebody had just closed with `daemon stop`.
#[test]
fn who_only_watches_does_not_start_the_daemon_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    // Their headings come before they have asked anything.
    let watchers = [("iostat tank 1", "tank"), ("events -f", "pool_create")].map(|(words, answered)| {
        let args = ["zpool"].into_iter().chain(words.split(' '));
        let mut watcher = lab.command(binary::platter());
        watcher.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watcher = watcher.spawn().expect("it starts");
        let mut lines = BufReader::new(watcher.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains(answered) {
            line.clear();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "{words} said nothing of {answered}");
        }
        (watcher, lines)
    });
    lab.platter(["daemon", "stop"]).ok();
    for (mut watcher, _output) in watchers {
        wait_for(
            || "it still watches".to_owned(),
            || {
                // What it goes on to say has room in the pipe.
                watcher.try_wait().expect("a child").is_some()
            },
        );
    }
    assert!(lab.daemon_pids().is_empty(), "somebody started it again");
    // Whoever asks for something anew starts it.
    lab.zpool("list -H -o name").ok().says("tank");
}
