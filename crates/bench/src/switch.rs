//! The kernel's switch for FUSE over io_uring, turned on for a run: all FUSE file systems that know it use it. It
//! counts when a file system is mounted.

use std::fs;

use parking_lot::Mutex;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What requests come through without it.
pub const DEVICE: &str = "/dev/fuse";

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

fn is_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y")
}

/// What requests come through now.
pub fn way() -> &'static str {
    if is_on() { "io_uring" } else { DEVICE }
}

/// What `mount` returns while the switch is off: what it mounts is served through `/dev/fuse`.
pub fn without<T>(mount: impl FnOnce() -> T) -> T {
    let was_on = is_on() && fs::write(SWITCH, "N").is_ok();
    let mounted = mount();
    if was_on && let Err(error) = fs::write(SWITCH, "Y") {
        eprintln!("{SWITCH} stays off: {error}");
    }
    mounted
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
