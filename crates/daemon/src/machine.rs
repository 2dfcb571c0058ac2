//! What the engine is told about this machine: time, randomness, identity and memory.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_dsl::FilesystemMaker;
use platter_hooks::WallClock;
use platter_spa::{Environment, HostId, HostIdentity, SystemDevices, TrimLimits};

use crate::memory_limit::MemoryLimit;
use crate::pool_locks::MachineLocks;

/// The system's time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> (u64, u32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_secs(), now.subsec_nanos())
    }
}

/// Seconds since the epoch.
pub fn now_seconds() -> u64 {
    SystemClock.now().0
}

/// This host's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Milliseconds between multihost writes: `PLATTER_MULTIHOST_INTERVAL`, at least 100, else 1000
/// (`zfs_multihost_interval`).
fn multihost_interval(variable: Option<&str>) -> u32 {
    variable.and_then(|text| text.parse().ok()).unwrap_or(1000u32).max(100)
}

/// This host's id as somebody chose it: `PLATTER_HOSTID` (hexadecimal) when it is set, else what is in `/etc/hostid`.
fn chosen_hostid() -> Option<u64> {
    let variable = std::env::var("PLATTER_HOSTID").ok();
    if let Some(id) = variable.and_then(|text| parse_hostid(&text)) {
        return Some(id);
    }
    let bytes = std::fs::read("/etc/hostid").ok()?;
    let id = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    (id != 0).then_some(u64::from(id))
}

/// This host.
struct ThisHost;

impl HostIdentity for ThisHost {
    fn hostid(&self) -> HostId {
        let chosen = chosen_hostid();
        HostId { id: chosen.unwrap_or_else(derived_hostid), is_derived: chosen.is_none() }
    }
}

/// This host's id where nobody chose one, in place of `gethostid`'s, which is derived from the host's address: it only
/// has to be stable and differ between hosts.
fn derived_hostid() -> u64 {
    u64::from(fnv1a(machine_name().as_bytes()))
}

/// A host's id as in `spl_hostid`: hexadecimal; 0 is none.
fn parse_hostid(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches("0x");
    u32::from_str_radix(text, 16).ok().filter(|id| *id != 0).map(u64::from)
}

/// `/etc/machine-id`, which survives a renaming of the host, else the host's name.
fn machine_name() -> String {
    match std::fs::read_to_string("/etc/machine-id") {
        Ok(id) if !id.trim().is_empty() => id.trim().to_owned(),
        _ => hostname(),
    }
}

/// FNV-1a, 32 bits; never 0, which means "no host" in a label.
fn fnv1a(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

fn random_seed() -> std::io::Result<[u8; 32]> {
    use std::io::Read;
    let mut seed = [0; 32];
    // The same source as getrandom(2) once the system is up, and it needs no library.
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}

/// A random number, for the hash salts of new directories: it only has to be hard to guess, so a system without
/// randomness is no reason to stop.
pub fn random_u64() -> u64 {
    let seed = random_seed().unwrap_or_default();
    u64::from_le_bytes([seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7]])
}

/// `PLATTER_WHOLE_DISKS`: kinds of block devices ("loop", "dm-"), divided by commas, that are to be partitioned as
/// whole disks beyond those that OpenZFS partitions.
fn whole_disk_kinds(variable: Option<&str>) -> Vec<String> {
    let kinds = variable.unwrap_or_default().split(',').map(str::trim);
    kinds.filter(|kind| !kind.is_empty()).map(str::to_owned).collect()
}

/// `PLATTER_TRIM_EXTENT_BYTES_MAX`, `PLATTER_TRIM_EXTENT_BYTES_MIN` and `PLATTER_TRIM_TXG_BATCH`: OpenZFS's module
/// parameters of these names, `zfs_trim_…`.
fn trim_limits(variable: impl Fn(&str) -> Option<String>) -> TrimLimits {
    let number = |name: &str, usual: u64| {
        let given = variable(&format!("PLATTER_TRIM_{name}")).and_then(|text| text.parse().ok());
        given.filter(|number: &u64| *number > 0).unwrap_or(usual)
    };
    let usual = TrimLimits::USUAL;
    TrimLimits {
        extent_bytes_max: number("EXTENT_BYTES_MAX", usual.extent_bytes_max),
        extent_bytes_min: number("EXTENT_BYTES_MIN", usual.extent_bytes_min),
        txg_batch: number("TXG_BATCH", usual.txg_batch as u64) as usize,
    }
}

/// How many transfers that somebody waits for end before one of a scrub or resilver goes, if somebody has said it:
/// `PLATTER_VDEV_MAKE_WAY` (it does what `zfs_vdev_nia_credit` and `zfs_vdev_nia_delay` do).
fn transfers_before_background(variable: Option<&str>) -> Option<u32> {
    variable.and_then(|text| text.trim().parse().ok())
}

/// The engine's surroundings on this machine.
///
/// # Errors
/// When the system has no randomness to give.
pub fn environment(maker: Arc<dyn FilesystemMaker>) -> std::io::Result<Environment> {
    let memory = MemoryLimit::of_this_process();
    // A group begins to be written at a fifth of it.
    platter_buffer::set_idle_max((memory.dirty_bytes_max() / 4) as usize);
    if let Some(transfers) = transfers_before_background(std::env::var("PLATTER_VDEV_MAKE_WAY").ok().as_deref()) {
        platter_spa::set_transfers_before_background(transfers);
    }
    platter_fuse::set_waiting_bytes(memory.waiting_bytes_max() as usize);
    platter_fuse::set_ring_bytes(memory.ring_bytes_max() as usize);
    Ok(Environment {
        clock: Arc::new(SystemClock),
        maker,
        random: platter_dsl::Randomness::seeded(random_seed()?),
        hostname: hostname(),
        host: Arc::new(ThisHost),
        cpu: platter_hooks::Cpu::FREE,
        cache_bytes: memory.cache_bytes(),
        dirty_bytes_max: memory.dirty_bytes_max(),
        metaslab_bytes: memory.metaslab_bytes(),
        devices: Arc::new(SystemDevices::new(whole_disk_kinds(std::env::var("PLATTER_WHOLE_DISKS").ok().as_deref()))),
        pool_locks: Arc::new(MachineLocks::default()),
        multihost_interval_ms: multihost_interval(std::env::var("PLATTER_MULTIHOST_INTERVAL").ok().as_deref()),
        events: Arc::default(),
        held: Arc::default(),
        memory: Arc::default(),
        frees_per_group: Environment::FREES_PER_GROUP,
        livelist_births: Environment::LIVELIST_BIRTHS,
        scan_slice: Environment::SCAN_SLICE,
        scan_round: Environment::SCAN_ROUND,
        livelist_shared: Environment::LIVELIST_SHARED,
        txg_timeout_seconds: 5,
        trim: trim_limits(|name| std::env::var(name).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_whole_disks_are_a_list() {
        assert!(whole_disk_kinds(None).is_empty() && whole_disk_kinds(Some("")).is_empty());
        assert_eq!(whole_disk_kinds(Some("loop, dm-,")), ["loop", "dm-"]);
    }

    #[test]
    fn limits_of_trims_are_openzfs_own_unless_told_otherwise() {
        assert_eq!(trim_limits(|_| None), TrimLimits::USUAL);
        let given = trim_limits(|name| (name == "PLATTER_TRIM_TXG_BATCH").then(|| "1".to_owned()));
        assert_eq!(given, TrimLimits { txg_batch: 1, ..TrimLimits::USUAL });
        assert_eq!(trim_limits(|_| Some("0".to_owned())), TrimLimits::USUAL);
    }

    #[test]
    fn what_scrubs_wait_for_is_a_number_or_nothing() {
        let said = ["0", " 9\n", "-1", "many", ""].map(|text| transfers_before_background(Some(text)));
        assert_eq!(said, [Some(0), Some(9), None, None, None]);
        assert_eq!(transfers_before_background(None), None);
    }

    #[test]
    fn host_ids_are_hexadecimal() {
        assert_eq!(parse_hostid("0x00bab10c\n"), Some(0xbab10c));
        assert_eq!((parse_hostid("0"), parse_hostid("host")), (None, None));
        assert_eq!((multihost_interval(None), multihost_interval(Some("5"))), (1000, 100));
    }
}
