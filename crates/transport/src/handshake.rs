//! The first words between a mount and the kernel: what either can, and what is agreed on.
//!
//! Invariant: nothing is agreed on that not both sides have.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::config::Config;
use crate::connection::Connection;
use crate::mount::Way;
use crate::operation;
use crate::pages::PAGE;
use crate::reply::Reply;
use crate::types::InitFlags;
use crate::wire::{self, opcode};

/// The first request of a mount says what the kernel can; the answer says what is wanted of it.
/// `rings` prepares for requests over io_uring, when both want that, and says whether it can.
pub(crate) fn handshake(
    connection: &Arc<Connection>,
    config: &Config,
    mut rings: impl FnMut() -> bool,
) -> io::Result<InitFlags> {
    let mut buffer = vec![0; config.request_max as usize + wire::REQUEST_EXTRA];
    loop {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "it was unmounted before it was served");
        let length = connection.receive(&mut buffer)?.ok_or_else(gone)?;
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's first words are not understood");
        let (header, body) = operation::split(&buffer[..length]).ok_or_else(unknown)?;
        let mut reply = Reply::new(Way::Device(connection.clone()), header.unique);
        if header.opcode != opcode::INIT {
            reply.error(Errno::IO);
            return Err(unknown());
        }
        let (init, more) = wire::InitIn::read_from_prefix(body.0).map_err(|_| unknown())?;
        if init.major > wire::MAJOR {
            // It will ask again in our version.
            let ours = wire::InitOut { major: wire::MAJOR, minor: wire::MINOR, ..Default::default() };
            reply.say(0, &[ours.as_bytes()]);
            continue;
        }
        if init.major < wire::MAJOR || init.minor < wire::MINOR_LEAST {
            reply.error(Errno::PROTO);
            let said = format!("the kernel speaks FUSE {}.{}; Linux 5.4 or later is needed", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, said));
        }
        let (agreed, answer) = agree(&init, more, config, &mut rings);
        reply.say(0, &[answer.as_bytes()]);
        return Ok(agreed);
    }
}

fn agree(
    init: &wire::InitIn,
    more: &[u8],
    config: &Config,
    rings: &mut impl FnMut() -> bool,
) -> (InitFlags, wire::InitOut) {
    let offered = InitFlags(init.flags.into());
    let extended = offered.contains(InitFlags::INIT_EXT);
    let high = wire::InitInMore::read_from_prefix(more).map_or(0, |(more, _)| more.flags2);
    let offered = if extended { InitFlags(offered.0 | u64::from(high) << 32) } else { offered };
    let always = InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    let mut agreed = offered.and(config.wanted | always);
    if agreed.contains(InitFlags::OVER_IO_URING) && !rings() {
        agreed = agreed.without(InitFlags::OVER_IO_URING);
    }
    debug_assert!(offered.contains(agreed), "nothing is agreed on that the kernel does not have");
    let answer = wire::InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead: init.max_readahead.min(config.readahead_max),
        flags: agreed.0 as u32,
        max_background: config.background_max,
        // Where the kernel calls the mount congested; its own choice is the same part.
        congestion_threshold: config.background_max / 4 * 3,
        max_write: config.request_max,
        // Times are exact to the nanosecond.
        time_gran: 1,
        max_pages: (config.request_max / PAGE as u32).min(u16::MAX.into()) as u16,
        flags2: (agreed.0 >> 32) as u32,
        ..Default::default()
    };
    (agreed, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_want_is_agreed() {
        let config = Config {
            threads: 1,
            wanted: InitFlags::ASYNC_READ | InitFlags::POSIX_ACL | InitFlags(1 << 33),
            request_max: 1 << 20,
            readahead_max: 1 << 20,
            background_max: 64,
        };
        let offered = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        let init = wire::InitIn { major: 7, minor: 40, max_readahead: 128 << 10, flags: offered.0 as u32 };
        let more = wire::InitInMore { flags2: 2, ..Default::default() };
        let (agreed, answer) = agree(&init, more.as_bytes(), &config, &mut || true);
        assert_eq!(agreed, offered | InitFlags(1 << 33));
        assert_eq!((answer.max_readahead, answer.max_pages, answer.flags2), (128 << 10, 256, 2));
        // Without more than 32 flags, what is there is no word of flags.
        let init = wire::InitIn { flags: InitFlags::ASYNC_READ.0 as u32, ..init };
        assert_eq!(agree(&init, more.as_bytes(), &config, &mut || true).0, InitFlags::ASYNC_READ);
    }
}
