//! The kernel's switch for FUSE over io_uring, turned on for a run: all FUSE file systems that know it use it.

use std::fs;

use parking_lot::Mutex;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What it was before.
static BEFORE: Mutex<Option<String>> = Mutex::new(None);

/// The switch; put back when this is dropped.
#[derive(Debug)]
pub struct Switch(());

impl Switch {
    /// Turns it `on` or off, where the kernel has it.
    pub fn turn(on: bool) -> Self {
        if let Ok(before) = fs::read_to_string(SWITCH)
            && fs::write(SWITCH, if on { "Y" } else { "N" }).is_ok()
        {
            BEFORE.lock().get_or_insert(before);
        }
        Self(())
    }
}

/// What requests come through now.
pub fn way() -> &'static str {
    let on = fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y");
    if on { "io_uring" } else { "/dev/fuse" }
}

impl Drop for Switch {
    fn drop(&mut self) {
        put_back();
    }
}

/// Puts it back, also when a run ends by force.
pub fn put_back() {
    if let Some(before) = BEFORE.lock().take() {
        let _ = fs::write(SWITCH, before.trim());
    }
}
