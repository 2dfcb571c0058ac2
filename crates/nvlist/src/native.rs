//! The native encoding: the writer's memory layout, eight-byte aligned.
//!
//! ```text
//! header (4) | version (4) | flags (4) | pair ... | 0 (4)
//! pair: size (4) | name size (2) | 0 (2) | elements (4) | type (4) | name, NUL, padding to 8 | value, padding to 8
//! ```
//!
//! A nested list's value is an `nvlist_t` (version, flags, and fields that mean nothing on disk); its pairs and final
//! zero follow the pair that holds it. A list array's value is one zero pointer per list, then the `nvlist_t`s. A
//! string array's value is one zero pointer per string, then the strings with their NULs.

use crate::error::Error;
use crate::layout::{
    ENCODING_NATIVE, Endian, HEADER_SIZE, MAX_DEPTH, NVLIST_T_SIZE, NVPAIR_T_SIZE, VERSION, align, c_bytes,
};
use crate::types::{DataType, NvList, Value};

pub(crate) fn encode(list: &NvList, endian: Endian) -> Vec<u8> {
    let order = u8::from(endian == Endian::Little);
    let mut writer = Writer { out: vec![ENCODING_NATIVE, order, 0, 0], endian };
    writer.u32(VERSION as u32);
    writer.u32(list.flags);
    writer.pairs(list);
    writer.out
}

struct Writer {
    out: Vec<u8>,
    endian: Endian,
}

macro_rules! puts {
    ($($name:ident: $type:ty;)*) => {
        $(fn $name(&mut self, value: $type) {
            let bytes = match self.endian {
                Endian::Little => value.to_le_bytes(),
                Endian::Big => value.to_be_bytes(),
            };
            self.out.extend_from_slice(&bytes);
        })*
    };
}

impl Writer {
    puts! { u16: u16; u32: u32; u64: u64; }

    fn nvlist_t(&mut self, list: &NvList) {
        self.u32(VERSION as u32);
        self.u32(list.flags);
        self.u64(0);
        self.u64(0);
    }

    fn pairs(&mut self, list: &NvList) {
        for (name, value) in &list.pairs {
            self.pair(name, value);
        }
        self.u32(0);
    }

    fn pair(&mut self, name: &str, value: &Value) {
        let start = self.out.len();
        let name = c_bytes(name);
        let name_size = i16::try_from(name.len() + 1).expect("names are shorter than 32767 bytes") as u16;
        let value_at = align(NVPAIR_T_SIZE + name.len() + 1, 8);
        let size = value_at + align(value.native_size(), 8);
        self.u32(size as u32);
        self.u16(name_size);
        self.u16(0);
        self.u32(value.elements() as u32);
        self.u32(value.data_type() as u32);
        self.out.extend_from_slice(name);
        self.out.resize(start + value_at, 0);
        self.value(value);
        self.out.resize(start + size, 0);
        match value {
            Value::List(list) => self.pairs(list),
            Value::ListArray(lists) => lists.iter().for_each(|list| self.pairs(list)),
            _ => {}
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Boolean => {}
            Value::Byte(v) | Value::Uint8(v) => self.out.push(*v),
            Value::Int8(v) => self.out.push(*v as u8),
            Value::Int16(v) => self.u16(*v as u16),
            Value::Uint16(v) => self.u16(*v),
            Value::BooleanValue(v) => self.u32(u32::from(*v)),
            Value::Int32(v) => self.u32(*v as u32),
            Value::Uint32(v) => self.u32(*v),
            Value::Int64(v) | Value::Hrtime(v) => self.u64(*v as u64),
            Value::Uint64(v) => self.u64(*v),
            Value::Double(v) => self.u64(v.to_bits()),
            Value::String(v) => {
                self.out.extend_from_slice(c_bytes(v));
                self.out.push(0);
            }
            Value::ByteArray(v) | Value::Uint8Array(v) => self.out.extend_from_slice(v),
            Value::Int8Array(v) => self.out.extend(v.iter().map(|&v| v as u8)),
            Value::Int16Array(v) => v.iter().for_each(|&v| self.u16(v as u16)),
            Value::Uint16Array(v) => v.iter().for_each(|&v| self.u16(v)),
            Value::BooleanArray(v) => v.iter().for_each(|&v| self.u32(u32::from(v))),
            Value::Int32Array(v) => v.iter().for_each(|&v| self.u32(v as u32)),
            Value::Uint32Array(v) => v.iter().for_each(|&v| self.u32(v)),
            Value::Int64Array(v) => v.iter().for_each(|&v| self.u64(v as u64)),
            Value::Uint64Array(v) => v.iter().for_each(|&v| self.u64(v)),
            Value::StringArray(v) => {
                v.iter().for_each(|_| self.u64(0));
                for text in v {
                    self.out.extend_from_slice(c_bytes(text));
                    self.out.push(0);
                }
            }
            Value::List(v) => self.nvlist_t(v),
            Value::ListArray(v) => {
                v.iter().for_each(|_| self.u64(0));
                v.iter().for_each(|list| self.nvlist_t(list));
            }
        }
    }
}

pub(crate) fn decode(bytes: &[u8], endian: Endian) -> Result<NvList, Error> {
    let mut reader = Reader { bytes, at: HEADER_SIZE, endian };
    let mut list = reader.list_head()?;
    reader.pairs(&mut list, 0)?;
    Ok(list)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

macro_rules! takes {
    ($($name:ident: $type:ty, $size:expr;)*) => {
        $(fn $name(&mut self) -> Result<$type, Error> {
            let bytes = self.take($size)?.try_into().expect("the size asked for");
            Ok(match self.endian {
                Endian::Little => <$type>::from_le_bytes(bytes),
                Endian::Big => <$type>::from_be_bytes(bytes),
            })
        })*
    };
}

impl<'a> Reader<'a> {
    takes! { u16: u16, 2; u32: u32, 4; u64: u64, 8; }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(Error::Truncated { at: self.at })?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Version and flags: the first eight bytes of the encoding, or of an `nvlist_t`.
    fn list_head(&mut self) -> Result<NvList, Error> {
        let at = self.at;
        let version = self.u32()?;
        if version != VERSION as u32 {
            return Err(Error::BadValue { what: "version", value: version.into(), at });
        }
        Ok(NvList { flags: self.u32()?, pairs: Vec::new() })
    }

    fn nvlist_t(&mut self) -> Result<NvList, Error> {
        let list = self.list_head()?;
        self.take(NVLIST_T_SIZE - 8)?;
        Ok(list)
    }

    fn pairs(&mut self, list: &mut NvList, depth: usize) -> Result<(), Error> {
        if depth >= MAX_DEPTH {
            return Err(Error::TooDeep { limit: MAX_DEPTH });
        }
        loop {
            let start = self.at;
            let size = self.u32()? as usize;
            if size == 0 {
                return Ok(());
            }
            if size > self.bytes.len() - start {
                return Err(Error::BadValue { what: "pair size", value: size as u64, at: start });
            }
            // Within the pair nothing may reach past its size.
            let mut pair = Reader { bytes: &self.bytes[..start + size], at: self.at, endian: self.endian };
            let name_size = usize::from(pair.u16()?);
            pair.u16()?;
            let elements = pair.u32()?;
            let at = pair.at;
            let raw = pair.u32()?;
            let data_type =
                DataType::from_raw(raw as i32).ok_or(Error::BadValue { what: "data type", value: raw.into(), at })?;
            let at = pair.at;
            let name = match pair.take(name_size)?.split_last() {
                Some((0, name)) if !name.contains(&0) => String::from_utf8_lossy(name).into_owned(),
                _ => return Err(Error::BadString { at }),
            };
            let wanted = match data_type {
                DataType::Boolean => 0,
                _ if data_type.is_array() => elements,
                _ => 1,
            };
            if elements != wanted {
                return Err(Error::BadValue { what: "element count", value: elements.into(), at: start + 8 });
            }
            pair.at = start + align(NVPAIR_T_SIZE + name_size, 8);
            if pair.at > start + size {
                return Err(Error::BadValue { what: "pair size", value: size as u64, at: start });
            }
            let mut value = pair.value(data_type, elements as usize)?;
            self.at = start + size;
            match &mut value {
                Value::List(nested) => self.pairs(nested, depth + 1)?,
                Value::ListArray(nested) => {
                    for list in nested {
                        self.pairs(list, depth + 1)?;
                    }
                }
                _ => {}
            }
            list.pairs.push((name, value));
        }
    }

    fn bool(&mut self) -> Result<bool, Error> {
        let at = self.at;
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::BadValue { what: "boolean", value: other.into(), at }),
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&b| b == 0).ok_or(Error::BadString { at: self.at })?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    /// An array of `n` elements of `size` bytes. Memory is taken only for what the input holds.
    fn array<T>(
        &mut self,
        n: usize,
        size: usize,
        read: impl Fn(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        if n > self.bytes.len().saturating_sub(self.at) / size {
            return Err(Error::Truncated { at: self.at });
        }
        let mut values = Vec::with_capacity(n);
        for _ in 0..n {
            values.push(read(self)?);
        }
        Ok(values)
    }

    /// The zero pointers before `n` strings or lists.
    fn pointers(&mut self, n: usize) -> Result<(), Error> {
        self.take(n.checked_mul(8).ok_or(Error::Truncated { at: self.at })?)?;
        Ok(())
    }

    fn value(&mut self, data_type: DataType, n: usize) -> Result<Value, Error> {
        Ok(match data_type {
            DataType::Boolean => Value::Boolean,
            DataType::Byte => Value::Byte(self.take(1)?[0]),
            DataType::Int8 => Value::Int8(self.take(1)?[0] as i8),
            DataType::Uint8 => Value::Uint8(self.take(1)?[0]),
            DataType::Int16 => Value::Int16(self.u16()? as i16),
            DataType::Uint16 => Value::Uint16(self.u16()?),
            DataType::BooleanValue => Value::BooleanValue(self.bool()?),
            DataType::Int32 => Value::Int32(self.u32()? as i32),
            DataType::Uint32 => Value::Uint32(self.u32()?),
            DataType::Int64 => Value::Int64(self.u64()? as i64),
            DataType::Uint64 => Value::Uint64(self.u64()?),
            DataType::Hrtime => Value::Hrtime(self.u64()? as i64),
            DataType::Double => Value::Double(f64::from_bits(self.u64()?)),
            DataType::String => Value::String(self.string()?),
            DataType::ByteArray => Value::ByteArray(self.take(n)?.to_vec()),
            DataType::Uint8Array => Value::Uint8Array(self.take(n)?.to_vec()),
            DataType::Int8Array => Value::Int8Array(self.take(n)?.iter().map(|&b| b as i8).collect()),
            DataType::Int16Array => Value::Int16Array(self.array(n, 2, |r| Ok(r.u16()? as i16))?),
            DataType::Uint16Array => Value::Uint16Array(self.array(n, 2, Self::u16)?),
            DataType::BooleanArray => Value::BooleanArray(self.array(n, 4, Self::bool)?),
            DataType::Int32Array => Value::Int32Array(self.array(n, 4, |r| Ok(r.u32()? as i32))?),
            DataType::Uint32Array => Value::Uint32Array(self.array(n, 4, Self::u32)?),
            DataType::Int64Array => Value::Int64Array(self.array(n, 8, |r| Ok(r.u64()? as i64))?),
            DataType::Uint64Array => Value::Uint64Array(self.array(n, 8, Self::u64)?),
            DataType::StringArray => {
                self.pointers(n)?;
                Value::StringArray(self.array(n, 1, Self::string)?)
            }
            DataType::List => Value::List(self.nvlist_t()?),
            DataType::ListArray => {
                self.pointers(n)?;
                Value::ListArray(self.array(n, NVLIST_T_SIZE, Self::nvlist_t)?)
            }
        })
    }
}
