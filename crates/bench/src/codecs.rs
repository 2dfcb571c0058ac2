//! Compression and checksums of blocks as the engine calls them, next to the best library of each.
//!
//! A library gets as much room for its output as the engine gives: a block that saves less than an eighth is not worth
//! compressing, and to find that out takes time too.

use std::hint::black_box;
use std::time::Duration;

use platter_checksum::Checksums;
use platter_ondisk::{Checksum, Compression};
use sha2::Digest as _;
use skein::Digest as _;

use crate::error::{Result, said};
use crate::interrupt;
use crate::kernels::{BLOCK, rate};
use crate::noise::Random;
use crate::results::{Sample, Unit};
use crate::text;

/// Blocks of each kind of data, one after the other, as a file has them.
const BLOCKS: usize = 32;
/// A level of zstd that is no level: the default, which is 3.
const DEFAULT_LEVEL: i32 = platter_compress::LEVEL_DEFAULT;

/// Compresses a block into what room there is; `None` when it does not fit.
type Compress = Box<dyn FnMut(&[u8], &mut [u8]) -> Option<usize>>;
/// Decompresses a block that fills the output; whether it did.
type Decompress = Box<dyn FnMut(&[u8], &mut [u8]) -> bool>;
/// Takes a checksum.
type Check = Box<dyn FnMut(&[u8])>;

/// One implementation of one algorithm.
struct Codec {
    algorithm: &'static str,
    system: &'static str,
    compress: Compress,
    decompress: Decompress,
}

/// The names of all cases in their order.
pub fn cases() -> Vec<String> {
    let checks = ["sha256", "blake3", "skein"].map(check_case);
    ["lz4", "zstd-3", "gzip-6"].into_iter().flat_map(codec_cases).chain(checks).collect()
}

fn codec_cases(algorithm: &str) -> Vec<String> {
    ["compress-text", "compress-noise", "decompress-text"].map(|way| format!("{algorithm}-{way}")).to_vec()
}

fn check_case(algorithm: &str) -> String {
    format!("checksum-{algorithm}")
}

fn ours(algorithm: &'static str, kind: Compression) -> Codec {
    Codec {
        algorithm,
        system: "platter",
        compress: Box::new(move |block, room| platter_compress::compress(kind, DEFAULT_LEVEL, block, room)),
        decompress: Box::new(move |packed, block| platter_compress::decompress(kind, packed, block).is_ok()),
    }
}

fn codecs() -> Result<Vec<Codec>> {
    let failed = |error: std::io::Error| crate::error::BenchError::Said(format!("starting zstd: {error}"));
    let (mut packer, mut unpacker) =
        (zstd::bulk::Compressor::new(3).map_err(failed)?, zstd::bulk::Decompressor::new().map_err(failed)?);
    let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut inflate = libdeflater::Decompressor::new();
    let mut deflate_rs = flate2::Compress::new(flate2::Compression::new(6), true);
    let mut inflate_rs = flate2::Decompress::new(true);
    Ok(vec![
        ours("lz4", Compression::LZ4),
        Codec {
            algorithm: "lz4",
            system: "lz4",
            compress: Box::new(|block, room| lz4::block::compress_to_buffer(block, None, false, room).ok()),
            decompress: Box::new(|packed, block| {
                let length = i32::try_from(block.len()).ok();
                lz4::block::decompress_to_buffer(packed, length, block).is_ok_and(|length| length == block.len())
            }),
        },
        ours("zstd-3", Compression::ZSTD),
        Codec {
            algorithm: "zstd-3",
            system: "zstd",
            compress: Box::new(move |block, room| packer.compress_to_buffer(block, room).ok()),
            decompress: Box::new(move |packed, block| {
                unpacker.decompress_to_buffer(packed, block).is_ok_and(|length| length == block.len())
            }),
        },
        ours("gzip-6", Compression::GZIP_6),
        Codec {
            algorithm: "gzip-6",
            system: "libdeflate",
            compress: Box::new(move |block, room| deflate.zlib_compress(block, room).ok()),
            decompress: Box::new(move |packed, block| {
                inflate.zlib_decompress(packed, block).is_ok_and(|length| length == block.len())
            }),
        },
        Codec {
            algorithm: "gzip-6",
            system: "zlib-rs",
            compress: Box::new(move |block, room| {
                deflate_rs.reset();
                let status = deflate_rs.compress(block, room, flate2::FlushCompress::Finish).ok()?;
                (status == flate2::Status::StreamEnd).then(|| deflate_rs.total_out() as usize)
            }),
            decompress: Box::new(move |packed, block| {
                inflate_rs.reset(true);
                let done = inflate_rs.decompress(packed, block, flate2::FlushDecompress::Finish);
                done.is_ok_and(|status| status == flate2::Status::StreamEnd)
                    && inflate_rs.total_out() == block.len() as u64
            }),
        },
    ])
}

fn checks() -> Vec<(&'static str, &'static str, Check)> {
    let salt = [7; platter_checksum::SALT_SIZE];
    let mut all: Vec<(&'static str, &'static str, Check)> = Vec::new();
    for (algorithm, kind) in [("sha256", Checksum::SHA256), ("blake3", Checksum::BLAKE3), ("skein", Checksum::SKEIN)] {
        let checksums = Checksums::new(salt);
        all.push((algorithm, "platter", Box::new(move |block| use_up(checksums.compute(kind, block)))));
    }
    all.push(("sha256", "ring", Box::new(|block| use_up(ring::digest::digest(&ring::digest::SHA256, block)))));
    all.push(("sha256", "sha2", Box::new(|block| use_up(sha2::Sha256::digest(block)))));
    all.push(("blake3", "blake3", Box::new(move |block| use_up(blake3::keyed_hash(&salt, block)))));
    all.push(("skein", "skein", Box::new(|block| use_up(skein::Skein512_256::digest(block)))));
    all
}

/// Makes sure that a result is not left out because nobody looks at it.
fn use_up<T>(result: T) {
    black_box(result);
}

/// What the blocks hold.
struct Data {
    text: Vec<u8>,
    noise: Vec<u8>,
}

/// MiB per second of the blocks' data, over all blocks of `data`.
fn rate_of_blocks(data: &[u8], time: Duration, mut work: impl FnMut(usize, &[u8])) -> f64 {
    rate(data.len(), time, || data.chunks(BLOCK).enumerate().for_each(|(index, block)| work(index, block)))
}

fn measure_codec(codec: &mut Codec, data: &Data, time: Duration) -> Result<Vec<Sample>> {
    let cases = codec_cases(codec.algorithm);
    let Codec { system, compress, decompress, .. } = codec;
    let mut room = vec![0; BLOCK - BLOCK / 8];
    let mut rates = Vec::new();
    for bytes in [&data.text, &data.noise] {
        rates.push(rate_of_blocks(bytes, time, |_, block| use_up(compress(block, &mut room))));
    }
    let pack = |block| compress(block, &mut room).map(|length| room[..length].to_vec());
    let Some(packed) = data.text.chunks(BLOCK).map(pack).collect::<Option<Vec<_>>>() else {
        return said(format!("{system}: text does not get smaller"));
    };
    let mut block = vec![0; BLOCK];
    for (packed, expected) in packed.iter().zip(data.text.chunks(BLOCK)) {
        if !decompress(packed, &mut block) || block != expected {
            return said(format!("{system}: other data came back than was compressed"));
        }
    }
    rates.push(rate_of_blocks(&data.text, time, |index, _| {
        black_box(decompress(&packed[index], &mut block));
    }));
    Ok(cases.into_iter().zip(rates).map(|(case, rate)| Sample::plain(case, Unit::Rate, rate)).collect())
}

/// A system's name, the cases that it was asked for, and what was found of them.
type Found = (&'static str, Vec<String>, Result<Vec<Sample>>);

/// All cases that are wanted, on Platter and on the libraries.
///
/// # Errors
/// Only when interrupted, or when a library cannot be used at all.
pub fn measure(time: Duration, with_libraries: bool, wants: impl Fn(&str) -> bool) -> Result<Vec<Found>> {
    let mut random = Random::new(2);
    let text = text::source(BLOCKS * BLOCK, &mut random);
    let data = Data { text, noise: random.bytes(BLOCKS * BLOCK) };
    let is_wanted = |system: &str, cases: &[String]| {
        (system == "platter" || with_libraries) && cases.iter().any(|case| wants(case))
    };
    let mut all = Vec::new();
    for mut codec in codecs()? {
        interrupt::check()?;
        let cases = codec_cases(codec.algorithm);
        if is_wanted(codec.system, &cases) {
            all.push((codec.system, cases, measure_codec(&mut codec, &data, time)));
        }
    }
    for (algorithm, system, mut check) in checks() {
        interrupt::check()?;
        let cases = vec![check_case(algorithm)];
        if is_wanted(system, &cases) {
            let rate = rate_of_blocks(&data.noise, time, |_, block| check(block));
            all.push((system, cases, Ok(vec![Sample::plain(check_case(algorithm), Unit::Rate, rate)])));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_on_platter_and_on_another() {
        let all = measure(Duration::ZERO, true, |_| true).expect("all can be used");
        for case in cases() {
            let with = all.iter().filter(|(_, cases, _)| cases.contains(&case));
            let systems: Vec<&str> = with.map(|(system, ..)| *system).collect();
            assert!(systems.contains(&"platter") && systems.len() > 1, "{case}: {systems:?}");
        }
        for (system, cases, found) in all {
            assert_eq!(found.expect(system).len(), cases.len(), "{system}");
        }
        let some = measure(Duration::ZERO, false, |case| case.starts_with("lz4")).expect("it can be used");
        assert_eq!(some.len(), 1);
    }

    #[test]
    fn libraries_of_checksums_agree_with_ours() {
        let theirs = sha2::Sha256::digest(b"abc");
        assert_eq!(ring::digest::digest(&ring::digest::SHA256, b"abc").as_ref(), theirs.as_slice());
        assert_eq!(platter_checksum::sha256(b"abc")[0].to_be_bytes(), theirs[..8]);
        let salt = [7; platter_checksum::SALT_SIZE];
        let ours = Checksums::new(salt).compute(Checksum::BLAKE3, b"abc").expect("a known kind");
        assert!(blake3::keyed_hash(&salt, b"abc").as_bytes().starts_with(&ours[0].to_le_bytes()));
    }
}
