//! Clients of a daemon that is stopped, or dies while it is asked.

use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Lab, binary};

fn signal(lab: &Lab, daemon: &[i32], name: &str) {
    for pid in daemon {
        lab.run("kill", [name, &pid.to_string()]).ok();
    }
}

/// `zpool list`, with what it says in a file.
fn ask(lab: &Lab) -> (Child, std::path::PathBuf) {
    let said = lab.tmp().join("said");
    let file = File::create(&said).expect("a file");
    let mut command = lab.command(binary::platter());
    command.args(["zpool", "list"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    (command.spawn().expect("a command"), said)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_client_says_that_its_daemon_is_stopped_and_notices_that_it_died() {
    // A client waited for ever for a daemon that died meanwhile, and without a word for one that was stopped.
    let Some(lab) = Lab::open() else { return };
    lab.zpool("list").ok();
    // Looked up while no client runs: a client has the daemon's home in its environment, too.
    let daemon = lab.daemon_pids();
    for (end, ends_well) in [("-CONT", true), ("-KILL", false)] {
        signal(&lab, &daemon, "-STOP");
        let (mut client, said) = ask(&lab);
        wait_for("it says nothing", || {
            fs::read_to_string(&said).is_ok_and(|said| said.contains("is stopped; 'kill -CONT"))
        });
        assert!(client.try_wait().expect("a child").is_none(), "it waits");
        signal(&lab, &daemon, end);
        wait_for("it still waits", || client.try_wait().expect("a child").is_some());
        let code = client.wait().expect("a child");
        let said = fs::read_to_string(&said).expect("a file");
        assert_eq!(code.success(), ends_well, "{said}");
        assert_eq!(said.contains("may or may not have happened"), !ends_well, "{said}");
    }
}
