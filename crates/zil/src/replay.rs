//! The records that a crash left, one by one, for whoever does them again (`zil_replay`).
//!
//! Invariants:
//! - each record is handed out once for good: its number is stored in the group of its effect, and those up to it are
//!   passed over the next time;
//! - what is changed between two records is taken for the effect of the first.

use std::collections::VecDeque;

use platter_dmu::{Result, ZioError};
use platter_ondisk::BlkPtr;
use platter_ondisk::zil::ZilHeader;
use platter_ondisk::zil::record::{Record, RecordHeader, Write, WriteData};
use platter_zio::{BlockStore, SpaceMet, Store};

use crate::chain::Chain;
use crate::log::Zil;

/// See the module text.
pub struct Replay<'a> {
    log: &'a Zil,
    store: Store,
    chain: Chain<'a>,
    header: ZilHeader,
    /// A block of data may be in two records, no more: otherwise a few KiB of them write one block again and again.
    met: SpaceMet,
    /// Records of the block that was read last.
    waiting: VecDeque<(RecordHeader, Record)>,
}

impl Zil {
    /// The records of the claimed chain that were not replayed yet, in order. [`set_replaying`](Self::set_replaying)
    /// with 0 ends it.
    pub fn replay(&self) -> Replay<'_> {
        let (chain, header) = self.claimed_chain();
        Replay {
            log: self,
            store: self.store().clone(),
            chain,
            header,
            met: SpaceMet::lenient(),
            waiting: VecDeque::new(),
        }
    }

    /// What a record that leads to a block of data writes: where, and the bytes. A write of a part of the block is told
    /// as the whole block, as it was after the write.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn written_block(&self, write: &Write, bp: &BlkPtr) -> Result<(u64, Vec<u8>)> {
        let mut data = self.read_data(write.object, bp).await?;
        let size = (data.len() as u64).max(1);
        if write.length < size {
            return Ok((write.offset / size * size, data));
        }
        data.truncate(usize::try_from(write.length).unwrap_or(usize::MAX));
        Ok((write.offset, data))
    }
}

impl Replay<'_> {
    /// The next record; what is changed from now on is its effect.
    ///
    /// # Errors
    /// Damage, unreadable blocks; records that lead to more data than there can be.
    pub async fn next(&mut self) -> Result<Option<(RecordHeader, Record)>> {
        loop {
            while let Some((of, record)) = self.waiting.pop_front() {
                self.chain.count(of);
                self.check_data(&record)?;
                if of.sequence > self.header.replay_seq && of.txg >= self.header.claim_txg {
                    self.log.set_replaying(of.sequence);
                    return Ok(Some((of, record)));
                }
            }
            match self.chain.next().await? {
                Some(link) => self.waiting = link.records.unwrap_or_default().into(),
                None => return Ok(None),
            }
        }
    }

    fn check_data(&self, record: &Record) -> Result<()> {
        let Record::Write(Write { data: WriteData::Block(bp), .. }) = record else { return Ok(()) };
        let most = || self.store.space_used().saturating_mul(2);
        if self.met.add(self.store.dsize(bp), most) {
            return Ok(());
        }
        Err(ZioError::corrupt("intent log", "its records lead to more data than the pool has in use"))
    }
}
