//! Where no file system may be mounted.
//!
//! True here: a mount at such a place would cut off the machine (`/`, `/proc`, `/sys`, `/dev`), this daemon (its own
//! folder, or one above it), or the pool itself (the folder that holds its own devices). Below `/dev/shm` everybody may
//! put what they like, so mounts may be there too.

use std::path::{Component, Path, PathBuf};

/// The kernel's own trees.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Why nothing may be mounted at `place`, an absolute path without links; `None` when it may. `home` is the daemon's
/// folder, `devices` are those of the pool.
pub fn forbidden(place: &Path, home: &Path, devices: &[PathBuf]) -> Option<String> {
    if place == Path::new("/") {
        return Some("it is the root of all files; import the pool with an alternate root ('-R')".to_owned());
    }
    if let Some(tree) = KERNEL.iter().find(|tree| place.starts_with(tree)) {
        let shared = place.strip_prefix("/dev/shm").is_ok_and(|rest| rest.components().next().is_some());
        return (!shared).then(|| format!("'{tree}' belongs to the kernel"));
    }
    if home.starts_with(place) {
        return Some(format!("the daemon keeps its files there ('{}')", home.display()));
    }
    let device = devices.iter().find(|device| device.starts_with(place))?;
    Some(format!("it would hide '{}', a device of the pool itself", device.display()))
}

/// The path without links, as far as it exists. May wait for whoever serves it.
pub fn without_links(path: &Path) -> PathBuf {
    let mut rest: Vec<Component<'_>> = Vec::new();
    let mut parts = path.components();
    loop {
        if let Ok(mut real) = parts.as_path().canonicalize() {
            rest.iter().rev().for_each(|part| match part {
                Component::ParentDir => _ = real.pop(),
                part => real.push(part),
            });
            return real;
        }
        match parts.next_back() {
            Some(part) => rest.push(part),
            None => return path.to_path_buf(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_cut_off_the_machine_the_daemon_or_the_pool_is_forbidden() {
        let home = Path::new("/var/lib/platter");
        let devices = [PathBuf::from("/srv/disks/d0")];
        let is_forbidden = |place: &str| forbidden(Path::new(place), home, &devices).is_some();
        let bad = [
            "/",
            "/proc",
            "/proc/1",
            "/sys/fs/cgroup",
            "/dev",
            "/dev/shm",
            "/dev/pts",
            "/var",
            "/var/lib/platter",
            "/srv",
            "/srv/disks",
        ];
        assert!(bad.into_iter().all(is_forbidden));
        let good = ["/tank", "/procession", "/dev/shm/x", "/var/lib/platter/x", "/srv/disk", "/srv/disks/x", "/mnt"];
        assert!(!good.into_iter().any(is_forbidden));
    }

    #[test]
    fn links_lead_where_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", dir.path().join("link")).unwrap();
        assert_eq!(without_links(&dir.path().join("link/absent/x")), Path::new("/proc/absent/x"));
        assert_eq!(without_links(Path::new("/nowhere/at/all")), Path::new("/nowhere/at/all"));
    }
}
