//! Block devices: files, disks and partitions through io_uring and O_DIRECT, memory, a window into another device, and
//! the fault injector.

mod announce;
pub mod backing;
mod block_device;
pub mod busy;
pub mod cutoff;
pub mod descriptors;
pub mod disk;
pub mod disks;
mod engine;
pub mod error;
pub mod fault;
pub mod file;
mod flights;
pub mod gpt;
mod held;
pub mod holder;
mod known_sectors;
mod lease;
mod locks;
mod looks;
pub mod memory;
mod open_file;
mod partition;
mod path_kind;
mod pool;
pub mod project;
mod ring;
mod sector;
pub mod signatures;
pub mod slot;
pub mod source;
mod sysfs;
mod transfer;
mod trim;
pub mod window;
mod zeros;

pub use block_device::{
    BlockDevice, Count, Geometry, Presence, TrafficCount, TrimKind, TrimSupport, check_range,
};
pub use cutoff::{Cutoff, Idleness, Renewal};
pub use disk::{Holding, label_whole_disk, open_path, open_vdev};
pub use engine::{EngineKind, LocalTransfers};
pub use error::{DeviceError, Operation, Result};
pub use fault::{Fault, FaultDevice, FaultKind};
pub use file::{FileDevice, OpenOptions};
pub use flights::allow_workers;
pub use holder::Holder;
pub use lease::Lease;
pub use looks::Seen;
pub use memory::MemDevice;
pub use path_kind::PathKind;
pub use slot::{Assembly, ReadSlot};
pub use source::{DeviceSource, SystemDevices};
pub use window::WindowDevice;
pub use zeros::without_zeros;
