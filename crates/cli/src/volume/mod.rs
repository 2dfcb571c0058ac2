//! `platter volume`: what is in a volume, as a stream or an image file, and back.
//!
//! A volume is a file that the daemon shows; here its bytes are moved, and what is not there is passed over.

mod image;
mod progress;
mod sparse;

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use platter_api::messages::{CreateDataset, ErrorBody, ListDatasets};
use platter_api::numbers;
use platter_api::report::{DatasetKind, DatasetReport, PropertyValue};
use platter_api::request::NewVolume;
use platter_daemon::home::Home;

use crate::out::outln;
use crate::session::{Done, Failure, Session, exit_code, refused};
use progress::Progress;
use sparse::Source;

use crate::sink::Sink;

/// What is done.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Print where a volume is as a file, for losetup(8), a virtual machine, or any other program
    Path {
        /// Name of the volume, or of a snapshot of one
        name: String,
    },
    /// Write a volume, or a snapshot of one, to standard output; holes stay holes in a file
    Cat {
        /// Name of the volume, or of a snapshot of one
        name: String,
    },
    /// Write standard input, or a file, into a volume; holes and zeros free what was there
    Write {
        /// Name of the volume
        name: String,
        /// The file; standard input when there is none, or with '-'
        file: Option<PathBuf>,
        /// Where in the volume to begin
        #[arg(long, default_value = "0")]
        offset: String,
    },
    /// Write a volume, or a snapshot of one, into a new image file
    Export {
        /// Name of the volume, or of a snapshot of one
        name: String,
        /// The image file
        file: PathBuf,
        /// Its format
        #[arg(long, value_enum, default_value_t = Format::Raw)]
        format: Format,
        /// Over a file that is there
        #[arg(short, long)]
        force: bool,
    },
    /// Make a volume of an image file; or fill one that is there, with --force
    Import {
        /// Name of the volume
        name: String,
        /// The image file
        file: PathBuf,
        /// Its format
        #[arg(long, value_enum, default_value_t = Format::Raw)]
        format: Format,
        /// Reserve nothing for a new volume
        #[arg(short, long)]
        sparse: bool,
        /// Block size of a new volume
        #[arg(short, long)]
        block_size: Option<String>,
        /// Over what is in a volume that is there
        #[arg(short, long)]
        force: bool,
    },
}

/// Formats of image files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The bytes of the disk
    Raw,
    /// QEMU's; qemu-img(1) does the work
    Qcow2,
}

/// Runs it; the exit code.
pub fn main(action: &Action) -> u8 {
    exit_code(run(action), "volume")
}

fn run(action: &Action) -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let session = &mut Session::new(format!("platter {}", words.join(" ")))?;
    match action {
        Action::Path { name } => {
            let (_, path) = found(session, name)?;
            outln!("{}", path.display());
        }
        Action::Cat { name } => cat(session, name)?,
        Action::Write { name, file, offset } => {
            let offset = numbers::parse(offset).map_err(|reason| refused(format!("bad offset: {reason}")))?;
            write(session, name, file.as_deref(), offset)?;
        }
        Action::Export { name, file, format, force } => export(session, name, file, *format, *force)?,
        Action::Import { name, file, format, sparse, block_size, force } => {
            let new = NewImage { sparse: *sparse, block_size: block_size.as_deref(), force: *force };
            import(session, name, file, *format, &new)?;
        }
    }
    Ok(0)
}

/// What the daemon says of a volume or a snapshot, and where it is as a file.
fn found(session: &mut Session, name: &str) -> Result<(DatasetReport, PathBuf), Failure> {
    let volume = name.split('@').next().unwrap_or(name);
    let list = |session: &mut Session, name: &str| {
        session.ask(ListDatasets { under: Some(name.to_owned()), ..ListDatasets::default() })
    };
    let views = list(session, volume)?.datasets;
    let report = views.into_iter().map(|view| view.report).find(|report| report.name == volume);
    let report = report.ok_or_else(|| refused(format!("cannot open '{volume}': dataset does not exist")))?;
    if report.kind != DatasetKind::Volume {
        return Err(refused(format!("cannot open '{volume}': it is a {}, not a volume", report.kind.name())));
    }
    if volume != name {
        list(session, name)?;
    }
    let path = Home::of_commands()?.volumes().join(name);
    match std::fs::metadata(&path) {
        Ok(_) => Ok((report, path)),
        Err(_) if says(&report, "volmode") == Some("none") => {
            let hint = format!("'zfs set volmode=default {volume}' does");
            Err(Failure::Refused(ErrorBody::new(format!("'{volume}' has volmode=none: nothing shows it")).hint(hint)))
        }
        Err(error) => {
            let text = format!("cannot open '{}': {error}", path.display());
            Err(Failure::Refused(ErrorBody::new(text).hint("the daemon's log says why the volume is not shown")))
        }
    }
}

fn says<'a>(report: &'a DatasetReport, property: &str) -> Option<&'a str> {
    match report.properties.get(property).map(|property| &property.value) {
        Some(PropertyValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// A complete message about a file.
fn failed(what: &str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let start = format!("cannot {what} '{}'", path.display());
    move |error| refused(format!("{start}: {error}"))
}

/// A volume that is to be written.
fn to_write(path: &Path, name: &str) -> Result<File, Failure> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| refused(format!("cannot write '{name}': {error}")))
}

fn cat(session: &mut Session, name: &str) -> Result<(), Failure> {
    let out = std::io::stdout();
    if out.is_terminal() {
        return Err(refused(
            "the bytes of a volume can not be written to a terminal;\nyou must redirect standard output",
        ));
    }
    let (_, path) = found(session, name)?;
    let volume = File::open(&path).map_err(failed("open", &path))?;
    let size = volume.metadata().map_err(failed("open", &path))?.len();
    let mut sink = Sink::output().map_err(|error| refused(format!("cannot write: {error}")))?;
    let progress = Progress::new(name, Some(size)).quiet();
    sparse::copy(&mut Source::file(volume, size), &mut sink, &progress)
        .map_err(|error| refused(format!("cannot copy '{name}': {error}")))?;
    progress.done();
    Ok(())
}

fn write(session: &mut Session, name: &str, file: Option<&Path>, offset: u64) -> Result<(), Failure> {
    let (_, path) = found(session, name)?;
    let volume = to_write(&path, name)?;
    let room = volume.metadata().map_err(failed("open", &path))?.len().saturating_sub(offset);
    let mut source = match file.filter(|file| *file != Path::new("-")) {
        Some(file) => Source::open(file).map_err(failed("open", file))?,
        None => Source::input().map_err(|error| refused(format!("cannot read: {error}")))?,
    };
    if let Some(size) = source.size().filter(|size| *size > room) {
        return Err(refused(format!("cannot write '{name}': {size} bytes do not fit, there are {room}")));
    }
    let progress = Progress::new(name, source.size());
    let mut sink = Sink::volume(volume, offset);
    sparse::copy(&mut source, &mut sink, &progress)
        .map_err(|error| refused(format!("cannot write '{name}': {error}")))?;
    progress.done();
    Ok(())
}

fn export(session: &mut Session, name: &str, file: &Path, format: Format, force: bool) -> Result<(), Failure> {
    let (_, path) = found(session, name)?;
    if !force && file.exists() {
        let text = format!("cannot export to '{}': it exists", file.display());
        return Err(Failure::Refused(ErrorBody::new(text).hint("'--force' writes over it")));
    }
    if format == Format::Qcow2 {
        return image::from_volume(&path, file);
    }
    let volume = File::open(&path).map_err(failed("open", &path))?;
    let size = volume.metadata().map_err(failed("open", &path))?.len();
    let made = OpenOptions::new().write(true).create(true).truncate(true).open(file).map_err(failed("create", file))?;
    let progress = Progress::new(name, Some(size));
    let mut sink = Sink::new_file(made);
    sparse::copy(&mut Source::file(volume, size), &mut sink, &progress).map_err(failed("write", file))?;
    progress.done();
    Ok(())
}

/// How a volume is made of an image.
struct NewImage<'a> {
    sparse: bool,
    block_size: Option<&'a str>,
    force: bool,
}

fn import(session: &mut Session, name: &str, file: &Path, format: Format, new: &NewImage<'_>) -> Result<(), Failure> {
    let size = match format {
        Format::Raw => Source::open(file).map_err(failed("open", file))?.size(),
        Format::Qcow2 => Some(image::virtual_size(file)?),
    };
    let Some(size) = size else {
        let text = format!("cannot import '{}': it has no size; use 'platter volume write'", file.display());
        return Err(refused(text));
    };
    let there = session.ask(ListDatasets { under: Some(name.to_owned()), ..ListDatasets::default() });
    let is_there = there.is_ok_and(|list| list.datasets.iter().any(|view| view.report.name == name));
    if is_there && !new.force {
        let text = format!("cannot import to '{name}': dataset already exists");
        return Err(Failure::Refused(ErrorBody::new(text).hint("'--force' writes over what is in the volume")));
    }
    if !is_there {
        let block_size = new.block_size.map(numbers::parse).transpose();
        let block_size = block_size.map_err(|reason| refused(format!("bad volume block size: {reason}")))?;
        let volume = Some(NewVolume { size, block_size, sparse: new.sparse });
        let command = session.command_line.clone();
        session.ask(CreateDataset { name: name.to_owned(), volume, command, ..CreateDataset::default() })?;
    }
    let (_, path) = found(session, name)?;
    let room = std::fs::metadata(&path).map_err(failed("open", &path))?.len();
    if size > room {
        return Err(refused(format!("cannot import to '{name}': {size} bytes do not fit, there are {room}")));
    }
    match format {
        Format::Raw => write(session, name, Some(file), 0),
        Format::Qcow2 => image::into_volume(file, &path),
    }
}
