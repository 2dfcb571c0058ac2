//! The other end of the API: finds the daemon of a home, starts one when there is none, and asks it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use platter_api::ask::{Ask, OTHER_VERSION, Operation, PATH};
use platter_api::messages::{CheckPlaces, ErrorBody, ErrorKind};
use tokio::net::UnixStream;

use crate::denied;
use crate::guest_pipe::{self, Way};
use crate::home::Home;
use crate::{descriptors, lingering, process, same_places, vigil};

/// How long a daemon that ends is waited for: its pools are closed within seconds, each.
const END_LIMIT: Duration = Duration::from_secs(60);
/// How long a new daemon may take until it answers. Opening large pools happens after that.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How soon the next one is asked where the end of the one before cannot be seen.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How many daemons are asked when each of them ends.
const OTHERS_MAX: u32 = 8;
/// How often it is started where the one that was in its way ends.
const STARTS_MAX: u32 = 3;
/// How long a daemon's answer may be on its way after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How soon one connects again that could not, so many wait.
const CONNECT_AGAIN: Duration = Duration::from_secs(12);

/// A client of one home's daemon.
#[derive(Clone, Debug)]
pub struct Client {
    home: Home,
    /// Whether it was said that the daemon's mounts are not seen here.
    said: Arc<AtomicBool>,
    /// The daemon that was asked last; 0 when its number is not known here.
    asked: Arc<AtomicU32>,
    /// Whether one has answered.
    answered: Arc<AtomicBool>,
}

impl Client {
    /// A client that does not start anything.
    pub fn new(home: Home) -> Self {
        Self { home, said: Arc::default(), asked: Arc::default(), answered: Arc::default() }
    }

    /// The home it talks to.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether a daemon answers.
    pub async fn is_running(&self) -> bool {
        match UnixStream::connect(self.socket()).await {
            Ok(_) => true,
            // So many wait for it that no more may.
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    /// The socket for this user: another user's daemon answers at the one for everybody.
    fn socket(&self) -> PathBuf {
        if self.home.other_owner().is_some() { self.home.public_socket() } else { self.home.socket() }
    }

    /// Asks the daemon; of one that is just ending the one after it.
    ///
    /// # Errors
    /// What the daemon answers, or that it cannot be reached.
    pub async fn ask<A: Ask>(&self, call: A) -> Result<A::Answer, ErrorBody> {
        let bytes = self.exchange_with_any(&call.operation()).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ErrorBody::new(format!("the daemon's answer makes no sense: {error}")).hint(OTHER_VERSION))
    }

    /// Asks for what the daemon does with a descriptor: it is handed over first, under a name that nobody guesses.
    /// `passed` hears now and then how many bytes have.
    ///
    /// # Errors
    /// What the daemon answers, or that it cannot be reached.
    pub async fn stream<A: Ask>(
        &self,
        (descriptor, way): (std::os::fd::BorrowedFd<'_>, Way),
        call: impl FnOnce(String) -> A,
        passed: impl FnMut(u64),
    ) -> Result<A::Answer, ErrorBody> {
        let name = descriptors::new_name().map_err(|error| self.lost(error))?;
        let call = call(name.clone());
        if self.home.other_owner().is_none() {
            return self.stream_over(&self.home.descriptors_socket(), &name, descriptor, call, passed).await;
        }
        let passing = guest_pipe::Passed::new(descriptor, way).map_err(|error| self.lost(error))?;
        let socket = self.home.guests_socket();
        let answer = self.stream_over(&socket, &name, passing.handed(), call, passed).await;
        let finished = passing.finish();
        let answer = answer?;
        finished.map_err(|error| ErrorBody::new(format!("cannot write the stream: {error}")))?;
        Ok(answer)
    }

    /// Hands `descriptor` over at `socket` and asks.
    async fn stream_over<A: Ask>(
        &self,
        socket: &Path,
        name: &str,
        descriptor: std::os::fd::BorrowedFd<'_>,
        call: A,
        mut passed: impl FnMut(u64),
    ) -> Result<A::Answer, ErrorBody> {
        let handed = descriptors::hand_over(socket, name, descriptor).await;
        let line = handed.map_err(|error| {
            ErrorBody::new(format!("cannot hand the stream to the daemon at '{}': {error}", socket.display()))
        })?;
        let mut asking = std::pin::pin!(self.ask(call));
        let mut number = [0; 8];
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                ready = line.readable() => {
                    if ready.is_err() {
                        return asking.await;
                    }
                    match line.try_read(&mut number) {
                        Ok(8) => passed(u64::from_le_bytes(number)),
                        Ok(0) => return asking.await,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Refuses paths by which the daemon means other files than this process.
    ///
    /// # Errors
    /// As [`same_places::check`], which the daemon does; that it cannot be reached.
    pub async fn check_places(&self, paths: &[PathBuf]) -> Result<(), ErrorBody> {
        // What another user's daemon is asked for of this kind it refuses.
        if self.home.other_owner().is_some() {
            return Ok(());
        }
        let places = paths.iter().map(|path| same_places::seen_here(path)).collect();
        self.ask(CheckPlaces { places }).await.map(|_| ())
    }

    /// A daemon that ended in order has answered all that it did: whom it did not answer it did not hear.
    async fn is_unheard(&self) -> bool {
        let pid = self.asked.load(Ordering::Relaxed);
        // It hangs up before it notes that.
        pid != 0 && self.wait_until_stopped(pid, LAST_WORDS).await && self.home.ended_in_order(pid)
    }

    fn lost(&self, reason: impl std::fmt::Display) -> ErrorBody {
        let text = format!("lost the daemon: {reason}\nwhat was asked for may or may not have happened");
        let log = self.home.log_file();
        ErrorBody::of_kind(ErrorKind::Lost, text).hint(format!("its log is '{}'", log.display()))
    }

    async fn connect(&self) -> Result<UnixStream, ErrorBody> {
        loop {
            match UnixStream::connect(self.socket()).await {
                // Others wait in front of us.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let Some(pid) = self.home.daemon_pid() else { return Err(self.lost("it ended")) };
                    let remark = vigil::remark_on_silence(self.socket(), pid);
                    let _ = tokio::time::timeout(CONNECT_AGAIN, remark).await;
                }
                outcome => {
                    return outcome.map_err(|error| {
                        // One that was there a moment ago has ended, and did not hear of it.
                        let is_gone = [std::io::ErrorKind::NotFound, std::io::ErrorKind::ConnectionRefused];
                        let is_gone = is_gone.contains(&error.kind());
                        let kind = if is_gone { ErrorKind::DaemonEnds } else { ErrorKind::Failed };
                        let socket = self.socket();
                        let text = format!("cannot reach the daemon at '{}': {error}", socket.display());
                        ErrorBody::of_kind(kind, text).hint(match self.home.other_owner() {
                            Some(owner) => format!("it is user {owner}'s to start"),
                            None => "start it with 'platter daemon start'".to_owned(),
                        })
                    });
                }
            }
        }
    }

    /// Says once that what the daemon mounts is not seen here: it was started in a mount namespace of its own, or this
    /// is one.
    fn remark_on_namespace(&self, pid: u32) {
        if !process::sees_mounts_of(pid) && !self.said.swap(true, Ordering::Relaxed) {
            eprintln!(
                "platter: the daemon (pid {pid}) lives in another mount namespace: its mounts are not seen here, and \
                 are not what is at their places here"
            );
        }
    }

    /// What a daemon answers: this one, or when it is just ending the one after it.
    async fn exchange_with_any(&self, operation: &Operation) -> Result<Bytes, ErrorBody> {
        let is_ours = self.home.other_owner().is_none();
        if let Some(owner) = self.home.other_owner()
            && let Some(refused) = denied::before_asking(operation, owner)
        {
            return Err(refused);
        }
        let body = Bytes::from(operation.to_json()?);
        // What is about one daemon is not for the next.
        let mut may_ask_next = is_ours && !operation.is_about_daemon() && !operation.needs_descriptor();
        // Who watches does not start anew what somebody stopped: its pools would be open again under that hand.
        may_ask_next &= !(operation.only_looks() && self.answered.load(Ordering::Relaxed));
        let mut others = 0;
        loop {
            let refused = match self.exchange_with_this(body.clone()).await {
                Err(refused) if matches!(refused.kind, ErrorKind::DaemonEnds | ErrorKind::Lost) => refused,
                answer => {
                    self.answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
                    return answer;
                }
            };
            let ends = refused.kind == ErrorKind::DaemonEnds || self.is_unheard().await;
            let pid = self.asked.load(Ordering::Relaxed);
            others += 1;
            let asks_next = may_ask_next && others <= OTHERS_MAX && ends;
            // Of one that was not reached, or that has no number here, nothing can be awaited.
            if asks_next && pid == 0 {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            if !asks_next || pid != 0 && !self.wait_until_stopped(pid, END_LIMIT).await {
                return Err(refused);
            }
            if let Some(pid) = self.ensure_running().await? {
                eprintln!("platter: started the daemon (pid {pid})");
            }
        }
    }

    /// Asks, with an eye on the daemon: one that ends meanwhile is not waited for, whoever holds its socket.
    async fn exchange_with_this(&self, body: Bytes) -> Result<Bytes, ErrorBody> {
        self.asked.store(0, Ordering::Relaxed);
        let stream = self.connect().await?;
        let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
        let mut exchange = std::pin::pin!(self.exchange(stream, body));
        // Of another process name space its number is not known here.
        self.asked.store(peer.unwrap_or(0), Ordering::Relaxed);
        let Some(pid) = peer.filter(|pid| *pid > 0) else { return exchange.await };
        if let Some(refused) = lingering::describe(&self.home, pid) {
            return Err(refused);
        }
        self.remark_on_namespace(pid);
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            () = vigil::ended(pid) => {}
            () = vigil::remark_on_silence(self.socket(), pid) => {}
        }
        // Its last words may be on their way.
        let last = tokio::time::timeout(LAST_WORDS, exchange).await;
        last.unwrap_or_else(|_| {
            Err(match lingering::describe(&self.home, pid) {
                Some(killed) => self.lost(killed.message).hint(killed.hint.unwrap_or_default()),
                None => self.lost(format_args!("it (pid {pid}) ended")),
            })
        })
    }

    async fn exchange(&self, stream: UnixStream, body: Bytes) -> Result<Bytes, ErrorBody> {
        let lost = |reason: String| self.lost(reason);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| lost(error.to_string()))?;
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header("host", "platter")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| lost(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| lost(error.to_string()))?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| lost(error.to_string()))?.to_bytes();
        driver.abort();
        if status == StatusCode::OK {
            return Ok(bytes);
        }
        let refused: ErrorBody = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            ErrorBody::new(format!("the daemon refuses: {status}: {}", String::from_utf8_lossy(&bytes)))
        });
        // Of another version there is another path.
        Err(if status == StatusCode::NOT_FOUND { refused.hint(OTHER_VERSION) } else { refused })
    }

    /// Makes sure that a daemon answers; starts one when none does. Tells the pid of a daemon that this call started.
    ///
    /// # Errors
    /// When it cannot be started; the message quotes the end of its log.
    pub async fn ensure_running(&self) -> Result<Option<u32>, ErrorBody> {
        // Another user's daemon is not ours to start: asking it says whether it is there.
        if self.home.other_owner().is_some() {
            return Ok(None);
        }
        let home = self.home.clone();
        let _ = tokio::task::spawn_blocking(move || crate::dead_mounts::release_dying(&home)).await;
        if self.is_running().await {
            return Ok(None);
        }
        self.home.create()?;
        let mut child = spawn(&self.home)?;
        let (mut pid, mut starts) = (child.id(), 1);
        let start = Instant::now();
        let mut pause = Duration::from_millis(2);
        let mut ended: Option<Instant> = None;
        loop {
            if self.is_running().await {
                // Two commands may have started one each: the lock lets only one live, and that one is announced by the
                // command that started it.
                let winner = self.home.daemon_pid();
                return Ok(winner.filter(|winner| *winner == pid));
            }
            if ended.is_none() && matches!(child.try_wait(), Ok(Some(_))) {
                ended = Some(Instant::now());
            }
            // Ours lost against one that has ended meanwhile.
            if ended.is_some() && starts < STARTS_MAX && self.home.daemon_pid().is_none() && !self.is_running().await {
                child = spawn(&self.home)?;
                (pid, ended, starts) = (child.id(), None, starts + 1);
            }
            // Ours ended: either it failed, or it lost against another that is still on its way.
            let hopeless =
                ended.is_some_and(|at| at.elapsed() > Duration::from_secs(1) && self.home.daemon_pid().is_none());
            if hopeless || start.elapsed() > START_LIMIT {
                let reason = self.home.check_room().err().unwrap_or_else(|| log_tail(&self.home));
                return Err(ErrorBody::new(format!("cannot start the daemon:\n{reason}"))
                    .hint("'platter daemon start --foreground' shows more"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Waits until that process does not hold the home's lock any more. The next daemon may be there by then.
    pub async fn wait_until_stopped(&self, pid: u32, limit: Duration) -> bool {
        let start = Instant::now();
        while self.home.daemon_pid().is_some_and(|holder| holder == pid) {
            if start.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }
}

/// Starts this very program as the daemon, away from this terminal and with nothing of ours open but its log.
fn spawn(home: &Home) -> Result<std::process::Child, ErrorBody> {
    let fail = |error: std::io::Error| ErrorBody::new(format!("cannot start the daemon: {error}"));
    let program: PathBuf = std::env::current_exe().map_err(fail)?;
    if let Err(error) = platter_device::descriptors::close_on_exec_from(3) {
        tracing::debug!("what this process has open stays open in the daemon: {error}");
    }
    let log =
        crate::home::open(&home.log_file(), std::fs::OpenOptions::new().create(true).append(true)).map_err(fail)?;
    Command::new(program)
        // A copy that is named `zpool` would understand them as zpool does.
        .arg0("platter")
        .args(["daemon", "start", "--foreground", "--detached"])
        .env("PLATTER_HOME", home.path())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(fail)?)
        .stderr(log)
        .spawn()
        .map_err(fail)
}

fn log_tail(home: &Home) -> String {
    let text = crate::home::read(&home.log_file())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
