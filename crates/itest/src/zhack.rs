//! OpenZFS's `zhack`: the one judge that *writes*. It imports a pool read-write in user space with OpenZFS's own
//! engine, syncs transaction groups and exports it again.
//!
//! It insists on opening `/dev/zfs` to ask whether the kernel has the pool; an empty file there answers "no". It gets
//! that file in a mount namespace of its own, so the machine's `/dev` is not touched. While it has the pool it is
//! written into `/etc/zfs/zpool.cache`, where a `zdb` that looks at another pool of that name would find it: it gets an
//! `/etc/zfs` of its own as well.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::lab::WITHOUT_OTHERS;
use crate::{Run, judge};

const IN_NAMESPACE: &str = r#"set -e
dev=$1; shift
mount -t tmpfs none "$dev"
for node in null zero full random urandom; do cp -a "/dev/$node" "$dev/"; done
touch "$dev/zfs"
mount --bind "$dev" /dev
if [ -d /etc/zfs ]; then mount -t tmpfs none /etc/zfs; fi
exec "$@""#;

/// `zhack -d DIR ARGS...`, or `None` and a reported skip (not root, or not installed).
pub fn zhack(dir: &Path, args: &[&str]) -> Option<Run> {
    let program = judge::need("zhack")?;
    if !rustix::process::geteuid().is_root() {
        judge::skip("zhack", "it needs a mount namespace, so root");
        return None;
    }
    let dev = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("unshare");
    // Nobody's mounts are kept by it.
    command.args(["-m", "sh", "-c", WITHOUT_OTHERS, "sh"]).arg(dev.path());
    command.args(["sh", "-c", IN_NAMESPACE, "sh"]).arg(dev.path());
    command.arg(program).arg("-d").arg(dir).args(args).env("LC_ALL", "C");
    Some(Run::of(&mut command, Duration::from_secs(300)))
}

/// Lets OpenZFS enable an (inactive) feature in the exported pool, which makes it import, write, sync and export.
#[track_caller]
pub fn enable_feature(dir: &Path, pool: &str, feature: &str) -> Option<Run> {
    zhack(dir, &["feature", "enable", "-d", "for a test", pool, feature]).map(Run::ok)
}

/// Lets OpenZFS make an enabled feature active, in the label's list too when `for_mos`: whoever does not know it may
/// not open the pool.
#[track_caller]
pub fn activate_feature(dir: &Path, pool: &str, feature: &str, for_mos: bool) -> Option<Run> {
    let mut args = vec!["feature", "ref"];
    if for_mos {
        args.push("-m");
    }
    args.extend([pool, feature]);
    zhack(dir, &args).map(Run::ok)
}
