//! `platter-sim images`: tampers with whole pools, in processes of their own, so that what hangs, runs out of memory or
//! overruns its stack is seen too.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use platter_sim::images::{fuzz, templates};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

/// Processor time that one image may take.
const CPU_SECONDS: i64 = 10;
/// Time after which it is given up, however little of the processor it got.
const PATIENCE: Duration = Duration::from_secs(120);
/// Address space of a worker.
const MEMORY: u64 = 1 << 30;

/// Which images.
#[derive(Args)]
pub struct Images {
    /// Seeds: one, or from the first up to before the second (`0..10000`).
    #[arg(long, value_parser = crate::life_command::parse_seeds)]
    seeds: Range<u64>,
    /// Ends after so many seconds, however many seeds are left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Processes.
    #[arg(long, default_value_t = 2)]
    workers: u64,
    /// Prints every image with what became of it.
    #[arg(long)]
    verbose: bool,
    /// Does the work in this process: every `step`th seed.
    #[arg(long, hide = true)]
    step: Option<u64>,
}

/// Runs it.
pub fn run(arguments: &Images) -> ExitCode {
    match arguments.step {
        Some(step) => work(arguments.seeds.clone(), step),
        None => supervise(arguments),
    }
}

fn processor_nanos() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What a worker prints for each image: a line that it begins, and a line of how it ended.
fn work(seeds: Range<u64>, step: u64) -> ExitCode {
    let limit = getrlimit(Resource::As);
    if setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: limit.maximum }).is_err() {
        return ExitCode::FAILURE;
    }
    let templates = templates();
    let panics: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = panics.clone();
    // Tasks panic too, and nobody hears of it.
    std::panic::set_hook(Box::new(move |info| {
        let what = info.payload_as_str().unwrap_or("something");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        seen.lock().expect("panics").push(format!("panic at {place}: {what}").replace('\n', " "));
    }));
    for seed in seeds.step_by(step as usize) {
        println!("begin {seed}");
        let before = processor_nanos();
        let verdict = catch_unwind(AssertUnwindSafe(|| fuzz(&templates, seed))).unwrap_or_default();
        let panics = std::mem::take(&mut *panics.lock().expect("panics"));
        let nanos = processor_nanos() - before;
        let wrong =
            panics.into_iter().next().or(verdict.wrong).or_else(|| {
                (nanos > CPU_SECONDS * 1_000_000_000).then(|| format!("it took {} s", nanos / 1_000_000_000))
            });
        let milliseconds = nanos / 1_000_000;
        match (wrong, verdict.refused) {
            (Some(wrong), _) => println!("wrong {seed} {wrong} ({})", verdict.what),
            (None, Some(why)) => {
                println!("refused {seed} {milliseconds} ms {} ({})", why.replace('\n', " "), verdict.what);
            }
            (None, None) => println!("opened {seed} {milliseconds} ms ({})", verdict.what),
        }
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    refused: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

fn supervise(arguments: &Images) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let counts = Counts::default();
    runtime.block_on(async {
        let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let workers = (0..arguments.workers).map(|worker| follow(arguments, worker, end, &counts));
        futures::future::join_all(workers).await;
    });
    let wrong = counts.wrong.into_inner().expect("wrong ones");
    let (opened, refused) = (counts.opened.into_inner(), counts.refused.into_inner());
    println!(
        "{} images: {opened} opened, {refused} refused, {} wrong",
        opened + refused + wrong.len() as u64,
        wrong.len()
    );
    for line in &wrong {
        println!("  {line}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Follows one worker, and starts another behind the image that it died of.
async fn follow(arguments: &Images, worker: u64, end: Option<Instant>, counts: &Counts) {
    let mut next = arguments.seeds.start + worker;
    while next < arguments.seeds.end && end.is_none_or(|end| Instant::now() < end) {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["images", "--seeds", &format!("{next}..{}", arguments.seeds.end)])
            .args(["--step", &arguments.workers.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("a worker");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut under_way = None;
        let mut reason = "it died (memory or stack)".to_owned();
        loop {
            let line = match timeout(PATIENCE, lines.next_line()).await {
                Ok(Ok(Some(line))) => line,
                Ok(_) => break,
                Err(_) => {
                    reason = format!("no answer for {} s", PATIENCE.as_secs());
                    break;
                }
            };
            if arguments.verbose && !line.starts_with("begin") {
                println!("{line}");
            }
            let mut words = line.splitn(3, ' ');
            let (kind, seed) = (words.next().unwrap_or(""), words.next().and_then(|seed| seed.parse::<u64>().ok()));
            match kind {
                "begin" => under_way = seed,
                "opened" => drop(counts.opened.fetch_add(1, Ordering::Relaxed)),
                "refused" => drop(counts.refused.fetch_add(1, Ordering::Relaxed)),
                "wrong" => counts.wrong.lock().expect("wrong ones").push(line.clone()),
                _ => {}
            }
            if kind != "begin" {
                under_way = None;
                next = seed.map_or(next, |seed| seed + arguments.workers);
                if end.is_some_and(|end| Instant::now() >= end) {
                    break;
                }
            }
        }
        let _ = child.kill().await;
        match under_way {
            Some(seed) => {
                counts.wrong.lock().expect("wrong ones").push(format!("wrong {seed} {reason}"));
                next = seed + arguments.workers;
            }
            // It ended, or could not even begin.
            None if next < arguments.seeds.end && end.is_none_or(|end| Instant::now() < end) => {
                counts.wrong.lock().expect("wrong ones").push(format!("the worker at {next} did not begin"));
                return;
            }
            None => return,
        }
    }
}
