//! How much of what writers change may be in memory at a time.

use std::sync::Arc;

use futures::FutureExt;
use platter_ondisk::Txg;
use platter_zio::{Needs, Tx, TxgGate};

const LIMIT: u64 = 24 << 20;
const RECORD: u64 = 16 << 20;

/// A transaction that changes a part of a record, if it may begin now.
fn begin(gate: &Arc<TxgGate>) -> Option<Tx> {
    let needs = Needs { disk: 0, memory: RECORD };
    gate.begin_for(needs).now_or_never().map(|tx| tx.expect("the pool goes on"))
}

/// Only what was dirty already was counted: all writers that waited began at once, each with a record to read.
#[tokio::test]
async fn what_a_transaction_may_add_counts_from_its_beginning() {
    let gate = TxgGate::new(Txg(4), LIMIT);
    let first = begin(&gate).expect("nothing waits");
    let second = begin(&gate).expect("below the limit");
    assert!(begin(&gate).is_none(), "both may add a record");
    drop(first);
    let third = begin(&gate).expect("the first one added nothing");
    gate.add_dirty(Txg(4), RECORD, 0);
    drop((second, third));
    let fourth = begin(&gate).expect("one record waits");
    gate.add_dirty(Txg(4), RECORD, 0);
    drop(fourth);
    assert!(begin(&gate).is_none(), "two records wait");
}

#[tokio::test]
async fn what_is_written_counts_until_its_group_is_finished() {
    let gate = TxgGate::new(Txg(4), LIMIT);
    gate.add_dirty(Txg(4), 3 * RECORD, 0);
    assert_eq!(gate.quiesce().await, Txg(4));
    for _ in 0..3 {
        assert!(begin(&gate).is_none(), "three records are in memory");
        gate.wrote(Txg(4), RECORD);
    }
    assert_eq!(gate.dirty(), 0);
    assert!(begin(&gate).is_none(), "three records are in memory");
    gate.finish(Txg(4));
    assert!(begin(&gate).is_some());
}

/// However small the limit, one transaction goes on.
#[tokio::test]
async fn one_may_always_begin() {
    let gate = TxgGate::new(Txg(4), 1);
    let only = begin(&gate).expect("it is alone");
    assert!(begin(&gate).is_none());
    drop(only);
    assert!(begin(&gate).is_some());
}
