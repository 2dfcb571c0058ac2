//! Changes that know where the structure is.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_device::BlockDevice;
use platter_ondisk::blkptr::{BLKPTR_SIZE, BlkPtr};
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::embedded::{label_verifier, seal};
use platter_ondisk::label::{VDEV_LABELS, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, label_offset, usable_size};
use platter_ondisk::types::object_type;
use platter_ondisk::uberblock::Uberblock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::blocks::pointers;
use super::device::ImageDevice;
use super::template::{SIZE, Template, open};
use crate::clock;
use crate::disk::Image;

/// A changed copy of a template's disks, and what was changed, for a person.
pub fn tamper(template: &Template, random: &mut ChaCha20Rng) -> (Vec<Image>, String) {
    let mut what = Vec::new();
    let mut changed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let mut uberblock = template.uberblock.clone();
    let mut label = None;
    for _ in 0..1 + random.next_u32() % 2 {
        match random.next_u32() % 20 {
            0 => {
                let (field, value) = (random.next_u32() % 9, interesting(random));
                match field {
                    0 => uberblock.version = value,
                    1 => uberblock.guid_sum = value,
                    2 => uberblock.timestamp = value,
                    3 => uberblock.mmp_delay = value,
                    4 => uberblock.mmp_config = value,
                    5 => uberblock.checkpoint_txg.0 = value,
                    6 => uberblock.raidz_reflow_info = value,
                    7 => uberblock.software_version = value,
                    _ => uberblock.mmp_magic = platter_ondisk::uberblock::MMP_MAGIC,
                }
                what.push(format!("uberblock field {field} = {value:#x}"));
            }
            1 => {
                let bytes = label.get_or_insert_with(|| template.label.clone());
                what.push(format!("label {}", numbers(bytes, template.label_used, random)));
            }
            _ => {
                let number = choose(template, random);
                if random.next_u32().is_multiple_of(16) {
                    what.extend(repeat(template, &mut changed, random));
                    continue;
                }
                let block = &template.blocks.all[number];
                let bytes = changed.entry(number).or_insert_with(|| block.data.to_vec());
                let text = change(template, number, bytes, random);
                what.push(format!(
                    "block {number} (type {}, level {}) {text}",
                    block.bp.object_type(),
                    block.bp.level()
                ));
            }
        }
    }
    (changed_disks(template, changed, uberblock, label), what.join("; "))
}

/// The disks of a template with some of its blocks (by number) and its uberblock changed, and the label of its first
/// disk, when there is one.
pub fn changed_disks(
    template: &Template,
    changed: BTreeMap<usize, Vec<u8>>,
    uberblock: Uberblock,
    label: Option<Vec<u8>>,
) -> Vec<Image> {
    clock::run(|_| async {
        let devices: Vec<Arc<ImageDevice>> = template
            .disks
            .iter()
            .enumerate()
            .map(|(number, image)| Arc::new(ImageDevice::new(format!("d{number}"), SIZE, image.clone())))
            .collect();
        let plain: Vec<Arc<dyn BlockDevice>> =
            devices.iter().map(|device| device.clone() as Arc<dyn BlockDevice>).collect();
        let tops = open(&template.config, &template.guids, &plain).await;
        template.blocks.put_back(&tops, &plain, changed, uberblock, template.free).await;
        drop(tops);
        if let Some(bytes) = label {
            // The label of the first disk: the others still say what is true.
            for index in 0..VDEV_LABELS {
                let offset = label_offset(usable_size(SIZE), index) + VDEV_PHYS_OFFSET;
                let mut sealed = bytes.clone();
                sealed.resize(VDEV_PHYS_SIZE as usize, 0);
                seal(&mut sealed, label_verifier(offset), sha256);
                plain[0].write(offset, vec![Buf::copy_from(&sealed)]).await.expect("an image takes everything");
            }
        }
        devices.iter().map(|device| device.image()).collect()
    })
}

/// Lets an indirect block, and perhaps all above it, point to its first child only: a few blocks stand for very many.
fn repeat(template: &Template, changed: &mut BTreeMap<usize, Vec<u8>>, random: &mut ChaCha20Rng) -> Option<String> {
    let all = &template.blocks.all;
    let interior: Vec<usize> = (0..all.len()).filter(|&number| all[number].bp.level() > 0).collect();
    let mut number = interior[random.next_u32() as usize % interior.len()];
    let (first, many) = (number, random.next_u32().is_multiple_of(2));
    loop {
        let bytes = changed.entry(number).or_insert_with(|| all[number].data.to_vec());
        repeat_first(bytes)?;
        match all[number].above {
            Some((above, _)) if many && all[above].bp.level() > 0 => number = above,
            _ => return Some(format!("indirect blocks from {first} up to {number} repeat a child")),
        }
    }
}

/// Puts the first pointer that is no hole at all places of an indirect block.
pub fn repeat_first(bytes: &mut [u8]) -> Option<()> {
    let pointers = bytes.as_chunks_mut::<BLKPTR_SIZE>().0;
    let first = *pointers.iter().find(|bytes| !BlkPtr::decode(&bytes[..]).is_hole())?;
    pointers.fill(first);
    Some(())
}

/// A block: each kind as often as each other, however many there are of it.
fn choose(template: &Template, random: &mut ChaCha20Rng) -> usize {
    let mut kinds: BTreeMap<(u8, u8), Vec<usize>> = BTreeMap::new();
    for (number, block) in template.blocks.all.iter().enumerate() {
        kinds.entry((block.bp.object_type(), block.bp.level().min(1))).or_default().push(number);
    }
    // Dnodes lead to everything, and have most of the structure.
    let dnodes = &kinds[&(object_type::DNODE, 0)];
    if random.next_u32().is_multiple_of(3) {
        return dnodes[random.next_u32() as usize % dnodes.len()];
    }
    let kinds: Vec<&Vec<usize>> = kinds.values().collect();
    let kind = kinds[random.next_u32() as usize % kinds.len()];
    kind[random.next_u32() as usize % kind.len()]
}

fn change(template: &Template, number: usize, bytes: &mut [u8], random: &mut ChaCha20Rng) -> String {
    let bp = template.blocks.all[number].bp;
    let places = pointers(&bp, bytes);
    if !places.is_empty() && random.next_u32().is_multiple_of(3) {
        let at = places[random.next_u32() as usize % places.len()];
        if random.next_u32().is_multiple_of(4) {
            // Another block of the pool in its place: its parent, perhaps.
            let other = random.next_u32() as usize % template.blocks.all.len();
            template.blocks.all[other].bp.encode(&mut bytes[at..at + BLKPTR_SIZE]);
            return format!("pointer at {at} now leads to block {other}");
        }
        return numbers_in(bytes, at..at + BLKPTR_SIZE, random);
    }
    if bp.level() == 0 && bp.object_type() == object_type::DNODE {
        let used: Vec<usize> = (0..bytes.len() / DNODE_SIZE).filter(|slot| bytes[slot * DNODE_SIZE] != 0).collect();
        if !used.is_empty() {
            let at = used[random.next_u32() as usize % used.len()] * DNODE_SIZE;
            return match random.next_u32() % 2 {
                // Its type, levels, lengths, counts.
                0 => numbers_in(bytes, at..at + 32, random),
                _ => {
                    let bonus = at + 64 + usize::from(bytes[at + 3]).min(3) * BLKPTR_SIZE;
                    let length = usize::from(u16::from_le_bytes([bytes[at + 10], bytes[at + 11]]));
                    numbers_in(bytes, bonus..(bonus + length.clamp(8, 320)).min(bytes.len()), random)
                }
            };
        }
    }
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(8, |last| last + 1);
    numbers(bytes, used, random)
}

/// Changes numbers among the first bytes, or among all that are used.
fn numbers(bytes: &mut [u8], used: usize, random: &mut ChaCha20Rng) -> String {
    let end = if random.next_u32().is_multiple_of(2) { used.min(128) } else { used };
    numbers_in(bytes, 0..end.max(8).min(bytes.len()), random)
}

fn numbers_in(bytes: &mut [u8], range: std::ops::Range<usize>, random: &mut ChaCha20Rng) -> String {
    let width = [1, 1, 2, 4, 8, 8][random.next_u32() as usize % 6];
    let places: Vec<usize> = range.step_by(width).filter(|at| at + width <= bytes.len()).collect();
    if places.is_empty() {
        return "nothing".into();
    }
    let filled: Vec<usize> =
        places.iter().copied().filter(|&at| bytes[at..at + width].iter().any(|&byte| byte != 0)).collect();
    let pool = if filled.is_empty() || random.next_u32().is_multiple_of(4) { &places } else { &filled };
    let at = pool[random.next_u32() as usize % pool.len()];
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(word);
    let value = match random.next_u32() % 4 {
        0 => old.wrapping_add(u64::from(random.next_u32() % 8)).wrapping_sub(4),
        1 => old ^ 1 << (random.next_u32() as usize % (width * 8)),
        _ => interesting(random),
    };
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    format!("byte {at}: {width} bytes, {old:#x} became {value:#x}")
}

fn interesting(random: &mut ChaCha20Rng) -> u64 {
    match random.next_u32() % 6 {
        0 => 0,
        1 => u64::from(random.next_u32() % 256),
        2 => u64::MAX - u64::from(random.next_u32() % 3),
        3 => (1u64 << (random.next_u32() % 64)).wrapping_sub(u64::from(random.next_u32() % 2)),
        4 => u64::from(random.next_u32()) << (random.next_u32() % 32),
        _ => random.next_u64(),
    }
}
