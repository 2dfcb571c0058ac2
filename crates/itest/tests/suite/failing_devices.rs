//! Devices that return EIO on read, on write, on flush, or hang: property `failmode`, `zpool clear`, and that nothing
//! acknowledged is lost meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use platter_itest::{Faults, FaultyDisks, Lab, Tree, data, zdb};

/// Files that are on disk before anything fails.
fn fill(mount: &Path) -> Tree {
    for number in 0..6 {
        fs::write(mount.join(format!("before-{number}")), data::mixed(number, 500_000, 60_000)).expect("a file");
    }
    Tree::of(mount)
}

/// Writes a file and makes it stable, in a thread of its own: that may take until the devices are back.
fn write_stable(path: PathBuf, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
    std::thread::spawn(move || {
        let mut file = File::create(path)?;
        file.write_all(&bytes)?;
        file.sync_all()
    })
}

/// Exports, lets zdb judge the disks behind the faults, imports by way of them, and compares.
#[track_caller]
fn judge_and_return(lab: &Lab, disks: &FaultyDisks, tree: &Tree) {
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    let mount = lab.mnt("tank");
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "after recovery, export and import");
    lab.scrub("tank").says("with 0 errors").says("No known data errors");
}

#[test]
fn with_failmode_wait_everything_waits_for_the_devices_and_goes_on() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let disks = FaultyDisks::over(&lab, 3);
    let mount = lab.create("", "tank", &format!("raidz {}", disks.all()));
    fill(&mount);
    lab.zpool("sync tank").ok();
    disks.set(0, Faults::DEAD);
    disks.set(1, Faults::DEAD);
    let writer = write_stable(mount.join("during"), data::mixed(77, 900_000, 50_000));
    lab.wait_health("tank", "SUSPENDED");
    let status = lab.zpool("status tank").ok();
    status.says("faulted in response to IO failures").says("then run 'zpool clear'").says("ZFS-8000-HC");
    // What needs the devices is refused instead of hanging.
    lab.zfs("create tank/fs").refused().says("pool I/O is currently suspended").says("run 'zpool clear tank'");
    lab.zpool("sync tank").refused().says("pool I/O is currently suspended").says("run 'zpool clear tank'");
    lab.zpool("export tank").refused().says("pool I/O is currently suspended").says("zpool clear tank");
    lab.zpool("destroy tank").refused().says("pool I/O is currently suspended");
    assert!(!writer.is_finished(), "fsync cannot have been answered");
    // They can be opened but not used: the pool is suspended again at once.
    // Not even their labels can be read.
    lab.zpool("clear tank").refused().says("one or more devices is currently unavailable").says("Input/output error");
    lab.wait_health("tank", "SUSPENDED");
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    writer.join().expect("the writer").expect("the write went through");
    assert_eq!(fs::read(mount.join("during")).expect("a file"), data::mixed(77, 900_000, 50_000));
    let tree = Tree::of(&mount);
    lab.zpool("wait tank").ok();
    lab.wait_health("tank", "ONLINE");
    judge_and_return(&lab, &disks, &tree);
}

#[test]
fn with_failmode_continue_new_writes_are_refused_and_what_is_in_memory_is_still_read() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("-o failmode=continue", "tank", &disks.all());
    assert_eq!(lab.zpool("get -H -o value,source failmode tank").ok().stdout, "continue\tlocal\n");
    fill(&mount);
    let waiting = write_stable(mount.join("accepted"), vec![7; 300_000]);
    waiting.join().expect("the writer").expect("an ordinary write");
    disks.set(0, Faults { write: true, flush: true, ..Faults::default() });
    let mut open = OpenOptions::new().append(true).open(mount.join("accepted")).expect("a file");
    open.write_all(&[8; 1000]).expect("accepted before anybody knows");
    let waiting = std::thread::spawn(move || open.sync_all());
    lab.wait_health("tank", "SUSPENDED");
    lab.zpool("status tank").ok().says("ZFS-8000-JQ");
    let refused = fs::write(mount.join("new"), "more").expect_err("no new write is accepted");
    assert_eq!(refused.raw_os_error(), Some(5), "EIO: {refused}");
    assert_eq!(fs::read(mount.join("before-1")).expect("reads go on"), data::mixed(1, 500_000, 60_000));
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    waiting.join().expect("the writer").expect("what was accepted is stable");
    assert_eq!(fs::metadata(mount.join("accepted")).expect("a file").len(), 301_000);
    fs::write(mount.join("new"), "more").expect("writes are accepted again");
    let tree = Tree::of(&mount);
    lab.zpool("wait tank").ok();
    judge_and_return(&lab, &disks, &tree);
}

#[test]
fn with_failmode_panic_that_pool_stops_and_nothing_else() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let disks = FaultyDisks::over(&lab, 2);
    let mount = lab.create("-o failmode=panic", "tank", &format!("mirror {}", disks.all()));
    let other = lab.create("", "other", &lab.disk(2).display().to_string());
    fill(&mount);
    write_stable(mount.join("stable"), vec![9; 100_000]).join().expect("the writer").expect("stable");
    let tree = Tree::of(&mount);
    disks.set_all(Faults::DEAD);
    let lost = write_stable(mount.join("lost"), vec![1; 50_000]);
    lab.wait_health("tank", "SUSPENDED");
    let error = lost.join().expect("the writer").expect_err("fsync says that it failed");
    assert_eq!(error.raw_os_error(), Some(5), "EIO: {error}");
    fs::write(other.join("file"), "alive").expect("the other pool goes on");
    lab.zpool("sync other").ok();
    lab.zpool("clear tank").refused().says("has stopped for good");
    lab.zpool("status tank").ok().says("The pool has stopped");
    disks.set_all(Faults::default());
    lab.zpool("export -f tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    let after = Tree::of(&mount);
    assert_eq!(fs::read(mount.join("stable")).expect("a file"), vec![9; 100_000]);
    // The file whose fsync failed may be there or not; everything before it is.
    let _ = fs::remove_file(mount.join("lost"));
    tree.assert_same(&Tree::of(&mount), "after the pool stopped");
    drop(after);
    judge_and_return(&lab, &disks, &tree);
}

#[test]
fn a_pool_whose_devices_do_not_come_back_is_exported_by_force_and_keeps_what_was_stable() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &disks.all());
    fill(&mount);
    write_stable(mount.join("stable"), vec![3; 40_000]).join().expect("the writer").expect("stable");
    let tree = Tree::of(&mount);
    disks.set_all(Faults::DEAD);
    let waiting = write_stable(mount.join("waiting"), vec![1; 50_000]);
    lab.wait_health("tank", "SUSPENDED");
    lab.zpool("export -f tank").ok();
    waiting.join().expect("the writer").expect_err("what waited was given up");
    assert!(lab.mounts().iter().all(|at| *at != mount), "nothing stays mounted");
    disks.set_all(Faults::default());
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    let _ = fs::remove_file(mount.join("waiting"));
    tree.assert_same(&Tree::of(&mount), "after export -f");
    judge_and_return(&lab, &disks, &tree);
}

#[test]
fn a_read_error_on_one_device_is_repaired_from_the_others_and_on_all_is_eio() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let disks = FaultyDisks::over(&lab, 2);
    let mount = lab.create("-O primarycache=all", "tank", &format!("mirror {}", disks.all()));
    let tree = fill(&mount);
    lab.export("tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    disks.set(0, Faults { read: true, ..Faults::default() });
    tree.assert_same(&Tree::of(&mount), "with one device that cannot be read");
    disks.set(0, Faults::default());
    lab.zpool("clear tank").ok();
    lab.zpool("wait tank").ok();
    lab.wait_health("tank", "ONLINE");
    judge_and_return(&lab, &disks, &tree);
}

#[test]
fn a_flush_that_fails_commits_nothing_and_lost_caches_are_noticed() {
    // A device that loses power has lost what it had accepted and not flushed, and does not say so when it is back:
    // after `zpool clear` the group was committed over blocks that were not there.
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    for lost in [false, true] {
        let disks = FaultyDisks::over(&lab, 1);
        let mount = lab.create("-f", "tank", &disks.all());
        fill(&mount);
        lab.zpool("sync tank").ok();
        let tree = Tree::of(&mount);
        disks.set(0, Faults { flush: true, ..Faults::default() });
        fs::write(mount.join("unflushed"), data::mixed(5, 400_000, 10_000)).expect("a file");
        lab.wait_health("tank", "SUSPENDED");
        if lost {
            assert!(disks.lose_power(0) > 0, "something was not flushed");
        }
        disks.set_all(Faults::default());
        let cleared = lab.zpool("clear tank");
        if lost {
            cleared.refused();
            lab.wait_health("tank", "SUSPENDED");
            lab.zpool("export -f tank").ok();
            lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
            lab.wait_mounted(&mount);
            tree.assert_same(&Tree::of(&mount), "the state before the devices failed");
            judge_and_return(&lab, &disks, &tree);
        } else {
            cleared.ok();
            let tree = Tree::of(&mount);
            assert_eq!(fs::read(mount.join("unflushed")).expect("a file"), data::mixed(5, 400_000, 10_000));
            lab.zpool("wait tank").ok();
            judge_and_return(&lab, &disks, &tree);
        }
        lab.zpool("destroy tank").ok();
        drop(disks);
        let _ = lab.run("umount", ["-l", &lab.root().join("faulty").display().to_string()]);
        let _ = fs::remove_dir(lab.root().join("faulty"));
    }
}

#[test]
fn a_device_that_hangs_holds_up_its_pool_and_the_pool_still_tells_its_state() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let disks = FaultyDisks::over(&lab, 2);
    let mount = lab.create("", "tank", &format!("mirror {}", disks.all()));
    let other = lab.create("", "other", &lab.disk(2).display().to_string());
    fill(&mount);
    disks.set(1, Faults { hang: true, ..Faults::default() });
    let writer = write_stable(mount.join("during"), vec![4; 200_000]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!writer.is_finished(), "a mirror is stable when both halves are");
    // Another pool goes on as if nothing had happened. It stood still once: the one thread that submits transfers to
    // the kernel waited in a write to the file of the server that hung, because FUSE submits by waiting.
    for round in 0..5 {
        let bytes = data::mixed(round, 700_000, 30_000);
        write_stable(other.join(format!("file-{round}")), bytes).join().expect("the writer").expect("stable");
        lab.zpool("sync other").ok();
        lab.zpool("list other").ok().says("ONLINE");
    }
    lab.scrub("other").says("with 0 errors");
    let third = lab.create("", "third", &lab.disk(3).display().to_string());
    write_stable(third.join("file"), vec![5; 10_000]).join().expect("the writer").expect("stable");
    lab.export("third");
    lab.zpool("list").ok().says("tank").says("other");
    lab.zpool("status tank").ok().says("ONLINE");
    lab.zpool("iostat -v tank").ok();
    disks.set_all(Faults::default());
    writer.join().expect("the writer").expect("stable after all");
    let tree = Tree::of(&mount);
    judge_and_return(&lab, &disks, &tree);
}

/// What had begun came with the group when the pool went on, and nobody was there any more who would end it: neither
/// could it be received again, nor be removed.
#[test]
fn a_receive_that_a_suspension_ends_leaves_nothing_behind() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let disks = FaultyDisks::over(&lab, 1);
    lab.create("", "tank", &disks.all());
    lab.create("", "from", "d1");
    let source = lab.create_fs("", "from/a");
    for number in 1..3 {
        fs::write(source.join(format!("{number}")), data::random(number, 300_000)).expect("a file");
        lab.zfs(&format!("snapshot from/a@{number}")).ok();
    }
    let zfs = format!("{} zfs", platter_itest::binary::platter().display());
    let pass =
        |send: &str, receive: &str| lab.run("sh", ["-c", &format!("{zfs} send {send} | {zfs} receive {receive}")]);
    pass("from/a@1", "tank/a").ok();
    for (send, receive) in [("-i @1 from/a@2", "-F tank/a"), ("-R -I @1 from/a@2", "-F tank/a"), ("from/a@2", "tank/b")]
    {
        lab.zpool("sync tank").ok();
        disks.set_all(Faults { write: true, flush: true, ..Faults::default() });
        pass(send, receive).refused().says("pool I/O is currently suspended").says("zpool clear");
        lab.zfs("snapshot tank/a@late").refused().says("pool I/O is currently suspended");
        disks.set_all(Faults::default());
        lab.zpool("clear tank").ok();
        lab.wait_health("tank", "ONLINE");
        let begun = std::time::Instant::now();
        while pass(send, receive).code != 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{}", pass(send, receive));
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let dataset = receive.trim_start_matches("-F ");
        Tree::of(&source).assert_same(&Tree::of(&lab.mnt(dataset)), receive);
        if dataset == "tank/a" {
            lab.zfs("rollback -r tank/a@1").ok();
        }
    }
    // What another receive has left to go on with stays, whatever is refused meanwhile.
    let part = format!("{zfs} send from/a@2 | head -c 200000 | {zfs} receive -s tank/c");
    lab.run("sh", ["-c", &part]).refused().says("zfs send -t");
    let token = || lab.zfs("get -H -o value receive_resume_token tank/c").ok().stdout;
    let before = token();
    lab.zpool("sync tank").ok();
    disks.set_all(Faults { write: true, flush: true, ..Faults::default() });
    lab.zfs("create -u tank/other").refused().says("pool I/O is currently suspended");
    pass("from/a@2", "tank/c").refused();
    pass(&format!("-t {}", before.trim()), "-s tank/c").refused();
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    lab.zpool("sync tank").ok();
    assert_eq!(token(), before);
    pass(&format!("-t {}", before.trim()), "-s tank/c").ok();
    Tree::of(&source).assert_same(&Tree::of(&lab.mnt("tank/c")), "resumed");
    // What is told to be begun is done when the pool goes on.
    lab.zpool("sync tank").ok();
    disks.set_all(Faults { write: true, flush: true, ..Faults::default() });
    let refused = lab.zfs("create -u tank/new").refused();
    refused.says("what was begun is done when it goes on").says("zpool clear tank");
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    lab.zpool("sync tank").ok();
    lab.zfs("list tank/new").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
