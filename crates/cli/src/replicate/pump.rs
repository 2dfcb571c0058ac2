//! What `zfs send` says goes into `zfs receive`, through here: it is counted, shown, and no faster than wanted.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Bytes that are passed on at a time; the pipes hold as much.
const BUFFER: usize = 1 << 20;

/// Sleeps so that bytes come no faster than so many a second.
struct Limit {
    rate: Option<u64>,
    began: Instant,
}

impl Limit {
    fn keep(&self, passed: u64) {
        let Some(rate) = self.rate else { return };
        assert!(rate > 0, "some pass");
        let due = Duration::from_secs_f64(passed as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}

/// How a stream is passed on.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// Most bytes a second.
    pub rate: Option<u64>,
    /// Bytes that are expected.
    pub estimate: u64,
    /// What stands before the progress; none is shown without.
    pub title: Option<String>,
}

fn bar(how: &How) -> ProgressBar {
    let Some(title) = how.title.clone() else { return ProgressBar::hidden() };
    let bar = ProgressBar::new(how.estimate);
    // It hides itself where stderr is no terminal.
    let style = "{msg} {binary_bytes} of {binary_total_bytes} ({percent}%) at {binary_bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(title);
    bar
}

fn start(mut command: Command, what: &str) -> Result<Child, String> {
    command.spawn().map_err(|error| format!("{what} cannot be started: {error}"))
}

/// Runs both and passes on what goes from one to the other; answers the bytes.
///
/// # Errors
/// One of them fails: which, and what it said it has said on stderr itself.
pub fn pass(mut send: Command, mut receive: Command, how: &How) -> Result<u64, String> {
    send.stdout(Stdio::piped());
    receive.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut sender = start(send, "the sender")?;
    let mut receiver = match start(receive, "the receiver") {
        Ok(receiver) => receiver,
        Err(error) => {
            let _ = sender.kill();
            let _ = sender.wait();
            return Err(error);
        }
    };
    let (from, to) = (sender.stdout.take(), receiver.stdin.take());
    let (Some(mut from), Some(mut to)) = (from, to) else { return Err("no pipe between both".to_owned()) };
    // Smaller ones do, too: an ordinary user has a limit.
    let _ = (rustix::pipe::fcntl_setpipe_size(&from, BUFFER), rustix::pipe::fcntl_setpipe_size(&to, BUFFER));
    let (bar, limit) = (bar(how), Limit { rate: how.rate, began: Instant::now() });
    let (mut buffer, mut passed) = (vec![0; BUFFER], 0);
    let broken = loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break None,
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => break Some(format!("the stream cannot be read: {error}")),
        };
        // A receiver that has gone says why itself.
        if to.write_all(&buffer[..got]).is_err() {
            break None;
        }
        passed += got as u64;
        bar.set_position(passed);
        limit.keep(passed);
    };
    drop((from, to));
    bar.finish_and_clear();
    let ended = |child: &mut Child, what: &str| match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} failed ({status})")),
        Err(error) => Err(format!("{what}: {error}")),
    };
    // The receiver's reason is the first one: a sender whose receiver is gone fails for that.
    let received = ended(&mut receiver, "the receiver");
    let sent = ended(&mut sender, "the sender");
    match broken {
        Some(reason) => Err(reason),
        None => received.and(sent).map(|()| passed),
    }
}
