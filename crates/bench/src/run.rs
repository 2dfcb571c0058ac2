//! One run: prepares, goes through the cases with every system in turn, prints and saves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{BenchError, Result, While, said};
use crate::noise::Noise;
use crate::options::Options;
use crate::results::{Failure, Line, Report, Sample, Unit};
use crate::scenario::{Context, Scenario};
use crate::switch::{self, Switch};
use crate::systems::{BEFORE, FileSystem, InKernel, Kind, Layout, Null, Platter, ZfsFuse};
use crate::work::SourceTree;
use crate::{codecs, growth, interrupt, kernels, leftovers, plot, raw, table, targets};

const SHM: &str = "/dev/shm";

/// The folder of this run. Dropping it removes it with all mounts below it.
struct WorkFolder(Option<tempfile::TempDir>);

impl WorkFolder {
    fn new(under: &Path) -> Result<Self> {
        std::fs::create_dir_all(under).on(|| format!("making {}", under.display()))?;
        // As the kernel names it in its table of mounts.
        let under = under.canonicalize().on(|| format!("finding {}", under.display()))?;
        let folder = tempfile::Builder::new().prefix("platter-bench.").tempdir_in(&under);
        folder.on(|| format!("making a folder in {}", under.display())).map(|folder| Self(Some(folder)))
    }

    fn path(&self) -> PathBuf {
        self.0.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default()
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let path = self.path();
        for mount in leftovers::mounts_below(&path) {
            let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
        }
        // What is still mounted would be emptied with the folder.
        if !leftovers::mounts_below(&path).is_empty()
            && let Some(folder) = self.0.take()
        {
            eprintln!("{} is left: something is still mounted there", folder.keep().display());
        }
    }
}

/// What was measured of each case and system, in the order of the cases, and what was not.
#[derive(Default)]
struct Samples {
    all: Vec<(String, Vec<Sample>)>,
    failures: Vec<Failure>,
}

impl Samples {
    fn add(&mut self, system: &str, sample: Sample) {
        let same = |(name, samples): &&mut (String, Vec<Sample>)| name == system && samples[0].case == sample.case;
        match self.all.iter_mut().find(same) {
            Some((_, samples)) => samples.push(sample),
            None => self.all.push((system.to_owned(), vec![sample])),
        }
    }

    fn add_failure(&mut self, system: &str, case: String, rounds: u64) {
        match self.failures.iter_mut().find(|failure| failure.system == system && failure.case == case) {
            Some(failure) => failure.failed += 1,
            None => self.failures.push(Failure { case, system: system.to_owned(), failed: 1, rounds }),
        }
    }

    /// As a report: lines of one case stand together, whatever round they came from.
    fn report(&self, setting: BTreeMap<String, String>) -> Report {
        let lines = self.all.iter().filter_map(|(system, samples)| Line::of(system, samples)).collect();
        let mut report = Report { setting, lines, failures: self.failures.clone() };
        let order: Vec<String> = report.cases().into_iter().map(str::to_owned).collect();
        report.lines.sort_by_key(|line| order.iter().position(|case| *case == line.case));
        report
    }
}

/// Runs everything that `options` ask for. Returns whether everything that was begun was measured.
///
/// # Errors
/// What keeps the run from going on.
pub fn run(options: &Options) -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return said("needs root: it mounts file systems, empties caches and resets marks of memory");
    }
    let target = std::env::current_exe().ok().and_then(|exe| exe.parent()?.parent().map(Path::to_owned));
    let on_disk = options.dir.clone().or(target).unwrap_or_else(|| PathBuf::from("target"));
    let work = WorkFolder::new(if options.shm { Path::new(SHM) } else { &on_disk })?;
    let memory = WorkFolder::new(Path::new(SHM))?;
    interrupt::listen(vec![work.path(), memory.path()]);
    let _switch = Switch::turn(!options.no_io_uring);
    println!("FUSE requests come through {}", switch::way());
    let mut context = Context {
        size: options.size << 20,
        files: options.files,
        time: options.time(),
        round: 0,
        under: work.path(),
        memory: memory.path(),
        noise: Noise::new(if options.quick { 8 } else { 64 }),
        tree: None,
    };
    if options.growth {
        return run_growth(options, &work.path(), &context);
    }
    let mut systems = systems(options, &work.path())?;
    let with_raw = options.wants_system(raw::NAME) && is_there(raw::NAME, raw::missing());
    let scenarios = scenarios(options);
    let kernels = [kernels::parity_cases(), codecs::cases()].iter().any(|cases| options.wants_start_of(cases));
    if scenarios.is_empty() && !kernels && !wants_fletcher(options) {
        let all = Scenario::ALL.iter().flat_map(|scenario| scenario.cases()).chain(codecs::cases());
        let all = all.collect::<Vec<_>>().join(", ");
        return said(format!("there is no such case; there are {all}, parity and fletcher4"));
    }
    if scenarios.contains(&Scenario::Trees) {
        context.tree = Some(make_tree(&work.path(), options.files / 2)?);
    }
    warn_of_load();
    let mut samples = Samples::default();
    let mut complete = true;
    for scenario in scenarios {
        for round in 0..options.rounds {
            context.round = round;
            let before = format!("{scenario:?} {}/{}", round + 1, options.rounds);
            // Who is first finds the host's disk as the last case left it: so they change places.
            if options.before.is_some() && round > 0 {
                systems.reverse();
            }
            for system in systems.iter_mut().filter(|system| scenario.suits(&***system)) {
                // Other layouts are measured on Platter alone.
                let own_layout = !matches!(scenario, Scenario::Sequential(_, layout) if layout != Layout::Raidz1);
                if !own_layout && !["platter", BEFORE].contains(&system.name()) {
                    continue;
                }
                let (name, cases) = (system.name(), scenario.cases_on(&**system));
                let found = scenario.run(&mut **system, &context);
                complete &= keep(&mut samples, options, &before, name, cases, found)?;
            }
            if with_raw {
                let (cases, found) = (scenario.raw_cases(), whole(scenario.run_raw(&context)));
                complete &= keep(&mut samples, options, &before, raw::NAME, cases, found)?;
            }
        }
    }
    drop(systems);
    complete &= measure_kernels(options, &mut samples)?;
    finish(options, &samples)?;
    Ok(complete)
}

fn bench_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench")
}

fn run_growth(options: &Options, work: &Path, context: &Context) -> Result<bool> {
    let mut platter = platter(options, work)?;
    warn_of_load();
    let time = Duration::from_secs(options.growth_minutes * 60);
    let (names, gib, datasets) = (options.growth_files, options.growth_gib, options.growth_datasets);
    let extent = growth::Extent { names, gib, datasets, time };
    let mut setting = setting(options);
    // What the other measurements are made with.
    setting.retain(|name, _| !["files", "rounds", "seconds"].contains(&name.as_str()));
    setting.insert("minutes".into(), options.growth_minutes.to_string());
    let mut found = growth::Growth { setting, ..growth::Growth::default() };
    let wants = |part: &str| options.wants_case(part);
    let complete = growth::measure(&mut platter, context, extent, wants, &mut found)?;
    println!("\n{}", found.table());
    if options.save {
        found.save(&bench_folder())?;
        println!("saved {}", bench_folder().join("growth.json").display());
    }
    Ok(complete)
}

/// The source files, outside of what is measured. They are many, so all systems get the same.
fn make_tree(work: &Path, files: u64) -> Result<SourceTree> {
    let folder = work.join("source");
    std::fs::create_dir(&folder).on(|| format!("making {}", folder.display()))?;
    eprintln!("making {files} source files");
    let tree = SourceTree::make(&folder, files)?;
    if !tree.has_repository() {
        eprintln!("MISSING git: nothing is cloned");
    }
    Ok(tree)
}

/// Figures from a machine that does something else too are said to be that.
fn warn_of_load() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok()).unwrap_or_default();
    if load > 0.5 {
        eprintln!("the machine is busy with something else (load {load}): only ratios of one run mean anything");
    }
}

fn is_there(system: &str, missing: Option<String>) -> bool {
    if let Some(why) = &missing {
        eprintln!("MISSING {system}: {why}");
    }
    missing.is_none()
}

fn platter(options: &Options, work: &Path) -> Result<Platter> {
    let platter = Platter::new(work, &options.create);
    match platter.missing() {
        Some(why) => said(why),
        None => Ok(platter),
    }
}

fn systems(options: &Options, work: &Path) -> Result<Vec<Box<dyn FileSystem>>> {
    let mut all: Vec<Box<dyn FileSystem>> = vec![Box::new(platter(options, work)?)];
    if let Some(before) = &options.before {
        let platter = Platter::before(before.clone(), work, &options.create);
        if let Some(why) = platter.missing() {
            return said(format!("{}: {why}", before.display()));
        }
        all.push(Box::new(platter));
    }
    // Each way next to the other; where there is only one, that is what is measured.
    if switch::way() != switch::DEVICE {
        all.push(Box::new(Platter::through_device(work, &options.create)));
    }
    all.push(Box::new(ZfsFuse::new(work)));
    let in_kernel = [Kind::Btrfs, Kind::Ext4, Kind::Xfs].map(|kind| InKernel::new(kind, work));
    all.extend(in_kernel.into_iter().map(|system| Box::new(system) as Box<dyn FileSystem>));
    all.push(Box::new(Null::new(work)));
    let wanted = all.into_iter().filter(|system| options.wants_system(system.name()));
    Ok(wanted.filter(|system| is_there(system.name(), system.missing())).collect())
}

fn scenarios(options: &Options) -> Vec<Scenario> {
    let others = [Layout::Stripe, Layout::Raidz2, Layout::Raidz3, Layout::Mirrors];
    let layouts = others.into_iter().flat_map(|layout| [1, 4].map(|streams| Scenario::Sequential(streams, layout)));
    let all = Scenario::ALL.into_iter().chain(layouts.filter(|_| options.layouts));
    all.filter(|scenario| options.wants_start_of(&scenario.cases())).collect()
}

fn wants_fletcher(options: &Options) -> bool {
    options.wants_start_of(&["fletcher4-cache".into(), "fletcher4-memory".into()])
}

/// Notes what a system found of `cases`, whole or not. One that fails does not keep the others from being measured.
fn keep(
    samples: &mut Samples,
    options: &Options,
    before: &str,
    system: &str,
    cases: Vec<String>,
    (found, end): (Vec<Sample>, Result<()>),
) -> Result<bool> {
    let missing: Vec<String> =
        cases.into_iter().filter(|case| found.iter().all(|sample| sample.case != *case)).collect();
    for sample in found.into_iter().filter(|sample| options.wants_case(&sample.case)) {
        let value = table::number(sample.value);
        eprintln!("{before} {system}: {} {value} {}", sample.case, sample.unit.name());
        samples.add(system, sample);
    }
    match end {
        Ok(()) => Ok(true),
        Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
        Err(error) => {
            // Not a value of zero: it was not measured.
            interrupt::check()?;
            eprintln!("{before} {system}: FAILED: {error}");
            let missing = missing.into_iter().filter(|case| options.wants_case(case));
            missing.for_each(|case| samples.add_failure(system, case, options.rounds));
            Ok(false)
        }
    }
}

/// What was found at once, or not at all.
fn whole(found: Result<Vec<Sample>>) -> (Vec<Sample>, Result<()>) {
    match found {
        Ok(found) => (found, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}

/// Parity, checksums and compression.
fn measure_kernels(options: &Options, samples: &mut Samples) -> Result<bool> {
    let time = Duration::from_millis(if options.quick { 5 } else { 200 });
    let mut complete = true;
    let rates = |rates: kernels::Rates| -> Vec<Sample> {
        let cases = kernels::parity_cases().into_iter();
        cases.filter_map(|case| rates.get(&case).map(|&rate| Sample::plain(case, Unit::Rate, rate))).collect()
    };
    let wants_parity = options.wants_start_of(&kernels::parity_cases());
    let theirs =
        wants_parity && options.wants_system("raidz_test") && is_there("raidz_test", kernels::raidz_test_missing());
    for round in 0..options.rounds {
        let before = format!("Kernels {}/{}", round + 1, options.rounds);
        if wants_parity {
            let found = whole(kernels::parity(time).map(rates));
            complete &= keep(samples, options, &before, "platter", kernels::parity_cases(), found)?;
        }
        if theirs {
            let limit = options.quick.then_some(Duration::from_secs(15));
            let found = whole(kernels::raidz_test(limit).map(rates));
            complete &= keep(samples, options, &before, "raidz_test", kernels::parity_cases(), found)?;
        }
        if wants_fletcher(options) {
            let (fletcher, sum) = kernels::in_cache(time);
            let mut found =
                vec![("platter", fletcher, kernels::fletcher(time)), ("memory", sum, kernels::memory(time))];
            if options.wants_system("openzfs") {
                match kernels::openzfs_fletcher(time) {
                    Ok(rates) => found.extend(rates.map(|(cached, memory)| ("openzfs", cached, memory))),
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => {
                        eprintln!("{before} openzfs: FAILED: {error}");
                        complete = false;
                    }
                }
            }
            for (system, cached, memory) in found {
                let found = [("fletcher4-cache", cached), ("fletcher4-memory", memory)];
                let found = found.map(|(case, rate)| Sample::plain(case, Unit::Rate, rate)).to_vec();
                complete &= keep(samples, options, &before, system, Vec::new(), (found, Ok(())))?;
            }
        }
        for (system, cases, found) in
            codecs::measure(time, options.wants_system("libraries"), |case| options.wants_case(case))?
        {
            complete &= keep(samples, options, &before, system, cases, whole(found))?;
        }
    }
    Ok(complete)
}

fn setting(options: &Options) -> BTreeMap<String, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    BTreeMap::from([
        ("kernel".into(), kernel.trim().into()),
        ("processors".into(), format!("{processors} x {}", model.map_or("unknown", |(_, name)| name))),
        ("memory_gib".into(), (kib as f64 / f64::from(1 << 20)).round().to_string()),
        ("devices".into(), if options.shm { "files in memory" } else { "files on disk" }.into()),
        ("size_mib".into(), options.size.to_string()),
        ("files".into(), options.files.to_string()),
        ("seconds".into(), options.time().as_secs_f64().to_string()),
        ("rounds".into(), options.rounds.to_string()),
        ("create".into(), options.create.clone()),
        ("fuse".into(), switch::way().into()),
    ])
}

/// Prints the tables, and saves when asked to.
fn finish(options: &Options, samples: &Samples) -> Result<()> {
    let report = samples.report(setting(options));
    let bench = bench_folder();
    let saved = bench.join("results.json");
    let previous = Report::previous(&saved)?;
    println!("\n{}", table::results(&report, previous.as_ref()));
    if let Some(ways) = table::ways(&report) {
        println!("{ways}");
    }
    let verdicts = targets::verdicts(&report);
    if !verdicts.is_empty() {
        println!("{}", table::targets(&verdicts));
    }
    if options.save {
        // A run of some cases keeps the others' figures, if they are from the same setting.
        let same = |previous: &Report| previous.setting == report.setting;
        if previous.as_ref().is_some_and(|previous| !same(previous)) {
            println!("the saved results were from another setting: all of them are replaced");
        }
        let mut whole = previous.filter(same).unwrap_or_default();
        whole.setting.clone_from(&report.setting);
        whole.renew(&report);
        whole.save(&saved)?;
        plot::draw(&whole, &bench.join("results.svg"))?;
        println!("saved {}", saved.display());
    }
    Ok(())
}
