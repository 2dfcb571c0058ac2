//! The list of properties that `zfs get`, `set`, `inherit` and `list` print after their usage (`usage_prop_cb`,
//! `cmd/zfs/zfs_main.c`): which can be set here, which are inherited, what they can be.

use std::fmt::Write;

use platter_api::properties::{Native, find, is_inherited};
use platter_api::property_kind::Kind as Values;

use crate::props::{Info, Kind, zfs};

const SPACE_OF_USERS: [&str; 6] = ["user", "group", "project", "userobj", "groupobj", "projectobj"];

/// The list, after an empty line.
pub fn text() -> String {
    let mut text = "\nThe following properties are supported:\n".to_owned();
    let _ = writeln!(text, "\n\t{:<21} EDIT  INHERIT   VALUES\n", "PROPERTY");
    let mut infos: Vec<&Info> = zfs::TABLE.iter().filter(|info| info.visible).collect();
    infos.sort_by_key(|info| (editable(info.name), info.name));
    for info in infos {
        line(&mut text, info.name, editable(info.name), is_inherited(info.name), &values(info));
    }
    for of in SPACE_OF_USERS {
        line(&mut text, &format!("{of}used@..."), false, false, "<size>");
    }
    for of in SPACE_OF_USERS {
        line(&mut text, &format!("{of}quota@..."), true, false, "<size> | none");
    }
    line(&mut text, "written@<snap>", false, false, "<size>");
    line(&mut text, "written#<bookmark>", false, false, "<size>");
    text.push_str(
        "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n\
         \nUser-defined properties can be specified by using a name containing a colon (:).\n\
         \nThe {user|group|project}[obj]{used|quota}@ properties must be appended with\n\
         a user|group|project specifier of one of these forms:\n    \
         POSIX name      (eg: \"matt\")\n    POSIX id        (eg: \"126829\")\n",
    );
    text
}

/// Whether a property can be set, at least when a data set is made.
fn editable(name: &str) -> bool {
    find(name).is_some_and(|native| native.settable) || ["volsize", "volblocksize"].contains(&name)
}

fn line(text: &mut String, name: &str, editable: bool, inherited: bool, values: &str) {
    let (edit, inherit) = (if editable { "YES" } else { " NO" }, if inherited { "YES" } else { " NO" });
    let _ = writeln!(text, "\t{name:<22} {edit}      {inherit}   {values}");
}

fn values(info: &Info) -> String {
    match find(info.name) {
        Some(native) => taken(native),
        None => shown(info.kind).to_owned(),
    }
}

/// What it can be set to.
fn taken(native: &Native) -> String {
    match native.kind {
        Values::Index(names) => names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | "),
        Values::RecordSize => "512 to 16M, power of 2".to_owned(),
        Values::Bytes => "<size> | none".to_owned(),
        Values::Count => "<count> | none".to_owned(),
        Values::SmallBlocks => "0 to 1M, power of 2".to_owned(),
        Values::Mountpoint => "<path> | legacy | none".to_owned(),
        Values::Text => "<text>".to_owned(),
    }
}

/// What a property that only tells something looks like.
fn shown(kind: Kind) -> &'static str {
    match kind {
        Kind::Ratio => "<1.00x or higher if compressed>",
        Kind::Creation | Kind::SnapshotsChanged => "<date>",
        Kind::Identifier => "<uint64>",
        Kind::CountOrNone => "<count>",
        Kind::Word(3) => "yes | no",
        Kind::Word(_) | Kind::Text => "<text>",
        _ => "<size>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::properties::NATIVES;

    #[test]
    fn each_property_has_its_line() {
        let text = text();
        for native in NATIVES {
            let found = text.lines().filter(|line| line.split_whitespace().next() == Some(native.name)).count();
            assert_eq!(found, 1, "{}", native.name);
        }
        assert!(text.contains("\n\tavailable               NO       NO   <size>\n"), "{text}");
        assert!(text.contains("\n\tsync                   YES      YES   standard | always | disabled\n"), "{text}");
        // What cannot be set stands before what can.
        assert!(text.find("\twritten ").unwrap() < text.find("\tatime ").unwrap());
    }
}
