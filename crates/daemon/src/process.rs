//! What the daemon asks of the system for itself, once and before it has threads: they inherit it.
//!
//! What is refused is done without: a daemon of an ordinary user may ask for little.

use std::path::Path;

use rustix::process::{Resource, Rlimit};

use crate::memory_limit::MemoryLimit;

/// How likely the system picks the daemon when memory runs out (proc(5), `oom_score_adj`): rather anything else, as
/// with it all that is mounted goes; but not never, should it be the daemon that takes all.
const OOM_SCORE: i32 = -900;

/// With less memory large pages cost more than they save: half of what a daemon used in 200 MiB lay in pages of 2 MiB
/// that were used in part, and it was killed for want of memory.
const LARGE_PAGES_FROM: MemoryLimit = MemoryLimit { bytes: 2 << 30 };

/// Asks for as many descriptors as the daemon may have, to be among the last that are killed for memory, and that no
/// memory is waited for which only a write to its own mounts could give back (`PR_SET_IO_FLUSHER`). Where there is
/// little memory, it has small pages only.
pub fn prepare() {
    raise_descriptors();
    lower_oom_score(Path::new("/proc/self/oom_score_adj"));
    // Memory that is asked for while a block is written must not wait for dirty pages of a file whose blocks we write.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("asking not to wait for own writes when memory is short: {error}");
    }
    if MemoryLimit::of_this_process() < LARGE_PAGES_FROM
        && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
    {
        tracing::debug!("asking for small pages only: {error}");
    }
}

/// Whether what another process mounts is seen here; also where nobody can say.
pub fn sees_mounts_of(pid: u32) -> bool {
    let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    match (space("self"), space(&pid.to_string())) {
        (Some(own), Some(other)) => own == other,
        _ => true,
    }
}

/// Raises the soft limit of descriptors to the hard one.
fn raise_descriptors() {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("raising the limit of open files: {error}");
    }
}

fn lower_oom_score(file: &Path) {
    let now = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now > OOM_SCORE)
        && let Err(error) = std::fs::write(file, OOM_SCORE.to_string())
    {
        tracing::debug!("asking to be killed last for memory: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_lowered_and_never_raised() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("score");
        for (before, after) in [("0\n", "-900"), ("-1000\n", "-1000\n")] {
            std::fs::write(&file, before).expect("written");
            lower_oom_score(&file);
            assert_eq!(std::fs::read_to_string(&file).expect("readable"), after);
        }
    }

    /// With the usual soft limit of 1024 nothing worked any more at 257 mounts.
    #[test]
    fn all_descriptors_there_may_be_are_asked_for() {
        raise_descriptors();
        let now = rustix::process::getrlimit(Resource::Nofile);
        assert_eq!(now.current, now.maximum);
    }
}
