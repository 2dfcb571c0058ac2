//! Bookmarks.

use platter_api::messages::{ErrorBody, Outcome};
use platter_api::streams::{CreateBookmark, DestroyBookmark, Redact};
use platter_dsl::PoolError;

use super::mounts::pool_of;
use super::{Answer, Daemon, failed};

impl Daemon {
    /// `zfs bookmark`.
    pub async fn create_bookmark(&self, call: &CreateBookmark) -> Answer<Outcome> {
        let (pool, dsl) = self.streaming(&call.bookmark)?;
        let what = format!("cannot create bookmark '{}'", call.bookmark);
        let _lock = self.turn(pool_of(&call.bookmark), &what).await?;
        dsl.create_bookmark(&call.source, &call.bookmark).await.map_err(|error| failed(&what, error))?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// `zfs redact`. It looks at all that changed since: no lock is held meanwhile.
    pub async fn redact(&self, call: &Redact) -> Answer<Outcome> {
        let (pool, dsl) = self.streaming(&call.snapshot)?;
        if let Some(other) = call.others.iter().find(|other| pool_of(other) != pool_of(&call.snapshot)) {
            let text = "potentially invalid redaction snapshot; full dataset names required";
            tracing::debug!(other, "of another pool");
            return Err(ErrorBody::new(text));
        }
        let made = dsl.redact(&call.snapshot, &call.bookmark, &call.others).await;
        made.map_err(|error| ErrorBody::new(error.to_string()))?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// `zfs destroy` of a bookmark.
    pub async fn destroy_bookmark(&self, call: &DestroyBookmark) -> Answer<Outcome> {
        let name = &call.bookmark;
        let (pool, dsl) = self.streaming(name)?;
        let what = format!("cannot destroy '{name}'");
        let _lock = self.turn(pool_of(name), &what).await?;
        dsl.destroy_bookmark(name).await.map_err(|error| match error {
            PoolError::NotFound(_) => ErrorBody::new(format!("bookmark '{name}' does not exist.")),
            error => failed(&what, error),
        })?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }
}
