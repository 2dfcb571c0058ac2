//! The list: ordered pairs with lookups by name and type.

use crate::layout::{NV_UNIQUE_NAME, NV_UNIQUE_NAME_TYPE};
use crate::types::{DataType, NvList, Value};

impl Default for NvList {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($value:ident) -> $type:ty = $get:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(&self, name: &str) -> Option<$type> {
            self.values(name).find_map(|value| match value {
                Value::$variant($value) => Some($get),
                _ => None,
            })
        })*
    };
}

impl NvList {
    /// An empty list of unique names.
    pub fn new() -> Self {
        Self { flags: NV_UNIQUE_NAME, pairs: Vec::new() }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a Value> + use<'a, 'n> {
        self.pairs.iter().filter(move |pair| pair.0 == name).map(|pair| &pair.1)
    }

    /// The first value of this name, whatever its type.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values(name).next()
    }

    /// Like [`Self::get`], to change in place (the order stays).
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.pairs.iter_mut().find(|pair| pair.0 == name).map(|pair| &mut pair.1)
    }

    /// Whether the name is there, with any type.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether the name is there as a flag (`DATA_TYPE_BOOLEAN`).
    pub fn get_flag(&self, name: &str) -> bool {
        self.values(name).any(|value| value.data_type() == DataType::Boolean)
    }

    getters! {
        /// A `DATA_TYPE_UINT64` of this name.
        get_u64: Uint64(v) -> u64 = *v;
        /// A `DATA_TYPE_INT64` of this name.
        get_i64: Int64(v) -> i64 = *v;
        /// A `DATA_TYPE_UINT32` of this name.
        get_u32: Uint32(v) -> u32 = *v;
        /// A `DATA_TYPE_INT32` of this name.
        get_i32: Int32(v) -> i32 = *v;
        /// A `DATA_TYPE_BOOLEAN_VALUE` of this name.
        get_bool: BooleanValue(v) -> bool = *v;
        /// A `DATA_TYPE_STRING` of this name.
        get_str: String(v) -> &str = v.as_str();
        /// A `DATA_TYPE_NVLIST` of this name.
        get_list: List(v) -> &NvList = v;
        /// A `DATA_TYPE_NVLIST_ARRAY` of this name.
        get_list_array: ListArray(v) -> &[NvList] = v.as_slice();
        /// A `DATA_TYPE_UINT64_ARRAY` of this name.
        get_u64_array: Uint64Array(v) -> &[u64] = v.as_slice();
        /// A `DATA_TYPE_STRING_ARRAY` of this name.
        get_str_array: StringArray(v) -> &[String] = v.as_slice();
        /// A `DATA_TYPE_UINT8_ARRAY` of this name.
        get_u8_array: Uint8Array(v) -> &[u8] = v.as_slice();
        /// A `DATA_TYPE_BYTE_ARRAY` of this name.
        get_byte_array: ByteArray(v) -> &[u8] = v.as_slice();
    }

    /// Adds a pair at the end; a pair of the same name goes away first when names are unique.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        let (name, value) = (name.into(), value.into());
        if self.flags & NV_UNIQUE_NAME != 0 {
            self.pairs.retain(|pair| pair.0 != name);
        } else if self.flags & NV_UNIQUE_NAME_TYPE != 0 {
            self.pairs.retain(|pair| pair.0 != name || pair.1.data_type() != value.data_type());
        }
        self.pairs.push((name, value));
        self
    }

    /// Adds a flag (`DATA_TYPE_BOOLEAN`).
    pub fn add_flag(&mut self, name: impl Into<String>) -> &mut Self {
        self.add(name, Value::Boolean)
    }

    /// Adds a `DATA_TYPE_UINT64`.
    pub fn add_u64(&mut self, name: impl Into<String>, value: u64) -> &mut Self {
        self.add(name, value)
    }

    /// Adds a `DATA_TYPE_STRING`.
    pub fn add_str(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.add(name, Value::String(value.into()))
    }

    /// Adds a `DATA_TYPE_BOOLEAN_VALUE`.
    pub fn add_bool(&mut self, name: impl Into<String>, value: bool) -> &mut Self {
        self.add(name, value)
    }

    /// Adds a `DATA_TYPE_NVLIST`.
    pub fn add_list(&mut self, name: impl Into<String>, value: NvList) -> &mut Self {
        self.add(name, value)
    }

    /// Adds a `DATA_TYPE_NVLIST_ARRAY`.
    pub fn add_list_array(&mut self, name: impl Into<String>, value: Vec<NvList>) -> &mut Self {
        self.add(name, value)
    }

    /// Adds a `DATA_TYPE_UINT64_ARRAY`.
    pub fn add_u64_array(&mut self, name: impl Into<String>, value: Vec<u64>) -> &mut Self {
        self.add(name, value)
    }

    /// Adds a `DATA_TYPE_STRING_ARRAY`.
    pub fn add_str_array(&mut self, name: impl Into<String>, value: Vec<String>) -> &mut Self {
        self.add(name, value)
    }

    /// Removes every pair of this name and returns the first one's value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.pairs.iter().position(|pair| pair.0 == name)?;
        let (_, value) = self.pairs.remove(index);
        self.pairs.retain(|pair| pair.0 != name);
        Some(value)
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for NvList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut list = Self::new();
        for (name, value) in pairs {
            list.add(name, value);
        }
        list
    }
}

impl IntoIterator for NvList {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}
