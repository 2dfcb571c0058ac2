//! `zfs project`: projects of files, asked and told through the mounts they are on. It needs no daemon: the kernel
//! decides who may do what, and any file system with projects will do, as with OpenZFS's command
//! (`cmd/zfs/zfs_project.c`).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platter_device::project::FileProject;
use rustix::fs::{Dir, FileType as Kind, Mode, OFlags, open, openat};
use rustix::io::Errno;

use crate::getopt::{Grammar, parse};
use crate::out::{out, write_bytes};
use crate::session::{Done, Failure, Session, usage};
use crate::system_text::system_text;

/// What to do with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    List,
    /// Complains about files of another project (that of the target, when none is given) and without inheritance.
    Check {
        id: Option<u32>,
        zero_ended: bool,
    },
    Clear {
        keep_id: bool,
    },
    Set {
        id: Option<u32>,
        inherit: bool,
    },
}

/// How far below a target to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Not at all (`-d`).
    Target,
    /// As the task has it: its entries are listed and checked, and not changed.
    Default,
    /// All of it (`-r`).
    Tree,
}

#[derive(Debug, PartialEq, Eq)]
struct Call {
    task: Task,
    depth: Depth,
    targets: Vec<String>,
}

/// strtoull(3) with base 0, below 2^32-1.
fn project_id(text: &str) -> Result<u32, Failure> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    match u64::from_str_radix(digits, radix) {
        Ok(id) => u32::try_from(id).ok().filter(|&id| id != u32::MAX).ok_or_else(|| usage("invalid project ID")),
        Err(_) => Err(usage(format!("project ID must be less than {}", u32::MAX))),
    }
}

fn call(words: &[String]) -> Result<Call, Failure> {
    if words.is_empty() {
        return Err(usage(""));
    }
    let parsed = parse(Grammar { short: "0Ccdkp:rs", long: &[] }, words).map_err(usage)?;
    let (mut depth, mut id) = (Depth::Default, None);
    for given in &parsed.options {
        match given.name.as_str() {
            "d" => depth = Depth::Target,
            "r" => depth = Depth::Tree,
            "p" => id = Some(project_id(&given.argument)?),
            _ => {}
        }
    }
    let modes = ["C", "c", "s"].map(|mode| parsed.options.iter().filter(|given| given.name == mode).count());
    if modes.iter().sum::<usize>() > 1 {
        return Err(usage("cannot specify '-C' '-c' '-s' together"));
    }
    let task = match modes {
        [1, ..] => Task::Clear { keep_id: parsed.has("k") },
        [_, 1, _] => Task::Check { id, zero_ended: parsed.has("0") },
        [.., inherit] if inherit == 1 || id.is_some() => Task::Set { id, inherit: inherit == 1 },
        _ => Task::List,
    };
    let useless = match task {
        Task::Clear { .. } if depth == Depth::Target => Some("'-d' is useless together with '-C'"),
        Task::Set { .. } if depth == Depth::Target => Some("'-d' is useless for set project ID and/or inherit flag"),
        Task::List | Task::Check { .. } | Task::Set { .. } if parsed.has("k") => {
            Some("'-k' is only valid together with '-C'")
        }
        Task::List | Task::Clear { .. } | Task::Set { .. } if parsed.has("0") => {
            Some("'-0' is only valid together with '-c'")
        }
        Task::Clear { .. } if id.is_some() => Some("'-p' is useless together with '-C'"),
        _ => None,
    };
    if let Some(why) = useless {
        return Err(usage(why));
    }
    if parsed.operands.is_empty() {
        return Err(usage("missing file or directory target(s)"));
    }
    Ok(Call { task, depth, targets: parsed.operands })
}

/// A complaint that was made already.
struct Complained;

fn complained(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Complained {
    move |error| {
        eprintln!("failed to {what} {}: {}", path.display(), system_text(&error));
        Complained
    }
}

/// How everything below a target is opened: a name may lead to something else than a moment ago, when somebody
/// exchanges files while root goes through their folder. Links are not followed, and nothing is waited for at a pipe.
const BELOW: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The file `name` in a folder; `None` when it went away or is none that can have a project.
fn open_below(folder: &File, name: &OsStr) -> io::Result<Option<File>> {
    match openat(folder, name, BELOW | OFlags::NOCTTY, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            Ok(has_project(file.metadata()?.file_type()).then_some(file))
        }
        // It went away, or it is a link or a socket by now.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The folder that is reached from `target` by these names; `None` when one of them went away or is no folder any more.
fn open_folder(target: &File, names: &[OsString]) -> io::Result<Option<File>> {
    let mut folder = target.try_clone()?;
    for name in names {
        folder = match openat(&folder, name.as_os_str(), BELOW | OFlags::DIRECTORY, Mode::empty()) {
            Ok(next) => next.into(),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some(folder))
}

/// Does the task with one open file, which is called `path`.
fn handle_one(file: &File, path: &Path, task: Task) -> Result<(), Complained> {
    let found = FileProject::of(file).map_err(complained("get xattr for", path))?;
    let line = |text: &str| {
        write_bytes(&[path.as_os_str().as_bytes(), text.as_bytes()].concat());
    };
    let wanted = match task {
        Task::List => {
            out!("{:>5} {} ", found.id(), if found.is_inherited() { 'P' } else { '-' });
            line("\n");
            return Ok(());
        }
        Task::Check { id, zero_ended } => {
            let id = id.unwrap_or(found.id());
            let differs = found.id() != id;
            if zero_ended {
                if differs || !found.is_inherited() {
                    line("\0");
                }
                return Ok(());
            }
            if differs {
                line(&format!(" - project ID is not set properly ({}/{id})\n", found.id()));
            }
            if !found.is_inherited() {
                line(" - project inherit flag is not set\n");
            }
            return Ok(());
        }
        Task::Clear { keep_id } => found.with_inheritance(false).with_id(if keep_id { found.id() } else { 0 }),
        Task::Set { id, inherit } => {
            found.with_id(id.unwrap_or(found.id())).with_inheritance(inherit || found.is_inherited())
        }
    };
    if wanted == found {
        return Ok(());
    }
    wanted.store(file).map_err(complained("set xattr for", path))
}

/// Whether files of this kind can have a project set. OpenZFS opens all others too: it would follow symbolic links out
/// of the tree and wait for ever at a pipe.
fn has_project(kind: FileType) -> bool {
    kind.is_file() || kind.is_dir()
}

/// Does the task with what the folder holds that `names` lead to from `target`, which is called `root`.
fn handle_folder(
    target: &File,
    root: &Path,
    names: &[OsString],
    task: Task,
    recursive: bool,
    rest: &mut VecDeque<Vec<OsString>>,
) -> Result<(), Complained> {
    let path = root.join(names.iter().collect::<PathBuf>());
    let Some(folder) = open_folder(target, names).map_err(complained("opendir", &path))? else { return Ok(()) };
    let mut entries = Dir::read_from(&folder).map_err(|error| complained("opendir", &path)(error.into()))?;
    while let Some(entry) = entries.read() {
        let entry = entry.map_err(|error| complained("readdir", &path)(error.into()))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let may_have_one = matches!(entry.file_type(), Kind::RegularFile | Kind::Directory | Kind::Unknown);
        if name == "." || name == ".." || !may_have_one {
            continue;
        }
        let path = path.join(name);
        let Some(file) = open_below(&folder, name).map_err(complained("open", &path))? else { continue };
        handle_one(&file, &path, task)?;
        if recursive && file.metadata().is_ok_and(|data| data.is_dir()) {
            rest.push_back(names.iter().cloned().chain([name.to_owned()]).collect());
        }
    }
    Ok(())
}

fn handle(target: &str, call: &Call) -> Result<(), Complained> {
    let path = Path::new(target);
    // The target itself may be a link: it is what was asked for.
    let flags = BELOW.difference(OFlags::NOFOLLOW) | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map(File::from);
    let kind = match &file {
        Ok(file) => file.metadata(),
        Err(_) => fs::metadata(path),
    };
    let kind = kind.map_err(complained("stat", path))?.file_type();
    let refuse = |why: &str| {
        eprintln!("{why}");
        Err(Complained)
    };
    if !has_project(kind) {
        return refuse("only support project quota on regular file or directory");
    }
    match call.depth {
        Depth::Target if !kind.is_dir() => return refuse(&format!("'-d' option on non-dir target {target}")),
        Depth::Tree if !kind.is_dir() => return refuse(&format!("'-r' option on non-dir target {target}")),
        _ => {}
    }
    let file = file.map_err(|error| complained("open", path)(error.into()))?;
    let mut task = call.task;
    if let Task::Check { id: id @ None, .. } | Task::Set { id: id @ None, .. } = &mut task {
        *id = Some(FileProject::of(&file).map_err(complained("get xattr for", path))?.id());
    }
    handle_one(&file, path, task)?;
    let goes_below = match call.depth {
        Depth::Target => false,
        Depth::Default => matches!(task, Task::List | Task::Check { .. }),
        Depth::Tree => true,
    };
    if !kind.is_dir() || !goes_below {
        return Ok(());
    }
    let mut folders = VecDeque::from([Vec::new()]);
    while let Some(names) = folders.pop_front() {
        handle_folder(&file, path, &names, task, call.depth == Depth::Tree, &mut folders)?;
    }
    Ok(())
}

/// Runs `zfs project`.
pub fn run(_session: &mut Session, words: &[String]) -> Done {
    let call = call(words)?;
    let mut code = 0;
    for target in &call.targets {
        if handle(target, &call).is_err() {
            code = 1;
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root ran `zfs project -r` over a user's folder; the user exchanged a file for a link to a file elsewhere between
    /// the look at the entry and its opening, and that file's project was changed.
    #[test]
    fn what_became_a_link_or_a_pipe_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/file"), "x").unwrap();
        let target = File::open(dir.path()).unwrap();
        let names = |text: &str| text.split('/').map(OsString::from).collect::<Vec<_>>();
        let folder = open_folder(&target, &names("a")).unwrap().unwrap();
        assert!(open_folder(&target, &names("a/b")).unwrap().is_some());
        assert!(open_below(&folder, OsStr::new("file")).unwrap().is_some());
        // The exchange: file, folder, and the folder above.
        std::os::unix::fs::symlink(outside.path().join("secret"), dir.path().join("a/link")).unwrap();
        fs::remove_dir(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("a/b")).unwrap();
        rustix::fs::mknodat(&folder, "pipe", Kind::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for name in ["link", "b", "pipe", "gone"] {
            assert!(open_below(&folder, OsStr::new(name)).unwrap().is_none(), "{name}");
        }
        assert!(open_folder(&target, &names("a/b")).unwrap().is_none());
        fs::rename(dir.path().join("a"), dir.path().join("was")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("a")).unwrap();
        assert!(open_folder(&target, &names("a")).unwrap().is_none());
    }

    fn of(line: &str) -> Result<(Task, Depth), Failure> {
        call(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).map(|call| (call.task, call.depth))
    }

    #[test]
    fn options_mean_what_openzfs_means_by_them() {
        assert_eq!(of("a b").unwrap(), (Task::List, Depth::Default));
        assert_eq!(of("-dr a").unwrap(), (Task::List, Depth::Tree));
        assert_eq!(of("-rd a").unwrap(), (Task::List, Depth::Target));
        assert_eq!(of("-p 0x10 a").unwrap(), (Task::Set { id: Some(16), inherit: false }, Depth::Default));
        assert_eq!(of("-rsp 010 a").unwrap(), (Task::Set { id: Some(8), inherit: true }, Depth::Tree));
        assert_eq!(of("-s a").unwrap(), (Task::Set { id: None, inherit: true }, Depth::Default));
        assert_eq!(of("-c0 -p7 a").unwrap(), (Task::Check { id: Some(7), zero_ended: true }, Depth::Default));
        assert_eq!(of("-Ckr a").unwrap(), (Task::Clear { keep_id: true }, Depth::Tree));
    }

    #[test]
    fn what_makes_no_sense_together_is_refused_in_openzfss_words() {
        for (line, message) in [
            ("", ""),
            ("-r", "missing file or directory target(s)"),
            ("-C -s a", "cannot specify '-C' '-c' '-s' together"),
            ("-c -c a", "cannot specify '-C' '-c' '-s' together"),
            ("-k a", "'-k' is only valid together with '-C'"),
            ("-0s a", "'-0' is only valid together with '-c'"),
            ("-Cd a", "'-d' is useless together with '-C'"),
            ("-C -p 1 a", "'-p' is useless together with '-C'"),
            ("-d -p 1 a", "'-d' is useless for set project ID and/or inherit flag"),
            ("-p x a", "project ID must be less than 4294967295"),
            ("-p 4294967295 a", "invalid project ID"),
            ("-x a", "invalid option 'x'"),
        ] {
            assert_eq!(of(line).unwrap_err(), usage(message), "{line}");
        }
    }
}
