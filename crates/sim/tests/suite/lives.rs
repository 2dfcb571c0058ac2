//! A few lives of pools; `make sim-life` has a thousand.

use platter_model::disk::{FaultKind, History};
use platter_sim::life::{Outcome, Terms, drill, late, live, sound};

fn short(seed: u64, without: Vec<FaultKind>) -> Outcome {
    let terms = Terms { chapters: 3, without, judged: false };
    live(seed, &terms, 20).unwrap_or_else(|what| panic!("platter-sim life --seeds {seed} --chapters 3: {what}"))
}

#[test]
fn pools_live_through_faults_and_power_cuts_without_a_wrong_byte() {
    for seed in 0..4 {
        let outcome = short(seed, Vec::new());
        assert!(outcome.done.operations > 0 && outcome.done.verified > 0, "{outcome:?}");
        assert!(outcome.faults.each().any(|(_, count)| count > 0), "{outcome:?}");
    }
}

/// What a few lives have in them. Each also shows that nothing of it makes a file wrong.
#[test]
fn cache_devices_are_read_spares_stand_in_and_pools_grow() {
    let lives = [19, 33, 34, 37].map(|seed| short(seed, Vec::new()));
    let sum = |of: fn(&Outcome) -> u64| lives.iter().map(of).sum::<u64>();
    assert!(sum(|life| life.cached.hits) > 20, "cache devices are hardly read");
    assert!(sum(|life| life.cached.wrong) > 0, "no cache device returned anything wrong");
    assert!(sum(|life| life.spares_in) > 0, "no spare stood in");
    assert!(sum(|life| life.vdevs_added) > 0, "no vdev was added");
    assert!(sum(|life| life.growths) > 0, "no vdev has grown");
    assert!(sum(|life| life.trims) > 100, "disks are hardly told what is free");
}

#[test]
fn a_seed_has_one_history() {
    let (first, second) = (short(7, Vec::new()), short(7, Vec::new()));
    assert_eq!(first, second);
    assert!(first.commands > 100);
    assert_ne!(short(8, Vec::new()).history, first.history);
}

/// What a life destroys in its end counts as bit rot, and used to happen in lives without bit rot too. Writes are torn
/// by power cuts as well: in this life none are.
#[test]
fn what_is_left_out_does_not_happen() {
    let whole = short(12, Vec::new());
    for kind in [FaultKind::TornWrite, FaultKind::BitRot] {
        assert!(whole.faults.of(kind) > 0, "{kind:?} does not happen anyway");
        let outcome = short(12, vec![kind, FaultKind::LostWrite, FaultKind::Disappearance]);
        for kind in [kind, FaultKind::LostWrite, FaultKind::Disappearance] {
            assert_eq!(outcome.faults.of(kind), 0, "{kind:?}");
        }
    }
}

/// Devices that come back in the middle of scans, one after the other; that refuse what they are to be given; that are
/// somebody else's. With the bugs of their kinds (`make sim-canary`) a drill goes wrong in the first few.
#[test]
fn a_pool_knows_which_of_its_devices_are_complete() {
    for seed in 0..3 {
        drill(seed, History::new(0)).unwrap_or_else(|what| panic!("platter-sim life --drill --seeds {seed}: {what}"));
    }
}

/// Who reads what was freed sets nothing right, and no scan finds anything.
#[test]
fn what_was_freed_is_not_set_right() {
    for seed in 0..6 {
        late(seed, History::new(0)).unwrap_or_else(|what| panic!("platter-sim life --late --seeds {seed}: {what}"));
    }
}

/// Where nothing is damaged a scan finds nothing, whatever is written and freed beside it, and a reconstruction leaves
/// nothing to the scrub that verifies it.
#[test]
fn scans_of_a_sound_pool_have_nothing_to_set_right() {
    for seed in 0..4 {
        sound(seed, History::new(0)).unwrap_or_else(|what| panic!("platter-sim life --sound --seeds {seed}: {what}"));
    }
}
