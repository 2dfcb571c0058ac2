//! A device in memory, sparse: for tests and simulations.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::RwLock;
use platter_buffer::Buf;

use crate::block_device::{BlockDevice, Geometry, TrimKind, TrimSupport, check_range};
use crate::error::{Operation, Result};
use crate::slot::ReadSlot;

const CHUNK: u64 = 64 << 10;

/// A sparse device in memory: only chunks that were written take room; the rest reads as zeros.
#[derive(Debug)]
pub struct MemDevice {
    name: String,
    size: u64,
    geometry: Geometry,
    chunks: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl MemDevice {
    /// A device of `size` zero bytes with 512-byte sectors.
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self::with_geometry(name, size, Geometry::FILE)
    }

    /// A device of `size` zero bytes with the given sector sizes.
    pub fn with_geometry(name: impl Into<String>, size: u64, geometry: Geometry) -> Self {
        Self { name: name.into(), size, geometry, chunks: RwLock::new(BTreeMap::new()) }
    }

    /// Copies bytes out without going through the I/O path. Panics past the end.
    pub fn peek(&self, offset: u64, out: &mut [u8]) {
        assert!(offset + out.len() as u64 <= self.size, "peek past the end");
        let chunks = self.chunks.read();
        for_chunks(offset, out.len(), |chunk, within, at, length| {
            let part = &mut out[at..at + length];
            match chunks.get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + length]),
                None => part.fill(0),
            }
        });
    }

    /// Bytes that take room.
    pub fn allocated(&self) -> u64 {
        self.chunks.read().len() as u64 * CHUNK
    }

    /// Makes a range read as zeros; whole chunks of it take no room any more.
    fn discard(&self, offset: u64, length: u64) {
        let mut chunks = self.chunks.write();
        let touched: Vec<u64> =
            chunks.range(offset / CHUNK..(offset + length).div_ceil(CHUNK)).map(|(&at, _)| at).collect();
        for chunk in touched {
            let (from, to) = (offset.max(chunk * CHUNK), (offset + length).min((chunk + 1) * CHUNK));
            if to - from == CHUNK {
                chunks.remove(&chunk);
            } else if let Some(bytes) = chunks.get_mut(&chunk) {
                bytes[(from - chunk * CHUNK) as usize..(to - chunk * CHUNK) as usize].fill(0);
            }
        }
    }

    /// Replaces bytes without going through the I/O path. Panics past the end.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.size, "poke past the end");
        let mut chunks = self.chunks.write();
        for_chunks(offset, bytes.len(), |chunk, within, at, length| {
            let target = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            target[within..within + length].copy_from_slice(&bytes[at..at + length]);
        });
    }
}

/// Calls `each(chunk, offset in chunk, offset in buffer, length)` for the pieces of a range.
fn for_chunks(offset: u64, length: usize, mut each: impl FnMut(u64, usize, usize, usize)) {
    let mut at = 0;
    while at < length {
        let position = offset + at as u64;
        let within = (position % CHUNK) as usize;
        let piece = (length - at).min(CHUNK as usize - within);
        each(position / CHUNK, within, at, piece);
        at += piece;
    }
}

#[async_trait]
impl BlockDevice for MemDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_writable(&self) -> bool {
        true
    }

    async fn read_into(&self, offset: u64, mut slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        let total = slots.iter().map(|slot| slot.len()).sum();
        let checked = check_range(|| self.name(), Operation::Read, offset, total, self.size);
        if checked.is_ok() {
            let mut position = offset;
            for slot in &mut slots {
                self.peek(position, slot);
                position += slot.len() as u64;
            }
        }
        (slots, checked)
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        let total = data.iter().map(|buf| buf.len()).sum();
        check_range(|| self.name(), Operation::Write, offset, total, self.size)?;
        let mut position = offset;
        for buf in data {
            self.poke(position, &buf);
            position += buf.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn trim_support(&self) -> TrimSupport {
        TrimSupport { plain: true, secure: true }
    }

    async fn trim(&self, offset: u64, length: u64, _kind: TrimKind) -> Result<()> {
        let within = usize::try_from(length).unwrap_or(usize::MAX);
        check_range(|| self.name(), Operation::Trim, offset, within, self.size)?;
        self.discard(offset, length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_read_and_the_rest_is_zero() {
        let device = MemDevice::new("m", 1 << 20);
        let data = vec![Buf::copy_from(&[7; 1000]), Buf::copy_from(&[8; 24])];
        device.write(CHUNK - 512, data).await.expect("write");
        let got = device.read(CHUNK - 1024, 2048).await.expect("read");
        assert!(got[..512].iter().all(|&b| b == 0));
        assert!(got[512..1512].iter().all(|&b| b == 7));
        assert!(got[1512..1536].iter().all(|&b| b == 8));
        assert!(got[1536..].iter().all(|&b| b == 0));
        assert!(device.read((1 << 20) - 511, 512).await.is_err());
        assert!(device.read(u64::MAX, 512).await.is_err());
    }

    #[tokio::test]
    async fn what_is_trimmed_takes_no_room_and_its_neighbours_stay() {
        let device = MemDevice::new("m", 1 << 20);
        device.write(0, vec![Buf::copy_from(&[7; 4 * CHUNK as usize])]).await.expect("write");
        device.trim(CHUNK - 512, CHUNK + 1024, TrimKind::Plain).await.expect("trim");
        assert_eq!(device.allocated(), 3 * CHUNK);
        let got = device.read(0, 4 * CHUNK as usize).await.expect("read");
        let trimmed = (CHUNK - 512) as usize..(2 * CHUNK + 512) as usize;
        assert!(got.iter().enumerate().all(|(at, &byte)| (byte == 0) == trimmed.contains(&at)));
        assert!(device.trim((1 << 20) - 512, 1024, TrimKind::Plain).await.is_err());
    }
}
