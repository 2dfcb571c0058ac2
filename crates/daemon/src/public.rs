//! The public socket: what everybody on the machine may know of the pools, as every user may run `zpool list` in
//! OpenZFS, and what data sets allow to a user (`zfs allow`).
//!
//! Invariants:
//! - a [`Look`] changes nothing, and tells what OpenZFS tells every user: neither histories nor events nor names of
//!   damaged files. Whatever else is asked for is done when `secpolicy` says so, and in no other way;
//! - the kernel says who asks (`SO_PEERCRED`, `SO_PEERGROUPS`); whoever it does not name is not answered;
//! - connections are bounded: all together, of each user, in time; requests are bounded in size. So
//!   nobody can keep the daemon or another user from being answered for longer than a connection lasts;
//! - what is done for somebody who may do it takes as long as it takes, and no place of those who only look: there are
//!   few of these at one time ([`Guests`]), also of those whose commands have gone meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::post;
use axum::serve::IncomingStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::net::UnixStream;
use tokio::net::unix::SocketAddr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::asker::Asker;
use crate::guests::{Guests, Peer};
use crate::home::Home;
use crate::server::{self, Context};
use platter_api::ask::{Look, Operation, PATH};
use platter_api::messages::{ErrorBody, ErrorKind};

/// Connections at one time; more wait in the socket's queue.
const CONNECTIONS_MAX: usize = 64;
/// Connections of one user at one time; more are closed.
const OF_USER_MAX: usize = 16;
/// How long a connection lasts at most.
const LIFETIME: Duration = Duration::from_secs(60);
/// Users of which the log says that they came.
const KNOWN_MAX: usize = 1000;

/// Bytes of a request; names of pools and data sets are short.
const REQUEST_MAX: usize = 16 << 10;

/// The API for everybody.
pub fn router(context: Context) -> Router {
    Router::new()
        .route(PATH, post(ask))
        .fallback(async || refused())
        .method_not_allowed_fallback(async || refused())
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
        .with_state(context)
}

fn refused() -> Response {
    server::failure(ErrorBody::of_kind(ErrorKind::Denied, "permission denied"))
}

async fn ask(State(context): State<Context>, ConnectInfo(peer): ConnectInfo<Peer>, body: Bytes) -> Response {
    let mut operation = match Operation::parse(&body) {
        Ok(operation) => operation,
        Err(error) => return server::failure(error),
    };
    let asker = Asker::Guest(peer.guest.clone());
    if let Operation::Look(look) = &mut operation {
        if let Look::GetPool(call) = look {
            // The names of damaged files are not everybody's to know.
            call.errors = false;
        }
        return server::to_its_end(context, operation, asker, None).await;
    }
    let Operation::DiffSnapshots(call) = &operation else { return work_for(context, peer, operation, asker).await };
    let (daemon, uid, descriptor) = (context.daemon.clone(), peer.guest.uid, call.descriptor.clone());
    let answered = work_for(context, peer, operation, asker).await;
    // Where it was refused nobody has taken the pipe, and its other end waits for that to be closed.
    daemon.let_go(uid, &descriptor);
    answered
}

/// What is more than a look.
async fn work_for(context: Context, peer: Peer, operation: Operation, asker: Asker) -> Response {
    if let Err(refused) = context.daemon.permit_at_first(&peer.guest, &operation).await {
        return server::failure(refused);
    }
    match peer.begin_work() {
        Some(working) => server::to_its_end(context, operation, asker, Some(working)).await,
        None => {
            let text = "too many commands of yours, or of others, are under way";
            server::failure(ErrorBody::of_kind(ErrorKind::Busy, text).hint("try again in a moment"))
        }
    }
}

impl Connected<IncomingStream<'_, Public>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Public>) -> Self {
        stream.io().peer.clone()
    }
}

/// Connections of each user.
type Peers = Arc<Mutex<BTreeMap<u32, usize>>>;

/// Accepts within the limits.
pub struct Public {
    listener: UnixListener,
    slots: Arc<Semaphore>,
    peers: Peers,
    guests: Guests,
}

impl Public {
    /// Listens at a home's public socket.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(home: &Home) -> Result<Self, ErrorBody> {
        let socket = home.public_socket();
        let fail = |error: io::Error| ErrorBody::new(format!("cannot listen at '{}': {error}", socket.display()));
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&socket).map_err(fail)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Ok(Self { listener, slots, peers: Peers::default(), guests: Guests::default() })
    }

    /// The connection, when its user has not too many.
    fn admit(&self, stream: UnixStream, slot: OwnedSemaphorePermit) -> Option<Connection> {
        let guest = match Asker::of_peer(&stream) {
            Ok(guest) => guest,
            Err(error) => {
                tracing::warn!(%error, "somebody unknown at the public socket is not answered");
                return None;
            }
        };
        let user = guest.uid;
        let mut peers = self.peers.lock();
        if !peers.contains_key(&user) && peers.len() < KNOWN_MAX {
            tracing::info!(user, "a user looks at the pools");
        }
        let count = peers.entry(user).or_insert(0);
        if *count >= OF_USER_MAX {
            tracing::warn!(user, "too many connections to the public socket");
            return None;
        }
        *count += 1;
        debug_assert!(*count <= OF_USER_MAX);
        drop(peers);
        let end = Box::pin(tokio::time::sleep(LIFETIME));
        let peer = Peer::new(guest, self.guests.clone(), slot);
        Some(Connection { stream, end, peer, peers: self.peers.clone() })
    }
}

impl axum::serve::Listener for Public {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let slot = self.slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Some(connection) = self.admit(stream, slot) {
                        return (connection, address);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the public socket accepts nobody for a second");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that ends by itself.
pub struct Connection {
    stream: UnixStream,
    end: Pin<Box<Sleep>>,
    peer: Peer,
    peers: Peers,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        let user = self.peer.guest.uid;
        if let Some(count) = peers.get_mut(&user) {
            *count -= 1;
        }
        // Few users are remembered as having been here.
        if peers.len() >= KNOWN_MAX && peers.get(&user) == Some(&0) {
            peers.remove(&user);
        }
    }
}

impl Connection {
    fn is_over(&mut self, cx: &mut TaskContext<'_>) -> bool {
        while self.end.as_mut().poll(cx).is_ready() {
            if !self.peer.is_working() {
                return true;
            }
            self.end.as_mut().reset(Instant::now() + LIFETIME);
        }
        false
    }
}

fn over<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_over(cx) { over() } else { Pin::new(&mut self.stream).poll_read(cx, into) }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over(cx) { over() } else { Pin::new(&mut self.stream).poll_write(cx, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::serve::Listener;
    use tokio::io::AsyncReadExt;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_path_buf()).unwrap();
        (folder, home)
    }

    #[tokio::test]
    async fn a_user_has_so_many_connections_and_not_more() {
        let (_folder, home) = home();
        let mut public = Public::listen(&home).unwrap();
        let connect = async || UnixStream::connect(home.public_socket()).await.unwrap();
        let (mut clients, mut held) = (Vec::new(), Vec::new());
        for _ in 0..OF_USER_MAX {
            clients.push(connect().await);
            held.push(public.accept().await);
        }
        let mut one_more = connect().await;
        let accepted = tokio::time::timeout(Duration::from_millis(200), public.accept()).await;
        assert!(accepted.is_err(), "it is not served");
        assert_eq!(one_more.read(&mut [0]).await.unwrap(), 0, "it is closed");
        held.pop();
        clients.push(connect().await);
        let accepted = tokio::time::timeout(Duration::from_secs(60), public.accept()).await;
        assert!(accepted.is_ok(), "there is room again");
    }

    #[tokio::test]
    async fn a_connection_ends_by_itself() {
        let (_folder, home) = home();
        let mut public = Public::listen(&home).unwrap();
        let _client = UnixStream::connect(home.public_socket()).await.unwrap();
        let (mut connection, _) = public.accept().await;
        connection.end = Box::pin(tokio::time::sleep(Duration::from_millis(10)));
        let error = connection.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(connection);
        assert!(public.peers.lock().values().all(|count| *count == 0));
    }

    #[tokio::test]
    async fn a_connection_for_which_something_is_done_stays() {
        let (_folder, home) = home();
        let mut public = Public::listen(&home).unwrap();
        let _client = UnixStream::connect(home.public_socket()).await.unwrap();
        let (mut connection, _) = public.accept().await;
        let working = connection.peer.begin_work().unwrap();
        assert_eq!(public.slots.available_permits(), CONNECTIONS_MAX, "others may look meanwhile");
        connection.end = Box::pin(tokio::time::sleep(Duration::from_millis(10)));
        let read = tokio::time::timeout(Duration::from_millis(100), connection.read(&mut [0])).await;
        assert!(read.is_err(), "it waits for what is done");
        drop(working);
        connection.end = Box::pin(tokio::time::sleep(Duration::from_millis(10)));
        connection.read(&mut [0]).await.unwrap_err();
    }
}
