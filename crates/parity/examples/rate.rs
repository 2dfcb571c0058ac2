//! Rates of the parity kernels on this machine: `cargo run --release -p platter-parity --example rate [columns]`.
//!
//! Megabytes (2^20) of logical block per second, as `raidz_test -B` prints them, for 8 data columns by default. The
//! names of the reconstructions are its own: `pqr` rebuilds three columns from P, Q and R, `q` one column from Q alone.

// A benchmark measures real time; the engine itself never asks for it.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use platter_parity::{generate_with, kernel_names, reconstruct_with};

const RUN_TIME: Duration = Duration::from_millis(250);
const BLOCKS: [usize; 5] = [4 << 10, 32 << 10, 128 << 10, 1 << 20, 16 << 20];

fn rate(block: usize, mut work: impl FnMut()) -> f64 {
    // Reading the clock takes longer than a small block.
    let batch = ((1 << 20) / block).max(1) as u32;
    work();
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < RUN_TIME {
        (0..batch).for_each(|_| work());
        runs += batch;
    }
    f64::from(runs) * block as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 20)
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(8);
    let sizes = BLOCKS.map(|block| format!("{:>12}", format!("{} KiB", block >> 10))).concat();
    println!("{count} data columns, MiB/s of data{:<3}{sizes}", "");
    for kernel in kernel_names() {
        for parity in 1..=3 {
            let rates = BLOCKS.map(|block| {
                let data: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8 * 37; block / count]).collect();
                let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let mut out = vec![vec![0; block / count]; parity];
                let mut outputs: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                rate(block, || generate_with(kernel, parity, &views, &mut outputs))
            });
            print_row(kernel, &format!("generate {}", &"pqr"[..parity]), &rates);
        }
        for (name, rows) in
            [("p", &[0][..]), ("q", &[1]), ("r", &[2]), ("pq", &[0, 1]), ("qr", &[1, 2]), ("pqr", &[0, 1, 2])]
        {
            let rates = BLOCKS.map(|block| {
                let mut data: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8 * 37; block / count]).collect();
                let parity = vec![vec![9; block / count]; 3];
                let good: Vec<Option<&[u8]>> =
                    (0..3).map(|k| rows.contains(&k).then_some(parity[k].as_slice())).collect();
                let missing: Vec<usize> = (1..=rows.len()).collect();
                let mut views: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
                rate(block, || reconstruct_with(kernel, &mut views, &good, &missing).expect("enough parity"))
            });
            print_row(kernel, &format!("rebuild {name}"), &rates);
        }
    }
}

fn print_row(kernel: &str, what: &str, rates: &[f64]) {
    let cells: String = rates.iter().map(|rate| format!("{rate:>12.0}")).collect();
    println!("{kernel:<14}{what:<18}{cells}");
}
