//! The same input has the same output, whatever was compressed before on the same thread: a simulation must replay.

use platter_compress::compress;
use platter_ondisk::Compression;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Half random, half repeated from before.
fn input(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let size = [512, 4096, 16_384, 40_000, 131_072, 400_000][next(&mut state) as usize % 6];
    let mut bytes: Vec<u8> = Vec::with_capacity(size + 300);
    while bytes.len() < size {
        let length = 1 + next(&mut state) as usize % 200;
        if bytes.len() > 300 && next(&mut state).is_multiple_of(2) {
            let from = next(&mut state) as usize % (bytes.len() - 200);
            bytes.extend_from_within(from..from + length);
        } else {
            bytes.extend((0..length).map(|_| (next(&mut state) % 60) as u8));
        }
    }
    bytes.truncate(size);
    bytes
}

fn compressed(kind: Compression, level: i32, seed: u64) -> Option<Vec<u8>> {
    let input = input(seed);
    let mut output = vec![0; input.len()];
    let length = compress(kind, level, &input, &mut output)?;
    output.truncate(length);
    Some(output)
}

const INPUTS: u64 = 10;

#[test]
fn what_a_thread_compressed_before_does_not_matter() {
    let zstd = [1, 3, 6, 9, 15, 19].map(|level| (Compression::ZSTD, level));
    let gzip = [Compression::GZIP_1, Compression::GZIP_6, Compression::GZIP_9].map(|kind| (kind, 0));
    for (kind, level) in
        zstd.into_iter().chain(gzip).chain([(Compression::LZ4, 0), (Compression::LZJB, 0), (Compression::ZLE, 0)])
    {
        // All on this thread, one after the other.
        let used: Vec<_> = (0..INPUTS).map(|seed| compressed(kind, level, seed)).collect();
        for (seed, used) in (0..INPUTS).zip(used) {
            let fresh = std::thread::scope(|scope| scope.spawn(|| compressed(kind, level, seed)).join());
            let fresh = fresh.expect("no panic");
            assert!(fresh == used, "kind {kind}, level {level}, input {seed}");
        }
    }
}
