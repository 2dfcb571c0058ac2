//! `zpool add`.

use std::path::PathBuf;

use platter_api::messages::PoolView;
use platter_api::report::{Detail, VdevReport};
use platter_api::request::{PoolChange, PoolOperation, VdevRequest};

use super::layout;
use super::pools::view;
use super::vdev_spec::{self, Level};
use crate::getopt::{Grammar, Parsed, parse};
use crate::out::{out, outln};
use crate::session::{Done, Failure, Session, refused, usage};

const GRAMMAR: Grammar = Grammar {
    short: "fgLno:P",
    long: &[
        ("allow-in-use", "allow-in-use"),
        ("allow-replication-mismatch", "allow-replication-mismatch"),
        ("allow-ashift-mismatch", "allow-ashift-mismatch"),
    ],
};

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let allowed = ["allow-in-use", "allow-replication-mismatch", "allow-ashift-mismatch"].map(|name| parsed.has(name));
    let force = parsed.has("f");
    if force && allowed.contains(&true) {
        return Err(usage(
            "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or \
             '--allow-in-use'",
        ));
    }
    let [in_use, mismatch, any_ashift] = allowed.map(|allowed| allowed || force);
    let ashift = ashift(&parsed)?;
    let [name, vdev_words @ ..] = parsed.operands.as_slice() else {
        return Err(usage("missing pool name argument"));
    };
    if vdev_words.is_empty() {
        return Err(usage("missing vdev specification"));
    }
    let vdevs = vdev_spec::parse(vdev_words, mismatch)?;
    let leaves: Vec<PathBuf> = vdevs.iter().flat_map(VdevRequest::leaves).cloned().collect();
    session.check_places(&leaves)?;
    let pool = view(session, name, Detail::default())?;
    let level = vdevs.iter().find_map(vdev_spec::level_of_request);
    if let (false, Some(new), Some(current)) = (mismatch, level, level_of_pool(&pool.report.vdevs)) {
        check(&current, &new)?;
    }
    let dry_run = parsed.has("n");
    let change = PoolChange::Add { vdevs, force: in_use, ashift, any_ashift, dry_run };
    let changed = session.operate(name, PoolOperation::Change(change))?;
    changed.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    if let Some(new) = changed.layout {
        outln!("would update '{name}' to the following configuration:\n");
        out!("{}", preview(&pool, new));
    }
    Ok(0)
}

/// `-o ashift=N`, the last one given; 0 without.
pub(super) fn ashift(parsed: &Parsed) -> Result<u64, Failure> {
    parsed.all("o").try_fold(0, |_, text| parse_ashift(text))
}

fn parse_ashift(text: &str) -> Result<u64, Failure> {
    let Some(("ashift", value)) = text.split_once('=') else {
        return Err(usage(if text.contains('=') { "" } else { "missing '=' for -o option" }));
    };
    match value.parse() {
        Ok(ashift) if ashift == 0 || (9..=16).contains(&ashift) => Ok(ashift),
        Ok(ashift) => {
            Err(refused(format!("invalid 'ashift={ashift}' property: only values between 9 and 16 are allowed.")))
        }
        Err(_) => Err(refused("ashift must be a number.")),
    }
}

/// The pool's tree with the new vdevs in it.
fn preview(pool: &PoolView, new: VdevReport) -> String {
    let mut root = pool.report.vdevs.clone();
    let mut new = new.children;
    // Those that the pool has come first.
    for (class, known) in [("cache", &pool.report.caches), ("spares", &pool.report.spares)] {
        let (added, others): (Vec<_>, Vec<_>) = new.into_iter().partition(|vdev| vdev.kind == class);
        new = others;
        let children: Vec<_> =
            known.iter().cloned().chain(added.into_iter().flat_map(|added| added.children)).collect();
        if !children.is_empty() {
            new.push(VdevReport { name: class.into(), kind: class.into(), children, ..VdevReport::default() });
        }
    }
    root.children.extend(new);
    layout::tree(&root)
}

/// How the pool's last vdev protects; `None` when they differ already (`get_replication`, `cmd/zpool/zpool_vdev.c`).
fn level_of_pool(root: &VdevReport) -> Option<Level> {
    let level = |vdev: &VdevReport| match vdev.kind.as_str() {
        "mirror" => Some(Level { kind: "mirror", parity: 0, width: vdev.children.len() }),
        "raidz" => {
            let parity = vdev.name.strip_prefix("raidz")?.chars().next()?.to_digit(10)?;
            Some(Level { kind: "raidz", parity: parity as u8, width: vdev.children.len() })
        }
        "disk" => Some(Level { kind: "disk", parity: 0, width: 1 }),
        "file" => Some(Level { kind: "file", parity: 0, width: 1 }),
        _ => None,
    };
    let levels: Vec<Level> = root.ordinary().map(level).collect::<Option<_>>()?;
    let agree = levels.windows(2).all(|pair| check(&pair[0], &pair[1]).is_ok());
    levels.into_iter().next_back().filter(|_| agree)
}

/// The new vdevs must protect as the old ones do (`check_replication`).
fn check(current: &Level, new: &Level) -> Result<(), Failure> {
    let text = match (current.kind, new.kind) {
        ("raidz", "mirror") | ("mirror", "raidz") => {
            let (raidz, mirror) = if current.kind == "raidz" { (current, new) } else { (new, current) };
            if usize::from(raidz.parity) + 1 == mirror.width {
                return Ok(());
            }
            format!(
                "mismatched replication level: pool and new vdev with different redundancy, raidz and mirror vdevs, \
                 {} vs. {} ({}-way)",
                raidz.parity,
                mirror.width - 1,
                mirror.width
            )
        }
        (old, new) if old != new => format!("mismatched replication level: pool uses {old} and new vdev is {new}"),
        _ if current.parity != new.parity => format!(
            "mismatched replication level: pool uses {} device parity and new vdev uses {}",
            current.parity, new.parity
        ),
        (kind, _) if current.width != new.width => format!(
            "mismatched replication level: pool uses {}-way {kind} and new vdev uses {}-way {kind}",
            current.width, new.width
        ),
        _ => return Ok(()),
    };
    Err(refused(format!("invalid vdev specification\nuse '-f' to override the following errors:\n{text}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    #[test]
    fn new_vdevs_must_protect_as_the_old_ones_do() {
        let current = level_of_pool(&example().report.vdevs).unwrap();
        assert_eq!(current, Level { kind: "raidz", parity: 1, width: 5 });
        let table = [
            (Level { kind: "raidz", parity: 1, width: 5 }, ""),
            (Level { kind: "mirror", parity: 0, width: 2 }, ""),
            (Level { kind: "mirror", parity: 0, width: 3 }, "raidz and mirror vdevs, 1 vs. 2 (3-way)"),
            (Level { kind: "file", parity: 0, width: 1 }, "pool uses raidz and new vdev is file"),
            (Level { kind: "raidz", parity: 2, width: 5 }, "pool uses 1 device parity and new vdev uses 2"),
            (Level { kind: "raidz", parity: 1, width: 4 }, "pool uses 5-way raidz and new vdev uses 4-way raidz"),
        ];
        for (new, expected) in table {
            match check(&current, &new) {
                Ok(()) => assert_eq!(expected, ""),
                Err(Failure::Refused(body)) => {
                    assert!(!expected.is_empty() && body.message.ends_with(expected), "{}", body.message);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_pool_of_unequal_vdevs_sets_no_rule() {
        let mut root = example().report.vdevs;
        root.children.push(VdevReport { kind: "file".into(), ..VdevReport::default() });
        assert_eq!(level_of_pool(&root), None);
        // A mirror that can lose as many as the raidz does protects as that does, and sets the rule as the last one.
        let two = vec![VdevReport::default(); 2];
        *root.children.last_mut().unwrap() =
            VdevReport { kind: "mirror".into(), children: two, ..VdevReport::default() };
        let level = level_of_pool(&root).unwrap();
        assert_eq!(level, Level { kind: "mirror", parity: 0, width: 2 });
        assert!(check(&level, &Level { kind: "file", parity: 0, width: 1 }).is_err());
    }

    #[test]
    fn only_ashift_can_be_given() {
        assert_eq!(parse_ashift("ashift=12").unwrap(), 12);
        for text in ["ashift", "comment=x", "ashift=8", "ashift=x"] {
            assert!(parse_ashift(text).is_err(), "{text}");
        }
    }
}
