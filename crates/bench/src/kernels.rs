//! Parity and checksums next to what is fastest elsewhere: `raidz_test -B`, the functions in OpenZFS's library, and
//! memory's own bandwidth. Parity goes by the clock on the wall, as `raidz_test` does, checksums by processor time.
//! Buffers lie on pages, like the engine's.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use platter_buffer::BufMut;
use platter_parity::{generate, reconstruct};

use crate::error::{Result, While, said};
use crate::interrupt;
use crate::program::{find, output};

/// Blocks that are measured, bytes.
const BLOCKS: [usize; 4] = [128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// What a checksum is taken of, bytes.
pub const BLOCK: usize = 128 << 10;
/// More than any cache holds, bytes.
const MEMORY: usize = 256 << 20;
/// Columns with data.
const COLUMNS: usize = 8;
/// Reconstructions by `raidz_test`'s names, with the parity columns that are there.
const REBUILDS: [(&str, &[usize]); 7] = [
    ("rec_p", &[0]),
    ("rec_q", &[1]),
    ("rec_r", &[2]),
    ("rec_pq", &[0, 1]),
    ("rec_pr", &[0, 2]),
    ("rec_qr", &[1, 2]),
    ("rec_pqr", &[0, 1, 2]),
];
/// All of `raidz_test` takes six minutes on an idle machine: it measures slow implementations and large blocks too, and
/// cannot be asked not to.
const RAIDZ_TEST_LIMIT: Duration = Duration::from_secs(3600);

/// A rate by the name of its case, MiB/s of a block's data.
pub type Rates = BTreeMap<String, f64>;

fn case(function: &str, block: usize) -> String {
    let (size, unit) = if block < 1 << 20 { (block >> 10, "K") } else { (block >> 20, "M") };
    format!("parity-{function}-{size}{unit}")
}

/// The names of all parity cases in their order.
pub fn parity_cases() -> Vec<String> {
    let functions = ["gen_p", "gen_pq", "gen_pqr"].into_iter().chain(REBUILDS.map(|(name, _)| name));
    functions.flat_map(|function| BLOCKS.map(|block| case(function, block))).collect()
}

/// MiB per second of `work`, which handles `block` bytes each time.
pub fn rate(block: usize, time: Duration, work: impl FnMut()) -> f64 {
    let start = Instant::now();
    rate_by(|| start.elapsed().as_secs_f64(), block, time, work)
}

/// MiB per second of processor time: what else runs on the machine counts less.
fn processor_rate(block: usize, time: Duration, work: impl FnMut()) -> f64 {
    let clock = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    rate_by(clock, block, time, work)
}

fn rate_by(clock: impl Fn() -> f64, block: usize, time: Duration, mut work: impl FnMut()) -> f64 {
    // Reading the clock takes longer than a small block.
    let batch = ((4 << 20) / block).max(1) as u32;
    work();
    let start = clock();
    let mut runs = 0u32;
    while clock() - start < time.as_secs_f64() {
        (0..batch).for_each(|_| work());
        runs += batch;
    }
    f64::from(runs) * block as f64 / (clock() - start) / f64::from(1 << 20)
}

/// Our parity: generation and every reconstruction.
///
/// # Errors
/// Only when interrupted.
pub fn parity(time: Duration) -> Result<Rates> {
    let mut rates = Rates::new();
    for block in BLOCKS {
        let column = block / COLUMNS;
        // A block lies as it does in the engine: on pages, one column after the other. There they lie on pages too.
        let mut data = BufMut::zeroed(block);
        for (index, bytes) in data.chunks_mut(column).enumerate() {
            bytes.fill((index as u8).wrapping_mul(37).wrapping_add(1));
        }
        let mut parity: Vec<BufMut> = (0..3).map(|_| BufMut::zeroed(column)).collect();
        for count in 1..=3 {
            interrupt::check()?;
            let views: Vec<&[u8]> = data.chunks(column).collect();
            let mut outputs: Vec<&mut [u8]> = parity.iter_mut().take(count).map(|bytes| &mut bytes[..]).collect();
            let name = format!("gen_{}", &"pqr"[..count]);
            rates.insert(case(&name, block), rate(block, time, || generate(count, &views, &mut outputs)));
        }
        for (name, rows) in REBUILDS {
            interrupt::check()?;
            let good: Vec<Option<&[u8]>> = (0..3).map(|row| rows.contains(&row).then_some(&parity[row][..])).collect();
            // The first data columns are lost, as there.
            let missing: Vec<usize> = (0..rows.len()).collect();
            let mut views: Vec<&mut [u8]> = data.chunks_mut(column).collect();
            let mut work = || reconstruct(&mut views, &good, &missing).expect("enough parity");
            rates.insert(case(name, block), rate(block, time, &mut work));
        }
    }
    Ok(rates)
}

/// Why OpenZFS's parity cannot be measured; `None` when it can.
pub fn raidz_test_missing() -> Option<String> {
    find("raidz_test").is_none().then(|| "no program raidz_test".into())
}

/// The fastest of OpenZFS's implementations, each case for itself. `limit` cuts a short run off.
///
/// # Errors
/// What `raidz_test` said.
pub fn raidz_test(limit: Option<Duration>) -> Result<Rates> {
    let mut command = Command::new("raidz_test");
    // Its output is buffered, and lost when it is cut off, unless somebody makes it write whole lines.
    if find("stdbuf").is_some() {
        command = Command::new("stdbuf");
        command.args(["-oL", "raidz_test"]);
    }
    command.args(["-B", "-d", &COLUMNS.to_string()]);
    let report = output(&mut command, limit.unwrap_or(RAIDZ_TEST_LIMIT), limit.is_some())?;
    Ok(parse_raidz_test(&report))
}

/// The best rate of each function for the sizes that are measured.
pub fn parse_raidz_test(report: &str) -> Rates {
    let mut rates = Rates::new();
    for line in report.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [_, function, columns, block, per_column, ..] = fields[..] else { continue };
        let numbers = (columns.parse::<f64>(), block.parse::<usize>(), per_column.parse::<f64>());
        let (Ok(columns), Ok(block), Ok(per_column)) = numbers else { continue };
        if BLOCKS.contains(&block) {
            // It tells what each column gets; `total_bw` would count parity as if it were data.
            let best = rates.entry(case(function, block)).or_insert(0.0);
            *best = best.max(per_column * columns);
        }
    }
    rates
}

/// OpenZFS's Fletcher-4 by the fastest of its implementations, MiB/s: a block that stays in the cache, then memory
/// block by block. `None` without a C compiler or its library.
///
/// # Errors
/// What the compiler's product said.
pub fn openzfs_fletcher(time: Duration) -> Result<Option<(f64, f64)>> {
    if find("cc").is_none() {
        return Ok(None);
    }
    let folder = tempfile::tempdir().on(|| "making a folder".into())?;
    let (source, program) = (folder.path().join("openzfs_fletcher.c"), folder.path().join("openzfs_fletcher"));
    std::fs::write(&source, include_str!("openzfs_fletcher.c")).on(|| "writing a program".into())?;
    let minute = Duration::from_secs(60);
    output(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).arg("-ldl"), minute, false)?;
    let mut command = Command::new(&program);
    command.args([BLOCK.to_string(), MEMORY.to_string(), time.as_secs_f64().to_string()]);
    let report = match output(&mut command, minute, false) {
        Err(error) if error.to_string().contains("no library libzpool") => return Ok(None),
        report => report?,
    };
    let rates: Vec<f64> = report.lines().filter_map(|line| line.parse().ok()).collect();
    match rates[..] {
        [cached, memory] => Ok(Some((cached, memory))),
        _ => said(format!("openzfs_fletcher: {report}")),
    }
}

/// Fletcher-4 over blocks of 128 KiB that lie in memory, one after the other, MiB/s.
pub fn fletcher(time: Duration) -> f64 {
    let mut bytes = BufMut::zeroed(MEMORY);
    bytes.fill(0xa5);
    processor_rate(MEMORY, time, || {
        for block in bytes.chunks(BLOCK) {
            black_box(platter_checksum::fletcher_4(black_box(block)));
        }
    })
}

/// Reading and adding up as much memory, MiB/s: what its bandwidth allows one thread.
pub fn memory(time: Duration) -> f64 {
    let words = vec![0xa5a5u64; MEMORY / 8];
    processor_rate(MEMORY, time, || {
        for block in words.chunks(BLOCK / 8) {
            black_box(sum(black_box(block)));
        }
    })
}

/// The same with a block that stays in the processor's cache, MiB/s: Fletcher-4, then adding up.
pub fn in_cache(time: Duration) -> (f64, f64) {
    let (mut bytes, words) = (BufMut::zeroed(BLOCK), vec![0xa5a5u64; BLOCK / 8]);
    bytes.fill(0xa5);
    let fletcher = processor_rate(BLOCK, time, || {
        black_box(platter_checksum::fletcher_4(black_box(&bytes)));
    });
    let sum = processor_rate(BLOCK, time, || {
        black_box(sum(black_box(&words)));
    });
    (fletcher, sum)
}

/// Adds up words in the plain way, which compilers turn into vector instructions.
fn sum(words: &[u64]) -> u64 {
    words.iter().copied().fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_implementation_of_each_function_is_taken() {
        let report = "impl, math, dcols, iosize, disk_bw, total_bw, iter\n\
            \x20 original,    gen_p, 8,     131072, 100.5, 904.5, 32768\n\
            \x20     avx2,    gen_p, 8,     131072, 300.0, 2700.0, 32768\n\
            \x20     avx2,    gen_p, 8,       4096, 900.0, 8100.0, 32768\n\
            \x20     avx2,  rec_pqr, 8,    1048576, 50.0, 550.0, 16\n\
            \x20     avx2,  rec_pqr, 8,    10485";
        let rates = parse_raidz_test(report);
        let expected = [("parity-gen_p-128K".to_owned(), 2400.0), ("parity-rec_pqr-1M".to_owned(), 400.0)];
        assert_eq!(rates, Rates::from(expected));
    }

    #[test]
    fn our_cases_have_their_names() {
        let ours = parity(Duration::ZERO).expect("not interrupted");
        let cases = parity_cases();
        assert!(ours.len() == cases.len() && cases.iter().all(|case| ours.contains_key(case)));
    }
}
