//! Rates of the compressors on this machine, in MB/s of logical bytes: `cargo run --release -p platter-compress
//! --example rate`.
//!
//! Three kinds of 128 KiB blocks: text, noise (which must be given up quickly) and a file of small binary records.

// A benchmark measures real time; the engine itself never asks for it.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use platter_compress::{compress, decompress};
use platter_ondisk::Compression;

const BLOCK: usize = 128 << 10;
const RUN_TIME: Duration = Duration::from_millis(300);

fn rate(mut work: impl FnMut()) -> f64 {
    work();
    let start = Instant::now();
    let mut blocks = 0;
    while start.elapsed() < RUN_TIME {
        work();
        blocks += 1;
    }
    f64::from(blocks) * BLOCK as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn noise(length: usize) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn main() {
    let source = concat!(include_str!("../src/lib.rs"), include_str!("../tests/blocks.rs"), include_str!("rate.rs"));
    let text: Vec<u8> = source.bytes().cycle().take(BLOCK).collect();
    let noise = noise(BLOCK);
    let records: Vec<u8> = (0..BLOCK as u32 / 16)
        .flat_map(|i| {
            let mut record = [0; 16];
            record[..4].copy_from_slice(&i.to_le_bytes());
            record[8..10].copy_from_slice(&noise[i as usize * 2 % 4096..][..2]);
            record
        })
        .collect();
    let algorithms = [
        ("lz4", Compression::LZ4, 0),
        ("zstd-fast", Compression::ZSTD, -1),
        ("zstd-3", Compression::ZSTD, 3),
        ("zstd-9", Compression::ZSTD, 9),
        ("gzip-1", Compression::GZIP_1, 0),
        ("gzip-6", Compression::GZIP_6, 0),
        ("lzjb", Compression::LZJB, 0),
        ("zle", Compression::ZLE, 0),
    ];
    println!("{:<10} {:<8} {:>7} {:>10} {:>12}", "algorithm", "block", "ratio", "compress", "decompress");
    for (name, kind, level) in algorithms {
        for (what, block) in [("text", &text), ("noise", &noise), ("records", &records)] {
            let mut output = vec![0; BLOCK - BLOCK / 8];
            let mut used = None;
            let speed = rate(|| used = compress(kind, level, block, &mut output));
            let Some(used) = used else {
                println!("{name:<10} {what:<8} {:>7} {speed:>10.0} {:>12}", "-", "-");
                continue;
            };
            let mut back = vec![0; BLOCK];
            let back_speed = rate(|| decompress(kind, &output[..used], &mut back).expect("our own stream"));
            println!("{name:<10} {what:<8} {:>7.2} {speed:>10.0} {back_speed:>12.0}", BLOCK as f64 / used as f64);
        }
    }
}
