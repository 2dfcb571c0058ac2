//! The public socket: what everybody on the machine may know of the pools, as every user may run `zpool list` in
//! OpenZFS.
//!
//! Invariants:
//! - it takes nothing but a [`Look`], which changes nothing, and tells what OpenZFS tells every user: neither histories
//!   nor events nor names of damaged files;
//! - the kernel says who asks (`SO_PEERCRED`); whoever it does not name is not answered;
//! - connections are bounded: all together, of each user, in time; requests are bounded in size. So
//!   nobody can keep the daemon or another user from being answered for longer than a connection lasts.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::post;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;
use tokio::net::UnixStream;
use tokio::net::unix::SocketAddr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

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
        .route(PATH, post(look))
        .fallback(async || refused())
        .method_not_allowed_fallback(async || refused())
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
        .with_state(context)
}

fn refused() -> Response {
    server::failure(ErrorBody::of_kind(ErrorKind::Denied, "permission denied"))
}

async fn look(State(context): State<Context>, body: Bytes) -> Response {
    let mut look = match Operation::parse(&body) {
        Ok(Operation::Look(look)) => look,
        Ok(_) => return refused(),
        Err(error) => return server::failure(error),
    };
    if let Look::GetPool(call) = &mut look {
        // The names of damaged files are not everybody's to know.
        call.errors = false;
    }
    server::to_its_end(context, look.into()).await
}

/// Connections of each user.
type Peers = Arc<Mutex<BTreeMap<u32, usize>>>;

/// Accepts within the limits.
pub struct Public {
    listener: UnixListener,
    slots: Arc<Semaphore>,
    peers: Peers,
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
        Ok(Self { listener, slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)), peers: Peers::default() })
    }

    /// The connection, when its user has not too many.
    fn admit(&self, stream: UnixStream, slot: OwnedSemaphorePermit) -> Option<Connection> {
        let user = match stream.peer_cred() {
            Ok(peer) => peer.uid(),
            Err(error) => {
                tracing::warn!(%error, "somebody unknown at the public socket is not answered");
                return None;
            }
        };
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
        Some(Connection { stream, end, user, peers: self.peers.clone(), _slot: slot })
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
    user: u32,
    peers: Peers,
    _slot: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        if let Some(count) = peers.get_mut(&self.user) {
            *count -= 1;
        }
        // Few users are remembered as having been here.
        if peers.len() >= KNOWN_MAX && peers.get(&self.user) == Some(&0) {
            peers.remove(&self.user);
        }
    }
}

impl Connection {
    fn is_over(&mut self, cx: &mut TaskContext<'_>) -> bool {
        self.end.as_mut().poll(cx).is_ready()
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
}
