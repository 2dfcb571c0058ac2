//! Redacted streams: what later snapshots do not have any more stays where it is, and everything else comes through.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use platter_itest::{Lab, Tree, data, zdb};

use crate::send_receive::{dumped, receive, sh, value};

const MIB: usize = 1 << 20;

/// A stream in a file, which `zstream dump` reads; its `redup` knows no streams that leave something out.
#[track_caller]
fn sent(lab: &Lab, words: &str, file: &str) -> PathBuf {
    let (path, said) = dumped(lab, words, file);
    if let Some(said) = said {
        assert!(!words.contains("--redact") || said.contains("REDACT object"), "{words}: {said}");
    }
    path
}

/// What a list says of a bookmark.
fn of_bookmark(lab: &Lab, name: &str) -> String {
    let listed = lab.zfs("list -H -o name,redact_snaps -t bookmark -r tank").ok().stdout;
    let line = listed.lines().find(|line| line.split('\t').next() == Some(name)).unwrap_or_default();
    line.split('\t').nth(1).unwrap_or_default().to_owned()
}

/// Whether the stream has a stretch of these bytes.
fn has(stream: &Path, bytes: &[u8]) -> bool {
    let stream = fs::read(stream).unwrap();
    let first = bytes[0];
    let mut from = 0;
    while let Some(at) = stream[from..].iter().position(|&byte| byte == first) {
        if stream[from + at..].starts_with(bytes) {
            return true;
        }
        from += at + 1;
    }
    false
}

/// A file system with secrets, a clone of it without them, and a bookmark that says which they are.
struct Secrets {
    /// In no snapshot but the first.
    gone: Vec<u8>,
    /// Half of it is in the clone.
    half: Vec<u8>,
    original: Tree,
    clone: Tree,
}

fn with_secrets(lab: &Lab) -> Secrets {
    let mount = lab.create_fs("-o compression=lz4 -o recordsize=64k", "tank/fs");
    let (gone, half) = (data::random(1, MIB), data::random(2, 2 * MIB));
    fs::write(mount.join("public"), data::random(3, MIB)).unwrap();
    fs::write(mount.join("gone"), &gone).unwrap();
    fs::write(mount.join("half"), &half).unwrap();
    fs::write(mount.join("cut"), data::random(4, MIB)).unwrap();
    fs::create_dir(mount.join("folder")).unwrap();
    fs::write(mount.join("folder/small"), "small").unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    lab.zfs("clone tank/fs@a tank/clone").ok();
    let other = lab.mnt("tank/clone");
    lab.wait_mounted(&other);
    fs::remove_file(other.join("gone")).unwrap();
    let file = fs::File::options().write(true).open(other.join("half")).unwrap();
    file.write_all_at(&vec![b'x'; MIB], 0).unwrap();
    fs::File::options().write(true).open(other.join("cut")).unwrap().set_len(100_000).unwrap();
    fs::write(other.join("new"), data::random(5, 100_000)).unwrap();
    lab.zfs("snapshot tank/clone@r").ok();
    lab.zfs("redact tank/fs@a book tank/clone@r").ok();
    Secrets { gone, half, original: Tree::of(&mount), clone: Tree::of(&other) }
}

#[test]
fn what_is_redacted_is_not_sent() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let Secrets { gone, half, original, clone } = with_secrets(&lab);
    let guid = value(&lab, "guid", "tank/clone@r");
    assert_eq!(of_bookmark(&lab, "tank/fs#book"), guid);
    let whole = sent(&lab, "tank/fs@a", "whole");
    assert!(has(&whole, &gone[700_000..700_100]) && has(&whole, &half[..100]), "it is all there");
    for flags in ["", "-L", "-c"] {
        let stream = sent(&lab, &format!("{flags} --redact book tank/fs@a"), "redacted");
        assert!(!has(&stream, &gone[700_000..700_100]) && !has(&stream, &half[..100]), "{flags}");
        assert!(has(&stream, &half[MIB + MIB / 2..MIB + MIB / 2 + 100]), "{flags}: the rest is there");
        let target = format!("pond/r{flags}");
        receive(&lab, &target, &stream).ok();
        assert_eq!(value(&lab, "redact_snaps", &target), guid);
        assert_eq!(value(&lab, "redact_snaps", &format!("{target}@a")), guid);
        assert_eq!(value(&lab, "mounted", &target), "no");
        lab.zfs(&format!("mount {target}")).refused().says(&format!(
            "cannot mount '{target}': Dataset is not complete, was created by receiving a redacted zfs send stream."
        ));
        lab.zfs("mount -a").ok();
        assert_eq!(value(&lab, "mounted", &target), "no");
        lab.zfs(&format!("mount -f {target}")).ok();
        let mount = lab.mnt(&target);
        assert_eq!(fs::read(mount.join("half")).unwrap()[MIB..], half[MIB..]);
        assert_eq!(fs::metadata(mount.join("gone")).unwrap().len(), gone.len() as u64);
        assert!(fs::read(mount.join("gone")).unwrap().iter().all(|&byte| byte == 0), "nothing of it came");
        // What the clone has cut off is left out, too.
        let cut = fs::read(mount.join("cut")).unwrap();
        assert!(cut[..65_536] == data::random(4, MIB)[..65_536] && cut[65_536..].iter().all(|&byte| byte == 0));
        assert_eq!(fs::read_to_string(mount.join("folder/small")).unwrap(), "small");
        lab.zfs(&format!("unmount {target}")).ok();
    }
    // What it was redacted for comes on top of it, and lacks nothing.
    sh(&lab, "zfs send -i tank/fs@a tank/clone@r | zfs receive pond/clone").ok();
    clone.assert_same(&Tree::of(&lab.mnt("pond/clone")), "a clone of what is redacted");
    assert_eq!(value(&lab, "redact_snaps", "pond/clone"), "-");
    // What counts on the missing blocks does not.
    fs::write(lab.mnt("tank/fs").join("later"), "later").unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    let after = Tree::of(&lab.mnt("tank/fs"));
    sh(&lab, "zfs send -i @a tank/fs@b | zfs receive pond/r").refused().says("invalid backup stream");
    // From the bookmark on, what was left out comes too.
    let rest = sent(&lab, "-i tank/fs#book tank/fs@b", "rest");
    assert!(has(&rest, &gone[700_000..700_100]) && has(&rest, &half[..100]), "now it comes");
    assert!(!has(&rest, &half[MIB + MIB / 2..MIB + MIB / 2 + 100]), "and nothing else does");
    receive(&lab, "pond/r", &rest).ok();
    assert_eq!(value(&lab, "redact_snaps", "pond/r"), "-");
    lab.zfs("mount pond/r").ok();
    after.assert_same(&Tree::of(&lab.mnt("pond/r")), "what was left out has come");
    // What is redacted can be sent on as it is.
    let again = sent(&lab, "pond/r-L@a", "again");
    receive(&lab, "pond/again", &again).ok();
    assert_eq!(value(&lab, "redact_snaps", "pond/again"), guid);
    sh(&lab, "zfs send -i tank/fs#book tank/fs@b | zfs receive pond/again").ok();
    lab.zfs("mount pond/again").ok();
    after.assert_same(&Tree::of(&lab.mnt("pond/again")), "by way of another");
    original.assert_same(&Tree::of(&lab.mnt("tank/fs/.zfs/snapshot/a")), "the source is as it was");
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// What is refused of redaction bookmarks, in OpenZFS's words.
fn refusals(lab: &Lab) {
    for (words, reason) in [
        ("redact tank/fs@a book tank/clone@r", "specified redaction bookmark (book) provided already exists"),
        ("redact tank/fs@a other tank/fs@no", "provided snapshot tank/fs@no does not exist"),
        ("redact tank/fs@no other tank/clone@r", "provided snapshot tank/fs@no does not exist"),
        ("redact tank/clone@r other tank/fs@a", "redaction snapshot must be descendent of snapshot being redacted"),
        ("redact tank/fs@a a#b tank/clone@r", "redaction bookmark name must not contain '#'"),
        ("redact tank/fs@a other", "too few arguments"),
    ] {
        lab.zfs(words).refused().says(reason);
    }
    lab.zfs("bookmark tank/fs@a #plain").ok();
    let cannot = "warning: cannot send 'tank/fs@a': ";
    for (words, reason) in [
        ("--redact plain tank/fs@a", format!("{cannot}not a redaction bookmark")),
        ("--redact no tank/fs@a", format!("{cannot}redaction bookmark 'tank/fs#no' does not exist")),
        ("-w --redact book tank/fs@a", "Error: raw sends may not be redacted.".into()),
        ("-R --redact book tank/fs@a", "Error: multiple snapshots cannot be sent redacted.".into()),
        ("--redact book tank/fs", "cannot do a redacted send to a filesystem".into()),
    ] {
        sh(lab, &format!("zfs send {words} > /dev/null")).refused().says(&reason);
    }
}

#[test]
fn redacted_streams_go_on_and_their_bookmarks_go() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let Secrets { gone, .. } = with_secrets(&lab);
    let active = |feature: &str| lab.zpool(&format!("get -H -o value feature@{feature} tank")).ok().stdout;
    assert_eq!((active("redaction_bookmarks"), active("bookmark_v2")), ("active\n".into(), "active\n".into()));
    let stream = sent(&lab, "--redact book tank/fs@a", "redacted");
    // What was left out is not taken for zeros.
    let file = stream.to_str().unwrap();
    lab.platter(["stream", "cat", file, "gone"]).refused().says("left out");
    lab.platter(["stream", "cat", file, "public"]).ok();
    let length = fs::metadata(&stream).unwrap().len();
    for part in 1..8 {
        let cut = length * part / 8;
        sh(&lab, &format!("head -c {cut} {} | zfs receive -s pond/part", stream.display())).refused();
        let rest = sent(&lab, &format!("-t {}", value(&lab, "receive_resume_token", "pond/part")), "rest");
        assert!(!has(&rest, &gone[700_000..700_100]), "still left out");
        receive(&lab, "-s pond/part", &rest).ok();
        lab.zfs("mount -f pond/part").ok();
        let mount = lab.mnt("pond/part");
        assert_eq!(fs::read(mount.join("public")).unwrap(), data::random(3, MIB));
        assert!(fs::read(mount.join("gone")).unwrap().iter().all(|&byte| byte == 0), "nothing of it came");
        lab.zfs("destroy -r pond/part").ok();
    }
    // For the sake of two snapshots: what one of them has is sent.
    lab.zfs("clone tank/fs@a tank/second").ok();
    let second = lab.mnt("tank/second");
    lab.wait_mounted(&second);
    fs::remove_file(second.join("public")).unwrap();
    fs::File::options().write(true).open(second.join("gone")).unwrap().set_len(MIB as u64 / 2).unwrap();
    lab.zfs("snapshot tank/second@r").ok();
    lab.zfs("redact tank/fs@a both tank/clone@r tank/second@r").ok();
    let both = sent(&lab, "--redact tank/fs#both tank/fs@a", "both");
    assert!(!has(&both, &gone[700_000..700_100]), "neither has it");
    assert!(has(&both, &gone[300_000..300_100]), "the second has it still");
    refusals(&lab);
    // A copy of a redaction bookmark is a plain one.
    lab.zfs("bookmark tank/fs#book #copy").ok();
    assert_eq!(of_bookmark(&lab, "tank/fs#copy"), "-");
    for bookmark in ["book", "both", "copy"] {
        lab.zfs(&format!("destroy tank/fs#{bookmark}")).ok();
    }
    assert_eq!((active("redaction_bookmarks"), active("bookmark_v2")), ("enabled\n".into(), "active\n".into()));
    lab.zfs("redact tank/fs@a last tank/clone@r").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    for dataset in ["tank/clone", "tank/second", "tank/fs"] {
        lab.zfs(&format!("destroy -r {dataset}")).ok();
    }
    assert_eq!(active("redaction_bookmarks"), "enabled\n");
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

#[test]
fn many_snapshots_and_volumes_are_redacted() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    lab.zfs("create -s -V 8M tank/volume").ok();
    let platter = platter_itest::binary::platter();
    let write = |volume: &str, from: &str, at: &str| {
        sh(&lab, &format!("head -c {from} | {} volume write --offset {at} {volume}", platter.display())).ok();
    };
    write("tank/volume", "4M /dev/urandom", "0");
    lab.zfs("snapshot tank/volume@a").ok();
    let mut names = String::new();
    for number in 0..37 {
        lab.zfs(&format!("clone tank/volume@a tank/clone{number}")).ok();
        write(&format!("tank/clone{number}"), "1M /dev/zero", "1M");
        lab.zfs(&format!("snapshot tank/clone{number}@r")).ok();
        names.push_str(&format!(" tank/clone{number}@r"));
    }
    lab.zfs(&format!("redact tank/volume@a book{names}")).refused().says("too many redaction snapshots specified");
    let names = names.trim_end_matches(" tank/clone36@r");
    lab.zfs(&format!("redact tank/volume@a book{names}")).ok();
    assert_eq!(of_bookmark(&lab, "tank/volume#book").split(',').count(), 36);
    let redacted = sent(&lab, "--redact book tank/volume@a", "redacted");
    let whole = sent(&lab, "tank/volume@a", "whole");
    let saved = fs::metadata(&whole).unwrap().len() - fs::metadata(&redacted).unwrap().len();
    assert!((MIB as u64 * 9 / 10..MIB as u64 * 12 / 10).contains(&saved), "{saved} bytes are left out");
    receive(&lab, "pond/volume", &redacted).ok();
    sh(&lab, &format!("{} volume cat pond/volume > /dev/null", platter.display())).refused();
    sh(&lab, "zfs send -i tank/volume@a tank/clone7@r | zfs receive pond/clone").ok();
    let cat = |volume: &str| format!("{} volume cat {volume} | sha256sum", platter.display());
    assert_eq!(sh(&lab, &cat("pond/clone")).ok().stdout, sh(&lab, &cat("tank/clone7")).ok().stdout);
    lab.export("tank");
    lab.export("pond");
    for pool in ["tank", "pond"] {
        zdb::assert_clean(&lab.dev(), pool);
    }
}
