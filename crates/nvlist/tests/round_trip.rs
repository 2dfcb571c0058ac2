//! Both encodings are lossless, refuse damage without panicking, and agree with what OpenZFS wrote.

use platter_nvlist::{DataType, Endian, Error, MAX_DEPTH, NvList, Value};
use proptest::collection::vec;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,12}"
}

fn any_list() -> impl Strategy<Value = NvList> {
    let leaf = prop_oneof![
        Just(Value::Boolean),
        any::<u8>().prop_map(Value::Byte),
        any::<i8>().prop_map(Value::Int8),
        any::<u8>().prop_map(Value::Uint8),
        any::<i16>().prop_map(Value::Int16),
        any::<u16>().prop_map(Value::Uint16),
        any::<i32>().prop_map(Value::Int32),
        any::<u32>().prop_map(Value::Uint32),
        any::<i64>().prop_map(Value::Int64),
        any::<u64>().prop_map(Value::Uint64),
        any::<i64>().prop_map(Value::Hrtime),
        any::<f64>().prop_map(Value::Double),
        any::<bool>().prop_map(Value::BooleanValue),
        text().prop_map(Value::String),
        vec(any::<u8>(), 0..9).prop_map(Value::ByteArray),
        vec(any::<i8>(), 0..9).prop_map(Value::Int8Array),
        vec(any::<u8>(), 0..9).prop_map(Value::Uint8Array),
        vec(any::<i16>(), 0..9).prop_map(Value::Int16Array),
        vec(any::<u16>(), 0..9).prop_map(Value::Uint16Array),
        vec(any::<i32>(), 0..9).prop_map(Value::Int32Array),
        vec(any::<u32>(), 0..9).prop_map(Value::Uint32Array),
        vec(any::<i64>(), 0..9).prop_map(Value::Int64Array),
        vec(any::<u64>(), 0..9).prop_map(Value::Uint64Array),
        vec(any::<bool>(), 0..9).prop_map(Value::BooleanArray),
        vec(text(), 0..5).prop_map(Value::StringArray),
    ];
    let list = |value: BoxedStrategy<Value>| vec((text(), value), 0..8).prop_map(NvList::from_iter);
    let value = leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![list(inner.clone()).prop_map(Value::List), vec(list(inner), 0..4).prop_map(Value::ListArray)]
    });
    vec((text(), value), 0..12).prop_map(NvList::from_iter)
}

proptest! {
    #[test]
    fn xdr_gives_back_what_it_was_given(list in any_list()) {
        prop_assert_eq!(NvList::decode(&list.encode_xdr()).unwrap(), list);
    }

    #[test]
    fn native_gives_back_what_it_was_given_in_both_byte_orders(list in any_list()) {
        for endian in [Endian::Little, Endian::Big] {
            prop_assert_eq!(NvList::decode(&list.encode_native_as(endian)).unwrap(), list.clone());
        }
    }

    #[test]
    fn a_truncated_list_is_an_error(list in any_list(), cut in any::<prop::sample::Index>()) {
        for bytes in [list.encode_xdr(), list.encode_native()] {
            prop_assert!(NvList::decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn damaged_bytes_never_panic(
        list in any_list(), at in any::<prop::sample::Index>(), byte in any::<u8>(), noise in vec(any::<u8>(), 0..200),
    ) {
        for mut bytes in [list.encode_xdr(), list.encode_native(), list.encode_native_as(Endian::Big)] {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = NvList::decode(&bytes);
        }
        for head in [[0u8, 0], [0, 1], [1, 1]] {
            let _ = NvList::decode(&[&head[..], &[0; 6], &noise].concat());
        }
    }

    #[test]
    fn names_stay_unique(names in vec("[ab]{1,2}", 0..20)) {
        let list: NvList = names.iter().enumerate().map(|(i, name)| (name.clone(), i as u64)).collect();
        let mut seen: Vec<_> = list.iter().map(|(name, _)| name).collect();
        seen.sort();
        seen.dedup();
        prop_assert_eq!(seen.len(), list.len());
        for name in &names {
            let last = names.iter().rposition(|other| other == name).unwrap() as u64;
            prop_assert_eq!(list.get_u64(name), Some(last));
        }
    }
}

/// The label of a raidz1 pool of five disks, written by OpenZFS 2.x's kernel module.
const LABEL: &[u8] = include_bytes!("fixtures/label_raidz1.xdr");

#[test]
fn the_label_of_a_real_pool_reads_and_encodes_to_the_same_bytes() {
    let list = NvList::decode(LABEL).unwrap();
    assert_eq!(list.get_u64("version"), Some(5000));
    let tree = list.get_list("vdev_tree").unwrap();
    assert_eq!(tree.get_str("type"), Some("raidz"));
    assert_eq!(tree.get_u64("nparity"), Some(1));
    assert_eq!(tree.get_list_array("children").unwrap().len(), 5);
    assert!(list.get_list("features_for_read").unwrap().iter().all(|(_, v)| v.data_type() == DataType::Boolean));
    assert_eq!(list.encode_xdr(), LABEL);
}

#[test]
fn nesting_has_a_limit() {
    let nest = |levels| (0..levels).fold(NvList::new(), |inner, _| NvList::from_iter([("a", inner)]));
    for bytes in [nest(MAX_DEPTH - 1).encode_xdr(), nest(MAX_DEPTH - 1).encode_native()] {
        NvList::decode(&bytes).unwrap();
    }
    for bytes in [nest(MAX_DEPTH).encode_xdr(), nest(MAX_DEPTH).encode_native()] {
        assert_eq!(NvList::decode(&bytes), Err(Error::TooDeep { limit: MAX_DEPTH }));
    }
}

#[test]
fn a_count_beyond_the_input_takes_no_memory() {
    for data_type in [DataType::Uint64Array, DataType::StringArray, DataType::ListArray, DataType::ByteArray] {
        let mut bytes = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend_from_slice(&[0, 0, 0, 40, 0, 0, 0, 40, 0, 0, 0, 1, b'x', 0, 0, 0]);
        bytes.extend_from_slice(&(data_type as u32).to_be_bytes());
        bytes.extend_from_slice(&[0x7f; 8]);
        assert!(matches!(NvList::decode(&bytes), Err(Error::Truncated { .. })), "{data_type:?}");
    }
}

#[test]
fn shown_as_zdb_shows_it() {
    let mut child = NvList::new();
    child.add_str("type", "disk");
    let mut list = NvList::new();
    list.add_u64("version", 5000).add_list_array("children", vec![child]).add_flag("here");
    assert_eq!(list.to_string(), "version: 5000\nchildren[0]:\n    type: 'disk'\nhere\n");
}
