//! `zfs allow` and `zfs unallow`: what is stored is what OpenZFS's zdb finds, and other users do what data sets allow
//! to them and nothing else.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::others::lab_for_others;
use platter_itest::{Lab, Run, judge, zdb};

/// Numbers that belong to nobody.
const ANN: u32 = 70_001;
const BEN: u32 = 70_002;
/// A group of Ann's.
const STAFF: u32 = 70_100;

/// Root's daemon with a pool, and users who have none.
struct Office {
    lab: Lab,
    program: PathBuf,
    mount: PathBuf,
}

impl Office {
    fn open() -> Option<Self> {
        let (lab, program) = lab_for_others("other users' commands")?;
        for user in [ANN, BEN] {
            let home = lab.tmp().join(user.to_string());
            fs::create_dir(&home).expect("a folder");
            chown(&home, Some(user), Some(user)).expect("given away");
        }
        lab.disks(1, 256);
        let mount = lab.create("", "tank", "d0");
        lab.create_fs("", "tank/ann");
        lab.create_fs("", "tank/ann/deep");
        lab.create_fs("", "tank/ben");
        Some(Self { lab, program, mount })
    }

    fn home(&self, user: u32) -> PathBuf {
        self.lab.tmp().join(user.to_string())
    }

    /// A shell command of another user, in which `zfs` and `zpool` are Platter's.
    fn shell(&self, user: u32, text: &str) -> Run {
        let (id, program) = (user.to_string(), self.program.display());
        let script = format!(
            "cd {}; zfs() {{ {program} zfs \"$@\"; }}; zpool() {{ {program} zpool \"$@\"; }}; {text}",
            self.home(user).display()
        );
        let groups = STAFF.to_string();
        let mut words = vec!["--reuid", &id, "--regid", &id];
        words.extend(if user == ANN { ["--groups", &groups] } else { ["--clear-groups", "--no-new-privs"] });
        words.extend(["sh", "-c", &script]);
        self.lab.run("setpriv", words)
    }

    fn ann(&self, words: &str) -> Run {
        self.shell(ANN, words)
    }

    #[track_caller]
    fn ann_may_not(&self, words: &str) {
        let run = self.ann(words);
        assert_ne!(run.code, 0, "{words}: {run}");
        run.says("permission denied");
    }

    fn exists(&self, name: &str) -> bool {
        self.lab.zfs(&format!("list -H -o name {name}")).code == 0
    }

    fn get(&self, property: &str, name: &str) -> String {
        self.lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().to_owned()
    }
}

/// What the API for everybody answers to Ben, asked without a client.
fn ask(office: &Office, body: &str) -> String {
    let socket = office.lab.home().join("public.sock");
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX); s.connect('{}'); b=sys.argv[1].encode()\n\
         h=b'POST /v2 HTTP/1.1\\r\\nhost: p\\r\\nconnection: close\\r\\n'\n\
         s.sendall(h+b'content-length: %d\\r\\n\\r\\n'%len(b)+b)\n\
         print(s.makefile('rb').read().decode())",
        socket.display()
    );
    let id = BEN.to_string();
    let words = ["--reuid", &id, "--regid", &id, "--clear-groups", "/usr/bin/python3", "-c", &script, body];
    office.lab.run("setpriv", words).ok().stdout
}

#[test]
fn what_is_allowed_is_stored_as_openzfs_stores_it() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    for words in [
        format!("allow -u {ANN} snapshot,compress,@basic tank/ann"),
        format!("allow -l -u {ANN} hold tank/ann"),
        format!("allow -d -g {STAFF} send tank/ann"),
        "allow -e mount tank".to_owned(),
        "allow -c destroy,@basic tank/ann".to_owned(),
        "allow -s @basic create,mount,@more tank/ann".to_owned(),
        "allow -s @more clone tank".to_owned(),
    ] {
        lab.zfs(&words).ok();
    }
    let listed = lab.zfs("allow tank/ann").ok().stdout;
    let lines = [
        "---- Permissions on tank/ann -----------------------------------------".to_owned(),
        "Permission sets:".to_owned(),
        "\t@basic @more,create,mount".to_owned(),
        "Create time permissions:".to_owned(),
        "\t@basic,destroy".to_owned(),
        "Local permissions:".to_owned(),
        format!("\tuser (unknown: {ANN}) hold"),
        "Descendent permissions:".to_owned(),
        format!("\tgroup (unknown: {STAFF}) send"),
        "Local+Descendent permissions:".to_owned(),
        format!("\tuser (unknown: {ANN}) @basic,compression,snapshot"),
        "---- Permissions on tank ---------------------------------------------".to_owned(),
        "Permission sets:".to_owned(),
        "\t@more clone".to_owned(),
        "Local+Descendent permissions:".to_owned(),
        "\teveryone mount".to_owned(),
    ];
    assert_eq!(listed, lines.join("\n") + "\n");
    // Everybody may know it, and what is made below has what its maker is to have.
    assert_eq!(office.ann("zfs allow tank/ann").ok().stdout, listed);
    lab.create_fs("", "tank/ann/made");
    lab.zfs("allow tank/ann/made").ok().says("Local permissions:\n\tuser root @basic,destroy\n");
    for (words, said) in [
        ("allow -e nonsense tank", "cannot set permissions on 'tank': invalid permission"),
        ("allow -e used tank", "invalid permission"),
        ("allow -s @a/b send tank", "invalid permission"),
        ("allow -e send tank/none", "dataset does not exist"),
        ("allow tank/none", "dataset does not exist"),
    ] {
        lab.zfs(words).refused().says(said);
    }
    lab.zpool("history -i tank").ok().says("permission update tank/ann").says(&format!("ul${ANN} hold"));

    lab.export("tank");
    assert_zdb_finds_all(lab);
    lab.import("", "tank");
    assert_eq!(lab.zfs("allow tank/ann").ok().stdout, listed);
    take_all_away(lab);
}

/// What was allowed above, as zdb finds it in the pool's own object set.
fn assert_zdb_finds_all(lab: &Lab) {
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(mos) = zdb::zdb(&lab.dev(), &["-dddd", "tank"]) {
        // It does not look behind the keys, whoever wrote them (`dump_mos_leaks`, `cmd/zdb/zdb.c`): one for each.
        assert_eq!(leaked(&mos), ["(DSL permissions)"; 14], "{mos}");
        for key in [format!("ul${ANN} = "), format!("Ud${ANN} = "), format!("gd${STAFF} = ")] {
            assert!(mos.stdout.contains(&key), "{key}: {mos}");
        }
        for key in ["el$ = ", "ed$ = ", "c-$ = ", "C-$ = ", "s-$@basic = ", "S-$@basic = ", "s-$@more = ", "Ul$0 = "] {
            assert!(mos.stdout.contains(key), "{key}: {mos}");
        }
        for name in ["snapshot = 0", "compression = 0", "@basic = 0", "@more = 0"] {
            assert!(mos.stdout.contains(name), "{name}: {mos}");
        }
    }
}

/// The kinds of objects of which zdb finds no use.
fn leaked(mos: &Run) -> Vec<String> {
    let lines = mos.stdout.lines().filter_map(|line| line.strip_prefix("MOS object ")?.strip_suffix(" leaked"));
    lines.map(|line| line.split_once(' ').map_or("", |(_, kind)| kind).to_owned()).collect()
}

/// All of it goes, and nothing is left behind.
fn take_all_away(lab: &Lab) {
    lab.zfs(&format!("unallow -u {ANN} snapshot tank/ann")).ok();
    assert!(!lab.zfs("allow tank/ann").ok().stdout.contains("snapshot"));
    lab.zfs(&format!("unallow -u {ANN} tank/ann")).ok();
    for words in
        ["unallow -c tank/ann", "unallow -s @basic tank/ann", "unallow -r -e tank", "unallow -s @more clone tank"]
    {
        lab.zfs(words).ok();
    }
    lab.zfs(&format!("unallow -g {STAFF} send tank/ann")).ok();
    assert_eq!(lab.zfs("allow tank/ann").ok().stdout, "");
    lab.zfs("allow -e send tank/ben").ok();
    lab.zfs("destroy -r tank/ann").ok();
    lab.zfs("destroy tank/ben").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(mos) = zdb::zdb(&lab.dev(), &["-dddd", "tank"]) {
        assert_eq!(leaked(&mos), [""; 0], "{mos}");
    }
}

/// What takes permissions, and is refused without.
const REFUSED: &[&str] = &[
    "zfs snapshot tank/ann@x",
    "zfs snapshot -r tank/ann@x",
    "zfs destroy tank/ann/deep",
    "zfs destroy tank/ann@root",
    "zfs rollback tank/ann@root",
    "zfs rename tank/ann@root tank/ann@other",
    "zfs rename tank/ann/deep tank/ann/other",
    "zfs clone tank/ann@root tank/ann/clone",
    "zfs create tank/ann/new",
    "zfs create -V 1M tank/ann/vol",
    "zfs hold keep tank/ann@root",
    "zfs bookmark tank/ann@root '#b'",
    "zfs diff tank/ann@root tank/ann",
    "zfs send tank/ann@root > stream",
    "zfs set compression=off tank/ann",
    "zfs set my:note=x tank/ann",
    "zfs inherit compression tank/ann",
    "zfs set userquota@5=1M tank/ann",
    "zfs allow -e snapshot tank/ann",
    "zfs unallow -e snapshot tank/ann",
    "zfs mount tank/ann",
    "zfs unmount tank/ann",
    "zpool scrub tank",
    "zpool export tank",
    "zpool history tank",
];

/// What is refused waits for nothing that somebody else would have to give up.
const REFUSED_WITHIN: Duration = Duration::from_secs(8);

/// What is done with them.
const ALLOWED: &[&str] = &[
    "zfs snapshot tank/ann@x",
    "zfs snapshot -r tank/ann@y",
    "zfs hold keep tank/ann@x",
    "zfs release keep tank/ann@x",
    "zfs bookmark tank/ann@x '#b'",
    "zfs destroy tank/ann#b",
    "zfs rename tank/ann@x tank/ann@z",
    "zfs set compression=off tank/ann",
    "zfs inherit compression tank/ann",
    "zfs set my:note=x tank/ann",
    "zfs set userquota@5=1M tank/ann",
    "zfs diff tank/ann@root tank/ann",
    "zfs clone -u tank/ann@z tank/ann/clone",
    "zfs promote tank/ann/clone",
    "zfs promote tank/ann",
    "zfs destroy tank/ann/clone",
    "zfs destroy -r tank/ann@y",
    "zfs create -u tank/ann/new",
    "zfs rename tank/ann/new tank/ann/newer",
    "zfs destroy tank/ann/newer",
];

#[test]
fn a_user_does_with_his_own_what_is_allowed_and_nothing_else() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    fs::write(office.mount.join("ann/file"), "one").expect("a file");
    lab.zfs("snapshot tank/ann@root tank/ben@root").ok();
    for words in REFUSED {
        let begin = Instant::now();
        office.ann_may_not(words);
        assert!(begin.elapsed() < REFUSED_WITHIN, "{words}: it waited for something");
    }
    let all = "snapshot,destroy,mount,rollback,rename,clone,create,hold,release,bookmark,diff,send,compression,\
               userprop,userquota,promote,receive";
    lab.zfs(&format!("allow -u {ANN} {all} tank/ann")).ok();
    for words in ALLOWED {
        office.ann(words).ok();
    }
    // Mounting takes root, as in OpenZFS on Linux.
    let run = office.ann("zfs create tank/ann/made");
    assert_eq!(run.code, 1, "{run}");
    run.says("filesystem successfully created, but it may only be mounted by root");
    assert_eq!(office.get("mounted", "tank/ann/made"), "no");
    lab.zfs("mount tank/ann/made").ok();
    let made = fs::metadata(office.mount.join("ann/made")).expect("its root");
    assert_eq!((made.uid(), made.gid()), (ANN, ANN), "it is hers");
    office.ann("zfs destroy tank/ann/made").refused().says("cannot unmount").says("permission denied");
    office.ann("zfs destroy tank/ann/deep").refused().says("cannot unmount");
    // What she goes back to is what she sees, where it was.
    fs::write(office.mount.join("ann/file"), "two").expect("a file");
    lab.zfs("unmount tank/ann/made").ok();
    lab.zfs("unmount tank/ann/deep").ok();
    office.ann("zfs rollback tank/ann@z").ok();
    assert_eq!(fs::read_to_string(office.mount.join("ann/file")).expect("the file"), "one");
    // Of others' nothing.
    for words in REFUSED.iter().map(|words| words.replace("tank/ann", "tank/ben")) {
        if !words.contains("deep") && !words.contains("zpool") {
            office.ann_may_not(&words);
        }
    }
    for words in [
        "zfs snapshot tank/ann@both tank/ben@both",
        "zfs rename tank/ann/made tank/ben/made",
        "zfs clone -u tank/ann@z tank/ben/clone",
        "zfs clone -u tank/ben@root tank/ann/theirs",
        "zfs snapshot -r tank@all",
        "zfs set quota=none tank/ann",
        "zfs set readonly=off tank/ann",
        "zfs create -o quota=1M tank/ann/limited",
        "zfs create -o mountpoint=/etc tank/ann/etc",
        "zfs set mountpoint=/etc tank/ann/made",
        "zfs destroy -r tank",
        "zfs inherit -r my:note tank",
    ] {
        office.ann_may_not(words);
    }
    assert!(!office.exists("tank/ann@both") && !office.exists("tank/ann/limited"));
    let history = lab.zpool("history -l tank").ok().stdout;
    assert!(history.contains("zfs snapshot tank/ann@x") && history.contains(&format!("{ANN}")), "{history}");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn sets_groups_and_what_is_local_count_as_in_openzfs() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    lab.zfs(&format!("allow -g {STAFF} @keeper tank/ann")).ok();
    office.ann_may_not("zfs snapshot tank/ann@1");
    lab.zfs("allow -s @keeper @inner tank").ok();
    lab.zfs("allow -s @inner snapshot tank").ok();
    office.ann("zfs snapshot -r tank/ann@1").ok();
    lab.zpool("set delegation=off tank").ok();
    office.ann_may_not("zfs snapshot tank/ann@2");
    lab.zpool("set delegation=on tank").ok();
    lab.zfs("unallow -s @keeper tank").ok();
    office.ann_may_not("zfs snapshot tank/ann@2");
    // Here and not below, or below and not here.
    lab.zfs(&format!("unallow -g {STAFF} tank/ann")).ok();
    lab.zfs(&format!("allow -l -u {ANN} snapshot tank/ann")).ok();
    office.ann("zfs snapshot tank/ann@2").ok();
    office.ann_may_not("zfs snapshot tank/ann/deep@2");
    office.ann_may_not("zfs snapshot -r tank/ann@3");
    lab.zfs(&format!("allow -d -u {ANN} snapshot tank/ben")).ok();
    office.ann_may_not("zfs snapshot tank/ben@2");
    // What is allowed at the data set alone is not allowed at its snapshots.
    lab.zfs(&format!("allow -l -u {ANN} destroy,mount tank/ann")).ok();
    office.ann_may_not("zfs destroy tank/ann@2");
    lab.zfs(&format!("allow -d -u {ANN} destroy,mount tank/ann")).ok();
    office.ann("zfs destroy tank/ann@2").ok();
    // Nobody passes on more than he has, nor takes from others.
    lab.zfs(&format!("allow -u {ANN} allow tank/ann")).ok();
    office.ann(&format!("zfs allow -u {BEN} mount tank/ann")).ok();
    office.ann_may_not(&format!("zfs allow -u {BEN} send tank/ann"));
    office.ann_may_not(&format!("zfs allow -u {BEN} allow tank/ann"));
    office.ann_may_not(&format!("zfs unallow -u {BEN} mount tank/ann"));
    office.ann(&format!("zfs unallow -u {ANN} mount tank/ann")).ok();
    office.ann_may_not("zfs destroy tank/ann@1");
}

#[test]
fn streams_go_past_the_daemons_rights() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    fs::write(office.mount.join("ann/file"), vec![7; 3 << 20]).expect("a file");
    let tool = office.mount.join("ann/tool");
    fs::copy("/bin/true", &tool).expect("a program");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).expect("a set-id program of root's");
    lab.zfs("snapshot tank/ann@1").ok();
    lab.zfs("snapshot tank/ben@1").ok();
    lab.zfs(&format!("allow -u {ANN} send,create,mount,receive:append tank/ann")).ok();
    let root = lab.run("sh", ["-c", &format!("{} zfs send tank/ann@1 | cksum", office.program.display())]).ok().stdout;
    for words in ["zfs send tank/ann@1 | cksum", "zfs send tank/ann@1 > own; cksum < own"] {
        assert_eq!(office.ann(words).ok().stdout, root, "{words}");
    }
    assert_eq!(fs::metadata(office.home(ANN).join("own")).expect("her file").uid(), ANN);
    office.ann_may_not("zfs send tank/ben@1 > other");
    office.ann_may_not("zfs send -R tank/ben@1 > other");
    office.ann("zfs send tank/ann@1 > /etc/stream-of-ann").refused();
    assert!(!Path::new("/etc/stream-of-ann").exists());

    office.ann_may_not("zfs receive tank/ben/got < own");
    office.ann_may_not("zfs receive -F tank/ann/got < own");
    assert!(!office.exists("tank/ann/got"));
    office.ann("zfs receive tank/ann/got < own").ok();
    office.ann("cat own | zfs receive tank/ann/got2").ok();
    assert_eq!(office.get("mounted", "tank/ann/got"), "no");
    // A program that came with a stream gets nobody's rights but its user's.
    assert_eq!(
        (office.get("setuid", "tank/ann/got"), office.get("devices", "tank/ann/got")),
        ("off".into(), "off".into())
    );
    // Properties come along as far as she may set them.
    lab.zfs("set -u quota=100M mountpoint=/etc/evil tank/ann").ok();
    lab.zfs("snapshot tank/ann@p").ok();
    office.ann("zfs send -p tank/ann@p | zfs receive tank/ann/got3").says("quota").says("permission denied");
    assert_eq!(office.get("quota", "tank/ann/got3"), "0");
    assert!(!office.get("mountpoint", "tank/ann/got3").starts_with("/etc/evil/got3/"));
    lab.zfs("set -u mountpoint=none tank/ann").ok();
    lab.zfs("inherit mountpoint tank/ann").ok();

    // Who goes away in the middle holds nothing up.
    let began = Instant::now();
    office.ann("zfs send tank/ann@1 | head -c 10 > /dev/null").ok();
    office.ann("sleep 3 | zfs receive tank/ann/got4").refused();
    assert!(began.elapsed() < Duration::from_secs(30));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn the_sockets_for_everybody_give_a_hostile_user_nothing() {
    let Some(office) = Office::open() else { return };
    if judge::need("python3").is_none() {
        return;
    }
    let lab = &office.lab;
    let home = lab.home();
    let mode = |name: &str| fs::metadata(home.join(name)).expect("there").mode() & 0o777;
    assert_eq!((mode("public.sock"), mode("guests.sock")), (0o666, 0o666));
    assert_eq!((mode("daemon.sock"), mode("stream.sock")), (0o600, 0o600));
    for body in [
        r#"{"close_pool":{"pool":"tank"}}"#,
        r#"{"stop_daemon":{}}"#,
        r#"{"clear_label":{"device":"/dev/null"}}"#,
        r#"{"check_places":{"places":[]}}"#,
        r#"{"search_pools":{"search":["/root"]}}"#,
        r#"{"mount":{"dataset":"tank/ben"}}"#,
        r#"{"mount":{"dataset":null}}"#,
        r#"{"get_history":{"pool":"tank"}}"#,
        r#"{"create_dataset":{"name":"tank/ben/x","properties":{}}}"#,
        r#"{"take_snapshots":{"names":["tank/ben@x"]}}"#,
        r#"{"send_stream":{"snapshot":"tank/ben@1","descriptor":"00000000000000000000000000000000"}}"#,
        r#"{"receive_stream":{"target":"tank/ben/x","descriptor":"00000000000000000000000000000000"}}"#,
        r#"{"allow":{"name":"tank","granted":{"ul$70002":["destroy"]}}}"#,
        r#"{"unallow":{"name":"tank","revoked":{}}}"#,
        r#"{"set_dataset_properties":{"name":"tank/ben","properties":{}}}"#,
        r#"{"take_snapshots":{"names":[]}}"#,
    ] {
        let answer = ask(&office, body);
        assert!(!answer.contains(" 200 "), "{body}: {answer}");
    }
    // Userprop is not what the daemon acts by.
    lab.zfs(&format!("allow -u {ANN} userprop tank/ann")).ok();
    office.ann("zfs set my:note=1 tank/ann").ok();
    office.ann_may_not("zfs set platter:snap=1s:1 tank/ann");
    office.ann_may_not("zfs set platter:prune=on tank/ann");
    // What others use is theirs.
    chown(office.mount.join("ben"), Some(BEN), Some(BEN)).expect("given away");
    lab.zpool("sync tank").ok();
    let seen = office.ann("zfs userspace -Hpn -o name,used tank/ben").stdout;
    assert!(!seen.contains(&BEN.to_string()), "{seen}");
    lab.zfs(&format!("allow -u {ANN} userused tank/ben")).ok();
    office.ann("zfs userspace -Hpn -o name,used tank/ben").ok().says(&BEN.to_string());

    assert_files_are_not_taken(&home);
    assert_a_crowd_keeps_nobody_out(&office);
}

/// A file is nothing that the daemon takes over.
fn assert_files_are_not_taken(home: &Path) {
    let file = fs::File::open("/etc/hostname").expect("a file");
    let socket = UnixStream::connect(home.join("guests.sock")).expect("the socket");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
    let name = [IoSlice::new(b"00000000000000000000000000000001")];
    rustix::net::sendmsg(&socket, &name, &mut control, rustix::net::SendFlags::empty()).expect("sent");
    let mut answer = Vec::new();
    (&socket).read_to_end(&mut answer).expect("closed");
    assert!(answer.is_empty());
}

/// Many connections of one user keep nobody else out.
fn assert_a_crowd_keeps_nobody_out(office: &Office) {
    let (lab, home) = (&office.lab, office.lab.home());
    let hold = format!(
        "import socket,time\nh=[]\nfor n in range(200):\n  for p in ('public','guests'):\n    \
             s=socket.socket(socket.AF_UNIX); s.settimeout(1)\n    \
             try: s.connect('{}/'+p+'.sock'); h.append(s)\n    except OSError: pass\n\
         print('held',flush=True)\ntime.sleep(4)",
        home.display()
    );
    let id = BEN.to_string();
    let mut crowd = lab.command("setpriv");
    crowd.args(["--reuid", &id, "--regid", &id, "--clear-groups", "/usr/bin/python3", "-c", &hold]);
    let mut crowd = crowd.stdout(std::process::Stdio::piped()).spawn().expect("a crowd");
    let mut told = [0; 4];
    crowd.stdout.as_mut().expect("its output").read_exact(&mut told).expect("they are there");
    office.ann("zfs list tank").ok();
    office.ann("zfs set my:note=2 tank/ann").ok();
    lab.zfs("list tank").ok();
    crowd.wait().expect("gone");
}

// A daemon of root's follows no link that somebody else can lay where a file system is mounted.
#[test]
fn a_link_of_a_users_leads_no_mount_astray() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    let (home, target) = (office.home(ANN), lab.tmp().join("roots"));
    fs::create_dir(&target).expect("a folder");
    lab.zfs(&format!("set mountpoint={}/data tank/ann", home.display())).ok();
    lab.zfs("unmount tank/ann/deep").ok();
    lab.zfs("unmount tank/ann").ok();
    let _ = fs::remove_dir(home.join("data"));
    office.ann(&format!("ln -s {} data", target.display())).ok();
    let run = lab.zfs("mount tank/ann").refused();
    run.says("data");
    assert!(!lab.mounts().contains(&target), "{:?}", lab.mounts());
    fs::remove_file(home.join("data")).expect("her link");
    // One that root has laid where nobody else can is root's business.
    let link = lab.tmp().join("link");
    symlink(&target, &link).expect("a link");
    lab.zfs(&format!("set -u mountpoint={} tank/ann", link.display())).ok();
    lab.zfs("mount tank/ann").ok();
    assert!(lab.mounts().contains(&target), "{:?}", lab.mounts());
    let _ = std::io::stdout().flush();
}

/// What a guest receives over his own, or clones, gives him no rights either; names of schedules are not his, and a
/// look at a stream keeps nobody out.
#[test]
fn a_guests_own_file_systems_give_no_rights() {
    let Some(office) = Office::open() else { return };
    let lab = &office.lab;
    lab.zfs("snapshot tank/ben@1").ok();
    let evil = office.home(ANN).join("evil");
    lab.run("sh", ["-c", &format!("{} zfs send tank/ben@1 > {}", office.program.display(), evil.display())]).ok();
    lab.zfs(&format!("allow -u {ANN} create,mount,receive,clone,snapshot,rename tank/ann")).ok();
    office.ann("zfs create -u tank/ann/own").ok();
    let rights = |name: &str| (office.get("setuid", name), office.get("devices", name));
    let (on, off) = (("on".to_owned(), "on".to_owned()), ("off".to_owned(), "off".to_owned()));
    assert_eq!(rights("tank/ann/own"), on, "it is empty");
    office.ann("zfs receive -F tank/ann/own < evil").ok();
    assert_eq!(rights("tank/ann/own"), off);
    office.ann("zfs clone tank/ann/own@1 tank/ann/clone").ok();
    assert_eq!(rights("tank/ann/clone"), off);
    // Who may set them decides for himself.
    lab.zfs(&format!("allow -u {ANN} setuid,devices tank/ann")).ok();
    office.ann("zfs clone tank/ann/own@1 tank/ann/clone2").ok();
    assert_eq!(rights("tank/ann/clone2"), on);

    office.ann_may_not("zfs snapshot tank/ann@auto_2025-01-01T10:00:00Z_hourly");
    office.ann("zfs snapshot tank/ann@mine").ok();
    office.ann_may_not("zfs rename tank/ann@mine tank/ann@auto_2025-01-01T10:00:00Z_hourly");

    lab.zfs("unmount tank/ben").ok();
    office.ann_may_not("zfs send -n tank/ben");
    office.ann_may_not("zfs send -nv tank/ben");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
