//! The files of the work tree that people write.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no source: build products, fuzz corpora, git itself.
const IGNORED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "node_modules"];

/// Extensions and names of the text files that people write.
const EXTENSIONS: [&str; 10] = ["rs", "toml", "md", "sh", "ksh", "py", "yml", "html", "js", "css"];
const NAMES: [&str; 3] = ["Makefile", "run", ".gitignore"];

/// One text file.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path from the root of the tree, with `/` between its parts.
    pub path: String,
    /// The contents.
    pub text: String,
}

impl Source {
    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code: in a `tests` folder, or a module named `tests`.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches")
    }

    /// The crate's folder under `crates/`, if the file is in one.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// Every text file of the work tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The paths of all files, also of those that are no text that people write.
    pub files: Vec<String>,
    /// The files, sorted by path.
    pub sources: Vec<Source>,
}

impl Tree {
    /// Reads the tree that this crate is part of. Panics if it cannot: there is nothing to test then.
    pub fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut paths = Vec::new();
        collect(&root, &mut paths);
        let name = |path: &Path| Some(path.strip_prefix(&root).ok()?.to_str()?.to_owned());
        let files = paths.iter().filter_map(|path| name(path)).collect();
        let sources = paths
            .iter()
            .filter(|path| is_written(path))
            .filter_map(|path| Some(Source { path: name(path)?, text: fs::read_to_string(path).ok()? }));
        let mut sources: Vec<Source> = sources.collect();
        // By the text of the paths, not by their parts.
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files, sources }
    }

    /// The file at this path.
    pub fn source(&self, path: &str) -> Option<&Source> {
        let at = self.sources.binary_search_by(|source| source.path.as_str().cmp(path)).ok()?;
        Some(&self.sources[at])
    }

    /// A tree of these files, for the tests of rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let sources = files.iter().map(|(path, text)| Source { path: (*path).into(), text: (*text).into() });
        let mut sources: Vec<Source> = sources.collect();
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let files = sources.iter().map(|source| source.path.clone()).collect();
        Self { files, sources }
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_rust())
    }

    /// The crates' manifests.
    pub fn manifests(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| {
            source.path.starts_with("crates/")
                && source.path.ends_with("/Cargo.toml")
                && source.path.split('/').count() == 3
        })
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("reading {}: {error}", folder.display()));
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !IGNORED.contains(&name) => collect(&entry.path(), paths),
            Ok(kind) if kind.is_file() && !IGNORED.contains(&name) => paths.push(entry.path()),
            _ => {}
        }
    }
}

/// Whether a file is text that people write, by its name.
fn is_written(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    EXTENSIONS.contains(&extension) || NAMES.contains(&name)
}
