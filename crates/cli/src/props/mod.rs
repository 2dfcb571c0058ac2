//! Properties as the commands know them: order, column names, widths and how a raw value is shown.
//!
//! Facts from `module/zcommon/zpool_prop.c`, `zfs_prop.c` and `zprop_common.c`: numbers are right-aligned and at
//! least five wide; an enumerated property is at least as wide as its longest value; strings, enumerations and
//! identifiers grow with what is shown, other numbers only with `-p`.

pub mod pool;
pub mod select;
pub mod vdev;
pub mod zfs;

use platter_api::report::{Property, PropertySource, PropertyValue};

use crate::nice;

/// How a raw value becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: "24K", "0B".
    Bytes,
    /// A plain number, shortened: "128K", "0".
    Number,
    /// A number that is never shortened (guid, txg).
    Identifier,
    /// Bytes where 0 means there is none: "-".
    BytesOrDash,
    /// Bytes where 0 means none: "none".
    BytesOrNone,
    /// A count where the largest number means none.
    CountOrNone,
    /// Hundredths: "1.00x".
    Ratio,
    /// "25%"; the largest number is unknown: "-".
    Percent,
    /// Seconds since the epoch, to the minute.
    Creation,
    /// Seconds since the epoch, to the second; 0 is none.
    SnapshotsChanged,
    /// Pool version: 5000 and above is "-".
    PoolVersion,
    /// Dedup table quota: 0 is "none", the largest number "auto".
    DedupQuota,
    /// One of a list of words; the number is the length of the longest.
    Word(usize),
    /// Any text.
    Text,
}

/// A native property.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Name.
    pub name: &'static str,
    /// Heading of its column, which also serves as a short name ("avail").
    pub column: &'static str,
    /// How it is shown.
    pub kind: Kind,
    /// Whether `all` includes it.
    pub visible: bool,
}

impl Info {
    /// Numbers stand to the right.
    pub fn right_aligned(&self) -> bool {
        !matches!(self.kind, Kind::Word(_) | Kind::Text | Kind::Creation | Kind::SnapshotsChanged)
    }

    /// Whether its column grows with its values.
    pub fn grows(&self) -> bool {
        matches!(self.kind, Kind::Word(_) | Kind::Text | Kind::Identifier | Kind::Creation | Kind::SnapshotsChanged)
    }

    /// Least width of its column.
    pub fn width(&self) -> usize {
        let heading = self.column.len();
        match self.kind {
            Kind::Word(longest) => heading.max(longest),
            Kind::Text => heading,
            _ => heading.max(5),
        }
    }

    /// The value as text; `None` when there is none to show.
    pub fn show(&self, value: &PropertyValue, literal: bool) -> Option<String> {
        let number = match value {
            PropertyValue::Text(text) => return Some(text.clone()),
            PropertyValue::Number(number) => *number,
        };
        let exact = || number.to_string();
        let text = match self.kind {
            Kind::BytesOrDash if number == 0 => "-".to_owned(),
            Kind::BytesOrNone if number == 0 && !literal => "none".to_owned(),
            Kind::CountOrNone if number == u64::MAX => "none".to_owned(),
            Kind::Percent if number == u64::MAX => "-".to_owned(),
            Kind::SnapshotsChanged if number == 0 => return None,
            Kind::PoolVersion if number >= 5000 => "-".to_owned(),
            Kind::DedupQuota if number == u64::MAX => "auto".to_owned(),
            Kind::DedupQuota if number == 0 && !literal => "none".to_owned(),
            Kind::Ratio if literal => nice::ratio(number).trim_end_matches('x').to_owned(),
            Kind::Ratio => nice::ratio(number),
            _ if literal => exact(),
            Kind::Bytes | Kind::BytesOrDash | Kind::BytesOrNone => nice::bytes(number),
            Kind::Number | Kind::CountOrNone | Kind::DedupQuota => nice::num(number),
            Kind::Percent => format!("{number}%"),
            Kind::Creation => nice::creation(number),
            Kind::SnapshotsChanged => nice::creation_with_seconds(number),
            Kind::Identifier | Kind::PoolVersion | Kind::Word(_) | Kind::Text => exact(),
        };
        Some(text)
    }
}

/// Text and source of a property, ready to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Value.
    pub value: String,
    /// Source.
    pub source: PropertySource,
}

impl Shown {
    /// What stands for a property that a thing does not have.
    pub fn nothing() -> Self {
        Self { value: "-".to_owned(), source: PropertySource::None }
    }

    /// A property with its value formatted.
    pub fn of(info: &Info, property: &Property, literal: bool) -> Option<Self> {
        info.show(&property.value, literal).map(|value| Self { value, source: property.source.clone() })
    }
}

/// The SOURCE column.
pub fn source_text(source: &PropertySource) -> String {
    match source {
        PropertySource::None => "-".to_owned(),
        PropertySource::Default => "default".to_owned(),
        PropertySource::Local => "local".to_owned(),
        PropertySource::Inherited(from) => format!("inherited from {from}"),
        PropertySource::Temporary => "temporary".to_owned(),
        PropertySource::Received => "received".to_owned(),
    }
}

/// Name of a source for `zfs get -s`.
pub fn source_word(source: &PropertySource) -> &'static str {
    match source {
        PropertySource::None => "none",
        PropertySource::Default => "default",
        PropertySource::Local => "local",
        PropertySource::Inherited(_) => "inherited",
        PropertySource::Temporary => "temporary",
        PropertySource::Received => "received",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(kind: Kind, number: u64) -> (String, String) {
        let info = Info { name: "x", column: "X", kind, visible: true };
        let text = |literal| info.show(&PropertyValue::Number(number), literal).unwrap_or_default();
        (text(false), text(true))
    }

    #[test]
    fn raw_values_are_shown_as_their_kind_asks() {
        let table = [
            (Kind::Bytes, 0, "0B", "0"),
            (Kind::Bytes, 187_484_048, "179M", "187484048"),
            (Kind::Number, 131_072, "128K", "131072"),
            (Kind::Number, 0, "0", "0"),
            (Kind::Identifier, u64::MAX, "18446744073709551615", "18446744073709551615"),
            (Kind::BytesOrDash, 0, "-", "-"),
            (Kind::BytesOrNone, 0, "none", "0"),
            (Kind::CountOrNone, u64::MAX, "none", "none"),
            (Kind::Ratio, 376, "3.76x", "3.76"),
            (Kind::Percent, 25, "25%", "25"),
            (Kind::Percent, u64::MAX, "-", "-"),
            (Kind::PoolVersion, 5000, "-", "-"),
            (Kind::PoolVersion, 28, "28", "28"),
            (Kind::DedupQuota, u64::MAX, "auto", "auto"),
        ];
        for (kind, number, nice, exact) in table {
            assert_eq!(show(kind, number), (nice.to_owned(), exact.to_owned()), "{kind:?}");
        }
    }
}
