//! Pools and data sets: everything that is stored in the pool's own object set (MOS), and the loop that turns changes
//! into transaction groups on disk.
#![forbid(unsafe_code)]

pub mod environment;
pub mod error;
pub mod pool;
pub mod report;
pub mod request;

pub use environment::{Environment, FilesystemMaker, WallClock};
pub use error::{PoolError, Result};
pub use pool::Pool;
