//! The disks of this machine: what there is, in which pools it is, and what its sectors mean for a new pool.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platter_api::disks::{DiskReport, Labelled};
use platter_api::request::VdevRequest;
use platter_device::disks::{self, Disk, SYSFS_BLOCK};

use super::{Answer, Daemon};

/// Asks the kernel, which may wait for a disk.
async fn ask<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// The device itself, whatever link leads there.
fn real(path: PathBuf) -> PathBuf {
    std::fs::canonicalize(&path).unwrap_or(path)
}

impl Daemon {
    /// All disks, with the pools that they are labelled for.
    ///
    /// # Errors
    /// None at present: of what does not answer less is told.
    pub async fn disks(&self) -> Answer<Vec<DiskReport>> {
        let disks = ask(|| disks::list(Path::new(SYSFS_BLOCK))).await.unwrap_or_default();
        let open: Vec<PathBuf> = self.pools.read().values().flat_map(|entry| entry.pool.device_paths()).collect();
        let open: BTreeSet<PathBuf> = ask(move || open.into_iter().map(real).collect()).await.unwrap_or_default();
        let mut reports = Vec::with_capacity(disks.len());
        for disk in disks {
            let parts = disk.partitions.iter().map(|name| Path::new("/dev").join(name));
            let mut pools: Vec<Labelled> = Vec::new();
            for path in parts.chain([disk.path()]) {
                let Some(pool) = self.engine.pool_at(&path).await else { continue };
                if pools.iter().any(|known| known.pool == pool) {
                    // The disk's label is its partition's.
                    continue;
                }
                let shown = path.display().to_string();
                let is_open = ask(move || real(path)).await.is_some_and(|real| open.contains(&real));
                pools.push(Labelled { path: shown, pool, open: is_open });
            }
            reports.push(report(disk, pools));
        }
        Ok(reports)
    }

    /// What may be wrong with the sectors that new vdevs are to use, with the ashift that was `asked` for; 0 is
    /// none.
    pub(super) async fn warn_of_sectors(&self, vdevs: &[VdevRequest], asked: Option<u32>) -> Vec<String> {
        let asked = asked.filter(|&ashift| ashift > 0);
        let paths: Vec<PathBuf> = vdevs.iter().flat_map(VdevRequest::leaves).cloned().collect();
        let warn = move || {
            let disks = paths.iter().filter_map(|path| Some((path, disks::of(path)?)));
            disks.filter_map(|(path, disk)| warning(path, &disk, asked)).collect()
        };
        ask(warn).await.unwrap_or_default()
    }
}

/// That a disk writes more at once than the pool will give it.
fn warning(path: &Path, disk: &Disk, asked: Option<u32>) -> Option<String> {
    let sector = disk.sector();
    let used = match asked {
        Some(ashift) => 1_u32.checked_shl(ashift).unwrap_or(u32::MAX),
        None => disk.physical_sector.max(disk.logical_sector),
    };
    (sector > used).then(|| {
        let (path, ashift) = (path.display(), sector.ilog2());
        let lies = if disk.known_sector == Some(sector) { ", whatever it says," } else { "" };
        format!(
            "warning: {path} writes {sector} bytes at once{lies} and is given {used}: small writes will be slow, for \
             ever; use '-o ashift={ashift}'"
        )
    })
}

fn report(disk: Disk, pools: Vec<Labelled>) -> DiskReport {
    DiskReport {
        path: disk.path().display().to_string(),
        vendor: disk.vendor,
        model: disk.model,
        serial: disk.serial,
        size: disk.size,
        logical_sector: disk.logical_sector,
        physical_sector: disk.physical_sector,
        known_sector: disk.known_sector,
        rotational: disk.is_rotational,
        removable: disk.is_removable,
        discards: disk.takes_discards,
        write_cache: disk.has_write_cache,
        transport: disk.transport.map(str::to_owned),
        temperature: disk.temperature,
        pools,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_given_less_than_it_writes_is_warned_of() {
        let disk = |physical_sector, known_sector| Disk {
            logical_sector: 512,
            physical_sector,
            known_sector,
            ..Disk::default()
        };
        let warned = |disk: &Disk, asked| warning(Path::new("/dev/sda"), disk, asked);
        assert_eq!(warned(&disk(4096, None), None), None, "the pool takes what the disk says");
        assert_eq!(warned(&disk(4096, None), Some(12)), None);
        assert_eq!(warned(&disk(512, None), Some(9)), None);
        let slow = warned(&disk(4096, None), Some(9)).expect("a warning");
        assert!(slow.contains("writes 4096 bytes at once and is given 512") && slow.contains("-o ashift=12"), "{slow}");
        let lies = warned(&disk(512, Some(8192)), None).expect("a warning");
        assert!(lies.contains("whatever it says") && lies.contains("-o ashift=13"), "{lies}");
        assert_eq!(warned(&disk(512, Some(8192)), Some(13)), None);
    }
}
