//! Name/value lists that are still lists after they were changed.

use platter_nvlist::{NvList, Value};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::numbers::interesting;

/// What vdevs may be, known to this version or not.
const KINDS: [&str; 15] = [
    "root",
    "mirror",
    "raidz",
    "disk",
    "file",
    "hole",
    "missing",
    "indirect",
    "spare",
    "replacing",
    "draid",
    "dspare",
    "l2cache",
    "anyraid",
    "",
];
/// Names of arrays of vdevs.
const ARRAYS: [&str; 3] = ["children", "spares", "l2cache"];
/// Names of numbers that a vdev or a pool may have.
const NUMBERS: [&str; 22] = [
    "id",
    "guid",
    "nparity",
    "ashift",
    "asize",
    "metaslab_array",
    "metaslab_shift",
    "is_log",
    "create_txg",
    "DTL",
    "com.delphix:vdev_zap_leaf",
    "com.delphix:vdev_zap_top",
    "com.klarasystems:vdev_zap_root",
    "non_allocating",
    "offline",
    "faulted",
    "removed",
    "not_present",
    "vdev_children",
    "version",
    "txg",
    "removing",
];

/// Changes the list that `bytes` begin with, in place: their length stays what it was, except that a longer list makes
/// them longer.
pub fn change(bytes: &mut Vec<u8>, random: &mut ChaCha20Rng) -> String {
    let Ok(mut list) = NvList::decode(bytes) else { return "no list".into() };
    let text = in_list(&mut list, 0, random);
    let mut encoded = list.encode_xdr();
    encoded.resize(encoded.len().max(bytes.len()), 0);
    *bytes = encoded;
    text
}

fn one<'a, T>(of: &'a [T], random: &mut ChaCha20Rng) -> &'a T {
    &of[random.next_u32() as usize % of.len()]
}

fn in_list(list: &mut NvList, depth: u32, random: &mut ChaCha20Rng) -> String {
    if random.next_u32().is_multiple_of(8) || list.is_empty() {
        return added(list, random);
    }
    let names: Vec<String> = list.iter().map(|(name, _)| name.to_owned()).collect();
    let nested: Vec<&String> =
        names.iter().filter(|name| matches!(list.get(name), Some(Value::List(_) | Value::ListArray(_)))).collect();
    // What is nested has most of the structure.
    let name = if !nested.is_empty() && !random.next_u32().is_multiple_of(3) {
        (*one(&nested, random)).clone()
    } else {
        one(&names, random).clone()
    };
    if random.next_u32().is_multiple_of(10) {
        let Some(value) = list.remove(&name) else { return "nothing".into() };
        if random.next_u32().is_multiple_of(2) {
            return format!("{name} is gone");
        }
        let other = *one(&NUMBERS, random);
        list.add(other, value);
        return format!("{name} is called {other}");
    }
    let Some(value) = list.get_mut(&name) else { return "nothing".into() };
    format!("{name}: {}", in_value(value, depth, random))
}

fn in_value(value: &mut Value, depth: u32, random: &mut ChaCha20Rng) -> String {
    match value {
        Value::List(inner) if depth < 6 && !random.next_u32().is_multiple_of(8) => in_list(inner, depth + 1, random),
        Value::ListArray(all) if !all.is_empty() => {
            let at = random.next_u32() as usize % all.len();
            match random.next_u32() % 8 {
                0 => {
                    // More than any pool has, or than fits.
                    let count = *one(&[2, 3, 10, 300, 5000], random);
                    let copy = all[at].clone();
                    all.extend(std::iter::repeat_n(copy, count));
                    format!("{count} more of {at}")
                }
                1 => {
                    let depth = *one(&[2, 7, 9, 50, 120], random);
                    let mut inner = all[at].clone();
                    for _ in 0..depth {
                        let mut outer = inner.clone();
                        // Small enough to be nested so often.
                        if outer.get_list_array("children").is_some() {
                            outer.remove("children");
                        }
                        outer.add_list_array("children", vec![inner]);
                        inner = outer;
                    }
                    all[at] = inner;
                    format!("{at} is nested {depth} deep")
                }
                2 => {
                    all.remove(at);
                    format!("{at} is gone")
                }
                3 => {
                    let other = random.next_u32() as usize % all.len();
                    all.swap(at, other);
                    format!("{at} and {other} change places")
                }
                _ => format!("{at}: {}", in_list(&mut all[at], depth + 1, random)),
            }
        }
        Value::Uint64(number) => {
            let old = *number;
            *number = match random.next_u32() % 4 {
                0 => old.wrapping_add(u64::from(random.next_u32() % 8)).wrapping_sub(4),
                1 => old ^ 1 << (random.next_u32() % 64),
                _ => interesting(random),
            };
            format!("{old:#x} became {number:#x}")
        }
        Value::String(text) => {
            *text = match random.next_u32() % 3 {
                0 => "long/".repeat(1 << (random.next_u32() % 13)),
                1 => String::new(),
                _ => (*one(&KINDS, random)).to_owned(),
            };
            format!("{:.20}…", text)
        }
        other => {
            *other = match random.next_u32() % 4 {
                0 => Value::Boolean,
                1 => Value::Uint64(interesting(random)),
                2 => Value::Uint64Array(vec![interesting(random); 1 << (random.next_u32() % 11)]),
                _ => Value::String("text".into()),
            };
            "is of another type".into()
        }
    }
}

fn added(list: &mut NvList, random: &mut ChaCha20Rng) -> String {
    match random.next_u32() % 4 {
        0 => {
            let name = *one(&ARRAYS, random);
            let count = *one(&[1, 4, 300, 5000], random);
            let copy = list.clone();
            list.add_list_array(name, vec![copy; if copy_is_large(list) { count.min(4) } else { count }]);
            format!("{name} are {count} of itself")
        }
        1 => {
            let mut features = NvList::new();
            let count = 1 << (random.next_u32() % 12);
            for number in 0..count {
                features.add_flag(format!("org.example:feature{number}"));
            }
            list.add_list("features_for_read", features);
            format!("{count} features")
        }
        2 => {
            let count = 1 << (random.next_u32() % 11);
            for number in 0..count {
                list.add_u64(format!("pair{number}"), number);
            }
            format!("{count} more pairs")
        }
        _ => {
            let (name, value) = (*one(&NUMBERS, random), interesting(random));
            list.add_u64(name, value);
            format!("{name} is {value:#x}")
        }
    }
}

fn copy_is_large(list: &NvList) -> bool {
    list.encode_xdr().len() > 512
}
