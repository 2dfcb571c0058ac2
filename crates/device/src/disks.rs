//! The disks of this machine, as the kernel tells of them in `/sys/block`: what they are, how large their sectors are,
//! whether they have a write cache, how they are attached and how warm they are. Nothing is read from a disk.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::known_sectors;
use crate::sector::SECTOR;
use crate::sysfs::sysfs;

/// Where the kernel tells of them.
pub const SYSFS_BLOCK: &str = "/sys/block";
/// Block devices that are no disks.
const OTHERS: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "fd"];
/// More disks than this are not listed.
const DISKS_MAX: usize = 4096;

/// A disk. What the kernel does not tell is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// "sda".
    pub name: String,
    /// Who made it: "ATA" for most.
    pub vendor: Option<String>,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Bytes of the smallest transfer.
    pub logical_sector: u32,
    /// Bytes that it writes as one, as it says.
    pub physical_sector: u32,
    /// Bytes that it writes as one where it is known to say something else.
    pub known_sector: Option<u32>,
    /// Whether it turns.
    pub is_rotational: bool,
    /// Whether it can be pulled out (a stick, a card).
    pub is_removable: bool,
    /// Whether it takes blocks back that are not needed any more.
    pub takes_discards: bool,
    /// Whether it may keep what was written in memory until it is flushed.
    pub has_write_cache: Option<bool>,
    /// How it is attached: "sata", "nvme", "usb", …
    pub transport: Option<&'static str>,
    /// In degrees Celsius.
    pub temperature: Option<i64>,
    /// Names of its partitions.
    pub partitions: Vec<String>,
}

impl Disk {
    /// Where `/dev` has it.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Bytes that it writes as one.
    pub fn sector(&self) -> u32 {
        self.known_sector.unwrap_or(0).max(self.physical_sector).max(self.logical_sector)
    }
}

/// The disks that a folder like [`SYSFS_BLOCK`] tells of, by name; `sda` before `sdaa`.
pub fn list(folder: &Path) -> Vec<Disk> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let disks = names.filter(|name| !OTHERS.iter().any(|other| name.starts_with(other))).take(DISKS_MAX);
    let mut disks: Vec<Disk> = disks.map(|name| disk(&folder.join(&name), name)).filter(|disk| disk.size > 0).collect();
    disks.sort_by(|one, other| (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name)));
    disks
}

/// The disk that a path means, or whose partition it means; `None` when it means anything else.
pub fn of(path: &Path) -> Option<Disk> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let own = fs::canonicalize(sysfs(metadata.rdev())).ok()?;
    let about = if own.join("partition").exists() { own.parent()?.to_owned() } else { own };
    let name = about.file_name()?.to_str()?.to_owned();
    Some(disk(&about, name))
}

fn text(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn number<T: std::str::FromStr>(path: PathBuf) -> Option<T> {
    text(path)?.parse().ok()
}

fn disk(about: &Path, name: String) -> Disk {
    let (device, queue) = (about.join("device"), about.join("queue"));
    let vendor = text(device.join("vendor")).filter(|vendor| !vendor.starts_with("0x"));
    let model = text(device.join("model"));
    let known_sector = model.as_deref().and_then(|model| {
        let vendor = if name.starts_with("nvme") { "NVMe" } else { vendor.as_deref().unwrap_or("NA") };
        known_sectors::sector_of(vendor, model)
    });
    let logical_sector = number(queue.join("logical_block_size")).unwrap_or(SECTOR as u32);
    let mut partitions: Vec<String> = fs::read_dir(about)
        .into_iter()
        .flat_map(|entries| entries.flatten())
        .filter(|entry| entry.path().join("partition").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    partitions.sort_by_key(|name| (name.len(), name.clone()));
    Disk {
        serial: text(device.join("serial")).or_else(|| text(about.join("serial"))),
        size: number::<u64>(about.join("size")).unwrap_or(0).saturating_mul(SECTOR),
        logical_sector,
        physical_sector: number(queue.join("physical_block_size")).unwrap_or(logical_sector),
        known_sector,
        is_rotational: number::<u8>(queue.join("rotational")) == Some(1),
        is_removable: number::<u8>(about.join("removable")) == Some(1),
        takes_discards: number::<u64>(queue.join("discard_max_bytes")).is_some_and(|bytes| bytes > 0),
        has_write_cache: match text(queue.join("write_cache")).as_deref() {
            Some("write back") => Some(true),
            Some("write through") => Some(false),
            _ => None,
        },
        transport: transport(about, &name),
        temperature: temperature(&device),
        partitions,
        name,
        vendor,
        model,
    }
}

/// How a disk is attached, by the way to it.
fn transport(about: &Path, name: &str) -> Option<&'static str> {
    let way = fs::canonicalize(about).ok()?;
    let way: Vec<String> = way.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let has = |beginning: &str| way.iter().any(|part| part.starts_with(beginning));
    let is_numbered = |beginning: &str| {
        let rest =
            |part: &String| part.strip_prefix(beginning).map(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        way.iter().filter_map(rest).any(|is| is)
    };
    match () {
        () if name.starts_with("nvme") => Some("nvme"),
        () if is_numbered("usb") => Some("usb"),
        () if is_numbered("ata") => Some("sata"),
        () if has("end_device-") => Some("sas"),
        () if has("session") => Some("iscsi"),
        () if is_numbered("virtio") => Some("virtio"),
        () if name.starts_with("mmcblk") => Some("mmc"),
        () if has("vbd-") => Some("xen"),
        () if name.starts_with("nbd") => Some("nbd"),
        () if is_numbered("host") => Some("scsi"),
        () => None,
    }
}

/// What the first sensor of a device says, which its driver calls "composite" or does not call anything.
fn temperature(device: &Path) -> Option<i64> {
    let sensors = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flat_map(|entries| entries.flatten());
        entries.map(|entry| entry.path()).filter(|path| path.join("temp1_input").exists()).collect()
    };
    // SATA's driver (`drivetemp`) has a folder of its own, NVMe's does not.
    let found = [device.join("hwmon"), device.to_owned()].into_iter().flat_map(sensors).next()?;
    Some(number::<i64>(found.join("temp1_input"))?.div_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files with these texts below `folder`.
    fn make(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).and_then(|()| fs::write(path, text)).expect("a file");
        }
    }

    #[test]
    fn disks_are_told_as_the_kernel_tells_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let sata = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0";
        make(
            &folder.path().join(sata),
            &[
                ("vendor", "ATA     \n"),
                ("model", "WDC WD20EARS-00M\n"),
                ("hwmon/hwmon3/temp1_input", "38000\n"),
                ("block/sda/size", "3907029168\n"),
                ("block/sda/removable", "0\n"),
                ("block/sda/queue/logical_block_size", "512\n"),
                ("block/sda/queue/physical_block_size", "512\n"),
                ("block/sda/queue/rotational", "1\n"),
                ("block/sda/queue/write_cache", "write back\n"),
                ("block/sda/queue/discard_max_bytes", "0\n"),
                ("block/sda/sda1/partition", "1\n"),
                ("block/sda/sda10/partition", "10\n"),
                ("block/sda/sda2/partition", "2\n"),
            ],
        );
        make(
            &folder.path().join("devices/pci0000:00/0000:01:00.0/nvme/nvme0"),
            &[
                ("model", "Fast One\n"),
                ("serial", "S123\n"),
                ("hwmon0/temp1_input", "41850\n"),
                ("nvme0n1/size", "1000215216\n"),
                ("nvme0n1/queue/rotational", "0\n"),
                ("nvme0n1/queue/physical_block_size", "4096\n"),
                ("nvme0n1/queue/write_cache", "write through\n"),
                ("nvme0n1/queue/discard_max_bytes", "2199023255040\n"),
            ],
        );
        let block = folder.path().join("block");
        make(&block, &[("loop0/size", "100\n"), ("sdb/size", "0\n")]);
        let link = |to: &str, at: PathBuf| std::os::unix::fs::symlink(folder.path().join(to), at).expect("a link");
        link(&format!("{sata}/block/sda"), block.join("sda"));
        link(sata, folder.path().join(sata).join("block/sda/device"));
        let nvme = "devices/pci0000:00/0000:01:00.0/nvme/nvme0";
        link(&format!("{nvme}/nvme0n1"), block.join("nvme0n1"));
        link(nvme, folder.path().join(nvme).join("nvme0n1/device"));

        let found = list(&block);
        let [sda, nvme] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((&*sda.name, sda.size, sda.transport), ("sda", 2_000_398_934_016, Some("sata")));
        assert_eq!((sda.physical_sector, sda.known_sector, sda.sector()), (512, Some(4096), 4096), "it lies");
        assert_eq!((sda.has_write_cache, sda.temperature, sda.is_rotational), (Some(true), Some(38), true));
        assert_eq!(sda.partitions, ["sda1", "sda2", "sda10"]);
        assert!(!sda.takes_discards && sda.vendor.as_deref() == Some("ATA"));
        assert_eq!((nvme.transport, nvme.sector(), nvme.has_write_cache), (Some("nvme"), 4096, Some(false)));
        assert_eq!((nvme.temperature, nvme.serial.as_deref()), (Some(41), Some("S123")));
        assert!(nvme.takes_discards && !nvme.is_rotational && nvme.partitions.is_empty());
        assert_eq!(list(&folder.path().join("nowhere")), []);
    }
}
