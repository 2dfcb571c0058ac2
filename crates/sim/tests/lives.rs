//! A few lives of pools; `make sim-life` has a thousand.

use platter_sim::disk::FaultKind;
use platter_sim::life::{Outcome, Terms, live};

fn short(seed: u64, without: Vec<FaultKind>) -> Outcome {
    let terms = Terms { chapters: 3, without };
    live(seed, &terms, 20).unwrap_or_else(|what| panic!("platter-sim life --seeds {seed} --chapters 3: {what}"))
}

#[test]
fn pools_live_through_faults_and_power_cuts_without_a_wrong_byte() {
    for seed in 0..6 {
        let outcome = short(seed, Vec::new());
        assert!(outcome.done.operations > 0 && outcome.done.verified > 0, "{outcome:?}");
        assert!(outcome.faults.each().any(|(_, count)| count > 0), "{outcome:?}");
    }
}

#[test]
fn a_seed_has_one_history() {
    let (first, second) = (short(7, Vec::new()), short(7, Vec::new()));
    assert_eq!(first, second);
    assert!(first.commands > 100);
    assert_ne!(short(8, Vec::new()).history, first.history);
}

#[test]
fn what_is_left_out_does_not_happen() {
    let outcome = short(7, vec![FaultKind::BitRot, FaultKind::LostWrite, FaultKind::Disappearance]);
    for kind in [FaultKind::BitRot, FaultKind::LostWrite, FaultKind::Disappearance] {
        assert_eq!(outcome.faults.of(kind), 0, "{kind:?}");
    }
}
