//! How Platter behaves as what it holds grows: names in one directory, the part of a pool that is full, data in all,
//! file systems.
//!
//! Each step is larger than the one before. A step that would not end in time is left out, which is said.

mod chart;
mod datasets;
mod fill;
mod import;
mod names;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result, While, said};
use crate::interrupt;
use crate::meter::Usage;
use crate::results::Unit;
use crate::scenario::Context;
use crate::systems::{FileSystem, Layout, Platter, Shape};
use crate::table::{lines_up, number};

/// Bytes of a sparse file for what takes little room.
const SPARSE: u64 = 64 << 30;

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
    fn axis(&self) -> &str {
        self.series.rsplit(", ").next().unwrap_or_default()
    }
}

impl Growth {
    fn add(&mut self, series: &'static str, at: u64, unit: Unit, value: f64) {
        eprintln!("Growth: {series} at {at}: {} {}", number(value), unit.name());
        self.points.push(Point { series: series.into(), at, unit, value });
    }

    /// The most memory that the daemon had, where the system tells it.
    fn add_peak_memory(&mut self, series: &'static str, at: u64, usage: Usage) {
        if let Some(bytes) = usage.peak_memory {
            self.add(series, at, Unit::Memory, bytes as f64 / (1 << 20) as f64);
        }
    }

    fn leave_out(&mut self, step: String) {
        eprintln!("Growth: {step}: left out");
        self.left_out.push(step);
    }

    /// Does `work` for each of `steps`. The first for which there is no time is left out with all that follow: one that
    /// would take `factor` times as long as the one before and cannot, or whose work says that it did not end.
    fn grow(
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

    /// Takes over what an earlier run with the same setting found of the parts that this one did not measure.
    fn complete_from(&mut self, earlier: Self) {
        let comparable = |growth: &Self| {
            BTreeMap::from_iter(growth.setting.clone().into_iter().filter(|(name, _)| name != "minutes"))
        };
        if comparable(self) != comparable(&earlier) {
            println!("the saved figures were from another setting: all of them are replaced");
            return;
        }
        let measured: BTreeSet<String> = self.points.iter().map(|point| point.axis().to_owned()).collect();
        self.points.extend(earlier.points.into_iter().filter(|point| !measured.contains(point.axis())));
        let stays = |step: &String| !measured.iter().any(|axis| step.contains(axis));
        self.left_out.extend(earlier.left_out.into_iter().filter(stays));
    }

    /// Writes `growth.json` and `growth.svg`. What is there of the same setting stays where this run has nothing.
    ///
    /// # Errors
    /// What the system said.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join("growth.json");
        let mut all = self.clone();
        if let Ok(earlier) = std::fs::read(&path) {
            let earlier = serde_json::from_slice(&earlier);
            all.complete_from(earlier.map_err(|error| BenchError::Said(format!("reading what was found: {error}")))?);
        }
        let json = serde_json::to_string_pretty(&all)
            .map_err(|error| BenchError::Said(format!("writing what was found: {error}")))?;
        std::fs::write(&path, json + "\n").on(|| format!("writing {}", path.display()))?;
        chart::draw(&all, &folder.join("growth.svg"))
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Names in a directory at most.
    pub names: u64,
    /// GiB in a pool at most.
    pub gib: u64,
    /// File systems in a pool at most.
    pub datasets: u64,
    /// For everything together.
    pub time: Duration,
}

/// The end of the time that something has.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether there is time for something that takes `factor` times as long as what was done since `start`.
    fn has_time_for(self, factor: u32, start: Instant) -> bool {
        start.elapsed() * factor < self.left()
    }

    fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Sizes to measure at: `first`, then each `factor` times the one before, up to `most`.
fn steps(first: u64, factor: u32, most: u64) -> impl Iterator<Item = u64> {
    let all = std::iter::successors(Some(first), move |size| size.checked_mul(factor.into()));
    all.take_while(move |size| *size <= most)
}

/// Has `make` make number after number until there are `step` of them; `false` when the time was over before.
fn make_up_to(step: u64, made: &mut u64, clock: Clock, mut make: impl FnMut(u64) -> Result<()>) -> Result<bool> {
    while *made < step && !clock.is_over() {
        make(*made)?;
        *made += 1;
    }
    Ok(*made >= step)
}

/// A new pool on one large sparse file, with blocks of `record` bytes.
fn sparse_pool(platter: &mut Platter, context: &Context, record: u64, more: &[&str]) -> Result<()> {
    let shape = Shape { layout: Layout::Single, record, device: SPARSE, under: context.under.clone() };
    platter.create_with(&shape, more)
}

type Part = fn(&mut Platter, &Context, Extent, Clock, &mut Growth) -> Result<()>;
const PARTS: [(&str, Part); 4] =
    [("names", names::measure), ("fill", fill::measure), ("import", import::measure), ("datasets", datasets::measure)];

/// Measures the parts that `wants` takes (`names`, `fill`, `import`, `datasets`) on new pools below the context's
/// folder, one after the other. Returns whether nothing failed.
///
/// # Errors
/// No part is wanted, or it was interrupted: what fails otherwise is said, and left out.
pub fn measure(
    platter: &mut Platter,
    context: &Context,
    extent: Extent,
    wants: impl Fn(&str) -> bool,
    found: &mut Growth,
) -> Result<bool> {
    let start = Instant::now();
    let mut complete = true;
    let parts: Vec<_> = PARTS.into_iter().filter(|(name, _)| wants(name)).collect();
    if parts.is_empty() {
        return said("growth is measured in the parts names, fill, import and datasets, of which --only leaves none");
    }
    let count = parts.len() as u32;
    for (index, (name, part)) in parts.into_iter().enumerate() {
        // A part has its share of the time and what those before it did not need.
        let clock = Clock(start + extent.time * (index as u32 + 1) / count);
        let measured = part(platter, context, extent, clock, found);
        let destroyed = platter.destroy();
        interrupt::check()?;
        match measured.and(destroyed) {
            Ok(()) => {}
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                eprintln!("Growth: {name}: FAILED: {error}");
                found.left_out.push(format!("{name}: failed"));
                complete = false;
            }
        }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn it_is_saved_and_drawn() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        some().save(folder.path()).expect("saved");
        let json = std::fs::read_to_string(folder.path().join("growth.json")).expect("there");
        assert!(json.contains("\"op/s\"") && json.contains("100000"));
        let svg = std::fs::read_to_string(folder.path().join("growth.svg")).expect("there");
        assert!(svg.contains("create") && svg.matches("<circle").count() == 3);
    }

    #[test]
    fn parts_that_were_not_measured_stay_as_they_were() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let save = |series: &[(&'static str, f64)], size: &str| {
            let mut growth = Growth::default();
            growth.setting.insert("size_mib".into(), size.into());
            growth.setting.insert("minutes".into(), series.len().to_string());
            series.iter().for_each(|&(series, value)| growth.add(series, 1000, Unit::Operations, value));
            growth.save(folder.path()).expect("saved");
            let json = std::fs::read(folder.path().join("growth.json")).expect("there");
            let saved: Growth = serde_json::from_slice(&json).expect("as it was written");
            saved.points.iter().map(|point| point.value).collect::<Vec<_>>()
        };
        assert_eq!(save(&[("create, names", 1.0), ("lookup, names", 2.0), ("import, GiB", 3.0)], "1"), [1.0, 2.0, 3.0]);
        assert_eq!(save(&[("create, names", 4.0)], "1"), [4.0, 3.0]);
        assert_eq!(save(&[("import, GiB", 5.0)], "1"), [5.0, 4.0]);
        assert_eq!(save(&[("import, GiB", 6.0)], "2"), [6.0], "another size cannot be compared");
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

    #[test]
    fn steps_are_made_one_by_one_while_there_is_time() {
        assert_eq!(steps(100, 10, 10_000).collect::<Vec<_>>(), [100, 1000, 10_000]);
        assert_eq!(steps(1, 4, 63).collect::<Vec<_>>(), [1, 4, 16]);
        let (mut made, mut all) = (0, Vec::new());
        let clock = Clock(Instant::now() + Duration::from_secs(50));
        for step in [2, 5] {
            let make = |number| {
                all.push(number);
                Ok(())
            };
            assert!(make_up_to(step, &mut made, clock, make).expect("nothing fails"));
        }
        assert_eq!((made, all), (5, vec![0, 1, 2, 3, 4]));
        assert!(!make_up_to(6, &mut made, Clock(Instant::now()), |_| Ok(())).expect("nothing fails"));
    }

    #[test]
    fn what_would_take_too_long_is_not_begun() {
        let start = Instant::now() - Duration::from_secs(10);
        let clock = Clock(Instant::now() + Duration::from_secs(50));
        assert!(clock.has_time_for(4, start) && !clock.has_time_for(10, start) && !clock.is_over());
        assert!(Clock(start).is_over());
    }
}
