//! The raw device: fio with O_DIRECT on files like those that the file systems get, on the same disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::error::{BenchError, Result, While};
use crate::program::{find, output};
use crate::systems::{drop_caches, remove_folder};

/// Its name in the table.
pub const NAME: &str = "raw";
const LIMIT: Duration = Duration::from_secs(1200);

/// What fio found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FioResult {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Operations per second.
    pub rate: f64,
    /// Half of the operations took no longer, nanoseconds.
    pub p50: Option<u64>,
    /// 99 of 100 took no longer, nanoseconds.
    pub p99: Option<u64>,
}

/// The raw device under a folder of files.
#[derive(Debug)]
pub struct Raw {
    folder: PathBuf,
    files: u64,
    bytes: u64,
}

/// Why there is no raw device to compare with; `None` when there is.
pub fn missing() -> Option<String> {
    find("fio").is_none().then(|| "no program fio".into())
}

impl Raw {
    /// `files` files below `under` with `bytes` in all.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(under: &Path, files: u64, bytes: u64) -> Result<Self> {
        let folder = under.join("dev-raw");
        remove_folder(&folder);
        std::fs::create_dir_all(&folder).on(|| format!("making {}", folder.display()))?;
        Ok(Self { folder, files, bytes: bytes.next_multiple_of(files << 20) })
    }

    fn fio(&self, words: &[&str]) -> Result<String> {
        let names: Vec<String> =
            (0..self.files).map(|i| self.folder.join(format!("d{i}")).display().to_string()).collect();
        let mut command = Command::new("fio");
        command.args(["--name=raw", "--output-format=json", "--direct=1", "--ioengine=libaio", "--refill_buffers"]);
        command.args([format!("--filename={}", names.join(":")), format!("--size={}", self.bytes)]).args(words);
        output(&mut command, LIMIT, false)
    }

    /// Writes all files in large pieces.
    ///
    /// # Errors
    /// What fio said.
    pub fn write(&self) -> Result<FioResult> {
        let report = self.fio(&["--rw=write", "--bs=1M", "--iodepth=32", "--end_fsync=1"])?;
        parse(&report, "write")
    }

    /// Reads all files in large pieces.
    ///
    /// # Errors
    /// What fio said.
    pub fn read(&self) -> Result<FioResult> {
        drop_caches()?;
        parse(&self.fio(&["--rw=read", "--bs=1M", "--iodepth=32"])?, "read")
    }

    /// Reads (or writes) blocks at random places with as many requests at the same time as the file systems get.
    ///
    /// # Errors
    /// What fio said.
    pub fn random(&self, write: bool, block: u64, at_once: usize, time: Duration) -> Result<FioResult> {
        let (mode, key) = if write { ("--rw=randwrite", "write") } else { ("--rw=randread", "read") };
        let words = [format!("--bs={block}"), format!("--iodepth={at_once}"), seconds(time)];
        let words: Vec<&str> =
            words.iter().map(String::as_str).chain([mode, "--time_based", "--randrepeat=0"]).collect();
        parse(&self.fio(&words)?, key)
    }

    /// Appends with fsync from several threads.
    ///
    /// # Errors
    /// What fio said.
    pub fn appends(&self, threads: usize, time: Duration) -> Result<FioResult> {
        let mut command = Command::new("fio");
        command.args(["--name=raw", "--output-format=json", "--ioengine=psync", "--rw=write", "--bs=4k", "--fsync=1"]);
        command.args([format!("--numjobs={threads}"), format!("--directory={}", self.folder.display()), seconds(time)]);
        command.args(["--size=256M", "--thread", "--group_reporting", "--time_based", "--fallocate=none"]);
        parse(&output(&mut command, LIMIT, false)?, "write")
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        remove_folder(&self.folder);
    }
}

/// fio counts whole seconds.
fn seconds(time: Duration) -> String {
    format!("--runtime={}", time.as_secs().max(1))
}

/// Reads fio's JSON report of one job (or one group); `kind` is `read` or `write`.
///
/// # Errors
/// When it is no such report.
pub fn parse(report: &str, kind: &str) -> Result<FioResult> {
    let bad = |what: &str| BenchError::Said(format!("fio's report: {what}"));
    // Warnings may stand before it.
    let json = report.find('{').map_or("", |start| &report[start..]);
    let report: Value = serde_json::from_str(json).map_err(|error| bad(&error.to_string()))?;
    let job = &report["jobs"][0];
    if job["error"].as_i64().is_some_and(|error| error != 0) {
        return Err(bad(&format!("error {}", job["error"])));
    }
    let part = &job[kind];
    let bandwidth = part["bw_bytes"].as_f64().filter(|&bytes| bytes > 0.0).ok_or_else(|| bad("no bandwidth"))?;
    let rate = part["iops"].as_f64().ok_or_else(|| bad("no rate"))?;
    // With fsync after each write it is the fsync that takes the time.
    let synced = &job["sync"]["lat_ns"]["percentile"];
    let latencies = if synced["50.000000"].is_u64() { synced } else { &part["clat_ns"]["percentile"] };
    Ok(FioResult { bandwidth, rate, p50: latencies["50.000000"].as_u64(), p99: latencies["99.000000"].as_u64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_fio_is_read() {
        let report = r#"fio: a warning
            {"jobs": [{"error": 0,
                "read": {"bw_bytes": 0, "iops": 0.0},
                "write": {"bw_bytes": 104857600, "iops": 100.5,
                    "clat_ns": {"percentile": {"50.000000": 1000, "99.000000": 9000}}}}]}"#;
        let expected = FioResult { bandwidth: 104_857_600.0, rate: 100.5, p50: Some(1000), p99: Some(9000) };
        assert_eq!(parse(report, "write").expect("a report"), expected);
        assert!(parse(report, "read").is_err());
        assert!(parse("fio: no such file", "read").is_err());
        assert!(parse(r#"{"jobs": [{"error": 28}]}"#, "read").is_err());
    }
}
