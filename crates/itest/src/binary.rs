//! Finds the `platter` binary under test.
//!
//! `PLATTER_BIN` wins. Otherwise the binary beside this test in the same cargo target folder and profile is brought up
//! to date with one `cargo build -p platter` (a no-op of some 100 ms when it is fresh), because cargo does not build
//! another package's binary for an integration test and a stale one would be judged instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the binary under test, built at most once for each test process.
///
/// # Panics
/// When there is no such binary and it cannot be built: nothing can be tested then.
pub fn platter() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("PLATTER_BIN") {
        Some(path) => {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "PLATTER_BIN={} is not a file", path.display());
            path.canonicalize().expect("PLATTER_BIN resolves")
        }
        None => build(),
    })
}

fn build() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    // TARGET/PROFILE/deps/test-HASH
    let profile_dir = exe.parent().and_then(Path::parent).expect("a test lies in TARGET/PROFILE/deps").to_path_buf();
    let target_dir = profile_dir.parent().expect("PROFILE lies in TARGET").to_path_buf();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "platter", "--target-dir"]).arg(&target_dir);
    if profile_dir.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(status.success(), "cargo build -p platter failed");
    let binary = profile_dir.join("platter");
    assert!(binary.is_file(), "cargo built no {}; set PLATTER_BIN", binary.display());
    binary
}

/// A copy of the program at `path`. Another process writes it: one that a thread of ours starts meanwhile would have a
/// descriptor of ours open for a moment, and what is open for writing cannot be run ("Text file busy").
///
/// # Panics
/// When it cannot be made.
pub fn copy_to(path: &Path) {
    let copied = Command::new("cp").arg(platter()).arg(path).status().expect("cp");
    assert!(copied.success(), "no copy of the program at {}", path.display());
}
