//! What else is done with streams than to copy a snapshot: the data set itself is sent, or what a receive has left in
//! it; a receive goes on from everywhere; damaged blocks are healed.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use platter_itest::binary::platter as binary;
use platter_itest::damage::{self, Layout};
use platter_itest::stream::{self, Piece};
use platter_itest::{Lab, Tree, data, zdb};

use crate::send_receive::{decorate, fill, receive, sent, sh, value};

const MIB: u64 = 1 << 20;

#[test]
fn a_data_set_itself_is_sent() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let mount = lab.create_fs("-o compression=lz4", "tank/fs");
    fill(&mount, 1);
    lab.zfs("snapshot tank/fs@a").ok();
    sh(&lab, "zfs send tank/fs@a | zfs receive pond/copy").ok();
    fill(&mount, 2);
    let tree = Tree::of(&mount);
    sh(&lab, "zfs send tank/fs > /dev/null")
        .refused()
        .says("warning: cannot send 'tank/fs': target is busy; if a filesystem, it must not be mounted");
    lab.zfs("unmount tank/fs").ok();
    let whole = sent(&lab, "tank/fs", "whole");
    receive(&lab, "pond/whole", &whole).ok();
    tree.assert_same(&Tree::of(&lab.mnt("pond/whole")), "a file system itself");
    assert_eq!(lab.zfs("list -H -o name -t snapshot pond/whole").ok().stdout, "pond/whole@--head--\n");
    assert_eq!(value(&lab, "guid", "pond/whole@--head--"), value(&lab, "guid", "tank/fs"));
    let more = sent(&lab, "-c -i @a tank/fs", "more");
    receive(&lab, "pond/copy@b", &more).ok();
    tree.assert_same(&Tree::of(&lab.mnt("pond/copy")), "what changed in a file system itself");
    // What broke off goes on.
    let length = fs::metadata(&whole).unwrap().len();
    sh(&lab, &format!("head -c {} {} | zfs receive -s pond/part", length / 2, whole.display())).refused();
    let rest = sent(&lab, &format!("-t {}", value(&lab, "receive_resume_token", "pond/part")), "rest");
    receive(&lab, "-s pond/part", &rest).ok();
    tree.assert_same(&Tree::of(&lab.mnt("pond/part")), "a file system itself, in two parts");
    // While it is sent it stays as it is.
    let slow = format!("zfs send tank/fs | (head -c 100000; sleep 4; cat) > {}/slow", lab.tmp().display());
    let script = format!("({slow}) & sleep 1; zfs mount tank/fs; zfs rollback tank/fs@a; zfs destroy -r tank/fs; wait");
    let run = sh(&lab, &script).ok();
    assert_eq!(run.stderr.matches("busy").count(), 3, "{}", run.stderr);
    assert_eq!(fs::metadata(lab.tmp().join("slow")).unwrap().len(), length);
    lab.zfs("mount tank/fs").ok();
    tree.assert_same(&Tree::of(&mount), "sent and mounted again");
    for (words, reason) in [
        ("-R tank/fs", "Error: Unsupported flag with filesystem or bookmark."),
        ("-I @a tank/fs", "Error: Unsupported flag with filesystem or bookmark."),
        ("-p tank/fs", "cannot send tank/fs@: snapshot tank/fs@ does not exist"),
        ("tank/no", "cannot open 'tank/no': dataset does not exist"),
    ] {
        sh(&lab, &format!("zfs send {words} > /dev/null")).refused().says(reason);
    }
    // Volumes, too, unless somebody has them open; and what is read-only, whoever has.
    lab.zfs("create -s -V 16M tank/volume").ok();
    let contents = lab.tmp().join("contents");
    fs::write(&contents, data::mixed(3, 9 << 20, 100_000)).unwrap();
    sh(&lab, &format!("{} volume write tank/volume < {}", binary().display(), contents.display())).ok();
    // The kernel tells of the last close a moment after it.
    sh(&lab, "for try in $(seq 50); do zfs send -n tank/volume 2> /dev/null && break; sleep 0.1; done").ok();
    sh(&lab, "zfs send tank/volume | zfs receive pond/volume").ok();
    let read =
        format!("{} volume cat pond/volume | head -c {} | cmp - {}", binary().display(), 9 << 20, contents.display());
    sh(&lab, &read).ok();
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
    lab.import("-o readonly=on", "tank");
    lab.wait_mounted(&mount);
    sh(&lab, &format!("zfs send tank/fs | cmp - {}", whole.display())).ok();
}

#[test]
fn what_was_received_in_part_is_sent_on() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let mount = lab.create_fs("-o compression=lz4", "tank/fs");
    fill(&mount, 1);
    lab.zfs("snapshot tank/fs@a").ok();
    let first = Tree::of(&mount);
    fill(&mount, 2);
    lab.zfs("snapshot tank/fs@b").ok();
    let second = Tree::of(&mount);
    sh(&lab, "zfs send tank/fs@a | zfs receive pond/one").ok();
    sh(&lab, "zfs send tank/fs@a | zfs receive pond/two").ok();
    let saved = lab.tmp().join("saved");
    for (words, from, to, tree) in
        [("-c tank/fs@a", "pond/new", "pond/newer", &first), ("-i @a tank/fs@b", "pond/one", "pond/two", &second)]
    {
        let stream = sent(&lab, words, "stream");
        let part = fs::metadata(&stream).unwrap().len() * 2 / 3;
        sh(&lab, &format!("head -c {part} {} | zfs receive -s {from}", stream.display())).refused();
        sh(&lab, &format!("zfs send -S {from} > {}", saved.display())).ok();
        assert!(fs::metadata(&saved).unwrap().len() > part / 2, "what was received is sent");
        receive(&lab, &format!("-s {to}"), &saved).refused().says("Partially received snapshot is saved");
        for target in [to, from] {
            let token = value(&lab, "receive_resume_token", target);
            let rest = sent(&lab, &format!("-t {token}"), "rest");
            receive(&lab, &format!("-s {target}"), &rest).ok();
            tree.assert_same(&Tree::of(&lab.mnt(target)), "received by way of another");
        }
    }
    sh(&lab, "zfs send -S pond/one > /dev/null").refused().says("pond/one");
    sh(&lab, "zfs send -S -c pond/one > /dev/null").refused().says("incompatible flags combined with saved send flag");
    sh(&lab, "zfs send -S pond/one@a > /dev/null").refused().says("saved send must specify the dataset with");
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// What may go wrong on its way: where a stream is cut.
fn cuts(stream: &[u8], count: usize, seed: u64) -> Vec<usize> {
    let pieces = stream::pieces(stream);
    let mut random = data::Rng::new(seed);
    let mut below = |most: usize| random.below(most as u64) as usize;
    let cuts = (0..count).map(|number| match number % 4 {
        // Between two records, inside of one, behind the first bytes of its payload, anywhere.
        0 => pieces[1 + below(pieces.len() - 1)].bytes.start,
        1 => pieces[1 + below(pieces.len() - 1)].bytes.start + 1 + below(stream::RECORD - 1),
        2 => {
            let Piece { bytes, .. } = &pieces[1 + below(pieces.len() - 1)];
            bytes.start + (stream::RECORD + below(16)).min(bytes.len() - 1)
        }
        _ => 400 + below(stream.len() - 401),
    });
    cuts.collect()
}

#[test]
fn a_receive_goes_on_from_many_places() {
    a_receive_goes_on(7);
}

/// The same at length.
#[test]
#[ignore = "takes minutes: make test-snapshots"]
fn a_receive_goes_on_from_each_of_200_places() {
    a_receive_goes_on(100);
}

/// A full and an incremental stream are each cut at so many places.
fn a_receive_goes_on(places: usize) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off -O acltype=posix -O xattr=sa -O compression=lz4", "pond", "d1");
    let options = "-o acltype=posix -o xattr=sa -o compression=lz4 -o recordsize=32k -o dnodesize=auto";
    let mount = lab.create_fs(options, "tank/fs");
    let small = |seed: u64| {
        for file in 0..12 {
            fs::write(mount.join(format!("small{seed}-{file}")), data::text(seed + file, 700 * file as usize)).unwrap();
        }
        fs::write(mount.join(format!("big{seed}")), data::mixed(seed, 500_000, 40_000)).unwrap();
        let sparse = fs::File::create(mount.join(format!("sparse{seed}"))).unwrap();
        sparse.set_len(8 * MIB).unwrap();
        sparse.write_all_at(&data::random(seed, 5000), 5 * MIB + 17).unwrap();
        decorate(&lab, &mount, seed);
    };
    small(1);
    lab.zfs("snapshot tank/fs@a").ok();
    let first = Tree::of(&mount);
    small(2);
    fs::remove_file(mount.join("small1-3")).unwrap();
    fs::remove_file(mount.join("big1")).unwrap();
    fs::File::options().write(true).open(mount.join("sparse1")).unwrap().set_len(MIB).unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    let second = Tree::of(&mount);
    sh(&lab, "zfs send -L tank/fs@a | zfs receive pond/base").ok();
    for (words, before, after, seed) in
        [("-Lec tank/fs@a", None, &first, 1), ("-L -i @a tank/fs@b", Some(&first), &second, 2)]
    {
        let path = sent(&lab, words, "stream");
        let bytes = fs::read(&path).unwrap();
        for cut in cuts(&bytes, places, seed) {
            let target = if before.is_some() { "pond/base" } else { "pond/new" };
            let part = format!("head -c {cut} {} | zfs receive -s {target}", path.display());
            let failed = sh(&lab, &part).refused();
            if let Some(before) = before.filter(|_| cut % 10 == 0) {
                before.assert_same(&Tree::of(&lab.mnt(target)), "as before what broke off");
            }
            let token = value(&lab, "receive_resume_token", target);
            assert!(failed.stderr.contains(&format!("    zfs send -t {token}\n")), "{cut}: {}", failed.stderr);
            sh(&lab, &format!("zfs send -t {token} | zfs receive -s {target}")).ok();
            after.assert_same(&Tree::of(&lab.mnt(target)), &format!("{words} cut at {cut}"));
            let sparse = fs::metadata(lab.mnt(target).join(format!("sparse{seed}"))).unwrap();
            assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) < 4096, "holes are holes");
            if before.is_some() {
                lab.zfs("rollback -r pond/base@a").ok();
            } else {
                lab.zfs("destroy -r pond/new").ok();
            }
        }
    }
    lab.export("pond");
    zdb::assert_clean(&lab.dev(), "pond");
}

/// A stream with something wrong in it whose checksums are right.
fn deceiving(bytes: &[u8], pieces: &[Piece], random: &mut data::Rng) -> Vec<u8> {
    let mut below = |most: usize| random.below(most as u64) as usize;
    let last = pieces.len() - 1;
    let mut records: Vec<Vec<u8>> = pieces.iter().map(|piece| bytes[piece.bytes.clone()].to_vec()).collect();
    let at = 1 + below(last - 1);
    match below(5) {
        0 => records.swap(at, 1 + below(last - 1)),
        1 => drop(records.remove(at)),
        2 => records.insert(at, records[1 + below(last - 1)].clone()),
        3 => records[at][8 + below(100)] ^= 1 << below(8),
        _ => {
            let length = records[at].len();
            records[at][8 + below(length - 8)] ^= 1 << below(8);
        }
    }
    // What says that it is longer than it is ends the stream early, and so it stays.
    stream::mended(records.iter().map(Vec::as_slice))
}

#[test]
fn streams_that_deceive_leave_the_target_as_it_was_or_resumable() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("-o compression=lz4 -o recordsize=16k", "tank/fs");
    for file in 0..20 {
        fs::write(mount.join(format!("file{file}")), data::mixed(file, 60_000, 9000)).unwrap();
    }
    lab.zfs("snapshot tank/fs@a").ok();
    let first = Tree::of(&mount);
    for file in 10..30 {
        fs::write(mount.join(format!("file{file}")), data::mixed(file + 50, 60_000, 9000)).unwrap();
    }
    lab.zfs("snapshot tank/fs@b").ok();
    sh(&lab, "zfs send tank/fs@a | zfs receive tank/copy").ok();
    let bytes = fs::read(sent(&lab, "-c -i @a tank/fs@b", "stream")).unwrap();
    let (pieces, bad) = (stream::pieces(&bytes), lab.tmp().join("bad"));
    assert!(stream::mended(pieces.iter().map(|piece| &bytes[piece.bytes.clone()])) == bytes, "the two agree");
    let mut random = data::Rng::new(23);
    let mut taken = 0;
    for round in 0..60 {
        fs::write(&bad, deceiving(&bytes, &pieces, &mut random)).unwrap();
        let run = receive(&lab, if round % 2 == 0 { "tank/copy" } else { "-s tank/copy" }, &bad);
        if run.code == 0 {
            // It makes another snapshot than what was sent, which nothing can tell.
            taken += 1;
            lab.zfs("rollback -r tank/copy@a").ok();
        } else {
            run.refused().says("cannot receive");
            first.assert_same(&Tree::of(&lab.mnt("tank/copy")), &format!("round {round}"));
            if value(&lab, "receive_resume_token", "tank/copy") != "-" {
                assert!(round % 2 == 1, "only when it was asked for");
                lab.zfs("receive -A tank/copy").ok();
            }
        }
    }
    assert!(taken < 50, "most of them are refused: {taken} were not");
    sh(&lab, "zfs send -i @a tank/fs@b | zfs receive tank/copy").ok();
    Tree::of(&mount).assert_same(&Tree::of(&lab.mnt("tank/copy")), "and then the true one");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Where every copy of every `step`-th block of a file lies, as zdb says.
fn places(lab: &Lab, dataset: &str, object: u64, step: usize) -> Vec<Range<u64>> {
    let blocks = zdb::blocks(&lab.dev(), dataset, object).expect("blocks");
    let dvas = blocks.iter().step_by(step).flat_map(|block| &block.dvas);
    dvas.flat_map(|dva| damage::sectors_of(dva, Layout::Disk, 12, 0)).collect()
}

/// Data sets whose blocks are stored each in another way.
const STORED: [(&str, &str); 6] = [
    ("plain", "-o compression=off"),
    ("lz4", "-o compression=lz4 -o recordsize=16k"),
    ("gzip", "-o compression=gzip-9 -o checksum=sha256"),
    ("zstd", "-o compression=zstd-7 -o checksum=blake3"),
    ("large", "-o compression=off -o recordsize=1M"),
    ("large4", "-o compression=lz4 -o recordsize=1M -o checksum=skein"),
];

#[test]
fn a_stream_heals_what_nothing_else_can() {
    let Some(lab) = Lab::open() else { return };
    if zdb::zdb(&lab.dev(), &["-h"]).is_none() {
        return;
    }
    lab.disks(1, 512);
    lab.create("-o ashift=12 -O atime=off", "tank", "d0");
    let mut all = Vec::new();
    for (number, (name, options)) in STORED.into_iter().enumerate() {
        let mount = lab.create_fs(options, &format!("tank/{name}"));
        fs::write(mount.join("file"), data::mixed(number as u64, 3_000_000, 70_000)).unwrap();
        fs::write(mount.join("small"), data::text(number as u64, 5000)).unwrap();
        lab.zfs(&format!("snapshot tank/{name}@a")).ok();
        let streams: Vec<_> = ["", "-L", "-Lc"]
            .iter()
            .map(|how| sent(&lab, &format!("{how} tank/{name}@a"), &format!("{name}{how}")))
            .collect();
        all.push((name, Tree::of(&mount), streams));
    }
    lab.export("tank");
    let mut damaged = Vec::new();
    for (name, ..) in &all {
        let dataset = format!("tank/{name}");
        let listing = zdb::list(&lab.dev(), &dataset).expect("zdb is there");
        let of_files =
            [("file", 2), ("small", 1)].map(|(file, step)| places(&lab, &dataset, listing[file].object, step));
        assert!(of_files[0].len() > 1 && !of_files[1].is_empty(), "{name}");
        damaged.extend(of_files.into_iter().flatten());
    }
    for round in 0..3 {
        damaged.iter().for_each(|range| damage::overwrite(&lab.disk(0), range.clone(), round as u64));
        lab.import("", "tank");
        for (name, tree, streams) in &all {
            let mount = lab.mnt(&format!("tank/{name}"));
            lab.wait_mounted(&mount);
            fs::read(mount.join("file")).expect_err("damaged");
            heal_one(&lab, name, &streams[round]);
            tree.assert_same(&Tree::of(&mount), &format!("{name} healed by stream {round}"));
        }
        lab.zpool("clear tank").ok();
        lab.scrub("tank").says("repaired 0B").says("with 0 errors").says("No known data errors");
        lab.export("tank");
    }
    zdb::assert_clean(&lab.dev(), "tank");
}

#[track_caller]
fn heal_one(lab: &Lab, name: &str, stream: &Path) {
    let target = format!("tank/{name}@a");
    // A stream that lies, however right its checksums are, changes no byte of the disk.
    let bytes = fs::read(stream).unwrap();
    let records: Vec<Vec<u8>> = stream::pieces(&bytes)
        .into_iter()
        .map(|Piece { kind, bytes: range }| {
            let mut record = bytes[range].to_vec();
            if kind == stream::WRITE {
                // Not at its end, where what was compressed may be padded.
                let middle = stream::RECORD + (record.len() - stream::RECORD) / 3;
                record[middle] ^= 1;
            }
            record
        })
        .collect();
    let lie = lab.tmp().join("lie");
    fs::write(&lie, stream::mended(records.iter().map(Vec::as_slice))).unwrap();
    lab.zpool("sync tank").ok();
    receive(lab, &format!("-c {target}"), &lie).refused().says("cannot receive new filesystem stream: ");
    fs::read(lab.mnt(&format!("tank/{name}")).join("file")).expect_err("still damaged");
    // Half of it heals that half.
    let half = format!("head -c {} {} | zfs receive -c {target}", bytes.len() / 2, stream.display());
    sh(lab, &half).refused().says("incomplete stream");
    let run = receive(lab, &format!("-v -c {target}"), stream).ok();
    assert!(run.stdout.starts_with("receiving corrective full stream of tank/"), "{}", run.stdout);
    assert!(run.stdout.ends_with(" damaged blocks healed\n"), "{}", run.stdout);
    receive(lab, &format!("-v -c {target}"), stream).ok().says("\n0 damaged blocks healed");
}

#[test]
fn a_stream_heals_only_its_own_snapshot() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("file"), data::random(1, 300_000)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let stream = sent(&lab, "tank/fs@a", "stream");
    lab.zfs("snapshot tank/fs@b").ok();
    let cannot = "cannot receive new filesystem stream: ";
    for (words, reason) in [
        ("-c tank/fs@b", "local snapshot doesn't match the snapshot in the provided stream"),
        ("-c tank/fs@c", "corrective recv must specify an existing snapshot to heal"),
        ("-c tank/no@a", "corrective recv must specify an existing snapshot to heal"),
        ("-c -F tank/fs@a", "corrective recv can not be used when combined with this flag"),
        ("-c -s tank/fs@a", "corrective recv can not be used when combined with this flag"),
    ] {
        receive(&lab, words, &stream).refused().says(&format!("{cannot}{reason}"));
    }
    receive(&lab, "-c tank/fs", &stream).ok();
    receive(&lab, "-n -v -c tank/fs@a", &stream)
        .ok()
        .says("would receive corrective full stream of tank/fs@a into tank/fs@a");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Streams in files that are not what they should be.
fn cut_and_damaged(lab: &Lab) {
    // Where it was cut is where a receive would go on.
    let stream = sent(lab, "-Lec tank/fs@a", "stream");
    let bytes = fs::read(&stream).unwrap();
    let part = lab.tmp().join("part");
    for cut in cuts(&bytes, 12, 5) {
        fs::write(&part, &bytes[..cut]).unwrap();
        receive(lab, "-s tank/part", &part).refused();
        let token = value(lab, "receive_resume_token", "tank/part");
        assert_eq!(lab.platter(["stream", "token", part.to_str().unwrap()]).ok().stdout.trim_end(), token, "{cut}");
        lab.platter(["stream", "ls", part.to_str().unwrap()]).refused().says("incomplete stream");
        lab.zfs("receive -A tank/part").ok();
    }
    // What is damaged, or is none, says so and nothing else happens.
    let pieces = stream::pieces(&bytes);
    let mut random = data::Rng::new(41);
    for _ in 0..60 {
        fs::write(&part, deceiving(&bytes, &pieces, &mut random)).unwrap();
        for words in [vec!["ls"], vec!["token"], vec!["cat", "folder1/big"]] {
            let mut all = vec!["stream", words[0], part.to_str().unwrap()];
            all.extend(&words[1..]);
            let run = lab.platter(&all);
            assert!(run.code < 3 && !run.stderr.contains("panicked"), "{}", run.stderr);
        }
    }
    fs::write(&part, data::random(1, 3000)).unwrap();
    for action in ["ls", "token"] {
        lab.platter(["stream", action, part.to_str().unwrap()]).refused().says("bad magic number");
        lab.platter(["stream", action, "/dev/null"]).refused().says("there is no stream in it");
        lab.platter(["stream", action, "/no/such"]).refused().says("cannot read '/no/such'");
    }
}

#[test]
fn files_are_read_out_of_a_stream_in_a_file() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("-o compression=lz4 -o recordsize=16k -o xattr=sa -o acltype=posix", "tank/fs");
    fill(&mount, 1);
    decorate(&lab, &mount, 1);
    fs::create_dir_all(mount.join("a/b/c/d")).unwrap();
    fs::write(mount.join("a/b/c/d/deep"), "deep").unwrap();
    fs::write(mount.join("tiny"), "x".repeat(90)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let tree = Tree::of(&mount);
    let mut expected: Vec<String> = tree
        .0
        .iter()
        .filter(|(name, _)| *name != ".")
        .map(
            |(name, entry)| {
                if entry.kind == platter_itest::tree::Kind::Dir { format!("{name}/") } else { name.clone() }
            },
        )
        .collect();
    expected.sort();
    for flags in ["", "-Lec", "-p"] {
        let stream = sent(&lab, &format!("{flags} tank/fs@a"), "stream");
        let file = stream.to_str().unwrap();
        let listed = lab.platter(["stream", "ls", file]).ok().stdout;
        let mut listed: Vec<String> = listed.lines().map(str::to_owned).collect();
        listed.sort();
        assert_eq!(listed, expected, "{flags}");
        let below = lab.platter(["stream", "ls", file, "a/b"]).ok().stdout;
        assert_eq!(below, "a/b/c/\na/b/c/d/\na/b/c/d/deep\n");
        for name in ["folder1/big", "sparse1", "small1-7", "a/b/c/d/deep", "/tiny", "folder1/empty"] {
            let script = format!(
                "{} stream cat {file} {name} | cmp - {}",
                binary().display(),
                mount.join(name.trim_start_matches('/')).display()
            );
            lab.run("sh", ["-c", &script]).ok();
        }
        lab.platter(["stream", "cat", file, "no/such"]).refused().says("there is no 'no/such' in it");
        lab.platter(["stream", "cat", file, "a/b"]).refused().says("is no regular file");
        assert_eq!(lab.platter(["stream", "token", file]).ok().stdout, "-\n");
    }
    cut_and_damaged(&lab);
    lab.zfs("snapshot tank/fs@b").ok();
    let more = sent(&lab, "-i @a tank/fs@b", "more");
    lab.platter(["stream", "ls", more.to_str().unwrap()]).refused().says("it is incremental");
    lab.zfs("create -s -V 1M tank/volume").ok();
    lab.zfs("snapshot tank/volume@a").ok();
    let volume = sent(&lab, "tank/volume@a", "volume");
    lab.platter(["stream", "ls", volume.to_str().unwrap()]).refused().says("it is of a volume");
}
