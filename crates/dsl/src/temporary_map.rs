//! The map of holds that last as long as the pool is imported (`dp_tmp_userrefs_obj`, `module/zfs/dsl_pool.c`): an
//! entry `OBJECT-TAG` for each, the object's number in hexadecimal digits, with when it was set in seconds since the
//! epoch.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_ondisk::{ObjectId, ObjectType};

use crate::error::Result;
use crate::mos;
use crate::pool::DslPool;

fn key(object: ObjectId, tag: &str) -> String {
    format!("{:x}-{tag}", object.0)
}

/// The object and the tag of an entry.
pub fn parsed(key: &[u8]) -> Option<(ObjectId, String)> {
    let (object, tag) = std::str::from_utf8(key).ok()?.split_once('-')?;
    let object = u64::from_str_radix(object, 16).ok()?;
    Some((ObjectId(object), tag.to_owned()))
}

/// The map of the pool; none: it never had such holds.
///
/// # Errors
/// Device errors, damage.
pub async fn map(dsl: &DslPool) -> Result<Option<Zap>> {
    match dsl.directory.get_u64(mos::TMP_USERREFS.as_bytes()).await? {
        Some(object) if object != 0 => Ok(Some(Zap::open(&dsl.mos, ObjectId(object)).await?)),
        _ => Ok(None),
    }
}

/// Enters a hold. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn note(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId, tag: &str) -> Result<()> {
    let map = match map(dsl).await? {
        Some(map) => map,
        None => {
            let made = mos::create_zap(&dsl.mos, tx, ObjectType::USERREFS, dsl.random()).await?;
            dsl.directory.put_u64(tx, mos::TMP_USERREFS.as_bytes(), made.0).await?;
            Zap::open(&dsl.mos, made).await?
        }
    };
    Ok(map.add_u64(tx, key(object, tag).as_bytes(), dsl.now()).await?)
}

/// Takes the entry of a hold away, if there is one. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn forget(dsl: &DslPool, tx: &Tx, object: ObjectId, tag: &str) -> Result<()> {
    let (Some(map), key) = (map(dsl).await?, key(object, tag)) else { return Ok(()) };
    if map.get_u64(key.as_bytes()).await?.is_some() {
        map.remove(tx, key.as_bytes()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_number_in_hexadecimal_digits_and_a_tag_that_may_have_anything_in_it() {
        let found = parsed(key(ObjectId(0x1f3), ".zfs-diff-12-ab").as_bytes()).expect("an entry");
        assert_eq!(found, (ObjectId(0x1f3), ".zfs-diff-12-ab".to_owned()));
        for wrong in [&b""[..], b"12", b"-tag", b"xyz-tag", b"\xff-tag", b"10000000000000000-tag"] {
            assert_eq!(parsed(wrong), None);
        }
    }
}
