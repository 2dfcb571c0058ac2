//! Block devices: files, disks and partitions through io_uring and O_DIRECT, memory, a window into another device, and
//! the fault injector.

mod announce;
pub mod backing;
mod block_device;
pub mod busy;
pub mod cutoff;
pub mod descriptors;
pub mod disk;
mod engine;
pub mod error;
pub mod fault;
pub mod file;
mod flights;
pub mod gpt;
mod held;
pub mod lease;
mod local;
mod locks;
pub mod memory;
mod partition;
mod pool;
pub mod project;
mod ring;
pub mod signatures;
pub mod slot;
pub mod source;
mod sysfs;
mod transfer;
pub mod window;
mod zeros;

pub use block_device::{BlockDevice, Geometry, Presence, check_range};
pub use cutoff::{Cutoff, Idleness, Renewal};
pub use disk::{label_whole_disk, open_path, open_vdev};
pub use engine::EngineKind;
pub use error::{DeviceError, Operation, Result};
pub use fault::{Fault, FaultDevice, FaultKind};
pub use file::{FileDevice, OpenOptions};
pub use flights::allow_workers;
pub use lease::Lease;
pub use local::LocalTransfers;
pub use memory::MemDevice;
pub use slot::{Assembly, ReadSlot};
pub use source::{DeviceSource, PathKind, SystemDevices};
pub use window::WindowDevice;
pub use zeros::without_zeros;
