//! Native properties of pools, in the order of `zpool get all` (`module/zcommon/zpool_prop.c`): what they are called,
//! what they may be, who may set them. Engine and command line know no other list of them.

/// What values a property takes, and how they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words, which are stored by their place in the list; of them this version acts on some.
    Words {
        /// All of them.
        all: &'static [&'static str],
        /// Those that can be set, as a refusal names them.
        settable: &'static [&'static str],
    },
    /// Free text.
    Text,
    /// A number, mostly of bytes.
    Number,
    /// A number that is never shortened (guid, txg).
    Identifier,
    /// Bytes where 0 means that there is none.
    BytesOrNone,
    /// Percent; the largest number is unknown.
    Percent,
    /// Hundredths.
    Ratio,
    /// `spa_version`.
    PoolVersion,
    /// Bytes; 0 is none, the largest number `auto`.
    DedupQuota,
}

/// Who may set a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nobody, or only at creation and import.
    ReadOnly,
    /// `zpool set`.
    Settable,
    /// `zpool set` of OpenZFS; this version has nothing that would act on it.
    NotYet,
    /// It is no property that `all` includes.
    Hidden,
}

/// A native property of pools.
#[derive(Clone, Copy, Debug)]
pub struct PoolProperty {
    /// Name.
    pub name: &'static str,
    /// Heading of its column, which also serves as a short name ("cap").
    pub column: &'static str,
    /// Values.
    pub values: Values,
    /// What is shown of one that can be set and is not.
    pub default: &'static str,
    /// Who may set it.
    pub access: Access,
}

const fn told(name: &'static str, column: &'static str, values: Values) -> PoolProperty {
    PoolProperty { name, column, values, default: "-", access: Access::ReadOnly }
}

const fn set(name: &'static str, column: &'static str, values: Values, default: &'static str) -> PoolProperty {
    PoolProperty { name, column, values, default, access: Access::Settable }
}

impl PoolProperty {
    const fn not_yet(self) -> Self {
        Self { access: Access::NotYet, ..self }
    }
}

const ON_OFF: Values = Values::Words { all: &["off", "on"], settable: &["on", "off"] };
const FAIL_MODES: Values =
    Values::Words { all: &["wait", "continue", "panic"], settable: &["wait", "continue", "panic"] };

/// All of them.
pub const TABLE: &[PoolProperty] = &[
    PoolProperty { access: Access::Hidden, ..told("name", "NAME", Values::Text) },
    told("size", "SIZE", Values::Number),
    told("capacity", "CAP", Values::Percent),
    told("altroot", "ALTROOT", Values::Text),
    // A number inside OpenZFS, and so to the right.
    told("health", "HEALTH", Values::Number),
    told("guid", "GUID", Values::Identifier),
    told("version", "VERSION", Values::PoolVersion),
    told("bootfs", "BOOTFS", Values::Text).not_yet(),
    set("delegation", "DELEGATION", ON_OFF, "on"),
    set("autoreplace", "REPLACE", ON_OFF, "off"),
    set("cachefile", "CACHEFILE", Values::Text, "-"),
    set("failmode", "FAILMODE", FAIL_MODES, "wait"),
    set("listsnapshots", "LISTSNAPS", ON_OFF, "off"),
    set("autoexpand", "EXPAND", ON_OFF, "off"),
    told("dedupratio", "DEDUP", Values::Ratio),
    told("free", "FREE", Values::Number),
    told("allocated", "ALLOC", Values::Number),
    told("readonly", "RDONLY", ON_OFF),
    set("ashift", "ASHIFT", Values::Number, "0"),
    set("comment", "COMMENT", Values::Text, "-"),
    told("expandsize", "EXPANDSZ", Values::BytesOrNone),
    told("freeing", "FREEING", Values::Number),
    told("fragmentation", "FRAG", Values::Percent),
    told("leaked", "LEAKED", Values::Number),
    set("multihost", "MULTIHOST", ON_OFF, "off"),
    told("checkpoint", "CKPOINT", Values::BytesOrNone),
    told("load_guid", "LOAD_GUID", Values::Identifier),
    set("autotrim", "AUTOTRIM", ON_OFF, "off"),
    set("compatibility", "COMPATIBILITY", Values::Text, "off"),
    told("bcloneused", "BCLONE_USED", Values::Number),
    told("bclonesaved", "BCLONE_SAVED", Values::Number),
    told("bcloneratio", "BCLONE_RATIO", Values::Ratio),
    told("dedup_table_size", "DDTSIZE", Values::Number),
    told("dedup_table_quota", "DDTQUOTA", Values::DedupQuota).not_yet(),
    told("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Values::Identifier),
];

/// The property of this name.
pub fn by_name(name: &str) -> Option<&'static PoolProperty> {
    TABLE.iter().find(|property| property.name == name)
}

impl PoolProperty {
    /// The number by which a word is stored; `None` when it is no word of this property.
    pub fn number_of(&self, word: &str) -> Option<u64> {
        let Values::Words { all, .. } = self.values else { return None };
        all.iter().position(|known| *known == word).map(|place| place as u64)
    }

    /// The word that is stored as this number; a larger number, which a newer version may store, is the last word.
    pub fn word_of(&self, number: u64) -> Option<&'static str> {
        let Values::Words { all, .. } = self.values else { return None };
        let last = all.len().checked_sub(1)?;
        usize::try_from(number).map_or(Some(all[last]), |place| all.get(place.min(last)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_stored_by_their_numbers() {
        for (name, word, number) in [("failmode", "panic", 2), ("delegation", "on", 1), ("autotrim", "off", 0)] {
            let property = by_name(name).unwrap();
            assert_eq!((property.number_of(word), property.word_of(number)), (Some(number), Some(word)), "{name}");
            assert!(property.word_of(u64::MAX).is_some() && property.number_of("nonsense").is_none());
        }
        assert_eq!(by_name("comment").unwrap().word_of(0), None);
    }

    #[test]
    fn a_name_stands_once_and_a_default_is_a_value() {
        for property in TABLE {
            assert_eq!(TABLE.iter().filter(|other| other.name == property.name).count(), 1, "{}", property.name);
            if let (Values::Words { all, settable }, Access::Settable) = (property.values, property.access) {
                assert!(all.contains(&property.default) && settable.iter().all(|word| all.contains(word)));
            }
        }
    }
}
