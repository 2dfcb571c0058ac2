//! `zfs rewrite`: what is in files is written as today's properties have it, and stays what it was.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use platter_itest::{Lab, Tree, data, zdb};

fn number(lab: &Lab, property: &str, name: &str) -> u64 {
    lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().parse().unwrap()
}

/// Who may only read, what is not there, what is no such file system, a file system that is not written.
fn refused(lab: &Lab, mount: &Path) {
    let script = "import fcntl, os, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x40208303, bytes(32))";
    let mut other = lab.command("setpriv");
    other.args(["--reuid", "65534", "--clear-groups", "python3", "-c", script]).arg(mount.join("noise"));
    let refused = other.output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"), "{refused:?}");
    // It ends with the number of the error, as OpenZFS's does.
    let ends = |words: String, code: i32, said: &str| {
        let run = lab.zfs(&format!("rewrite {words}"));
        assert!(run.code == code && run.stderr.contains(said), "{run}");
    };
    ends(format!("{}/none", mount.display()), 2, "failed to stat");
    let outside = lab.tmp().join("outside");
    fs::write(&outside, b"x").unwrap();
    ends(outside.display().to_string(), 25, "Inappropriate ioctl for device");
    lab.zfs("rewrite -P x").refused().says("no physical rewrite yet");
    lab.zfs("rewrite").refused().says("missing file or directory target(s)");
    lab.zfs("set readonly=on tank/fs").ok();
    ends(format!("{}/noise", mount.display()), 30, "Read-only file system");
    lab.zfs("set readonly=off tank/fs").ok();
}

#[test]
fn files_are_written_anew_as_they_were() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("-O atime=off", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs("-o compression=off -o recordsize=64k", "tank/fs");
    let text: Vec<u8> = b"the same again and again, ".iter().copied().cycle().take(9_000_000).collect();
    fs::create_dir_all(mount.join("a/b")).unwrap();
    fs::write(mount.join("a/b/text"), &text).unwrap();
    fs::write(mount.join("a/short"), b"a short one").unwrap();
    fs::write(mount.join("noise"), data::random(3, 700_001)).unwrap();
    let holes = File::create(mount.join("a/holes")).unwrap();
    for place in [0, 5 << 20, 40 << 20] {
        holes.write_all_at(&text[..200_000], place).unwrap();
    }
    holes.set_len(60 << 20).unwrap();
    drop(holes);
    lab.zpool("sync").ok();
    let (before, plain) = (Tree::of(&mount), number(&lab, "referenced", "tank/fs"));
    lab.zfs("set compression=zstd tank/fs").ok();
    lab.zfs("set checksum=sha256 tank/fs").ok();
    // One file alone, and a part of it.
    let said = lab.zfs(&format!("rewrite -v {0}/noise {0}/a", mount.display())).ok().stdout;
    assert_eq!(said, format!("{}/noise\n", mount.display()), "without -r no directory");
    lab.zfs(&format!("rewrite -o 65536 -l 0x20000 {}/a/b/text", mount.display())).ok();
    lab.zpool("sync").ok();
    let part = number(&lab, "referenced", "tank/fs");
    assert!(part < plain && plain - part < 400_000, "{plain} {part}");
    // All of them, while somebody writes to one.
    let writer = mount.join("a/busy");
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            let mut file = File::create(&writer).unwrap();
            (0..200).for_each(|round| file.write_all(&data::random(round, 20_000)).unwrap());
        });
        for _ in 0..3 {
            let said = lab.zfs(&format!("rewrite -rvx {}", mount.display())).ok().stdout;
            assert!(said.lines().any(|line| line.ends_with("/a/b/text")), "{said}");
        }
        written.join().unwrap();
    });
    let busy: Vec<u8> = (0..200).flat_map(|round| data::random(round, 20_000)).collect();
    assert!(fs::read(&writer).unwrap() == busy);
    fs::remove_file(&writer).unwrap();
    lab.zpool("sync").ok();
    let all = number(&lab, "referenced", "tank/fs");
    assert!(all < plain / 3, "{plain} {all}");
    let mut after = Tree::of(&mount);
    after.0.retain(|path, _| !path.ends_with("a"));
    let mut expected = before;
    expected.0.retain(|path, _| !path.ends_with("a"));
    expected.assert_same(&after, "written anew");
    // A snapshot keeps the old blocks.
    lab.zfs("snapshot tank/fs@a").ok();
    lab.zfs(&format!("rewrite -r {}", mount.display())).ok();
    lab.zpool("sync").ok();
    assert!(number(&lab, "usedbysnapshots", "tank/fs") > all / 2);
    refused(&lab, &mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
