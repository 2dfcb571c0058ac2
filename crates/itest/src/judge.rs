//! Which judges are on this machine, and what happens when one is not.
//!
//! A missing judge never passes in silence: it is reported on the terminal, past the test runner's capture, or fails
//! the test when `PLATTER_REQUIRE_JUDGES=1`.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether missing judges are failures (`PLATTER_REQUIRE_JUDGES=1`, as in CI).
pub fn required() -> bool {
    std::env::var_os("PLATTER_REQUIRE_JUDGES").is_some_and(|value| value == "1")
}

/// Reports that something was not judged and why, or fails when judges are required.
///
/// # Panics
/// When [`required`] holds.
pub fn skip(what: &str, why: &str) {
    assert!(!required(), "PLATTER_REQUIRE_JUDGES=1, but {what} cannot be judged: {why}");
    // Not eprintln!: the test runner would swallow it.
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: {what}: {why} (`.ci/run judges` installs what is missing)");
}

/// Full path of a program, looked up in `PATH` and in the folders where Debian puts system programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// The program's path, or a reported skip.
pub fn need(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        skip(program, "the program is not installed");
    }
    found
}

/// Whether FUSE mounts can be made here; a reported skip when not.
pub fn need_fuse() -> bool {
    let usable = Path::new("/dev/fuse").exists()
        && (rustix::process::geteuid().is_root() || find("fusermount3").is_some() || find("fusermount").is_some());
    if !usable {
        skip("a FUSE mount", "no /dev/fuse, or neither root nor fusermount3");
    }
    usable
}
