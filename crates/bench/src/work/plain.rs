//! Files that fill a pool: small ones with data, and large ones that cost next to no disk.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Result, While};
use crate::interrupt;
use crate::noise::{CHUNK, Noise};

const GIB: usize = 1 << 30;
/// So many bytes at the start of each MiB are no repetition: a block that gets too short moves into its pointer.
const UNIQUE: usize = 200;

fn small(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("small-{}", number / 1000)).join(format!("{number}"))
}

/// Writes a file of its own for each number, and returns its length.
///
/// # Errors
/// What the file system said.
pub fn write_small(folder: &Path, number: u64, length: u64, noise: &Noise) -> Result<u64> {
    interrupt::check()?;
    let path = small(folder, number);
    let what = || format!("writing {}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).on(what)?;
    let mut file = File::create_new(&path).on(what)?;
    for offset in (0..length).step_by(CHUNK) {
        let piece = noise.at(number << 12 | offset, (length - offset).min(CHUNK as u64) as usize);
        file.write_all(piece).on(what)?;
    }
    Ok(length)
}

/// Removes it.
///
/// # Errors
/// What the file system said.
pub fn remove_small(folder: &Path, number: u64) -> Result<()> {
    interrupt::check()?;
    let path = small(folder, number);
    std::fs::remove_file(&path).on(|| format!("removing {}", path.display()))
}

/// Writes a file of one GiB that a compressor makes very small, for each number.
///
/// # Errors
/// What the file system said.
pub fn write_constant(folder: &Path, number: u64) -> Result<()> {
    let path = folder.join(format!("constant-{number}"));
    let what = || format!("writing {}", path.display());
    let mut piece = vec![0x5a; CHUNK];
    (0..UNIQUE).for_each(|index| piece[index] = index as u8);
    let mut file = File::create_new(&path).on(what)?;
    for index in 0..(GIB / CHUNK) as u64 {
        interrupt::check()?;
        piece[..8].copy_from_slice(&(number << 32 | index).to_le_bytes());
        file.write_all(&piece).on(what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_come_and_go() {
        let (folder, noise) = (tempfile::tempdir().expect("a temporary folder"), Noise::new(2));
        assert_eq!(write_small(folder.path(), 1234, (1 << 20) + 5, &noise).expect("written"), (1 << 20) + 5);
        assert_eq!(small(folder.path(), 1234).metadata().expect("there").len(), (1 << 20) + 5);
        crate::work::sync(folder.path()).expect("synced");
        remove_small(folder.path(), 1234).expect("removed");
        assert!(remove_small(folder.path(), 1234).is_err());
    }
}
