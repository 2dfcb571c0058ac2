//! `zpool import`: without a pool it lists what could be imported, with one (or `-a`) it imports.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use platter_api::messages::{ErrorBody, ImportPool, SearchPools};
use platter_api::report::{FoundPools, ImportableReport};
use platter_api::request::ImportRequest;

use super::create::{add_property, uncache_by_default};
use super::layout;
use crate::getopt::{Grammar, Parsed, parse};
use crate::out::out;
use crate::session::{Done, Failure, Session, complain, complain_all, refused, usage};
use crate::system_text::system_text;

const GRAMMAR: Grammar =
    Grammar { short: ":aCc:d:DEfFlmnNo:R:stT:VX", long: &[("rewind-to-checkpoint", "rewind-to-checkpoint")] };

/// Options that this version does not have, with what they would do.
const NOT_YET: [(&str, &str); 6] = [
    ("c", "cache files"),
    ("F", "rewinding a pool"),
    ("l", "loading encryption keys"),
    ("T", "rewinding a pool"),
    ("X", "rewinding a pool"),
    ("rewind-to-checkpoint", "checkpoints"),
];

/// An import as the command line asks for it, but for the pool's name.
#[derive(Debug)]
struct Template {
    request: ImportRequest,
    mount: bool,
}

fn template(parsed: &Parsed, command_line: &str) -> Result<Template, Failure> {
    for (option, what) in NOT_YET {
        if parsed.has(option) {
            let dashes = if option.len() == 1 { "-" } else { "--" };
            return Err(refused(format!("zpool import {dashes}{option}: {what}: not supported yet")));
        }
    }
    if parsed.has("n") {
        return Err(usage("-n or -X only meaningful with -F"));
    }
    let mut properties = BTreeMap::new();
    let mut altroot = parsed.last("R").map(PathBuf::from);
    for text in parsed.all("o") {
        match text.split_once('=') {
            Some(("altroot", path)) => altroot = Some(PathBuf::from(path)),
            Some(_) => add_property(&mut properties, 'o', text)?,
            None if text.split(',').any(|option| option == "ro") => {
                properties.insert("readonly".to_owned(), "on".to_owned());
            }
            None => return Err(refused(format!("zpool import -o {text}: mount options are not supported yet"))),
        }
    }
    if let Some(root) = altroot.as_deref().filter(|root| !root.is_absolute()) {
        return Err(refused(format!("invalid alternate root '{}': must be an absolute path", root.display())));
    }
    if parsed.has("R") {
        uncache_by_default(&mut properties);
    }
    let mut search = Vec::new();
    for place in parsed.all("d") {
        let path =
            std::path::absolute(place).map_err(|error| refused(format!("cannot resolve path '{place}': {error}")))?;
        // "-d ." is the folder itself.
        search.push(path.canonicalize().unwrap_or(path));
    }
    if search.is_empty()
        && let Some(places) = std::env::var_os("ZPOOL_IMPORT_PATH")
    {
        search.extend(std::env::split_paths(&places));
    }
    Ok(Template {
        request: ImportRequest {
            pool: String::new(),
            new_name: None,
            search,
            silent: Vec::new(),
            force: parsed.has("f"),
            destroyed: parsed.has("D"),
            missing_logs: parsed.has("m"),
            temporary_name: parsed.has("t"),
            properties,
            altroot,
            history: command_line.to_owned(),
            was_open: false,
            least_txg: 0,
        },
        mount: !parsed.has("N"),
    })
}

/// Tells of devices that are passed over, and notes them: they are not asked again.
fn pass_over(silent: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for path in more {
        if !silent.contains(&path) {
            eprintln!("passed over '{}': it does not answer", path.display());
            silent.push(path);
        }
    }
}

/// Why nothing can be found at `place` of `-d`, in OpenZFS's words; none when there may be something.
fn problem_with(place: &Path) -> Option<String> {
    let shown = place.display();
    let found = match std::fs::metadata(place) {
        Ok(found) => found,
        Err(error) => return Some(format!("cannot resolve path '{shown}': {}", system_text(&error))),
    };
    let kind = found.file_type();
    let tried = if kind.is_dir() {
        std::fs::read_dir(place).map(drop)
    } else if kind.is_file() || kind.is_block_device() {
        std::fs::File::open(place).map(drop)
    } else {
        return Some(format!("cannot use '{shown}': it is neither a folder nor a file nor a block device"));
    };
    tried.err().map(|error| format!("cannot open '{shown}': {}", system_text(&error)))
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let mut template = template(&parsed, &session.command_line)?;
    // The other places are looked at all the same, as in OpenZFS.
    for problem in template.request.search.iter().filter_map(|place| problem_with(place)) {
        eprintln!("{problem}");
    }
    session.check_places(&template.request.search)?;
    match (parsed.has("a"), parsed.operands.as_slice()) {
        (true, []) => import_all(session, &mut template),
        (true, _) | (false, [_, _, _, ..]) => Err(usage("too many arguments")),
        (false, []) => show_all(session, &mut template),
        (false, [pool]) => import_one(session, &template, pool, None),
        (false, [pool, new_name]) => import_one(session, &template, pool, Some(new_name.clone())),
    }
}

fn import_one(session: &mut Session, template: &Template, pool: &str, new_name: Option<String>) -> Done {
    let request = ImportRequest { pool: pool.to_owned(), new_name, ..template.request.clone() };
    let call = ImportPool { request, mount: template.mount };
    let imported = session.ask(call)?;
    pass_over(&mut template.request.silent.clone(), imported.silent);
    let code = complain_all(&imported.outcome.problems);
    let unmounted = complain_all(&imported.unmounted);
    if unmounted != 0 {
        eprintln!("Import was successful, but unable to mount some datasets");
    }
    Ok(code.max(unmounted))
}

fn search(session: &mut Session, template: &mut Template) -> Result<Vec<ImportableReport>, ErrorBody> {
    let request = &mut template.request;
    let call = SearchPools { search: request.search.clone(), silent: request.silent.clone() };
    let FoundPools { mut pools, silent } = session.ask(call)?;
    pass_over(&mut request.silent, silent);
    pools.retain(|pool| pool.destroyed == template.request.destroyed);
    Ok(pools)
}

fn import_all(session: &mut Session, template: &mut Template) -> Done {
    let mut code = 0;
    for pool in search(session, template)? {
        // By guid: names need not be unique.
        match import_one(session, template, &pool.guid.to_string(), None) {
            Ok(one) => code = code.max(one),
            Err(Failure::Refused(body)) => {
                let message = body.message.replace(&format!("'{}'", pool.guid), &format!("'{}'", pool.name));
                complain(&ErrorBody { message, ..body });
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(code)
}

fn show_all(session: &mut Session, template: &mut Template) -> Done {
    let found = search(session, template)?;
    if found.is_empty() {
        eprintln!("no pools available to import");
        return Ok(1);
    }
    let texts: Vec<String> = found.iter().map(text).collect();
    out!("{}", texts.join("\n"));
    Ok(0)
}

/// One pool, as OpenZFS's `show_import` shows it.
fn text(pool: &ImportableReport) -> String {
    let mut out = format!("  pool: {}\n    id: {}\n state: {}", pool.name, pool.guid, pool.state);
    out.push_str(if pool.destroyed { " (DESTROYED)\n" } else { "\n" });
    let lines =
        |text: &str| text.trim_end().lines().map(|line| line.trim_start_matches('\t')).collect::<Vec<_>>().join("\n\t");
    if let Some(status) = &pool.status {
        out.push_str(&format!("status: {}\n", lines(status)));
    }
    let action = pool.action.clone().unwrap_or_else(|| default_action(pool).to_owned());
    out.push_str(&format!("action: {}\n", lines(&action)));
    out.push_str("config:\n\n");
    out.push_str(&layout::import_config(&pool.vdevs));
    out
}

fn default_action(pool: &ImportableReport) -> &'static str {
    match (pool.state.as_str(), pool.last_host.is_some()) {
        ("ONLINE", false) => "The pool can be imported using its name or numeric identifier.",
        ("ONLINE", true) => "The pool can be imported using its name or numeric identifier and\nthe '-f' flag.",
        ("DEGRADED", _) => {
            "The pool can be imported despite missing or damaged devices.  The\n\
             fault tolerance of the pool may be compromised if imported."
        }
        _ => "The pool cannot be imported due to damaged devices or data.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    fn made(line: &str) -> Result<Template, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        template(&parse(GRAMMAR, &words).map_err(usage)?, "zpool import")
    }

    // `zpool import -d /nonexistent` only said that there is no pool.
    #[test]
    fn a_place_that_cannot_be_searched_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("d0");
        std::fs::write(&file, b"x").unwrap();
        let said = |path: &Path| problem_with(path).unwrap_or_default();
        assert_eq!(said(folder.path()), "");
        assert_eq!(said(&file), "");
        assert_eq!(said(Path::new("/nonexistent")), "cannot resolve path '/nonexistent': No such file or directory");
        assert!(said(&file.join("inside")).ends_with("inside': Not a directory"));
        assert!(said(Path::new("/dev/null")).contains("neither a folder"));
        if !rustix::process::geteuid().is_root() {
            std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
            assert!(said(folder.path()).ends_with("Permission denied"));
        }
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let template = made("-d / -d /dev -N -f -o readonly=on -R /mnt tank").unwrap();
        assert_eq!(template.request.search, [PathBuf::from("/"), PathBuf::from("/dev")]);
        assert!(template.request.force && !template.mount);
        assert_eq!(template.request.properties["readonly"], "on");
        assert_eq!(template.request.altroot, Some(PathBuf::from("/mnt")));
        assert_eq!(made("-o ro").unwrap().request.properties["readonly"], "on");
        assert!(made("-F tank").is_err());
        assert!(made("-R mnt tank").is_err());
    }

    #[test]
    fn a_pool_is_listed_as_openzfs_lists_it() {
        let report = ImportableReport {
            name: "refz1".into(),
            guid: 17_881_871_464_930_842_434,
            state: "ONLINE".into(),
            vdevs: example().report.vdevs,
            ..ImportableReport::default()
        };
        let expected = "  pool: refz1
    id: 17881871464930842434
 state: ONLINE
action: The pool can be imported using its name or numeric identifier.
config:

\trefz1         ONLINE
\t  raidz1-0    ONLINE
\t    /disk/d0  ONLINE
\t    /disk/d1  ONLINE
\t    /disk/d2  ONLINE
\t    /disk/d3  ONLINE
\t    /disk/d4  ONLINE
";
        assert_eq!(text(&report), expected);
        let degraded = ImportableReport {
            state: "DEGRADED".into(),
            status: Some("One or more devices are missing from the system.".into()),
            ..report
        };
        assert!(text(&degraded).contains(
            " state: DEGRADED
status: One or more devices are missing from the system.
action: The pool can be imported despite missing or damaged devices.  The
\tfault tolerance of the pool may be compromised if imported.
config:
"
        ));
    }
}
