//! Where a receive that was broken off goes on, as a text that people carry to `zfs send -t`
//! (`get_receive_resume_token_impl`, `module/zfs/dsl_dataset.c`; `zfs_send_resume_token_to_nvlist`,
//! `lib/libzfs/libzfs_sendrecv.c`).
//!
//! `1-CHECKSUM-LENGTH-BYTES`, all hexadecimal: the bytes are a list, compressed with zlib; the length is the list's,
//! the checksum the first word of the Fletcher-4 of the compressed bytes.

use platter_checksum::fletcher_4;
use platter_nvlist::{NvList, Value};
use platter_ondisk::{Compression, Guid, ObjectId};

use crate::error::StreamError;

/// Largest list in a token, in bytes: a name and a few numbers.
const LIST_MAX: usize = 1 << 20;

/// Names of lists of snapshots in a token.
const REDACTED: &str = "redact_snaps";
const FROM_REDACTED: &str = "book_redact_snaps";

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeToken {
    /// The snapshot before, which the other side has; none of a full stream.
    pub from_guid: Option<Guid>,
    /// The object that was written last.
    pub object: ObjectId,
    /// The first byte of its block that was written last.
    pub offset: u64,
    /// Bytes of the stream so far.
    pub bytes: u64,
    /// The snapshot.
    pub to_guid: Guid,
    /// Its full name where it is sent.
    pub to_name: String,
    /// Whether blocks beyond 128 KiB are sent as they are.
    pub large_blocks: bool,
    /// Whether blocks that are in their pointers are sent as they are.
    pub embedded: bool,
    /// Whether compressed blocks are sent as they are.
    pub compressed: bool,
    /// Whether encrypted blocks are sent as they are.
    pub raw: bool,
    /// For the sake of which snapshots blocks are left out; none of a stream that is whole.
    pub redacted: Option<Vec<Guid>>,
    /// The same of the bookmark on which it builds.
    pub from_redacted: Option<Vec<Guid>>,
}

impl ResumeToken {
    /// As a list, in the order in which OpenZFS shows it.
    pub fn to_list(&self) -> NvList {
        let mut list = NvList::new();
        if let Some(from) = self.from_guid {
            list.add_u64("fromguid", from.0);
        }
        list.add_u64("object", self.object.0).add_u64("offset", self.offset).add_u64("bytes", self.bytes);
        list.add_u64("toguid", self.to_guid.0).add_str("toname", self.to_name.clone());
        let flags = [
            ("largeblockok", self.large_blocks),
            ("embedok", self.embedded),
            ("compressok", self.compressed),
            ("rawok", self.raw),
        ];
        flags.iter().filter(|(_, set)| *set).for_each(|(name, _)| {
            list.add_flag(*name);
        });
        for (name, snaps) in [(REDACTED, &self.redacted), (FROM_REDACTED, &self.from_redacted)] {
            if let Some(snaps) = snaps {
                list.add(name, Value::Uint64Array(snaps.iter().map(|guid| guid.0).collect()));
            }
        }
        list
    }

    fn from_list(list: &NvList) -> Result<Self, StreamError> {
        let number = |name: &str| match list.get_u64(name) {
            Some(number) => Ok(number),
            None => StreamError::malformed(format!("resume token is corrupt: no {name}")),
        };
        let snaps = |name: &str| Some(list.get_u64_array(name)?.iter().map(|&guid| Guid(guid)).collect());
        Ok(Self {
            from_guid: list.get_u64("fromguid").filter(|&guid| guid != 0).map(Guid),
            object: ObjectId(number("object")?),
            offset: number("offset")?,
            bytes: number("bytes")?,
            to_guid: Guid(number("toguid")?),
            to_name: list.get_str("toname").unwrap_or_default().to_owned(),
            large_blocks: list.contains("largeblockok"),
            embedded: list.contains("embedok"),
            compressed: list.contains("compressok"),
            raw: list.contains("rawok"),
            redacted: snaps(REDACTED),
            from_redacted: snaps(FROM_REDACTED),
        })
    }

    /// As the text.
    pub fn encode(&self) -> String {
        let packed = self.to_list().encode_native();
        let mut compressed = vec![0; packed.len() + packed.len() / 8 + 64];
        let length = platter_compress::compress(Compression::GZIP_6, 0, &packed, &mut compressed);
        compressed.truncate(length.expect("there is room for more than what went in"));
        let sum = fletcher_4(&compressed)[0];
        let hexadecimal: String = compressed.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("1-{sum:x}-{:x}-{hexadecimal}", packed.len())
    }

    /// From the text.
    ///
    /// # Errors
    /// It is none, or was changed on its way.
    pub fn parse(text: &str) -> Result<Self, StreamError> {
        let parts: Vec<&str> = text.splitn(4, '-').collect();
        let [version, sum, length, bytes] = parts[..] else {
            return StreamError::malformed("resume token is corrupt (invalid format)");
        };
        if version != "1" {
            return StreamError::malformed("resume token is corrupt (invalid version)");
        }
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let length = number(length).and_then(|length| usize::try_from(length).ok());
        let (Some(sum), Some(length)) = (number(sum), length.filter(|&length| length <= LIST_MAX)) else {
            return StreamError::malformed("resume token is corrupt (invalid format)");
        };
        let compressed = from_hexadecimal(bytes)?;
        if fletcher_4(&compressed)[0] != sum {
            return StreamError::malformed("resume token is corrupt (incorrect checksum)");
        }
        let mut packed = vec![0; length];
        if platter_compress::decompress(Compression::GZIP_6, &compressed, &mut packed).is_err() {
            return StreamError::malformed("resume token is corrupt (decompression failed)");
        }
        match NvList::decode(&packed) {
            Ok(list) => Self::from_list(&list),
            Err(_) => StreamError::malformed("resume token is corrupt (nvlist_unpack failed)"),
        }
    }
}

fn from_hexadecimal(text: &str) -> Result<Vec<u8>, StreamError> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) && digits.len() <= 4 * LIST_MAX => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => StreamError::malformed("resume token is corrupt (payload is not hex-encoded)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> ResumeToken {
        ResumeToken {
            from_guid: Some(Guid(7)),
            object: ObjectId(128),
            offset: 1 << 40,
            bytes: 123_456,
            to_guid: Guid(u64::MAX),
            to_name: "tank/ü@a".into(),
            compressed: true,
            redacted: Some(vec![Guid(3), Guid(u64::MAX)]),
            from_redacted: Some(Vec::new()),
            ..ResumeToken::default()
        }
    }

    #[test]
    fn a_token_says_what_it_was_told() {
        for token in [token(), ResumeToken { from_guid: None, embedded: true, large_blocks: true, ..token() }] {
            assert_eq!(ResumeToken::parse(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn what_was_changed_is_no_token() {
        let text = token().encode();
        for at in 0..text.len() {
            for other in ["0", "7", "f", "-", "x", "ü"] {
                let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
                let parsed = ResumeToken::parse(&changed);
                assert!(changed == text || parsed.is_err() || parsed == Ok(token()), "{changed}");
            }
            assert!(ResumeToken::parse(&text[..at]).is_err());
        }
    }
}
