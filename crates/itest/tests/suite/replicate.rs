//! `platter replicate`: a second copy, here or on another machine, that is kept up to date.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use platter_itest::binary::platter as binary;
use platter_itest::{Lab, Run, Tree, data, zdb};

/// A lab with the pools tank and copy.
fn lab() -> Option<Lab> {
    let lab = Lab::open()?;
    lab.disks(2, 300);
    lab.create("", "tank", "d0");
    lab.create("", "copy", "d1");
    Some(lab)
}

fn replicate(lab: &Lab, words: &str) -> Run {
    lab.platter(["replicate"].into_iter().chain(words.split_whitespace()))
}

fn snapshots(lab: &Lab, dataset: &str) -> Vec<String> {
    let listed = lab.zfs(&format!("list -H -d 1 -t snapshot -o name -s createtxg {dataset}")).ok().stdout;
    listed.lines().filter_map(|name| name.split_once('@')).map(|(_, own)| own.to_owned()).collect()
}

fn bookmarks(lab: &Lab, dataset: &str) -> usize {
    lab.zfs(&format!("list -H -d 1 -t bookmark -o name {dataset}")).ok().stdout.lines().count()
}

fn write(lab: &Lab, dataset: &str, seed: u64) {
    fs::write(lab.mnt(dataset).join(format!("file{seed}")), data::random(seed, 300_000)).expect("a file");
}

#[test]
fn a_copy_is_kept_up_to_date() {
    let Some(lab) = lab() else { return };
    for name in ["tank/a", "tank/a/b"] {
        lab.create_fs("", name);
    }
    replicate(&lab, "tank/a copy/a").refused().says("has no snapshot");
    replicate(&lab, "tank/none copy/a").refused().says("dataset does not exist");
    for seed in 0..3 {
        write(&lab, "tank/a", seed);
        write(&lab, "tank/a/b", 10 + seed);
        lab.zfs(&format!("snapshot -r tank/a@s{seed}")).ok();
    }
    replicate(&lab, "-r tank/a copy/a").ok().says("tank/a/b@s2 -> copy/a/b");
    assert_eq!(snapshots(&lab, "copy/a/b"), ["s0", "s1", "s2"]);
    replicate(&lab, "-r tank/a copy/a").ok().says("nothing new");
    // The base may go here: its bookmark is enough, and there is one for each target.
    write(&lab, "tank/a", 5);
    lab.zfs("snapshot -r tank/a@s3").ok();
    lab.zfs("snapshot -r tank/a@s4").ok();
    lab.zfs("destroy -r tank/a@s0%s2").ok();
    replicate(&lab, "-r tank/a copy/a").ok();
    assert_eq!(snapshots(&lab, "copy/a"), ["s0", "s1", "s2", "s3", "s4"]);
    replicate(&lab, "-rF --limit 20M tank/a copy/second").ok();
    assert_eq!((bookmarks(&lab, "tank/a"), snapshots(&lab, "copy/second")), (2, vec!["s3".into(), "s4".into()]));

    // What the target has already from elsewhere is noted, too.
    let zfs = format!("{} zfs", binary().display());
    lab.run("sh", ["-c", &format!("{zfs} send tank/a@s4 | {zfs} receive -u copy/third")]).ok();
    replicate(&lab, "tank/a copy/third").ok().says("nothing new");
    assert_eq!(bookmarks(&lab, "tank/a"), 3);

    // With -s it makes one, and keeps only the newest at both ends.
    for seed in 6..9 {
        write(&lab, "tank/a", seed);
        replicate(&lab, "-rsp tank/a copy/a").ok();
        for pool in ["tank", "copy"] {
            let own = snapshots(&lab, &format!("{pool}/a"));
            assert_eq!(own.iter().filter(|name| name.starts_with("replica_")).count(), 1, "{own:?}");
        }
    }
    lab.zfs("mount copy/a").ok();
    lab.zfs("mount copy/a/b").ok();
    Tree::of(&lab.mnt("tank/a")).assert_same(&Tree::of(&lab.mnt("copy/a")), "the copy");

    // A target of its own is not overwritten unawares.
    lab.zfs("snapshot copy/a@own").ok();
    write(&lab, "tank/a", 20);
    replicate(&lab, "-s tank/a copy/a").refused().says("is newer than what both have (@own)");
    replicate(&lab, "-sF tank/a copy/a").ok();
    lab.create_fs("", "copy/other");
    replicate(&lab, "-F tank/a copy/other").refused().says("has no snapshot in common");
    for wrong in ["tank/a@s4 copy/a", "tank/a copy//a", "--limit 0 tank/a copy/a", "--every x tank/a copy/a"] {
        replicate(&lab, wrong).refused();
    }
    for pool in ["tank", "copy"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// Each copy was copied once more, a level deeper; and children went into another data set.
#[test]
fn a_copy_is_not_made_where_it_does_not_belong() {
    let Some(lab) = lab() else { return };
    for name in ["tank/a", "tank/a/b", "copy/other"] {
        lab.create_fs("", name);
    }
    lab.zfs("snapshot -r tank/a@1").ok();
    for words in ["-r tank/a tank/a/backup", "-r tank/a tank/a", "tank/a tank/a"] {
        replicate(&lab, words).refused().says("name another target");
    }
    assert_eq!(lab.zfs("list -H -o name -r tank/a").ok().stdout, "tank/a\ntank/a/b\n");
    replicate(&lab, "-r tank/a copy/other").refused().says("nothing is copied there or below");
    assert_eq!(lab.zfs("list -H -o name -r copy").ok().stdout, "copy\ncopy/other\n");
    assert_eq!(bookmarks(&lab, "tank/a/b"), 0);
    // One more was made each time.
    replicate(&lab, "-rs tank/a copy/other").refused().says("nothing is copied there or below");
    assert_eq!(snapshots(&lab, "tank/a"), ["1"]);
    replicate(&lab, "tank/a tank/a/backup").ok();
}

/// The rest of another data set was sent, or what somebody else had begun there was given up; and each round left a
/// snapshot that nothing could be done with.
#[test]
fn what_somebody_else_began_stays_and_no_snapshot_is_left() {
    let Some(lab) = lab() else { return };
    for name in ["tank/a", "tank/a/b", "tank/big", "copy/a", "copy/a/b"] {
        lab.create_fs("", name);
    }
    write(&lab, "tank/a", 1);
    fs::write(lab.mnt("tank/big").join("file"), data::random(2, 8 << 20)).expect("a file");
    lab.zfs("snapshot tank/big@x").ok();
    let zfs = format!("{} zfs", binary().display());
    lab.run("sh", ["-c", &format!("{zfs} send tank/big@x | head -c 4M | {zfs} receive -s copy/t; true")]).ok();
    let token = || lab.zfs("get -H -o value receive_resume_token copy/t").ok().stdout;
    assert!(token().len() > 10, "it broke off in the middle: {}", token());
    for round in 0..2 {
        replicate(&lab, "-s tank/a copy/t").refused().says("has part of 'tank/big@x'").says("receive -A copy/t");
        assert!(token().len() > 10, "it is as it was");
        if round == 0 {
            lab.zfs("destroy -r tank/big").ok();
        }
    }
    lab.zfs("receive -A copy/t").ok();
    replicate(&lab, "-s tank/a copy/t").ok();
    assert_eq!(snapshots(&lab, "tank/a").len(), 1);
    lab.zfs("destroy -r copy/t").ok();
    lab.zfs("snapshot copy/a@own").ok();
    for (words, why) in [
        ("-rs tank/a copy/a", "nothing is copied there or below"),
        ("-s tank/a copy/no/a", "does not exist"),
        ("-s tank/a none/a", "does not exist"),
    ] {
        replicate(&lab, words).refused().says(why);
        assert_eq!(snapshots(&lab, "tank/a").len(), 1, "{words}");
        assert_eq!(snapshots(&lab, "tank/a/b").len(), 0, "{words}");
    }
    // Of the children one cannot be copied: it keeps none, the other one has it.
    lab.zfs("destroy -r copy/a").ok();
    replicate(&lab, "-rs tank/a copy/a").ok();
    lab.zfs("destroy -r copy/a/b").ok();
    lab.zfs("create copy/a/b").ok();
    let before = snapshots(&lab, "tank/a/b");
    for seed in 3..6 {
        write(&lab, "tank/a", seed);
        replicate(&lab, "-rs tank/a copy/a").refused().says("nothing is copied there or below");
    }
    assert_eq!(snapshots(&lab, "tank/a/b"), before);
    lab.zfs("destroy -r tank/a").ok();
}

/// What `zfs diff` makes for itself while it compares, and what waits for its last hold: a target would keep it.
#[test]
fn what_is_about_to_go_is_not_copied() {
    let Some(lab) = lab() else { return };
    lab.create_fs("", "tank/a");
    for seed in 0..5 {
        write(&lab, "tank/a", seed);
        lab.zfs(&format!("snapshot tank/a@s{seed}")).ok();
    }
    for going in ["s0", "s2", "s4"] {
        lab.zfs(&format!("hold keep tank/a@{going}")).ok();
        lab.zfs(&format!("destroy -d tank/a@{going}")).ok();
    }
    replicate(&lab, "-s tank/a copy/a").ok();
    let copied = snapshots(&lab, "copy/a");
    assert_eq!(copied[..2], ["s1", "s3"]);
    assert_eq!(copied.len(), 3, "and the one that was made: {copied:?}");
    lab.zfs("destroy tank/a@s1,s3").ok();
    write(&lab, "tank/a", 9);
    replicate(&lab, "-s tank/a copy/a").ok();
    assert_eq!(snapshots(&lab, "copy/a").len(), 3, "of those that were made the newest stays");
    lab.zfs("mount copy/a").ok();
    assert_eq!(fs::read(lab.mnt("copy/a").join("file9")).unwrap(), data::random(9, 300_000));
}

#[test]
fn another_machine_is_reached_by_a_shell_and_what_broke_off_goes_on() {
    let Some(lab) = lab() else { return };
    lab.create_fs("-o compression=off", "tank/a");
    for seed in 0..40 {
        write(&lab, "tank/a", seed);
    }
    lab.zfs("snapshot tank/a@big").ok();
    // As ssh: the host, then words for its shell.
    let shell = lab.tmp().join("rsh");
    fs::write(&shell, "#!/bin/sh\necho \"$1\" >> \"$0.hosts\"\nshift\nexec sh -c \"$*\"\n").unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = lab.command(binary());
    let zfs = format!("{} zfs", binary().display());
    let over = |command: &mut std::process::Command, words: &[&str]| {
        command.args(["replicate", "-e", shell.to_str().unwrap(), "--remote-zfs", &zfs]).args(words);
    };
    over(&mut command, &["--limit", "2M", "tank/a", "me@there:copy/a"]);
    let mut slow = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let token = || {
        let run = lab.zfs("get -H -o value receive_resume_token copy/a");
        run.code == 0 && run.stdout.trim().len() > 1
    };
    let began = std::time::Instant::now();
    while lab.zfs("list copy/a").code != 0 {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    slow.kill().unwrap();
    slow.wait().unwrap();
    while !token() {
        assert!(began.elapsed().as_secs() < 120, "nothing stays of it");
        std::thread::sleep(Duration::from_millis(200));
    }
    let run = |words: &[&str]| {
        let mut command = lab.command(binary());
        over(&mut command, words);
        Run::of(&mut command, Duration::from_secs(120))
    };
    run(&["tank/a", "me@there:copy/a"]).ok();
    assert_eq!(snapshots(&lab, "copy/a"), ["big"]);
    assert!(!token());
    assert!(fs::read_to_string(lab.tmp().join("rsh.hosts")).unwrap().lines().all(|host| host == "me@there"));
    // From there to here.
    run(&["me@there:copy/a", "tank/back"]).ok();
    lab.zfs("mount tank/back").ok();
    Tree::of(&lab.mnt("tank/a")).assert_same(&Tree::of(&lab.mnt("tank/back")), "there and back");
    run(&["-e", "false", "tank/a", "host:copy/b"]).refused();
}

/// What the target has of a copy is not given up for a failure that passes, and nothing stays held afterwards.
#[test]
fn a_failure_that_passes_costs_nothing() {
    let Some(lab) = lab() else { return };
    lab.create_fs("", "tank/a");
    write(&lab, "tank/a", 1);
    lab.zfs("snapshot tank/a@s1").ok();
    let zfs = format!("{} zfs", binary().display());
    let cut = format!("{zfs} send -Lec tank/a@s1 | head -c 200000 | {zfs} receive -s copy/a");
    lab.run("sh", ["-c", &cut]);
    let token = || lab.zfs("get -H -o value receive_resume_token copy/a").ok().stdout;
    let first = token();
    assert!(first.trim().len() > 10, "{first}");
    let shell = lab.tmp().join("shell");
    let fails_once = format!(
        "[ -e '{0}' ] || case \"$*\" in *-nv*) touch '{0}'; echo lost >&2; exit 255;; esac",
        lab.tmp().join("failed").display()
    );
    let script = format!("#!/bin/sh\n{fails_once}\nshift 2\nexec {zfs} \"$@\"\n");
    fs::write(&shell, script).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let words = format!("-e {} host:tank/a copy/a", shell.display());
    replicate(&lab, &words).refused().says("lost");
    assert_eq!(token(), first, "what is there of it is kept");
    replicate(&lab, &words).ok();
    assert_eq!(snapshots(&lab, "copy/a"), ["s1"]);
    // Of a round that was broken off.
    let tag = lab.zfs("list -H -t bookmark -o name tank/a").ok().stdout;
    let tag = tag.trim().split_once('#').expect("a bookmark").1.rsplit_once('-').expect("a guid").0.to_owned();
    lab.zfs(&format!("hold {tag} tank/a@s1")).ok();
    write(&lab, "tank/a", 2);
    lab.zfs("snapshot tank/a@s2").ok();
    replicate(&lab, &words).ok();
    assert_eq!(lab.zfs("holds -H tank/a@s1 tank/a@s2").ok().stdout, "");
}

/// A schedule that keeps one snapshot of each second, and a copy that takes longer, are not in each other's way.
#[test]
fn a_schedule_does_not_take_away_what_is_sent() {
    let Some(lab) = lab() else { return };
    lab.create_fs("", "tank/a");
    write(&lab, "tank/a", 0);
    lab.zfs("set platter:snap=1s:1 tank/a").ok();
    let began = Instant::now();
    while snapshots(&lab, "tank/a").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "a first snapshot");
        std::thread::sleep(Duration::from_millis(100));
    }
    for round in 1..5 {
        write(&lab, "tank/a", round);
        std::thread::sleep(Duration::from_millis(1200));
        replicate(&lab, "--limit 400k tank/a copy/a").ok();
    }
    lab.zfs("set platter:snap=off tank/a").ok();
    let held = lab.zfs("list -H -t snapshot -o userrefs tank/a").ok().stdout;
    assert!(held.lines().all(|count| count == "0"), "{held}");
}

/// A copy that broke off, and into whose target somebody looked since: that is said, and not tried for ever.
#[test]
fn a_target_that_was_changed_ends_what_broke_off() {
    let Some(lab) = lab() else { return };
    lab.create_fs("", "tank/a");
    lab.zfs("snapshot tank/a@1").ok();
    replicate(&lab, "tank/a copy/a").ok();
    fs::write(lab.mnt("tank/a").join("file"), data::random(1, 20 << 20)).expect("a file");
    lab.zfs("snapshot tank/a@2").ok();
    let slow = format!("timeout -s KILL 3 {} replicate --limit 2M tank/a copy/a; [ $? = 137 ]", binary().display());
    lab.run("sh", ["-c", &slow]).ok();
    let token = || lab.zfs("get -H -o value receive_resume_token copy/a").ok().stdout;
    let began = Instant::now();
    while token().trim() == "-" {
        assert!(began.elapsed() < Duration::from_secs(30), "it broke off in the middle");
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.zfs("mount copy/a").ok();
    fs::write(lab.mnt("copy/a").join("own"), "x").expect("a file");
    lab.zpool("sync copy").ok();
    replicate(&lab, "tank/a copy/a").refused().says("has been modified");
    replicate(&lab, "-F tank/a copy/a").ok();
    assert_eq!(snapshots(&lab, "copy/a"), ["1", "2"]);
    assert_eq!(lab.zfs("holds -H tank/a@2").ok().stdout, "");
}
