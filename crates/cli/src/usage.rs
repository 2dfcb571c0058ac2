//! Usage texts and the frame that every `zpool` and `zfs` command runs in.

use crate::out::{out, outln};
use crate::session::{Done, Failure, Session, complain};

/// A line block of the usage.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    text: &'static str,
    /// What follows where the usage is that of this command alone.
    more: fn() -> String,
}

impl Entry {
    /// An empty line.
    pub const GAP: Self = Self { name: "", text: "\n", more: String::new };

    /// A command with its usage.
    pub const fn command(name: &'static str, text: &'static str) -> Self {
        Self { name, text, more: String::new }
    }

    /// With more to say after its usage.
    pub const fn with(self, more: fn() -> String) -> Self {
        Self { more, ..self }
    }
}

/// All about a program's usage.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// `zpool` or `zfs`.
    pub program: &'static str,
    /// Commands in the order they are printed.
    pub entries: &'static [Entry],
    /// What follows.
    pub footer: &'static str,
    /// OpenZFS's commands that this version does not have.
    pub later: &'static [&'static str],
}

impl Usage {
    /// The text: of one command, or of the whole program.
    pub fn text(&self, command: Option<&str>) -> String {
        if let Some(name) = command
            && let Some(entry) = self.entries.iter().find(|entry| entry.name == name)
        {
            return format!("usage:\n{}{}", entry.text, (entry.more)());
        }
        let mut text =
            format!("usage: {} command args ...\nwhere 'command' is one of the following:\n\n", self.program);
        for entry in self.entries {
            text.push_str(entry.text);
        }
        text.push_str(&format!("\nnot supported yet:\n{}", wrapped(self.later)));
        text.push_str(self.footer);
        text
    }

    /// Runs a program with the words after its name.
    pub fn run(&self, words: &[String], run: impl FnOnce(&mut Session, &str, &[String]) -> Done) -> u8 {
        let Some(name) = words.first() else {
            eprint!("missing command\n{}", self.text(None));
            return 2;
        };
        match name.as_str() {
            "-?" | "--help" | "-h" => {
                out!("{}", self.text(None));
                return 0;
            }
            "help" => {
                out!("{}", self.text(words.get(1).map(String::as_str)));
                return 0;
            }
            "-V" | "--version" => {
                outln!("{}", version_lines());
                return 0;
            }
            _ => {}
        }
        if words.get(1).is_some_and(|word| word == "--help" || word == "-?") && self.knows(name) {
            eprint!("{}", self.text(Some(name)));
            return 2;
        }
        let name = name.as_str();
        let known = self.knows(name);
        let command_line = format!("{} {}", self.program, words.join(" "));
        let result = Session::new(command_line)
            .map_err(Failure::from)
            .and_then(|mut session| run(&mut session, name, &words[1..]));
        match result {
            Ok(code) => code,
            Err(Failure::Refused(body)) => {
                complain(&body);
                body.exit_code()
            }
            Err(Failure::Usage(message)) => {
                if !message.is_empty() {
                    eprintln!("{message}");
                }
                eprint!("{}", self.text(known.then_some(name)));
                2
            }
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| !entry.name.is_empty() && entry.name == name)
    }
}

/// The release of OpenZFS whose commands these are: scripts decide by it what they can ask for.
const LIKE_OPENZFS: &str = "2.3.2";

/// The version, after the words that OpenZFS puts before it.
pub fn version(part: &str) -> String {
    format!("{part}-{LIKE_OPENZFS}-platter-{}", env!("CARGO_PKG_VERSION"))
}

/// What `zpool version` and `zfs version` print: of the commands, and of what serves them.
pub fn version_lines() -> String {
    format!("{}\n{}", version("zfs"), version("zfs-kmod"))
}

fn wrapped(words: &[&str]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in words {
        if column == 0 {
            text.push('\t');
            column = 8;
        } else if column + word.len() + 2 > 76 {
            text.push_str(",\n\t");
            column = 8;
        } else {
            text.push_str(", ");
            column += 2;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_command_has_its_usage() {
        for usage in [&crate::zpool::USAGE, &crate::zfs::USAGE] {
            let text = usage.text(None);
            for entry in usage.entries.iter().filter(|entry| !entry.name.is_empty()) {
                assert!(text.contains(&format!("\t{}", entry.name)), "{}", entry.name);
                assert!(usage.text(Some(entry.name)).starts_with("usage:\n\t"));
            }
            assert!(text.contains("not supported yet"));
            // Scripts count characters, as OpenZFS's test suite does.
            assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        }
    }
}
