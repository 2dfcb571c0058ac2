//! Disks that were away and come back: several at once, one after the other, while a scan runs, on a full file system.
//! Afterwards the disks that were there all the time are taken away: nothing may be lacking.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_itest::{Lab, Run, Tree, data, judge, zdb};

const SIZE_MIB: u64 = 160;

/// Files that compress badly, `mib` mebibytes in all.
fn fill(mount: &Path, what: &str, mib: u64) {
    for number in 0..mib / 4 {
        let bytes = data::random(number + mib, 4 << 20);
        fs::write(mount.join(format!("{what}-{number}")), bytes).expect("a file can be written");
    }
    for number in 0..40 {
        let bytes = data::text(number, 300 + 700 * number as usize);
        fs::write(mount.join(format!("{what}-small-{number}")), bytes).expect("a file can be written");
    }
}

/// Waits for every scan, and returns what the pool says of itself then.
fn settled(lab: &Lab) -> Run {
    lab.zpool("wait tank").ok();
    lab.zpool("status tank").ok().says_not("awaiting resilver").says_not("in progress")
}

/// Takes away `disks`, which the pool must allow, and lets `dataset` be read without them, the pool by zdb too.
#[track_caller]
fn without(lab: &Lab, disks: &[usize], dataset: &str, tree: &Tree, what: &str) {
    for disk in disks {
        lab.zpool(&format!("offline tank d{disk}")).ok();
    }
    lab.export("tank");
    let away: Vec<(PathBuf, PathBuf)> =
        disks.iter().map(|disk| (lab.disk(*disk), lab.tmp().join(format!("away{disk}")))).collect();
    for (here, there) in &away {
        fs::rename(here, there).expect("a device file can be moved");
    }
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&lab.mnt(dataset));
    tree.assert_same(&Tree::of(&lab.mnt(dataset)), what);
    lab.scrub("tank").says("with 0 errors").says("No known data errors");
    lab.zpool("destroy tank").ok();
}

/// What a device missed is found in time that goes with that, and not with what the pool holds.
#[test]
fn a_resilver_looks_only_at_what_was_missed() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, SIZE_MIB);
    let mount = lab.create("-o ashift=12", "tank", "mirror d0 d1 mirror d2 d3");
    fill(&mount, "before", 96);
    lab.zfs("snapshot tank@before").ok();
    lab.zpool("sync tank").ok();
    lab.zpool("offline tank d1").ok();
    fill(&mount, "meanwhile", 4);
    lab.zpool("sync tank").ok();
    lab.zpool("online tank d1").ok();
    settled(&lab).says("resilvered").says("with 0 errors");
    let status = lab.zpool("status -j --json-int tank").ok().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let scan = &status["pools"]["tank"]["scan_stats"];
    let number = |name: &str| scan[name].as_u64().expect("a number");
    let (examined, issued, repaired) = (number("examined"), number("issued"), number("processed"));
    assert!(examined < 48 << 20 && issued < 24 << 20 && repaired > 1 << 20, "{scan}");
    let tree = Tree::of(&mount);
    without(&lab, &[0], "tank", &tree, "what it missed is there");
}

/// Two of four disks miss 32 MiB; `bring_back` brings them back.
fn two_return(what: &str, bring_back: impl Fn(&Lab)) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, SIZE_MIB);
    let mount = lab.create("-o ashift=12", "tank", "raidz2 d0 d1 d2 d3");
    fill(&mount, "before", 16);
    lab.zpool("sync tank").ok();
    lab.zpool("offline tank d0").ok();
    lab.zpool("offline tank d1").ok();
    fill(&mount, "meanwhile", 32);
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    bring_back(&lab);
    settled(&lab).says("resilvered").says("with 0 errors").says_not("OFFLINE");
    without(&lab, &[2, 3], "tank", &tree, what);
}

#[test]
fn disks_brought_online_together_are_all_resilvered() {
    // The second one came while the resilver of the first ran, and at its end was declared complete as well: with the
    // other two gone the pool could not be opened.
    two_return("both at once", |lab| drop(lab.zpool("online tank d0 d1").ok()));
}

#[test]
fn a_disk_that_returns_while_another_is_resilvered_is_resilvered_too() {
    two_return("one after the other", |lab| {
        lab.zpool("online tank d0").ok();
        std::thread::sleep(Duration::from_millis(150));
        lab.zpool("online tank d1").ok();
    });
}

#[test]
fn disks_that_return_during_a_scrub_are_resilvered() {
    two_return("during a scrub", |lab| {
        lab.zpool("scrub tank").ok();
        lab.zpool("online tank d1").ok();
        lab.zpool("online tank d0").ok();
    });
}

#[test]
fn a_disk_that_flaps_while_it_is_resilvered_is_resilvered_from_the_beginning() {
    two_return("after flapping", |lab| {
        lab.zpool("online tank d0").ok();
        lab.zpool("online tank d1").ok();
        for _ in 0..3 {
            // Refused as long as the other one has not caught up.
            lab.zpool("offline tank d0");
            lab.zpool("online tank d0").ok();
        }
    });
}

#[test]
fn a_resilver_that_an_export_interrupts_is_made_up_for() {
    two_return("after an export in between", |lab| {
        lab.zpool("online tank d0").ok();
        lab.export("tank");
        lab.import("", "tank");
        lab.zpool("online tank d1").ok();
        lab.export("tank");
        lab.import("", "tank");
    });
}

#[test]
fn data_without_checksums_is_resilvered_from_the_disks_that_have_it() {
    // What the disk held that had been away was taken for right: raidz computed parity from it, a mirror left it.
    for (vdev, disks, away, gone) in [
        ("mirror d0 d1", 2, &[0][..], &[1][..]),
        ("raidz1 d0 d1 d2", 3, &[1], &[0]),
        ("raidz2 d0 d1 d2 d3", 4, &[0, 2], &[1, 3]),
    ] {
        let Some(lab) = Lab::open() else { return };
        lab.disks(disks, SIZE_MIB);
        lab.create("-o ashift=12", "tank", vdev);
        let mount = lab.create_fs("-o checksum=off -o compression=off", "tank/fs");
        fill(&mount, "before", 12);
        lab.zpool("sync tank").ok();
        for disk in away {
            lab.zpool(&format!("offline tank d{disk}")).ok();
        }
        // In part over what was there, so that what is stale looks like data.
        fill(&mount, "before", 12);
        fill(&mount, "meanwhile", 24);
        lab.zpool("sync tank").ok();
        let tree = Tree::of(&mount);
        for disk in away {
            lab.zpool(&format!("online tank d{disk}")).ok();
        }
        settled(&lab).says("with 0 errors");
        without(&lab, gone, "tank/fs", &tree, vdev);
    }
}

/// A small file system of its own, full before a sparse device file in it is.
struct Small(PathBuf);

impl Small {
    fn mount(lab: &Lab, mib: u64) -> Option<Self> {
        let at = lab.root().join("small");
        fs::create_dir(&at).expect("a folder");
        let mounted =
            lab.run("mount", ["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", &at.display().to_string()]);
        if mounted.code != 0 {
            judge::skip("a full host disk", "a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(at))
    }

    fn resize(&self, lab: &Lab, mib: u64) {
        let options = format!("remount,size={mib}m");
        lab.run("mount", ["-o", &options, &self.0.display().to_string()]).ok();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn repairs_that_a_full_host_disk_refuses_are_not_taken_for_made() {
    // "resilvered with 0 errors", with 959 write errors; then the only complete disk could be taken offline.
    let Some(lab) = Lab::open() else { return };
    let Some(small) = Small::mount(&lab, 30) else { return };
    lab.disks(1, SIZE_MIB);
    let cramped = small.0.join("c1");
    fs::File::create(&cramped).and_then(|file| file.set_len(SIZE_MIB << 20)).expect("a sparse file");
    let mount = lab.create("-o ashift=12", "tank", &format!("mirror d0 {}", cramped.display()));
    lab.zpool(&format!("offline tank {}", cramped.display())).ok();
    fill(&mount, "file", 60);
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    lab.zpool(&format!("online tank {}", cramped.display())).ok();
    lab.zpool("wait tank").ok();
    let status = lab.zpool("status tank").ok().says("resilvered").says_not("with 0 errors");
    // Whether the next attempt is about to begin, or it has been given up, is a matter of moments.
    let words = ["(not fully resilvered)", "(awaiting resilver)", "FAULTED"];
    assert!(words.iter().any(|word| status.mentions(word)), "{status}");
    lab.zpool("offline tank d0").refused().says("no valid replicas");
    // A scrub does not make it better.
    lab.zpool("scrub -w tank").ok();
    lab.zpool("offline tank d0").refused().says("no valid replicas");
    small.resize(&lab, SIZE_MIB + 40);
    lab.zpool("clear tank").ok();
    settled(&lab).says("with 0 errors");
    lab.zpool("offline tank d0").ok();
    lab.export("tank");
    fs::rename(lab.disk(0), lab.tmp().join("away")).expect("a device file can be moved");
    zdb::assert_clean(&small.0, "tank");
    lab.zpool(&format!("import -d {} tank", small.0.display())).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "on the disk that was full");
    lab.zpool("destroy tank").ok();
}
