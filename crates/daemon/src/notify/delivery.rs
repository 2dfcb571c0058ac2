//! How a message reaches one receiver.
//!
//! Invariants: a delivery has an end; what a receiver answers is not read beyond what says how it went; nothing of a
//! message becomes a word of a command or a line of a header.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use platter_api::notify::{Message, Way};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// How long one delivery may take.
const DELIVERY_MAX: Duration = Duration::from_secs(30);
/// Longest target.
const TARGET_MAX: usize = 2000;
/// Bytes of what a program complains that are shown.
const COMPLAINT_MAX: usize = 200;

/// What a way that is to be added must be.
///
/// # Errors
/// Why it leads nowhere.
pub fn check(way: &Way) -> Result<(), String> {
    let target = way.target();
    if target.is_empty() || target.len() > TARGET_MAX || target.chars().any(char::is_control) {
        return Err("that is no place".into());
    }
    match way {
        Way::Program(path) if !path.is_absolute() => Err(format!("{target} is no absolute path")),
        Way::Program(path) if !path.is_file() => Err(format!("{target} is no program")),
        Way::Mail(_)
            if target.starts_with('-') || target.contains([' ', ',']) || !target.contains(char::is_alphabetic) =>
        {
            Err(format!("{target} is no mail address"))
        }
        Way::Webhook(_) | Way::Ntfy(_) if !target.starts_with("http://") && !target.starts_with("https://") => {
            Err(format!("{target} is no URL with http:// or https://"))
        }
        Way::Webhook(_) | Way::Ntfy(_) => {
            let parsed = target.parse::<ureq::http::Uri>();
            parsed.map(|_| ()).map_err(|error| format!("{target} is no URL: {error}"))
        }
        Way::Program(_) | Way::Mail(_) => Ok(()),
    }
}

/// Delivers a message once.
///
/// # Errors
/// Why it did not arrive, for a person.
pub async fn deliver(way: &Way, message: &Message) -> Result<(), String> {
    let delivered = async {
        match way {
            Way::Program(path) => {
                let mut command = Command::new(path);
                command.env("PLATTER_CLASS", &message.class).env("PLATTER_POOL", &message.pool);
                run(command, json(message)?).await
            }
            Way::Webhook(url) => {
                post(url.clone(), vec![("content-type", "application/json".into())], json(message)?).await
            }
            Way::Ntfy(url) => {
                let priority = if message.class.starts_with("fault.") { "high" } else { "default" };
                let headers =
                    vec![("title", title(message)), ("priority", priority.into()), ("tags", "floppy_disk".into())];
                post(url.clone(), headers, body(message).into_bytes()).await
            }
            Way::Mail(address) => {
                let mut command = Command::new(sendmail()?);
                command.args(["-i", "--", address]);
                run(command, mail(address, message).into_bytes()).await
            }
        }
    };
    // A little more than what ends by itself has.
    let most = DELIVERY_MAX + Duration::from_secs(1);
    timeout(most, delivered).await.unwrap_or_else(|_| Err(format!("no answer within {} s", DELIVERY_MAX.as_secs())))
}

fn json(message: &Message) -> Result<Vec<u8>, String> {
    serde_json::to_vec(message).map_err(|error| error.to_string())
}

/// "host: tank" in characters that may stand in a header.
fn title(message: &Message) -> String {
    let title = format!("{}: {}", message.host, message.pool);
    let title: String = title.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    assert!(!title.contains(['\r', '\n']), "it stays one line");
    title
}

fn body(message: &Message) -> String {
    let device = message.device.as_ref().map(|device| format!("{device}: ")).unwrap_or_default();
    format!("pool {}: {device}{}\n{}", message.pool, message.text, message.action)
}

fn mail(address: &str, message: &Message) -> String {
    let Message { class, time, .. } = message;
    format!(
        "To: {address}\nSubject: platter: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\n\n{}\n\nevent: {class}\ntime: {time} seconds since the epoch\n",
        title(message),
        body(message),
    )
}

/// Where `sendmail` is.
fn sendmail() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/lib"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join("sendmail")).find(|path: &PathBuf| Path::is_file(path));
    found.ok_or_else(|| "there is no sendmail on this machine".into())
}

/// Runs a program that gets `input`. It is killed when it takes too long.
async fn run(mut command: Command, input: Vec<u8>) -> Result<(), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir("/").kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let mut stdin = child.stdin.take();
    let feed = async {
        if let Some(stdin) = &mut stdin {
            // Who does not read may go on all the same.
            let _ = stdin.write_all(&input).await;
        }
        drop(stdin);
    };
    let (output, ()) = timeout(DELIVERY_MAX, async { tokio::join!(child.wait_with_output(), feed) })
        .await
        .map_err(|_| format!("it ran for more than {} s", DELIVERY_MAX.as_secs()))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(COMPLAINT_MAX)]).trim().to_owned();
    Err(if said.is_empty() { output.status.to_string() } else { format!("{}: {said}", output.status) })
}

fn agent() -> &'static Agent {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        // Fails only when there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Whom the machine trusts is trusted: its owner may have an authority of his own.
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(RootCerts::PlatformVerifier).build();
        Agent::config_builder().timeout_global(Some(DELIVERY_MAX)).max_redirects(3).tls_config(tls).build().into()
    })
}

/// Posts something, on a thread that may wait.
async fn post(url: String, headers: Vec<(&'static str, String)>, content: Vec<u8>) -> Result<(), String> {
    let posting = tokio::task::spawn_blocking(move || {
        let request =
            headers.into_iter().fold(agent().post(&url), |request, (name, value)| request.header(name, value));
        request.send(&content[..]).map(|_| ()).map_err(|error| error.to_string())
    });
    posting.await.unwrap_or_else(|_| Err("the request could not be made".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_lead_nowhere_are_refused() {
        let good = [
            Way::Program("/bin/sh".into()),
            Way::Webhook("http://127.0.0.1:8080/x?y=z".into()),
            Way::Ntfy("https://ntfy.sh/topic".into()),
            Way::Mail("root".into()),
            Way::Mail("a.b+c@example.org".into()),
        ];
        let bad = [
            Way::Program("sh".into()),
            Way::Program("/nowhere/at/all".into()),
            Way::Webhook("ftp://example.org".into()),
            Way::Webhook("http://exa mple.org/".into()),
            Way::Mail("-oQ/tmp@example.org".into()),
            Way::Mail("a@b.c\nBcc: x@y.z".into()),
            Way::Mail(String::new()),
        ];
        for way in good {
            assert_eq!(check(&way), Ok(()), "{way:?}");
        }
        for way in bad {
            assert!(check(&way).is_err(), "{way:?}");
        }
    }

    #[test]
    fn nothing_of_a_message_becomes_a_header() {
        let message = Message {
            class: "c".into(),
            time: 0,
            host: "h\nBcc: x@y.z".into(),
            pool: "pöol".into(),
            device: None,
            guid: None,
            state: None,
            text: "it failed".into(),
            action: "Replace it.".into(),
        };
        assert_eq!(title(&message), "h?Bcc: x@y.z: p?ol");
        assert!(mail("root", &message).contains("\n\npool pöol: it failed\nReplace it.\n"));
    }
}
