//! Who is told when a device fails, and how it goes: `platter notify`.
//!
//! Invariants:
//! - whoever tells something waits for nobody: each receiver has a queue and a task of its own;
//! - a message is tried a bounded number of times, and a receiver keeps a bounded number of them. What is given up is
//!   counted and logged.

mod delivery;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_api::messages::{ErrorBody, ErrorKind};
use platter_api::notify::{Message, ReceiverReport, Way};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::home::{self, Home};
use crate::machine::now_seconds;

/// Messages that may wait for one receiver.
const WAITING_MAX: usize = 100;
/// Receivers.
const RECEIVERS_MAX: usize = 32;
/// How long a message that could not be delivered waits until it is tried again, each time.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120), Duration::from_secs(600)];

/// How it went with a receiver.
#[derive(Clone, Debug, Default)]
struct Course {
    delivered: u64,
    lost: u64,
    waiting: u64,
    last_delivered: Option<u64>,
    trouble: Option<String>,
}

#[derive(Debug)]
struct Receiver {
    way: Way,
    queue: mpsc::Sender<Message>,
    course: Arc<Mutex<Course>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    version: u32,
    last: u64,
    receivers: BTreeMap<u64, Way>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    receivers: BTreeMap<u64, Receiver>,
}

/// All receivers.
#[derive(Debug)]
pub struct Notifier {
    path: PathBuf,
    pauses: &'static [Duration],
    state: Mutex<State>,
    /// Why the file could not be read: it is not overwritten then.
    unreadable: Option<String>,
}

fn read(path: &Path) -> Result<Content, String> {
    match home::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| format!("'{}' is damaged ({error})", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Content::default()),
        Err(error) => Err(format!("cannot read '{}': {error}", path.display())),
    }
}

impl Notifier {
    /// The receivers of a home, without any until [`Self::start`].
    pub fn new(home: &Home) -> Self {
        Self { path: home.notify_file(), pauses: &PAUSES, state: Mutex::default(), unreadable: None }
    }

    /// Reads who is told, and begins to tell them.
    pub fn start(mut self) -> Self {
        match read(&self.path) {
            Ok(content) => {
                let state = self.state.get_mut();
                state.last = content.last;
                for (id, way) in content.receivers.into_iter().take(RECEIVERS_MAX) {
                    state.receivers.insert(id, receiver(way, self.pauses));
                }
            }
            Err(reason) => {
                tracing::error!("nobody is told of anything: {reason}");
                self.unreadable = Some(reason);
            }
        }
        self
    }

    /// Tells all receivers, and waits for none.
    pub fn tell(&self, message: &Message) {
        for receiver in self.state.lock().receivers.values() {
            let mut course = receiver.course.lock();
            match receiver.queue.try_send(message.clone()) {
                Ok(()) => course.waiting += 1,
                Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {
                    course.lost += 1;
                    tracing::warn!("{} {} has too many messages", receiver.way.name(), receiver.way.target());
                }
            }
        }
    }

    /// All receivers.
    pub fn list(&self) -> Vec<ReceiverReport> {
        self.state.lock().receivers.iter().map(|(id, receiver)| report(*id, receiver)).collect()
    }

    /// Adds one.
    ///
    /// # Errors
    /// A way that leads nowhere; one that is there already; too many; the file.
    pub fn add(&self, way: Way) -> Result<ReceiverReport, ErrorBody> {
        delivery::check(&way).map_err(|reason| ErrorBody::new(format!("cannot add {}: {reason}", way.name())))?;
        let mut state = self.state.lock();
        if state.receivers.values().any(|known| known.way == way) {
            let text = format!("cannot add {} {}: it is told already", way.name(), way.target());
            return Err(ErrorBody::of_kind(ErrorKind::Exists, text));
        }
        if state.receivers.len() >= RECEIVERS_MAX {
            return Err(ErrorBody::new(format!("cannot add a receiver: there are {RECEIVERS_MAX} already")));
        }
        let id = state.last + 1;
        let mut ways = ways(&state);
        ways.insert(id, way.clone());
        self.write(id, ways)?;
        state.last = id;
        let known = state.receivers.entry(id).or_insert(receiver(way, self.pauses));
        Ok(report(id, known))
    }

    /// Removes one.
    ///
    /// # Errors
    /// There is none of this number; the file.
    pub fn remove(&self, id: u64) -> Result<(), ErrorBody> {
        let mut state = self.state.lock();
        let mut ways = ways(&state);
        if ways.remove(&id).is_none() {
            return Err(no_such(id));
        }
        self.write(state.last, ways)?;
        state.receivers.remove(&id);
        Ok(())
    }

    /// Delivers a message to one receiver, or all, once and at once; what went wrong.
    ///
    /// # Errors
    /// There is none of this number.
    pub async fn test(&self, id: Option<u64>, message: &Message) -> Result<Vec<String>, ErrorBody> {
        let ways: Vec<(u64, Way)> = {
            let state = self.state.lock();
            let all = state.receivers.iter().filter(|(known, _)| id.is_none_or(|id| id == **known));
            all.map(|(id, receiver)| (*id, receiver.way.clone())).collect()
        };
        if ways.is_empty() {
            return Err(id.map_or_else(|| ErrorBody::new("nobody is told: 'platter notify add' names who is"), no_such));
        }
        let tries = ways.iter().map(|(id, way)| async move {
            let tried = delivery::deliver(way, message).await;
            tried.err().map(|reason| format!("{id} ({} {}): {reason}", way.name(), way.target()))
        });
        Ok(futures::future::join_all(tries).await.into_iter().flatten().collect())
    }

    fn write(&self, last: u64, receivers: BTreeMap<u64, Way>) -> Result<(), ErrorBody> {
        if let Some(reason) = &self.unreadable {
            return Err(ErrorBody::new(format!("cannot change who is told: {reason}"))
                .hint("mend or remove the file, then restart the daemon"));
        }
        let failed = |error: String| ErrorBody::new(format!("cannot write '{}': {error}", self.path.display()));
        let content = Content { version: 1, last, receivers };
        let text = serde_json::to_vec_pretty(&content).map_err(|error| failed(error.to_string()))?;
        home::waiting(|| home::replace_file(&self.path, &text)).map_err(|error| failed(error.to_string()))
    }
}

fn no_such(id: u64) -> ErrorBody {
    ErrorBody::of_kind(ErrorKind::NotFound, format!("there is no receiver {id}: 'platter notify list' shows them"))
}

fn ways(state: &State) -> BTreeMap<u64, Way> {
    state.receivers.iter().map(|(id, receiver)| (*id, receiver.way.clone())).collect()
}

fn report(id: u64, receiver: &Receiver) -> ReceiverReport {
    let course = receiver.course.lock().clone();
    ReceiverReport {
        id,
        way: receiver.way.clone(),
        delivered: course.delivered,
        lost: course.lost,
        waiting: course.waiting,
        last_delivered: course.last_delivered,
        trouble: course.trouble,
    }
}

fn receiver(way: Way, pauses: &'static [Duration]) -> Receiver {
    let (queue, messages) = mpsc::channel(WAITING_MAX);
    let course = Arc::<Mutex<Course>>::default();
    let task = tokio::spawn(serve(way.clone(), messages, course.clone(), pauses));
    Receiver { way, queue, course, task }
}

/// Delivers one message after the other.
async fn serve(
    way: Way,
    mut messages: mpsc::Receiver<Message>,
    course: Arc<Mutex<Course>>,
    pauses: &'static [Duration],
) {
    while let Some(message) = messages.recv().await {
        let mut pauses = pauses.iter();
        let delivered = loop {
            let Err(reason) = delivery::deliver(&way, &message).await else { break true };
            tracing::warn!("{} {} could not be told: {reason}", way.name(), way.target());
            course.lock().trouble = Some(reason);
            let Some(pause) = pauses.next() else { break false };
            tokio::time::sleep(*pause).await;
        };
        let mut course = course.lock();
        assert!(course.waiting > 0, "whoever tells something counts it before it can be delivered");
        course.waiting -= 1;
        if delivered {
            (course.delivered, course.trouble) = (course.delivered + 1, None);
            course.last_delivered = Some(now_seconds());
        } else {
            course.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const SOON: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(5)];

    fn message(text: &str) -> Message {
        Message {
            class: "fault.fs.zfs.vdev.io".into(),
            time: 1,
            host: "here".into(),
            pool: "tank".into(),
            device: Some("/d7".into()),
            guid: Some("7".into()),
            state: None,
            text: text.into(),
            action: "Replace it.".into(),
        }
    }

    fn notifier(pauses: &'static [Duration]) -> (tempfile::TempDir, Notifier) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_path_buf()).unwrap();
        (folder, Notifier { pauses, ..Notifier::new(&home) }.start())
    }

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..600 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{what}");
    }

    /// A web server that answers its first requests with these numbers, then 200; sends what it got.
    async fn web(answers: &'static [u16]) -> (String, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut answers = answers.iter();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut got, mut some) = (Vec::new(), [0; 4096]);
                while !got.ends_with(b"}") && !got.ends_with(b"it.") {
                    match stream.read(&mut some).await.unwrap() {
                        0 => break,
                        bytes => got.extend(&some[..bytes]),
                    }
                }
                let number = answers.next().copied().unwrap_or(200);
                let answer = format!("HTTP/1.1 {number} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = tell.send(String::from_utf8(got).unwrap());
            }
        });
        (url, told)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_webhook_gets_json_and_is_tried_again() {
        let (_folder, notifier) = notifier(&SOON);
        let (url, mut told) = web(&[500, 503]).await;
        notifier.add(Way::Webhook(url.clone())).unwrap();
        assert!(notifier.add(Way::Webhook(url)).is_err(), "nobody is told twice");
        notifier.tell(&message("it failed"));
        for _ in 0..3 {
            let request = told.recv().await.unwrap();
            let body = &request[request.find("\r\n\r\n").unwrap() + 4..];
            assert!(
                request.starts_with("POST /hook HTTP/1.1\r\n") && request.contains("application/json"),
                "{request}"
            );
            assert_eq!(serde_json::from_str::<Message>(body).unwrap(), message("it failed"));
        }
        until("it arrived", || notifier.list()[0].delivered == 1).await;
        let report = notifier.list().remove(0);
        assert_eq!((report.lost, report.waiting, report.trouble), (0, 0, None));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn ntfy_gets_words_and_a_title() {
        let (_folder, notifier) = notifier(&[]);
        let (url, mut told) = web(&[]).await;
        notifier.add(Way::Ntfy(url)).unwrap();
        notifier.tell(&message("it failed"));
        let request = told.recv().await.unwrap();
        assert!(request.to_lowercase().contains("title: here: tank"), "{request}");
        assert!(request.contains("it failed") && request.ends_with("Replace it."), "{request}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_hangs_or_fails_delays_nobody_and_is_shown() {
        let (folder, notifier) = notifier(&SOON);
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        notifier.add(Way::Webhook(format!("http://{}/", silent.local_addr().unwrap()))).unwrap();
        notifier.add(Way::Program("/bin/false".into())).unwrap();
        let told = folder.path().join("told");
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\ncat >> '{}'\n", told.display())).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        notifier.add(Way::Program(program)).unwrap();
        let start = std::time::Instant::now();
        for _ in 0..WAITING_MAX + 20 {
            notifier.tell(&message("it failed"));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        until("the program is told", || notifier.list()[2].delivered > 3).await;
        assert!(std::fs::read_to_string(&told).unwrap().contains("it failed"));
        until("the other one fails", || notifier.list()[1].lost > 21).await;
        assert!(notifier.list()[1].trouble.as_ref().is_some_and(|why| why.contains("exit status: 1")));
        let hanging = notifier.list().remove(0);
        assert!(hanging.lost >= 19 && hanging.waiting >= WAITING_MAX as u64, "{hanging:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn receivers_are_remembered_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_path_buf()).unwrap();
        let first = Notifier::new(&home).start();
        first.add(Way::Mail("root@localhost".into())).unwrap();
        first.add(Way::Program("/bin/true".into())).unwrap();
        first.remove(1).unwrap();
        assert!(first.remove(1).is_err());
        let next = Notifier::new(&home).start();
        assert_eq!(next.list().iter().map(|one| (one.id, one.way.name())).collect::<Vec<_>>(), [(2, "program")]);
        assert_eq!(next.add(Way::Program("/bin/false".into())).unwrap().id, 3, "no number is given twice");
        assert_eq!(next.test(Some(2), &message("a test")).await.unwrap(), Vec::<String>::new());
        let problems = next.test(None, &message("a test")).await.unwrap();
        assert!(problems.len() == 1 && problems[0].starts_with("3 (program /bin/false)"), "{problems:?}");
        std::fs::write(home.notify_file(), "{").unwrap();
        let damaged = Notifier::new(&home).start();
        assert!(damaged.add(Way::Program("/bin/true".into())).is_err());
        assert_eq!(std::fs::read_to_string(home.notify_file()).unwrap(), "{", "it is not overwritten");
    }
}
