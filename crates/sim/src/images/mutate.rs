//! Changes that know where the structure is.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_device::BlockDevice;
use platter_ondisk::blkptr::{BLKPTR_SIZE, BlkPtr};
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::embedded::{ECK_SIZE, label_verifier, seal};
use platter_ondisk::gang;
use platter_ondisk::label::{VDEV_LABELS, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, label_offset, usable_size};
use platter_ondisk::sector::SECTOR;
use platter_ondisk::uberblock::Uberblock;
use platter_ondisk::zil::ZIL_HEADER_SIZE;
use platter_ondisk::{Checksum, ObjectType, Sectors};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::blocks::pointers;
use super::device::ImageDevice;
use super::numbers::{interesting, numbers_in, put};
use super::stored::Kind;
use super::template::{SIZE, Template, open};
use super::{lists, log_block};
use platter_model::clock;
use platter_model::disk::Image;

/// Where a pointer's sizes and kinds stand in it.
const PROPERTIES: usize = 48;

/// A changed copy of a template's disks, and what was changed, for a person.
pub fn tamper(template: &Template, random: &mut ChaCha20Rng) -> (Vec<Image>, String) {
    let mut what = Vec::new();
    let mut changed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let mut uberblock = template.uberblock.clone();
    let mut label = None;
    for _ in 0..1 + random.next_u32() % 2 {
        match random.next_u32() % 20 {
            0 => {
                let (field, value) = (random.next_u32() % 11, interesting(random));
                match field {
                    0 => uberblock.version = value,
                    1 => uberblock.guid_sum = value,
                    2 => uberblock.timestamp = value,
                    3 => uberblock.mmp_delay = value,
                    4 => uberblock.mmp_config = value,
                    5 => uberblock.checkpoint_txg.0 = value,
                    6 => uberblock.raidz_reflow_info = value,
                    7 => uberblock.software_version = value,
                    8 => uberblock.txg.0 = value,
                    9 => {
                        let mut bytes = [0; BLKPTR_SIZE];
                        uberblock.rootbp.encode(&mut bytes);
                        what.push(numbers_in(&mut bytes, 0..BLKPTR_SIZE, random));
                        uberblock.rootbp = BlkPtr::decode(&bytes);
                    }
                    _ => uberblock.mmp_magic = platter_ondisk::uberblock::MMP_MAGIC,
                }
                what.push(format!("uberblock field {field} = {value:#x}"));
            }
            1 => {
                let bytes = label.get_or_insert_with(|| template.label.clone());
                let text = match random.next_u32() % 3 {
                    0 => numbers(bytes, template.label_used, random),
                    _ => lists::change(bytes, random),
                };
                what.push(format!("label {text}"));
            }
            _ => {
                let number = choose(template, random);
                if random.next_u32().is_multiple_of(16) {
                    what.extend(repeat(template, &mut changed, random));
                    continue;
                }
                let block = &template.blocks.all[number];
                let text = change(template, number, &mut changed, random);
                what.push(format!(
                    "block {number} ({:?}, type {}, level {}) {text}",
                    block.kind,
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
                sealed.truncate(VDEV_PHYS_SIZE as usize - ECK_SIZE);
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
    let mut kinds: BTreeMap<(ObjectType, u8, u8), Vec<usize>> = BTreeMap::new();
    for (number, block) in template.blocks.all.iter().enumerate() {
        let stored = match block.kind {
            Kind::Plain | Kind::Gang => 0,
            Kind::GangHeader => 1,
            Kind::Embedded => 2,
            Kind::Log(_) => 3,
        };
        kinds.entry((block.bp.object_type(), block.bp.level().min(1), stored)).or_default().push(number);
    }
    // Dnodes lead to everything, and have most of the structure.
    let dnodes = &kinds[&(ObjectType::DNODE, 0, 0)];
    if random.next_u32().is_multiple_of(4) {
        return dnodes[random.next_u32() as usize % dnodes.len()];
    }
    // Of logs and gang headers there are few, with more to be said in each than in others.
    let wanted = random.next_u32() % 8;
    let special = template.blocks.stored_as(|kind| match wanted {
        0 => kind == Kind::GangHeader,
        1 => matches!(kind, Kind::Log(_)),
        2 => kind == Kind::Embedded,
        _ => false,
    });
    if !special.is_empty() {
        return special[random.next_u32() as usize % special.len()];
    }
    let kinds: Vec<&Vec<usize>> = kinds.values().collect();
    let kind = kinds[random.next_u32() as usize % kinds.len()];
    kind[random.next_u32() as usize % kind.len()]
}

/// Changes block `number`, or what its pointer says of it.
fn change(
    template: &Template,
    number: usize,
    changed: &mut BTreeMap<usize, Vec<u8>>,
    random: &mut ChaCha20Rng,
) -> String {
    let all = &template.blocks.all;
    let block = &all[number];
    match block.kind {
        Kind::Embedded if random.next_u32().is_multiple_of(2) => {
            let Some((above, at)) = block.above else { return "nothing".into() };
            changed.remove(&number);
            let bytes = changed.entry(above).or_insert_with(|| all[above].data.to_vec());
            return format!("its pointer: {}", numbers_in(bytes, properties(at, random), random));
        }
        Kind::GangHeader => {
            let bytes = changed.entry(number).or_insert_with(|| block.data.to_vec());
            let mut text = gang_header(&block.bp, bytes, random);
            if let Some((above, at)) = block.above.filter(|_| random.next_u32().is_multiple_of(2)) {
                // Then what its parts hold is believed, whatever it is.
                let bytes = changed.entry(above).or_insert_with(|| all[above].data.to_vec());
                bytes[at + PROPERTIES + 5] = Checksum::OFF.number();
                text += ", and its block has no checksum";
            }
            return text;
        }
        Kind::Log(layout) => {
            let bytes = changed.entry(number).or_insert_with(|| block.data.to_vec());
            let other = &all[random.next_u32() as usize % all.len()].bp;
            return log_block::change(layout, &block.bp, other, bytes, random);
        }
        _ => {}
    }
    if let Some((above, at)) = block.above.filter(|_| block.bp.object_type() == ObjectType::PACKED_NVLIST)
        && !random.next_u32().is_multiple_of(4)
    {
        let bytes = changed.entry(number).or_insert_with(|| block.data.to_vec());
        let text = lists::change(bytes, random);
        if all[above].bp.object_type() == ObjectType::DNODE && all[above].bp.level() == 0 {
            // Its length is in the bonus.
            let length = bytes.len() as u64;
            let dnode = at / DNODE_SIZE * DNODE_SIZE;
            let bytes = changed.entry(above).or_insert_with(|| all[above].data.to_vec());
            let bonus = dnode + 64 + usize::from(bytes[dnode + 3]).min(3) * BLKPTR_SIZE;
            put(bytes, bonus, length);
        }
        return text;
    }
    let bytes = changed.entry(number).or_insert_with(|| block.data.to_vec());
    change_bytes(template, number, bytes, random)
}

/// Where the properties of the pointer at `at` stand, or all of it.
fn properties(at: usize, random: &mut ChaCha20Rng) -> std::ops::Range<usize> {
    if random.next_u32().is_multiple_of(4) { at..at + BLKPTR_SIZE } else { at + PROPERTIES..at + PROPERTIES + 8 }
}

/// Changes the header of the gang block `bp`.
fn gang_header(bp: &BlkPtr, bytes: &mut [u8], random: &mut ChaCha20Rng) -> String {
    let part = random.next_u32() as usize % gang::pointer_count(gang::HEADER_SIZE) * BLKPTR_SIZE;
    match random.next_u32() % 6 {
        0 => {
            bp.encode(&mut bytes[part..part + BLKPTR_SIZE]);
            format!("the part at {part} is the gang block itself")
        }
        1 => {
            // As long as a part was, so that nothing says it cannot be.
            let size = BlkPtr::decode(bytes).psize().max(SECTOR);
            let mut own = *bp;
            own.words[6] = own.words[6] & !(0xffff << 16) | (Sectors::of(size).0 - 1) << 16;
            for place in 0..gang::pointer_count(gang::HEADER_SIZE) {
                own.encode(&mut bytes[place * BLKPTR_SIZE..(place + 1) * BLKPTR_SIZE]);
            }
            "all parts are the gang block itself".to_owned()
        }
        2 => {
            let other = random.next_u32() as usize % gang::pointer_count(gang::HEADER_SIZE) * BLKPTR_SIZE;
            let copy = bytes[other..other + BLKPTR_SIZE].to_vec();
            bytes[part..part + BLKPTR_SIZE].copy_from_slice(&copy);
            format!("the part at {part} is that at {other}")
        }
        3 => {
            bytes[part + 15] ^= 0x80;
            format!("the part at {part} is a gang block")
        }
        _ => numbers_in(bytes, part..part + BLKPTR_SIZE, random),
    }
}

fn change_bytes(template: &Template, number: usize, bytes: &mut [u8], random: &mut ChaCha20Rng) -> String {
    let bp = template.blocks.all[number].bp;
    if bp.object_type() == ObjectType::OBJSET && random.next_u32().is_multiple_of(3) {
        // The intent log's header.
        return numbers_in(bytes, DNODE_SIZE..DNODE_SIZE + ZIL_HEADER_SIZE, random);
    }
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
    if bp.level() == 0 && bp.object_type() == ObjectType::DNODE {
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
