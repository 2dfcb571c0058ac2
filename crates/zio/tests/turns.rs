//! Who waits for the same thing goes on in the order of coming: a simulation replays only then.

use std::sync::{Arc, Mutex};

use platter_ondisk::Txg;
use platter_zio::{FailMode, Suspension, TxgGate};

/// Many enough that chance does not put them in order.
const WAITING: usize = 40;

/// Starts tasks that wait, lets `happen` what they wait for, and tells the order in which they went on.
async fn order<F>(wait: impl Fn(usize) -> F, happen: impl FnOnce()) -> Vec<usize>
where
    F: Future<Output = ()> + Send + 'static,
{
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..WAITING)
        .map(|index| {
            let (order, wait) = (order.clone(), wait(index));
            tokio::spawn(async move {
                wait.await;
                order.lock().expect("nobody panics").push(index);
            })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(order.lock().expect("nobody panics").is_empty(), "all of them wait");
    happen();
    for task in tasks {
        task.await.expect("nobody panics");
    }
    let order = order.lock().expect("nobody panics");
    order.clone()
}

fn as_they_came() -> Vec<usize> {
    (0..WAITING).collect()
}

/// They went on in a random order: tokio's `watch` spreads who waits over eight lists by chance.
#[tokio::test]
async fn who_waits_for_a_group_goes_on_in_turn() {
    let gate = TxgGate::new(Txg(4), 1 << 20);
    assert_eq!(gate.quiesce().await, Txg(4));
    let wait = |_| {
        let gate = gate.clone();
        async move { gate.wait_synced(Txg(4)).await.expect("the pool does not stop") }
    };
    assert_eq!(order(wait, || gate.finish(Txg(4))).await, as_they_came());
}

#[tokio::test]
async fn who_waits_for_a_suspended_pool_goes_on_in_turn() {
    let suspension = Arc::new(Suspension::default());
    suspension.set_mode(FailMode::Wait);
    let wait = |index| {
        let suspension = suspension.clone();
        async move {
            match index % 2 {
                0 => assert!(suspension.hold(0, "no device").await),
                _ => _ = suspension.resumed().await,
            }
        }
    };
    assert_eq!(order(wait, || assert!(suspension.resume())).await, as_they_came());
}

#[tokio::test]
async fn who_waits_for_a_pool_to_halt_goes_on_in_turn() {
    let suspension = Arc::new(Suspension::default());
    let wait = |_| {
        let suspension = suspension.clone();
        async move { suspension.halted().await }
    };
    assert_eq!(order(wait, || suspension.stop("the pool was closed")).await, as_they_came());
}
