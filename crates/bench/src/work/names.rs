//! Many small files in one directory: made, looked at, listed, removed, by one thread.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Done, Part, in_threads};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::Random;

fn path(folder: &Path, index: u64) -> PathBuf {
    folder.join("many").join(format!("file-{index:08}"))
}

/// Every number below `count` once, in an order that is not the one of creation.
fn shuffled(count: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    let mut random = Random::new(count);
    for index in (1..all.len()).rev() {
        all.swap(index, random.below(index as u64 + 1) as usize);
    }
    all
}

fn each(order: &[u64], work: impl Fn(u64) -> Result<()> + Sync) -> Result<Done> {
    in_threads(1, |_| {
        let mut part = Part::default();
        for &index in order {
            interrupt::check()?;
            part.time(0, || work(index))?;
        }
        Ok(part)
    })
}

/// Makes `count` empty files.
///
/// # Errors
/// What the file system said.
pub fn create_files(folder: &Path, count: u64) -> Result<Done> {
    create_more(folder, 0..count)
}

/// Makes those with these numbers.
///
/// # Errors
/// What the file system said.
pub fn create_more(folder: &Path, numbers: Range<u64>) -> Result<Done> {
    let many = folder.join("many");
    std::fs::create_dir_all(&many).on(|| format!("making {}", many.display()))?;
    let order: Vec<u64> = numbers.collect();
    each(&order, |index| {
        let path = path(folder, index);
        File::create_new(&path).on(|| format!("creating {}", path.display())).map(drop)
    })
}

/// Asks for the attributes of each, in another order.
///
/// # Errors
/// What the file system said.
pub fn stat_files(folder: &Path, count: u64) -> Result<Done> {
    stat(folder, &shuffled(count))
}

/// Asks for the attributes of `some` of the `count` files that are there, at random, none twice.
///
/// # Errors
/// What the file system said.
pub fn stat_some(folder: &Path, count: u64, some: usize) -> Result<Done> {
    let mut order = shuffled(count);
    order.truncate(some);
    stat(folder, &order)
}

fn stat(folder: &Path, order: &[u64]) -> Result<Done> {
    each(order, |index| {
        let path = path(folder, index);
        path.symlink_metadata().on(|| format!("stat of {}", path.display())).map(drop)
    })
}

/// Lists the directory. Each name counts as an operation.
///
/// # Errors
/// What the file system said, or that names are missing.
pub fn list_files(folder: &Path, count: u64) -> Result<Done> {
    in_threads(1, |_| {
        let many = folder.join("many");
        let mut found = 0;
        for entry in std::fs::read_dir(&many).on(|| format!("listing {}", many.display()))? {
            entry.on(|| format!("listing {}", many.display()))?;
            found += 1;
        }
        if found != count {
            return said(format!("{} has {found} names and not {count}", many.display()));
        }
        Ok(Part { operations: found, ..Part::default() })
    })
}

/// Removes each, in another order.
///
/// # Errors
/// What the file system said.
pub fn delete_files(folder: &Path, count: u64) -> Result<Done> {
    each(&shuffled(count), |index| {
        let path = path(folder, index);
        std::fs::remove_file(&path).on(|| format!("removing {}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_has_every_number_once() {
        let mut order = shuffled(100);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn files_come_and_go() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(create_files(folder.path(), 20).expect("created").operations, 20);
        assert_eq!(stat_files(folder.path(), 20).expect("there").latencies.len(), 20);
        let some = stat_some(folder.path(), 20, 5);
        assert_eq!(some.expect("there").operations, 5);
        assert_eq!(list_files(folder.path(), 20).expect("listed").operations, 20);
        assert!(list_files(folder.path(), 21).is_err());
        assert_eq!(delete_files(folder.path(), 20).expect("removed").operations, 20);
    }
}
