//! Printing a list as `zdb -l` does: one pair per line, nested lists indented by four.

use crate::types::{NvList, Value};
use std::fmt;

impl fmt::Display for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f, 0)
    }
}

fn show(list: &NvList, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
    for (name, value) in list.iter() {
        match value {
            Value::List(nested) => {
                writeln!(f, "{:indent$}{name}:", "")?;
                show(nested, f, indent + 4)?;
            }
            Value::ListArray(lists) => {
                for (i, nested) in lists.iter().enumerate() {
                    writeln!(f, "{:indent$}{name}[{i}]:", "")?;
                    show(nested, f, indent + 4)?;
                }
            }
            Value::Boolean => writeln!(f, "{:indent$}{name}", "")?,
            _ => {
                write!(f, "{:indent$}{name}: ", "")?;
                show_plain(value, f)?;
                writeln!(f)?;
            }
        }
    }
    Ok(())
}

fn show_plain(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::Boolean | Value::List(_) | Value::ListArray(_) => Ok(()),
        Value::Byte(v) | Value::Uint8(v) => write!(f, "{v}"),
        Value::Int8(v) => write!(f, "{v}"),
        Value::Int16(v) => write!(f, "{v}"),
        Value::Uint16(v) => write!(f, "{v}"),
        Value::Int32(v) => write!(f, "{v}"),
        Value::Uint32(v) => write!(f, "{v}"),
        Value::Int64(v) | Value::Hrtime(v) => write!(f, "{v}"),
        Value::Uint64(v) => write!(f, "{v}"),
        Value::BooleanValue(v) => write!(f, "{v}"),
        Value::Double(v) => write!(f, "{v}"),
        Value::String(v) => write!(f, "'{v}'"),
        Value::ByteArray(v) | Value::Uint8Array(v) => join(v, f),
        Value::Int8Array(v) => join(v, f),
        Value::Int16Array(v) => join(v, f),
        Value::Uint16Array(v) => join(v, f),
        Value::Int32Array(v) => join(v, f),
        Value::Uint32Array(v) => join(v, f),
        Value::Int64Array(v) => join(v, f),
        Value::Uint64Array(v) => join(v, f),
        Value::BooleanArray(v) => join(v, f),
        Value::StringArray(v) => join(v, f),
    }
}

fn join<T: fmt::Display>(values: &[T], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if i > 0 { " " } else { "" })?;
    }
    Ok(())
}
