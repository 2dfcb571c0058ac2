//! Extended attributes and access control lists through the mount: with the usual tools, across export and import, and
//! in zdb's eyes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use platter_itest::{Lab, Tree, data, judge, rsync, zdb};

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
        .unwrap_or_else(|error| panic!("{}: {name}: {error}", path.display()));
}

/// Files with attributes of all sizes, on everything that can have some.
fn fill(root: &Path) {
    fs::create_dir(root.join("dir")).expect("a folder");
    fs::write(root.join("dir/few"), "content").expect("a file");
    set(&root.join("dir"), "user.on-a-folder", b"yes");
    for (name, value) in [("user.empty", &b""[..]), ("user.text", b"some text"), ("trusted.mine", &[0, 1, 2, 255])] {
        set(&root.join("dir/few"), name, value);
    }
    fs::write(root.join("many"), "").expect("a file");
    for number in 0..150 {
        set(&root.join("many"), &format!("user.number{number}"), &data::random(number, number as usize));
    }
    fs::write(root.join("large"), "").expect("a file");
    for (name, length) in [("user.1", 600), ("user.2", 20_000), ("user.3", 33_000), ("user.4", 65_536)] {
        set(&root.join("large"), name, &data::random(length, length as usize));
    }
    symlink("dir/few", root.join("link")).expect("a symlink");
    set(&root.join("link"), "trusted.on-a-link", b"yes");
    fs::write(root.join("removed"), "").expect("a file");
    for name in ["user.stays", "user.goes"] {
        set(&root.join("removed"), name, &[7; 700]);
    }
    rustix::fs::removexattr(root.join("removed"), "user.goes").expect("it is there");
}

fn attributes_survive(mode: &str, other: &str) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs(&format!("-o xattr={mode}"), "tank/fs");
    fill(&mount);
    let before = Tree::of(&mount);
    assert_eq!(before.0["many"].xattrs.len(), 150);
    assert_eq!(before.0["large"].xattrs.len(), 4);
    assert_eq!(before.0["link"].xattrs.len(), 1);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(run) = zdb::zdb(&lab.dev(), &["-dddd", "tank/fs"]) {
        // zdb decodes the list in the file, or names the hidden folder.
        let run = run.ok();
        let is_listed = run.mentions("user.number149 = ") && run.mentions("user.text = some text");
        assert_eq!(is_listed, mode == "sa", "{run}");
        run.says(if mode == "sa" { "SA xattrs: " } else { "\txattr\t" });
    }
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    before.assert_same(&Tree::of(&mount), "after export and import");

    // Rewritten under the other mode, without a mount in between.
    lab.zfs(&format!("set xattr={other} tank/fs")).ok();
    for name in ["many", "large", "dir/few"] {
        let path = mount.join(name);
        let entry = &before.0[name];
        for attribute in entry.xattrs.keys() {
            let mut value = vec![0; 65_536];
            let length = rustix::fs::getxattr(&path, attribute.as_str(), &mut value[..]).expect("it is there");
            set(&path, attribute, &value[..length]);
        }
    }
    before.assert_same(&Tree::of(&mount), "after rewriting");
    for name in ["many", "large", "removed"] {
        fs::remove_file(mount.join(name)).expect("it is there");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn attributes_in_the_file_survive() {
    attributes_survive("sa", "dir");
}

#[test]
fn attributes_in_a_hidden_folder_survive() {
    attributes_survive("dir", "sa");
}

#[test]
fn access_control_lists_work_with_the_usual_tools() {
    if ["setfacl", "getfacl", "rsync"].into_iter().any(|program| judge::need(program).is_none()) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return judge::skip("access control lists", "acting as another user takes root");
    }
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let plain = lab.create_fs("", "tank/plain");
    fs::write(plain.join("file"), "").expect("a file");
    lab.run("setfacl", ["-m", "u:1:rw", plain.join("file").to_str().expect("UTF-8")]).refused();
    lab.zfs("set acltype=nfsv4 tank/plain").refused();

    let mount = lab.create_fs("-o acltype=posix", "tank/fs");
    for folder in [lab.root(), &lab.root().join("mnt"), &lab.mnt("tank")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let path = |name: &str| mount.join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("secret"), "for daemon").expect("a file");
    fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o600)).expect("permissions");
    let reads = |user: &str| {
        let script = format!("cat {}", path("secret"));
        lab.run("setpriv", ["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", &script]).code == 0
    };
    assert!(!reads("1") && !reads("2"));
    lab.run("setfacl", ["-m", "u:1:r", &path("secret")]).ok();
    assert!(reads("1") && !reads("2"), "the list decides who reads");
    assert_eq!(fs::metadata(path("secret")).expect("metadata").mode() & 0o777, 0o640);
    // The mask is the mode's group class.
    fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o600)).expect("permissions");
    assert!(!reads("1"), "chmod took the mask away");
    lab.run("getfacl", ["-n", "-p", "--absolute-names", &path("secret")]).ok().says("user:1:r--").says("mask::---");

    fs::create_dir(path("dir")).expect("a folder");
    lab.run("setfacl", ["-d", "-m", "u:1:rwx,g:2:rx", &path("dir")]).ok();
    lab.run("sh", ["-c", &format!("umask 077; mkdir {0}/sub; echo x > {0}/sub/file", path("dir"))]).ok();
    lab.run("getfacl", ["-n", "-p", &path("dir/sub/file")]).ok().says("user:1:rwx").says("group:2:r-x");
    lab.run("getfacl", ["-n", "-p", &path("dir/sub")]).ok().says("default:user:1:rwx");

    // rsync -A -X carries all of it along.
    let copy = lab.create_fs("-o acltype=posix -o xattr=dir", "tank/copy");
    set(&mount.join("dir/sub/file"), "user.note", b"carried");
    let (from, to) = (format!("{}/", mount.display()), format!("{}/", copy.display()));
    lab.run("rsync", ["-aHAX", &from, &to]).ok();
    rsync::assert_no_difference(&lab, &mount, &copy);
    lab.judge_and_return("tank", &mount, &Tree::of(&mount));
}
