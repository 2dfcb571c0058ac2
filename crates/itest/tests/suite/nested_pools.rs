//! Pools whose devices are files of another pool of the same daemon.

use std::fs;
use std::path::Path;

use platter_itest::{Lab, Loop, data, zdb};

/// The outer pool was unmounted below the inner one, which was then given up with all that was not synced yet; and the
/// next daemon, which did not find the inner one's device before the outer one was mounted, did not look again.
#[test]
fn an_inner_pool_is_closed_before_the_one_it_lies_in_and_opened_after_it() {
    let Some(lab) = Lab::open() else { return };
    // By their names, the outer one is once the first and once the last.
    for (outer, inner) in [("aout", "zin"), ("zout", "ain")] {
        lab.disks(1, 400);
        let mount = lab.create("", outer, "d0");
        let file = mount.join("disk");
        fs::File::create(&file).and_then(|file| file.set_len(128 << 20)).expect("a file");
        let within = lab.create("", inner, file.to_str().expect("UTF-8"));
        let bytes = data::random(1, 20 << 20);
        fs::write(within.join("file"), &bytes).expect("written");
        lab.platter(["daemon", "stop"]).ok();
        lab.platter(["daemon", "start"]).ok();
        assert_eq!(
            fs::metadata(within.join("file")).map(|file| file.len()).ok(),
            Some(20 << 20),
            "it is there at once"
        );
        assert_eq!((lab.health(outer), lab.health(inner)), ("ONLINE".to_owned(), "ONLINE".to_owned()));
        lab.wait_mounted(&within);
        assert!(fs::read(within.join("file")).expect("readable") == bytes, "{inner} is as it was");
        lab.export(inner);
        zdb::assert_clean(&mount, inner);
        lab.zpool(&format!("destroy {outer}")).ok();
        fs::remove_file(lab.disk(0)).expect("removed");
    }
}

/// The same with a loop device between.
#[test]
fn a_pool_on_a_loop_device_over_a_file_of_another_pool_is_closed_first() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 400);
    let mount = lab.create("", "aout", "d0");
    let file = mount.join("disk");
    fs::File::create(&file).and_then(|file| file.set_len(128 << 20)).expect("a file");
    let Some(device) = Loop::over(&file) else { return };
    let within = lab.create("", "zin", &device.0);
    let bytes = data::random(1, 20 << 20);
    fs::write(within.join("file"), &bytes).expect("written");
    lab.platter(["daemon", "stop"]).ok();
    drop(device);
    // The next daemon has the outer one only; the device is not there.
    assert_eq!(lab.health("aout"), "ONLINE");
    lab.wait_mounted(&mount);
    let search = Path::new(&file).parent().expect("a folder").display().to_string();
    lab.zpool("export zin").ok();
    lab.zpool(&format!("import -d {search} zin")).ok();
    lab.wait_mounted(&within);
    assert!(fs::read(within.join("file")).expect("readable") == bytes, "it is as it was");
    lab.export("zin");
    zdb::assert_clean(&mount, "zin");
    lab.export("aout");
}

/// And with another file system between, whose device lies in the outer pool.
#[test]
fn a_pool_in_a_file_system_on_a_file_of_another_pool_is_closed_first() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 600);
    let mount = lab.create("", "aout", "d0");
    let (image, place) = (mount.join("image"), lab.tmp().join("between"));
    fs::File::create(&image).and_then(|file| file.set_len(300 << 20)).expect("a file");
    fs::create_dir(&place).expect("made");
    let (text, at) = (image.display().to_string(), place.to_str().expect("UTF-8"));
    lab.run("mkfs.ext4", ["-q", &text]).ok();
    if lab.run("mount", ["-o", "loop", &text, at]).code != 0 {
        eprintln!("skipped: no loop devices");
        return;
    }
    let file = place.join("disk");
    fs::File::create(&file).and_then(|file| file.set_len(128 << 20)).expect("a file");
    let within = lab.create("", "zin", file.to_str().expect("UTF-8"));
    fs::write(within.join("file"), data::random(1, 20 << 20)).expect("written");
    // What is between cannot be unmounted by us: the outer pool's mount is cut off below it.
    let run = lab.platter(["daemon", "stop"]);
    assert!(!run.mentions("'zin'"), "the inner one was closed in order: {run}");
    lab.umount(Path::new(at));
    lab.health("aout");
    lab.wait_mounted(&mount);
    lab.zpool("export zin").ok();
    lab.export("aout");
}
