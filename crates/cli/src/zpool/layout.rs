//! Trees without counters: what `create -n` and `import` show.

use platter_api::report::VdevReport;

use super::names::Naming;

/// `print_vdev_tree`: names, two blanks deeper for each level, behind a tab. Cache devices and
/// spares are no part of the tree.
pub fn tree(vdev: &VdevReport) -> String {
    tree_named(vdev, Naming::default())
}

/// As [`tree`], with names as they are wanted.
pub fn tree_named(vdev: &VdevReport, naming: Naming) -> String {
    fn add_named(out: &mut String, vdev: &VdevReport, depth: usize, naming: Naming) {
        out.push_str(&format!("\t{:depth$}{}\n", "", naming.name(vdev)));
        for child in vdev.ordinary() {
            add_named(out, child, depth + 2, naming);
        }
    }
    let add = |out: &mut String, vdev: &VdevReport, depth: usize| add_named(out, vdev, depth, naming);
    let is_beside = |vdev: &VdevReport| matches!(&*vdev.kind, "cache" | "spares");
    let (beside, tops): (Vec<_>, Vec<_>) = vdev.children.iter().cloned().partition(is_beside);
    let mut out = String::new();
    add(&mut out, &VdevReport { children: tops, ..vdev.clone() }, 0);
    if vdev.logs().next().is_some() {
        out.push_str("\tlogs\n");
        vdev.logs().for_each(|log| add(&mut out, log, 2));
    }
    beside.iter().for_each(|class| add(&mut out, class, 0));
    out
}

/// `print_import_config`: names, states and notes.
pub fn import_config(vdev: &VdevReport) -> String {
    fn add(out: &mut String, vdev: &VdevReport, depth: usize, width: usize) {
        let name = Naming::default().name(vdev);
        out.push_str(&format!("\t{:depth$}{name:<w$}  {}", "", vdev.state, w = width.saturating_sub(depth)));
        if let Some(note) = &vdev.note {
            out.push_str(&format!("  {note}"));
        }
        out.push('\n');
        for child in vdev.ordinary() {
            add(out, child, depth + 2, width);
        }
    }
    let mut out = String::new();
    let width = Naming::default().width(vdev, 0).max(10);
    add(&mut out, vdev, 0, width);
    if vdev.logs().next().is_some() {
        out.push_str("\tlogs\t\n");
        vdev.logs().for_each(|log| add(&mut out, log, 2, width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(name: &str, kind: &str, state: &str, note: Option<&str>, children: Vec<VdevReport>) -> VdevReport {
        VdevReport {
            name: name.into(),
            kind: kind.into(),
            state: state.into(),
            note: note.map(Into::into),
            children,
            ..VdevReport::default()
        }
    }

    #[test]
    fn trees_are_laid_out_as_openzfs_lays_them_out() {
        let root = vdev(
            "tank",
            "root",
            "DEGRADED",
            None,
            vec![vdev(
                "raidz1-0",
                "raidz",
                "DEGRADED",
                None,
                vec![
                    vdev("/disk/d0", "file", "ONLINE", None, vec![]),
                    vdev("1234567890123", "missing", "UNAVAIL", Some("cannot open"), vec![]),
                ],
            )],
        );
        assert_eq!(tree(&root), "\ttank\n\t  raidz1-0\n\t    /disk/d0\n\t    1234567890123\n");
        let expected = "\
\ttank               DEGRADED
\t  raidz1-0         DEGRADED
\t    /disk/d0       ONLINE
\t    1234567890123  UNAVAIL  cannot open
";
        assert_eq!(import_config(&root), expected);
    }
}
