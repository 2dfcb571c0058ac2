//! Full pools: see `platter_sim::full` for what holds.

use std::collections::BTreeMap;

use platter_sim::full::{Shape, fill, fill_this};

fn shape(vdevs: &[(u8, usize)], disk_mib: u64, ashift: u32, properties: &[(&str, &str)]) -> Shape {
    let properties: BTreeMap<_, _> =
        properties.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Shape { vdevs: vdevs.to_vec(), disk_mib, ashift, properties }
}

/// A pool of 128 MiB with sectors of 8 KiB and records of 512 bytes was written until it was full: each record took
/// sixteen times its size, its pointers and the MOS some more, and the sync ran out of space: the pool was stopped,
/// where OpenZFS says ENOSPC to the writer. So were one with three copies, and a raidz2 of six disks.
#[test]
fn a_record_that_takes_a_whole_sector_is_promised_one() {
    let small = [("recordsize", "512"), ("compression", "off")];
    let copies = [("recordsize", "512"), ("compression", "off"), ("copies", "3")];
    for shape in
        [shape(&[(0, 1)], 128, 13, &small), shape(&[(0, 1)], 128, 12, &copies), shape(&[(2, 6)], 64, 13, &small)]
    {
        fill_this(&shape, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Every seed is another layout, sector size, record size, number of copies.
#[test]
fn whatever_the_layout_a_full_pool_refuses_and_goes_on() {
    for seed in 0..4 {
        let filled = fill(seed, 1).unwrap_or_else(|error| panic!("{error}"));
        println!("seed {seed}: {}, {} files, {} refusals", filled.shape, filled.files, filled.refusals);
    }
}

/// What `zfs list` calls available can be written, but for a few percent.
#[test]
fn nearly_all_that_is_available_can_be_filled() {
    for ashift in [9, 12] {
        let shape = shape(&[(0, 1)], 128, ashift, &[("recordsize", "128K"), ("compression", "off")]);
        let filled = fill_this(&shape, 3, 1).unwrap_or_else(|error| panic!("{error}"));
        let (left, empty) = filled.left;
        assert!(left * 100 <= empty * 4, "{shape}: refused with {left} of {empty} bytes available");
    }
}
