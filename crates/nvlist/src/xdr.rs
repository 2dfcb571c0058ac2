//! The XDR encoding: every number big-endian in units of four bytes.
//!
//! ```text
//! header (4) | version (4) | flags (4) | pair ... | 0 (4) | 0 (4)
//! pair: encoded size (4) | decoded size (4) | name: length (4), bytes, padding | type (4) | elements (4) | value
//! ```
//!
//! The decoded size is that of the pair in memory layout; OpenZFS refuses a list where it is wrong, so encode computes
//! it exactly. A nested list is a value without the header; a counted array repeats its count before the elements,
//! except for byte, string and list arrays. An array of no elements has no value at all, not even the count, although
//! the encoded size includes the count.

use crate::error::Error;
use crate::layout::{ENCODING_XDR, HEADER_SIZE, MAX_DEPTH, NVPAIR_T_SIZE, VERSION, align, c_bytes};
use crate::types::{DataType, NvList, Value};

/// Smallest list: version, flags, two zeros.
const MIN_LIST: usize = 16;

pub(crate) fn encode(list: &NvList) -> Vec<u8> {
    let mut out = vec![ENCODING_XDR, 1, 0, 0];
    put_list(&mut out, list);
    out
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + align(bytes.len(), 4) - bytes.len(), 0);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    let bytes = c_bytes(text);
    put_u32(out, bytes.len() as u32);
    put_opaque(out, bytes);
}

fn put_list(out: &mut Vec<u8>, list: &NvList) {
    put_u32(out, VERSION as u32);
    put_u32(out, list.flags);
    for (name, value) in &list.pairs {
        put_pair(out, name, value);
    }
    put_u64(out, 0);
}

fn put_pair(out: &mut Vec<u8>, name: &str, value: &Value) {
    let start = out.len();
    put_u32(out, 0); // the encoded size, once it is known
    let decoded = align(NVPAIR_T_SIZE + c_bytes(name).len() + 1, 8) + align(value.native_size(), 8);
    put_u32(out, decoded as u32);
    put_string(out, name);
    put_u32(out, value.data_type() as u32);
    put_u32(out, value.elements() as u32);
    put_value(out, value);
    let counted = !matches!(value, Value::ByteArray(_) | Value::StringArray(_) | Value::ListArray(_));
    let phantom_count = if value.data_type().is_array() && value.elements() == 0 && counted { 4 } else { 0 };
    let size = (out.len() - start + phantom_count) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

fn put_array<T: Copy>(out: &mut Vec<u8>, values: &[T], put: impl Fn(&mut Vec<u8>, T)) {
    if !values.is_empty() {
        put_u32(out, values.len() as u32);
        values.iter().for_each(|&value| put(out, value));
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    // Numbers narrower than four bytes are widened with zeros: OpenZFS's kernel refuses a widened sign.
    match value {
        Value::Boolean => {}
        Value::Byte(v) | Value::Uint8(v) => put_u32(out, u32::from(*v)),
        Value::Int8(v) => put_u32(out, u32::from(*v as u8)),
        Value::Int16(v) => put_u32(out, u32::from(*v as u16)),
        Value::Uint16(v) => put_u32(out, u32::from(*v)),
        Value::BooleanValue(v) => put_u32(out, u32::from(*v)),
        Value::Int32(v) => put_u32(out, *v as u32),
        Value::Uint32(v) => put_u32(out, *v),
        Value::Int64(v) | Value::Hrtime(v) => put_u64(out, *v as u64),
        Value::Uint64(v) => put_u64(out, *v),
        Value::Double(v) => put_u64(out, v.to_bits()),
        Value::String(v) => put_string(out, v),
        Value::ByteArray(v) => put_opaque(out, v),
        Value::Uint8Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        Value::Int8Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v as u8))),
        Value::Int16Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v as u16))),
        Value::Uint16Array(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        Value::BooleanArray(v) => put_array(out, v, |out, v| put_u32(out, u32::from(v))),
        Value::Int32Array(v) => put_array(out, v, |out, v| put_u32(out, v as u32)),
        Value::Uint32Array(v) => put_array(out, v, put_u32),
        Value::Int64Array(v) => put_array(out, v, |out, v| put_u64(out, v as u64)),
        Value::Uint64Array(v) => put_array(out, v, put_u64),
        Value::StringArray(v) => v.iter().for_each(|text| put_string(out, text)),
        Value::List(v) => put_list(out, v),
        Value::ListArray(v) => v.iter().for_each(|list| put_list(out, list)),
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<NvList, Error> {
    Reader { bytes, at: HEADER_SIZE }.list(0)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(Error::Truncated { at: self.at })?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn opaque(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let bytes = self.take(n)?;
        self.take(align(n, 4) - n)?;
        Ok(bytes)
    }

    fn string(&mut self) -> Result<String, Error> {
        let length = self.u32()? as usize;
        let at = self.at;
        let bytes = self.opaque(length)?;
        if bytes.contains(&0) {
            return Err(Error::BadString { at });
        }
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn list(&mut self, depth: usize) -> Result<NvList, Error> {
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep { limit: MAX_DEPTH });
        }
        let at = self.at;
        let version = self.u32()?;
        if version != VERSION as u32 {
            return Err(Error::BadValue { what: "version", value: version.into(), at });
        }
        let mut list = NvList { flags: self.u32()?, pairs: Vec::new() };
        loop {
            let encoded = self.u32()?;
            let decoded = self.u32()?;
            if decoded == 0 {
                return Ok(list);
            }
            if encoded == 0 {
                return Err(Error::BadValue { what: "encoded size", value: 0, at: self.at - 8 });
            }
            let name = self.string()?;
            let at = self.at;
            let raw = self.u32()?;
            let data_type =
                DataType::from_raw(raw as i32).ok_or(Error::BadValue { what: "data type", value: raw.into(), at })?;
            let elements = self.u32()?;
            let wanted = match data_type {
                DataType::Boolean => 0,
                _ if data_type.is_array() => elements,
                _ => 1,
            };
            if elements != wanted {
                return Err(Error::BadValue { what: "element count", value: elements.into(), at: at + 4 });
            }
            let value = self.value(data_type, elements as usize, depth)?;
            list.pairs.push((name, value));
        }
    }

    /// A number of less than four bytes. User-space writers widen its sign, the kernel does not: only its own bits
    /// count.
    fn narrow(&mut self) -> Result<u32, Error> {
        self.u32()
    }

    fn bool(&mut self) -> Result<bool, Error> {
        let at = self.at;
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::BadValue { what: "boolean", value: other.into(), at }),
        }
    }

    /// An array of `n` elements of at least `size` encoded bytes each. Memory is taken only for what the input can
    /// hold.
    fn array<T>(
        &mut self,
        n: usize,
        size: usize,
        counted: bool,
        read: impl Fn(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        if n == 0 {
            return Ok(Vec::new());
        }
        if counted {
            let at = self.at;
            let count = self.u32()?;
            if count as usize != n {
                return Err(Error::BadValue { what: "array length", value: count.into(), at });
            }
        }
        if n > (self.bytes.len() - self.at) / size {
            return Err(Error::Truncated { at: self.at });
        }
        let mut values = Vec::with_capacity(n);
        for _ in 0..n {
            values.push(read(self)?);
        }
        Ok(values)
    }

    fn value(&mut self, data_type: DataType, n: usize, depth: usize) -> Result<Value, Error> {
        Ok(match data_type {
            DataType::Boolean => Value::Boolean,
            DataType::Byte => Value::Byte(self.narrow()? as u8),
            DataType::Int8 => Value::Int8(self.narrow()? as i8),
            DataType::Uint8 => Value::Uint8(self.narrow()? as u8),
            DataType::Int16 => Value::Int16(self.narrow()? as i16),
            DataType::Uint16 => Value::Uint16(self.narrow()? as u16),
            DataType::BooleanValue => Value::BooleanValue(self.bool()?),
            DataType::Int32 => Value::Int32(self.u32()? as i32),
            DataType::Uint32 => Value::Uint32(self.u32()?),
            DataType::Int64 => Value::Int64(self.u64()? as i64),
            DataType::Uint64 => Value::Uint64(self.u64()?),
            DataType::Hrtime => Value::Hrtime(self.u64()? as i64),
            DataType::Double => Value::Double(f64::from_bits(self.u64()?)),
            DataType::String => Value::String(self.string()?),
            DataType::ByteArray => Value::ByteArray(self.opaque(n)?.to_vec()),
            DataType::Int8Array => Value::Int8Array(self.array(n, 4, true, |r| Ok(r.narrow()? as i8))?),
            DataType::Uint8Array => Value::Uint8Array(self.array(n, 4, true, |r| Ok(r.narrow()? as u8))?),
            DataType::Int16Array => Value::Int16Array(self.array(n, 4, true, |r| Ok(r.narrow()? as i16))?),
            DataType::Uint16Array => Value::Uint16Array(self.array(n, 4, true, |r| Ok(r.narrow()? as u16))?),
            DataType::BooleanArray => Value::BooleanArray(self.array(n, 4, true, Self::bool)?),
            DataType::Int32Array => Value::Int32Array(self.array(n, 4, true, |r| Ok(r.u32()? as i32))?),
            DataType::Uint32Array => Value::Uint32Array(self.array(n, 4, true, Self::u32)?),
            DataType::Int64Array => Value::Int64Array(self.array(n, 8, true, |r| Ok(r.u64()? as i64))?),
            DataType::Uint64Array => Value::Uint64Array(self.array(n, 8, true, Self::u64)?),
            DataType::StringArray => Value::StringArray(self.array(n, 4, false, Self::string)?),
            DataType::List => Value::List(self.list(depth + 1)?),
            DataType::ListArray => Value::ListArray(self.array(n, MIN_LIST, false, |r| r.list(depth + 1))?),
        })
    }
}
