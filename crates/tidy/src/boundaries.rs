//! What a crate must not know, as far as a program can tell: `ARCHITECTURE.md` says it in words, this file in names.
//!
//! Whether a manifest names a crate is for `layers` to look at; here it is code that counts. Tests may know everything.

use proc_macro2::TokenTree;

use crate::tokens::{at_every_depth, tokens, without_tests};
use crate::{Complaint, Source, Tree};

/// What one crate must not know.
struct Room {
    /// Its folder.
    folder: &'static str,
    /// The only crates of ours that its code may name; any, where there is no list.
    crates: Option<&'static [&'static str]>,
    /// Words that no name in its code has as a part, in lower case: `dataset` forbids `DatasetKind` and `open_dataset`.
    words: &'static [&'static str],
}

/// Any crate below, but not these words.
const fn words(folder: &'static str, words: &'static [&'static str]) -> Room {
    Room { folder, crates: None, words }
}

/// These crates alone, and not these words.
const fn only(folder: &'static str, crates: &'static [&'static str], words: &'static [&'static str]) -> Room {
    Room { folder, crates: Some(crates), words }
}

const ROOMS: [Room; 26] = [
    only("hooks", &[], &["txg", "vdev", "disk"]),
    only("buffer", &[], &["txg", "vdev", "disk"]),
    only("nvlist", &[], &["vdev", "pool", "label"]),
    only("parity", &[], &["disk", "device", "file"]),
    only("ondisk", &["nvlist"], &["tokio", "rustix", "await"]),
    only("checksum", &["ondisk"], &["disk", "device", "file"]),
    only("compress", &["ondisk"], &["disk", "device", "file"]),
    only("stream", &["checksum", "compress", "nvlist", "ondisk"], &["tokio", "rustix", "await", "pool"]),
    only("device", &["buffer", "hooks"], &["txg", "blkptr", "dnode", "dataset"]),
    words("vdev", &["blkptr", "dnode", "objset", "dataset"]),
    words("zio", &["dmu", "znode", "zpl", "dataset"]),
    words("dmu", &["zpl", "fuse", "dataset", "datasets"]),
    words("zil", &["zpl", "fuse", "dataset", "datasets", "znode", "file", "files"]),
    only("api", &["ondisk"], &["objset", "blkptr"]),
    only("faults", &["api"], &["tokio", "rustix", "await", "instant"]),
    only("model", &["buffer", "device", "hooks", "ondisk"], &["txg", "dataset", "vdev"]),
    words("dsl", &["fuse", "errno"]),
    words("spa", &["fuse", "errno", "znode"]),
    words("zpl", &["fuse"]),
    words("zvol", &["fuse", "zpl", "dataset", "file", "files"]),
    words("sim", &["fuse", "daemon"]),
    only("transport", &["device"], &["zfs", "zpl", "pool", "txg", "vdev", "dataset"]),
    only("vfs", &["buffer", "ondisk", "zio", "zpl", "zvol"], &["fuse", "kernel", "node", "errno", "pool", "vdev"]),
    only("fuse", &["ondisk", "transport", "vfs"], &["pool", "pools", "vdev", "zpl"]),
    only("archive", &["fuse", "nvlist", "ondisk", "stream", "transport"], &["pool", "pools", "vdev", "dataset"]),
    only(
        "bench",
        &["buffer", "checksum", "compress", "fuse", "model", "ondisk", "parity", "transport"],
        &["txg", "objset"],
    ),
];

/// The command line asks the daemon. (`device` knows no ZFS: it sets the project of a file where one is; a resume token
/// is text, which `stream` can read; a stream in a file is shown and compared by `archive`.)
const CLI: Room =
    only("cli", &["api", "archive", "daemon", "device", "nvlist", "stream"], &["metaslab", "dnode", "objset"]);

/// Each crate keeps to what is its own.
pub fn crates_keep_to_themselves(source: &Source) -> Vec<Complaint> {
    let Some(folder) = source.crate_folder().filter(|_| source.is_rust()) else { return Vec::new() };
    let rooms = ROOMS.iter().chain(Some(&CLI));
    let room = rooms.into_iter().find(|room| room.folder == folder);
    room.filter(|_| source.path.starts_with(&format!("crates/{folder}/src/")) && !source.is_test())
        .map_or_else(Vec::new, |room| looked_at(room, source))
}

fn looked_at(room: &Room, source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    at_every_depth(&without_tests(tokens(source)), &mut |tokens| {
        for token in tokens {
            let TokenTree::Ident(ident) = token else { continue };
            let name = ident.to_string();
            let other = name.strip_prefix("platter_").filter(|other| *other != room.folder);
            let foreign = other.zip(room.crates).filter(|(other, crates)| !crates.contains(other));
            let word = parts(&name).into_iter().find(|part| room.words.contains(&part.as_str()));
            let what = match (foreign, word) {
                (Some((other, _)), _) => format!("`{}` must not know `{other}`", room.folder),
                (None, Some(word)) => format!("`{}` must not know of `{word}`, but names `{name}`", room.folder),
                (None, None) => continue,
            };
            complaints.push(Complaint { file: source.path.clone(), line: ident.span().start().line, what });
        }
    });
    complaints
}

/// The words of a name, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before_is_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && before_is_lower {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        before_is_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    parts
}

/// The page with the table of crates.
const PAGE: &str = "ARCHITECTURE.md";

/// Each crate has a row in the table of `ARCHITECTURE.md`, and each row a crate.
pub fn the_table_of_crates_is_complete(tree: &Tree) -> Vec<Complaint> {
    let rows = tree.source(PAGE).map_or_else(Vec::new, rows);
    let folders: Vec<&str> = tree.manifests().filter_map(Source::crate_folder).collect();
    let missing = folders.iter().filter(|folder| !rows.iter().any(|(_, row)| row == *folder));
    let without = missing.map(|folder| Complaint {
        file: format!("crates/{folder}"),
        line: 0,
        what: format!("give the crate its row in the table of {PAGE}"),
    });
    let empty = rows.iter().filter(|(_, row)| !folders.contains(&row.as_str())).map(|(line, row)| Complaint {
        file: PAGE.into(),
        line: *line,
        what: format!("there is no crate `{row}`: take its row away"),
    });
    without.chain(empty).collect()
}

/// The crates in the first column of the first table, each with its line.
fn rows(page: &Source) -> Vec<(usize, String)> {
    let lines = page.text.lines().enumerate().skip_while(|(_, line)| !line.starts_with("|---"));
    let table = lines.skip(1).take_while(|(_, line)| line.starts_with('|'));
    let cells = table.filter_map(|(index, line)| Some((index + 1, line.split('|').nth(1)?)));
    cells.flat_map(|(line, cell)| cell.split('`').skip(1).step_by(2).map(move |name| (line, name.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        crates_keep_to_themselves(&Source { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn a_crate_that_knows_too_much_is_found() {
        assert_eq!(found("crates/device/src/a.rs", "use platter_buffer::Buf;\nuse platter_hooks::{Cpu};"), 0);
        assert_eq!(found("crates/device/src/a.rs", "fn a() { platter_ondisk::Guid(1) }"), 1);
        assert_eq!(found("crates/transport/src/a.rs", "use platter_zpl::Zpl;"), 2);
        assert_eq!(found("crates/dmu/src/a.rs", "struct DatasetKind;"), 1);
        assert_eq!(found("crates/zpl/src/a.rs", "fn to_fuse() {}\nconst FUSE: u8 = 1;\nstruct FuseMount;"), 3);
    }

    #[test]
    fn comments_strings_similar_words_and_tests_are_free() {
        for fine in ["// FUSE\nfn refuse() {}", "const A: &str = \"fuse\";", "#[cfg(test)] mod tests { use fuse; }"] {
            assert_eq!(found("crates/zpl/src/a.rs", fine), 0, "{fine}");
        }
        assert_eq!(found("crates/zpl/tests/a.rs", "use fuse;"), 0);
        assert_eq!(found("crates/fuse/src/a.rs", "use fuse;"), 0);
    }

    #[test]
    fn names_have_words() {
        assert_eq!(parts("DatasetKind"), ["dataset", "kind"]);
        assert_eq!(parts("open_dataset2"), ["open", "dataset2"]);
        assert_eq!(parts("BLOCK_SIZE"), ["block", "size"]);
    }

    #[test]
    fn the_command_line_asks() {
        let source = |text: &str| Source { path: "crates/cli/src/a.rs".into(), text: text.into() };
        assert_eq!(looked_at(&CLI, &source("use platter_daemon::api;")).len(), 0);
        assert_eq!(looked_at(&CLI, &source("use platter_spa::Pool;")).len(), 1);
    }

    #[test]
    fn rows_and_crates_belong_together() {
        let page = "| crate | holds |\n|---|---|\n| `a` | x |\n| `b`, `c` | `d` |\n\n| `e` |\n";
        let tree = |folders: &[&str]| {
            let manifests: Vec<String> = folders.iter().map(|folder| format!("crates/{folder}/Cargo.toml")).collect();
            let mut files = vec![(PAGE, page)];
            files.extend(manifests.iter().map(|path| (path.as_str(), "")));
            the_table_of_crates_is_complete(&Tree::of(&files)).len()
        };
        assert_eq!(tree(&["a", "b", "c"]), 0);
        assert_eq!(tree(&["a", "b"]), 1);
        assert_eq!(tree(&["a", "b", "c", "d"]), 1);
    }
}
