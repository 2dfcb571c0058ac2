//! Transfers on a few threads with pread and pwrite: the way that works everywhere.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::engine::{Op, Work};

/// Enough to keep a few disks busy; each thread waits for one transfer.
const THREADS: usize = 8;

#[derive(Default)]
struct Queue {
    ops: Mutex<VecDeque<Op>>,
    filled: Condvar,
}

/// A fixed set of threads that live as long as the process.
pub(crate) struct Pool {
    queue: Arc<Queue>,
}

impl Pool {
    pub fn start() -> Self {
        let queue = Arc::new(Queue::default());
        for index in 0..THREADS {
            let queue = queue.clone();
            std::thread::Builder::new()
                .name(format!("disk-io-{index}"))
                .spawn(move || work(&queue))
                .expect("starting a disk I/O thread");
        }
        Self { queue }
    }

    pub fn submit(&self, op: Op) {
        self.queue.ops.lock().push_back(op);
        self.queue.filled.notify_one();
    }
}

fn work(queue: &Queue) -> ! {
    loop {
        let op = {
            let mut ops = queue.ops.lock();
            loop {
                match ops.pop_front() {
                    Some(op) => break op,
                    None => queue.filled.wait(&mut ops),
                }
            }
        };
        let Op { file, offset, mut work, reply } = op;
        let result = carry_out(&file, offset, &mut work);
        // Nobody waits any more when the future was dropped.
        let _ = reply.send((work, result));
    }
}

fn carry_out(file: &std::fs::File, offset: u64, work: &mut Work) -> io::Result<()> {
    let mut position = offset;
    match work {
        Work::Read(slots) => {
            for slot in slots {
                let mut rest: &mut [u8] = slot;
                while !rest.is_empty() {
                    match rustix::io::pread(file, &mut *rest, position) {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(count) => {
                            position += count as u64;
                            rest = &mut rest[count..];
                        }
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Work::Write(data) => {
            for buf in data {
                let mut rest: &[u8] = buf;
                while !rest.is_empty() {
                    match rustix::io::pwrite(file, rest, position) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(count) => {
                            position += count as u64;
                            rest = &rest[count..];
                        }
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Work::Flush => file.sync_data()?,
    }
    Ok(())
}
