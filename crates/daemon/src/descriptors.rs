//! Descriptors that commands hand over, so that the bytes of a stream go between the daemon and whoever is at the other
//! end of the command's pipe, and not through the command.
//!
//! A command connects to the socket for descriptors, in the daemon's folder and the owner's alone as the API's is, or
//! to the one for other users, and
//! sends a name and one descriptor; one byte comes back when it is here. Then it asks for what is to be done with it,
//! by that name. The connection stays: when it ends, whoever asked is gone; and on it goes back how many bytes have
//! passed.
//!
//! Of guests (other users than the owner) these are pipes without a name and nothing else: a file would be read and
//! written with the daemon's rights and at its expense, and may be served by whoever handed it over. The daemon opens
//! such a pipe anew, so that nobody else has a say in how it is read and written, and never waits in it. What a guest
//! hands over is his, few wait, and not for long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Bytes of a name: hexadecimal digits.
pub const NAME_LENGTH: usize = 32;
/// What comes back when a descriptor is here.
const HERE: u8 = b'+';
/// What comes back when there is no place for one more.
const FULL: u8 = b'-';
/// Descriptors that wait to be asked for; more are refused.
const WAITING_MAX: usize = 64;
/// As [`WAITING_MAX`], of one guest, with those that are being handed over.
const OF_GUEST_MAX: usize = 4;
/// As [`WAITING_MAX`], of all guests.
const OF_GUESTS_MAX: usize = 32;
/// How long a guest may take to hand one over, and to ask for it.
const GUESTS_TIME: Duration = Duration::from_secs(10);

/// A name that nobody guesses.
///
/// # Errors
/// The system gives no randomness.
pub fn new_name() -> std::io::Result<String> {
    let mut bytes = [0; NAME_LENGTH / 2];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A descriptor that was handed over.
pub struct Handed {
    /// It.
    pub file: File,
    /// Ends when whoever handed it over does.
    pub line: UnixStream,
    /// Whether it is read and written without waiting.
    pub is_guests: bool,
    /// A guest's place, until all is done.
    _place: Option<Place>,
}

/// Whose it is: the owner's when nobody is named.
type Whose = Option<u32>;

/// Descriptors that nobody has asked for yet, by whose they are and their name.
#[derive(Clone, Default)]
pub struct Descriptors {
    waiting: Arc<Mutex<BTreeMap<(Whose, String), Handed>>>,
    /// Connections of guests whose descriptor is on its way or waits.
    guests: Arc<Mutex<BTreeMap<u32, usize>>>,
}

/// A guest's place among those that have one.
#[derive(Debug)]
struct Place {
    guests: Arc<Mutex<BTreeMap<u32, usize>>>,
    user: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.guests.lock();
        if let Some(count) = guests.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.user);
            }
        }
    }
}

impl Descriptors {
    /// Takes one that is whose; none when it is not here.
    pub fn take(&self, whose: Option<u32>, name: &str) -> Option<Handed> {
        self.waiting.lock().remove(&(whose, name.to_owned()))
    }

    /// Takes in what is handed over, by the owner and by others, until it is dropped.
    pub async fn serve(self, listener: UnixListener, of_guests: UnixListener) {
        tokio::join!(self.clone().serve_owner(listener), self.serve_guests(of_guests));
    }

    /// A place for a guest's descriptor; none when he, or all of them, have too many.
    fn place(&self, user: u32) -> Option<Place> {
        let mut guests = self.guests.lock();
        let all: usize = guests.values().sum();
        let own = guests.get(&user).copied().unwrap_or(0);
        if own >= OF_GUEST_MAX || all >= OF_GUESTS_MAX {
            return None;
        }
        *guests.entry(user).or_insert(0) += 1;
        Some(Place { guests: self.guests.clone(), user })
    }

    async fn serve_guests(self, listener: UnixListener) {
        loop {
            let line = match listener.accept().await {
                Ok((line, _)) => line,
                Err(error) => {
                    tracing::warn!("the socket for guests' descriptors: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let place = line.peer_cred().ok().and_then(|peer| self.place(peer.uid()));
            let Some(place) = place else {
                // Whoever is gone already need not hear it.
                let _ = rustix::net::send(&line, &[FULL], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                continue;
            };
            let all = self.clone();
            tokio::spawn(async move {
                let user = place.user;
                match tokio::time::timeout(GUESTS_TIME, all.take_in(line, Some(place))).await {
                    Ok(Ok(name)) => {
                        // Whoever asks has it by then.
                        tokio::time::sleep(GUESTS_TIME).await;
                        drop(all.take(Some(user), &name));
                    }
                    Ok(Err(error)) => tracing::debug!(user, "a descriptor was not handed over: {error}"),
                    Err(_) => tracing::debug!(user, "a descriptor was not handed over in time"),
                }
            });
        }
    }

    async fn serve_owner(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((line, _)) => {
                    let all = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = all.take_in(line, None).await {
                            tracing::warn!("a descriptor was not handed over: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("the socket for descriptors: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Takes one in; its name.
    async fn take_in(&self, line: UnixStream, place: Option<Place>) -> std::io::Result<String> {
        let whose = place.as_ref().map(|place| place.user);
        let (name, fd) = line.async_io(Interest::READABLE, || receive(line.as_fd())).await?;
        let file = if whose.is_some() { anonymous_pipe(&fd)? } else { File::from(fd) };
        let mut all = self.waiting.lock();
        all.retain(|_, handed| !is_closed(&handed.line));
        let key = (whose, name.clone());
        if all.keys().filter(|(other, _)| other.is_some() == whose.is_some()).count() >= WAITING_MAX
            || all.contains_key(&key)
        {
            return Err(std::io::Error::other("too many wait"));
        }
        // Who hears of it asks for it at once. One byte always fits.
        rustix::net::send(&line, &[HERE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        all.insert(key, Handed { file, line, is_guests: whose.is_some(), _place: place });
        Ok(name)
    }
}

/// A pipe that was handed over, opened anew for as much as it is open there. Nothing of it is looked up anywhere: it
/// has no name.
fn anonymous_pipe(fd: &OwnedFd) -> std::io::Result<File> {
    let odd = || std::io::Error::other("it is no pipe");
    let (own, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (known, found) = (rustix::fs::fstat(&own)?, rustix::fs::fstat(fd)?);
    let is_fifo = rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo;
    if !is_fifo || found.st_dev != known.st_dev {
        return Err(odd());
    }
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let access = flags & (OFlags::WRONLY | OFlags::RDWR);
    if access == OFlags::RDWR || flags.contains(OFlags::PATH) {
        return Err(odd());
    }
    let place = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(File::from(rustix::fs::open(place, access | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty())?))
}

/// Whether the other end is gone.
fn is_closed(line: &UnixStream) -> bool {
    matches!(line.try_read(&mut [0; 1]), Ok(0))
}

/// A name and a descriptor from the socket.
fn receive(socket: std::os::fd::BorrowedFd<'_>) -> std::io::Result<(String, OwnedFd)> {
    let mut name = [0; NAME_LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut name)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            found = fds.into_iter().next().or(found);
        }
    }
    let odd = || std::io::Error::other("it is no name with a descriptor");
    let name = String::from_utf8(name.to_vec()).map_err(|_| odd())?;
    match found {
        Some(fd) if message.bytes == NAME_LENGTH && name.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            Ok((name, fd))
        }
        _ => Err(odd()),
    }
}

/// Hands `descriptor` over under `name`; the connection is to be kept until all is done.
///
/// # Errors
/// Nobody takes it.
pub async fn hand_over(
    socket: &Path,
    name: &str,
    descriptor: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<UnixStream> {
    assert_eq!(name.len(), NAME_LENGTH, "names have one length");
    let line = UnixStream::connect(socket).await?;
    line.async_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [descriptor];
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(std::io::Error::other("no room for a descriptor"));
        }
        let parts = [IoSlice::new(name.as_bytes())];
        match rustix::net::sendmsg(line.as_fd(), &parts, &mut control, SendFlags::NOSIGNAL) {
            // Why it hung up it has said.
            Err(rustix::io::Errno::PIPE) => Ok(0),
            sent => Ok(sent?),
        }
    })
    .await?;
    let mut answer = [0; 1];
    loop {
        line.readable().await?;
        match line.try_read(&mut answer) {
            Ok(1) if answer[0] == HERE => return Ok(line),
            Ok(1) if answer[0] == FULL => {
                let reason =
                    format!("no user has more than {OF_GUEST_MAX} streams at once, all together {OF_GUESTS_MAX}");
                return Err(std::io::Error::other(reason));
            }
            Ok(_) => return Err(std::io::Error::other("the daemon does not take it")),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[tokio::test]
    async fn guests_hand_over_pipes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
        let (all, name) = (Descriptors::default(), new_name().unwrap());
        let listeners = (UnixListener::bind(&own).unwrap(), UnixListener::bind(&other).unwrap());
        let serving = tokio::spawn(all.clone().serve(listeners.0, listeners.1));
        let me = rustix::process::geteuid().as_raw();

        let file = File::open("/dev/null").unwrap();
        assert!(hand_over(&other, &name, file.as_fd()).await.is_err(), "it is no pipe");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let fifo = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
        assert!(hand_over(&other, &name, fifo.as_fd()).await.is_err(), "it has a name");

        let (_read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let line = hand_over(&other, &name, write.as_fd()).await.unwrap();
        assert!(all.take(None, &name).is_none() && all.take(Some(me + 1), &name).is_none(), "it is his");
        let handed = all.take(Some(me), &name).unwrap();
        assert!(handed.is_guests);
        assert!(rustix::fs::fcntl_getfl(&handed.file).unwrap().contains(OFlags::NONBLOCK));
        assert!(!rustix::fs::fcntl_getfl(&write).unwrap().contains(OFlags::NONBLOCK), "his own is as it was");
        drop((handed, line));

        let _line = hand_over(&own, &name, file.as_fd()).await.unwrap();
        assert!(all.take(Some(me), &name).is_none() && all.take(None, &name).is_some());
        serving.abort();
    }

    #[tokio::test]
    async fn a_guest_hands_over_few_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
        let all = Descriptors::default();
        let listeners = (UnixListener::bind(&own).unwrap(), UnixListener::bind(&other).unwrap());
        let serving = tokio::spawn(all.clone().serve(listeners.0, listeners.1));
        let (_read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut lines = Vec::new();
        for _ in 0..OF_GUEST_MAX {
            lines.push(hand_over(&other, &new_name().unwrap(), write.as_fd()).await.unwrap());
        }
        let refused = hand_over(&other, &new_name().unwrap(), write.as_fd()).await.unwrap_err();
        assert!(refused.to_string().contains("more than 4 streams"), "{refused}");
        assert_eq!(all.waiting.lock().len(), OF_GUEST_MAX);
        serving.abort();
    }
}
