//! Space and objects per user and group: what `zfs userspace` shows is what zdb finds, in the totals and in the files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::Path;

use platter_itest::{Lab, data, zdb};

/// Bytes and objects by id.
type Usage = BTreeMap<u64, (u64, u64)>;

/// `zfs userspace` (or `groupspace`) by number.
#[track_caller]
fn usage(lab: &Lab, command: &str, dataset: &str) -> Usage {
    let run = lab.zfs(&format!("{command} -Hpn -o name,used,objused {dataset}")).ok();
    let numbers = |line: &str| -> (u64, (u64, u64)) {
        let fields: Vec<u64> = line.split('\t').map(|field| field.parse().expect("a number")).collect();
        (fields[0], (fields[1], fields[2]))
    };
    run.stdout.lines().map(numbers).collect()
}

/// What zdb finds: the totals of users and of groups, and the same summed up from the files themselves.
fn found(dir: &Path, dataset: &str) -> Option<([Usage; 2], [Usage; 2])> {
    let run = zdb::zdb(dir, &["-Pdddd", dataset])?.ok();
    let (mut totals, mut sums) = ([Usage::new(), Usage::new()], [Usage::new(), Usage::new()]);
    let (mut object, mut bytes) = (0i64, 0u64);
    for line in run.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [number, level, _, _, dsize, _, _, full, ..] if level.len() < 3 && full.contains('.') => {
                object = number.parse().unwrap_or(0);
                bytes = dsize.parse().unwrap_or(0);
            }
            [name, "=", value] if object == -1 || object == -2 => {
                let place = &mut totals[usize::from(object == -2)];
                let value: u64 = value.parse().expect("a total");
                match name.strip_prefix("obj-") {
                    Some(id) => place.entry(u64::from_str_radix(id, 16).expect("an id")).or_default().1 = value,
                    None => place.entry(u64::from_str_radix(name, 16).expect("an id")).or_default().0 = value,
                }
            }
            [kind @ ("uid" | "gid"), id] => {
                let sum = sums[usize::from(*kind == "gid")].entry(id.parse().expect("an id")).or_default();
                *sum = (sum.0 + bytes + 512, sum.1 + 1);
            }
            _ => {}
        }
    }
    Some((totals, sums))
}

#[test]
fn totals_follow_files_through_everything_that_happens_to_them() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    lab.disks(2, 256);
    lab.create("", "tank", "mirror d0 d1");
    let mount = lab.create_fs("", "tank/u");
    for index in 0..30u32 {
        let path = mount.join(format!("f{index}"));
        fs::write(&path, data::random(u64::from(index), 1000 * index as usize + 1)).expect("a file");
        chown(&path, Some(1000 + index % 4), Some(2000 + index % 3)).expect("given away");
    }
    fs::create_dir(mount.join("d")).expect("a directory");
    chown(mount.join("d"), Some(1001), None).expect("given away");
    lab.zpool("sync tank").ok();
    for index in (0..30).step_by(3) {
        fs::remove_file(mount.join(format!("f{index}"))).expect("removed");
    }
    fs::hard_link(mount.join("f1"), mount.join("d/link")).expect("a link");
    fs::write(mount.join("f2"), b"shorter").expect("rewritten");
    chown(mount.join("f4"), Some(1003), Some(2002)).expect("given on");
    fs::File::options().write(true).open(mount.join("f5")).and_then(|f| f.set_len(1 << 30)).expect("a hole");
    lab.zpool("sync tank").ok();
    let (users, groups) = (usage(&lab, "userspace", "tank/u"), usage(&lab, "groupspace", "tank/u"));
    assert_eq!(users.keys().copied().collect::<Vec<_>>(), [0, 1000, 1001, 1002, 1003]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let Some((totals, sums)) = found(&lab.dev(), "tank/u") else { return };
    assert_eq!(totals, [users.clone(), groups], "what is shown is what is on disk");
    assert_eq!(sums, totals, "and what the files add up to");
    lab.import("", "tank");
    assert_eq!(usage(&lab, "userspace", "tank/u"), users);
    lab.export("tank");
}

#[test]
fn quotas_of_users_and_groups_hold() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    let path = mount.join("file");
    fs::write(&path, data::random(1, 1 << 20)).expect("a file");
    chown(&path, Some(1234), Some(4321)).expect("given away");
    lab.zpool("sync tank").ok();
    lab.zfs("set userquota@1234=512K groupobjquota@4321=1 tank/u").ok();
    let append = || fs::File::options().append(true).open(mount.join("file"))?.write_all(b"more");
    let error = append().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    fs::write(mount.join("other"), b"root's").expect("others are free");
    let error = chown(mount.join("other"), None, Some(4321)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    let shown = lab.zfs("get -H -o value userquota@1234,groupobjquota@4321,groupobjused@4321 tank/u").ok().stdout;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["512K", "1", "1"]);
    lab.zfs("set userquota@no-such-person=1G tank/u").refused();
    lab.zfs("set userused@1234=1G tank/u").refused();

    // The limits are there again after an import, hold at once, and go when they are taken back.
    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert_eq!(append().unwrap_err().raw_os_error(), Some(122));
    fs::remove_file(mount.join("file")).expect("deleting works over quota");
    lab.zpool("sync tank").ok();
    chown(mount.join("other"), None, Some(4321)).expect("there is room for one");
    lab.zfs("set userquota@1234=none groupobjquota@4321=none tank/u").ok();
    fs::write(mount.join("file"), data::random(2, 1 << 20)).expect("no limit");
    chown(mount.join("file"), Some(1234), Some(4321)).expect("no limit");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
