//! How long the allocator keeps memory that was freed before the system has it back.
//!
//! It keeps it for a second, which saves clearing it again; but in a second more can be freed than a small machine has:
//! each block of 16 MiB that is read, changed, compressed and written leaves several of that size. The allocator is
//! told by the environment, which it reads when the program starts: so the program is started anew, as the same
//! process.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::memory_limit::MemoryLimit;

/// What the allocator reads: milliseconds.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";
/// With so many bytes of memory it keeps what was freed for a millisecond.
const FOR_A_MILLISECOND: u64 = 64 << 20;
/// From so many bytes on for as long as it does by itself.
const PLENTY: MemoryLimit = MemoryLimit { bytes: 16 << 30 };

/// Milliseconds, where they are to be fewer than usual.
fn delay(memory: MemoryLimit) -> Option<u64> {
    (memory < PLENTY).then_some(memory.bytes / FOR_A_MILLISECOND)
}

/// Starts this program anew, unless the allocator is told already or there is memory enough. Goes on with this one when
/// that fails.
pub(crate) fn keep_less_of_it() {
    let Some(delay) = delay(MemoryLimit::of_this_process()) else { return };
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let mut words = std::env::args_os();
    if let (Some(name), Ok(program)) = (words.next(), std::env::current_exe()) {
        let error = Command::new(program).arg0(name).args(words).env(VARIABLE, delay.to_string()).exec();
        eprintln!("cannot tell the allocator to keep less memory: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_much_memory_it_is_as_usual() {
        assert_eq!(delay(PLENTY), None);
        assert_eq!(delay(MemoryLimit { bytes: 256 << 20 }), Some(4));
    }
}
