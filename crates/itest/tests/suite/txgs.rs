//! `platter txgs` and `platter daemon log-level`: where time goes, looked at from outside while a daemon works.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use platter_itest::{Lab, binary, data};
use serde_json::Value;

fn txgs(lab: &Lab, words: &str) -> platter_itest::Run {
    lab.platter(["txgs"].into_iter().chain(words.split_whitespace()))
}

/// The numbers of `-H`, each line's pool taken off.
#[track_caller]
fn numbers(lab: &Lab, pool: &str) -> Vec<Vec<u64>> {
    let run = txgs(lab, &format!("-H {pool}")).ok();
    let line = |line: &str| {
        let (name, rest) = line.split_once('\t').expect("a pool's name");
        assert_eq!(name, pool);
        rest.split('\t').map(|number| number.parse().expect("a number")).collect()
    };
    run.stdout.lines().map(line).collect()
}

const TXG: usize = 0;
const OPENED: usize = 1;
const DIRTY: usize = 2;
const WRITTEN: usize = 4;
const WRITES: usize = 6;
const SYNC: usize = 9;
const PASSES: usize = 11;

/// Whether a line has the form "txg N  N MB; N ms of spa_sync; avg sz: N KB; N MB/s   open N ms  …".
fn is_line(line: &str) -> bool {
    let words: Vec<String> = line
        .split_whitespace()
        .map(|word| if word.bytes().all(|byte| byte.is_ascii_digit()) { "#".to_owned() } else { word.to_owned() })
        .collect();
    let words = words.join(" ");
    let form = "txg # # MB; # ms of spa_sync; avg sz: # KB; # MB/s open # ms quiesce # ms sync # ms flush # ms # pass";
    words == form || words == format!("{form}es")
}

#[test]
fn groups_are_told_with_their_phases() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let before = numbers(&lab, "tank").last().expect("the pool was made in a group")[TXG];
    fs::write(mount.join("file"), data::random(1, 20 << 20)).expect("a file");
    lab.zpool("sync tank").ok();

    let groups = numbers(&lab, "tank");
    assert!(groups.iter().all(|group| group.len() == 12), "{groups:?}");
    assert!(groups.windows(2).all(|pair| pair[0][TXG] + 1 == pair[1][TXG]), "{groups:?}");
    let new: Vec<_> = groups.iter().filter(|group| group[TXG] > before).collect();
    let sum = |column: usize| new.iter().map(|group| group[column]).sum::<u64>();
    // Two disks of data and one of parity; the data may be written to one block more than the file has.
    assert!((20 << 20..22 << 20).contains(&sum(DIRTY)), "{groups:?}");
    assert!((30 << 20..36 << 20).contains(&sum(WRITTEN)), "{groups:?}");
    assert!(sum(WRITES) > 0 && sum(SYNC) > 0 && sum(PASSES) > 0, "{groups:?}");
    let now = chrono::Utc::now().timestamp() as u64;
    assert!(groups.iter().all(|group| group[OPENED].abs_diff(now) < 600), "{groups:?}");

    let table = txgs(&lab, "tank").ok();
    let (heading, lines) = table.stdout.split_once('\n').expect("a heading");
    assert!(heading.contains("written") && heading.contains("average write"), "{table}");
    assert!(lines.lines().count() >= groups.len() && lines.lines().all(is_line), "{table}");
    txgs(&lab, "-p tank").ok().says(" B/s   open ").says(" ns of spa_sync; avg sz: ");

    let json: Value = serde_json::from_str(&txgs(&lab, "-j").ok().stdout).expect("JSON");
    assert_eq!(json["output_version"]["command"], "platter txgs");
    let told = json["pools"]["tank"]["txgs"].as_array().expect("groups");
    assert_eq!(told[0]["txg"], groups[0][TXG]);
    assert_eq!(
        told.iter().take(groups.len()).map(|g| g["written_bytes"].as_u64().expect("bytes")).collect::<Vec<_>>(),
        groups.iter().map(|group| group[WRITTEN]).collect::<Vec<_>>()
    );
}

#[test]
fn what_cannot_be_told_is_refused() {
    let Some(lab) = Lab::open() else { return };
    let run = txgs(&lab, "").refused().says("no pools available");
    assert_eq!(run.code, 1);
    let run = txgs(&lab, "nosuch").refused();
    assert_eq!((run.code, &*run.stderr), (1, "cannot open 'nosuch': no such pool\n"));
    assert_eq!(txgs(&lab, "nosuch 1").refused().code, 1);
    assert_eq!(txgs(&lab, "nosuch 0").refused().says("interval cannot be zero").code, 2);
    assert_eq!(txgs(&lab, "-H -j").refused().code, 2);
}

/// With an interval each group is shown once, whatever happens between two looks; SIGINT and a reader that goes away
/// end it.
#[test]
fn groups_are_followed() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let follow = |words: &[&str]| {
        let mut command = lab.command(binary::platter());
        command.arg("txgs").args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("platter starts")
    };
    let mut child = follow(&["-H", "tank", "0.2"]);
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut next = || -> u64 {
        let line = lines.next().expect("another group").expect("text");
        line.split('\t').nth(1).expect("a number").parse().expect("a number")
    };
    let synced = || {
        fs::write(mount.join("file"), data::random(1, 100_000)).expect("a file");
        lab.zpool("sync tank").ok();
        numbers(&lab, "tank").last().expect("a group")[TXG]
    };
    let mut seen = vec![next()];
    for _ in 0..3 {
        let last = synced();
        while *seen.last().expect("one at least") < last {
            seen.push(next());
        }
    }
    assert!(seen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "each once, in order: {seen:?}");
    let pid = child.id().to_string();
    lab.run("kill", ["-INT", &pid]).ok();
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    let mut child = follow(&["tank", "0.1"]);
    let mut heading = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut heading).expect("a line");
    // The reader is gone; the next group tells.
    let start = Instant::now();
    while child.try_wait().expect("a child can be asked").is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "it goes on without a reader");
        synced();
    }
    let ended = child.wait_with_output().expect("it has ended");
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(141), &b""[..]));

    // A count ends it by itself.
    txgs(&lab, "tank 0.1 2").ok();
    // So does the pool's end.
    let child = follow(&["tank", "0.1"]);
    lab.export("tank");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "cannot open 'tank': no such pool\n");
}

#[test]
fn the_log_level_of_a_running_daemon_can_be_changed() {
    let Some(lab) = Lab::open() else { return };
    let level = |words: &[&str]| lab.platter(["daemon", "log-level"].iter().chain(words));
    assert_eq!(level(&[]).says("no daemon runs").code, 1);
    lab.disks(1, 96);
    lab.create("", "tank", "d0");
    let log = || fs::read_to_string(lab.home().join("daemon.log")).expect("a log");
    assert_eq!(level(&[]).ok().stdout, "info\n");
    lab.zpool("sync tank").ok();
    assert!(!log().contains("quiescing"), "{}", log());
    assert_eq!(level(&["platter_spa=debug"]).ok().stdout, "info,platter_spa=debug\n");
    lab.zpool("set comment=words tank").ok();
    let text = log();
    for word in ["quiescing", "syncing dirty_bytes=", "flushing passes=", "synced written_bytes=", "pool=\"tank\" txg="]
    {
        assert!(text.contains(word), "no {word} in the log:\n{text}");
    }
    assert_eq!(level(&["chatty"]).refused().says("'chatty' is no level").code, 2);
    assert_eq!(level(&["info"]).ok().stdout, "info\n");
    let before = log().matches("quiescing").count();
    lab.zpool("sync tank").ok();
    assert_eq!(log().matches("quiescing").count(), before);
}
