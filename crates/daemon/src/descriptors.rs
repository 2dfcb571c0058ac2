//! Descriptors that commands hand over, so that the bytes of a stream go between the daemon and whoever is at the other
//! end of the command's pipe, and not through the command.
//!
//! A command connects to the socket for descriptors, in the daemon's folder and the owner's alone as the API's is, and
//! sends a name and one descriptor; one byte comes back when it is here. Then it asks for what is to be done with it,
//! by that name. The connection stays: when it ends, whoever asked is gone; and on it goes back how many bytes have
//! passed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Bytes of a name: hexadecimal digits.
pub const NAME_LENGTH: usize = 32;
/// What comes back when a descriptor is here.
const HERE: u8 = b'+';
/// Descriptors that wait to be asked for; more are refused.
const WAITING_MAX: usize = 64;

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
}

/// Descriptors that nobody has asked for yet.
#[derive(Clone, Default)]
pub struct Descriptors(Arc<Mutex<BTreeMap<String, Handed>>>);

impl Descriptors {
    /// Takes one; none when it is not here.
    pub fn take(&self, name: &str) -> Option<Handed> {
        self.0.lock().remove(name)
    }

    /// Takes in what is handed over, until it is dropped.
    pub async fn serve(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((line, _)) => {
                    let all = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = all.take_in(line).await {
                            tracing::warn!("a descriptor was not handed over: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("the socket for descriptors: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn take_in(&self, line: UnixStream) -> std::io::Result<()> {
        let (name, fd) = line.async_io(Interest::READABLE, || receive(line.as_fd())).await?;
        {
            let mut all = self.0.lock();
            all.retain(|_, handed| !is_closed(&handed.line));
            if all.len() >= WAITING_MAX {
                return Err(std::io::Error::other("too many wait"));
            }
        }
        // Who hears of it asks for it at once. One byte always fits.
        let mut all = self.0.lock();
        rustix::net::send(&line, &[HERE], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        all.insert(name, Handed { file: File::from(fd), line });
        Ok(())
    }
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
        Ok(rustix::net::sendmsg(line.as_fd(), &parts, &mut control, SendFlags::NOSIGNAL)?)
    })
    .await?;
    let mut answer = [0; 1];
    loop {
        line.readable().await?;
        match line.try_read(&mut answer) {
            Ok(1) if answer[0] == HERE => return Ok(line),
            Ok(_) => return Err(std::io::Error::other("the daemon does not take it")),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
