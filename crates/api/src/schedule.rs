//! The value of property `platter:snap`: how often a data set gets snapshots by itself, and how many of each kind stay.
//!
//! ```text
//! hourly:24,daily:30,monthly:12      the usual
//! 10s:60,5m:12,hourly:24             every ten seconds, every five minutes, ...
//! off                                none
//! ```
//!
//! It is a user property, so it is inherited as those are, and travels with the pool and with streams.

use std::fmt;

use crate::error::{Refused, Result};

/// The property that says which snapshots a data set gets by itself.
pub const SNAP: &str = "platter:snap";
/// The property that says whether those of them that are too many are destroyed: `on` (the default) or `off`.
pub const PRUNE: &str = "platter:prune";

/// Most snapshots of one kind that a schedule keeps.
const KEEP_MAX: u32 = 10_000;
/// The longest period that is given in seconds, minutes, hours or days: a leap year.
const PERIOD_MAX: u64 = 366 * 86_400;

/// How often: the beginnings of what are its snapshots' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frequency {
    /// Every so many seconds, counted from 1970.
    Every(u64),
    /// At each full hour.
    Hourly,
    /// At midnight (UTC).
    Daily,
    /// At midnight before Monday (UTC).
    Weekly,
    /// At midnight before the first of the month (UTC).
    Monthly,
    /// At midnight before the first of January (UTC).
    Yearly,
}

const WORDS: [(&str, Frequency); 5] = [
    ("hourly", Frequency::Hourly),
    ("daily", Frequency::Daily),
    ("weekly", Frequency::Weekly),
    ("monthly", Frequency::Monthly),
    ("yearly", Frequency::Yearly),
];
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

impl Frequency {
    /// From a word as [`Self`] shows it.
    pub fn parse(word: &str) -> Option<Self> {
        if let Some((_, known)) = WORDS.iter().find(|(known, _)| *known == word) {
            return Some(*known);
        }
        let (_, seconds) = UNITS.iter().find(|(unit, _)| word.ends_with(*unit))?;
        let number = &word[..word.len() - 1];
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        let period = number.parse::<u64>().ok().filter(|_| is_plain)?.checked_mul(*seconds)?;
        (1..=PERIOD_MAX).contains(&period).then_some(Self::Every(period))
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = WORDS.iter().find(|(_, known)| known == self) {
            return f.write_str(word);
        }
        let Self::Every(period) = *self else { unreachable!("it is every so many seconds or has a word") };
        let (unit, seconds) = UNITS.iter().find(|(_, seconds)| period.is_multiple_of(*seconds)).unwrap_or(&('s', 1));
        write!(f, "{}{unit}", period / seconds)
    }
}

/// One kind of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How often.
    pub frequency: Frequency,
    /// How many of them stay, at least 1.
    pub keep: u32,
}

/// See the module text. Each frequency is in it once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order in which they were given.
    pub rules: Vec<Rule>,
}

impl Schedule {
    /// From a property's value.
    ///
    /// # Errors
    /// What is wrong with it, and how it would be right.
    pub fn parse(text: &str) -> Result<Self> {
        let mut schedule = Self::default();
        if matches!(text, "off" | "none" | "-" | "") {
            return Ok(schedule);
        }
        for part in text.split(',') {
            let bad = |why: &str| {
                let how = "write for example 'hourly:24,daily:30,monthly:12', '10m:6' or 'off'";
                Refused::invalid(format!("'{SNAP}': '{part}' {why}; {how}"))
            };
            let (word, keep) = part.split_once(':').ok_or_else(|| bad("says not how many are kept"))?;
            let unknown = "is not hourly, daily, weekly, monthly, yearly or a number of s, m, h or d up to 366d";
            let frequency = Frequency::parse(word).ok_or_else(|| bad(unknown))?;
            let keep = keep.parse().ok().filter(|keep| (1..=KEEP_MAX).contains(keep));
            let keep = keep.ok_or_else(|| bad("can keep 1 to 10000"))?;
            if schedule.rules.iter().any(|rule| rule.frequency == frequency) {
                return Err(bad("is there twice"));
            }
            schedule.rules.push(Rule { frequency, keep });
        }
        Ok(schedule)
    }
}

/// Checks a value of one of our own properties; others may be anything.
///
/// # Errors
/// What is wrong with it.
pub fn check(name: &str, value: &str) -> Result<()> {
    match name {
        SNAP => Schedule::parse(value).map(drop),
        PRUNE if !matches!(value, "on" | "off") => {
            Err(Refused::invalid(format!("'{PRUNE}' must be one of 'on | off'")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read() {
        let schedule = Schedule::parse("hourly:24,10s:60,90m:1").unwrap();
        let shown: Vec<String> =
            schedule.rules.iter().map(|rule| format!("{}:{}", rule.frequency, rule.keep)).collect();
        assert_eq!(shown, ["hourly:24", "10s:60", "90m:1"]);
        assert_eq!(Schedule::parse("off").unwrap(), Schedule::default());
        assert_eq!(Frequency::parse("86400s").unwrap().to_string(), "1d");
        for bad in [
            "hourly",
            "hourly:0",
            "daily:10001",
            "hourl:3",
            "0s:1",
            "s:1",
            "400d:1",
            "1h:2,60m:3",
            "hourly:24,",
            "-5s:1",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad}");
        }
        assert!(check(SNAP, "x").is_err() && check(PRUNE, "maybe").is_err() && check("my:own", "x").is_ok());
    }
}
