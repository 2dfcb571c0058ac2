//! The outside judge: OpenZFS's zdb looks at a sample of what Platter made of crashed disks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use platter_model::disk::Image;

/// Whether zdb is there to ask.
pub fn is_there() -> bool {
    Command::new("zdb").arg("-V").output().is_ok()
}

/// Asks zdb about the pool `tank` on images of disks, each of so many bytes: whether every block has its checksum, and
/// whether the space maps hold exactly what is referred to.
///
/// # Errors
/// What zdb said, or why it could not be asked.
pub fn verdict(disks: &[(Image, u64)]) -> Result<(), String> {
    let text = |error: std::io::Error| format!("writing disks for zdb: {error}");
    let folder = tempfile::tempdir().map_err(text)?;
    for (index, (image, size)) in disks.iter().enumerate() {
        write(&folder.path().join(format!("d{index}")), image, *size).map_err(text)?;
    }
    let output = Command::new("zdb").args(["-e", "-p"]).arg(folder.path()).args(["-bcc", "tank"]).output();
    let output = output.map_err(|error| format!("zdb: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() && said.contains("No leaks") {
        return Ok(());
    }
    Err(format!("zdb ({}): {said}", output.status))
}

fn write(path: &Path, image: &Image, size: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(size)?;
    for (offset, bytes) in image.chunks() {
        file.write_all_at(bytes, offset)?;
    }
    Ok(())
}
