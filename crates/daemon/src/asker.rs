//! Who asks the daemon for something.

use std::os::fd::AsFd;

use platter_api::delegation::Creator;
use platter_device::peer;
use platter_dsl::permissions;
use tokio::net::UnixStream;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The daemon's owner, or the daemon itself.
    Owner,
    /// Somebody else, who may do what data sets allow to him.
    Guest(permissions::Asker),
}

impl Asker {
    /// Who connected to the public socket, as the kernel knows him.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn of_peer(stream: &UnixStream) -> std::io::Result<permissions::Asker> {
        let peer = stream.peer_cred()?;
        let groups = peer::groups(stream.as_fd())?;
        Ok(permissions::Asker { uid: peer.uid(), gid: peer.gid(), groups })
    }

    /// Whose is what he makes.
    pub fn creator(&self) -> Creator {
        match self {
            Self::Owner => {
                Creator { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
            }
            Self::Guest(guest) => Creator { uid: guest.uid, gid: guest.gid },
        }
    }

    /// Whether something may be mounted or unmounted for him: that takes root, as in OpenZFS on Linux.
    pub fn may_mount(&self) -> bool {
        *self == Self::Owner
    }
}
