#!/bin/bash
# Programs that people back up ZFS with, unmodified, with Platter as their zfs and zpool: their results compared with
# expected.tsv.
#
#   judges/backup/run.sh                       all of them
#   judges/backup/run.sh PROGRAM [TEST...]     one (sanoid, syncoid, zfs-auto-snapshot, go-zfs, zrepl, bzfs), or some of its tests
#
# sanoid, syncoid and zfs-auto-snapshot are Debian's, the cases are ours (scripts.sh). The others come with suites of
# their own: bzfs from PyPI, go-zfs and zrepl from Go's module proxy. Needs root, go, python3 with pip, sshd; what was
# downloaded stays in the work folder. All runs in a mount namespace with a daemon, an sshd and root's .ssh of its own.
# Ends with 1 when a result is not the expected one, after it came out so twice.
#
#   BACKUP_BINARY   the binary that is zpool and zfs (default: target/release/platter, else target/debug/platter)
#   BACKUP_WORK     folder for downloads, disks and logs (default: target/backup): results.tsv, PROGRAM.log
#   BACKUP_PORT     the port of the sshd (default: 2222)
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd)
TARGET=${CARGO_TARGET_DIR:-$HERE/../../target}
PROGRAMS="sanoid syncoid zfs-auto-snapshot go-zfs zrepl bzfs"
PACKAGES="sanoid zfs-auto-snapshot libconfig-inifiles-perl libcapture-tiny-perl mbuffer pv"
# The suite of zrepl 0.4.0 lacks a setting that it wants itself, and panics.
BZFS=1.25.0 GO_ZFS=v3.0.1 ZREPL=v0.3.1

say() { printf '%s backup: %s\n' "$(date +%T)" "$*"; }
die() { printf 'backup: %s\n' "$*" >&2; exit 2; }

download() {
    local program
    [ "$(id -u)" -eq 0 ] || die "needs root, for namespaces, mounts and sshd"
    for program in go python3 sshd ssh ssh-keygen perl apt-get; do
        command -v $program >/dev/null || [ -x /usr/sbin/$program ] || die "no $program"
    done
    python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip"
    mkdir -p "$WORK"/{debs,root,bin,home,disks}
    if [ ! -e "$WORK/root/usr/sbin/sanoid" ]; then
        # shellcheck disable=SC2086
        (cd "$WORK/debs" && apt-get download -q $PACKAGES >/dev/null 2>&1) || die "cannot download Debian's $PACKAGES"
        for program in "$WORK"/debs/*.deb; do dpkg-deb -x "$program" "$WORK/root"; done
    fi
    if [ ! -d "$WORK/bzfs" ]; then
        python3 -m pip download -q --no-deps -d "$WORK/debs" "bzfs==$BZFS"
        python3 -m zipfile -e "$WORK"/debs/bzfs-*.whl "$WORK/bzfs"
    fi
    # Go's own build cache makes these quick the second time.
    module github.com/mistifyio/go-zfs/v3 $GO_ZFS go-zfs && (cd "$WORK/go-zfs" && go test -c -o "$WORK/bin/go-zfs" .)
    module github.com/zrepl/zrepl $ZREPL zrepl && (cd "$WORK/zrepl" && go build -o "$WORK/bin/zrepl-platformtest" ./platformtest/harness)
}

# A copy of a module's source that can be built in.
module() {
    local folder
    if [ ! -d "$WORK/$3" ]; then
        folder=$(go mod download -json "$1@$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
        [ -d "$folder" ] || die "cannot download $1@$2"
        cp -r "$folder" "$WORK/$3"
        chmod -R u+w "$WORK/$3"
    fi
}

prepare() {
    local program
    cp "$BINARY" "$WORK/bin/platter.new"
    mv "$WORK/bin/platter.new" "$WORK/bin/platter"
    for program in zfs zpool mount.zfs; do ln -sf platter "$WORK/bin/$program"; done
    # The real one looks for programs elsewhere.
    printf '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n' > "$WORK/bin/sudo"
    chmod +x "$WORK/bin/sudo"
    [ -e "$WORK/key" ] || ssh-keygen -q -t rsa -N '' -f "$WORK/key"
    [ -e "$WORK/host" ] || ssh-keygen -q -t ed25519 -N '' -f "$WORK/host"
    rm -f "$WORK/results.tsv"
}

# results.tsv of all that was run against the list; what is otherwise is told.
compare() {
    awk -F'\t' '
        FNR == NR { if ($0 !~ /^#/ && NF) expected[$1 FS $2] = $3; next }
        {
            key = $1 FS $2
            wanted = (key in expected) ? expected[key] : "pass"
            if (wanted != $3 && wanted != "varies") { print $1 "\t" $2 "\t" $3 "\texpected " wanted; bad = 1 }
        }
        END { exit bad }
    ' "$HERE/expected.tsv" "$1"
}

WORK=${BACKUP_WORK:-$TARGET/backup}
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)
BINARY=${BACKUP_BINARY:-$TARGET/release/platter}
[ -x "$BINARY" ] || BINARY=$TARGET/debug/platter
[ -x "$BINARY" ] || die "no $BINARY: build it (cargo build --package platter)"
export WORK BACKUP_PORT=${BACKUP_PORT:-2222}

exec {LOCK}> "$WORK/lock"
flock -n "$LOCK" || die "$WORK is in use by another run"
download
prepare
if [ $# -gt 0 ]; then
    case " $PROGRAMS " in *" $1 "*) ;; *) die "no program '$1': $PROGRAMS" ;; esac
    PROGRAMS=$1
    shift
fi
for program in $PROGRAMS; do
    say "$program"
    unshare --mount --propagation private bash "$HERE/inside.sh" "$program" "$@" {LOCK}>&- || say "$program: ended with $?"
done
[ -s "$WORK/results.tsv" ] || die "nothing was run: see $WORK/*.log"
say "$(cut -f3 "$WORK/results.tsv" | sort | uniq -c | awk '{ printf "%s%s %s", sep, $1, $2; sep = ", " }')"
if ! unlike=$(compare "$WORK/results.tsv"); then
    say "not as expected, once more:"
    printf '%s\n' "$unlike"
    mv "$WORK/results.tsv" "$WORK/results-first.tsv"
    while read -r program; do
        mapfile -t tests < <(awk -F'\t' -v p="$program" '$1 == p { print $2 }' <<< "$unlike")
        unshare --mount --propagation private bash "$HERE/inside.sh" "$program" "${tests[@]}" {LOCK}>&- || true
    done < <(cut -f1 <<< "$unlike" | sort -u)
    if ! unlike=$(compare "$WORK/results.tsv"); then
        say "not as expected twice:"
        printf '%s\n' "$unlike"
        exit 1
    fi
fi
say "as expected"
