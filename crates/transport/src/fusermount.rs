//! Mounting as an ordinary user: `fusermount3`, which is set-uid, opens the device, mounts it and hands it back over a
//! socket.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// Where the helper looks for the number of its socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Why the helper mounted nothing.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It could not be started: it is not there, may not be executed, or there are too many processes or files.
    #[error("{0}")]
    Start(io::Error),
    /// The machine does not let users show their mounts to others (`user_allow_other` in fuse.conf(5)).
    #[error("{0}")]
    NotShared(String),
    /// It refused; what it printed.
    #[error("{0}")]
    Refused(String),
    /// The device did not arrive.
    #[error("{0}")]
    Device(io::Error),
}

/// Has `program` mount at `mountpoint` with the options of `mount -o`, and returns the device.
///
/// # Errors
/// See [`HelperError`].
pub fn mount_with_helper(program: &str, mountpoint: &Path, options: &[String]) -> Result<OwnedFd, HelperError> {
    let (ours, theirs) = UnixStream::pair().map_err(HelperError::Start)?;
    let mut helper = Command::new(program)
        .arg("-o")
        .arg(options.join(","))
        .arg("--")
        .arg(mountpoint)
        // Its standard input is the socket: no other program that is started meanwhile inherits it.
        .env(SOCKET_VARIABLE, "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(HelperError::Start)?;
    let device = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(stderr) = helper.stderr.take() {
        // Bounded: the helper says a line.
        let _ = stderr.take(64 << 10).read_to_string(&mut said);
    }
    let status = helper.wait().map_err(HelperError::Device)?;
    match device {
        Ok(Some(device)) if status.success() => Ok(device),
        Err(error) if status.success() => Err(HelperError::Device(error)),
        _ if said.contains("user_allow_other") => Err(HelperError::NotShared(said.trim().to_owned())),
        _ if said.trim().is_empty() => Err(HelperError::Refused(format!("{program}: {status}"))),
        _ => Err(HelperError::Refused(said.trim().to_owned())),
    }
}

/// The descriptor that comes with the next message; `None` when the other side closed without one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(rights.next().and_then(|mut descriptors| descriptors.next()))
}
