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

/// Has `program` mount at `mountpoint` with the options of `mount -o`, and returns the device.
///
/// # Errors
/// What starting it said; `PermissionDenied` when the machine does not let users show their mounts to others; else, as
/// an error of kind `Other`, what it printed.
pub fn mount_with_helper(program: &str, mountpoint: &Path, options: &[String]) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
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
        .spawn()?;
    let device = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(stderr) = helper.stderr.take() {
        // Bounded: the helper says a line.
        let _ = stderr.take(64 << 10).read_to_string(&mut said);
    }
    let status = helper.wait()?;
    match device {
        Ok(Some(device)) if status.success() => Ok(device),
        Err(error) if status.success() => Err(error),
        _ if said.contains("user_allow_other") => Err(io::Error::new(io::ErrorKind::PermissionDenied, said.trim())),
        _ if said.trim().is_empty() => Err(io::Error::other(format!("{program}: {status}"))),
        _ => Err(io::Error::other(said.trim().to_owned())),
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
