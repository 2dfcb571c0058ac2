//! The daemon's life: lock, log, socket, pools, requests, and an orderly end on SIGTERM, SIGINT or `platter daemon
//! stop`.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use platter_dsl::FilesystemMaker;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::guests::Peer;
use crate::home::Home;
use crate::memory_limit::MemoryLimit;
use crate::mounter::Mounter;
use crate::public::{self, Public};
use crate::real_engine::RealEngine;
use crate::server::{Context, router};
use crate::state::Daemon;
use crate::{dead_mounts, freed_memory, log, machine, process, spared_memory};
use platter_api::messages::ErrorBody;

/// How long requests may take to finish after the daemon was told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// How long those are answered who found the socket just before it was removed.
const LAST_COMERS: Duration = Duration::from_millis(20);

/// What the daemon is made of; the command line hands it in.
pub struct Parts {
    /// Fills new file systems.
    pub maker: Arc<dyn FilesystemMaker>,
    /// Mounts them.
    pub mounter: Arc<dyn Mounter>,
}

/// Runs the daemon in this process until it is told to stop.
///
/// `detached` means that a command started it: it leaves that command's session, so that closing a terminal does not
/// end it.
///
/// # Errors
/// When it cannot begin: the home is locked by another daemon, the socket cannot be made.
pub fn run(home: Home, detached: bool, parts: Parts) -> Result<(), ErrorBody> {
    freed_memory::keep_less_of_it();
    if detached {
        // Fails only when this process already leads a session, which serves as well.
        let _ = rustix::process::setsid();
    }
    home.create()?;
    let Some(lock) = home.lock()? else {
        let pid = home.daemon_pid().unwrap_or(0);
        return Err(ErrorBody::new(format!("a daemon (pid {pid}) already runs in '{}'", home.path().display()))
            .hint("stop it with 'platter daemon stop', or set PLATTER_HOME to another folder"));
    };
    let file = detached.then(|| home.log_file());
    log::start(file.as_deref())?;
    process::prepare();
    let memory = MemoryLimit::of_this_process();
    if memory.bytes < MemoryLimit::LEAST.bytes {
        let [least, there] = [MemoryLimit::LEAST, memory].map(|limit| limit.bytes >> 20);
        return Err(ErrorBody::new(format!("the daemon needs {least} MiB of memory; it may have {there} MiB"))
            .hint("raise the limit of its control group (memory.max, 'MemoryMax=' of a service)"));
    }
    let threads = std::thread::available_parallelism().map_or(4, |count| count.get().max(4));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("platter")
        .enable_all()
        .build()
        .map_err(|error| ErrorBody::new(format!("cannot start threads: {error}")))?;
    let environment = machine::environment(parts.maker)
        .map_err(|error| ErrorBody::new(format!("cannot read randomness from the system: {error}")))?;
    spared_memory::watch(Arc::downgrade(&environment.memory), environment.memory_limits(), memory)
        .map_err(|error| ErrorBody::new(format!("cannot start threads: {error}")))?;
    let engine: Arc<dyn Engine> = Arc::new(RealEngine::new(environment));
    let result = runtime.block_on(serve(home, engine, parts.mounter));
    log::finish();
    // Threads blocked in the kernel must not hold up the end: everything is synced by now.
    runtime.shutdown_timeout(Duration::from_secs(2));
    drop(lock);
    result
}

fn listen(socket: &std::path::Path) -> Result<UnixListener, ErrorBody> {
    let fail = |error: std::io::Error| ErrorBody::new(format!("cannot listen at '{}': {error}", socket.display()));
    // We hold the lock: whoever made it is dead.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    // No moment in which others could connect.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(before);
    let listener = listener.map_err(fail)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    Ok(listener)
}

/// As [`listen`], where everybody may connect.
fn listen_to_all(socket: &std::path::Path) -> Result<UnixListener, ErrorBody> {
    let listener = listen(socket)?;
    let fail = |error: std::io::Error| ErrorBody::new(format!("cannot listen at '{}': {error}", socket.display()));
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
    Ok(listener)
}

/// Serves a home until told to stop, then closes everything.
///
/// # Errors
/// When the socket cannot be made.
pub async fn serve(home: Home, engine: Arc<dyn Engine>, mounter: Arc<dyn Mounter>) -> Result<(), ErrorBody> {
    let fail = |error: std::io::Error| ErrorBody::new(format!("cannot wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let cleaning = home.clone();
    let removed = tokio::task::spawn_blocking(move || dead_mounts::clean(&cleaning)).await.unwrap_or_default();
    for path in removed {
        tracing::info!("removed the dead mount {} of an earlier daemon", path.display());
    }
    home.forget_orderly_end(std::process::id());
    let listener = listen(&home.socket())?;
    let descriptors = listen(&home.descriptors_socket())?;
    let of_guests = listen_to_all(&home.guests_socket())?;
    let everybody = Public::listen(&home)?;
    tracing::info!("daemon {} listens at {}", env!("CARGO_PKG_VERSION"), home.socket().display());
    let daemon = Arc::new(Daemon::new(engine, mounter, home.clone()));
    let descriptors = tokio::spawn(daemon.descriptors().serve(descriptors, of_guests));
    daemon.watch_devices();
    daemon.watch_faults();
    daemon.watch_places();
    daemon.keep_schedules();
    daemon.serve_snapshot_folders();
    let (stop, mut stopped) = watch::channel(false);
    // Requests that come meanwhile wait in the socket's queue.
    daemon.open_remembered().await;
    let context = Context { daemon: daemon.clone(), stop: stop.clone() };
    let api_for_all = public::router(context.clone()).into_make_service_with_connect_info::<Peer>();
    let looking = axum::serve(everybody, api_for_all);
    let looking = tokio::spawn(looking.into_future());
    let mut told = stop.subscribe();
    let server = tokio::spawn(
        axum::serve(listener, router(context))
            .with_graceful_shutdown(async move {
                let _ = told.wait_for(|told| *told).await;
            })
            .into_future(),
    );
    tokio::select! {
        _ = terminate.recv() => tracing::info!("told to stop by SIGTERM"),
        _ = interrupt.recv() => tracing::info!("told to stop by SIGINT"),
        _ = stopped.wait_for(|told| *told) => tracing::info!("told to stop by a client"),
    }
    // Who asks meanwhile hears that it ends, and asks the next one.
    daemon.shut_down().await;
    let _ = std::fs::remove_file(home.socket());
    let _ = std::fs::remove_file(home.public_socket());
    let _ = std::fs::remove_file(home.descriptors_socket());
    let _ = std::fs::remove_file(home.guests_socket());
    tokio::time::sleep(LAST_COMERS).await;
    stop.send_replace(true);
    match tokio::time::timeout(GRACE, server).await {
        Ok(_) => home.note_orderly_end(std::process::id()),
        Err(_) => tracing::warn!("some requests did not end in time"),
    }
    looking.abort();
    descriptors.abort();
    tracing::info!("ended");
    log::finish();
    Ok(())
}
