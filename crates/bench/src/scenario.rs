//! The cases: what is prepared, what is measured, and what the raw device does instead.
//!
//! A scenario prepares once and measures several cases on that. Every file system gets a fresh one for each round.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, said};
use crate::meter::{Meter, Usage};
use crate::noise::Noise;
use crate::program::find;
use crate::raw::{FioResult, Raw};
use crate::results::{Sample, Unit};
use crate::systems::{FileSystem, Layout, Shape};
use crate::work::{self, Done, RandomAccess, SourceTree, Version};

const MIB: u64 = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;
/// Threads that read and write at random places.
const RANDOM_THREADS: usize = 4;
const APPEND_THREADS: usize = 16;
const MAIL_THREADS: usize = 32;
/// Block size where the case asks for no other, bytes.
const RECORD: u64 = 128 << 10;
/// What a device file has beyond its share of the data: btrfs allocates in large pieces.
const SLACK: u64 = 1 << 30;

/// What is measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Large files: written, read cold, read again; and how long the import took.
    Sequential(usize, Layout),
    /// Blocks of so many bytes at random places, with that block size.
    Random(u64),
    /// Small appends with fsync.
    Appends,
    /// A mail server.
    Mail,
    /// Many files in one directory.
    Names,
    /// A tree of source files.
    Trees,
    /// Reading and checking everything.
    Scrub,
    /// Processor time for writing where the devices cost none.
    Processor,
}

/// What every scenario needs to know.
#[derive(Debug)]
pub struct Context {
    /// Bytes of the large files.
    pub size: u64,
    /// Number of small files.
    pub files: u64,
    /// How long cases without an end of their own take.
    pub time: Duration,
    /// Which round it is.
    pub round: u64,
    /// Where device files go.
    pub under: PathBuf,
    /// Where they go when they must cost no time.
    pub memory: PathBuf,
    /// What is written.
    pub noise: Noise,
    /// Source files, where they are asked for.
    pub tree: Option<SourceTree>,
}

impl Scenario {
    /// All of them in their order, without the other layouts.
    pub const ALL: [Self; 10] = [
        Self::Sequential(1, Layout::Raidz1),
        Self::Sequential(4, Layout::Raidz1),
        Self::Random(16 << 10),
        Self::Random(4 << 10),
        Self::Appends,
        Self::Mail,
        Self::Names,
        Self::Trees,
        Self::Scrub,
        Self::Processor,
    ];

    /// The names of its cases.
    pub fn cases(self) -> Vec<String> {
        match self {
            Self::Sequential(streams, layout) => {
                let suffix = if layout == Layout::Raidz1 { String::new() } else { format!("/{}", layout.name()) };
                let name = |what: &str| format!("{what}-{streams}{suffix}");
                let mut cases = vec![name("write"), name("cold-read"), name("cached-read")];
                if streams == 1 {
                    cases.insert(1, format!("rewrite{suffix}"));
                    cases.push(format!("import{suffix}"));
                }
                cases
            }
            Self::Random(block) => ["read", "write"].map(|what| format!("random-{what}-{}K", block >> 10)).to_vec(),
            Self::Appends => vec!["fsync-appends".into()],
            Self::Mail => vec!["mail".into()],
            Self::Names => ["create", "list", "stat", "delete"].map(String::from).to_vec(),
            Self::Trees => ["untar", "copy-tree", "git-clone", "list-tree", "remove-tree"].map(String::from).to_vec(),
            Self::Scrub => vec!["scrub".into()],
            Self::Processor => vec!["cpu-shm-server".into(), "cpu-shm-machine".into()],
        }
    }

    /// The names of the cases that `system` can be measured in.
    pub fn cases_on(self, system: &dyn FileSystem) -> Vec<String> {
        let suits = |case: &String| match case.as_str() {
            "cpu-shm-server" => system.is_served(),
            // What it writes it reads again.
            "git-clone" => system.keeps_data() && find("git").is_some(),
            case if case.starts_with("import") => system.keeps_data(),
            _ => true,
        };
        self.cases().into_iter().filter(suits).collect()
    }

    /// The names of the cases that the raw device is measured in.
    pub fn raw_cases(self) -> Vec<String> {
        match self {
            Self::Sequential(1, Layout::Raidz1) => ["write-1", "cold-read-1"].map(String::from).to_vec(),
            Self::Scrub | Self::Random(_) | Self::Appends => self.cases(),
            _ => Vec::new(),
        }
    }

    fn layout(self) -> Layout {
        match self {
            Self::Sequential(_, layout) => layout,
            Self::Mail => Layout::Mirror,
            _ => Layout::Raidz1,
        }
    }

    /// Whether `system` can be measured in it.
    pub fn suits(self, system: &dyn FileSystem) -> bool {
        system.has(self.layout()) && (system.can_scrub() || self != Self::Scrub)
    }

    fn shape(self, context: &Context) -> Shape {
        let layout = self.layout();
        let share = |bytes: u64| (bytes / layout.widths().1).next_multiple_of(MIB);
        let device = match self {
            // ext4 has an inode for every 16 KiB.
            Self::Names => SLACK + share(context.files * (16 << 10)),
            // Three trees, and what small files waste.
            Self::Trees => SLACK + share(context.files * (128 << 10)),
            Self::Mail => 2 * SLACK + share(context.files * (48 << 10)),
            // Half full; below that btrfs has no place for its metadata.
            Self::Scrub => (2 * share(context.size)).max(SLACK / 2),
            // Small blocks take up to three times their size in a raidz with sectors of 4 KiB.
            Self::Random(_) => SLACK + 3 * share(context.size),
            _ => SLACK + share(context.size) / 4 * 5,
        };
        let record = if let Self::Random(block) = self { block } else { RECORD };
        let under = if self == Self::Processor { &context.memory } else { &context.under };
        Shape { layout, record, device, under: under.clone() }
    }

    /// One round on a fresh file system: what was measured, and how it ended.
    ///
    /// # Errors
    /// What the file system said, or that it gave back other data than it was given.
    pub fn run(self, system: &mut dyn FileSystem, context: &Context) -> (Vec<Sample>, Result<()>) {
        let mut samples = Vec::new();
        // What was removed before is still being given back: the next one must not wait for that.
        rustix::fs::sync();
        let measured = system.create(&self.shape(context)).and_then(|()| self.measure(system, context, &mut samples));
        let destroyed = system.destroy();
        (samples, measured.and(destroyed))
    }

    fn measure(self, system: &mut dyn FileSystem, context: &Context, samples: &mut Vec<Sample>) -> Result<()> {
        let folder = system.mountpoint();
        let (noise, size, files, time) = (&context.noise, context.size, context.files, context.time);
        let check = system.keeps_data();
        let mut names = self.cases_on(system).into_iter();
        let mut add = |unit: Unit, (done, usage): (Done, Usage)| {
            samples.push(sample(names.next().unwrap_or_default(), unit, done, usage));
        };
        match self {
            Self::Sequential(streams, _) => sequential(system, context, streams, &mut add)?,
            Self::Random(block) => {
                let (threads, seed) = (RANDOM_THREADS, context.round);
                work::write_files(&folder, 1, size, noise)?;
                let access = RandomAccess { length: size / MIB * MIB, block, threads, time, seed };
                system.cold()?;
                add(Unit::Operations, measured(system, || work::random_read(&folder, access, noise, check))?);
                system.cold()?;
                add(Unit::Operations, measured(system, || work::random_write(&folder, access, noise, check))?);
            }
            Self::Appends => {
                let done = measured(system, || work::appends(&folder, APPEND_THREADS, time, noise, check))?;
                add(Unit::Operations, done);
            }
            Self::Mail => {
                work::deliver(&folder, MAIL_THREADS, files, noise)?;
                work::sync(&folder)?;
                let serve = || work::serve_mail(&folder, MAIL_THREADS, files, time, noise, check);
                add(Unit::Operations, measured(system, serve)?);
            }
            Self::Names => {
                add(Unit::Operations, measured(system, || work::create_files(&folder, files))?);
                system.cold()?;
                add(Unit::Operations, measured(system, || work::list_files(&folder, files))?);
                system.cold()?;
                add(Unit::Operations, measured(system, || work::stat_files(&folder, files))?);
                add(Unit::Operations, measured(system, || work::delete_files(&folder, files))?);
            }
            Self::Trees => trees(system, context, &mut add)?,
            Self::Scrub => {
                work::write_files(&folder, 1, size, noise)?;
                system.cold()?;
                let meter = Meter::start(system.server());
                let scrub = system.scrub()?;
                let done = Done { bytes: scrub.bytes, elapsed: scrub.elapsed, ..Done::default() };
                add(Unit::Rate, (done, meter.stop()));
            }
            Self::Processor => {
                let (done, usage) = measured(system, || work::write_files(&folder, 1, size, noise))?;
                let gib = done.bytes as f64 / GIB;
                let [server, machine] = [usage.server_cpu, Some(usage.machine_cpu)];
                let values = self.cases().into_iter().zip([server, machine]);
                samples.extend(values.filter_map(|(case, cpu)| Some(Sample::plain(case, Unit::CpuPerGib, cpu? / gib))));
            }
        }
        Ok(())
    }

    /// One round on the raw device; nothing where it has no counterpart.
    ///
    /// # Errors
    /// What fio said.
    pub fn run_raw(self, context: &Context) -> Result<Vec<Sample>> {
        let (disks, data) = self.layout().widths();
        let raw = |bytes: u64| Raw::new(&context.under, disks, bytes * disks / data);
        let rate = |case: &str, found: FioResult| fio_sample(case, Unit::Rate, found.bandwidth / MIB as f64, &found);
        let cases = self.raw_cases();
        Ok(match self {
            // The redundancy is written and not read back; what is compared takes account of it.
            Self::Sequential(1, Layout::Raidz1) => {
                let raw = raw(context.size)?;
                vec![rate(&cases[0], raw.write()?), rate(&cases[1], raw.read()?)]
            }
            Self::Scrub => {
                let raw = raw(context.size)?;
                raw.write()?;
                vec![rate(&cases[0], raw.read()?)]
            }
            Self::Random(block) => {
                let raw = Raw::new(&context.under, disks, context.size)?;
                raw.write()?;
                let operations = |case: &str, found: FioResult| fio_sample(case, Unit::Operations, found.rate, &found);
                let read = raw.random(false, block, RANDOM_THREADS, context.time)?;
                let write = raw.random(true, block, RANDOM_THREADS, context.time)?;
                vec![operations(&cases[0], read), operations(&cases[1], write)]
            }
            Self::Appends => {
                let found = Raw::new(&context.under, disks, 0)?.appends(APPEND_THREADS, context.time)?;
                vec![fio_sample(&cases[0], Unit::Operations, found.rate, &found)]
            }
            _ => Vec::new(),
        })
    }
}

/// The part of what the raw device moves in a case that is data and not its redundancy.
pub fn data_share(case: &str) -> f64 {
    if !["write-", "rewrite", "cold-read-"].iter().any(|start| case.starts_with(start)) {
        return 1.0;
    }
    let layouts = [Layout::Stripe, Layout::Raidz2, Layout::Raidz3, Layout::Mirrors, Layout::Mirror];
    let named = layouts.into_iter().find(|layout| case.ends_with(&format!("/{}", layout.name())));
    let (disks, data) = named.unwrap_or(Layout::Raidz1).widths();
    data as f64 / disks as f64
}

/// The raw device's case that a case is compared with.
pub fn raw_case(case: &str) -> &str {
    // It has one stream of many requests, and no layout.
    match case {
        _ if case.starts_with("write-") || case.starts_with("rewrite") => "write-1",
        _ if case.starts_with("cold-read-") => "cold-read-1",
        _ => case,
    }
}

fn measured(system: &dyn FileSystem, work: impl FnOnce() -> Result<Done>) -> Result<(Done, Usage)> {
    let meter = Meter::start(system.server());
    let done = work()?;
    let usage = meter.stop();
    if done.bytes == 0 && done.operations == 0 {
        said("nothing was done in the time that it had")
    } else {
        Ok((done, usage))
    }
}

fn sample(case: String, unit: Unit, done: Done, usage: Usage) -> Sample {
    let value = match unit {
        Unit::Rate => done.bandwidth(),
        Unit::Operations | Unit::Files => done.rate(),
        _ => done.elapsed.as_secs_f64(),
    };
    let amount = if done.bytes > 0 { done.bytes as f64 / GIB } else { done.operations as f64 / 1000.0 };
    let per_amount = |cpu: f64| (amount > 0.0).then(|| cpu / amount);
    Sample {
        case,
        unit,
        value,
        server_cpu: usage.server_cpu.and_then(per_amount),
        machine_cpu: per_amount(usage.machine_cpu),
        peak_memory: usage.peak_memory,
        latencies: done.latencies,
    }
}

fn fio_sample(case: &str, unit: Unit, value: f64, found: &FioResult) -> Sample {
    let mut sample = Sample::plain(case, unit, value);
    if unit == Unit::Operations
        && let (Some(p50), Some(p99)) = (found.p50, found.p99)
    {
        // Values with just these percentiles.
        sample.latencies = vec![p50; 98];
        sample.latencies.extend([p99; 2]);
    }
    sample
}

/// Large files one after the other: written, written over, read from disk and from memory.
fn sequential(
    system: &mut dyn FileSystem,
    context: &Context,
    streams: usize,
    add: &mut impl FnMut(Unit, (Done, Usage)),
) -> Result<()> {
    let folder = system.mountpoint();
    let (noise, size, check) = (&context.noise, context.size, system.keeps_data());
    add(Unit::Rate, measured(system, || work::write_files(&folder, streams, size, noise))?);
    let mut version = Version::First;
    if streams == 1 {
        system.cold()?;
        version = Version::Second;
        add(Unit::Rate, measured(system, || work::rewrite_files(&folder, streams, size, noise))?);
    }
    let import = system.cold()?;
    let read = || measured(system, || work::read_files(&folder, streams, size, noise, version, check));
    add(Unit::Rate, read()?);
    add(Unit::Rate, read()?);
    if streams == 1 && check {
        let (done, usage) = (Done { elapsed: import, ..Done::default() }, Usage::default());
        add(Unit::Seconds, (done, usage));
    }
    Ok(())
}

/// Trees of many small files: unpacked, copied, cloned, listed and removed.
fn trees(system: &mut dyn FileSystem, context: &Context, add: &mut impl FnMut(Unit, (Done, Usage))) -> Result<()> {
    let (folder, check) = (system.mountpoint(), system.keeps_data());
    let Some(tree) = &context.tree else { return said("there is no source tree") };
    tree.warm()?;
    add(Unit::Files, measured(system, || tree.untar(&folder))?);
    add(Unit::Files, measured(system, || tree.copy(&folder))?);
    if check && tree.has_repository() {
        add(Unit::Files, measured(system, || tree.clone_repository(&folder))?);
    }
    system.cold()?;
    add(Unit::Files, measured(system, || tree.list(&folder))?);
    if check {
        tree.compare(&folder)?;
    }
    add(Unit::Files, measured(system, || tree.remove(&folder))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_device_is_compared_without_the_redundancy() {
        assert_eq!(data_share("write-1"), 6.0 / 7.0);
        assert_eq!(data_share("cold-read-4"), 6.0 / 7.0);
        assert_eq!(data_share("write-1/3x2-mirror"), 0.5);
        assert_eq!(data_share("scrub"), 1.0);
        assert_eq!(raw_case("write-1/raidz3"), "write-1");
        assert_eq!((raw_case("rewrite"), data_share("rewrite/raidz2")), ("write-1", 5.0 / 7.0));
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let mut names: Vec<String> = Scenario::ALL.iter().flat_map(|scenario| scenario.cases()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
