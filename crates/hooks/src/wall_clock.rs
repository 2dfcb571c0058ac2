//! The time of day.

/// The time of day, for timestamps that end on disk.
pub trait WallClock: Send + Sync + std::fmt::Debug + 'static {
    /// Seconds and nanoseconds since the epoch.
    fn now(&self) -> (u64, u32);
}
