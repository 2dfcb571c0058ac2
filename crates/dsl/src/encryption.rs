//! What can be told about an encrypted data set without its key (`include/sys/dsl_crypt.h`): how it is encrypted and
//! which data set holds the key.

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result};
use platter_ondisk::{ObjectId, ObjectType};

use crate::dir::Dir;

/// Active while there is such a data set.
pub const FEATURE: Feature = Feature::Encryption;
/// The directory's entry that names the object with its key (`DD_FIELD_CRYPTO_KEY_OBJ`).
const KEY_OBJECT: &[u8] = b"com.datto:crypto_key_obj";
/// `enum zio_encrypt` (`include/sys/zio.h`), from 3 on.
const SUITES: [&str; 6] = ["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm"];
/// `zfs_keyformat_t` (`include/sys/fs/zfs.h`), from 1 on.
const FORMATS: [&str; 3] = ["raw", "hex", "passphrase"];

/// How a data set is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Property `encryption`.
    pub suite: String,
    /// Property `keyformat`.
    pub format: String,
    /// Property `pbkdf2iters`; 0 unless the key is made of a passphrase.
    pub iterations: u64,
    /// The directory whose key wraps this one's.
    pub root: ObjectId,
}

fn named(names: &[&str], first: u64, number: u64) -> String {
    let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| names.get(index)).map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

/// How the data sets of `dir` are encrypted, if they are.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn of(mos: &Arc<Objset>, dir: &Dir) -> Result<Option<Encryption>> {
    let dnode = mos.dnode(dir.object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    let Some(key) = Zap::from_dnode(dnode).get_u64(KEY_OBJECT).await?.filter(|key| *key != 0) else { return Ok(None) };
    let key = Zap::open(mos, ObjectId(key)).await?;
    let number = async |name: &[u8]| key.get_u64(name).await.map(|number| number.unwrap_or(0));
    Ok(Some(Encryption {
        suite: named(&SUITES, 3, number(b"DSL_CRYPTO_SUITE").await?),
        format: named(&FORMATS, 1, number(b"keyformat").await?),
        iterations: number(b"pbkdf2iters").await?,
        root: ObjectId(number(b"DSL_CRYPTO_ROOT_DDOBJ").await?),
    }))
}
