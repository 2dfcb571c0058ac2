//! A disk that behaves as told: with a disk's times, and with its faults, all from one seed.
//!
//! | file | idea |
//! |---|---|
//! | `device` | the [`BlockDevice`](platter_device::BlockDevice) and what a test may do to it |
//! | `drive` | a command's way: queue, link, cache, medium, answer |
//! | `image` | the bytes, cheap to fork |
//! | `parameters`, `spinning`, `flash`, `link` | what takes how long |
//! | `fault` | what goes wrong |
//! | `power`, `supply` | what a power cut leaves, and when it comes |
//! | `route` | a host's way to its disks, which can be blocked |
//! | `history` | what happened |

mod device;
mod drive;
mod fault;
mod flash;
mod history;
mod image;
mod link;
mod parameters;
mod power;
mod route;
mod spinning;
mod supply;

pub use device::{SimDisk, Surroundings};
pub use drive::{DiskId, Traffic};
pub use fault::{Fault, FaultCounts, FaultKind, FaultPlan};
pub use flash::Flash;
pub use history::History;
pub use image::Image;
pub use link::{Link, LinkKind};
pub use parameters::{Mechanism, Parameters};
pub use route::Route;
pub use spinning::{Platters, Spinning};
pub use supply::PowerSupply;
