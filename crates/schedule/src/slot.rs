//! The hours, days and so on for which there are snapshots, and those snapshots' names.

use std::fmt;

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
use platter_api::schedule::Frequency;

/// Seconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// Before which all names begin.
const PREFIX: &str = "auto_";
/// Seconds by which a clock may be set back between a name and its snapshot, and by which that may come late.
const SET_BACK: u64 = 5;
const LATE: u64 = 60;
const TIME: &str = "%Y-%m-%dT%H:%M:%SZ";

impl Moment {
    /// As a date; none beyond what the calendar knows.
    fn date(self) -> Option<NaiveDateTime> {
        DateTime::<Utc>::from_timestamp(i64::try_from(self.0).ok()?, 0).map(|time| time.naive_utc())
    }

    fn of(date: NaiveDateTime) -> Option<Self> {
        u64::try_from(date.and_utc().timestamp()).ok().map(Self)
    }
}

/// One hour, day and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// When it begins.
    pub begin: Moment,
    /// What of.
    pub frequency: Frequency,
}

impl Slot {
    /// The one in which `now` lies; `None` beyond the calendar.
    pub fn at(frequency: Frequency, now: Moment) -> Option<Self> {
        let date = now.date()?;
        let day = date.date();
        let midnight = |day: NaiveDate| Moment::of(day.and_time(NaiveTime::MIN));
        let begin = match frequency {
            Frequency::Every(period) => Some(Moment(now.0 - now.0 % period)),
            Frequency::Hourly => Moment::of(day.and_hms_opt(date.hour(), 0, 0)?),
            Frequency::Daily => midnight(day),
            Frequency::Weekly => {
                midnight(day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into()))?)
            }
            Frequency::Monthly => midnight(day.with_day(1)?),
            Frequency::Yearly => midnight(day.with_ordinal(1)?),
        };
        let slot = Self { begin: begin?, frequency };
        assert!(slot.begin <= now, "it has begun");
        Some(slot)
    }

    /// When the next one begins.
    pub fn end(self) -> Option<Moment> {
        let begin = self.begin.date()?;
        match self.frequency {
            Frequency::Every(period) => Some(Moment(self.begin.0.checked_add(period)?)),
            Frequency::Hourly => Some(Moment(self.begin.0.checked_add(3600)?)),
            Frequency::Daily => Moment::of(begin.checked_add_days(Days::new(1))?),
            Frequency::Weekly => Moment::of(begin.checked_add_days(Days::new(7))?),
            Frequency::Monthly => Moment::of(begin.checked_add_months(Months::new(1))?),
            Frequency::Yearly => Moment::of(begin.checked_add_months(Months::new(12))?),
        }
    }

    /// The slot whose snapshot is called `name`, without its data set. A name that only resembles one is nobody's.
    pub fn named(name: &str) -> Option<Self> {
        let (time, word) = name.strip_prefix(PREFIX)?.split_once('_')?;
        let begin = Moment::of(NaiveDateTime::parse_from_str(time, TIME).ok()?)?;
        let slot = Self { begin, frequency: Frequency::parse(word)? };
        (slot.to_string() == name && Self::at(slot.frequency, begin) == Some(slot)).then_some(slot)
    }

    /// Whether a snapshot that was taken then can be this slot's: it was taken while that lasted, or soon after. One of
    /// another time that only has its name is somebody else's.
    pub fn is_of(self, taken: Moment) -> bool {
        let end = self.end().unwrap_or(Moment(u64::MAX));
        let (earliest, latest) = (self.begin.0.saturating_sub(SET_BACK), end.0.saturating_add(LATE));
        (earliest..=latest).contains(&taken.0)
    }
}

/// The name of its snapshot.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.begin.date().ok_or(fmt::Error)?;
        write!(f, "{PREFIX}{}_{}", begin.format(TIME), self.frequency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Moment {
        Moment::of(NaiveDateTime::parse_from_str(text, TIME).unwrap()).unwrap()
    }

    #[test]
    fn slots_begin_and_end_with_the_calendar() {
        let now = moment("2024-02-29T13:47:05Z");
        for (frequency, begin, end) in [
            ("hourly", "2024-02-29T13:00:00Z", "2024-02-29T14:00:00Z"),
            ("daily", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
            ("weekly", "2024-02-26T00:00:00Z", "2024-03-04T00:00:00Z"),
            ("monthly", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
            ("yearly", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
            ("10s", "2024-02-29T13:47:00Z", "2024-02-29T13:47:10Z"),
            ("15m", "2024-02-29T13:45:00Z", "2024-02-29T14:00:00Z"),
        ] {
            let slot = Slot::at(Frequency::parse(frequency).unwrap(), now).unwrap();
            assert_eq!((slot.begin, slot.end()), (moment(begin), Some(moment(end))), "{frequency}");
            assert_eq!(Slot::at(slot.frequency, slot.begin), Some(slot), "its first second is its own");
            assert_eq!(Slot::named(&slot.to_string()), Some(slot));
        }
    }

    #[test]
    fn only_exact_names_are_ours() {
        assert!(Slot::named("auto_2024-02-29T13:00:00Z_hourly").is_some());
        for other in [
            "auto_2024-02-29T13:00:00Z_hourly2",
            "auto_2024-2-29T13:00:00Z_hourly",
            "auto_2024-02-30T13:00:00Z_hourly",
            "auto_2024-02-29T13:00:00Z_60m",
            "auto_2024-02-29T13:00:01Z_hourly",
            "auto_2024-02-29T13:00:00Z_daily",
            "auto_2024-02-27T00:00:00Z_weekly",
            "auto_2024-02-29T13:00:05Z_10s",
            "auto_2024-02-29T13:00:00Z",
            "my_auto_2024-02-29T13:00:00Z_hourly",
            "autosnap_2024-02-29_13:00:00_hourly",
        ] {
            assert_eq!(Slot::named(other), None, "{other}");
        }
    }

    #[test]
    fn a_slots_snapshot_was_taken_in_it() {
        let slot = Slot::named("auto_2024-02-29T13:00:00Z_hourly").unwrap();
        for (taken, is_its) in [
            ("2024-02-29T12:59:00Z", false),
            ("2024-02-29T12:59:58Z", true),
            ("2024-02-29T13:00:00Z", true),
            ("2024-02-29T14:00:30Z", true),
            ("2024-02-29T14:02:00Z", false),
        ] {
            assert_eq!(slot.is_of(moment(taken)), is_its, "{taken}");
        }
    }
}
