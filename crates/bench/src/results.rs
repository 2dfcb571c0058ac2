//! What was measured, as it is printed, saved and compared with what was saved before.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result, While};
use crate::stats::{median, percentile, ratio};

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Mebibytes per second.
    #[serde(rename = "MiB/s")]
    Rate,
    /// Operations per second.
    #[serde(rename = "op/s")]
    Operations,
    /// Files per second.
    #[serde(rename = "files/s")]
    Files,
    /// Seconds; less is better.
    #[serde(rename = "s")]
    Seconds,
    /// Mebibytes; less is better.
    #[serde(rename = "MiB")]
    Memory,
    /// Of a hundred; less is better.
    #[serde(rename = "%")]
    Percent,
    /// Processor seconds for each GiB; less is better.
    #[serde(rename = "CPU s/GiB")]
    CpuPerGib,
}

impl Unit {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "MiB/s",
            Self::Operations => "op/s",
            Self::Files => "files/s",
            Self::Seconds => "s",
            Self::Memory => "MiB",
            Self::Percent => "%",
            Self::CpuPerGib => "CPU s/GiB",
        }
    }

    /// Whether a smaller value is the better one.
    pub fn less_is_better(self) -> bool {
        !matches!(self, Self::Rate | Self::Operations | Self::Files)
    }
}

/// One measured value with what it cost.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The case's name.
    pub case: String,
    /// What `value` counts.
    pub unit: Unit,
    /// What was measured.
    pub value: f64,
    /// Processor seconds of the serving process, for each GiB, or for each thousand operations where no data moves.
    pub server_cpu: Option<f64>,
    /// The same of the whole machine.
    pub machine_cpu: Option<f64>,
    /// Most memory of the serving process at once, bytes.
    pub peak_memory: Option<u64>,
    /// How long each operation took, nanoseconds, sorted.
    pub latencies: Vec<u64>,
}

impl Sample {
    /// A value without costs.
    pub fn plain(case: impl Into<String>, unit: Unit, value: f64) -> Self {
        let case = case.into();
        Self { case, unit, value, server_cpu: None, machine_cpu: None, peak_memory: None, latencies: Vec::new() }
    }
}

/// All rounds of one case on one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The case's name.
    pub case: String,
    /// The system's name.
    pub system: String,
    /// What the values count.
    pub unit: Unit,
    /// One for each round.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// See [`Sample::server_cpu`]; the median of the rounds, as all that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<f64>,
    /// See [`Sample::machine_cpu`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu: Option<f64>,
    /// The greatest of all rounds, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Half of the operations took no longer, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99 of 100 took no longer, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// A case that a system began and did not end in every round. Rounds that did end have their [`Line`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The case's name.
    pub case: String,
    /// The system's name.
    pub system: String,
    /// Rounds that failed.
    pub failed: u64,
    /// Rounds in all.
    pub rounds: u64,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What it ran on, and how: only runs that agree in it can be compared.
    pub setting: BTreeMap<String, String>,
    /// Everything that was measured.
    pub lines: Vec<Line>,
    /// What was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

fn median_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.flatten().collect();
    (!values.is_empty()).then(|| median(&values))
}

impl Line {
    /// Puts the rounds of one case together.
    pub fn of(system: &str, samples: &[Sample]) -> Option<Self> {
        let first = samples.first()?;
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let latency = |percent| {
            median_of(samples.iter().map(|sample| percentile(&sample.latencies, percent).map(|ns| ns as f64 / 1e3)))
        };
        Some(Self {
            case: first.case.clone(),
            system: system.to_owned(),
            unit: first.unit,
            median: median(&values),
            values,
            server_cpu: median_of(samples.iter().map(|sample| sample.server_cpu)),
            machine_cpu: median_of(samples.iter().map(|sample| sample.machine_cpu)),
            peak_memory: samples.iter().filter_map(|sample| sample.peak_memory).max(),
            p50_us: latency(50.0),
            p99_us: latency(99.0),
        })
    }

    /// How many times better this is than `other`.
    pub fn over(&self, other: &Line) -> Option<f64> {
        ratio(self.median, other.median, self.unit.less_is_better())
    }

    /// The median of how many times better it is in each round, of two that were measured in turn in all rounds.
    pub fn over_by_round(&self, other: &Line) -> Option<f64> {
        let of_round = |(ours, theirs): (&f64, &f64)| ratio(*ours, *theirs, self.unit.less_is_better());
        let ratios: Option<Vec<f64>> = self.values.iter().zip(&other.values).map(of_round).collect();
        ratios.filter(|ratios| ratios.len() == self.values.len().max(other.values.len())).map(|all| median(&all))
    }
}

impl Report {
    /// The line of a case and a system.
    pub fn line(&self, case: &str, system: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.case == case && line.system == system)
    }

    /// How often a case failed on a system, if it did.
    pub fn failure(&self, case: &str, system: &str) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.case == case && failure.system == system)
    }

    /// The names of the cases in their order, at the end those that always failed.
    pub fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        let failed = self.failures.iter().map(|failure| &failure.case);
        for case in self.lines.iter().map(|line| &line.case).chain(failed) {
            if !cases.contains(&case.as_str()) {
                cases.push(case);
            }
        }
        cases
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// When it is not what [`Report::save`] writes.
    pub fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| BenchError::Said(format!("reading results: {error}")))
    }

    /// What was committed last at `path`; else what is there; `None` when nothing is.
    ///
    /// # Errors
    /// When there is something else.
    pub fn previous(path: &Path) -> Result<Option<Self>> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut show = Command::new("git");
        show.arg("-C").arg(folder).args(["show", "HEAD:./results.json"]);
        let committed = show.output().ok().filter(|output| output.status.success());
        let committed = committed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        committed.or_else(|| std::fs::read_to_string(path).ok()).map(|json| Self::parse(&json)).transpose()
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// What the system said.
    pub fn save(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Said(format!("writing results: {error}")))?;
        std::fs::write(path, json + "\n").on(|| format!("writing {}", path.display()))
    }

    /// Puts what was measured now in the place of what an older report has, and keeps its other lines.
    pub fn renew(&mut self, newer: &Report) {
        // A case that failed has no figures now, whatever it had once.
        let is_renewed =
            |case: &str, system: &str| newer.line(case, system).is_some() || newer.failure(case, system).is_some();
        self.failures.retain(|old| !is_renewed(&old.case, &old.system));
        self.failures.extend(newer.failures.iter().cloned());
        self.lines.retain(|old| newer.line(&old.case, &old.system).is_some() || !is_renewed(&old.case, &old.system));
        for line in &newer.lines {
            match self.lines.iter_mut().find(|old| old.case == line.case && old.system == line.system) {
                Some(old) => *old = line.clone(),
                None => self.lines.push(line.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(case: &str, system: &str, unit: Unit, values: &[f64]) -> Line {
        let samples: Vec<Sample> = values.iter().map(|&value| Sample::plain(case, unit, value)).collect();
        Line::of(system, &samples).expect("there are values")
    }

    #[test]
    fn rounds_become_one_line() {
        let mut samples: Vec<Sample> =
            [3.0, 1.0, 2.0].iter().map(|&value| Sample::plain("a", Unit::Rate, value)).collect();
        samples[1].peak_memory = Some(7);
        samples[2].latencies = vec![1000, 2000];
        let line = Line::of("x", &samples).expect("there are values");
        assert_eq!((line.median, line.peak_memory, line.p50_us, line.p99_us), (2.0, Some(7), Some(1.0), Some(2.0)));
        assert_eq!(Line::of("x", &[]), None);
    }

    #[test]
    fn a_report_survives_json_and_is_compared() {
        let mut report = Report::default();
        report.lines.push(line("write", "platter", Unit::Rate, &[10.0, 30.0, 20.0]));
        report.lines.push(line("import", "platter", Unit::Seconds, &[2.0]));
        let json = serde_json::to_string(&report).expect("JSON");
        let mut old = Report::parse(&json).expect("a report");
        assert_eq!(old, report);
        assert!(json.contains("\"MiB/s\"") && !json.contains("p50_us"));
        let newer = Report {
            lines: vec![
                line("write", "platter", Unit::Rate, &[40.0]),
                line("import", "platter", Unit::Seconds, &[1.0]),
                line("write", "raw", Unit::Rate, &[80.0]),
            ],
            ..Report::default()
        };
        for case in ["write", "import"] {
            let (now, then) = (newer.line(case, "platter"), old.line(case, "platter"));
            assert_eq!(now.zip(then).and_then(|(now, then)| now.over(then)), Some(2.0), "{case}");
        }
        old.renew(&newer);
        assert_eq!(old.lines.len(), 3);
        assert_eq!(old.line("write", "platter").map(|line| line.median), Some(40.0));
        assert_eq!(old.cases(), ["write", "import"]);
        assert!(Report::parse("{}").is_err());
    }

    #[test]
    fn what_fails_now_has_no_old_figures() {
        let mut old = Report { lines: vec![line("mail", "btrfs", Unit::Operations, &[9.0])], ..Report::default() };
        let failure = Failure { case: "mail".into(), system: "btrfs".into(), failed: 3, rounds: 3 };
        old.renew(&Report { failures: vec![failure.clone()], ..Report::default() });
        assert_eq!((old.lines.len(), old.failure("mail", "btrfs"), old.cases()), (0, Some(&failure), vec!["mail"]));
        let newer = Report { lines: vec![line("mail", "btrfs", Unit::Operations, &[8.0])], ..Report::default() };
        old.renew(&newer);
        assert_eq!(old, newer);
    }
}
