//! What a mail server does: messages are delivered, get flags, are read and removed.
//!
//! Messages are files of 2 to 30 KiB in mailboxes of some hundred; a delivery and a flag have to be on disk before they
//! count (the load that `filebench` calls varmail).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Done, Part, in_threads};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::{Noise, Random};

/// Messages in a mailbox.
const BOX: u64 = 200;
const APPEND: usize = 4096;

/// A message's name. Threads have mailboxes of their own, as users do.
fn path(folder: &Path, thread: usize, message: u64) -> PathBuf {
    folder.join("mail").join(format!("u{thread}-{}", message / BOX)).join(format!("m{message}"))
}

fn size(message: u64) -> usize {
    (2 + Random::new(message).below(28) as usize) << 10
}

fn place(thread: usize, message: u64) -> u64 {
    (thread as u64) << 22 | message << 10
}

fn write_message(folder: &Path, thread: usize, message: u64, noise: &Noise, stable: bool) -> Result<u64> {
    let path = path(folder, thread, message);
    let what = || format!("delivering {}", path.display());
    if message.is_multiple_of(BOX)
        && let Some(mailbox) = path.parent()
    {
        std::fs::create_dir_all(mailbox).on(what)?;
    }
    let mut file = File::create_new(&path).on(what)?;
    let length = size(message);
    file.write_all(noise.at(place(thread, message), length)).on(what)?;
    if stable {
        file.sync_all().on(what)?;
    }
    Ok(length as u64)
}

/// Fills the mailboxes of `threads` users with `count` messages in all.
///
/// # Errors
/// What the file system said.
pub fn deliver(folder: &Path, threads: usize, count: u64, noise: &Noise) -> Result<Done> {
    in_threads(threads, |thread| {
        let mut part = Part::default();
        for message in 0..count / threads as u64 {
            interrupt::check()?;
            part.bytes += write_message(folder, thread, message, noise, false)?;
            part.operations += 1;
        }
        Ok(part)
    })
}

/// The work of a mail server on what [`deliver`] made, for `time`: of four operations one delivers and calls fsync, one
/// appends and calls fsync, one reads, one removes the oldest. With `check` what was delivered last is read back.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn serve_mail(
    folder: &Path,
    threads: usize,
    count: u64,
    time: Duration,
    noise: &Noise,
    check: bool,
) -> Result<Done> {
    in_threads(threads, |thread| {
        let mut part = Part::default();
        let mut random = Random::new(thread as u64);
        // The messages from `oldest` to before `next` are there.
        let (mut oldest, mut next) = (0, count / threads as u64);
        let start = Instant::now();
        for step in 0u64.. {
            if start.elapsed() >= time {
                break;
            }
            interrupt::check()?;
            let some = || oldest + Random::new(step).below(next - oldest);
            match (step + thread as u64) % 4 {
                0 => {
                    let bytes = size(next) as u64;
                    part.time(bytes, || write_message(folder, thread, next, noise, true))?;
                    next += 1;
                }
                _ if oldest == next => {}
                1 => {
                    let path = path(folder, thread, some());
                    let what = || format!("appending to {}", path.display());
                    part.time(APPEND as u64, || {
                        let mut file = File::options().append(true).open(&path).on(what)?;
                        file.write_all(noise.at(random.below(1 << 20), APPEND)).on(what)?;
                        file.sync_all().on(what)
                    })?;
                }
                2 => {
                    let path = path(folder, thread, some());
                    let read = part.time(0, || std::fs::read(&path).on(|| format!("reading {}", path.display())))?;
                    part.bytes += read.len() as u64;
                }
                _ => {
                    let path = path(folder, thread, oldest);
                    part.time(0, || std::fs::remove_file(&path).on(|| format!("removing {}", path.display())))?;
                    oldest += 1;
                }
            }
        }
        if check && next > oldest {
            let last = next - 1;
            let path = path(folder, thread, last);
            let whole = std::fs::read(&path).on(|| format!("reading {}", path.display()))?;
            // Something may have been appended since.
            if !whole.starts_with(noise.at(place(thread, last), size(last))) {
                return said(format!("{}: other data came back than was written", path.display()));
            }
        }
        Ok(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_delivered_read_and_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let noise = Noise::new(2);
        assert_eq!(deliver(folder.path(), 2, 20, &noise).expect("delivered").operations, 20);
        let done = serve_mail(folder.path(), 2, 20, Duration::from_millis(50), &noise, true).expect("served");
        assert!(done.operations > 0 && done.latencies.len() as u64 == done.operations);
    }
}
