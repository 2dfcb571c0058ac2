//! Names of damaged files, as `zpool status -v` lists them (OpenZFS: `zpool_obj_to_path`).

use platter_api::report::DamagedObject;

/// What is known about where an object lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Mount point of its data set, when mounted.
    pub mountpoint: Option<String>,
    /// Path below the data set's root ("/dir/file").
    pub path: Option<String>,
}

/// The line for one object.
pub fn describe(object: &DamagedObject, found: &Whereabouts) -> String {
    if object.dataset_id == 0 {
        return format!("<metadata>:<0x{:x}>", object.object);
    }
    if object.dataset.is_empty() {
        return format!("<0x{:x}>:<0x{:x}>", object.dataset_id, object.object);
    }
    match (&found.path, &found.mountpoint) {
        (Some(path), Some(mountpoint)) if mountpoint == "/" => path.clone(),
        (Some(path), Some(mountpoint)) => format!("{mountpoint}{path}"),
        (Some(path), None) => format!("{}:{path}", object.dataset),
        (None, _) => format!("{}:<0x{:x}>", object.dataset, object.object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_known_name_is_given() {
        let object = |dataset_id, dataset: &str| DamagedObject { dataset_id, dataset: dataset.into(), object: 0x1f };
        let found = |mountpoint: Option<&str>, path: Option<&str>| Whereabouts {
            mountpoint: mountpoint.map(Into::into),
            path: path.map(Into::into),
        };
        let table = [
            (object(0, ""), found(None, None), "<metadata>:<0x1f>"),
            (object(0x36, ""), found(None, None), "<0x36>:<0x1f>"),
            (object(54, "tank/a"), found(None, None), "tank/a:<0x1f>"),
            (object(54, "tank/a"), found(Some("/tank/a"), None), "tank/a:<0x1f>"),
            (object(54, "tank/a"), found(None, Some("/d/f")), "tank/a:/d/f"),
            (object(54, "tank/a"), found(Some("/mnt/a"), Some("/d/f")), "/mnt/a/d/f"),
            (object(54, "tank"), found(Some("/"), Some("/d/f")), "/d/f"),
        ];
        for (object, found, expected) in table {
            assert_eq!(describe(&object, &found), expected);
        }
    }
}
