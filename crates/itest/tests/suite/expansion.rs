//! Larger disks: what a pool has more once they are used. Each on-disk change is judged by zdb.

use std::fs::{self, OpenOptions};

use platter_itest::{Lab, Tree, data};

fn number(lab: &Lab, property: &str) -> u64 {
    let value = lab.zpool(&format!("get -Hp -o value {property} tank")).ok().stdout;
    value.trim().parse().unwrap_or(0)
}

/// Every disk of a group is replaced by a larger one; the last makes the others' room useful.
fn replaced_by_larger(vdevs: &str, count: usize, automatic: bool) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(count, 96);
    let mount = lab.create("", "tank", vdevs);
    let tree = Tree::filled(&mount, 1);
    let before = number(&lab, "size");
    if automatic {
        lab.zpool("set autoexpand=on tank").ok();
        assert_eq!(lab.zpool("get -H -o value autoexpand tank").ok().stdout, "on\n");
    }
    for old in 0..count {
        lab.add_disk(count + old, 256);
        lab.zpool(&format!("replace -w tank d{old} d{}", count + old)).ok();
        let is_last = old + 1 == count;
        // It grows a moment after the old disk has left.
        let start = std::time::Instant::now();
        while is_last && automatic && number(&lab, "size") == before && start.elapsed().as_secs() < 30 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert_eq!(number(&lab, "size") > before, is_last && automatic, "disk {old}");
        assert_eq!(number(&lab, "expandsize") > 0, is_last && !automatic, "disk {old}");
    }
    if !automatic {
        lab.zpool(&format!("online tank d{count}")).ok();
        assert_eq!(number(&lab, "size"), before, "nobody asked for it");
        lab.judge_and_return("tank", &mount, &tree);
        assert_eq!(number(&lab, "size"), before, "nor does an import");
        lab.zpool(&format!("online -e tank d{count}")).ok();
    }
    let after = number(&lab, "size");
    assert!(after > 2 * before, "{before} bytes became {after}");
    assert_eq!(number(&lab, "expandsize"), 0);
    // What did not fit before is written to the new room.
    let random = data::random(7, 60 << 20);
    fs::write(mount.join("large"), &random).expect("there is room now");
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    assert_eq!(number(&lab, "size"), after);
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.kill_daemon(true);
    lab.revive("tank");
    tree.assert_same(&Tree::of(&mount), "after a crash");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_mirror_of_larger_disks_grows_when_somebody_says_so() {
    replaced_by_larger("mirror d0 d1", 2, false);
}

#[test]
fn a_raidz_of_larger_disks_grows_by_itself() {
    replaced_by_larger("raidz d0 d1 d2", 3, true);
}

/// The files behind a pool become larger while it is in use.
#[test]
fn disks_that_grow_under_a_pool_are_used() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    let before = number(&lab, "size");
    let grow = |disk: usize| {
        let file = OpenOptions::new().write(true).open(lab.disk(disk)).expect("open");
        file.set_len(300 << 20).expect("grown");
    };
    grow(0);
    lab.zpool("online -e tank d0").ok();
    assert_eq!(number(&lab, "size"), before, "the other side has no more");
    grow(1);
    // It was looked at that one only, which had grown before.
    lab.zpool("online -e tank d0").ok();
    let after = number(&lab, "size");
    assert!(after > 2 * before, "{before} bytes became {after}");
    lab.wait_health("tank", "ONLINE");
    lab.judge_and_return("tank", &mount, &tree);
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    let mount = lab.create("", "tank2", "d2");
    let tree = Tree::filled(&mount, 2);
    grow(2);
    lab.zpool("reopen tank2").ok();
    assert!(!lab.zpool("get -Hp -o value expandsize tank2").ok().stdout.starts_with('-'), "a reopen looks");
    lab.zpool("online -e tank2 d2").ok();
    let size = lab.zpool("get -Hp -o value size tank2").ok().stdout.trim().parse::<u64>().expect("a number");
    assert!(size > 2 * (96 << 20), "{size}");
    lab.judge_and_return("tank2", &mount, &tree);
}
