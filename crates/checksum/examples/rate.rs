//! Rates of the checksum kernels on this machine: `cargo run --release -p platter-checksum --example rate`.
//!
//! 128 KiB stays in the second-level cache, as a block does when it was just compressed or received; 16 MiB does not.

// A benchmark measures real time; the engine itself never asks for it.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use platter_checksum::{Words, fletcher_2, fletcher_4_kernels, sha256, sha512};

const RUN_TIME: Duration = Duration::from_millis(500);

/// Gigabytes (10^9) per second of `sum` over `bytes`.
fn rate(bytes: &[u8], sum: fn(&[u8]) -> Words) -> f64 {
    black_box(sum(bytes));
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < RUN_TIME {
        black_box(sum(black_box(bytes)));
        runs += 1;
    }
    f64::from(runs) * bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn main() {
    let bytes: Vec<u8> = (0..16usize << 20).map(|i| (i * 131 / 8) as u8).collect();
    println!("{:<20} {:>14} {:>14}", "", "128 KiB GB/s", "16 MiB GB/s");
    let mut functions: Vec<(String, fn(&[u8]) -> Words)> =
        fletcher_4_kernels().into_iter().map(|(name, sum)| (format!("fletcher4 {name}"), sum)).collect();
    functions.push(("fletcher2".into(), fletcher_2));
    functions.push(("sha256".into(), sha256));
    functions.push(("sha512".into(), sha512));
    for (name, sum) in functions {
        println!("{name:<20} {:>14.2} {:>14.2}", rate(&bytes[..128 << 10], sum), rate(&bytes, sum));
    }
}
