//! The two ends of a stream as descriptors: a thread writes or reads, so that a pipe that is full or empty holds up
//! nobody, and a few buffers lie between it and the engine.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dsl::stream_ends::{StreamSink, StreamSource};
use platter_dsl::{PoolError, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::descriptors::Handed;

/// Buffers between the thread and the engine.
const BUFFERS: usize = 4;
/// Bytes of one, and of a pipe where the kernel lets us.
const BUFFER: usize = 1 << 20;
/// How often a thread that waits for input looks whether it is still wanted.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn failed(error: &std::io::Error) -> PoolError {
    let text = error.to_string();
    // As strerror(3) says it.
    PoolError::Invalid(text.split(" (os error").next().unwrap_or_default().to_owned())
}

/// Waits until the other end is gone.
pub async fn hung_up(line: &UnixStream) {
    loop {
        if line.readable().await.is_err() {
            return;
        }
        match line.try_read(&mut [0; 16]) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn widen(file: &File) {
    // Only pipes can be, and not beyond what their user may have.
    let _ = rustix::pipe::fcntl_setpipe_size(file, BUFFER);
}

/// Takes a stream and writes it.
pub struct Outlet {
    chunks: Option<mpsc::Sender<Vec<u8>>>,
    written: tokio::task::JoinHandle<std::io::Result<()>>,
    bytes: Arc<AtomicU64>,
    given_up: Arc<AtomicBool>,
}

impl Outlet {
    /// Into `file`. What is a guest's is as wide as he made it, and nobody waits in it.
    pub fn new(mut file: File, is_guests: bool) -> Self {
        if !is_guests {
            widen(&file);
        }
        let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(BUFFERS);
        let bytes = Arc::new(AtomicU64::new(0));
        let (count, given_up) = (bytes.clone(), Arc::new(AtomicBool::new(false)));
        let stop = given_up.clone();
        let written = tokio::task::spawn_blocking(move || {
            while let Some(chunk) = chunks.blocking_recv() {
                match is_guests {
                    true => write_some_at_a_time(&mut file, &chunk, &stop)?,
                    false => file.write_all(&chunk)?,
                }
                count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { chunks: Some(sender), written, bytes, given_up }
    }

    /// Bytes that were written, as they grow.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.bytes.clone()
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// It could not be.
    pub async fn finish(&mut self) -> Result<()> {
        self.chunks = None;
        match (&mut self.written).await {
            Ok(written) => written.map_err(|error| failed(&error)),
            Err(error) => Err(PoolError::Invalid(error.to_string())),
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Writes to what never waits, until it is done or nobody wants it any more.
fn write_some_at_a_time(file: &mut File, mut bytes: &[u8], stop: &AtomicBool) -> std::io::Result<()> {
    while !bytes.is_empty() {
        if stop.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        match poll(&mut [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)], Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match file.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl StreamSink for Outlet {
    fn put(&mut self, bytes: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        async move {
            let Some(chunks) = &self.chunks else { return Err(PoolError::invalid("the stream is closed")) };
            match chunks.send(bytes).await {
                Ok(()) => Ok(()),
                Err(_) => {
                    self.finish().await?;
                    Err(PoolError::invalid("the stream is closed"))
                }
            }
        }
        .boxed()
    }
}

/// Gives a stream that it reads.
pub struct Inlet {
    chunks: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    current: Vec<u8>,
    at: usize,
    line: UnixStream,
    ended: tokio::sync::watch::Receiver<bool>,
    given_up: Arc<AtomicBool>,
}

impl Inlet {
    /// From what was handed over, as long as the other end of its line is there and `ended` is not said.
    pub fn new(handed: Handed, ended: tokio::sync::watch::Receiver<bool>) -> Self {
        let Handed { mut file, line, is_guests, .. } = handed;
        if !is_guests {
            widen(&file);
        }
        let (sender, chunks) = mpsc::channel(BUFFERS);
        let given_up = Arc::new(AtomicBool::new(false));
        let stop = given_up.clone();
        tokio::task::spawn_blocking(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(read) = read_some(&mut file) {
                    let is_last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
                    if sender.blocking_send(read).is_err() || is_last {
                        return;
                    }
                }
            }
        });
        Self { chunks, current: Vec::new(), at: 0, line, ended, given_up }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// What there is to read, without waiting long for it; nothing at the end.
fn read_some(file: &mut File) -> Option<std::io::Result<Vec<u8>>> {
    let ready = poll(&mut [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)], Some(&LOOK));
    match ready {
        Ok(0) | Err(rustix::io::Errno::INTR) => return None,
        Ok(_) => {}
        Err(error) => return Some(Err(error.into())),
    }
    let mut bytes = vec![0; BUFFER];
    match file.read(&mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Some(Ok(bytes))
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock) => None,
        Err(error) => Some(Err(error)),
    }
}

impl StreamSource for Inlet {
    fn fill<'a>(&'a mut self, out: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        async move {
            let mut filled = 0;
            while filled < out.len() {
                if self.at == self.current.len() {
                    let next = tokio::select! {
                        biased;
                        next = self.chunks.recv() => next,
                        () = hung_up(&self.line) => return Err(PoolError::invalid("interrupted")),
                        _ = self.ended.wait_for(|ended| *ended) => return Err(PoolError::invalid("interrupted")),
                    };
                    match next {
                        Some(Ok(bytes)) if !bytes.is_empty() => (self.current, self.at) = (bytes, 0),
                        Some(Err(error)) => return Err(failed(&error)),
                        _ => return Ok(filled),
                    }
                }
                let length = (out.len() - filled).min(self.current.len() - self.at);
                out[filled..filled + length].copy_from_slice(&self.current[self.at..self.at + length]);
                (filled, self.at) = (filled + length, self.at + length);
            }
            Ok(filled)
        }
        .boxed()
    }
}
