//! Machines as they are simulated and planned with: a virtual clock, what computation costs, disks with their links,
//! caches, power and faults.
//!
//! Nothing here knows what is stored: the simulator runs the engine on these machines.
#![forbid(unsafe_code)]

pub mod clock;
pub mod cpu;
pub mod disk;
pub mod published;
