//! The two ends of a replication: `zfs` here, or on another machine through a shell.

use std::process::{Command, Stdio};

use platter_api::names::{check_dataset, check_pool, is_below};

use super::plan::Point;

/// Where data sets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Words before those of the command: of the shell, and `zfs` as it is called there.
    prefix: Vec<String>,
    /// Whether a shell over there takes the words apart once more.
    quoted: bool,
    /// The data set.
    pub dataset: String,
}

/// As a word of a POSIX shell.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-#".contains(c);
    // A # begins a comment only at the beginning of a word.
    if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('#') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl End {
    /// From `DATASET` or `[USER@]HOST:DATASET`. `shell` is what reaches other machines, `zfs` what runs there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, shell: &str, zfs: &str) -> Result<Self, String> {
        let (host, dataset) = match text.split_once(':') {
            // A data set's name may have a colon, but the host's name comes before all slashes.
            Some((host, dataset)) if !host.contains('/') => (Some(host), dataset),
            _ => (None, text),
        };
        if host.is_some_and(|host| host.is_empty() || host.starts_with('-')) {
            return Err(format!("'{text}': no host before the colon"));
        }
        let checked = if dataset.contains('/') { check_dataset(dataset) } else { check_pool(dataset) };
        if let Err(reason) = checked {
            return Err(format!("'{dataset}': {reason}"));
        }
        let prefix = match host {
            Some(host) => shell.split_whitespace().chain([host, zfs]).map(str::to_owned).collect(),
            None => {
                let own = std::env::current_exe().map_err(|error| format!("no path of our own: {error}"))?;
                vec![own.to_string_lossy().into_owned(), "zfs".to_owned()]
            }
        };
        Ok(Self { prefix, quoted: host.is_some(), dataset: dataset.to_owned() })
    }

    /// Whether a copy to `target` would be a copy onto itself or, when it is `recursive`, into what is copied. Nothing
    /// is known of a machine that has two names.
    pub fn overlaps(&self, target: &Self, recursive: bool) -> bool {
        let (from, to) = (&self.dataset, &target.dataset);
        self.prefix == target.prefix && (from == to || recursive && is_below(to, from))
    }

    /// The same place, another data set.
    pub fn at(&self, dataset: String) -> Self {
        Self { dataset, ..self.clone() }
    }

    /// `zfs WORDS` there; nothing is read of the terminal.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).stdin(Stdio::null());
        for word in words {
            if self.quoted {
                command.arg(quote(word));
            } else {
                command.arg(word);
            }
        }
        command
    }

    /// What `zfs WORDS` says.
    ///
    /// # Errors
    /// What it says when it fails.
    pub fn ask(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|error| format!("{}: {error}", self.prefix[0]))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(if said.is_empty() { format!("{} ended with {}", self.prefix[0], output.status) } else { said })
            }
        }
    }

    /// Its data sets and those below, parents first; none when it does not exist.
    ///
    /// # Errors
    /// The other machine cannot be reached, and what else is not that it does not exist.
    pub fn datasets(&self, recursive: bool) -> Result<Vec<String>, String> {
        let mut words = vec!["list", "-H", "-o", "name", "-t", "filesystem,volume"];
        if recursive {
            words.push("-r");
        }
        words.push(&self.dataset);
        match self.ask(&words) {
            Ok(listed) => Ok(listed.lines().map(str::to_owned).collect()),
            Err(said) if said.contains("dataset does not exist") => Ok(Vec::new()),
            Err(said) => Err(said),
        }
    }

    /// Its snapshots, and with `bookmarks` those too, the oldest first.
    ///
    /// # Errors
    /// As of [`Self::ask`]; an answer that is none.
    pub fn points(&self, bookmarks: bool) -> Result<Vec<Point>, String> {
        let kinds = if bookmarks { "snapshot,bookmark" } else { "snapshot" };
        let columns = "name,guid,userrefs,defer_destroy,createtxg";
        let words = ["list", "-Hp", "-d", "1", "-t", kinds, "-o", columns, "-s", "createtxg", &self.dataset];
        let listed = self.ask(&words)?;
        let mut points = Vec::new();
        for line in listed.lines() {
            let strange = || format!("'{line}' is no answer of 'zfs list'");
            let mut cells = line.split('\t');
            let (name, guid) = (cells.next().ok_or_else(strange)?, cells.next().ok_or_else(strange)?);
            let own = name.strip_prefix(self.dataset.as_str()).ok_or_else(strange)?;
            let is_held = cells.next().is_some_and(|holds| holds.parse().is_ok_and(|holds: u64| holds > 0));
            let is_leaving = cells.next() == Some("on");
            points.push(Point {
                name: own.to_owned(),
                guid: guid.parse().map_err(|_| strange())?,
                is_held,
                is_leaving,
            });
        }
        Ok(points)
    }

    /// What a receive that was broken off has left, as a token.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub fn resume_token(&self) -> Result<Option<String>, String> {
        let token = self.ask(&["get", "-H", "-o", "value", "receive_resume_token", &self.dataset])?;
        Ok(Some(token.trim().to_owned()).filter(|token| !matches!(token.as_str(), "" | "-")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_here_or_there() {
        let end = |text: &str| End::parse(text, "ssh -p 22", "zfs");
        let remote = end("me@host:tank/a b").unwrap();
        assert_eq!(remote.prefix, ["ssh", "-p", "22", "me@host", "zfs"]);
        let command = remote.command(&["list", "it's", "a@b", "#x"]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words, ["-p", "22", "me@host", "zfs", "list", "'it'\\''s'", "a@b", "'#x'"]);
        let local = end("tank/a:b").unwrap();
        assert!(local.dataset == "tank/a:b" && local.prefix[1] == "zfs");
        assert!(local.overlaps(&local, false) && !local.overlaps(&end("a:tank/a:b").unwrap(), true));
        let below = end("tank/a:b/c").unwrap();
        assert!(local.overlaps(&below, true) && !local.overlaps(&below, false) && !below.overlaps(&local, true));
        assert!(!local.overlaps(&end("tank/a:bc").unwrap(), true));
        for wrong in [":tank", "-oProxyCommand=x:tank", "host:", "tank//a", "host:/x"] {
            assert!(end(wrong).is_err(), "{wrong}");
        }
    }
}
