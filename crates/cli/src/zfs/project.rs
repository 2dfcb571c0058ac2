//! `zfs project`: projects of files, asked and told through the mounts they are on. It needs no daemon: the kernel
//! decides who may do what, and any file system with projects will do, as with OpenZFS's command
//! (`cmd/zfs/zfs_project.c`).

use std::collections::VecDeque;
use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use platter_device::project::FileProject;

use crate::getopt::{Grammar, parse};
use crate::out::{out, write_bytes};
use crate::session::{Done, Failure, Session, usage};

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

/// An error as strerror(3) says it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A complaint that was made already.
struct Complained;

fn complained(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Complained {
    move |error| {
        eprintln!("failed to {what} {}: {}", path.display(), reason(&error));
        Complained
    }
}

/// The file and its project; `None` when it went away and `may_go`.
fn open(path: &Path, may_go: bool) -> Result<Option<(File, FileProject)>, Complained> {
    let file = match File::open(path) {
        Err(error) if may_go && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(complained("open", path))?,
    };
    let project = FileProject::of(&file).map_err(complained("get xattr for", path))?;
    Ok(Some((file, project)))
}

fn handle_one(path: &Path, task: Task, may_go: bool) -> Result<(), Complained> {
    let Some((file, found)) = open(path, may_go)? else { return Ok(()) };
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
    wanted.store(&file).map_err(complained("set xattr for", path))
}

/// Whether files of this kind can have a project set. OpenZFS opens all others too: it would follow symbolic links out
/// of the tree and wait for ever at a pipe.
fn has_project(kind: FileType) -> bool {
    kind.is_file() || kind.is_dir()
}

fn handle_folder(folder: &Path, task: Task, recursive: bool, rest: &mut VecDeque<PathBuf>) -> Result<(), Complained> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(complained("opendir", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(complained("readdir", folder))?;
        let Ok(kind) = entry.file_type() else { continue };
        if !has_project(kind) {
            continue;
        }
        handle_one(&entry.path(), task, true)?;
        if recursive && kind.is_dir() {
            rest.push_back(entry.path());
        }
    }
    Ok(())
}

fn handle(target: &str, call: &Call) -> Result<(), Complained> {
    let path = Path::new(target);
    let kind = fs::metadata(path).map_err(complained("stat", path))?.file_type();
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
    let mut task = call.task;
    if let Task::Check { id: id @ None, .. } | Task::Set { id: id @ None, .. } = &mut task {
        *id = open(path, false)?.map(|(_, project)| project.id());
    }
    handle_one(path, task, false)?;
    let goes_below = match call.depth {
        Depth::Target => false,
        Depth::Default => matches!(task, Task::List | Task::Check { .. }),
        Depth::Tree => true,
    };
    if !kind.is_dir() || !goes_below {
        return Ok(());
    }
    let mut folders = VecDeque::from([path.to_path_buf()]);
    while let Some(folder) = folders.pop_front() {
        handle_folder(&folder, task, call.depth == Depth::Tree, &mut folders)?;
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
