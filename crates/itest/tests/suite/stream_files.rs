//! Files in a stream that nobody received: shown in a directory, and compared with one.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use platter_itest::binary::platter;
use platter_itest::{Lab, Tree, data};

use crate::send_receive::{blocks, decorate, fill, sent, sh};

/// A stream shown in a directory, by a process of its own.
struct Shown(Child);

impl Shown {
    fn of(lab: &Lab, stream: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let mut command = lab.command(platter());
        let child = command.args(["stream", "mount"]).arg(stream).arg(at).stderr(Stdio::null()).spawn().unwrap();
        let shown = Self(child);
        let end = Instant::now() + Duration::from_secs(30);
        while !is_mounted(at) {
            assert!(Instant::now() < end, "the stream is not shown");
            std::thread::sleep(Duration::from_millis(20));
        }
        shown
    }

    /// Waits for the process that was asked to end, and did nothing wrong.
    fn ended(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

fn is_mounted(at: &Path) -> bool {
    fs::read_to_string("/proc/mounts").unwrap().contains(&format!(" {} ", at.display()))
}

/// What `find` says of all below, but for times of access.
fn found(lab: &Lab, at: &Path) -> String {
    let script = r"find . -path ./.zfs -prune -o -printf '%p %y %m %n %U %G %s %T@ %l\n' | sort";
    sh(lab, &format!("cd '{}' && {script}", at.display())).ok().stdout
}

#[test]
fn a_stream_is_shown_as_files_and_compared() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("-o compression=lz4 -o recordsize=16k -o xattr=sa -o acltype=posix", "tank/fs");
    fill(&mount, 1);
    decorate(&lab, &mount, 1);
    fs::create_dir_all(mount.join("a/b")).unwrap();
    symlink("x".repeat(1000), mount.join("a/long link")).unwrap();
    symlink("../tiny", mount.join("a/link")).unwrap();
    fs::write(mount.join("tiny"), "x".repeat(90)).unwrap();
    fs::hard_link(mount.join("tiny"), mount.join("a/b/same")).unwrap();
    sh(&lab, &format!("cd '{}' && mknod node c 5 300 && mkfifo pipe && chown 1234:77 tiny", mount.display())).ok();
    for number in 0..3000 {
        fs::write(mount.join(format!("a/b/one of many with a long name {number}")), format!("{number}")).unwrap();
    }
    lab.zfs("snapshot tank/fs@a").ok();
    let snapshot = mount.join(".zfs/snapshot/a");
    for (index, flags) in ["", "-Lec"].into_iter().enumerate() {
        let stream = sent(&lab, &format!("{flags} tank/fs@a"), "stream");
        let file = stream.to_str().unwrap();
        assert_eq!(lab.platter(["stream", "diff", file, "tank/fs@a"]).ok().stdout, "");
        let at = lab.tmp().join(format!("shown{index}"));
        let shown = Shown::of(&lab, &stream, &at);
        assert_eq!(found(&lab, &at), found(&lab, &snapshot));
        let both = format!("diff -r --no-dereference -x node -x pipe '{}' '{}'", at.display(), snapshot.display());
        assert_eq!(sh(&lab, &both).ok().stdout, "");
        assert_eq!(lab.platter(["stream", "diff", file, at.to_str().unwrap()]).ok().stdout, "");
        assert!(fs::write(at.join("new"), "x").is_err() && fs::remove_file(at.join("tiny")).is_err());
        // Holes stay holes.
        let sparse = lab.tmp().join("sparse");
        let cat = format!("{} stream cat {file} sparse1 > '{}'", platter().display(), sparse.display());
        sh(&lab, &cat).ok();
        assert!(blocks(&sparse) < fs::metadata(&sparse).unwrap().len() / 512 / 2, "it has no holes");
        sh(&lab, &format!("cmp '{}' '{}'", sparse.display(), snapshot.join("sparse1").display())).ok();
        // Read from behind, and with holes.
        sh(&lab, &format!("tac '{0}/folder1/big' | cmp - <(tac '{1}/folder1/big')", at.display(), snapshot.display()));
        match index {
            0 => sh(&lab, &format!("umount '{}'", at.display())).ok(),
            _ => sh(&lab, &format!("kill -TERM {}", shown.0.id())).ok(),
        };
        shown.ended();
        assert!(!is_mounted(&at));
    }
}

/// Another byte in a file, of which nobody would see that by its times.
fn change_a_byte(path: &Path) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[40_000] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// A node of another device in place of one, at the same time.
fn other_device(lab: &Lab, path: &Path) {
    let (path, like) = (path.display(), lab.tmp().join("like"));
    let like = like.display();
    sh(
        lab,
        &format!("touch -r '{path}' '{like}' && rm '{path}' && mknod '{path}' b 8 0 && touch -r '{like}' '{path}'"),
    )
    .ok();
}

#[test]
fn of_several_streams_in_a_file_none_is_told_as_all() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    fs::write(lab.create_fs("", "tank/fs").join("file"), "x").unwrap();
    for name in ["a", "b"] {
        lab.zfs(&format!("snapshot tank/fs@{name}")).ok();
    }
    let several = sent(&lab, "-R tank/fs@b", "several");
    lab.platter(["stream", "ls", several.to_str().unwrap()]).refused().says("it has more than one stream");
    lab.zfs("destroy tank/fs@a").ok();
    let one = sent(&lab, "-R tank/fs@b", "one");
    lab.platter(["stream", "ls", one.to_str().unwrap()]).ok();
}

#[test]
fn what_differs_from_a_stream_is_told() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o recordsize=16k", "tank/fs");
    for name in ["same", "contents", "mode", "gone", "kind", "longer"] {
        fs::write(mount.join(name), data::random(1, 50_000)).unwrap();
    }
    fs::create_dir(mount.join("folder")).unwrap();
    fs::write(mount.join("folder/in\nside"), "x").unwrap();
    symlink("same", mount.join("link")).unwrap();
    sh(&lab, &format!("mknod '{}' b 7 5", mount.join("node").display())).ok();
    // Of a terabyte of nothing not every byte is looked at.
    let sparse = fs::File::create(mount.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"some", 1 << 39).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let stream = sent(&lab, "tank/fs@a", "stream");
    let file = stream.to_str().unwrap();
    let copy = lab.tmp().join("copy");
    sh(&lab, &format!("cp -a '{}' '{}'", mount.display(), copy.display())).ok();
    let copied = copy.to_str().unwrap();
    assert_eq!(lab.platter(["stream", "diff", file, copied]).ok().stdout, "");

    let changed = |name: &str| change_a_byte(&copy.join(name));
    changed("contents");
    other_device(&lab, &copy.join("node"));
    fs::set_permissions(copy.join("mode"), Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(copy.join("kind")).unwrap();
    fs::create_dir(copy.join("kind")).unwrap();
    fs::remove_file(copy.join("gone")).unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    symlink("other", copy.join("link")).unwrap();
    fs::write(copy.join("folder/in\nside"), "xyz").unwrap();
    fs::write(copy.join("new"), "").unwrap();
    let run = lab.platter(["stream", "diff", file, copied]);
    assert_eq!(run.code, 1);
    let mut lines: Vec<&str> = run.stdout.lines().collect();
    lines.sort_unstable();
    let expected = [
        "+\t/new",
        "-\t/gone",
        "M\t/\t(time)",
        "M\t/contents\t(contents)",
        "M\t/folder/in\\012side\t(time, contents)",
        "M\t/kind\t(kind)",
        "M\t/link\t(time, target)",
        "M\t/mode\t(mode)",
        "M\t/node\t(device)",
    ];
    assert_eq!(lines, expected);

    // Against a data set as it is now, and what cannot be compared.
    for name in ["gone", "sparse"] {
        fs::remove_file(mount.join(name)).unwrap();
    }
    let run = lab.platter(["stream", "diff", file, "tank/fs"]);
    assert!(run.stdout.contains("-\t/gone\n"), "{}", run.stdout);
    lab.platter(["stream", "diff", file, "tank/none"]).refused().says("is no directory, and no file system");
    lab.platter(["stream", "diff", "/no/such", copied]).refused().says("cannot read '/no/such'");
    let at = lab.tmp().join("at");
    lab.platter(["stream", "mount", file, at.to_str().unwrap()]).refused();
    assert!(Tree::of(&mount).0.contains_key("same"));
}
