//! The pool's history: a ring of nvlist records in an object (`module/zfs/spa_history.c`).
//!
//! Invariants: a record is an 8-byte little-endian length and a packed nvlist; the record of the pool's creation is
//! never overwritten; logical offsets grow for ever and are mapped into the ring behind that record.

use std::sync::Arc;

use platter_dmu::{Dnode, NewDnode, Result, Tx, ZioError};
use platter_nvlist::NvList;
use platter_ondisk::{ObjectId, ObjectType};

use crate::mos;
use crate::pool::DslPool;
use platter_api::report::HistoryEntry;

/// Block size of the object (`SPA_OLD_MAXBLOCKSIZE`).
const BLOCK_SIZE: u32 = 128 << 10;
/// A longer record is damage.
const RECORD_MAX: u64 = 1 << 20;
/// Records that are forgotten for one other: none is larger than so many of the smallest.
const FORGOTTEN_MAX: u64 = RECORD_MAX / 32;

/// No ring is longer (`spa_history_create_obj`).
const RING_MAX: u64 = 1 << 30;

/// `spa_history_phys_t`, in the bonus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ring {
    pool_create_len: u64,
    phys_max_off: u64,
    bof: u64,
    eof: u64,
    records_lost: u64,
}

impl Ring {
    fn decode(bonus: &[u8]) -> Result<Self> {
        let word = |i: usize| bonus.get(8 * i..8 * i + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight")));
        let (Some(pool_create_len), Some(phys_max_off), Some(bof), Some(eof), Some(records_lost)) =
            (word(0), word(1), word(2), word(3), word(4))
        else {
            return Err(ZioError::corrupt("pool history", "its header is too short"));
        };
        // It grows by a KiB with each command: no ring gets there.
        if eof > u64::MAX / 2
            || bof > eof
            || eof - bof > phys_max_off
            || pool_create_len >= phys_max_off
            || phys_max_off > RING_MAX
        {
            return Err(ZioError::corrupt("pool history", "its header makes no sense"));
        }
        Ok(Self { pool_create_len, phys_max_off, bof, eof, records_lost })
    }

    fn encode(&self) -> Vec<u8> {
        [self.pool_create_len, self.phys_max_off, self.bof, self.eof, self.records_lost]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Forgets all records, as they cannot be read any more; the next begins with a block of the object.
    fn forget(&mut self, block_size: u64) {
        let start = self.physical(self.eof);
        self.eof += start.next_multiple_of(block_size) - start;
        self.bof = self.eof;
        self.records_lost = self.records_lost.saturating_add(1);
    }

    /// Where a logical offset lies in the object (`spa_history_log_to_phys`).
    fn physical(&self, logical: u64) -> u64 {
        let length = self.phys_max_off - self.pool_create_len;
        if logical < self.pool_create_len {
            logical
        } else {
            (logical - self.pool_create_len) % length + self.pool_create_len
        }
    }
}

/// Makes the history object of a new pool.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(dsl: &Arc<DslPool>, tx: &Tx) -> Result<()> {
    let (_, size) = dsl.store.state().allocator.lock().deflated();
    let ring = Ring { phys_max_off: (size / 1000).clamp(128 << 10, RING_MAX), ..Ring::default() };
    let new = NewDnode {
        bonus_type: ObjectType::SPA_HISTORY_OFFSETS,
        bonus_length: 40,
        ..NewDnode::plain(ObjectType::SPA_HISTORY, BLOCK_SIZE)
    };
    let dnode = dsl.mos.allocate(tx, new).await?;
    dnode.set_bonus(tx, ObjectType::SPA_HISTORY_OFFSETS, &ring.encode())?;
    dsl.directory.put_u64(tx, mos::HISTORY.as_bytes(), dnode.object().0).await?;
    dsl.objects.lock().history = dnode.object();
    Ok(())
}

async fn read_ring(dnode: &Dnode, ring: &Ring, logical: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    let start = ring.physical(logical);
    let first = (ring.phys_max_off - start).min(length) as usize;
    dnode.read(start, &mut bytes[..first]).await?;
    if first < bytes.len() {
        dnode.read(ring.pool_create_len, &mut bytes[first..]).await?;
    }
    Ok(bytes)
}

async fn append(dsl: &DslPool, tx: &Tx, record: &NvList) -> Result<()> {
    let object = dsl.objects.lock().history;
    if !object.is_some() {
        return Ok(());
    }
    let dnode = dsl.mos.dnode(object).await?;
    let mut ring = Ring::decode(&dnode.bonus())?;
    let packed = record.encode_xdr();
    let mut bytes = (packed.len() as u64).to_le_bytes().to_vec();
    bytes.extend(packed);
    let length = bytes.len() as u64;
    if length > ring.phys_max_off - ring.pool_create_len {
        return Ok(());
    }
    if let Err(error) = prepare(&dnode, &mut ring, length).await {
        // A history that is lost must not hold up the group.
        if !error.is_loss() {
            return Err(error);
        }
        let block_size = u64::from(dnode.block_size());
        let lost = ring.physical(ring.eof) / block_size * block_size;
        dnode.free_range(tx, lost, block_size).await?;
        ring.forget(block_size);
        let goes_on = lost > 0 && !prepare(&dnode, &mut ring, length).await.is_err_and(|error| error.is_loss());
        if !goes_on {
            // Where it begins is lost, too: as in a new pool, the next record is its first.
            dnode.free_range(tx, 0, u64::MAX).await?;
            ring = Ring { phys_max_off: ring.phys_max_off, records_lost: ring.records_lost, ..Ring::default() };
        }
        tracing::error!(pool = dsl.name(), %error, "the pool's history is damaged and begins anew");
    }
    let start = ring.physical(ring.eof);
    let first = (ring.phys_max_off - start).min(length) as usize;
    dnode.write(tx, start, &bytes[..first]).await?;
    if first < bytes.len() {
        dnode.write(tx, ring.pool_create_len, &bytes[first..]).await?;
    }
    ring.eof += length;
    let kept = ring.eof - ring.bof;
    assert!(kept <= ring.phys_max_off - ring.pool_create_len, "a record lies over the oldest ones that are kept");
    if ring.pool_create_len == 0 {
        ring.pool_create_len = ring.eof;
        ring.bof = ring.eof;
    }
    dnode.set_bonus(tx, ObjectType::SPA_HISTORY_OFFSETS, &ring.encode())
}

/// Makes room for a record of `length` bytes, and looks whether what it will share blocks with can be read.
async fn prepare(dnode: &Dnode, ring: &mut Ring, length: u64) -> Result<()> {
    make_room(dnode, ring, length).await?;
    for edge in [ring.eof, ring.eof + length - 1] {
        dnode.read(ring.physical(edge), &mut [0]).await?;
    }
    Ok(())
}

/// Forgets the oldest records, until another of `length` bytes fits. Where there are no records, or more tiny ones than
/// anybody wrote, all of them are given up: a ring that is damaged may be a GiB of them.
async fn make_room(dnode: &Dnode, ring: &mut Ring, length: u64) -> Result<()> {
    let mut forgotten = 0;
    while ring.phys_max_off - (ring.eof - ring.bof) <= length + ring.pool_create_len && ring.bof < ring.eof {
        let size = read_ring(dnode, ring, ring.bof, 8).await?;
        let size = u64::from_le_bytes(size.try_into().expect("eight bytes"));
        let is_one = (1..=RECORD_MAX).contains(&size) && forgotten < FORGOTTEN_MAX;
        ring.bof = if is_one { (ring.bof + 8 + size).min(ring.eof) } else { ring.eof };
        ring.records_lost = ring.records_lost.saturating_add(1);
        forgotten += 1;
    }
    Ok(())
}

/// The zone of commands on Linux, which has none (`spa_history_zone` in `module/os/linux/zfs/spa_misc_os.c`).
const ZONE: &str = "linux";

/// A command line of a user, and when it was given.
pub struct Command {
    text: String,
    who: u32,
    /// Seconds since 1970.
    given: u64,
}

impl Command {
    /// One that user `who` gives now.
    pub fn now(dsl: &DslPool, text: &str, who: u32) -> Self {
        Self { text: text.to_owned(), who, given: dsl.now() }
    }
}

/// Adds a command line.
///
/// # Errors
/// Out of space, device errors.
pub async fn append_command(dsl: &DslPool, tx: &Tx, command: &Command) -> Result<()> {
    let mut record = NvList::new();
    record
        .add_u64("history time", command.given)
        .add_str("history command", command.text.chars().take(4096).collect::<String>())
        .add_str("history zone", ZONE)
        .add_u64("history who", u64::from(command.who))
        .add_str("history hostname", &*dsl.surroundings.hostname);
    append(dsl, tx, &record).await
}

/// Adds an internal event.
///
/// # Errors
/// Out of space, device errors.
pub async fn append_event(dsl: &DslPool, tx: &Tx, name: &str, text: &str) -> Result<()> {
    let mut record = NvList::new();
    record
        .add_u64("history time", dsl.now())
        .add_u64("history txg", tx.txg().0)
        .add_str("internal_name", name)
        .add_str("history internal str", text)
        .add_str("history hostname", &*dsl.surroundings.hostname);
    if let Some(listener) = dsl.listener() {
        listener.history_event(name, text);
    }
    append(dsl, tx, &record).await
}

/// All records, oldest first.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn read(dsl: &DslPool) -> Result<Vec<HistoryEntry>> {
    let object: ObjectId = dsl.objects.lock().history;
    let mut entries = Vec::new();
    if !object.is_some() {
        return Ok(entries);
    }
    let dnode = dsl.mos.dnode(object).await?;
    let ring = Ring::decode(&dnode.bonus())?;
    match read_part(&dnode, &ring, (0, ring.pool_create_len), &mut entries).await {
        // The creation alone was in that block; what was done since can still be told.
        Err(error) if error.is_loss() => {
            tracing::warn!(pool = dsl.name(), %error, "the record of the pool's creation is lost");
        }
        read => read?,
    }
    read_part(&dnode, &ring, (ring.bof, ring.eof), &mut entries).await?;
    Ok(entries)
}

/// The records from one logical offset to another.
async fn read_part(
    dnode: &Dnode,
    ring: &Ring,
    (mut at, end): (u64, u64),
    entries: &mut Vec<HistoryEntry>,
) -> Result<()> {
    while at < end {
        let size = read_ring(dnode, ring, at, 8).await?;
        let size = u64::from_le_bytes(size.try_into().expect("eight bytes"));
        if size == 0 || size > RECORD_MAX || at + 8 + size > end {
            return Err(ZioError::corrupt("pool history", format!("a record of {size} bytes at {at}")));
        }
        let bytes = read_ring(dnode, ring, at + 8, size).await?;
        let list = NvList::decode(&bytes).map_err(|e| ZioError::corrupt("pool history", e.to_string()))?;
        entries.extend(entry(&list));
        at += 8 + size;
    }
    Ok(())
}

fn entry(list: &NvList) -> Option<HistoryEntry> {
    let time = list.get_u64("history time")?;
    let who = list.get_u64("history who").map(|uid| {
        let text = |name: &str| list.get_str(name).unwrap_or("").to_owned();
        (uid, text("history hostname"), text("history zone"))
    });
    if let Some(command) = list.get_str("history command") {
        return Some(HistoryEntry { time, text: command.to_owned(), internal: false, who, txg: None });
    }
    let name = list.get_str("internal_name").or_else(|| list.get_str("ioctl")).unwrap_or("event");
    let detail = list.get_str("history internal str").unwrap_or("");
    let text = format!("{name} {detail}").trim_end().to_owned();
    Some(HistoryEntry { time, text, internal: true, who, txg: list.get_u64("history txg") })
}

#[cfg(test)]
mod tests {
    use platter_ondisk::Txg;

    use super::*;

    // Behind its header there was nothing: 2^27 records of no bytes were forgotten one by one, in the sync.
    #[tokio::test]
    async fn a_ring_of_nothing_is_given_up_at_once() {
        let tx = Tx::syncing(Txg(4));
        let os = crate::mos_properties::in_memory(&tx);
        let dnode = os.allocate(&tx, NewDnode::plain(ObjectType::SPA_HISTORY, BLOCK_SIZE)).await.unwrap();
        let full = Ring { pool_create_len: RING_MAX - 8192, phys_max_off: RING_MAX, eof: RING_MAX, ..Ring::default() };
        let mut ring = Ring::decode(&full.encode()).unwrap();
        make_room(&dnode, &mut ring, 1000).await.unwrap();
        assert_eq!((ring.bof, ring.records_lost), (RING_MAX, 1));

        // Records of one byte, as many as there is room for.
        let tiny = 1u64.to_le_bytes().into_iter().chain([0]).cycle().take(9 * 100_000).collect::<Vec<u8>>();
        let length = tiny.len() as u64;
        dnode.write(&tx, 0, &tiny).await.unwrap();
        let mut ring = Ring { pool_create_len: 1, phys_max_off: length, eof: length, ..Ring::default() };
        make_room(&dnode, &mut ring, length - 1).await.unwrap();
        assert_eq!((ring.bof, ring.records_lost), (length, FORGOTTEN_MAX + 1));
    }

    #[test]
    fn logical_offsets_wrap_behind_the_creation_record() {
        let ring = Ring { pool_create_len: 100, phys_max_off: 1000, ..Ring::default() };
        assert_eq!(ring.physical(50), 50);
        assert_eq!(ring.physical(999), 999);
        assert_eq!(ring.physical(1000), 100);
        assert_eq!(ring.physical(100 + 900 * 3 + 7), 107);
    }

    #[test]
    fn headers_that_make_no_sense_are_damage() {
        let good = Ring { pool_create_len: 10, phys_max_off: 1000, bof: 10, eof: 50, records_lost: 0 };
        assert_eq!(Ring::decode(&good.encode()).unwrap(), good);
        assert!(Ring::decode(&Ring { bof: 60, ..good }.encode()).is_err());
        assert!(Ring::decode(&Ring { pool_create_len: 1000, ..good }.encode()).is_err());
        // Writing at its end would have made an object of 2^60 bytes.
        assert!(Ring::decode(&Ring { phys_max_off: 1 << 60, ..good }.encode()).is_err());
        // Beyond the last offset the first records came again, for ever.
        assert!(Ring::decode(&Ring { bof: u64::MAX - 90, eof: u64::MAX - 9, ..good }.encode()).is_err());
        assert!(Ring::decode(&[0; 12]).is_err());
    }
}
