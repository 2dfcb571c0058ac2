//! Which pools a command works on, and the `[interval [count]]` at the end of its words.

use std::time::Duration;

use platter_api::messages::{ErrorBody, ErrorKind, GetPool, ListPools, PoolView};
use platter_api::report::Detail;

use crate::session::{Failure, Session, complain, usage};

/// `[interval [count]]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repeat {
    /// Time between two rounds; `None` for one round only.
    pub interval: Option<Duration>,
    /// Number of rounds; 0 is without end.
    pub count: u64,
}

impl Repeat {
    /// Takes the numbers off the end of `words` (OpenZFS: `get_interval_count`).
    ///
    /// # Errors
    /// An interval of zero.
    pub fn take(words: &mut Vec<String>) -> Result<Self, Failure> {
        let mut numbers = Vec::new();
        while numbers.len() < 2
            && let Some(number) = words.last().and_then(|word| number(word))
        {
            numbers.push(number);
            words.pop();
        }
        let (interval, count) = match numbers.as_slice() {
            [] => return Ok(Self::default()),
            [interval] => (*interval, 0.0),
            [count, interval, ..] => (*interval, *count),
        };
        if interval <= 0.0 || (numbers.len() == 2 && count <= 0.0) {
            return Err(usage("interval cannot be zero"));
        }
        Ok(Self { interval: Some(Duration::from_secs_f64(interval.min(1e9))), count: count as u64 })
    }

    /// Whether another round follows after `done` rounds; sleeps before it.
    pub fn again(&self, session: &Session, done: u64) -> bool {
        match self.interval {
            Some(interval) if self.count == 0 || done < self.count => session.sleep(interval),
            _ => false,
        }
    }
}

fn number(word: &str) -> Option<f64> {
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| word.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

/// `-T d|u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamp {
    /// As date(1).
    Date,
    /// Seconds.
    Unix,
}

impl Timestamp {
    /// Parses the option's argument.
    ///
    /// # Errors
    /// Neither `d` nor `u`.
    pub fn parse(text: Option<&str>) -> Result<Option<Self>, Failure> {
        match text.map(|text| text.chars().next()) {
            None => Ok(None),
            Some(Some('d')) => Ok(Some(Self::Date)),
            Some(Some('u')) => Ok(Some(Self::Unix)),
            Some(_) => Err(usage("")),
        }
    }

    /// The time now.
    pub fn now(self) -> String {
        match self {
            Self::Date => crate::nice::date(crate::nice::now()),
            Self::Unix => crate::nice::now().to_string(),
        }
    }
}

/// Names of the pools to work on: those given (sorted, once each), or all.
///
/// # Errors
/// When the daemon cannot be asked.
pub fn names(session: &mut Session, given: &[String]) -> Result<Vec<String>, ErrorBody> {
    let mut names = if given.is_empty() { session.ask(ListPools {})?.pools } else { given.to_vec() };
    names.sort();
    names.dedup();
    Ok(names)
}

/// Reads one pool.
///
/// # Errors
/// No such pool, or the daemon cannot be asked.
pub fn view(session: &mut Session, name: &str, detail: Detail) -> Result<PoolView, ErrorBody> {
    let Detail { errors, extended } = detail;
    session.ask(GetPool { pool: name.to_owned(), errors, extended })
}

/// Reads the pools given, or all; complains about those that are not there. The exit code that makes.
///
/// # Errors
/// When the daemon cannot be asked at all.
pub fn views(session: &mut Session, given: &[String], detail: Detail) -> Result<(Vec<PoolView>, u8), ErrorBody> {
    let mut views = Vec::new();
    let mut code = 0;
    for name in names(session, given)? {
        match view(session, &name, detail) {
            Ok(view) => views.push(view),
            // A pool that was exported since it was listed is no error.
            Err(body) if given.is_empty() && body.kind == ErrorKind::NoSuchPool => {}
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    Ok((views, code))
}

/// Does something with each pool given, or all; complains and goes on.
///
/// # Errors
/// When the daemon cannot be asked at all.
pub fn each(
    session: &mut Session,
    given: &[String],
    mut action: impl FnMut(&mut Session, &str) -> Result<(), ErrorBody>,
) -> Result<u8, Failure> {
    let mut code = 0;
    for name in names(session, given)? {
        if let Err(body) = action(session, &name) {
            complain(&body);
            code = 1;
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(line: &str) -> (Result<Repeat, Failure>, Vec<String>) {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (Repeat::take(&mut words), words)
    }

    #[test]
    fn numbers_at_the_end_are_interval_and_count() {
        let (repeat, rest) = take("tank 2");
        assert_eq!(repeat.unwrap(), Repeat { interval: Some(Duration::from_secs(2)), count: 0 });
        assert_eq!(rest, ["tank"]);
        let (repeat, rest) = take("a b 0.5 3");
        assert_eq!(repeat.unwrap(), Repeat { interval: Some(Duration::from_millis(500)), count: 3 });
        assert_eq!(rest, ["a", "b"]);
        let (repeat, rest) = take("tank2");
        assert_eq!((repeat.unwrap(), rest), (Repeat::default(), vec!["tank2".to_owned()]));
        assert_eq!(take("1 2 3").1, ["1"]);
        assert!(take("tank 0").0.is_err());
        assert!(take("tank 1 0").0.is_err());
    }
}
