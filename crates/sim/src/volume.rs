//! An open volume, with its log replayed.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use platter_api::request::Setting;
use platter_dsl::volume::{OpenVolume, Server};
use platter_spa::Pool;
use platter_zvol::{Keeper, OpenOptions, UnlimitedSpace};

fn text(error: impl std::fmt::Display) -> String {
    format!("volume: {error}")
}

/// See the module text.
pub struct Volume {
    volume: Arc<platter_zvol::Volume>,
    open: OpenVolume,
    /// Told of new sizes.
    _serving: Arc<Serving>,
}

struct Serving(Arc<platter_zvol::Volume>);

impl Server for Serving {
    fn resized(&self, size: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.0.set_size(size))
    }

    fn set_read_only(&self, read_only: bool) {
        self.0.set_read_only(read_only);
    }
}

/// Gives volume `name` another size.
///
/// # Errors
/// What the engine said.
pub async fn resize(pool: &Arc<Pool>, name: &str, size: usize) -> Result<(), String> {
    let setting = [("volsize".to_owned(), Setting::Value(size.to_string()))];
    pool.dsl().set_dataset_properties(name, &setting).await.map_err(text)
}

/// Everything in a volume's snapshot.
///
/// # Errors
/// What could not be read.
pub async fn read_snapshot(pool: &Arc<Pool>, full_name: &str) -> Result<Vec<u8>, String> {
    let objset = pool.dsl().open_snapshot(full_name).await.map_err(text)?;
    let options = OpenOptions { read_only: true, log: None, space: Arc::new(UnlimitedSpace) };
    read_all(&*platter_zvol::Volume::open(objset, options).await.map_err(text)?).await
}

async fn read_all(volume: &platter_zvol::Volume) -> Result<Vec<u8>, String> {
    let pieces = volume.read(0, volume.size(), Keeper::Nobody).await.map_err(text)?;
    Ok(pieces.iter().flat_map(|piece| piece.to_vec()).collect())
}

impl Volume {
    /// Opens the volume `name`.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn open(pool: &Arc<Pool>, name: &str) -> Result<Self, String> {
        let open = pool.dsl().open_volume(name).await.map_err(text)?;
        let options = OpenOptions { read_only: false, log: open.log.clone(), space: Arc::new(UnlimitedSpace) };
        let volume = platter_zvol::Volume::open(open.objset.clone(), options).await.map_err(text)?;
        let serving = Arc::new(Serving(volume.clone()));
        let server: Weak<dyn Server> = Arc::downgrade(&serving) as _;
        open.served_by(server);
        Ok(Self { volume, open, _serving: serving })
    }

    /// Gives it back.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn close(self, pool: &Arc<Pool>) -> Result<(), String> {
        let Self { volume, open, _serving } = self;
        drop((volume, _serving));
        pool.dsl().close_volume(open).await.map_err(text)
    }

    /// Everything in it.
    ///
    /// # Errors
    /// What could not be read.
    pub async fn read(&self) -> Result<Vec<u8>, String> {
        read_all(&self.volume).await
    }

    /// Writes.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn write(&self, offset: usize, data: &[u8]) -> Result<(), String> {
        let written = self.volume.write(offset as u64, data, Keeper::Nobody).await.map_err(text)?;
        if written == data.len() { Ok(()) } else { Err(text(format!("{written} bytes written"))) }
    }

    /// Discards.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn clear(&self, offset: usize, length: usize) -> Result<(), String> {
        self.volume.clear(offset as u64, length as u64).await.map_err(text)
    }

    /// Makes everything written stable.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn fsync(&self) -> Result<(), String> {
        self.volume.fsync().await.map_err(text)
    }
}
