//! OpenZFS's `zdb` as the judge of exported pools: consistency, the list of files, the content of files.
//!
//! Everything goes through `zdb -e -p DIR`, which needs no kernel module and reads only. `DIR` holds the device files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::tree::{Kind, Tree};
use crate::{Run, data, judge};

const LIMIT: Duration = Duration::from_secs(1200);

/// Largest file that [`assert_contents`] pulls out.
pub const EXTRACT_BYTES_MAX: u64 = 256 << 20;

/// A place of a block, as zdb prints it (`vdev:offset:asize`, hexadecimal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dva {
    /// Index of the top-level vdev.
    pub vdev: u64,
    /// Byte offset in the vdev's allocatable space.
    pub offset: u64,
    /// Allocated bytes, parity and padding included.
    pub asize: u64,
}

/// One level-0 block of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Byte offset in the object.
    pub offset: u64,
    /// Its copies.
    pub dvas: Vec<Dva>,
}

/// One object that has a path, as zdb sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// Object number.
    pub object: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u64,
    /// Size in bytes (of a directory: number of entries).
    pub size: u64,
    /// Modification time as zdb prints it, in UTC, whole seconds.
    pub mtime: String,
    /// Target of a symbolic link.
    pub target: Option<String>,
}

/// Relative path → object; the root is `.`.
pub type Listing = BTreeMap<String, Znode>;

/// `zdb -e -p DIR ARGS...`, or `None` and a reported skip.
pub fn zdb(dir: &Path, args: &[&str]) -> Option<Run> {
    Some(Run::of(&mut command(dir, args)?, LIMIT))
}

/// The command of [`zdb`], which writes each line as soon as it has it.
fn command(dir: &Path, args: &[&str]) -> Option<Command> {
    let program = judge::need("zdb")?;
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(program).arg("-e").arg("-p").arg(dir).args(args).env("TZ", "UTC").env("LC_ALL", "C");
    Some(command)
}

/// Asserts that zdb reads every block of the exported pool with a good checksum and finds no leaked and no doubly used
/// space.
#[track_caller]
pub fn assert_clean(dir: &Path, pool: &str) {
    let Some(mut command) = command(dir, &["-bcc", pool]) else { return };
    // What follows the verdict is statistics, and then it spends 5 seconds waiting for its prefetched blocks to age.
    let run = Run::until(&mut command, LIMIT, Some("\tbp count:"))
        .ok()
        .says("No leaks (block sum matches space maps exactly)");
    let everything = format!("{}\n{}", run.stdout, run.stderr).to_lowercase();
    for bad in [
        "checksum error",
        "leaked space",
        "doubly",
        "got error",
        "error counts",
        "double free",
        "!= alloc",
        "block traversal size",
        "not in livelist",
        "free of unallocated",
    ] {
        assert!(!everything.contains(bad), "zdb says {bad:?}\n{run}");
    }
}

/// Files of one file system, by walking its directories as zdb prints them (`zdb -dddd`).
#[track_caller]
pub fn list(dir: &Path, dataset: &str) -> Option<Listing> {
    let run = zdb(dir, &["-dddd", &objset(dataset)])?.ok();
    let listings = parse(&run.stdout);
    match listings.get(dataset) {
        Some(listing) => Some(listing.clone()),
        None => panic!("zdb shows no file system {dataset}\n{run}"),
    }
}

/// Files of every file system of a pool.
#[track_caller]
pub fn list_pool(dir: &Path, pool: &str) -> Option<BTreeMap<String, Listing>> {
    Some(parse(&zdb(dir, &["-dddd", pool])?.ok().stdout))
}

/// Level-0 blocks of one object (`zdb -dddddd`), holes and embedded blocks left out.
#[track_caller]
pub fn blocks(dir: &Path, dataset: &str, object: u64) -> Option<Vec<Block>> {
    // Six times: with five it shows one copy only.
    let run = zdb(dir, &["-dddddd", &objset(dataset), &object.to_string()])?.ok();
    let mut blocks = Vec::new();
    for line in run.stdout.lines() {
        let mut words = line.split_whitespace();
        let (Some(offset), Some("L0")) = (words.next(), words.next()) else { continue };
        let Ok(offset) = u64::from_str_radix(offset, 16) else { continue };
        let dvas: Vec<Dva> = words.map_while(parse_dva).collect();
        if !dvas.is_empty() && !line.contains("HOLE") && !line.contains("EMBEDDED") {
            blocks.push(Block { offset, dvas });
        }
    }
    Some(blocks)
}

/// The guid of the leaf vdev that a device file is, from its label (`zdb -l`).
#[track_caller]
pub fn label_guid(device: &Path) -> Option<String> {
    let program = judge::need("zdb")?;
    let run = Run::of(Command::new(program).arg("-l").arg(device), LIMIT).ok();
    let guid = run.stdout.lines().find_map(|line| line.strip_prefix("    guid: "));
    assert!(guid.is_some(), "no guid in the label\n{run}");
    guid.map(|guid| guid.trim().to_owned())
}

/// SHA-256 of a file pulled out of the exported pool by `zdb -r`.
#[track_caller]
pub fn extracted_sha256(dir: &Path, dataset: &str, path: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let out_arg = out.to_str().expect("temporary paths are UTF-8");
    let run = zdb(dir, &["-r", dataset, path, out_arg])?.ok();
    match fs::File::open(&out).and_then(data::sha256_of) {
        Ok(hash) => Some(hash),
        Err(error) => panic!("zdb -r left no file: {error}\n{run}"),
    }
}

/// Asserts that zdb lists exactly the files of `tree` in `dataset`, with the same kind, mode, owner, links, size, time
/// and target, and that a sample of up to `extract` files, pulled out with `zdb -r`, has the same content.
#[track_caller]
pub fn assert_same_tree(dir: &Path, dataset: &str, tree: &Tree, extract: usize) {
    let Some(listing) = list(dir, dataset) else { return };
    assert_listing(&listing, tree, dataset);
    assert_contents(dir, dataset, tree, extract);
}

/// The listing half of [`assert_same_tree`].
#[track_caller]
pub fn assert_listing(listing: &Listing, tree: &Tree, dataset: &str) {
    let ours: Vec<&String> = tree.0.keys().collect();
    let theirs: Vec<&String> = listing.keys().collect();
    let missing: Vec<_> = ours.iter().filter(|path| !listing.contains_key(**path)).take(20).collect();
    let extra: Vec<_> = theirs.iter().filter(|path| !tree.0.contains_key(**path)).take(20).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{dataset}: zdb misses {missing:?} and lists besides {extra:?}");
    for (path, entry) in &tree.0 {
        let znode = &listing[path];
        if entry.mounted {
            continue;
        }
        let theirs = (znode.kind, znode.mode, znode.uid, znode.gid, znode.nlink, &znode.target);
        let ours = (entry.kind, entry.mode, entry.uid, entry.gid, entry.nlink, &entry.target);
        assert_eq!(theirs, ours, "{dataset}: {path}: zdb's view (left) is not what the mount showed");
        if entry.kind != Kind::Dir {
            assert_eq!(znode.size, entry.size, "{dataset}: {path}: size in zdb (left)");
        }
        assert_eq!(znode.mtime, ctime(entry.mtime_ns), "{dataset}: {path}: mtime in zdb (left)");
    }
}

/// The content half of [`assert_same_tree`]: a sample that holds the last and evenly spread files (none over
/// [`EXTRACT_BYTES_MAX`]: zdb writes holes out; no empty ones: `zdb -r` calls them an error).
#[track_caller]
pub fn assert_contents(dir: &Path, dataset: &str, tree: &Tree, extract: usize) {
    let files: Vec<_> = tree.files().filter(|(_, entry)| (1..=EXTRACT_BYTES_MAX).contains(&entry.size)).collect();
    let step = (files.len() / extract.max(1)).max(1);
    for (path, entry) in files.iter().rev().step_by(step).take(extract) {
        let Some(found) = extracted_sha256(dir, dataset, path) else { return };
        assert_eq!(Some(&found), entry.sha256.as_ref(), "{dataset}: {path}: content pulled out by zdb (left)");
    }
}

/// Seconds since 1970 (from nanoseconds) as zdb's `%c`-like time in UTC: `Fri Nov 20 23:41:35 2026`.
pub fn ctime(ns: i128) -> String {
    let seconds = i64::try_from(ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    chrono::DateTime::from_timestamp(seconds, 0)
        .map_or_else(String::new, |t| t.format("%a %b %e %H:%M:%S %Y").to_string())
}

/// zdb's word for one file system: a bare pool name would mean the whole pool, or the pool's own objects.
fn objset(dataset: &str) -> String {
    if dataset.contains('/') { dataset.to_owned() } else { format!("{dataset}/") }
}

fn parse_dva(word: &str) -> Option<Dva> {
    let mut parts = word.split(':');
    let vdev = parts.next()?.parse().ok()?;
    let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
    let asize = u64::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some(Dva { vdev, offset, asize })
}

/// One object of a data set while its text is being read.
#[derive(Default)]
struct Object {
    mode: Option<u32>,
    uid: u32,
    gid: u32,
    nlink: u64,
    size: u64,
    mtime: String,
    target: Option<String>,
    /// Directory entries.
    children: Vec<(String, u64)>,
}

impl Object {
    /// Takes in one line of what zdb says of it.
    fn note(&mut self, field: &str) {
        let value = |name: &str| field.strip_prefix(name).map(|rest| rest.trim_start_matches(['\t', ' ']));
        if let Some(target) = value("target\t") {
            self.target = Some(target.to_owned());
        } else if let Some(mode) = value("mode\t") {
            self.mode = u32::from_str_radix(mode.trim(), 8).ok();
        } else if let Some(uid) = value("uid ") {
            self.uid = uid.trim().parse().unwrap_or(u32::MAX);
        } else if let Some(gid) = value("gid ") {
            self.gid = gid.trim().parse().unwrap_or(u32::MAX);
        } else if let Some(size) = value("size\t") {
            self.size = size.trim().parse().unwrap_or(u64::MAX);
        } else if let Some(links) = value("links\t") {
            self.nlink = links.trim().parse().unwrap_or(u64::MAX);
        } else if let Some(mtime) = value("mtime\t") {
            self.mtime = mtime.trim().to_owned();
        }
    }
}

/// Splits the text of `zdb -dddd` into file systems and rebuilds their trees.
fn parse(text: &str) -> BTreeMap<String, Listing> {
    let mut listings = BTreeMap::new();
    let mut dataset: Option<String> = None;
    let mut objects: BTreeMap<u64, Object> = BTreeMap::new();
    let mut root = 0;
    let mut current = 0;
    let mut header = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("Dataset ") {
            if let Some(name) = dataset.take() {
                listings.insert(name, build(&objects, root));
            }
            objects.clear();
            root = 0;
            dataset = rest.split_once(" [ZPL]").map(|(name, _)| name.to_owned());
            continue;
        }
        if line.starts_with("    Object  lvl") {
            header = true;
            continue;
        }
        if header {
            header = false;
            current = line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
            continue;
        }
        if current == 0 || dataset.is_none() {
            continue;
        }
        if let Some(entry) = line.strip_prefix("\t\t") {
            // A name with a newline in it goes on in the next line.
            let mut entry = entry.to_owned();
            while !entry.contains(" = ")
                && let Some(next) = lines.next_if(|next| !next.is_empty() && !next.starts_with(['\t', ' ']))
            {
                entry.push('\n');
                entry.push_str(next);
            }
            if let Some((name, number)) = parse_entry(&entry) {
                objects.entry(current).or_default().children.push((name, number));
            } else if current == 1
                && let Some(number) = entry.strip_prefix("ROOT = ")
            {
                root = number.trim().parse().unwrap_or(0);
            }
            continue;
        }
        let Some(field) = line.strip_prefix('\t') else { continue };
        objects.entry(current).or_default().note(field);
    }
    if let Some(name) = dataset {
        listings.insert(name, build(&objects, root));
    }
    listings
}

/// `name = 12 (type: Regular File)`; a name may itself contain ` = `.
fn parse_entry(entry: &str) -> Option<(String, u64)> {
    let (entry, _) = entry.rsplit_once(" (type: ")?;
    let (name, number) = entry.rsplit_once(" = ")?;
    Some((name.to_owned(), number.trim().parse().ok()?))
}

fn build(objects: &BTreeMap<u64, Object>, root: u64) -> Listing {
    let mut listing = Listing::new();
    let mut todo = vec![(String::from("."), root)];
    // A damaged directory may contain itself: no path is that deep here.
    const DEPTH_MAX: usize = 200;
    while let Some((path, number)) = todo.pop() {
        let Some(object) = objects.get(&number) else { continue };
        let Some(mode) = object.mode else { continue };
        let kind = match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Dir,
            0o120_000 => Kind::Link,
            _ => Kind::Other,
        };
        if kind == Kind::Dir && path.matches('/').count() < DEPTH_MAX {
            for (name, child) in &object.children {
                todo.push((if path == "." { name.clone() } else { format!("{path}/{name}") }, *child));
            }
        }
        let znode = Znode {
            object: number,
            kind,
            mode: mode & 0o7777,
            uid: object.uid,
            gid: object.gid,
            nlink: object.nlink,
            size: object.size,
            mtime: object.mtime.clone(),
            target: object.target.clone(),
        };
        listing.insert(path, znode);
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_zdb_prints_them() {
        assert_eq!(ctime(1_795_218_095_526_473_788), "Fri Nov 20 23:41:35 2026");
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
    }

    #[test]
    fn names_with_separators_in_them_are_kept_whole() {
        assert_eq!(parse_entry("a = b = 12 (type: Regular File)"), Some(("a = b".to_owned(), 12)));
        assert_eq!(parse_entry("ROOT = 34 "), None);
    }

    #[test]
    fn places_are_hexadecimal() {
        let dva = Dva { vdev: 0, offset: 0xce78000, asize: 0x2000 };
        assert_eq!(parse_dva("0:ce78000:2000"), Some(dva));
        assert_eq!(parse_dva("20000L/20000P"), None);
    }
}
