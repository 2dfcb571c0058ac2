//! `zpool create`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platter_api::messages::CreatePool;
use platter_api::request::{CreateRequest, VdevRequest};

use super::{compatibility, layout, vdev_spec};
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::out::{out, outln};
use crate::props::pool::FEATURES;
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

const GRAMMAR: Grammar = Grammar { short: ":fndR:m:o:O:t:", long: &[] };

/// Splits `name=value`; giving a name twice is refused as in OpenZFS.
pub(super) fn add_property(list: &mut BTreeMap<String, String>, option: char, text: &str) -> Result<(), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(refused(format!("missing '=' for -{option} option")));
    };
    if list.insert(name.to_owned(), value.to_owned()).is_some() {
        return Err(refused(format!("property '{name}' specified multiple times")));
    }
    Ok(())
}

/// A pool that is opened below another root is not for the next start, when nothing else is said (`-R`).
pub(super) fn uncache_by_default(properties: &mut BTreeMap<String, String>) {
    properties.entry("cachefile".to_owned()).or_insert_with(|| "none".to_owned());
}

/// Where the pool's root would be mounted, when that is a path.
fn mountpoint(pool: &str, given: Option<&str>, altroot: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    match given {
        Some("none" | "legacy") => Ok(None),
        Some(path) if !path.starts_with('/') => {
            Err(refused(format!("invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'")))
        }
        None if altroot.is_none() => {
            let own = platter_daemon::fuse_mounter::own_folder();
            Ok(Some(own.map_or_else(|| Path::new("/").join(pool), |own| own.place(pool))))
        }
        _ => {
            let inside = given.map_or_else(|| pool.to_owned(), |path| path.trim_start_matches('/').to_owned());
            Ok(Some(Path::new(altroot.unwrap_or("/")).join(inside)))
        }
    }
}

/// `-d` and `-o compatibility=` leave features out, but for those that are asked for by name.
fn choose_features(properties: &mut BTreeMap<String, String>, none: bool) -> Result<(), Failure> {
    let allowed = match properties.get("compatibility") {
        Some(files) => compatibility::load(files)?,
        None => None,
    };
    let left_out = |name: &str| none || allowed.as_ref().is_some_and(|allowed| !allowed.contains(name));
    for name in FEATURES.iter().filter(|name| left_out(name)) {
        let property = format!("feature@{name}");
        match properties.get(&property).map(String::as_str) {
            Some("enabled") if !none => {
                return Err(refused(format!(
                    "'{property}' is not allowed by the compatibility files '{}'",
                    properties["compatibility"]
                )));
            }
            Some(_) => {}
            None => {
                properties.insert(property, "disabled".to_owned());
            }
        }
    }
    Ok(())
}

fn check_mountpoint(path: &Path) -> Result<(), Failure> {
    let complaint = |reason: String| refused(format!("{reason}\nuse '-m' option to provide a different default"));
    match std::fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(complaint(format!("mountpoint '{}' exists and is not empty", path.display()))),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(complaint(format!("mountpoint '{}' : {error}", path.display()))),
    }
}

/// Refuses sectors that no pool may have.
fn check_ashift(pool_properties: &BTreeMap<String, String>) -> Result<(), Failure> {
    if let Some(text) = pool_properties.get("ashift") {
        let ashift: u64 = text.parse().map_err(|_| refused("ashift must be a number."))?;
        if ashift != 0 && !(9..=16).contains(&ashift) {
            return Err(refused(format!(
                "invalid 'ashift={ashift}' property: only values between 9 and 16 are allowed."
            )));
        }
    }
    Ok(())
}

/// The request that a command line makes, with everything checked that needs no daemon.
pub(super) fn request(words: &[String], command_line: &str) -> Result<CreatePool, Failure> {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let force = parsed.has("f");
    let mut pool_properties = BTreeMap::new();
    let mut dataset_properties = BTreeMap::new();
    let mut altroot: Option<String> = None;
    let mut mount: Option<String> = None;
    let mut temporary_name: Option<String> = None;
    for given in &parsed.options {
        let text = &given.argument;
        match given.name.as_str() {
            "o" => match text.strip_prefix("altroot=") {
                Some(path) => altroot = Some(path.to_owned()),
                None => add_property(&mut pool_properties, 'o', text)?,
            },
            "O" => match text.strip_prefix("mountpoint=") {
                Some(path) => mount = Some(path.to_owned()),
                None => add_property(&mut dataset_properties, 'O', text)?,
            },
            "R" => altroot = Some(text.clone()),
            "m" => mount = Some(text.clone()),
            "t" => temporary_name = Some(text.clone()),
            _ => {}
        }
    }
    if parsed.has("R") {
        uncache_by_default(&mut pool_properties);
    }
    choose_features(&mut pool_properties, parsed.has("d"))?;
    let [name, vdev_words @ ..] = parsed.operands.as_slice() else {
        return Err(usage("missing pool name argument"));
    };
    if vdev_words.is_empty() {
        return Err(usage("missing vdev specification"));
    }
    if name.contains('/') {
        return Err(refused(format!(
            "cannot create '{name}': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
        )));
    }
    check_ashift(&pool_properties)?;
    let vdevs = vdev_spec::parse(vdev_words, force)?;
    if let Some(root) = altroot.as_deref().filter(|root| !root.starts_with('/')) {
        return Err(refused(format!("invalid alternate root '{root}': must be an absolute path")));
    }
    let shown = temporary_name.as_deref().unwrap_or(name);
    if let Some(path) = mountpoint(shown, mount.as_deref(), altroot.as_deref())? {
        check_mountpoint(&path)?;
    }
    if let Some(mount) = mount {
        dataset_properties.insert("mountpoint".to_owned(), mount);
    }
    let quotas = ids::take_quotas(&mut dataset_properties)
        .map_err(|reason| refused(format!("cannot create '{name}': {reason}")))?;
    Ok(CreatePool {
        quotas,
        request: CreateRequest {
            name: name.clone(),
            vdevs,
            force,
            pool_properties,
            dataset_properties,
            altroot: altroot.map(PathBuf::from),
            temporary_name,
            history: command_line.to_owned(),
        },
        dry_run: parsed.has("n"),
    })
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let call = request(words, &session.command_line)?;
    let leaves: Vec<PathBuf> = call.request.vdevs.iter().flat_map(VdevRequest::leaves).cloned().collect();
    session.check_places(&leaves)?;
    let name = call.request.name.clone();
    let created = session.ask(call)?;
    created.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    if let Some(layout) = &created.layout {
        outln!("would create '{}' with the following layout:\n", name);
        out!("{}", layout::tree(layout));
    }
    Ok(complain_all(&created.outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<CreatePool, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words, "zpool create")
    }

    fn files(count: usize) -> (tempfile::TempDir, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let names = (0..count)
            .map(|index| {
                let path = dir.path().join(format!("d{index}"));
                std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
                path.display().to_string()
            })
            .collect();
        (dir, names)
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let (_dir, names) = files(3);
        let call = made(&format!(
            "-f -n -o ashift=12 -O compression=lz4 -O mountpoint=/nowhere/t -R /nowhere/r tank raidz {}",
            names.join(" ")
        ))
        .unwrap();
        assert!(call.dry_run && call.request.force);
        assert_eq!(call.request.name, "tank");
        assert_eq!(call.request.pool_properties["ashift"], "12");
        assert_eq!(call.request.dataset_properties["mountpoint"], "/nowhere/t");
        assert_eq!(call.request.altroot.as_deref(), Some(Path::new("/nowhere/r")));
        assert_eq!(call.request.pool_properties["cachefile"], "none");
        let children = names.iter().map(PathBuf::from).collect();
        assert_eq!(call.request.vdevs, [VdevRequest::Raidz { parity: 1, children }]);
    }

    #[test]
    fn features_are_left_out_but_for_those_named() {
        let (_dir, names) = files(1);
        let call = made(&format!("-d -o feature@large_blocks=enabled -t other -m none tank {}", names[0])).unwrap();
        assert_eq!(call.request.pool_properties["feature@lz4_compress"], "disabled");
        assert_eq!(call.request.pool_properties["feature@large_blocks"], "enabled");
        assert_eq!(call.request.temporary_name.as_deref(), Some("other"));
        assert!(made(&format!("-o compatibility=no-such-file -m none tank {}", names[0])).is_err());
    }

    #[test]
    fn nonsense_is_refused_before_any_daemon_is_asked() {
        let (dir, names) = files(2);
        let a = &names[0];
        let table = [
            (String::new(), "missing pool name argument"),
            ("tank".to_owned(), "missing vdev specification"),
            (format!("tank/x {a}"), "invalid character '/' in pool name"),
            (format!("-o ashift tank {a}"), "missing '=' for -o option"),
            (format!("-o ashift=8 tank {a}"), "only values between 9 and 16 are allowed."),
            (format!("-o ashift=x tank {a}"), "ashift must be a number."),
            (format!("-o comment=a -o comment=b tank {a}"), "specified multiple times"),
            (format!("-m rel tank {a}"), "must be an absolute path, 'legacy', or 'none'"),
            (format!("-R rel tank {a}"), "invalid alternate root 'rel'"),
            (format!("-m {} tank {a}", dir.path().display()), "exists and is not empty"),
            (format!("-Z tank {a}"), "invalid option 'Z'"),
        ];
        for (line, expected) in table {
            let message = match made(&line).unwrap_err() {
                Failure::Usage(message) => message,
                Failure::Refused(body) => body.message,
            };
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
