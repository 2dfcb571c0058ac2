//! Where a simulator takes hold of the engine: computation that takes time, and bugs that it must find.
//!
//! Both are nothing in a build that is for use: work is charged to nobody, and each deliberate bug is absent at compile
//! time.
#![forbid(unsafe_code)]

pub mod canary;
pub mod cpu;

pub use canary::Canary;
pub use cpu::{Cpu, CpuMeter, CpuWork};
