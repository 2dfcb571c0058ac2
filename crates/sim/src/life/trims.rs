//! Disks that are told what is free, while files are worked on, other disks are away and the power fails. What such a
//! place holds afterwards is anything: a trim of what is in use shows as files that are wrong.

use platter_api::request::{FreeWork, PoolChange, TrimAction};
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::story::Story;

/// In one stretch of work of so many something is begun or ended.
const EVERY: u32 = 2;

impl Story {
    /// Perhaps begins or ends a trim, or lets what becomes free be given up by itself, or no more.
    pub(super) async fn trim(&mut self, pool: &Pool) {
        let Some(random) = self.trimming.as_mut() else { return };
        if !random.next_u32().is_multiple_of(EVERY) {
            return;
        }
        let start = |rate| FreeWork::Trim(TrimAction::Start { rate, secure: false });
        let work = match random.next_u32() % 7 {
            0..3 => start(0),
            3 => start(1 << 20),
            4 => FreeWork::Trim(TrimAction::Suspend),
            5 => FreeWork::Trim(TrimAction::Cancel),
            _ => {
                let value = if random.next_u32().is_multiple_of(4) { "off" } else { "on" };
                // What is refused while disks are away is of no interest.
                let set = pool.set_property("autotrim", value).await.is_ok();
                return self.note(&format!("autotrim={value}: {set}"));
            }
        };
        let done = pool.change(PoolChange::Free { work, devices: Vec::new() }).await;
        self.note(&format!("{work:?}: {:?}", done.map(|changed| changed.problems).map_err(|error| error.to_string())));
    }
}
