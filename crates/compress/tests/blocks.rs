//! Every algorithm gives back what it took, keeps to the room it is given, and survives any bytes at all.

use platter_compress::{DecompressError, compress, decompress, is_supported, is_zero};
use platter_ondisk::Compression;
use proptest::prelude::*;

const LEVELS: [i32; 9] = [0, 1, 3, 9, 19, 255, 103, -1, -1000];

fn every_kind() -> impl Iterator<Item = Compression> {
    (0..=u8::MAX).map(Compression::from_number)
}

fn writable_kinds() -> Vec<Compression> {
    every_kind().filter(|&kind| is_supported(kind) && kind != Compression::OFF).collect()
}

fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    seed |= 1;
    (0..length)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as u8
        })
        .collect()
}

/// Blocks as file systems hold them: a mixture of zeros, repetitions near and far, text and noise.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (1usize..3000).prop_map(|length| vec![0; length]),
        (any::<u8>(), 1usize..600).prop_map(|(byte, length)| vec![byte; length]),
        (any::<u64>(), 1usize..1500).prop_map(|(seed, length)| noise(length, seed)),
        (proptest::collection::vec(any::<u8>(), 2..80), 1usize..60).prop_map(|(word, times)| word.repeat(times)),
        "[a-z ]{1,200}".prop_map(String::into_bytes),
        proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 1..400),
    ];
    proptest::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
}

#[test]
fn the_levels_of_zstd_and_every_kind_round_trip_text() {
    let input = include_str!("blocks.rs").repeat(40).into_bytes();
    let mut output = vec![0; input.len() - input.len() / 8];
    for kind in writable_kinds() {
        for level in LEVELS {
            let Some(used) = compress(kind, level, &input, &mut output) else {
                assert_eq!(
                    kind,
                    Compression::ZLE,
                    "only zle cannot shrink text, but kind {kind} level {level} did not"
                );
                continue;
            };
            let mut back = vec![0xee; input.len()];
            decompress(kind, &output[..used], &mut back).unwrap();
            assert!(back == input, "kind {kind} level {level}");
        }
    }
}

#[test]
fn noise_is_not_compressed() {
    for length in [512, 4096, 128 << 10, 1 << 20] {
        let input = noise(length, length as u64);
        let mut output = vec![0; length - length / 8];
        for kind in writable_kinds() {
            for level in [0, 19] {
                assert_eq!(compress(kind, level, &input, &mut output), None, "kind {kind}, {length} bytes");
            }
        }
    }
}

#[test]
fn the_largest_block_round_trips() {
    let mut input = noise(16 << 20, 5);
    for chunk in input.chunks_mut(64) {
        chunk[20..].fill(b'x');
    }
    let mut output = vec![0; input.len() - input.len() / 8];
    for kind in [Compression::LZ4, Compression::ZSTD, Compression::GZIP_1, Compression::LZJB] {
        let used = compress(kind, 1, &input, &mut output).unwrap();
        let mut back = vec![0; input.len()];
        decompress(kind, &output[..used], &mut back).unwrap();
        assert!(back == input, "kind {kind}");
    }
}

#[test]
fn what_names_no_algorithm_is_left_alone_and_never_read() {
    for kind in every_kind().filter(|&kind| !is_supported(kind)) {
        assert_eq!(decompress(kind, &[0; 512], &mut [0; 512]), Err(DecompressError::UnknownKind(kind)));
    }
    assert_eq!(compress(Compression::OFF, 0, &[1; 512], &mut [0; 512]), None);
    assert_eq!(compress(Compression::INHERIT, 0, &[1; 512], &mut [0; 512]), None);
    assert_eq!(compress(Compression::ZSTD, 20, &[1; 512], &mut [0; 512]), None);
}

#[test]
fn empty_takes_zeros_only() {
    assert_eq!(compress(Compression::EMPTY, 0, &[0; 512], &mut []), Some(0));
    assert_eq!(compress(Compression::EMPTY, 0, &[1; 512], &mut [0; 512]), None);
}

#[test]
fn a_stored_block_needs_all_its_bytes() {
    let mut output = [0; 1024];
    let bad = DecompressError::BadLength { stated: 1024, available: 512 };
    assert_eq!(decompress(Compression::OFF, &[1; 512], &mut output), Err(bad));
    decompress(Compression::OFF, &[1; 1536], &mut output).unwrap();
    assert_eq!(output, [1; 1024]);
}

#[test]
fn a_length_beyond_the_block_is_refused_before_it_is_read() {
    let mut lz4 = vec![0xff; 512];
    lz4[..4].copy_from_slice(&509u32.to_be_bytes());
    let bad = DecompressError::BadLength { stated: 513, available: 512 };
    assert_eq!(decompress(Compression::LZ4, &lz4, &mut [0; 4096]), Err(bad));
    let mut zstd = vec![0; 512];
    zstd[..8].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 3, 0, 0x28, 0xa5]);
    let error = decompress(Compression::ZSTD, &zstd, &mut [0; 4096]).unwrap_err();
    assert!(matches!(error, DecompressError::BadLength { available: 512, .. }), "{error}");
    for kind in [Compression::LZ4, Compression::ZSTD] {
        let error = decompress(kind, &[0, 0, 0], &mut [0; 512]).unwrap_err();
        assert!(matches!(error, DecompressError::BadLength { available: 3, .. }), "{error}");
    }
}

/// A known stream of each of our own algorithms, worked out by hand from the format, as no library can judge them.
#[test]
fn hand_made_streams_are_read() {
    // zle: three literals, then 66 - 63 = 3 zeros, then one literal
    let mut out = [0xaa; 7];
    decompress(Compression::ZLE, &[2, b'z', b'f', b's', 66, 0, b'!'], &mut out).unwrap();
    assert_eq!(&out, b"zfs\0\0\0!");
    // lzjb: "abc", then a match of length 3 + 2 at distance 3, then "d"; map bits 0b01000 from the lowest
    let item = ((2u16) << 10 | 3).to_be_bytes();
    let mut out = [0; 9];
    decompress(Compression::LZJB, &[0b0000_1000, b'a', b'b', b'c', item[0], item[1], b'd'], &mut out).unwrap();
    assert_eq!(&out, b"abcabcabd");
    // lz4: token with 4 literals and a match of 4 + 4 at distance 2, then the last 5 literals
    let stream = [0x44, b'p', b'l', b'a', b't', 2, 0, 0x50, b't', b'e', b'r', b's', b'!'];
    let mut input = (stream.len() as u32).to_be_bytes().to_vec();
    input.extend(stream);
    let mut out = [0; 17];
    decompress(Compression::LZ4, &input, &mut out).unwrap();
    assert_eq!(&out, b"platatatatatters!");
}

#[test]
fn gzip_is_the_zlib_format() {
    use std::io::{Read, Write};
    let input = include_bytes!("blocks.rs");
    let mut output = vec![0; input.len()];
    for (kind, level) in every_kind().filter_map(|kind| Some((kind, kind.gzip_level()?))) {
        let used = compress(kind, 0, input, &mut output).unwrap();
        let mut back = Vec::new();
        flate2::read::ZlibDecoder::new(&output[..used]).read_to_end(&mut back).unwrap();
        assert!(back == input);
        let level = flate2::Compression::new(level.into());
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
        encoder.write_all(input).unwrap();
        let mut back = vec![0; input.len()];
        decompress(kind, &encoder.finish().unwrap(), &mut back).unwrap();
        assert!(back == input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_block_comes_back(
        input in block(), level in proptest::sample::select(LEVELS.to_vec()), padding in 0usize..600,
    ) {
        for kind in writable_kinds() {
            let mut output = vec![0xcc; input.len() * 2 + 64];
            let used = compress(kind, level, &input, &mut output).expect("twice the size is enough for anything");
            output.truncate(used);
            output.resize(used + padding, 0);
            let mut back = vec![0xdd; input.len()];
            prop_assert_eq!(decompress(kind, &output, &mut back), Ok(()), "kind {}", kind);
            prop_assert!(back == input, "kind {}", kind);
        }
    }

    #[test]
    fn compression_keeps_to_the_room_it_is_given(input in block(), room in 0usize..4000) {
        for kind in writable_kinds() {
            let mut output = vec![0; room];
            if let Some(used) = compress(kind, 0, &input, &mut output) {
                prop_assert!(used <= room);
                let mut back = vec![0; input.len()];
                prop_assert_eq!(decompress(kind, &output[..used], &mut back), Ok(()));
                prop_assert!(back == input, "kind {}", kind);
            }
        }
    }

    #[test]
    fn no_bytes_whatsoever_make_a_decoder_panic(
        input in proptest::collection::vec(any::<u8>(), 0..3000), size in 0usize..20_000,
    ) {
        for kind in every_kind() {
            let _ = decompress(kind, &input, &mut vec![0; size]);
        }
        // The length-prefixed formats need a plausible length for the stream behind it to be looked at.
        for kind in [Compression::LZ4, Compression::ZSTD] {
            if input.len() >= 8 {
                let mut input = input.clone();
                let header = if kind == Compression::ZSTD { 8 } else { 4 };
                let length = (input.len() - header) as u32;
                input[..4].copy_from_slice(&length.to_be_bytes());
                if kind == Compression::ZSTD {
                    input[4..8].copy_from_slice(&[3, 0, 0x28, 0xa5]);
                }
                let _ = decompress(kind, &input, &mut vec![0; size]);
            }
        }
    }

    #[test]
    fn a_damaged_stream_fails_or_fills_the_block(
        input in block(), damage in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..5), cut in any::<u32>(),
    ) {
        for kind in writable_kinds() {
            let mut stream = vec![0; input.len() * 2 + 64];
            let used = compress(kind, 0, &input, &mut stream).expect("twice the size is enough for anything");
            stream.truncate(used);
            for (at, byte) in &damage {
                stream[*at as usize % used] = *byte;
            }
            let mut back = vec![0; input.len()];
            let _ = decompress(kind, &stream, &mut back);
            let _ = decompress(kind, &stream[..cut as usize % used], &mut back);
        }
    }

    #[test]
    fn a_block_of_another_size_is_refused_where_the_stream_knows_its_own(input in block(), more in 1usize..100) {
        for kind in [Compression::LZ4, Compression::ZSTD, Compression::GZIP_1, Compression::GZIP_9] {
            let mut stream = vec![0; input.len() * 2 + 64];
            let used = compress(kind, 0, &input, &mut stream).expect("twice the size is enough for anything");
            prop_assert!(decompress(kind, &stream[..used], &mut vec![0; input.len() + more]).is_err());
            let fewer = input.len() - more.min(input.len());
            prop_assert!(decompress(kind, &stream[..used], &mut vec![0; fewer]).is_err());
        }
    }

    #[test]
    fn zeros_are_what_iterating_says(length in 0usize..2000, at in any::<u32>(), set in any::<bool>()) {
        let mut bytes = vec![0u8; length];
        if set && !bytes.is_empty() {
            let at = at as usize % bytes.len();
            bytes[at] = 1;
        }
        prop_assert_eq!(is_zero(&bytes), bytes.iter().all(|&byte| byte == 0));
    }
}
