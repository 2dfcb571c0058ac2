//! What is sent so that a target has the newest snapshot of its source: nothing is decided by names, all by guids.

/// A snapshot or a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// With its `@` or `#`, without its data set.
    pub name: String,
    /// The same on both sides, also of a bookmark of it.
    pub guid: u64,
    /// Whether somebody holds it.
    pub is_held: bool,
    /// Whether it is destroyed already and goes with its last user, as the one that `zfs diff` makes for itself does:
    /// a target would keep it for ever.
    pub is_leaving: bool,
}

impl Point {
    fn is_snapshot(&self) -> bool {
        self.name.starts_with('@')
    }
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All of this snapshot.
    Full(String),
    /// From a snapshot or bookmark to a snapshot, and with `all` those between them, too.
    Since {
        /// What the target has.
        from: String,
        /// What it gets.
        to: String,
        /// Whether those between are sent, too.
        all: bool,
    },
}

impl Step {
    /// The snapshot that the target has afterwards.
    pub fn to(&self) -> &str {
        match self {
            Self::Full(to) | Self::Since { to, .. } => to,
        }
    }
}

/// Why nothing can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The source has no snapshot that stays.
    NoSnapshot,
    /// The target has something, but nothing that came from here.
    NothingInCommon,
    /// The target has this snapshot, which is newer than what both have.
    Diverged(String),
    /// The target has this one, which is newer, too, and goes as soon as nobody uses it any more.
    Leaving(String),
}

/// Where what both have ends: places in `target` and in `source`, there a snapshot rather than its bookmark.
fn last_in_common(source: &[Point], target: &[Point]) -> Option<(usize, usize)> {
    let of_guid = |guid: u64| {
        let found = |is_snapshot: bool| {
            source.iter().position(|point| point.guid == guid && point.is_snapshot() == is_snapshot)
        };
        found(true).or_else(|| found(false))
    };
    target.iter().enumerate().rev().find_map(|(at, point)| of_guid(point.guid).map(|from| (at, from)))
}

/// The snapshot of the source that the target has and nothing newer of; none where only a bookmark of it is left.
pub fn base<'a>(source: &'a [Point], target: &[Point]) -> Option<&'a Point> {
    let (_, at) = last_in_common(source, target)?;
    Some(&source[at]).filter(|point| point.is_snapshot())
}

/// Whether anything can build on what the target has.
pub fn has_common(source: &[Point], target: &[Point]) -> bool {
    last_in_common(source, target).is_some()
}

/// The streams that bring the target to the newest snapshot; both lists the oldest first, `target` only snapshots and
/// `None` when it does not exist. With `force` the target gives up what is newer there. Snapshots that are leaving are
/// not sent, but what the target has of them may be what both have.
///
/// # Errors
/// See [`Obstacle`].
pub fn plan(source: &[Point], target: Option<&[Point]>, force: bool) -> Result<Vec<Step>, Obstacle> {
    let newest = source.iter().rev().find(|point| point.is_snapshot() && !point.is_leaving);
    let newest = newest.ok_or(Obstacle::NoSnapshot)?;
    let Some(target) = target else { return Ok(streams(source, None)) };
    let (common, at) = last_in_common(source, target).ok_or(Obstacle::NothingInCommon)?;
    let newer = &target[common + 1..];
    if let Some(newer) = newer.iter().find(|point| !point.is_leaving && !force) {
        return Err(Obstacle::Diverged(newer.name.clone()));
    }
    let base = &source[at];
    if base.guid == newest.guid {
        return Ok(Vec::new());
    }
    let steps = streams(&source[at..], Some(base));
    match newer.iter().find(|point| point.is_leaving) {
        Some(leaving) if !steps.is_empty() => Err(Obstacle::Leaving(leaving.name.clone())),
        _ => Ok(steps),
    }
}

/// The streams that bring what has `base` each snapshot of `source` that stays. A bookmark lies where its snapshot lay.
fn streams(source: &[Point], base: Option<&Point>) -> Vec<Step> {
    let later = source.iter().filter(|point| point.is_snapshot() && base.is_none_or(|base| base.guid != point.guid));
    let later: Vec<&Point> = later.collect();
    let mut steps = Vec::new();
    let mut from = base;
    for (place, run) in later.split(|point| point.is_leaving).enumerate() {
        let (Some(&next), Some(&last)) = (run.first(), run.last()) else { continue };
        // What is leaving lies between runs, and only a snapshot has others between it and another one.
        let start = from.filter(|from| place == 0 && from.is_snapshot()).unwrap_or_else(|| {
            let to = next.name.clone();
            steps.push(match from {
                Some(from) => Step::Since { from: from.name.clone(), to, all: false },
                None => Step::Full(to),
            });
            next
        });
        if start != last {
            steps.push(Step::Since { from: start.name.clone(), to: last.name.clone(), all: true });
        }
        from = Some(last);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> Vec<Point> {
        let point = |word: &str| Point {
            name: word.to_owned(),
            guid: word[1..2].parse().expect("a digit"),
            is_held: false,
            is_leaving: word.ends_with('-'),
        };
        text.split_whitespace().map(point).collect()
    }

    fn steps(source: &str, target: Option<&str>, force: bool) -> Result<String, Obstacle> {
        let target = target.map(points);
        let shown = plan(&points(source), target.as_deref(), force)?.into_iter().map(|step| match step {
            Step::Full(name) => name,
            Step::Since { from, to, all: true } => format!("-I {from} {to}"),
            Step::Since { from, to, all: false } => format!("-i {from} {to}"),
        });
        Ok(shown.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn the_newest_in_common_is_where_it_goes_on() {
        assert_eq!(steps("@1 @2 @3", None, false).unwrap(), "@1, -I @1 @3");
        assert_eq!(steps("@1", None, false).unwrap(), "@1");
        assert_eq!(steps("@1 @2 @3", Some("@1 @2x"), false).unwrap(), "-I @2 @3");
        assert_eq!(steps("@1 @2 @3", Some("@1 @2 @3"), false).unwrap(), "");
        assert_eq!(steps("#1 @3 @4", Some("@0 @1"), false).unwrap(), "-i #1 @3, -I @3 @4");
        assert_eq!(steps("#1 @3", Some("@1"), false).unwrap(), "-i #1 @3");
        assert_eq!(steps("#2 @2 @3", Some("@2"), false).unwrap(), "-I @2 @3", "a snapshot rather than its bookmark");
        assert_eq!(steps("@1 #2", Some("@1 @2"), false).unwrap(), "", "the target has what is newer, but gone here");
    }

    #[test]
    fn what_is_leaving_is_not_sent() {
        assert_eq!(steps("@1- @2 @3 @4- @5- @6 @7 @8-", None, false).unwrap(), "@2, -I @2 @3, -i @3 @6, -I @6 @7");
        assert_eq!(steps("@1 @2- @3 @4", Some("@1"), false).unwrap(), "-i @1 @3, -I @3 @4");
        assert_eq!(steps("@1 @2 @3-", Some("@1"), false).unwrap(), "-I @1 @2");
        assert_eq!(steps("@1 @2-", Some("@1"), false).unwrap(), "");
        assert_eq!(steps("@1 @2- @3", Some("@1 @2"), false).unwrap(), "-I @2- @3", "what both have may be leaving");
        assert_eq!(steps("@1 @2-", Some("@1 @2"), false).unwrap(), "");
        assert_eq!(steps("@1-", None, false), Err(Obstacle::NoSnapshot));
    }

    #[test]
    fn a_bookmark_of_what_is_gone_is_not_given_up_for_an_older_snapshot() {
        let found = |source: &str, target: &str| base(&points(source), &points(target)).map(|point| point.name.clone());
        assert_eq!(found("@1 @2", "@1 @2"), Some("@2".into()));
        assert_eq!(found("@1 #2", "@1 @2"), None);
        assert_eq!(found("@1 #2 @2", "@1 @2"), Some("@2".into()));
        assert_eq!(found("@1", "@7"), None);
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        assert_eq!(steps("#1", None, false), Err(Obstacle::NoSnapshot));
        assert_eq!(steps("@1 @2", Some(""), false), Err(Obstacle::NothingInCommon));
        assert_eq!(steps("@1 @2", Some("@7 @8"), true), Err(Obstacle::NothingInCommon));
        assert_eq!(steps("@1 @2", Some("@1 @8"), false), Err(Obstacle::Diverged("@8".into())));
        assert_eq!(steps("@1 @2", Some("@1 @8"), true).unwrap(), "-I @1 @2");
        // `zfs diff` runs there: nothing is in the way of nothing, and giving it up would not work.
        assert_eq!(steps("@1", Some("@1 @8-"), false).unwrap(), "");
        for force in [false, true] {
            assert_eq!(steps("@1 @2", Some("@1 @8-"), force), Err(Obstacle::Leaving("@8-".into())));
        }
        assert_eq!(steps("@1 @2", Some("@1 @7- @8"), false), Err(Obstacle::Diverged("@8".into())));
    }
}
