//! Other users than root: what they may see of root's pools, and pools of their own.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use platter_itest::others::lab_for_others;
use platter_itest::{Lab, Run, judge, zdb};

const NOBODY: u32 = 65_534;

/// The binary where everybody may run it, and a way to run it as somebody who is not root.
struct Other {
    lab: Lab,
    program: PathBuf,
    folder: PathBuf,
}

impl Other {
    fn new() -> Option<Self> {
        let (lab, program) = lab_for_others("another user's commands")?;
        let folder = lab.tmp().join("nobody");
        fs::create_dir(&folder).expect("a folder");
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("given away");
        Some(Self { lab, program, folder })
    }

    /// `platter WORDS` as the other user, whose home is his folder, with these variables changed.
    fn run_with(&self, variables: &[&str], words: &str) -> Run {
        let home = format!("HOME={}", self.folder.display());
        let id = NOBODY.to_string();
        let setpriv = ["--reuid", &id, "--regid", &id, "--clear-groups", "env", &home];
        let program = self.program.to_str().expect("UTF-8");
        let words =
            setpriv.into_iter().chain(variables.iter().copied()).chain([program]).chain(words.split_whitespace());
        self.lab.run("setpriv", words)
    }

    fn run(&self, words: &str) -> Run {
        self.run_with(&[], words)
    }

    /// Gives him the daemon's folder and a device.
    fn has_a_daemon(&self, disks: usize) {
        for index in 0..disks {
            self.lab.add_disk(index, 128);
            chown(self.lab.disk(index), Some(NOBODY), Some(NOBODY)).expect("given away");
        }
        for folder in [self.lab.home(), self.lab.dev()] {
            chown(folder, Some(NOBODY), Some(NOBODY)).expect("given away");
        }
    }
}

/// What the API at `socket` answers to a request.
fn ask(socket: &Path, request: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket");
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nhost: platter\r\nconnection: close\r\ncontent-length: {length}");
    write!(stream, "{head}\r\n\r\n{body}").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The socket itself, whatever a client says.
fn assert_the_socket_refuses(lab: &Lab) {
    let (public, private) = (lab.home().join("public.sock"), lab.home().join("daemon.sock"));
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!((mode(&public), mode(&private)), (0o666, 0o600));
    assert!(ask(&public, "POST /v2", r#"{"look":{"list_pools":{}}}"#).contains("\"tank\""));
    for (request, body) in [
        ("POST /v2", r#"{"close_pool":{"pool":"tank"}}"#),
        ("POST /v2", r#"{"operate_pool":{"pool":"tank","operation":{"scrub":"start"}}}"#),
        ("POST /v2", r#"{"stop_daemon":{}}"#),
        ("DELETE /v2", ""),
        ("GET /v1/pools", ""),
        ("POST /v2", r#"{"get_history":{"pool":"tank"}}"#),
        ("POST /v2", r#"{"get_events":{}}"#),
        ("POST /v2", r#"{"set_log_level":{}}"#),
    ] {
        let answer = ask(&public, request, body);
        assert!(!answer.contains(" 200 ") && answer.contains("permission denied"), "{request} {body}: {answer}");
    }
}

// Every command of another user said "cannot use PLATTER_HOME … belongs to user 0". In OpenZFS everybody may look.
#[test]
fn everybody_may_look_at_roots_pools_and_nobody_else_may_change_them() {
    let Some(other) = Other::new() else { return };
    let lab = &other.lab;
    lab.disks(2, 128);
    lab.create("", "tank", "mirror d0 d1");
    lab.create_fs("", "tank/media");
    let daemons = lab.daemon_pids();
    let state = || {
        let list = lab.zfs("get -Hp -o name,property,value,source all").ok().stdout;
        // What moves by itself.
        let stays =
            |line: &&str| !["used", "available", "referenced", "written"].iter().any(|name| line.contains(name));
        (
            list.lines().filter(stays).map(str::to_owned).collect::<Vec<_>>(),
            lab.zpool("list -H -o name,health").ok().stdout,
        )
    };
    let before = state();

    for words in [
        "zpool list -H -o name,size,health,guid",
        "zpool status -v",
        "zpool get -H -o value guid,health tank",
        "zfs list -H -o name,mountpoint",
        "zfs get -H -o value mountpoint,compression tank/media",
        "zfs mount",
    ] {
        let own = lab.platter(words.split_whitespace()).ok().stdout;
        assert_eq!(other.run(words).ok().stdout, own, "{words}");
        assert!(own.contains("tank") || words.contains("get"), "{words}: {own}");
    }
    other.run("zpool iostat tank").ok().says("tank");
    other.run("daemon status").ok();

    for (words, said) in [
        ("zpool create other d0", "cannot create 'other': permission denied"),
        ("zpool destroy tank", "cannot destroy 'tank': permission denied"),
        ("zpool export tank", "cannot export 'tank': permission denied"),
        ("zpool scrub tank", "cannot scrub 'tank': permission denied"),
        ("zpool set comment=x tank", "cannot set property for 'tank': permission denied"),
        ("zpool history tank", "permission denied"),
        ("zpool events", "permission denied"),
        ("zfs create tank/x", "cannot create 'tank/x': permission denied"),
        ("zfs destroy tank/media", "cannot destroy 'tank/media': permission denied"),
        ("zfs set atime=off tank/media", "cannot set property for 'tank/media': permission denied"),
        ("zfs rename tank/media tank/m", "cannot rename 'tank/media': permission denied"),
        ("zfs unmount tank/media", "cannot unmount 'tank/media': permission denied"),
        ("zpool import -d . tank", "permission denied"),
        ("daemon stop", "permission denied"),
    ] {
        let run = other.run(words);
        assert_eq!(run.code, 1, "{words}: {run}");
        run.says(said);
    }
    assert_the_socket_refuses(lab);
    assert_eq!(state(), before);
    assert_eq!(lab.daemon_pids(), daemons, "no second daemon");
    let log = fs::read_to_string(lab.home().join("daemon.log")).expect("the log");
    assert!(log.contains("user=65534"), "{log}");

    // Without root's daemon there is nothing to see, and none is started in root's folder.
    lab.export("tank");
    lab.platter(["daemon", "stop"]).ok();
    let run = other.run("zpool list");
    assert_eq!(run.code, 1, "{run}");
    run.says("cannot reach the daemon");
    assert!(lab.daemon_pids().is_empty());
    zdb::assert_clean(&lab.dev(), "tank");
}

// The tour's first command made a pool, and then said that it cannot be mounted at '/tank'.
#[test]
fn an_ordinary_user_finds_his_pool_in_his_home() {
    let Some(other) = Other::new() else { return };
    if judge::need("fusermount3").is_none() {
        return;
    }
    let lab = &other.lab;
    other.has_a_daemon(2);
    other.run("zpool create tank mirror d0 d1").ok();
    other.run("zfs create -o compression=lz4 tank/media").ok();
    let tank = other.folder.join("tank");
    let media = other.run("zfs list -H -o mountpoint tank/media").ok().stdout;
    let media = Path::new(media.trim());
    assert_eq!(other.run("zfs list -H -o mountpoint tank").ok().stdout.trim(), tank.to_str().expect("UTF-8"));
    assert!([other.folder.join("tank+media"), tank.join("media")].iter().any(|place| place == media), "{media:?}");
    assert!(lab.mounts().contains(&tank) && lab.mounts().iter().any(|place| place == media), "{:?}", lab.mounts());
    other.run("zpool export tank").ok();
    assert!(!tank.exists() && !media.exists(), "the mount points went with their pool");
    other.run(&format!("zpool import -d {} tank", lab.dev().display())).ok();
    assert!(lab.mounts().iter().any(|place| place == media), "{:?}", lab.mounts());
    // Nothing of that is in the pool: at root's it is mounted as ever.
    other.run("zfs get -H -o source mountpoint tank/media").ok().says("default");
    other.run("zpool destroy tank").ok();
    other.run("daemon stop").ok();

    // Without a home: which commands lead on, and that they do.
    let variables = ["HOME=/nonexistent"];
    let name = format!("tank{}", std::process::id());
    let run = other.run_with(&variables, &format!("zpool create {name} d0"));
    assert_eq!(run.code, 1, "{run}");
    run.says(&format!("cannot mount '/{name}': failed to create mountpoint: Permission denied"))
        .says(&format!("zfs set mountpoint=/your/folder/{name} {name}"));
    let place = other.folder.join("mine");
    other.run_with(&variables, &format!("zfs set mountpoint={} {name}", place.display())).ok();
    if !lab.mounts().contains(&place) {
        other.run_with(&variables, &format!("zfs mount {name}")).ok();
    }
    lab.wait_mounted(&place);
    other.run_with(&variables, &format!("zpool destroy {name}")).ok();
    other.run_with(&variables, "daemon stop").ok();
}

// Whatever kept fusermount3 from being started, the advice was to install it.
#[test]
fn a_helper_that_cannot_be_started_is_said_with_its_cause() {
    let Some(other) = Other::new() else { return };
    other.has_a_daemon(1);
    let (none, closed) = (other.folder.join("none"), other.folder.join("closed"));
    for folder in [&none, &closed] {
        fs::create_dir(folder).expect("a folder");
    }
    fs::write(closed.join("fusermount3"), "#!/bin/sh\n").expect("a file");
    for (folder, said, not) in [
        (&none, "cannot start fusermount3: it is not there: install it", "executed"),
        (&closed, "may not be executed", "install"),
    ] {
        let path = format!("PATH={}", folder.display());
        let setpriv = |words: &str| other.run_with(&[&path], words);
        let run = setpriv("zpool create tank d0");
        run.says(said).says_not(not);
        setpriv("zpool destroy tank").ok();
        setpriv("daemon stop").ok();
    }
}
