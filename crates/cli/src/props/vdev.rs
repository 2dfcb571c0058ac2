//! Properties of vdevs, in the order of `zpool get all POOL VDEV` (`vdev_prop_init`, `module/zcommon/zpool_prop.c`;
//! `zpool_get_vdev_prop_value`, `lib/libzfs/libzfs_pool.c`).

use platter_api::report::PropertySource;
use platter_api::report::VdevReport;

use super::select::Wanted;
use super::{Info, Kind, Shown};
use crate::nice;

const fn info(name: &'static str, column: &'static str, kind: Kind) -> Info {
    Info { name, column, kind, visible: true }
}

/// All native properties of OpenZFS 2.3, and behind them those of 2.4 that only RAID-Z groups and their devices have.
pub const TABLE: &[Info] = &[
    Info { name: "name", column: "NAME", kind: Kind::Text, visible: false },
    info("capacity", "CAP", Kind::Percent),
    info("state", "STATE", Kind::Text),
    info("guid", "GUID", Kind::Identifier),
    info("asize", "ASIZE", Kind::Number),
    info("psize", "PSIZE", Kind::Number),
    info("ashift", "ASHIFT", Kind::Identifier),
    info("size", "SIZE", Kind::Number),
    info("free", "FREE", Kind::Number),
    info("allocated", "ALLOC", Kind::Number),
    info("comment", "COMMENT", Kind::Text),
    info("expandsize", "EXPANDSZ", Kind::BytesOrDash),
    info("fragmentation", "FRAG", Kind::Percent),
    info("bootsize", "BOOTSIZE", Kind::Number),
    info("parity", "PARITY", Kind::Identifier),
    info("path", "PATH", Kind::Text),
    info("devid", "DEVID", Kind::Text),
    info("physpath", "PHYSPATH", Kind::Text),
    info("encpath", "ENCPATH", Kind::Text),
    info("fru", "FRU", Kind::Text),
    info("parent", "PARENT", Kind::Text),
    info("children", "CHILDREN", Kind::Text),
    info("numchildren", "NUMCHILD", Kind::Identifier),
    info("read_errors", "RDERR", Kind::Number),
    info("write_errors", "WRERR", Kind::Number),
    info("checksum_errors", "CKERR", Kind::Number),
    info("initialize_errors", "INITERR", Kind::Number),
    info("null_ops", "NULLOP", Kind::Number),
    info("read_ops", "READOP", Kind::Number),
    info("write_ops", "WRITEOP", Kind::Number),
    info("free_ops", "FREEOP", Kind::Number),
    info("claim_ops", "CLAIMOP", Kind::Number),
    info("trim_ops", "TRIMOP", Kind::Number),
    info("null_bytes", "NULLBYTE", Kind::Number),
    info("read_bytes", "READBYTE", Kind::Number),
    info("write_bytes", "WRITEBYTE", Kind::Number),
    info("free_bytes", "FREEBYTE", Kind::Number),
    info("claim_bytes", "CLAIMBYTE", Kind::Number),
    info("trim_bytes", "TRIMBYTE", Kind::Number),
    info("removing", "REMOVING", Kind::Word(3)),
    info("allocating", "ALLOCATING", Kind::Word(3)),
    info("failfast", "FAILFAST", Kind::Word(7)),
    info("checksum_n", "CKSUM_N", Kind::Text),
    info("checksum_t", "CKSUM_T", Kind::Text),
    info("io_n", "IO_N", Kind::Text),
    info("io_t", "IO_T", Kind::Text),
    info("raidz_expanding", "RAIDZ_EXPANDING", Kind::Word(3)),
    info("slow_io_n", "SLOW_IO_N", Kind::Text),
    info("slow_io_t", "SLOW_IO_T", Kind::Text),
    info("trim_support", "TRIMSUP", Kind::Word(3)),
    info("trim_errors", "TRIMERR", Kind::Number),
    info("slow_ios", "SLOW", Kind::Number),
    info("sit_out", "SIT_OUT", Kind::Word(3)),
    info("autosit", "AUTOSIT", Kind::Word(3)),
];

/// Finds a property by its name or its column's.
pub fn find(name: &str) -> Option<&'static Info> {
    TABLE.iter().find(|info| info.name == name || info.column.eq_ignore_ascii_case(name))
}

/// All that `all` shows of a vdev.
pub fn all(vdev: &VdevReport) -> Vec<Wanted> {
    let natives = TABLE.iter().filter(|info| info.visible).map(Wanted::Native);
    let own = vdev.properties.texts.keys().filter(|name| name.contains(':'));
    natives.chain(own.cloned().map(Wanted::Other)).collect()
}

/// A vdev with its place in the tree, each under the name it is shown by.
pub struct VdevPlace<'a> {
    /// The vdev.
    pub vdev: &'a VdevReport,
    /// Its parent's name; the root has none.
    pub parent: Option<String>,
    /// Its children's names.
    pub children: Vec<String>,
}

/// `VDEV_STATE_*` of a word in the STATE column.
fn state_number(word: &str) -> u64 {
    match word {
        "OFFLINE" => 2,
        "REMOVED" => 3,
        "UNAVAIL" => 4,
        "FAULTED" => 5,
        "DEGRADED" => 6,
        _ => 7,
    }
}

/// The value of a property; `None` when this vdev has no such property.
pub fn value(place: &VdevPlace<'_>, wanted: &Wanted, literal: bool) -> Option<Shown> {
    let vdev = place.vdev;
    let fact = |value: String| Some(Shown { value, source: PropertySource::None });
    let default = |value: &str| Some(Shown { value: value.to_owned(), source: PropertySource::Default });
    let local = |value: String| Some(Shown { value, source: PropertySource::Local });
    let limit = |name| vdev.properties.limit(name).map_or_else(|| default("-"), |number| local(number.to_string()));
    let text = |name: &str| vdev.properties.texts.get(name).cloned().map_or_else(|| default("-"), local);
    let word = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    let number = |number: u64| fact(if literal { number.to_string() } else { nice::num(number) });
    let is_leaf = vdev.children.is_empty();
    let info = match wanted {
        Wanted::Native(info) => info,
        Wanted::Other(name) => return text(name),
    };
    let size = if vdev.deflated_size > 0 { vdev.deflated_size } else { vdev.size };
    let sign = if literal { "" } else { "%" };
    match info.name {
        "capacity" => fact(format!("{}{sign}", (vdev.allocated * 100).checked_div(size).unwrap_or(0))),
        "state" if literal => fact(state_number(&vdev.state).to_string()),
        "state" => fact(vdev.state.clone()),
        "guid" => fact(vdev.guid.to_string()),
        // OpenZFS's asize and psize of a leaf are those of its device, of others what their metaslabs lie in.
        "asize" | "psize" if is_leaf && vdev.physical_size > 0 => number(vdev.physical_size),
        "asize" | "psize" => number(vdev.size),
        "ashift" => fact(vdev.ashift.to_string()),
        "size" => number(size),
        "free" => number(size.saturating_sub(vdev.allocated)),
        "allocated" => number(vdev.allocated),
        "comment" => text("comment"),
        "expandsize" if vdev.expand_size == 0 => fact("-".to_owned()),
        "expandsize" => number(vdev.expand_size),
        "fragmentation" => fact(vdev.fragmentation.map_or("-".to_owned(), |percent| format!("{percent}%"))),
        "parity" => {
            let digits = vdev.name.strip_prefix("raidz").and_then(|rest| rest.get(..1));
            fact(digits.unwrap_or("0").to_owned())
        }
        "path" => vdev.path.clone().map_or(default("-"), fact),
        "devid" | "physpath" | "encpath" | "fru" => default("-"),
        "parent" => place.parent.clone().map_or(default("-"), fact),
        "children" if is_leaf => default("-"),
        "children" => fact(place.children.join(",")),
        "numchildren" => fact(vdev.children.len().to_string()),
        "read_errors" => number(vdev.counts.read_errors),
        "write_errors" => number(vdev.counts.write_errors),
        "checksum_errors" => number(vdev.counts.checksum_errors),
        "read_ops" => number(vdev.counts.read_ops),
        "write_ops" => number(vdev.counts.write_ops),
        "read_bytes" => number(vdev.counts.read_bytes),
        "write_bytes" => number(vdev.counts.write_bytes),
        "slow_ios" => number(vdev.counts.slow_ios),
        "removing" => fact("off".to_owned()),
        "allocating" if vdev.size == 0 => fact("-".to_owned()),
        "allocating" | "failfast" if vdev.properties.is_on(info.name) => default("on"),
        "allocating" | "failfast" => local("off".to_owned()),
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" => limit(info.name),
        "autosit" if vdev.kind != "raidz" => None,
        "autosit" if vdev.properties.was_turned_on("autosit") => local("on".to_owned()),
        "autosit" => default("off"),
        "sit_out" => vdev.sits_out.and_then(|sits| fact(word(sits))),
        "raidz_expanding" => (vdev.kind == "raidz").then(|| fact("off".to_owned())).flatten(),
        "trim_support" if !is_leaf => fact("-".to_owned()),
        "trim_support" => fact(word(vdev.trim_support)),
        "trim_ops" => number(vdev.counts.trim_ops),
        "trim_bytes" => number(vdev.counts.trim_bytes),
        "trim_errors" => number(vdev.counts.trim_errors),
        "initialize_errors" => number(vdev.counts.initialize_errors),
        // Nothing of the kind is done yet: claims and frees of single blocks, boot areas.
        _ => number(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    #[test]
    fn each_property_has_a_value_where_openzfs_has_one() {
        let view = example();
        let raidz = &view.report.vdevs.children[0];
        let place = VdevPlace { vdev: raidz, parent: Some("root-0".into()), children: vec!["/disk/d0".into()] };
        let shown = |name: &str| value(&place, &Wanted::Native(find(name).unwrap()), false).unwrap().value;
        assert_eq!((&*shown("state"), &*shown("parity"), &*shown("numchildren")), ("ONLINE", "1", "5"));
        assert_eq!((&*shown("raidz_expanding"), &*shown("trim_support")), ("off", "-"));
        let leaf = VdevPlace { vdev: &raidz.children[0], parent: Some("raidz1-0".into()), children: Vec::new() };
        let none = all(leaf.vdev).into_iter().filter(|wanted| value(&leaf, wanted, true).is_none()).count();
        assert_eq!(
            none, 3,
            "only a raidz is being expanded, or looks for slow devices; this one says nothing of itself"
        );
        assert_eq!(TABLE.len(), 54);
    }

    #[test]
    fn what_was_set_is_shown_as_local() {
        let view = example();
        let mut raidz = view.report.vdevs.children[0].clone();
        raidz.properties.numbers = [("allocating", 0), ("autosit", 1), ("io_n", 7), ("io_t", u64::MAX)]
            .map(|(name, number)| (name.to_owned(), number))
            .into();
        raidz.properties.texts =
            [("comment", "left"), ("org:x", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        raidz.children[0].sits_out = Some(true);
        let get = |vdev: &VdevReport, wanted: &Wanted| {
            let place = VdevPlace { vdev, parent: None, children: Vec::new() };
            let shown = value(&place, wanted, false).expect("a value");
            (shown.value, shown.source)
        };
        let native = |name: &str| Wanted::Native(find(name).expect("a property"));
        let local = |text: &str| (text.to_owned(), PropertySource::Local);
        let default = |text: &str| (text.to_owned(), PropertySource::Default);
        for (name, expected) in [
            ("allocating", local("off")),
            ("failfast", default("on")),
            ("autosit", local("on")),
            ("io_n", local("7")),
            ("io_t", default("-")),
            ("comment", local("left")),
        ] {
            assert_eq!(get(&raidz, &native(name)), expected, "{name}");
        }
        assert_eq!(get(&raidz, &Wanted::Other("org:x".into())), local("1"));
        assert_eq!(get(&raidz, &Wanted::Other("org:y".into())), default("-"));
        assert_eq!(get(&raidz.children[0], &native("sit_out")), ("on".to_owned(), PropertySource::None));
    }
}
