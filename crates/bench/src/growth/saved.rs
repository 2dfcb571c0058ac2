//! What was found, as files: numbers and a drawing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::chart;
use super::found::Growth;
use crate::error::{BenchError, Result, While};

impl Growth {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Unit;

    fn some() -> Growth {
        let mut growth = Growth::default();
        growth.add("create", 1000, Unit::Operations, 5000.0);
        growth.add("import", 1, Unit::Seconds, 0.5);
        growth.add("create", 10_000, Unit::Operations, 4000.0);
        growth.leave_out("names: 100000".into());
        growth
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
}
