//! A tree of source files as programmers move it about: unpacked, copied, cloned, listed, removed.
//!
//! The same files for the same count at every run: text of 1 to 60 KiB, 16 in a folder, folders in folders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Done, sync};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::Random;
use crate::program::{find, output};
use crate::text;

/// Files in a folder.
const FOLDER: u64 = 16;
/// Folders in a folder.
const FOLDERS: u64 = 12;
/// Of so many files one is compared.
const COMPARED: usize = 17;
const LIMIT: Duration = Duration::from_secs(3600);
/// Where it is in the archive, and in a file system that it was unpacked into.
const UNPACKED: &str = "tree";
const COPY: &str = "copy";
const CLONE: &str = "clone";

/// The tree as an archive and as a repository, outside of what is measured.
#[derive(Debug)]
pub struct SourceTree {
    archive: PathBuf,
    repository: Option<PathBuf>,
    files: u64,
}

/// A file's place in the tree.
fn name(index: u64) -> PathBuf {
    let mut folders = vec![index / FOLDER];
    while let Some(&last) = folders.last().filter(|&&last| last >= FOLDERS) {
        folders.push(last / FOLDERS - 1);
    }
    let folders = folders.iter().rev().map(|folder| format!("dir{}", folder % FOLDERS));
    folders.collect::<PathBuf>().join(format!("file{}.c", index % FOLDER))
}

/// A file's text. Short files are more frequent than long ones.
fn content(index: u64) -> Vec<u8> {
    let mut random = Random::new(index);
    let length = (1 << 10) + random.below(59 << 10).min(random.below(59 << 10));
    text::source(length as usize, &mut random)
}

impl SourceTree {
    /// Makes the archive and, where git is, the repository, in a folder that nothing else has.
    ///
    /// # Errors
    /// What the system or one of the programs said.
    pub fn make(folder: &Path, files: u64) -> Result<Self> {
        let tree = folder.join(UNPACKED);
        for index in 0..files {
            interrupt::check()?;
            let path = tree.join(name(index));
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(&path, content(index))).on(|| format!("making {}", path.display()))?;
        }
        let archive = folder.join("tree.tar");
        let mut tar = Command::new("tar");
        output(tar.arg("-cf").arg(&archive).arg("-C").arg(folder).arg(UNPACKED), LIMIT, false)?;
        let repository = find("git").map(|_| folder.join("tree.git"));
        if let Some(repository) = &repository {
            make_repository(repository, &tree)?;
        }
        std::fs::remove_dir_all(&tree).on(|| format!("removing {}", tree.display()))?;
        Ok(Self { archive, repository, files })
    }

    /// Whether there is a repository to clone.
    pub fn has_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// Brings the archive and the repository into the machine's cache, so that no system pays for reading them.
    ///
    /// # Errors
    /// What the system said.
    pub fn warm(&self) -> Result<()> {
        let mut cat = Command::new("sh");
        cat.args(["-c", "find \"$@\" -type f -exec cat {} + > /dev/null", "sh"]).arg(&self.archive);
        output(cat.args(&self.repository), LIMIT, false).map(drop)
    }

    /// How long a program takes for the tree, until what it changed below `folder` is on disk.
    fn run(&self, folder: &Path, command: &mut Command) -> Result<(Done, String)> {
        let start = Instant::now();
        let said = output(command.current_dir(folder), LIMIT, false)?;
        sync(folder)?;
        Ok((Done { operations: self.files, elapsed: start.elapsed(), ..Done::default() }, said))
    }

    /// Unpacks the archive.
    ///
    /// # Errors
    /// What the program said, as of all that follow.
    pub fn untar(&self, folder: &Path) -> Result<Done> {
        self.run(folder, Command::new("tar").arg("-xf").arg(&self.archive)).map(|(done, _)| done)
    }

    /// Copies what was unpacked.
    ///
    /// # Errors
    /// As said above.
    pub fn copy(&self, folder: &Path) -> Result<Done> {
        self.run(folder, Command::new("cp").args(["-a", UNPACKED, COPY])).map(|(done, _)| done)
    }

    /// Clones the repository.
    ///
    /// # Errors
    /// As said above, and when there is none.
    pub fn clone_repository(&self, folder: &Path) -> Result<Done> {
        let Some(repository) = &self.repository else { return said("there is no git") };
        let mut git = git();
        self.run(folder, git.args(["clone", "-q", "--no-hardlinks"]).arg(repository).arg(CLONE)).map(|(done, _)| done)
    }

    /// Lists what was unpacked, with all attributes.
    ///
    /// # Errors
    /// As said above, and when files are missing.
    pub fn list(&self, folder: &Path) -> Result<Done> {
        let (done, listing) = self.run(folder, Command::new("ls").args(["-lR", UNPACKED]))?;
        let found = listing.lines().filter(|line| line.starts_with('-')).count() as u64;
        if found == self.files { Ok(done) } else { said(format!("ls found {found} files and not {}", self.files)) }
    }

    /// Removes the copy.
    ///
    /// # Errors
    /// As said above.
    pub fn remove(&self, folder: &Path) -> Result<Done> {
        self.run(folder, Command::new("rm").args(["-rf", COPY])).map(|(done, _)| done)
    }

    /// Compares some files of everything that was made below `folder` with what they have to be.
    ///
    /// # Errors
    /// When one is another.
    pub fn compare(&self, folder: &Path) -> Result<()> {
        let made = [Some(UNPACKED), Some(COPY), self.repository.as_ref().map(|_| CLONE)];
        for made in made.into_iter().flatten() {
            for index in (0..self.files).step_by(COMPARED).chain([self.files - 1]) {
                interrupt::check()?;
                let path = folder.join(made).join(name(index));
                if std::fs::read(&path).on(|| format!("reading {}", path.display()))? != content(index) {
                    return said(format!("{}: other data came back than was written", path.display()));
                }
            }
        }
        Ok(())
    }
}

/// git as it is without anybody's settings.
fn git() -> Command {
    let mut git = Command::new("git");
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "core.autocrlf=false"]);
    git.args(["-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "init.defaultBranch=main"]);
    git
}

/// One commit in one pack, as a clone of something large has it.
fn make_repository(repository: &Path, tree: &Path) -> Result<()> {
    output(git().args(["init", "-q", "--bare"]).arg(repository), LIMIT, false)?;
    let steps: [&[&str]; 3] = [&["add", "-A"], &["commit", "-q", "-m", "All"], &["repack", "-adq"]];
    for step in steps {
        let mut git = git();
        git.env("GIT_DIR", repository).env("GIT_WORK_TREE", tree).current_dir(tree);
        output(git.args(step), LIMIT, false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_has_its_place_and_its_text() {
        let names: BTreeSet<PathBuf> = (0..5000).map(name).collect();
        assert_eq!(names.len(), 5000);
        assert_eq!(name(0), Path::new("dir0/file0.c"));
        assert_eq!(name(16 * 12), Path::new("dir0/dir0/file0.c"));
        assert!(names.iter().any(|name| name.components().count() == 4));
        assert_eq!(content(5), content(5));
        assert!((0..50).all(|index| (1 << 10..60 << 10).contains(&content(index).len())));
    }

    #[test]
    fn a_tree_is_unpacked_copied_cloned_listed_and_removed() {
        let outside = tempfile::tempdir().expect("a temporary folder");
        let inside = tempfile::tempdir().expect("a temporary folder");
        let tree = SourceTree::make(outside.path(), 50).expect("made");
        tree.warm().expect("read");
        assert_eq!(tree.untar(inside.path()).expect("unpacked").operations, 50);
        tree.copy(inside.path()).expect("copied");
        if tree.has_repository() {
            tree.clone_repository(inside.path()).expect("cloned");
        }
        tree.list(inside.path()).expect("listed");
        tree.compare(inside.path()).expect("the same");
        std::fs::write(inside.path().join(COPY).join(name(17)), "other").expect("overwritten");
        assert!(tree.compare(inside.path()).is_err());
        tree.remove(inside.path()).expect("removed");
        std::fs::remove_file(inside.path().join(UNPACKED).join(name(3))).expect("removed");
        assert!(tree.list(inside.path()).is_err());
    }
}
