//! Image files of other programs, through `qemu-img`.

use std::path::Path;
use std::process::{Command, Stdio};

use platter_api::messages::ErrorBody;

use crate::session::{Failure, refused};

const PROGRAM: &str = "qemu-img";

fn started(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::NotFound {
        let body = ErrorBody::new(format!("'{PROGRAM}' is not there, which reads and writes this format"));
        return Failure::Refused(body.hint("install it (Debian, Ubuntu: qemu-utils; Fedora: qemu-img), or use raw"));
    }
    refused(format!("cannot start '{PROGRAM}': {error}"))
}

/// Copies one image into another; `target_is_there` says that the target has its size and is filled.
fn convert(from: (&str, &Path), to: (&str, &Path), target_is_there: bool) -> Result<(), Failure> {
    let mut command = Command::new(PROGRAM);
    command.arg("convert").args(["-f", from.0, "-O", to.0]);
    if target_is_there {
        // What is not in the image must read as zeros in the volume, too: nothing is known of what is there.
        command.arg("-n");
    }
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        command.arg("-p");
    }
    let status = command.arg(from.1).arg(to.1).stdin(Stdio::null()).status().map_err(|error| started(&error))?;
    match status.success() {
        true => Ok(()),
        false => Err(refused(format!("'{PROGRAM} convert' failed: {status}"))),
    }
}

/// Writes the volume at `volume` into the new image `file`.
///
/// # Errors
/// `qemu-img` is not there or fails.
pub fn from_volume(volume: &Path, file: &Path) -> Result<(), Failure> {
    convert(("raw", volume), ("qcow2", file), false)
}

/// Writes the image `file` into the volume at `volume`.
///
/// # Errors
/// `qemu-img` is not there or fails.
pub fn into_volume(file: &Path, volume: &Path) -> Result<(), Failure> {
    convert(("qcow2", file), ("raw", volume), true)
}

/// Bytes of the disk that is in the image `file`.
///
/// # Errors
/// `qemu-img` is not there, or does not know the file.
pub fn virtual_size(file: &Path) -> Result<u64, Failure> {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["info", "-f", "qcow2", "--output=json"]).arg(file).output();
    let output = output.map_err(|error| started(&error))?;
    if !output.status.success() {
        return Err(refused(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let size = serde_json::from_slice::<serde_json::Value>(&output.stdout).ok();
    let size = size.and_then(|info| info.get("virtual-size").and_then(serde_json::Value::as_u64));
    size.ok_or_else(|| refused(format!("'{PROGRAM} info' does not tell the size of '{}'", file.display())))
}
