//! Where a simulator takes hold of the engine: the time of day, computation that takes time, waiting that is woken in
//! turn, and bugs that it must find.
//!
//! In a build that is for use, work is charged to nobody, and each deliberate bug is absent at compile time.
#![forbid(unsafe_code)]

pub mod canary;
pub mod cpu;
pub mod wall_clock;
pub mod watch;

pub use canary::Canary;
pub use cpu::{Cpu, CpuMeter, CpuWork};
pub use wall_clock::WallClock;
pub use watch::{Follower, Watch};
