//! `zfs diff`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Lab, binary, data, zdb};

/// The kernel says when it likes that it closed a file, or that it forgot one that is gone.
fn settle(lab: &Lab) {
    lab.zfs("unmount tank/fs").ok();
    lab.zfs("mount tank/fs").ok();
}

/// A difference of which more is to come than a pipe holds: its first line is read.
fn begin(lab: &Lab) -> (Child, BufReader<ChildStdout>, String) {
    let mut asking = lab.command(binary::platter());
    asking.arg0("zfs").args(["diff", "tank/fs@a"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asking = asking.spawn().expect("it runs");
    let (mut first, mut told) = (String::new(), BufReader::new(asking.stdout.take().expect("it is piped")));
    told.read_line(&mut first).unwrap();
    (asking, told, first)
}

#[test]
fn what_differs_is_told_as_openzfs_tells_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    for name in ["kept", "changed", "gone", "old name", "linked"] {
        fs::write(mount.join(name), data::random(1, 20_000)).unwrap();
    }
    fs::create_dir(mount.join("folder")).unwrap();
    settle(&lab);
    lab.zfs("snapshot tank/fs@a").ok();
    fs::write(mount.join("changed"), b"new").unwrap();
    fs::remove_file(mount.join("gone")).unwrap();
    fs::rename(mount.join("old name"), mount.join("folder/new")).unwrap();
    fs::hard_link(mount.join("linked"), mount.join("again")).unwrap();
    settle(&lab);
    lab.zfs("snapshot tank/fs@b").ok();
    std::os::unix::fs::symlink("kept", mount.join("link")).unwrap();
    let at = mount.display();
    let lines = |words: &str| -> Vec<String> {
        let mut lines: Vec<String> = lab.zfs(words).ok().stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut expected = [
        format!("M\t{at}/"),
        format!("M\t{at}/changed"),
        format!("-\t{at}/gone"),
        format!("R\t{at}/old\\0040name -> {at}/folder/new"),
        format!("M\t{at}/linked\t(+1)"),
        format!("M\t{at}/folder"),
    ];
    expected.sort();
    assert_eq!(lines("diff tank/fs@a tank/fs@b"), expected);
    assert_eq!(lines("diff tank/fs@a @b"), expected);
    assert!(lines("diff -h tank/fs@a @b").contains(&format!("R\t{at}/old name -> {at}/folder/new")));
    assert!(lines("diff -FH tank/fs@a @b").contains(&format!("R\tF\t{at}/old\\0040name\t{at}/folder/new")));
    assert_eq!(lines("diff -F tank/fs@b"), [format!("+\t@\t{at}/link"), format!("M\t/\t{at}/")]);
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a", "tank/fs@b"], "what is made to compare goes");
    lab.zfs("diff tank/fs@b tank/fs@a").refused().says("Unable to obtain diffs").says("Not an earlier snapshot");
    lab.zfs("diff tank/fs").refused().says("Badly formed snapshot name tank/fs");
    lab.zfs("clone tank/fs@b tank/clone").ok();
    fs::write(lab.mnt("tank/clone").join("own"), b"x").unwrap();
    let at = lab.mnt("tank/clone");
    assert_eq!(
        lines("diff tank/fs@b tank/clone"),
        [format!("+\t{}/own", at.display()), format!("M\t{}/", at.display())]
    );
    lab.zfs("unmount tank/fs").ok();
    lab.zfs("diff tank/fs@a tank/fs").refused().says("Cannot diff an unmounted snapshot");
}

#[test]
fn many_differences_are_told_as_they_are_found() {
    const FILES: usize = 12_000;
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    // So long that what is told does not fit into a pipe.
    let name = |number: usize| format!("{number:0>230}");
    let make = |number: usize| fs::write(mount.join(name(number)), b"").unwrap();
    (0..FILES).for_each(make);
    lab.zfs("snapshot tank/fs@a").ok();
    // Whole blocks of them are gone, and elsewhere one of many is.
    let is_gone = |number: usize| number < FILES / 3 || number.is_multiple_of(100);
    for number in (0..FILES).filter(|&number| is_gone(number)) {
        fs::remove_file(mount.join(name(number))).unwrap();
    }
    (FILES..FILES + 3_000).for_each(make);
    settle(&lab);
    let line = |letter: char, number: usize| format!("{letter}\t{}/{}", mount.display(), name(number));
    let mut expected: BTreeSet<String> =
        (0..FILES).filter(|&number| is_gone(number)).map(|number| line('-', number)).collect();
    expected.extend((FILES..FILES + 3_000).map(|number| line('+', number)));
    expected.insert(format!("M\t{}/", mount.display()));
    let told = lab.zfs("diff tank/fs@a").ok().stdout;
    assert_eq!(told.lines().count(), expected.len(), "each is told once");
    assert_eq!(told.lines().map(str::to_owned).collect::<BTreeSet<_>>(), expected);
    // Who has seen enough goes away.
    let (mut asking, told, first) = begin(&lab);
    assert!(expected.contains(first.trim_end()), "{first}");
    // What is compared stays until then, and what was made for it goes, whatever it is called by then.
    lab.zfs("destroy tank/fs@a").refused().says("dataset is busy");
    let made = made_to_compare(&lab);
    lab.zfs(&format!("destroy {made}")).refused().says("dataset is busy");
    lab.zfs("rollback -r tank/fs@a").refused();
    lab.zfs("destroy -r tank/fs").refused();
    lab.zfs("rename tank/fs tank/other").ok();
    drop(told);
    assert!(!asking.wait().expect("it ends").success());
    let begin = Instant::now();
    while lab.names("tank") != ["tank", "tank/other", "tank/other@a"] {
        assert!(begin.elapsed() < Duration::from_secs(60), "what is made to compare goes: {:?}", lab.names("tank"));
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.export("tank");
}

#[test]
fn a_file_whose_latest_name_is_gone_keeps_nothing_from_being_told() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    // A file remembers the folder in which it got its latest name.
    for (first, latest) in [("one", "two"), ("three", "four")] {
        fs::create_dir(mount.join(first)).unwrap();
        fs::create_dir(mount.join(latest)).unwrap();
        fs::write(mount.join(first).join("file"), b"hi").unwrap();
        fs::hard_link(mount.join(first).join("file"), mount.join(latest).join("file")).unwrap();
    }
    fs::remove_file(mount.join("two/file")).unwrap();
    settle(&lab);
    lab.zfs("snapshot tank/fs@a").ok();
    fs::write(mount.join("new"), b"").unwrap();
    settle(&lab);
    let at = mount.display();
    lab.zfs("diff tank/fs@a").ok().says(&format!("M\t{at}/\n")).says(&format!("+\t{at}/new\n")).says_not("file");
    fs::remove_dir_all(mount.join("four")).unwrap();
    settle(&lab);
    lab.zfs("diff tank/fs@a").ok().says(&format!("M\t{at}/four/file\t(-1)\n")).says(&format!("-\t{at}/four\n"));
}

/// The snapshot that the difference under way has taken.
fn made_to_compare(lab: &Lab) -> String {
    let mut names = lab.names("tank").into_iter();
    names.find(|name| name.contains("@zfs-diff-")).expect("it was made to compare")
}

/// Files of which more is told than a pipe holds.
fn fill(mount: &Path) {
    (0..8_000).for_each(|number| fs::write(mount.join(format!("{number:0>230}")), b"").unwrap());
}

/// The next daemon has not what this one was handed.
#[test]
fn who_waits_for_a_difference_does_not_start_the_daemon_anew() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    lab.zfs("snapshot tank/fs@a").ok();
    fill(&mount);
    settle(&lab);
    let (asking, told, _) = begin(&lab);
    lab.platter(["daemon", "stop"]).ok();
    drop(told);
    let ended = asking.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && !said.contains("started the daemon"), "{said}");
    assert!(!said.contains("descriptor"), "{said}");
    assert!(lab.daemon_pids().is_empty(), "{said}");
    lab.revive("tank");
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a"]);
}

#[test]
fn what_is_made_to_compare_is_gone_after_a_crash_and_counts_against_no_limit() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    lab.zfs("set snapshot_limit=1 tank/fs").ok();
    lab.zfs("snapshot tank/fs@a").ok();
    fill(&mount);
    settle(&lab);
    let (mut asking, told, first) = begin(&lab);
    assert!(first.starts_with(['+', 'M']), "{first}");
    let made = made_to_compare(&lab);
    assert_eq!(lab.zfs(&format!("get -H -o value defer_destroy {made}")).ok().stdout.trim(), "on");
    lab.zpool("sync tank").ok();
    lab.kill_daemon(true);
    drop(told);
    assert!(!asking.wait().expect("it ends").success());
    lab.revive("tank");
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a"]);
    assert_eq!(lab.zfs("diff tank/fs@a").ok().stdout.lines().count(), 8_001);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A stream that is being written, of which more is to come than a pipe holds.
fn sending(lab: &Lab, snapshot: &str) -> (Child, ChildStdout) {
    let mut sending = lab.command(binary::platter());
    sending.arg0("zfs").args(["send", snapshot]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut sending = sending.spawn().expect("it runs");
    let mut stream = sending.stdout.take().expect("it is piped");
    stream.read_exact(&mut [0; 4096]).expect("it begins");
    (sending, stream)
}

/// What a stream reads went with its last hold, its last clone, or the difference that it was made for; what lay there
/// by then was taken for damage and written over.
#[test]
fn what_a_stream_reads_goes_with_nothing_that_kept_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("large"), data::random(7, 16 << 20)).unwrap();
    for name in ["held", "cloned"] {
        lab.zfs(&format!("snapshot tank/fs@{name}")).ok();
    }
    lab.zfs("hold tag tank/fs@held").ok();
    lab.zfs("clone tank/fs@cloned tank/clone").ok();
    lab.zfs("destroy -d tank/fs@held,cloned").ok();
    for (snapshot, command) in [("held", "release tag tank/fs@held"), ("cloned", "destroy tank/clone")] {
        let (mut reader, stream) = sending(&lab, &format!("tank/fs@{snapshot}"));
        lab.zfs(command).refused().says("dataset is busy");
        drop(stream);
        reader.wait().expect("it ends");
        lab.zfs(command).ok();
        assert!(!lab.names("tank").contains(&format!("tank/fs@{snapshot}")));
    }
    lab.zfs("snapshot tank/fs@a").ok();
    fill(&mount);
    settle(&lab);
    let (mut asking, mut told, _) = begin(&lab);
    let made = made_to_compare(&lab);
    let (mut reader, stream) = sending(&lab, &made);
    let own = made.split_once('@').expect("a snapshot").1;
    let shown = fs::File::open(mount.join(".zfs/snapshot").join(own).join("large")).expect("it is shown");
    std::io::copy(&mut told, &mut std::io::sink()).expect("all is told");
    assert!(asking.wait().expect("it ends").success());
    assert!(lab.names("tank").contains(&made), "somebody reads it");
    drop(stream);
    reader.wait().expect("it ends");
    let begin = Instant::now();
    while lab.names("tank").contains(&made) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it goes when nobody reads it any more");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Each time another place, which the kernel has not kept.
    let mut reads = (1..15_u64).map(|at| {
        std::thread::sleep(Duration::from_millis(200));
        shown.read_at(&mut [0; 4096], at << 20)
    });
    assert!(reads.any(|read| read.is_err()), "what is gone is not shown any more");
    drop(shown);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
