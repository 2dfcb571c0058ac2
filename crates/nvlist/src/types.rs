//! Lists, values and their types. They stand together because a value may be a list.

/// A name/value list. See the crate text.
#[derive(Clone, Debug, PartialEq)]
pub struct NvList {
    /// `NV_UNIQUE_NAME` and friends, kept as read.
    pub flags: u32,
    pub(crate) pairs: Vec<(String, Value)>,
}

/// `data_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs)] // OpenZFS's names, each the type of the `Value` variant of the same name
pub enum DataType {
    Boolean = 1,
    Byte = 2,
    Int16 = 3,
    Uint16 = 4,
    Int32 = 5,
    Uint32 = 6,
    Int64 = 7,
    Uint64 = 8,
    String = 9,
    ByteArray = 10,
    Int16Array = 11,
    Uint16Array = 12,
    Int32Array = 13,
    Uint32Array = 14,
    Int64Array = 15,
    Uint64Array = 16,
    StringArray = 17,
    Hrtime = 18,
    List = 19,
    ListArray = 20,
    BooleanValue = 21,
    Int8 = 22,
    Uint8 = 23,
    BooleanArray = 24,
    Int8Array = 25,
    Uint8Array = 26,
    Double = 27,
}

/// A value. Variants are named after `data_type_t`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A flag: being there is its meaning.
    Boolean,
    /// `DATA_TYPE_BYTE`.
    Byte(u8),
    /// `DATA_TYPE_INT16`.
    Int16(i16),
    /// `DATA_TYPE_UINT16`.
    Uint16(u16),
    /// `DATA_TYPE_INT32`.
    Int32(i32),
    /// `DATA_TYPE_UINT32`.
    Uint32(u32),
    /// `DATA_TYPE_INT64`.
    Int64(i64),
    /// `DATA_TYPE_UINT64`.
    Uint64(u64),
    /// `DATA_TYPE_STRING`. Encoded up to its first zero character.
    String(String),
    /// `DATA_TYPE_BYTE_ARRAY`.
    ByteArray(Vec<u8>),
    /// `DATA_TYPE_INT16_ARRAY`.
    Int16Array(Vec<i16>),
    /// `DATA_TYPE_UINT16_ARRAY`.
    Uint16Array(Vec<u16>),
    /// `DATA_TYPE_INT32_ARRAY`.
    Int32Array(Vec<i32>),
    /// `DATA_TYPE_UINT32_ARRAY`.
    Uint32Array(Vec<u32>),
    /// `DATA_TYPE_INT64_ARRAY`.
    Int64Array(Vec<i64>),
    /// `DATA_TYPE_UINT64_ARRAY`.
    Uint64Array(Vec<u64>),
    /// `DATA_TYPE_STRING_ARRAY`.
    StringArray(Vec<String>),
    /// `DATA_TYPE_HRTIME`, nanoseconds.
    Hrtime(i64),
    /// `DATA_TYPE_NVLIST`.
    List(NvList),
    /// `DATA_TYPE_NVLIST_ARRAY`.
    ListArray(Vec<NvList>),
    /// `DATA_TYPE_BOOLEAN_VALUE`.
    BooleanValue(bool),
    /// `DATA_TYPE_INT8`.
    Int8(i8),
    /// `DATA_TYPE_UINT8`.
    Uint8(u8),
    /// `DATA_TYPE_BOOLEAN_ARRAY`.
    BooleanArray(Vec<bool>),
    /// `DATA_TYPE_INT8_ARRAY`.
    Int8Array(Vec<i8>),
    /// `DATA_TYPE_UINT8_ARRAY`.
    Uint8Array(Vec<u8>),
    /// `DATA_TYPE_DOUBLE`.
    Double(f64),
}
