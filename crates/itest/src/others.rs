//! What tests need whose commands are run by users other than root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::{Lab, binary, judge};

/// A lab whose folders everybody may enter, and our command where everybody may run it; nothing where no test can act
/// as somebody else. `who` says whose commands would be run.
pub fn lab_for_others(who: &str) -> Option<(Lab, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        judge::skip(who, "acting as another user takes root");
        return None;
    }
    judge::need("setpriv")?;
    let lab = Lab::open()?;
    let program = lab.tmp().join("platter");
    binary::copy_to(&program);
    for path in [lab.root(), &lab.tmp()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    Some((lab, program))
}
