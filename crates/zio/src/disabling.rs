//! Whether a metaslab is to be left alone for now (`ms_disabled` in `include/sys/metaslab_impl.h`).

use std::sync::Arc;

/// Whether something keeps a metaslab from being used, by the shares of this that others have: who has one of a
/// metaslab that has left the pool has none of another one that got its number.
#[derive(Debug, Default)]
pub struct Disabling(Arc<()>);

impl Clone for Disabling {
    /// Nothing keeps the copy from being used.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Disabling {
    /// Whether nothing is to be handed out.
    pub fn is_on(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// It is on for as long as what is returned is kept, at least.
    pub(crate) fn share(&self) -> Arc<()> {
        self.0.clone()
    }

    /// Whether a share is of this.
    pub(crate) fn has(&self, share: &Arc<()>) -> bool {
        Arc::ptr_eq(&self.0, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_as_long_as_somebody_has_a_share_of_it() {
        let (one, other) = (Disabling::default(), Disabling::default());
        let (first, second) = (one.share(), one.share());
        assert!(one.is_on() && one.has(&first) && !other.is_on() && !other.has(&first));
        assert!(!one.clone().is_on(), "a copy is another metaslab's");
        drop(first);
        assert!(one.is_on());
        drop(second);
        assert!(!one.is_on());
    }
}
