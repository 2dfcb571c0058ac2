//! The rule about weight: nothing heavy is in the tree or in its history, where it would stay for ever.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Complaint;

/// The most bytes of a file: 1 MiB.
const BYTES_MAX: u64 = 1 << 20;

/// No file that git knows, now or in what it has of the past, is heavy. Without git nothing is looked at: then nothing
/// can be committed either.
pub fn nothing_is_heavy() -> Vec<Complaint> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known = git(&root, &["ls-files", "--cached", "--others", "--exclude-standard"]).unwrap_or_default();
    let sizes = known.lines().filter_map(|name| Some((root.join(name).metadata().ok()?.len(), name)));
    let now = sizes.map(|(bytes, name)| format!("blob {bytes} {name}\n")).collect::<String>();
    let past = history(&root).unwrap_or_default();
    heavy(&now, "").into_iter().chain(heavy(&past, " in the history")).collect()
}

/// What git says; `None` where there is no git, or it knows nothing of the folder.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let asked = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
}

/// A line for each object that git has: kind, bytes, name.
fn history(root: &Path) -> Option<String> {
    let ask = |words: &[&str], input: Stdio| {
        let mut command = Command::new("git");
        command.arg("-C").arg(root).args(words).stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().ok()
    };
    let mut objects = ask(&["rev-list", "--objects", "--all", "HEAD"], Stdio::null())?;
    let listed = objects.stdout.take()?;
    let mut sizes = ask(&["cat-file", "--batch-check=%(objecttype) %(objectsize) %(rest)"], listed.into())?;
    let mut told = String::new();
    sizes.stdout.take()?.read_to_string(&mut told).ok()?;
    let ended = objects.wait().ok()?.success() && sizes.wait().ok()?.success();
    ended.then_some(told)
}

/// What of such a list is heavy.
fn heavy(list: &str, wherever: &str) -> Vec<Complaint> {
    let blobs = list.lines().filter_map(|line| {
        let (bytes, name) = line.strip_prefix("blob ")?.split_once(' ')?;
        Some((bytes.parse::<u64>().ok()?, name))
    });
    let heavy = blobs.filter(|(bytes, _)| *bytes > BYTES_MAX);
    heavy
        .map(|(bytes, name)| {
            let what = format!("{bytes} bytes{wherever}, more than {BYTES_MAX}: make it when it is needed");
            Complaint { file: name.to_owned(), line: 0, what }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_blobs_are_found_and_nothing_else() {
        let list = "commit 9999999 \nblob 1048576 fits\nblob 1048577 a heavy one\ntree 9999999 src\nblob 3 \n";
        let found = heavy(list, "");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file, "a heavy one");
    }
}
