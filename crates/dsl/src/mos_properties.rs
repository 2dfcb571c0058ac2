//! How the meta object set is written.

use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::{Objset, RedundantMetadata, Tx, UserAccounting, WriteProperties};
use platter_ondisk::{Checksum, Compression, ObjectId, ObjsetType};
use platter_zio::memory::{FreeAtOnce, MemoryStore};

use crate::features::Features;
use crate::version::PoolVersion;

/// What the structures of object sets may be in a pool of this version with these features.
pub fn format(version: PoolVersion, features: &Features) -> platter_dmu::Format {
    version.format(features.is_active(Feature::Lz4Compress))
}

/// How the MOS of a pool of this version with these features is written.
pub fn mos_properties(version: PoolVersion, features: &Features) -> WriteProperties {
    let format = format(version, features);
    WriteProperties {
        embedded_data: features.is_enabled(Feature::EmbeddedData),
        compression: format.compression,
        format,
        ..first_mos_properties()
    }
}

/// What the MOS is opened with, before it says what it may hold: nothing is written with these.
pub fn first_mos_properties() -> WriteProperties {
    WriteProperties {
        checksum: Checksum::FLETCHER_4,
        compression: Compression::LZ4,
        compression_level: 0,
        copies: 3,
        record_size: 128 << 10,
        is_mos: true,
        embedded_data: true,
        dnode_size: DNODE_SIZE as u32,
        redundant_metadata: RedundantMetadata::All,
        format: platter_dmu::Format::default(),
        accounting: UserAccounting::default(),
    }
}

/// An empty MOS in memory, for tests of what is stored in one.
pub fn in_memory(tx: &Tx) -> Arc<Objset> {
    let store = Arc::new(MemoryStore::new());
    let params = platter_dmu::ObjsetParams {
        store: store.clone(),
        accounting: Arc::new(FreeAtOnce(store)),
        gate: platter_dmu::TxgGate::new(tx.txg(), 1 << 30),
        id: ObjectId::NONE,
        properties: first_mos_properties(),
        read_only: false,
    };
    Objset::create(params, ObjsetType::META, tx)
}
