//! `zfs diff`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use platter_itest::{Lab, binary, data};

/// The kernel says when it likes that it closed a file, or that it forgot one that is gone.
fn settle(lab: &Lab) {
    lab.zfs("unmount tank/fs").ok();
    lab.zfs("mount tank/fs").ok();
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
    let mut asking = lab.command(binary::platter());
    asking.arg0("zfs").args(["diff", "tank/fs@a"]).stdout(Stdio::piped());
    let mut asking = asking.spawn().expect("it runs");
    let (mut first, mut told) = (String::new(), BufReader::new(asking.stdout.take().expect("it is piped")));
    told.read_line(&mut first).unwrap();
    assert!(expected.contains(first.trim_end()), "{first}");
    // What is compared stays until then, and what was made for it goes, whatever it is called by then.
    lab.zfs("destroy tank/fs@a").refused().says("dataset is busy");
    let made = lab.names("tank").into_iter().find(|name| name.contains("@zfs-diff-")).expect("it was made to compare");
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
