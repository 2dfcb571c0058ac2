//! `zfs mount` and `zfs unmount`.

use platter_api::messages::{ListMounts, MountEntry, MountRequest, UnmountRequest};
use serde_json::json;

use super::select::openable;
use crate::getopt::{Grammar, parse};
use crate::json::{self, Object};
use crate::out::out;
use crate::session::{Done, Session, complain_all, usage};

/// Runs `zfs mount`.
pub fn mount(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: ":ajRlvo:Of", long: &[("json", "j")] }, words).map_err(usage)?;
    // -l loads keys (an encrypted file system cannot be mounted and says so).
    let recursive = parsed.has("R");
    let as_json = parsed.has("j");
    if as_json && !parsed.operands.is_empty() {
        return Err(usage("too many arguments"));
    }
    let mut options = Vec::new();
    for list in parsed.all("o") {
        if list.is_empty() {
            return Err(usage("empty mount options (-o) specified"));
        }
        options.extend(list.split(',').map(str::to_owned));
    }
    let (overlay, incomplete) = (parsed.has("O"), parsed.has("f"));
    let call = MountRequest { options, recursive, overlay, incomplete, ..MountRequest::default() };
    match (parsed.has("a"), parsed.operands.as_slice()) {
        (true, [_, ..]) => Err(usage("too many arguments")),
        (true, []) => mount_many(session, &[call], parsed.has("v")),
        (false, []) if recursive => Err(usage("no dataset provided")),
        (false, names) if recursive => {
            for name in names {
                openable(name)?;
            }
            let calls: Vec<MountRequest> =
                names.iter().map(|name| MountRequest { dataset: Some(name.clone()), ..call.clone() }).collect();
            mount_many(session, &calls, parsed.has("v"))
        }
        (false, []) if call.options.is_empty() => {
            let mounts = session.ask(ListMounts {})?;
            if as_json {
                if !mounts.is_empty() {
                    let mut object = json::schema("zfs mount");
                    object.insert("datasets".into(), list_json(&mounts).into());
                    json::print(object);
                }
            } else {
                out!("{}", list_text(&mounts));
            }
            Ok(0)
        }
        (false, []) => Err(usage("missing filesystem argument (specify -a for all)")),
        (false, [name]) => {
            openable(name)?;
            let call = MountRequest { dataset: Some(name.clone()), ..call };
            let outcome = session.ask(call)?;
            Ok(complain_all(&outcome.problems))
        }
        _ => Err(usage("too many arguments")),
    }
}

/// Mounts what is mounted by itself, and says with `verbose` how much was looked at.
fn mount_many(session: &mut Session, calls: &[MountRequest], verbose: bool) -> Done {
    let (mut code, mut considered) = (0, 0);
    for call in calls {
        let outcome = session.ask(call.clone())?;
        code = code.max(complain_all(&outcome.problems));
        considered += outcome.considered;
    }
    if verbose && considered > 0 {
        out!("Reading ZFS config: done.\nMounting ZFS filesystems: ({considered}/{considered})\n");
    }
    Ok(code)
}

fn list_text(mounts: &[MountEntry]) -> String {
    mounts.iter().map(|mount| format!("{:<30}  {}\n", mount.dataset, mount.mountpoint.display())).collect()
}

fn list_json(mounts: &[MountEntry]) -> Object {
    mounts
        .iter()
        .map(|mount| {
            let entry = json!({ "filesystem": mount.dataset, "mountpoint": mount.mountpoint });
            (mount.dataset.clone(), entry)
        })
        .collect()
}

/// Runs `zfs unmount`.
pub fn unmount(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "afu", long: &[] }, words).map_err(usage)?;
    let target = match (parsed.has("a"), parsed.operands.as_slice()) {
        (true, []) => None,
        (true, _) => return Err(usage("too many arguments")),
        (false, []) => return Err(usage("missing filesystem argument")),
        (false, [target]) if target.starts_with('/') => {
            // Not resolved through the file system: a dead mount could not be.
            let plain = target.trim_end_matches('/');
            Some(if plain.is_empty() { "/".to_owned() } else { plain.to_owned() })
        }
        (false, [target]) => {
            openable(target)?;
            Some(target.clone())
        }
        _ => return Err(usage("too many arguments")),
    };
    let call = UnmountRequest { target, force: parsed.has("f") };
    let outcome = session.ask(call)?;
    Ok(complain_all(&outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_listed_as_openzfs_lists_them() {
        let mounts = [MountEntry { dataset: "tank/media".into(), mountpoint: "/tank/media".into() }];
        assert_eq!(list_text(&mounts), "tank/media                      /tank/media\n");
        assert_eq!(list_json(&mounts)["tank/media"]["mountpoint"], "/tank/media");
    }
}
