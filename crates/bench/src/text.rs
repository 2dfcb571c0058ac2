//! Text that looks like source code to a compressor, the same at every run.

use crate::noise::Random;

const WORDS: [&str; 64] = [
    "static", "int", "struct", "return", "if", "else", "for", "while", "const", "void", "unsigned", "long", "char",
    "sizeof", "switch", "case", "break", "goto", "error", "inode", "page", "lock", "unlock", "buffer", "device",
    "driver", "register", "queue", "flags", "offset", "length", "count", "index", "data", "size", "state", "node",
    "list", "entry", "next", "prev", "head", "tail", "mutex", "spin", "irq", "handler", "probe", "remove", "init",
    "exit", "alloc", "free", "read", "write", "open", "close", "ioctl", "mmap", "poll", "NULL", "ENOMEM", "EINVAL",
    "module",
];
const JOINTS: [&str; 8] = [" ", " ", "_", "->", "(", ") ", ", ", " = "];

/// So many bytes of it. A compressor makes about a third of them.
pub fn source(length: usize, random: &mut Random) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 64);
    let mut depth = 0;
    while text.len() < length {
        let mut bits = random.next();
        let mut take = |count: u64| {
            let taken = bits % count;
            bits /= count;
            taken as usize
        };
        text.resize(text.len() + depth, b'\t');
        for _ in 0..2 + take(4) {
            text.extend(WORDS[take(64)].as_bytes());
            text.extend(JOINTS[take(8)].as_bytes());
        }
        // Names that nothing else has.
        text.extend(format!("{:x}", take(1 << 12)).as_bytes());
        depth = (depth + take(3)).saturating_sub(1).min(5);
        text.extend(b";\n");
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_text_of_that_length_and_can_be_compressed() {
        let text = source(100_000, &mut Random::new(1));
        assert_eq!(text.len(), 100_000);
        assert!(text.is_ascii() && text != source(100_000, &mut Random::new(2)));
        let mut packed = vec![0; 100_000];
        let gzip = platter_ondisk::Compression::GZIP_6;
        let length = platter_compress::compress(gzip, 0, &text, &mut packed).expect("it gets smaller");
        assert!((20_000..50_000).contains(&length), "{length}");
    }
}
