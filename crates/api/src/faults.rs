//! What is seen of a pool's devices that may fail, and what is told of it: `platter faults`.

use serde::{Deserialize, Serialize};

/// What a device does too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Transfers fail.
    Io,
    /// What is read is not what was written.
    Checksum,
    /// Transfers take too long.
    SlowIo,
}

impl Cause {
    /// All, the worst first.
    pub const ALL: [Self; 3] = [Self::Io, Self::Checksum, Self::SlowIo];

    /// As properties and events call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Checksum => "checksum",
            Self::SlowIo => "slow_io",
        }
    }

    /// The class of the event of its verdict (`cmd/zed/agents/zfs_diagnosis.c`).
    pub fn class(self) -> &'static str {
        match self {
            Self::Io => "fault.fs.zfs.vdev.io",
            Self::Checksum => "fault.fs.zfs.vdev.checksum",
            Self::SlowIo => "fault.fs.zfs.vdev.slow_io",
        }
    }

    /// What a device that does too much of it has earned (`cmd/zed/agents/zfs_retire.c`). OpenZFS uses a slow one on;
    /// but each group waits for its transfers, and so does whatever is to help.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Io | Self::SlowIo => Verdict::Faulted,
            Self::Checksum => Verdict::Degraded,
        }
    }

    /// What it is for a person: "12 I/O errors".
    pub fn plural(self) -> &'static str {
        match self {
            Self::Io => "I/O errors",
            Self::Checksum => "checksum errors",
            Self::SlowIo => "slow I/Os",
        }
    }
}

/// What is not done with a device any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// It is not used.
    Faulted,
    /// It is used, and not relied on.
    Degraded,
}

/// How far a device can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeviceState {
    /// Everything works.
    #[default]
    Online,
    /// It is used, and something is wrong.
    Degraded,
    /// It was given up.
    Faulted,
    /// It went away.
    Removed,
    /// It cannot be opened.
    #[serde(rename = "UNAVAIL")]
    Unavailable,
    /// Somebody took it offline.
    Offline,
}

impl DeviceState {
    /// The word in the STATE column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Degraded => "DEGRADED",
            Self::Faulted => "FAULTED",
            Self::Removed => "REMOVED",
            Self::Unavailable => "UNAVAIL",
            Self::Offline => "OFFLINE",
        }
    }

    /// Whether reads and writes go there.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Online | Self::Degraded)
    }
}

/// Limits of one device that its properties set; what is not set is the policy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `checksum_n` and `checksum_t`.
    pub checksum: (Option<u64>, Option<u64>),
    /// `io_n` and `io_t`.
    pub io: (Option<u64>, Option<u64>),
    /// `slow_io_n` and `slow_io_t`.
    pub slow_io: (Option<u64>, Option<u64>),
}

impl Limits {
    /// The number of events, and the seconds in which they are too many.
    pub fn of(&self, cause: Cause) -> (Option<u64>, Option<u64>) {
        match cause {
            Cause::Io => self.io,
            Cause::Checksum => self.checksum,
            Cause::SlowIo => self.slow_io,
        }
    }
}

/// What is seen of a device at one moment. Counts are since the last `zpool clear`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSigns {
    /// Guid.
    pub guid: u64,
    /// Its path, or its guid when it has none.
    pub name: String,
    /// How far it can be used.
    pub state: DeviceState,
    /// Whether it is just being opened or closed: then its state says nothing.
    pub is_in_transit: bool,
    /// Why it cannot be used further.
    pub reason: Option<String>,
    /// Reads and writes that failed.
    pub io_errors: u64,
    /// Wrong bytes that ordinary reads found.
    pub checksum_errors: u64,
    /// Wrong bytes that a scrub or resilver found.
    pub scan_errors: u64,
    /// Transfers that took too long.
    pub slow_ios: u64,
    /// Reads that have begun and not ended, and those that came to an end since it was opened.
    pub reads: (u64, u64),
    /// Writes and flushes, likewise.
    pub writes: (u64, u64),
    /// Its own limits.
    pub limits: Limits,
    /// Whether there is a verdict on it.
    pub is_judged: bool,
    /// Whether its owner wants nothing to be done with it.
    pub is_held: bool,
    /// Whether it can be used and misses nothing.
    pub has_everything: bool,
    /// The device that stands in for it or takes its place.
    pub helper: Option<String>,
    /// Whether that misses nothing.
    pub helper_has_everything: bool,
}

impl DeviceSigns {
    /// How many there were.
    pub fn count(&self, cause: Cause) -> u64 {
        match cause {
            Cause::Io => self.io_errors,
            Cause::Checksum => self.checksum_errors,
            Cause::SlowIo => self.slow_ios,
        }
    }

    /// All its errors together.
    pub fn count_all(&self) -> u64 {
        Cause::ALL.iter().fold(self.scan_errors, |sum, cause| sum.saturating_add(self.count(*cause)))
    }
}

/// What kind of line of a record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// What was seen.
    Seen,
    /// What was made of it.
    Verdict,
    /// What was done.
    Done,
}

/// A line of a device's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLine {
    /// Seconds since the epoch.
    pub time: u64,
    /// What kind of line it is.
    pub kind: LineKind,
    /// For a person.
    pub text: String,
}

/// All that is known of a device that has failed, or seemed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Guid, decimal.
    pub guid: String,
    /// Its path, or its guid when it has none.
    pub device: String,
    /// How far it can be used now; none when it is not part of the pool any more.
    pub state: Option<DeviceState>,
    /// Whether its owner holds it.
    pub held: bool,
    /// What happened, oldest first.
    pub lines: Vec<RecordLine>,
    /// What its owner should do now.
    pub action: String,
}

/// The devices of one pool that have failed, or seemed to, or are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFaults {
    /// Name.
    pub pool: String,
    /// By path.
    pub devices: Vec<DeviceRecord>,
}

/// Asks what is known of failing devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetFaults {
    /// Of this pool only.
    pub pool: Option<String>,
}

/// Has nothing be done with a device but what commands say, or lets it be treated as others are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldDevice {
    /// Path, last part of the path, or guid.
    pub device: String,
    /// Which pool's; may be left out where only one has such a device.
    pub pool: Option<String>,
    /// Whether it is held from now on.
    pub hold: bool,
}
