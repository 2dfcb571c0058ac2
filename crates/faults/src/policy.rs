//! The numbers of the policy. A test holds `docs/faults.md` to them.

use std::time::Duration;

use platter_api::faults::{Cause, Limits};

/// So many events within so long are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events.
    pub events: u64,
    /// Within so long.
    pub within: Duration,
}

/// Events that are too many where a property says nothing else (`DEFAULT_CHECKSUM_N`, `DEFAULT_IO_N`;
/// `cmd/zed/agents/zfs_diagnosis.c`).
pub const EVENTS: u64 = 10;
/// Within so long (`DEFAULT_CHECKSUM_T`, `DEFAULT_IO_T`).
pub const WITHIN: Duration = Duration::from_secs(600);
/// How often devices are looked at.
pub const LOOK: Duration = Duration::from_secs(1);
/// For so long a verdict is thought over: a device that goes away meanwhile was being pulled out, and others may fail
/// as well (OpenZFS waits for 15 seconds, `zfs_remove_timeout`; but a spare is to be in soon).
pub const SETTLE: Duration = Duration::from_secs(5);
/// Errors that come within so long may have one reason.
pub const TOGETHER: Duration = Duration::from_secs(10);
/// So many devices that fail together do not fail by themselves. So do all that a pool has, if they are two at least.
pub const MANY: usize = 3;
/// A device that has transfers under way and ends none for so long hangs. Disks that try a bad sector again and again,
/// or begin to turn, are done sooner; `zfs_deadman_ziotime_ms` is 300 seconds, but OpenZFS only tells of it then.
pub const SILENT: Duration = Duration::from_secs(60);
/// For so long the same burst is not told of again.
pub const QUIET: Duration = Duration::from_secs(600);

/// The limit of a device; none where such errors earn no verdict. Slow transfers do so only where properties say both
/// how many and how soon.
pub fn limit(limits: &Limits, cause: Cause) -> Option<Rate> {
    let rate = |events: u64, seconds: u64| Rate { events: events.max(1), within: Duration::from_secs(seconds) };
    match (limits.of(cause), cause) {
        ((Some(events), Some(seconds)), _) => Some(rate(events, seconds)),
        (_, Cause::SlowIo) => None,
        ((events, seconds), _) => Some(rate(events.unwrap_or(EVENTS), seconds.unwrap_or(WITHIN.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_openzfs_and_properties_go_first() {
        let default = Limits::default();
        let ten = Some(Rate { events: 10, within: Duration::from_secs(600) });
        assert_eq!((limit(&default, Cause::Io), limit(&default, Cause::Checksum)), (ten, ten));
        assert_eq!(limit(&default, Cause::SlowIo), None);
        let own = Limits { io: (Some(3), None), slow_io: (Some(2), Some(60)), ..default };
        assert_eq!(limit(&own, Cause::Io), Some(Rate { events: 3, within: WITHIN }));
        assert_eq!(limit(&own, Cause::SlowIo), Some(Rate { events: 2, within: Duration::from_secs(60) }));
    }

    /// What is written for people is what the program does.
    #[test]
    fn the_written_policy_has_these_numbers() {
        let page = include_str!("../../../docs/faults.md");
        let seconds = |time: Duration| time.as_secs();
        let rows = [
            ("checksum errors", format!("{EVENTS} in {} s", seconds(WITHIN))),
            ("I/O errors", format!("{EVENTS} in {} s", seconds(WITHIN))),
            ("slow I/Os", "off".to_owned()),
            ("look at the devices", format!("every {} s", seconds(LOOK))),
            ("a verdict is thought over for", format!("{} s", seconds(SETTLE))),
            ("errors count as together within", format!("{} s", seconds(TOGETHER))),
            ("devices that fail together are nobody's fault from", format!("{MANY}")),
            ("a device hangs that has not answered for", format!("{} s", seconds(SILENT))),
            ("the same burst is told again after", format!("{} s", seconds(QUIET))),
        ];
        for (what, number) in rows {
            let row = format!("| {what} | {number} |");
            assert!(page.contains(&row), "docs/faults.md does not say '{row}'");
        }
    }
}
