//! What is known of a value and its type.

use crate::layout::{NVLIST_T_SIZE, c_bytes};
use crate::types::{DataType, NvList, Value};

impl DataType {
    const ALL: [Self; 27] = [
        Self::Boolean,
        Self::Byte,
        Self::Int16,
        Self::Uint16,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::String,
        Self::ByteArray,
        Self::Int16Array,
        Self::Uint16Array,
        Self::Int32Array,
        Self::Uint32Array,
        Self::Int64Array,
        Self::Uint64Array,
        Self::StringArray,
        Self::Hrtime,
        Self::List,
        Self::ListArray,
        Self::BooleanValue,
        Self::Int8,
        Self::Uint8,
        Self::BooleanArray,
        Self::Int8Array,
        Self::Uint8Array,
        Self::Double,
    ];

    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        usize::try_from(raw).ok()?.checked_sub(1).and_then(|i| Self::ALL.get(i)).copied()
    }

    /// Whether values of this type have any number of elements; the others have one (a `Boolean` none).
    pub(crate) fn is_array(self) -> bool {
        matches!(
            self,
            Self::ByteArray
                | Self::Int8Array
                | Self::Uint8Array
                | Self::Int16Array
                | Self::Uint16Array
                | Self::Int32Array
                | Self::Uint32Array
                | Self::Int64Array
                | Self::Uint64Array
                | Self::BooleanArray
                | Self::StringArray
                | Self::ListArray
        )
    }

    /// The type's name as OpenZFS prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Byte => "byte",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::String => "string",
            Self::ByteArray => "byte array",
            Self::Int16Array => "int16 array",
            Self::Uint16Array => "uint16 array",
            Self::Int32Array => "int32 array",
            Self::Uint32Array => "uint32 array",
            Self::Int64Array => "int64 array",
            Self::Uint64Array => "uint64 array",
            Self::StringArray => "string array",
            Self::Hrtime => "hrtime",
            Self::List => "nvlist",
            Self::ListArray => "nvlist array",
            Self::BooleanValue => "boolean value",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::BooleanArray => "boolean array",
            Self::Int8Array => "int8 array",
            Self::Uint8Array => "uint8 array",
            Self::Double => "double",
        }
    }
}

impl Value {
    /// The value's type.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Byte(_) => DataType::Byte,
            Self::Int16(_) => DataType::Int16,
            Self::Uint16(_) => DataType::Uint16,
            Self::Int32(_) => DataType::Int32,
            Self::Uint32(_) => DataType::Uint32,
            Self::Int64(_) => DataType::Int64,
            Self::Uint64(_) => DataType::Uint64,
            Self::String(_) => DataType::String,
            Self::ByteArray(_) => DataType::ByteArray,
            Self::Int16Array(_) => DataType::Int16Array,
            Self::Uint16Array(_) => DataType::Uint16Array,
            Self::Int32Array(_) => DataType::Int32Array,
            Self::Uint32Array(_) => DataType::Uint32Array,
            Self::Int64Array(_) => DataType::Int64Array,
            Self::Uint64Array(_) => DataType::Uint64Array,
            Self::StringArray(_) => DataType::StringArray,
            Self::Hrtime(_) => DataType::Hrtime,
            Self::List(_) => DataType::List,
            Self::ListArray(_) => DataType::ListArray,
            Self::BooleanValue(_) => DataType::BooleanValue,
            Self::Int8(_) => DataType::Int8,
            Self::Uint8(_) => DataType::Uint8,
            Self::BooleanArray(_) => DataType::BooleanArray,
            Self::Int8Array(_) => DataType::Int8Array,
            Self::Uint8Array(_) => DataType::Uint8Array,
            Self::Double(_) => DataType::Double,
        }
    }

    /// `nvp_value_elem`: elements of an array, 0 for a flag, else 1.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Boolean => 0,
            Self::ByteArray(v) | Self::Uint8Array(v) => v.len(),
            Self::Int8Array(v) => v.len(),
            Self::Int16Array(v) => v.len(),
            Self::Uint16Array(v) => v.len(),
            Self::Int32Array(v) => v.len(),
            Self::Uint32Array(v) => v.len(),
            Self::Int64Array(v) => v.len(),
            Self::Uint64Array(v) => v.len(),
            Self::BooleanArray(v) => v.len(),
            Self::StringArray(v) => v.len(),
            Self::ListArray(v) => v.len(),
            _ => 1,
        }
    }

    /// Bytes of the value in memory layout, before rounding (`i_get_value_size`). Nested lists count as headers only.
    pub(crate) fn native_size(&self) -> usize {
        let each = match self {
            Self::Boolean => 0,
            Self::Byte(_) | Self::Int8(_) | Self::Uint8(_) => 1,
            Self::ByteArray(_) | Self::Int8Array(_) | Self::Uint8Array(_) => 1,
            Self::Int16(_) | Self::Uint16(_) | Self::Int16Array(_) | Self::Uint16Array(_) => 2,
            Self::Int32(_) | Self::Uint32(_) | Self::BooleanValue(_) => 4,
            Self::Int32Array(_) | Self::Uint32Array(_) | Self::BooleanArray(_) => 4,
            Self::Int64(_) | Self::Uint64(_) | Self::Hrtime(_) | Self::Double(_) => 8,
            Self::Int64Array(_) | Self::Uint64Array(_) => 8,
            Self::String(text) => return c_bytes(text).len() + 1,
            Self::StringArray(texts) => return texts.iter().map(|text| 8 + c_bytes(text).len() + 1).sum(),
            Self::List(_) => NVLIST_T_SIZE,
            Self::ListArray(_) => 8 + NVLIST_T_SIZE,
        };
        self.elements() * each
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

from! {
    bool => BooleanValue, i8 => Int8, u8 => Uint8, i16 => Int16, u16 => Uint16, i32 => Int32, u32 => Uint32,
    i64 => Int64, u64 => Uint64, String => String, NvList => List, Vec<NvList> => ListArray, Vec<String> => StringArray,
    Vec<u64> => Uint64Array, Vec<u32> => Uint32Array, Vec<u8> => Uint8Array, Vec<bool> => BooleanArray,
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}
