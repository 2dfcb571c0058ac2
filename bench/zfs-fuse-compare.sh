#!/bin/bash
# Platter and zfs-fuse 0.7 side by side: sequential write and cold sequential read of incompressible data through the mount
# of a 7-file raidz, alternating in one run so that both see the same machine.
#
#   bench/zfs-fuse-compare.sh [GIB [ROUNDS]]        default 4 GiB, 3 rounds
#
#   PLATTER_BIN      the binary (default: target/release/platter, built when absent)
#   PLATTER_JUDGES   where zfs-fuse is unpacked (default /opt/platter-judges; `.ci/run judges` does it)
#   BENCH_DIR        where the device files go (default: a folder below TMPDIR)
#   BENCH_CREATE      options of `zpool create` for Platter (default: -o ashift=12)
#
# "Cold" means: exported, the page cache dropped, imported again. Needs root. Only one zfs-fuse can run on a machine.
set -euo pipefail

GIB=${1:-4}
ROUNDS=${2:-3}
REPO=$(cd "$(dirname "$0")/.." && pwd)
PLATTER_BIN=${PLATTER_BIN:-${CARGO_TARGET_DIR:-$REPO/target}/release/platter}
ZFSFUSE=${PLATTER_JUDGES:-/opt/platter-judges}/zfs-fuse/sbin
PLATTER_CREATE=${BENCH_CREATE:--o ashift=12}
DISKS=(d0 d1 d2 d3 d4 d5 d6)
CHUNK_MIB=512

die() { printf 'bench: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || die "needs root (to drop the page cache and to run zfs-fuse)"
[ -x "$ZFSFUSE/zfs-fuse" ] || die "no zfs-fuse in $ZFSFUSE: run .ci/run judges"
[ $((GIB * 1024 % CHUNK_MIB)) -eq 0 ] || die "GIB must be a whole number"
if [ ! -x "$PLATTER_BIN" ]; then (cd "$REPO" && cargo build --release -p platter); fi

WORK=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/platter-bench.XXXXXX")
CHUNK=$(mktemp /dev/shm/platter-bench.XXXXXX)
export PLATTER_HOME=$WORK/home LC_ALL=C.UTF-8
mkdir -p "$PLATTER_HOME" "$WORK/platter" "$WORK/zfsfuse" "$WORK/mnt"
ZFSFUSE_PID=

cleanup() {
    local code=$? mount
    trap - EXIT INT TERM
    set +e
    cd /
    timeout 60 "$PLATTER_BIN" daemon stop >/dev/null 2>&1
    if [ -n "$ZFSFUSE_PID" ]; then
        "$ZFSFUSE/zpool" destroy -f benchz >/dev/null 2>&1
        kill "$ZFSFUSE_PID" 2>/dev/null
        wait "$ZFSFUSE_PID" 2>/dev/null
    fi
    awk -v below="$WORK/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do
        umount -l "$mount"
    done
    rm -f "$CHUNK"
    if ! awk -v below="$WORK/" 'index($5, below) == 1 { found = 1 } END { exit !found }' /proc/self/mountinfo; then
        rm -rf --one-file-system "$WORK"
    fi
    exit $code
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Each of the two: create, destroy, export, import a pool mounted at $WORK/mnt/NAME with files in $WORK/NAME.
platter_pool() {
    case $1 in
    create) (cd "$WORK/platter" && "$PLATTER_BIN" zpool create $PLATTER_CREATE -O compression=off -O atime=off -m "$WORK/mnt/platter" benchp raidz "${DISKS[@]}") ;;
    destroy) "$PLATTER_BIN" zpool destroy benchp ;;
    export) "$PLATTER_BIN" zpool export benchp ;;
    import) "$PLATTER_BIN" zpool import -d "$WORK/platter" benchp ;;
    esac
}
zfsfuse_pool() {
    case $1 in
    # It takes absolute paths only.
    create) "$ZFSFUSE/zpool" create -O compression=off -O atime=off -m "$WORK/mnt/zfsfuse" benchz raidz "${DISKS[@]/#/$WORK/zfsfuse/}" 2>>"$WORK/zfs-fuse.log" ;;
    destroy) "$ZFSFUSE/zpool" destroy -f benchz ;;
    export) "$ZFSFUSE/zpool" export benchz ;;
    import) "$ZFSFUSE/zpool" import -d "$WORK/zfsfuse" benchz ;;
    esac
}

# A mount is busy for a moment after its last reader is gone.
patiently() {
    local try
    for try in $(seq 1 50); do
        if "$@" 2>>"$WORK/errors"; then return 0; fi
        sleep 0.2
    done
    cat "$WORK/errors" >&2
    die "failed 50 times: $*"
}

now() { date +%s.%N; }
rate() { awk -v mib="$1" -v from="$2" -v to="$3" 'BEGIN { printf "%.0f", mib / (to - from) }'; }
median() { printf '%s\n' "$@" | sort -n | awk '{ value[NR] = $1 } END { print (value[int((NR + 1) / 2)] + value[int((NR + 2) / 2)]) / 2 }'; }

wait_mounted() {
    local try
    for try in $(seq 1 100); do
        if mountpoint -q "$1"; then return 0; fi
        sleep 0.1
    done
    die "$1 is not mounted"
}

# One round of NAME: sets WRITE and READ in MiB/s.
one_round() {
    local name=$1 pool=$1_pool mnt=$WORK/mnt/$1 mib=$((GIB * 1024)) chunk from
    (cd "$WORK/$name" && rm -f "${DISKS[@]}" && truncate -s $((mib / 6 + 1024))M "${DISKS[@]}")
    sync
    echo 3 >/proc/sys/vm/drop_caches
    $pool create
    wait_mounted "$mnt"
    from=$(now)
    for chunk in $(seq $((mib / CHUNK_MIB))); do
        dd if="$CHUNK" of="$mnt/data" bs=1M oflag=append conv=notrunc status=none
    done
    sync -d "$mnt/data"
    WRITE=$(rate "$mib" "$from" "$(now)")
    patiently $pool export
    sync
    echo 3 >/proc/sys/vm/drop_caches
    $pool import
    wait_mounted "$mnt"
    from=$(now)
    dd if="$mnt/data" of=/dev/null bs=1M status=none
    READ=$(rate "$mib" "$from" "$(now)")
    # What was read fast must also be right: the last chunk, byte by byte.
    cmp -s -n $((CHUNK_MIB << 20)) --ignore-initial=$(((mib - CHUNK_MIB) << 20)):0 "$mnt/data" "$CHUNK" || die "$name: wrong data"
    patiently $pool destroy
    (cd "$WORK/$name" && rm -f "${DISKS[@]}")
}

head -c ${CHUNK_MIB}M /dev/urandom >"$CHUNK"
mkdir -p /var/run/zfs /var/lock/zfs /etc/zfs
"$ZFSFUSE/zfs-fuse" -n >"$WORK/zfs-fuse.log" 2>&1 &
ZFSFUSE_PID=$!
for _ in $(seq 1 100); do
    if "$ZFSFUSE/zpool" list >/dev/null 2>&1; then break; fi
    kill -0 "$ZFSFUSE_PID" 2>/dev/null || { cat "$WORK/zfs-fuse.log"; die "zfs-fuse does not start"; }
    sleep 0.1
done

echo "$GIB GiB incompressible, 7-file raidz, compression off, $(nproc) CPUs, $ROUNDS rounds alternating, MiB/s"
printf '%-8s %12s %12s %12s %12s\n' round 'Platter wr' 'zfs-fuse wr' 'Platter rd' 'zfs-fuse rd'
pw=() zw=() pr=() zr=()
for round in $(seq "$ROUNDS"); do
    one_round platter
    pw+=("$WRITE") pr+=("$READ")
    one_round zfsfuse
    zw+=("$WRITE") zr+=("$READ")
    printf '%-8s %12s %12s %12s %12s\n' "$round" "${pw[-1]}" "${zw[-1]}" "${pr[-1]}" "${zr[-1]}"
done
PW=$(median "${pw[@]}") ZW=$(median "${zw[@]}") PR=$(median "${pr[@]}") ZR=$(median "${zr[@]}")
printf '%-8s %12s %12s %12s %12s\n' median "$PW" "$ZW" "$PR" "$ZR"
awk -v pw="$PW" -v zw="$ZW" -v pr="$PR" -v zr="$ZR" 'BEGIN {
    printf "\n%-24s %10s %10s %8s\n", "median MiB/s", "Platter", "zfs-fuse", "ratio"
    printf "%-24s %10d %10d %7.2fx\n", "sequential write", pw, zw, pw / zw
    printf "%-24s %10d %10d %7.2fx\n", "cold sequential read", pr, zr, pr / zr
}'
