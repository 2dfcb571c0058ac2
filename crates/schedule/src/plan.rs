//! What is due, and what is surplus.

use std::collections::BTreeSet;

use platter_api::schedule::Schedule;

use crate::slot::{Moment, Slot};

/// Names of the snapshots that are to be made now, without their data set; `existing` are those that are there.
pub fn due<'a>(schedule: &Schedule, now: Moment, existing: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let existing: BTreeSet<&str> = existing.into_iter().collect();
    let slots = schedule.rules.iter().filter_map(|rule| Slot::at(rule.frequency, now));
    slots.map(|slot| slot.to_string()).filter(|name| !existing.contains(name.as_str())).collect()
}

/// When something is due next, if all is made that is due now.
pub fn next(schedule: &Schedule, now: Moment) -> Option<Moment> {
    schedule.rules.iter().filter_map(|rule| Slot::at(rule.frequency, now)?.end()).min()
}

/// Those of `existing` that are more than the schedule keeps, the oldest first. One of a time that has not come yet was
/// made while the clock was wrong: it counts for nothing until then, and stays.
pub fn surplus<'a>(schedule: &Schedule, now: Moment, existing: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut ours: Vec<Slot> = existing.into_iter().filter_map(Slot::named).collect();
    ours.retain(|slot| slot.begin <= now);
    ours.sort();
    let mut surplus = Vec::new();
    for rule in &schedule.rules {
        assert!(rule.keep > 0, "the newest stays");
        let of_kind: Vec<&Slot> = ours.iter().filter(|slot| slot.frequency == rule.frequency).collect();
        let too_many = of_kind.len().saturating_sub(rule.keep as usize);
        surplus.extend(of_kind[..too_many].iter().copied());
    }
    surplus.sort();
    surplus.into_iter().map(Slot::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_due_for_each_slot_and_the_oldest_are_surplus() {
        let schedule = Schedule::parse("10s:3,hourly:2").unwrap();
        let (mut there, mut made) = (vec!["mine".to_owned(), "auto_2020-01-01T00:00:00Z_daily".to_owned()], 0);
        // Every second of three hours, but for one that was slept through.
        for now in (1_700_000_000..1_700_003_600).chain(1_700_007_200..1_700_010_800) {
            let new = due(&schedule, Moment(now), there.iter().map(String::as_str));
            made += new.len();
            there.extend(new);
            let gone = surplus(&schedule, Moment(now), there.iter().map(String::as_str));
            there.retain(|name| !gone.contains(name));
            assert!(next(&schedule, Moment(now)).unwrap() > Moment(now));
        }
        assert_eq!(made, 720 + 4, "each slot in which somebody was awake");
        let kept = |kind: &str| there.iter().filter(|name| name.ends_with(kind)).count();
        assert_eq!((kept("_10s"), kept("_hourly"), kept("mine"), kept("_daily")), (3, 2, 1, 1));
        assert!(due(&schedule, Moment(1_700_010_799), there.iter().map(String::as_str)).is_empty());
        assert!(due(&Schedule::default(), Moment(0), []).is_empty());
    }

    #[test]
    fn what_a_wrong_clock_has_made_takes_nobodys_place() {
        let schedule = Schedule::parse("hourly:1").unwrap();
        let there = ["auto_2030-01-01T00:00:00Z_hourly", "auto_2023-11-14T22:00:00Z_hourly"];
        assert_eq!(surplus(&schedule, Moment(1_700_000_000), there), [""; 0]);
    }
}
