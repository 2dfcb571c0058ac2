//! What a mount asks of the kernel and of the threads that serve it.

use crate::types::InitFlags;

/// What is agreed on with the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that serve requests of all mounts, at least 1: as many as the mount that asks for most says; over
    /// io_uring it is two for each processor.
    pub threads: usize,
    /// Capabilities wanted; what the kernel lacks is done without.
    pub wanted: InitFlags,
    /// Bytes that a read or write may have, a multiple of 4096.
    pub request_max: u32,
    /// Bytes that the kernel may read ahead.
    pub readahead_max: u32,
    /// Requests that nobody waits for in flight.
    pub background_max: u16,
}
