//! A client's eye on the daemon that it waits for.
//!
//! True here: a daemon counts as ended when its process is gone or dying, whoever still holds its socket (a child, or a
//! thread that is stuck in the kernel). One that is alive is waited for, however long it takes; a client that hears
//! nothing says so now and then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::dead_mounts::is_dying;
use platter_api::ask::{Ask, PATH};
use platter_api::messages::{DaemonStatus, GetStatus};

/// More bytes are no answer.
const ANSWER_MAX: u64 = 1 << 20;
/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long a sign of life is waited for.
const SILENCE: Duration = Duration::from_secs(5);
/// How long until the same is said again.
const AGAIN: Duration = Duration::from_secs(60);

/// Over when the process with this number has ended or cannot do anything any more.
pub async fn ended(pid: u32) {
    while !is_dying(pid) && !is_gone(pid) {
        sleep(LOOK).await;
    }
}

fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => state(&status) == Some('Z'),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound && std::path::Path::new("/proc/self").exists(),
    }
}

/// The letter of a process's state, from the text of `/proc/PID/status`.
fn state(status: &str) -> Option<char> {
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim().chars().next()
}

/// Says on stderr, now and then, that the daemon does not answer, or which device it waits for. Never over.
pub async fn remark_on_silence(socket: PathBuf, pid: u32) {
    loop {
        sleep(SILENCE).await;
        if let Ok(Some(status)) = timeout(SILENCE, ask(&socket)).await {
            if status.silent.is_empty() {
                continue;
            }
            for (pool, device) in status.silent {
                eprintln!(
                    "platter: pool '{pool}' waits for {device}, which does not answer; 'zpool export -f {pool}' gives \
                     it up"
                );
            }
            sleep(AGAIN).await;
            continue;
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        match state(&status) {
            Some('T' | 't') => {
                eprintln!("platter: the daemon (pid {pid}) is stopped; 'kill -CONT {pid}' lets it go on");
            }
            _ => eprintln!("platter: the daemon (pid {pid}) does not answer; still waiting for it"),
        }
        sleep(AGAIN).await;
    }
}

/// What the daemon says of itself, if it answers.
async fn ask(socket: &Path) -> Option<DaemonStatus> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    let body = String::from_utf8(GetStatus {}.operation().to_json().ok()?).ok()?;
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: platter\r\nconnection: close\r\n");
    let question = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await.ok()?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    serde_json::from_slice(&answer[body..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client waited for ever for a daemon that had died.
    #[tokio::test]
    async fn a_process_that_ended_is_noticed_and_a_living_one_is_not_taken_for_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert!(timeout(LOOK * 3, ended(pid)).await.is_err());
        child.kill().unwrap();
        // Also before anybody has waited for it.
        timeout(Duration::from_secs(60), ended(pid)).await.unwrap();
        child.wait().unwrap();
        timeout(Duration::from_secs(60), ended(pid)).await.unwrap();
    }

    #[test]
    fn the_state_of_a_process_is_read() {
        assert_eq!(state("Name:\tplatter\nState:\tT (stopped)\n"), Some('T'));
        assert_eq!(state(""), None);
    }
}
