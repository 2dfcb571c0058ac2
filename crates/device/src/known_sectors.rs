//! Disks that do not say how large their sectors are. Which ones these are is known by what they call themselves
//! (`vdev_disk_database` in `cmd/zpool/os/linux/zpool_vdev_os.c`).

/// How much of a model's name is compared: what SCSI's inquiry has room for.
const MODEL_LENGTH: usize = 16;

/// Vendor, beginning of the model's name, and the bytes of what is written as one, or of half an erase block.
const KNOWN: &[(&str, u32, &[&str])] = &[
    (
        "ATA",
        8192,
        &[
            "ADATA SSD S396 3",
            "APPLE SSD SM128E",
            "APPLE SSD SM256E",
            "APPLE SSD SM512E",
            "APPLE SSD SM768E",
            "C400-MTFDDAC064M",
            "C400-MTFDDAC128M",
            "C400-MTFDDAC256M",
            "C400-MTFDDAC512M",
            "Corsair Force 3",
            "Corsair Force GS",
            "INTEL SSDSA2BZ10",
            "INTEL SSDSA2BZ20",
            "INTEL SSDSA2BZ30",
            "INTEL SSDSA2CT04",
            "INTEL SSDSA2CW04",
            "INTEL SSDSA2CW08",
            "INTEL SSDSA2CW12",
            "INTEL SSDSA2CW16",
            "INTEL SSDSA2CW30",
            "INTEL SSDSA2CW60",
            "INTEL SSDSC2CT06",
            "INTEL SSDSC2CT12",
            "INTEL SSDSC2CT18",
            "INTEL SSDSC2CT24",
            "INTEL SSDSC2CW06",
            "INTEL SSDSC2CW12",
            "INTEL SSDSC2CW18",
            "INTEL SSDSC2CW24",
            "INTEL SSDSC2CW48",
            "KINGSTON SH100S3",
            "KINGSTON SH103S3",
            "M4-CT064M4SSD2",
            "M4-CT128M4SSD2",
            "M4-CT256M4SSD2",
            "M4-CT512M4SSD2",
            "OCZ-AGILITY2",
            "OCZ-AGILITY3",
            "OCZ-VERTEX2 3.5",
            "OCZ-VERTEX3",
            "OCZ-VERTEX3 LT",
            "OCZ-VERTEX3 MI",
            "OCZ-VERTEX4",
            "SAMSUNG MZ7WD120",
            "SAMSUNG MZ7WD240",
            "SAMSUNG MZ7WD480",
            "SAMSUNG MZ7WD960",
            "SAMSUNG SSD 830",
            "Samsung SSD 840",
            "SanDisk SSD U100",
            "TOSHIBA THNSNH06",
            "TOSHIBA THNSNH12",
            "TOSHIBA THNSNH25",
            "TOSHIBA THNSNH51",
        ],
    ),
    (
        "ATA",
        4096,
        &[
            "APPLE SSD TS064C",
            "APPLE SSD TS128C",
            "APPLE SSD TS256C",
            "APPLE SSD TS512C",
            "Hitachi HDS5C303",
            "INTEL SSDSA2M040",
            "INTEL SSDSA2M080",
            "INTEL SSDSA2M160",
            "INTEL SSDSC2BA10",
            "INTEL SSDSC2BA20",
            "INTEL SSDSC2BA40",
            "INTEL SSDSC2BA80",
            "INTEL SSDSC2BB08",
            "INTEL SSDSC2BB12",
            "INTEL SSDSC2BB16",
            "INTEL SSDSC2BB24",
            "INTEL SSDSC2BB30",
            "INTEL SSDSC2BB40",
            "INTEL SSDSC2BB48",
            "INTEL SSDSC2BB60",
            "INTEL SSDSC2BB80",
            "INTEL SSDSC2BP24",
            "INTEL SSDSC2BP48",
            "INTEL SSDSC2BW24",
            "INTEL SSDSC2BW48",
            "INTEL SSDSC2MH12",
            "INTEL SSDSC2MH25",
            "MARVELL SD88SA02",
            "OCZ CORE_SSD",
            "OCZ-VERTEX",
            "SAMSUNG HD204UI",
            "SAMSUNG MCCOE32G",
            "SAMSUNG MCCOE64G",
            "SAMSUNG SSD PM80",
            "ST2000DL004 HD20",
            "WDC WD10EARS-00M",
            "WDC WD10EARS-00S",
            "WDC WD10EARS-00Z",
            "WDC WD15EARS-00M",
            "WDC WD15EARS-00S",
            "WDC WD15EARS-00Z",
            "WDC WD1600BEVT-0",
            "WDC WD20EARS-00M",
            "WDC WD20EARS-00S",
            "WDC WD20EARS-00Z",
            "WDC WD2500BEVT-0",
            "WDC WD3200BEVT-0",
            "WDC WD5000BEVT-0",
        ],
    ),
    ("NA", 4096, &["SmrtStorSDLKAE9W"]),
    ("NVMe", 4096, &["Amazon EC2 NVMe"]),
];

/// The bytes that such a disk writes as one, whatever it says; `None` for a disk that is believed.
pub(crate) fn sector_of(vendor: &str, model: &str) -> Option<u32> {
    let begin = |text: &str| text.chars().take(MODEL_LENGTH).collect::<String>().trim_end().to_owned();
    let (vendor, model) = (vendor.trim(), begin(model.trim_start()));
    let is_it = |entry: &&(&str, u32, &[&str])| entry.0 == vendor && entry.2.contains(&&*model);
    KNOWN.iter().find(is_it).map(|entry| entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_the_beginning_of_its_name() {
        assert_eq!(sector_of("ATA     ", "WDC WD20EARS-00MVWB0"), Some(4096));
        assert_eq!(sector_of("ATA", "Samsung SSD 840 EVO 250GB"), Some(8192));
        assert_eq!(sector_of("ATA", "Samsung SSD 870 EVO 1TB"), None);
        assert_eq!(sector_of("SEAGATE", "WDC WD20EARS-00MVWB0"), None, "another vendor's");
        assert!(KNOWN.iter().all(|(_, size, models)| size.is_power_of_two() && !models.is_empty()));
    }
}
