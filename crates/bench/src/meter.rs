//! What work costs: processor time of a server process and of the whole machine, and a server's peak memory.

use std::fs;

/// Ticks per second in `/proc`, the same on every Linux (`USER_HZ`).
const TICKS: f64 = 100.0;

/// What a stretch of work cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor seconds of the server process with all its threads, user and system.
    pub server_cpu: Option<f64>,
    /// Seconds in which the machine's processors were not idle: of everybody.
    pub machine_cpu: f64,
    /// The most memory that the server had at once, bytes.
    pub peak_memory: Option<u64>,
}

/// Measures from its start to its stop.
#[derive(Debug)]
pub struct Meter {
    server: Option<u32>,
    server_cpu: Option<f64>,
    machine_cpu: f64,
}

impl Meter {
    /// Starts. `server` is the process that serves the file system, if it is one.
    pub fn start(server: Option<u32>) -> Self {
        if let Some(pid) = server {
            // 5 sets the mark of the most memory back to what is used now.
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
        let server_cpu = server.and_then(process_cpu);
        Self { server, server_cpu, machine_cpu: machine_cpu() }
    }

    /// What was used since the start.
    pub fn stop(self) -> Usage {
        let now = self.server.and_then(process_cpu);
        Usage {
            server_cpu: now.zip(self.server_cpu).map(|(now, then)| now - then),
            machine_cpu: machine_cpu() - self.machine_cpu,
            peak_memory: self.server.and_then(peak_memory),
        }
    }
}

fn process_cpu(pid: u32) -> Option<f64> {
    stat_cpu(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// User and system seconds in a `/proc/PID/stat`, fields 14 and 15.
fn stat_cpu(stat: &str) -> Option<f64> {
    // The name in field 2 may have blanks and brackets in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

fn machine_cpu() -> f64 {
    busy_seconds(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Seconds that are not idle in a `/proc/stat`: user, nice, system, irq and softirq.
fn busy_seconds(stat: &str) -> f64 {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0.0)).collect();
    // Idle and waiting (3, 4) are not busy; stolen time (7) was somebody else's; guests are part of user.
    [0, 1, 2, 5, 6].iter().filter_map(|&index| ticks.get(index)).sum::<f64>() / TICKS
}

fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_strange_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(stat_cpu(stat), Some(2.0));
        assert_eq!(stat_cpu("12 (a"), None);
    }

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        assert_eq!(busy_seconds("cpu  100 10 200 9999 888 30 60 777 5 5\ncpu0 1 2 3"), 4.0);
    }

    #[test]
    fn the_memory_of_this_process_is_found() {
        assert!(peak_memory(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
    }
}
