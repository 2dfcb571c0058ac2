//! Where intent logs are written.

/// Property `logbias` (`zfs_logbias_op_t`, `include/sys/fs/zfs.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogBias {
    /// On separate log devices, if there are any: they answer sooner.
    #[default]
    Latency,
    /// Where other blocks go: separate log devices are left to others.
    Throughput,
}

impl LogBias {
    /// From the number stored for the property.
    pub fn from_number(number: u64) -> Self {
        if number == 1 { Self::Throughput } else { Self::Latency }
    }
}
