//! What was found, and the steps that lead there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::extent::Clock;
use crate::error::Result;
use crate::meter::Usage;
use crate::results::Unit;
use crate::table::{lines_up, number};

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was measured.
    pub series: Cow<'static, str>,
    /// With how much: names, percent or GiB, as the series says.
    pub at: u64,
    /// What `value` counts.
    pub unit: Unit,
    /// What was found.
    pub value: f64,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Growth {
    /// What it ran on, and how.
    pub setting: BTreeMap<String, String>,
    /// Everything that was measured, in its order.
    pub points: Vec<Point>,
    /// The steps for which there was no time, or that failed.
    pub left_out: Vec<String>,
}

impl Point {
    /// What grows: the end of the series' name.
    pub(super) fn axis(&self) -> &str {
        self.series.rsplit(", ").next().unwrap_or_default()
    }
}

impl Growth {
    pub(super) fn add(&mut self, series: &'static str, at: u64, unit: Unit, value: f64) {
        eprintln!("Growth: {series} at {at}: {} {}", number(value), unit.name());
        self.points.push(Point { series: series.into(), at, unit, value });
    }

    /// The most memory that the daemon had, where the system tells it.
    pub(super) fn add_peak_memory(&mut self, series: &'static str, at: u64, usage: Usage) {
        if let Some(bytes) = usage.peak_memory {
            self.add(series, at, Unit::Memory, bytes as f64 / (1 << 20) as f64);
        }
    }

    pub(super) fn leave_out(&mut self, step: String) {
        eprintln!("Growth: {step}: left out");
        self.left_out.push(step);
    }

    /// Does `work` for each of `steps`. The first for which there is no time is left out with all that follow: one that
    /// would take `factor` times as long as the one before and cannot, or whose work says that it did not end.
    pub(super) fn grow(
        &mut self,
        steps: impl IntoIterator<Item = u64>,
        (clock, factor): (Clock, u32),
        name: impl Fn(u64) -> String,
        mut work: impl FnMut(u64, &mut Self) -> Result<bool>,
    ) -> Result<()> {
        let mut steps = steps.into_iter();
        let (mut before, mut left_out) = (None, None);
        for step in steps.by_ref() {
            let start = Instant::now();
            let has_time = before.is_none_or(|before| clock.has_time_for(factor, before));
            if !has_time || !work(step, self)? {
                left_out = Some(step);
                break;
            }
            before = Some(start);
        }
        left_out.into_iter().chain(steps).for_each(|step| self.leave_out(name(step)));
        Ok(())
    }

    /// The names of the series in their order.
    pub fn series(&self) -> Vec<&str> {
        let mut all = Vec::new();
        for point in &self.points {
            if !all.contains(&&*point.series) {
                all.push(&*point.series);
            }
        }
        all
    }

    /// The points of one.
    pub fn points_of(&self, series: &str) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.series == series)
    }

    /// As it is printed.
    pub fn table(&self) -> String {
        let mut rows = Vec::new();
        for series in self.series() {
            let points = self.points_of(series).enumerate();
            rows.extend(points.map(|(index, point)| {
                let name = if index == 0 { series } else { "" };
                vec![name.to_owned(), point.at.to_string(), format!("{} {}", number(point.value), point.unit.name())]
            }));
        }
        let mut text = lines_up(&["what", "at", "value"], &rows);
        for step in &self.left_out {
            let _ = writeln!(text, "left out: {step}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn some() -> Growth {
        let mut growth = Growth::default();
        growth.add("create", 1000, Unit::Operations, 5000.0);
        growth.add("import", 1, Unit::Seconds, 0.5);
        growth.add("create", 10_000, Unit::Operations, 4000.0);
        growth.leave_out("names: 100000".into());
        growth
    }

    #[test]
    fn points_of_a_series_stand_together() {
        let table = some().table();
        let cells: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[1], ["create", "1000", "5000", "op/s"]);
        assert_eq!(cells[2], ["10000", "4000", "op/s"]);
        assert_eq!(cells[3][0], "import");
        assert_eq!(cells[4][..2], ["left", "out:"]);
    }

    #[test]
    fn steps_that_do_not_end_are_left_out_with_those_that_follow() {
        let clock = Clock(Instant::now() + Duration::from_secs(50));
        let mut growth = Growth::default();
        let work = |step, found: &mut Growth| {
            found.add("step", step, Unit::Percent, 0.0);
            Ok(step < 3)
        };
        growth.grow(1..6, (clock, 2), |step| format!("step {step}"), work).expect("nothing fails");
        assert_eq!((growth.points.len(), growth.left_out.join(", ")), (3, "step 3, step 4, step 5".into()));
        let late = Clock(Instant::now());
        growth.grow(7..9, (late, 2), |step| format!("step {step}"), |_, _| Ok(true)).expect("nothing fails");
        assert_eq!(growth.left_out.last().expect("the first is always begun"), "step 8");
        assert_eq!(growth.left_out.len(), 4);
    }
}
